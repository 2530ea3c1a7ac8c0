"""Feed the readers and the model loader with damaged input, for as long as asked.

Protocol.  Hypothesis draws texts near a table of choices, TOML near a study file, and model files in which single bytes
are changed, removed or inserted.  Every input must be read, or refused by a `ChoiceGPError` within ten CPU seconds; all
else is printed with the input that Hypothesis has reduced, and the exit code is 1.  What is found joins the table in
`tests/hostile`.

Run: ``python studies/fuzz.py --seconds 600``
"""

import argparse
import contextlib
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicegp import ChoiceData, ChoiceGP
from choicegp.apps.server.study_file import read_study
from choicegp.errors import ChoiceGPError

MODEL = (Path(__file__).parents[1] / "tests" / "storage" / "data" / "model-v3.cgp").read_bytes()
GOOD = "choice_id,alt_id,choice,price,colour\n1,pen,1,3,red\n1,ink,0,5,blue\n2,pen,1,3,red\n2,cap,1,4,red\n"
CELL = st.one_of(
    st.sampled_from(["", "1", "0", "-1", "nan", "1e999", "pen", '"', ";", "\t", "\0", "1,5", "yes"]), st.text()
)
SLOWEST = 10.0


@st.composite
def tables(draw: Callable) -> bytes:
    """Draw a table in which cells, separators or bytes are others."""
    lines = [line.split(",") for line in GOOD.splitlines()]
    for _ in range(draw(st.integers(0, 6))):
        row = draw(st.integers(0, len(lines) - 1))
        lines[row][draw(st.integers(0, len(lines[row]) - 1))] = draw(CELL)
    text = "\n".join(draw(st.sampled_from([",", ";", "\t"])).join(line) for line in lines)
    return text.encode(draw(st.sampled_from(["utf-8", "utf-16"])), "surrogatepass")


@st.composite
def damaged(draw: Callable, content: bytes = MODEL) -> bytes:
    """Draw a file with some bytes changed, removed or inserted."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 8))):
        place = draw(st.integers(0, len(found) - 1))
        found[place : place + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(found)


def attempt(read: Callable[[Path], object], name: str, content: bytes) -> None:
    """Read a file with this content; only a clear refusal may come of it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path, begun = Path(folder) / name, time.process_time()
        path.write_bytes(content)
        with contextlib.suppress(ChoiceGPError):
            read(path)
        assert time.process_time() - begun < SLOWEST, "too slow"


def _reading(read: Callable[[Path], object], file: str) -> Callable[[bytes], None]:
    return lambda content: attempt(read, file, content)


_SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
TARGETS = {
    "tables": (tables(), "choices.csv", ChoiceData.from_long),
    "models": (damaged(), "model.cgp", ChoiceGP.load),
    "studies": (st.text().map(lambda text: text.encode("utf-8", "ignore")), "study.toml", read_study),
    "Parquet": (damaged(b"PAR1" + bytes(60) + b"PAR1"), "choices.parquet", ChoiceData.from_long),
}  # fmt: skip


def main() -> int:
    """Run all targets in turn until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--examples", type=int, default=100, help="examples of each target in a round")
    options = parser.parse_args()
    end, n_rounds = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        for name, (strategy, file, read) in TARGETS.items():
            run = settings(_SETTINGS, max_examples=options.examples)(given(strategy)(_reading(read, file)))
            try:
                run()
            except Exception:
                print(f"{name}: found in round {n_rounds}")
                traceback.print_exc()
                return 1
        n_rounds += 1
        print(f"round {n_rounds}: nothing found in {options.examples} examples of {', '.join(TARGETS)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
