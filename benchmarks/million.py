"""A million sets: a folder of Parquet files with sets of ten objects, opened, fitted by sparse inference, predicted.

Protocol: ZDT1's two objectives over six features (`benchmarks/stream.py` writes them), in files of 10,000 sets; default
options and two utilities; then 10,000 sets of one more file, which the fit has not seen, are predicted once.

    python benchmarks/million.py [--sets 1000000] [--seconds 300]
    XLA_FLAGS=--xla_force_host_platform_device_count=4 python benchmarks/million.py --sets 20000 --seconds 60

Prints one line of JSON: seconds of writing, opening, fitting and predicting, steps, pooled A-mean on the new sets, and
the most memory of this process and of the device.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from stream import peak, write

from choicegp import ChoiceFolder, ChoiceGP, metrics

FILE = 10_000  # sets


def written(folder: Path, n_sets: int, processes: int) -> Path:
    """Write the sets, and in a folder of their own those that are only predicted."""
    n_files, test = -(-n_sets // FILE), folder / "new"
    test.mkdir(parents=True)
    train = folder / "train"
    train.mkdir()
    # Forked children would share JAX's threads: they are spawned.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        jobs = [pool.submit(write, train if i < n_files else test, FILE, FILE, i) for i in range(n_files + 1)]
        for job in jobs:
            job.result()
    return train


def measured(folder: Path, n_sets: int, seconds: float | None, processes: int) -> dict:
    """Write, open, fit and predict."""
    import jax

    clock = [time.perf_counter()]
    train = written(folder, n_sets, processes)
    clock.append(time.perf_counter())
    choices = ChoiceFolder(train, object_id=None)
    clock.append(time.perf_counter())
    model = ChoiceGP(2, max_seconds=seconds).fit(choices)
    clock.append(time.perf_counter())
    test = ChoiceFolder(folder / "new", object_id=None).read(0)
    predicted = model.predict(test)
    clock.append(time.perf_counter())
    names = ("writing", "opening", "fitting", "predicting")
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {
        "sets": len(choices), "objects": int(np.sum(choices.sizes)), "devices": len(jax.devices()),
        "device": jax.devices()[0].device_kind, "steps": model.fit_result_.n_iter, "status": model.fit_result_.status,
        "a_mean": round(metrics.a_mean(test, predicted), 4), "host_mib": peak(), "device_gib": round(memory / 2**30, 2),
        **{f"seconds_{name}": round(b - a, 1) for name, a, b in zip(names, clock, clock[1:], strict=False)},
    }  # fmt: skip


def main() -> None:
    """Measure one folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, help="time limit of the fit")
    parser.add_argument("--processes", type=int, default=2, help="that write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), options.sets, options.seconds, options.processes)), flush=True)


if __name__ == "__main__":
    main()
