"""How often independent fits end in different modes, and whether a note says that there may be other explanations.

    python studies/modes.py --utilities 1 2 3 --sizes 3 5 12 16 --answers noisy noise-free --seed 400 --seeds 2 > rows
    python studies/modes.py summary rows

Every data set (those of `choicegp honesty`, 25 objects, 60 sets) is fitted with several values of ``random_state``.
Two fits are in different modes where a difference of two objects has a sure sign in both (95% intervals exclude zero)
and these signs are opposite.  Also printed are the bounds, the signs that are sure and wrong, and which fits had the
note.  Utilities are Gaussian, and no chains are run, unless ``--intervals auto`` is given.
"""

import argparse
import json
import time
from collections import defaultdict
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any

import numpy as np

from choicegp import ChoiceGP
from choicegp.experiments.honesty_data import SplitAnswers, simulated
from choicegp.experiments.honesty_measures import aligned
from choicegp.inference import intervals
from choicegp.inference.driver import Inferred, Task

N_DRAWS = 1000


def fitted(data: SplitAnswers, d: int, seed: int, how: str) -> tuple[ChoiceGP, bool]:
    """Fit a model; also say whether it has the note, or would have it with intervals."""
    made, noted = intervals.with_intervals, []

    def without(task: Task, before: Inferred) -> tuple[Inferred, str]:
        noted.append(bool(intervals.may_have_modes(task, before)))
        return (before, "") if how == "none" else made(task, before)

    intervals.with_intervals = without
    try:
        model = ChoiceGP(d, random_state=seed, progress=False).fit(data.train)
    finally:
        intervals.with_intervals = made
    return model, noted[-1] if how == "none" else intervals.MANY_MODES in model.fit_result_.notes


def signs(model: ChoiceGP, data: SplitAnswers) -> tuple[np.ndarray, np.ndarray]:
    """Return means (n, d) of differences of consecutive objects, and their signs, zero where these are not sure."""
    rows = np.unique(data.train.flat_shown)
    drawn = np.diff(model.sample_utilities(data.train, N_DRAWS, random_state=0)[:, rows], axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return drawn.mean(axis=0), np.where(low > 0, 1, 0) - np.where(high < 0, 1, 0)


def contradictions(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> int:
    """Count opposite sure signs, in the order of utilities in which the two fits are nearest to each other."""
    orders = [list(order) for order in permutations(range(one[0].shape[1]))]
    best = min(orders, key=lambda order: float(np.abs(one[0] - other[0][:, order]).sum()))
    return int(np.sum(one[1] * other[1][:, best] < 0))


def measured(d: int, a: int, answers: str, features: int, seed: int, n_fits: int, how: str) -> dict[str, Any]:
    """Fit one data set several times."""
    settings = {"d": d, "a": a, "features": features, "answers": answers, "seed": seed}
    data = simulated({"part": "simulated", "objects": 25, "sets": 60, "related": 0.0, **settings})
    start, found = time.process_time(), []
    rows = np.unique(data.train.flat_shown)
    bounds, noted, wrong, sure = [], [], [], []
    for number in range(n_fits):
        model, has_note = fitted(data, d, seed + 1000 * number, how)
        mean, sign = signs(model, data)
        true = aligned(mean, np.diff(data.U[rows], axis=0), free_scale=answers != "noisy")
        found.append((mean, sign))
        bounds.append(round(float(model.elbo_), 1))
        noted.append(has_note)
        wrong.append(int(np.sum(sign * np.sign(true) < 0)))
        sure.append(int(np.sum(sign != 0)))
    against = [contradictions(*pair) for pair in combinations(found, 2)]
    return {
        **settings, "bounds": bounds, "noted": noted, "wrong": wrong, "sure": sure, "contradictions": against,
        "seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def summarise(paths: list[str]) -> None:
    """Count data sets whose fits differ, and how many of their fits had the note."""
    by_kind = defaultdict(list)
    for path in paths:
        for line in Path(path).read_text().splitlines():
            row = json.loads(line)
            by_kind[row["answers"], row["a"], row["d"]].append(row)
    for kind, rows in sorted(by_kind.items()):
        differ = [row for row in rows if max(row["contradictions"]) > 0]
        notes = [flag for row in differ for flag in row["noted"]]
        idle = [flag for row in rows if row not in differ for flag in row["noted"]]
        wrong, sure = (sum(sum(row[name]) for row in rows) for name in ("wrong", "sure"))
        print(
            f"{kind}: {len(differ)} of {len(rows)} data sets in different modes, note in {sum(notes)} of {len(notes)} "
            f"of their fits and in {sum(idle)} of {len(idle)} others; {wrong} of {sure} sure signs wrong"
        )


def main() -> None:
    """Fit all data sets, or summarise printed rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="summary, and files of rows")
    parser.add_argument("--utilities", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--sizes", nargs="+", type=int, default=[5, 12, 16])
    parser.add_argument("--answers", nargs="+", default=["noise-free"], choices=["noisy", "noise-free"])
    for name, value in {"features": 2, "seed": 400, "seeds": 2, "fits": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--intervals", default="none")
    args = parser.parse_args()
    if args.what:
        return summarise(args.what[1:])
    seeds = range(args.seed, args.seed + args.seeds)
    for d, a, answers, seed in product(args.utilities, args.sizes, args.answers, seeds):
        row = measured(d, a, answers, args.features, seed, args.fits, args.intervals)
        print(json.dumps(row), flush=True)
    return None


if __name__ == "__main__":
    main()
