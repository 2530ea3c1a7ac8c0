"""Is the right number of utilities found?  Leave-one-out selection on data with a known number.

Protocol, fixed before any run: seeds 0 to 19; SinCos (200 objects, two utilities) with 50 or 150 sets of 3 or 5, d = 1
to 4; utilities drawn from a Gaussian process (100 objects in 2 dimensions, 150 sets of 4, one to three utilities, seeds
0 to 9), d = 1 to 4.  All options are the defaults.  A confusion table, whatever it shows.

    python experiments/selection.py sincos-150-3 [--seeds 20]
    python experiments/selection.py gp-2 [--seeds 10]
"""

import argparse
import re
import time
from collections import Counter

from choicegp import ChoiceData, datasets, select_n_utilities


def make(setting: str, seed: int) -> ChoiceData:
    """Make the data of a setting such as sincos-150-3 (sets, size) or gp-2 (utilities)."""
    if found := re.fullmatch(r"sincos-(\d+)-(\d+)", setting):
        return datasets.sincos(200, int(found[1]), int(found[2]), random_state=seed).data
    if found := re.fullmatch(r"gp-(\d+)", setting):
        drawn = datasets.gp_utilities(
            100, n_features=2, n_utilities=int(found[1]), n_sets=150, set_size=4, random_state=seed
        )
        return drawn.data
    raise SystemExit(f"{setting!r} is no setting: try sincos-150-3 or gp-2")


def main() -> None:
    """Select for every seed and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+")
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    for setting in args.settings:
        chosen: Counter[int] = Counter()
        for seed in range(args.seeds):
            start = time.perf_counter()
            found = select_n_utilities(make(setting, seed), max_utilities=4, random_state=0, progress=False)
            chosen[found.n_utilities] += 1
            elpd = " ".join(f"{value:.1f}" for value in found.table["elpd"])
            seconds = time.perf_counter() - start
            print(f"{setting} seed {seed}: d = {found.n_utilities} (elpd {elpd}), {seconds:.0f} s", flush=True)
        print(f"{setting}: " + ", ".join(f"d = {d}: {n}" for d, n in sorted(chosen.items())), flush=True)


if __name__ == "__main__":
    main()
