"""Feed the readers and the loaders with damaged input, for as long as asked.

Protocol.  Hypothesis draws texts near a table of choices, near a wide one and near a study file, and files in which
some bytes are changed, removed or inserted: models, checkpoints, databases, Parquet files, sheets and pages of models,
of which also single values are changed or left out, and arrays have other shapes, types and numbers.
With ``--engine atheris``, where that is installed, one target is fed by a fuzzer that sees which branches an input
takes.  Every input must be read, or refused by a `ChoiceGPError` within ten CPU seconds; all else is printed, its
input is written to a file, and the exit code is not 0.  What is found joins the table in `tests/hostile`.

Run: ``python studies/fuzz.py --seconds 600`` and
``python studies/fuzz.py --engine atheris --target tables --seconds 120``
"""

import argparse
import contextlib
import gc
import io
import json
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd

from choicegp import ChoiceData, ChoiceGP, Store
from choicegp.apps import models
from choicegp.apps.server.study_file import read_study
from choicegp.errors import ChoiceGPError
from choicegp.inference.sparse.stopping import Scored
from choicegp.storage.checkpoints import Checkpoint

_FILES = Path(__file__).parents[1] / "tests" / "storage" / "data"
MODEL = (_FILES / "model-v3.cgp").read_bytes()
#: Models whose pages have other parts: draws of many people, steps in one direction, another class.
OTHERS = {name: (_FILES / f"{name}.cgp").read_bytes() for name in ("sampled-people-v7", "monotone-v8", "best-v5")}
GOOD = "choice_id,alt_id,choice,price,colour\n1,pen,1,3,red\n1,ink,0,5,blue\n2,pen,1,3,red\n2,cap,1,4,red\n"
WIDE = "choice_id,pen_price,ink_price,pen_size,ink_size,choice\n1,3,4,1,2,pen\n2,3,5,1,,ink\n3,3,4,1,2,pen\n"
STUDY = '[study]\nsets = 8\nset_size = 3\nthreshold = true\n[en]\ntitle = "Pens"\n[en.labels]\nprice = "Price"\n'
SLOWEST = 10.0
MOST_NUMBERS = 100_000
_TABLE = pd.read_csv(io.StringIO(GOOD))


