"""Protocol of the toy: every run doubles its seed.

A run writes its process into the file ran-SEED, and waits while there is a file wait-SEED.  Then it fails where there
is fail-SEED, is interrupted where there is interrupt-SEED, and ends its process where there is kill-SEED.
"""

import os
import signal
import time
import warnings
from pathlib import Path

from choicegp.experiments.experiment import ExperimentReport

TITLE = "A toy"


def runs(options):
    n = options.repetitions or (2 if options.quick else 4)
    return [{"seed": options.seed + i, "notes": os.environ["TOY_NOTES"], "sizes": (1, 2)} for i in range(n)]


def run(settings, data):
    seed, notes = settings["seed"], Path(settings["notes"])
    with (notes / f"ran-{seed}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while (notes / f"wait-{seed}").exists():
        time.sleep(0.01)
    if (notes / f"fail-{seed}").exists():
        raise ValueError("no luck |\nat all")
    if (notes / f"interrupt-{seed}").exists():
        raise KeyboardInterrupt
    if (notes / f"kill-{seed}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if (notes / f"warn-{seed}").exists():
        warnings.warn("the fit stopped at its limit", UserWarning, stacklevel=1)
    return {"twice": 2 * seed, "missing": float("nan"), "data": str(data), "curve": [seed, float("inf")]}


def report(outcomes):
    from matplotlib.figure import Figure

    twice = [one.values["twice"] for one in outcomes]
    return ExperimentReport(f"Doubled: {twice}", {"doubled": Figure(figsize=(1, 1))})
