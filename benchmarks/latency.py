"""How long a user waits: imports, help, and first fits, each in a process of its own, as a Markdown table.

Seconds by the clock depend on what else the machine does, so the seconds of the processor stand beside them; on
several cores these can be more.  A cold fit finds no compiled programs, a cached one finds the programs of an earlier
process, and a warm one is the second of its process.  Every figure is the median of some runs; a cold fit is made once.

Run: ``python benchmarks/latency.py``
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from choicegp import datasets
from choicegp.experiments.results import markdown_table, table_row

_FIT = """
import resource, sys, time
from choicegp import ChoiceData, ChoiceGP
data = ChoiceData.from_long(sys.argv[1])
def fit(seed): ChoiceGP(2, intervals=sys.argv[2], random_state=seed, progress=False).fit(data)
def spent(): return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
fit(0)
if sys.argv[3] == "warm":
    begun, before = time.perf_counter(), spent()
    fit(1)
    print(time.perf_counter() - begun, spent() - before)
"""
_CLI = ["-m", "choicegp.apps.cli"]


def timed(*arguments: str, cache: str) -> tuple[float, float]:
    """Return the seconds of a Python process by the clock and of the processor, or those that it prints itself."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"CHOICEGP_CACHE": cache}, capture_output=True, text=True
    )
    if ended.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{ended.stderr}")
    if arguments[-1] == "warm":
        clock, spent = map(float, ended.stdout.split())
        return clock, spent
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, spent


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(markdown_table(("what", "seconds", "of the processor"), []))

    def row(what: str, *arguments: str, cache: str = "off", runs: int = options.runs) -> None:
        clock, spent = np.median([timed(*arguments, cache=cache) for _ in range(runs)], axis=0)
        print(table_row((what, f"{clock:.2f}", f"{spent:.2f}")), flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, model = str(folder / "choices.csv"), str(folder / "model.cgp")
        datasets.alice_choices(n_objects=40, n_sets=60, set_size=3, random_state=0).data.write(table)
        row("an empty Python program", "-c", "")
        row("`import choicegp`", "-c", "import choicegp")
        row("`from choicegp import ChoiceGP`", "-c", "from choicegp import ChoiceGP")
        row("`choicegp --help`", *_CLI, "--help")
        row("`choicegp fit --help`", *_CLI, "fit", "--help")
        row("`choicegp describe choices.csv`", *_CLI, "describe", table)
        for intervals, words in (("none", 'without intervals (`intervals="none"`)'), ("auto", "with all defaults")):
            cache = str(folder / intervals)
            row(f"first fit {words}, cold", "-c", _FIT, table, intervals, "once", cache=cache, runs=1)
            row("the same, cached", "-c", _FIT, table, intervals, "once", cache=cache)
            row("the same, warm", "-c", _FIT, table, intervals, "warm", cache=cache)
        cache = str(folder / "auto")
        row("`choicegp fit choices.csv`, cached", *_CLI, "fit", table, "-o", model, cache=cache)
        row("`choicegp predict`, cold", *_CLI, "predict", model, table, cache=cache, runs=1)
        row("the same, cached", *_CLI, "predict", model, table, cache=cache)
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"\nLoad of the machine in the last 1, 5 and 15 minutes: {load}; {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