def made(write: Callable[[Path], object], name: str) -> bytes:
    """Return the content of a file that a function writes."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def write_checkpoint(path: Path) -> None:
    """Write a checkpoint of one record."""
    keeper = Checkpoint(path, "a fit")
    keeper.keep("state", (Scored(-1.5, np.arange(3.0)), None, "text"))
    keeper.write()


def write_database(path: Path) -> None:
    """Write a database with one answer."""
    with Store.open(path, _TABLE.drop_duplicates("alt_id").set_index("alt_id")[["price"]]) as store:
        person, _ = store.join("a")
        store.answer(store.ask(person, ["pen", "ink"]).key, ["pen"])


def read_wide(path: Path) -> object:
    """Read a wide table."""
    return ChoiceData.from_wide(path, alternatives=["pen", "ink"], features=["price", "size"])


def parts_of(model: bytes) -> dict[str, bytes]:
    """Return the files inside a model file."""
    with zipfile.ZipFile(io.BytesIO(model)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(array: Any) -> bytes:
    """Return an array as a file of NumPy."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def read_parts(path: Path, parts: dict[str, bytes]) -> object:
    """Read a model that consists of these files."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return models.load(str(path))


def read_page(path: Path, model: bytes = MODEL) -> object:
    """Read a model whose page of JSON is the content of the file."""
    page = np.array(path.read_bytes().decode("utf-8", "replace"))
    return read_parts(path, parts_of(model) | {"about.npy": packed(page)})


def arrays_of(model: bytes) -> bytes:
    """Return the shapes and types of the arrays of a model and the number that fills them, as JSON; null: its own."""
    arrays = {name: np.load(io.BytesIO(part)) for name, part in parts_of(model).items() if name != "about.npy"}
    return json.dumps(
        {name: {"shape": one.shape, "type": one.dtype.str, "fill": None} for name, one in arrays.items()}
    ).encode()


def read_arrays(path: Path, model: bytes) -> object:
    """Read a model whose arrays are what the file says; what NumPy cannot make stays as it was."""
    wanted, parts = json.loads(path.read_bytes()), parts_of(model)
    for name, own in json.loads(arrays_of(model)).items():
        if name not in wanted:
            del parts[name]
        elif wanted[name] != own:
            with contextlib.suppress(Exception):
                shape, kind, fill = (wanted[name][key] for key in ("shape", "type", "fill"))
                fill = np.load(io.BytesIO(parts[name])).flat[0] if fill is None else fill
                if np.prod(np.broadcast_to(0, shape).shape) < MOST_NUMBERS:
                    parts[name] = packed(np.full(shape, fill, kind))
    return read_parts(path, parts)


def read_database(path: Path) -> object:
    """Open a database, and read what was answered."""
    with Store.open(path) as store:
        return store.answers(), store.events(), store.data()


def page_of(model: bytes) -> bytes:
    """Return the page of JSON of a model file."""
    return str(np.load(io.BytesIO(parts_of(model)["about.npy"]))).encode()


# A good input, the name of its file, what reads it, and whether it is text.
TARGETS: dict[str, tuple[bytes, str, Callable[[Path], Any], bool]] = {
    "tables": (GOOD.encode(), "choices.csv", ChoiceData.from_long, True),
    "wide tables": (WIDE.encode(), "choices.csv", read_wide, True),
    "studies": (STUDY.encode(), "study.toml", read_study, True),
    "pages": (page_of(MODEL), "model.cgp", read_page, True),
    "models": (MODEL, "model.cgp", ChoiceGP.load, False),
    **{
        f"page of {name}": (page_of(model), "model.cgp", partial(read_page, model=model), True)
        for name, model in OTHERS.items()
    },
    **{
        f"arrays of {name}": (arrays_of(model), "model.cgp", partial(read_arrays, model=model), True)
        for name, model in OTHERS.items()
    },
    "checkpoints": (
        made(write_checkpoint, "a.checkpoint"), "a.checkpoint",
        lambda path: Checkpoint(path, "a fit").recall("state"), False,
    ),
    "databases": (made(write_database, "a.db"), "a.db", read_database, False),
    "Parquet": (made(_TABLE.to_parquet, "choices.parquet"), "choices.parquet", ChoiceData.from_long, False),
    "sheets": (
        made(lambda path: _TABLE.to_excel(path, index=False), "choices.xlsx"), "choices.xlsx", ChoiceData.from_long,
        False,
    ),
}  # fmt: skip


def attempt(name: str, content: bytes) -> None:
    """Read a file with this content; only a clear refusal may come of it."""
    _, file, read, _ = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path, begun = Path(folder) / file, time.process_time()
        path.write_bytes(content)
        with contextlib.suppress(ChoiceGPError):
            read(path)
        assert time.process_time() - begun < SLOWEST, "too slow"


def _attempt_at(name: str) -> Callable[[bytes], None]:
    def attempt_or_keep(content: bytes) -> None:
        try:
            attempt(name, content)
        except BaseException:
            # The last one that is kept is the smallest.
            Path(f"found-{TARGETS[name][1]}").write_bytes(content)
            raise

    return attempt_or_keep


def by_hypothesis(names: list[str], seconds: float, n_examples: int, first: int = 0) -> int:
    """Run all targets in turn until the time is up."""
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st

    odd = ["", "1", "0", "-1", "nan", "1e999", "pen", '"', ";", "\t", "\0", "1,5", "yes", "[", "{", "null", "9" * 400]
    piece = st.one_of(st.sampled_from(odd), st.text(max_size=20))

    @st.composite
    def damaged(draw: Callable, content: bytes, is_text: bool) -> bytes:
        """Draw a file with some pieces changed, removed or inserted."""
        found = bytearray(content)
        for _ in range(draw(st.integers(0 if is_text else 1, 8))):
            place = draw(st.integers(0, max(len(found) - 1, 0)))
            new = draw(piece).encode("utf-8", "surrogatepass") if is_text else draw(st.binary(max_size=4))
            found[place : place + draw(st.integers(0, 12 if is_text else 4))] = new
        if is_text and draw(st.integers(0, 9)) == 0:
            return bytes(found).decode("utf-8", "replace").encode("utf-16")
        return bytes(found)

    values: list[Any] = [
        None,
        True,
        -1,
        0,
        3,
        2.5,
        1e308,
        10**40,
        "",
        "x",
        [],
        {},
        [1],
        [None],
        [[1.0], ["x"]],
        {"x": 1},
    ]

    @st.composite
    def forged(draw: Callable, content: bytes) -> bytes:
        """Draw a page of JSON in which some values are others, or gone."""
        page = json.loads(content)
        for _ in range(draw(st.integers(1, 3))):
            place: Any = page
            while place:
                key = draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
                if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                    place = place[key]
                elif draw(st.integers(0, 4)) == 0:
                    del place[key]
                    break
                else:
                    place[key] = deepcopy(draw(st.sampled_from(values)))
                    break
        return json.dumps(page).encode()

    def inputs(name: str) -> Any:
        content, _, _, is_text = TARGETS[name]
        bytewise = damaged(content, is_text)
        if name.startswith("arrays"):
            return forged(content)
        return st.one_of(bytewise, forged(content)) if name.startswith("page") else bytewise

    quiet = settings(
        deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=n_examples
    )  # fmt: skip
    end, n_rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for name in names:
            try:
                # Another seed in every round, so that a run can be repeated.
                seed(first + n_rounds)(quiet(given(inputs(name))(_attempt_at(name))))()
            except Exception as error:
                print(f"{name}: found with seed {first + n_rounds}; the input is in found-{TARGETS[name][1]}")
                print(
                    "".join(traceback.format_tb(error.__traceback__)[-3:]) + f"{type(error).__name__}: {error}"[:1000]
                )
                return 1
        n_rounds += 1
        print(f"round {n_rounds}: nothing found in {n_examples} examples of {', '.join(names)}", flush=True)
    return 0


def by_atheris(names: list[str], seconds: float) -> int:
    """Run one target by a fuzzer that follows the branches taken; it ends the process itself."""
    import atheris

    [name] = names
    with tempfile.TemporaryDirectory() as corpus:
        (Path(corpus) / "good").write_bytes(TARGETS[name][0])
        # All functions of all libraries would take minutes.
        for function in gc.get_objects():
            if isinstance(function, FunctionType) and (function.__module__ or "").startswith("choicegp"):
                atheris.instrument_func(function)
        limits = [
            f"-max_total_time={int(seconds)}",
            "-max_len=20000",
            f"-timeout={int(3 * SLOWEST)}",
            "-rss_limit_mb=2048",
        ]
        atheris.Setup([sys.argv[0], *limits, corpus], lambda content: attempt(name, content))
        atheris.Fuzz()
    return 0


def main() -> int:
    """Run until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--target", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--engine", choices=("hypothesis", "atheris"), default="hypothesis")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first round of hypothesis; the next have the next ones"
    )
    parser.add_argument("--examples", type=int, default=100, help="examples of each target in a round")
    options = parser.parse_args()
    if options.engine == "atheris":
        if len(options.target) != 1:
            parser.error("atheris takes one --target")
        return by_atheris(options.target, options.seconds)
    return by_hypothesis(options.target, options.seconds, options.examples, options.seed)


if __name__ == "__main__":
    raise SystemExit(main())
