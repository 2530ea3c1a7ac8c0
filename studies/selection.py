"""Is the right number of utilities found?  Leave-one-out selection on data with a known number.

Protocol, fixed before any run: seeds 0 to 19; SinCos (200 objects, two utilities) with 50 or 150 sets of 3 or 5, d = 1
to 4; utilities drawn from a Gaussian process (100 objects in 2 dimensions, 150 sets of 4, one to three utilities, seeds
0 to 9), d = 1 to 4.  All options are the defaults.  A confusion table, whatever it shows.

The paper's real tables (am, edm, jura, slump, vehicle; three outputs each): 50 objects (Jura and Slump: drawn with
the seed; EDM has 30), all pairs of them, of which 60% are for training; d = 1 to 5, seed 0 (the paper shows one
repetition).  With --folds 10 every number is also judged by exact 10-fold cross-validation on the same training sets:
without every fold the models are searched anew, hyperparameters and all.  With --decide 10 such folds decide where
leave-one-out leaves several numbers within one standard error of the best.

    python studies/selection.py sincos-150-3 [--seeds 20]
    python studies/selection.py gp-2 [--seeds 10]
    python studies/selection.py am edm jura slump vehicle --seeds 1 [--decide 10] [--folds 10 [--most 3]]
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from choicegp import ChoiceData, datasets, select_n_utilities

TABLES: dict[str, Callable[[], datasets.ObjectTable]] = {
    "am": datasets.load_am,
    "edm": datasets.load_edm,
    "jura": datasets.load_jura,
    "slump": datasets.load_slump,
}
N_OBJECTS, TRAINING_SHARE = 50, 0.6


def make(setting: str, seed: int) -> ChoiceData:
    """Make the data of a setting such as sincos-150-3 (sets, size) or gp-2 (utilities)."""
    if found := re.fullmatch(r"sincos-(\d+)-(\d+)", setting):
        return datasets.sincos(200, int(found[1]), int(found[2]), random_state=seed).data
    if found := re.fullmatch(r"gp-(\d+)", setting):
        drawn = datasets.gp_utilities(
            100, n_features=2, n_utilities=int(found[1]), n_sets=150, set_size=4, random_state=seed
        )
        return drawn.data
    if setting == "vehicle":
        return training_pairs(datasets.vehicle(N_OBJECTS, random_state=seed), seed)
    if setting in TABLES:
        return training_pairs(TABLES[setting](), seed)
    raise SystemExit(f"{setting!r} is no setting: try sincos-150-3, gp-2 or am")


def training_pairs(table: datasets.ObjectTable, seed: int) -> ChoiceData:
    """Draw the objects, and the pairs of them that are for training."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(table.X))[:N_OBJECTS])
    pairs = rng.permutation(rows[datasets.all_pairs(len(rows))])
    return table.choices(pairs[: round(TRAINING_SHARE * len(pairs))])


def cross_validated(data: ChoiceData, most: int, n_folds: int) -> str:
    """Put the cross-validated scores of 1, 2, ... utilities into words, each with its difference to the best."""
    table = select_n_utilities(
        data, max_utilities=most, random_state=0, folds=n_folds, contenders="all", progress=False
    ).table
    difference = table["cv"] - table["cv"].max()
    rows = zip(table["cv"], difference, table["cv_se"], strict=True)
    return " ".join(f"{score:.1f} ({worse:.1f} +- {error:.1f})" for score, worse, error in rows)


def main() -> None:
    """Select for every seed and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--decide", type=int, help="folds that decide where leave-one-out cannot")
    parser.add_argument("--folds", type=int, default=0, help="also cross-validate every number with this many folds")
    parser.add_argument("--most", type=int, help="most utilities that are cross-validated")
    args = parser.parse_args()
    for setting in args.settings:
        chosen: Counter[int] = Counter()
        for seed in range(args.seeds):
            start = time.perf_counter()
            data, most = make(setting, seed), 4 if "-" in setting else 5
            found = select_n_utilities(data, max_utilities=most, random_state=0, folds=args.decide, progress=False)
            chosen[found.n_utilities] += 1
            elpd = " ".join(f"{value:.1f}" for value in found.table["elpd"])
            seconds = time.perf_counter() - start
            print(f"{setting} seed {seed}: d = {found.n_utilities} (elpd {elpd}), {seconds:.0f} s", flush=True)
            if args.folds:
                scores = cross_validated(data, args.most or most, args.folds)
                print(f"{setting} seed {seed}: {args.folds} folds {scores}", flush=True)
            if args.decide:
                print(f"{setting} seed {seed}: {found.reason}", flush=True)
        print(f"{setting}: " + ", ".join(f"d = {d}: {n}" for d, n in sorted(chosen.items())), flush=True)


if __name__ == "__main__":
    main()
