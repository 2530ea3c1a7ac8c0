"""Speed, bound and accuracy of every method in one run, as Markdown tables.

``make bench`` runs all of it (the paper's own 5000 steps take most of the time); ``--methods dense`` leaves it out.
SinCos is read from the data folder that CHOICEGP_DATA names, and left out without it.
``auto`` is what a user gets by default: a dense fit, and intervals by sampling or by mixing after it.
Every figure comes from a process of its own; "cold" counts its imports and compiling with an empty cache.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from choicegp.experiments.results import markdown_table, table_row

HERE = Path(__file__).parent
PROBLEMS = ("sincos", "pairs", "tens")
METHODS = ("dense", "auto", "paper-converged", "paper")
SIZES = ((500, 3000), (1000, 3000), (1500, 3000), (2000, 3000), (1000, 1000), (1000, 2000), (1000, 4000), (1000, 8000))


def run(script: str, *arguments: str, cache: str) -> dict:
    """Run a script in a new process and read its line of JSON."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env=os.environ | {"CHOICEGP_CACHE": cache},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{script} {' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(problem: str, method: str) -> dict:
    """Measure one method on one problem: cold, cold with the cache, and warm."""
    with tempfile.TemporaryDirectory() as cache:
        if method == "paper":
            return run("measure.py", problem, method, cache=cache)
        cold = run("measure.py", problem, method, cache=cache)
        cached = run("measure.py", problem, method, "--warm", cache=cache)
    return cold | {"cached": cached["cold"], "warm": cached["warm"]}


def methods_table(methods: Sequence[str], problems: Sequence[str]) -> None:
    """Print one row per problem and method."""
    head = (
        "problem", "method", "ELBO", "exact known / new", "object known / new", "A-mean known / new", "s cold",
        "s cached", "s warm", "steps", "GiB", "cold, x dense",
    )  # fmt: skip
    print(markdown_table(head, []))
    for problem in problems:
        base = None
        for method in methods:
            r = measure(problem, method)
            base = base or r["cold"]
            pair = "{:.3f} / {:.3f}".format
            rest = [f"{r[key]:.1f}" if key in r else None for key in ("cached", "warm")]
            scores = [pair(r[f"{score}_known"], r[f"{score}_new"]) for score in ("exact", "object", "a_mean")]
            last = (f"{r['steps']} ({r['status']})", f"{r['memory_gib']:.2f}", f"{r['cold'] / base:.1f}")
            print(
                table_row((problem, method, f"{r['elbo']:.1f}", *scores, f"{r['cold']:.1f}", *rest, *last)), flush=True
            )


def scale_table(sizes: Sequence[tuple[int, int]] = SIZES) -> None:
    """Print seconds and memory against objects and sets, and the exponents with which they grow."""
    head = (
        "shown objects", "sets of 3", "s", "s of the processor", "steps", "ELBO", "bare factorisations of a step, ms",
        "a step, all starts counted, x bare", "GiB",
    )  # fmt: skip
    print("\n" + markdown_table(head, []))
    rows = []
    for n_objects, n_sets in sizes:
        with tempfile.TemporaryDirectory() as cache:
            r = run("scale.py", str(n_objects), str(n_sets), cache=cache)
        rows.append(r)
        times = (f"{r['seconds']:.1f}", f"{r['on_processor']:.1f}", f"{r['steps']} ({r['status']})", f"{r['elbo']:.1f}")
        last = (f"{r['bare_ms']:.0f}", f"{r['ratio']:.1f}", f"{r['memory_gib']:.2f}")
        print(table_row((r["objects"], r["sets"], *times, *last)), flush=True)
    for name, other in (("objects", "sets"), ("sets", "objects")):
        same = [r for r in rows if abs(r[other] / (3000 if other == "sets" else 1000) - 1.0) < 0.05]
        if len({r[name] for r in same}) > 1:
            logs = np.log([[r[name], r["on_processor"]] for r in same])
            print(f"\nSeconds of the processor grow with {name} to the power {np.polyfit(*logs.T, 1)[0]:.2f}.")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS)
    parser.add_argument("--no-scale", action="store_true", help="without the table of sizes")
    args = parser.parse_args()
    problems = args.problems
    if problems is None:
        problems = [name for name in PROBLEMS if name != "sincos" or os.environ.get("CHOICEGP_DATA")]
        if "sincos" not in problems:
            print("SinCos is left out: set CHOICEGP_DATA to the folder of published tables.", file=sys.stderr)
    methods_table(args.methods, problems)
    if not args.no_scale:
        scale_table()


if __name__ == "__main__":
    main()
