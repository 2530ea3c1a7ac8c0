"""Seconds of a choice of the number of utilities, d = 1 to 4 with leave-one-out, and what they consist of.

    python benchmarks/selection.py                # cold and cached, each in a process of its own
    taskset -c 0,1 python benchmarks/selection.py --seed 1

SinCos: 200 objects, 150 sets of three, two utilities, default options.  "Cold" begins with an empty folder of compiled
programs, "cached" finds those of the cold run.  The parts are seconds of the processor: programs (tracing, compiling,
keeping or loading them), fits without and leave-one-out without their programs; where several threads work, the parts
count what all of them did meanwhile, so that only with ``taskset -c 0`` they add up.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

N_OBJECTS, N_SETS, SIZE, MOST = 200, 150, 3, 4


def timed(function: Callable, name: str, spent: Counter) -> Callable:
    """Count the seconds of the processor of every call, without those of the programs that it makes."""

    def call(*args: Any, **options: Any) -> Any:
        begun, programs = time.process_time(), spent["programs"]
        try:
            return function(*args, **options)
        finally:
            own = time.process_time() - begun
            spent[name] += own - (spent["programs"] - programs if name != "programs" else 0.0)
            spent[f"number of {name}"] += 1

    return call


def measure(seed: int) -> None:
    """Choose once, and print what was chosen and how long it took as JSON."""
    begun = time.perf_counter()
    from choicegp import datasets, select_n_utilities
    from choicegp.compute.programs import Program
    from choicegp.selection import search

    spent: Counter = Counter()
    Program._found = timed(Program._found, "programs", spent)  # type: ignore[method-assign]
    search.fit_posterior = timed(search.fit_posterior, "fits", spent)
    search.leave_one_out = timed(search.leave_one_out, "leave-one-out", spent)
    data = datasets.sincos(N_OBJECTS, N_SETS, SIZE, random_state=seed).data
    found = select_n_utilities(data, max_utilities=MOST, random_state=0, progress=False)
    print(json.dumps({
        "seconds": round(time.perf_counter() - begun, 1), "on_processor": round(time.process_time(), 1),
        **{name: round(value, 1) for name, value in sorted(spent.items())},
        "chosen": found.n_utilities, "elpd": found.table["elpd"].round(2).tolist(),
        "refits": found.table["refits"].tolist(),
    }))  # fmt: skip


def main() -> None:
    """Measure in two processes, or in this one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="measure once, in this process")
    args = parser.parse_args()
    if args.here:
        measure(args.seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cold", "cached"):
            command = [sys.executable, __file__, "--here", "--seed", str(args.seed)]
            done = subprocess.run(command, env=os.environ | {"CHOICEGP_CACHE": folder}, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            print(name, done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
