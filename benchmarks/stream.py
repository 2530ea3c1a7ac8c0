"""Peak memory of choices in a folder: it must not grow with the number of files.

Writes folders of sets of ten objects (ZDT1's two objectives, six features) in files of a thousand sets, and measures
for each, in a process of its own: memory before (the libraries alone), after opening it, and after reading mini-batches
as a fit does.

    python benchmarks/stream.py                            # 10k, 40k and 160k sets
    python benchmarks/stream.py 2000 8000 --blocks 20

Prints one line of JSON per folder; memory in MiB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

SIZE, N_FEATURES, IN_FILE, BATCH, BLOCK = 10, 6, 1000, 256, 10


def write(folder: Path, n_sets: int, in_file: int = IN_FILE, first: int = 0) -> None:
    """Write the folder file by file; numbers of files, and so their sets, begin with ``first``."""
    for number in range(first, first - (-n_sets // in_file)):
        n = min(in_file, n_sets - (number - first) * in_file)
        X = np.random.default_rng(number).uniform(size=(n * SIZE, N_FEATURES))
        g = 1.0 + 9.0 * X[:, 1:].mean(axis=1)
        U = -np.column_stack([X[:, 0], g * (1.0 - np.sqrt(X[:, 0] / g))]).reshape(n, SIZE, 2)
        ahead = U[:, :, None] - U[:, None, :]  # (set, winner, loser, utility)
        beaten = np.any(np.all(ahead >= 0, axis=-1) & np.any(ahead > 0, axis=-1), axis=1)
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(N_FEATURES)])
        table.insert(0, "choice_id", number * in_file + np.repeat(np.arange(n), SIZE))
        table.insert(1, "choice", 1 - beaten.ravel().astype(int))
        table.to_parquet(folder / f"{number:05}.parquet", index=False)


def peak() -> float:
    """Return the most memory that this process has had, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def measure(path: str, n_blocks: int) -> dict:
    """Open a folder and read from it."""
    from choicegp import ChoiceFolder
    from choicegp.inference.sparse.feed import Feed, InFolder, shares

    before, start = peak(), time.perf_counter()
    folder = ChoiceFolder(path, object_id=None)
    opened, opening = peak(), time.perf_counter() - start
    source = InFolder(folder, folder.moments.mean, folder.moments.scale)
    parts = shares(source.sizes, np.arange(len(folder)), BATCH)
    start = time.perf_counter()
    for number in range(n_blocks):
        Feed(source, parts, 0, np.float64).steps(range(BLOCK * number, BLOCK * (number + 1)))
    return {
        "sets": len(folder), "files": len(folder.files), "before": before, "opened": opened, "read": peak(),
        "seconds_opening": round(opening, 1), "steps": BLOCK * n_blocks,
        "seconds_reading": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def main() -> None:
    """Measure the folders, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=int, default=[10_000, 40_000, 160_000])
    parser.add_argument("--blocks", type=int, default=40, help=f"of {BLOCK} mini-batches of {BATCH} sets")
    parser.add_argument("--measure", metavar="FOLDER", help="measure one folder in this process")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.blocks)))
        return
    for n_sets in options.sets:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), n_sets)
            command = [sys.executable, __file__, "--measure", folder, "--blocks", str(options.blocks)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
