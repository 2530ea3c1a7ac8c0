"""Do the 95% intervals of shares hold?  Simulated studies whose true shares are known.

Hierarchical: 40 people with 10 sets of 4 (`choicegp.datasets.many_people`, share of variance between people 0.3, 60
objects).  The true share of an object is the mean, over these people, of the probability that the model's own
likelihood gives it at their true utilities.  Pooled: one person with 80 sets of 4 over 40 objects.  Reported for 20
random assortments of 4: how often intervals of shares kept and taken hold the truth, how wide they are, the mean error,
and the same of what_if: the differences of shares when one object is replaced by another.  Fits are those of a user,
with object effects left out.

    python studies/market.py hierarchical|pooled [--seeds 10] [--first 0] [--intervals none]
"""

import argparse
import time

import numpy as np

from choicegp import ChoiceGP, datasets
from choicegp.compute.devices import computing
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.prediction.taking import answered

SIZES = {"hierarchical": (40, 10, 60), "pooled": (1, 80, 40)}  # people, sets of each, objects
N_ASSORTMENTS, SIZE = 20, 4


def true_shares(utilities: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the shares of people with utilities (R, t, d) who keep and take each object of an assortment."""
    with computing():
        found = answered(utilities[None, :, rows], DISCERNIBILITY, None, "equal")
    return {"kept": found.keep[0].mean(axis=0), "taken": found.take[0].mean(axis=0)}


def judged(kind: str, seed: int, intervals: str) -> dict[str, list[tuple[float, float, float]]]:
    """Return, for shares and differences, whether each interval holds the truth, its width and the error."""
    n_people, n_sets, n_objects = SIZES[kind]
    study = datasets.many_people(n_people, n_sets, 0.3 if n_people > 1 else 0.0, seed, n_objects=n_objects)
    options = {"respondents": kind, "object_effects": False, "intervals": intervals, "progress": False}
    model = ChoiceGP(2, random_state=seed, **options).fit(study.data)
    rng = np.random.default_rng([seed, 1])
    shown = np.unique(study.data.flat_shown)
    found: dict[str, list[tuple[float, float, float]]] = {}

    def judge(name: str, column: str, table: object, truth: np.ndarray) -> None:
        middle, low, high = (table[f"{column}{end}"].to_numpy() for end in ("", "_lower", "_upper"))
        held = (low <= truth) & (truth <= high)
        found.setdefault(name, []).extend(zip(held, high - low, np.abs(middle - truth), strict=True))

    sets = [rng.choice(shown, SIZE + 1, replace=False) for _ in range(N_ASSORTMENTS)]
    table = model.shares({k: rows[:SIZE] for k, rows in enumerate(sets)})
    for k, rows in enumerate(sets):
        truth = true_shares(study.utilities, rows[:SIZE])
        for name in ("kept", "taken"):
            judge(name, name, table[table["set"] == k], truth[name])
        if k < 5:  # the first object becomes another: the same draws before and after
            new = dict(zip(study.data.encoding.feature_names, study.data.X[rows[SIZE]], strict=True))
            change = model.what_if(list(rows[:SIZE]), {int(rows[0]): new})
            after = true_shares(study.utilities, np.append(rows[SIZE], rows[1:SIZE]))
            for name in ("kept", "taken"):
                judge(f"{name}, difference", f"{name}_difference", change, after[name] - truth[name])
    return found


def main() -> None:
    """Simulate, fit and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=tuple(SIZES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--intervals", choices=("auto", "none"), default="auto", help="none: Gaussian, too narrow")
    args = parser.parse_args()
    of_seeds: dict[str, list[np.ndarray]] = {}
    for seed in range(args.first, args.first + args.seeds):
        began = time.perf_counter()
        for name, values in judged(args.kind, seed, args.intervals).items():
            of_seeds.setdefault(name, []).append(np.array(values, float))
        rates = ", ".join(f"{name} {parts[-1][:, 0].mean():.3f}" for name, parts in of_seeds.items())
        print(f"seed {seed}, {time.perf_counter() - began:.0f} s: {rates}", flush=True)
    for name, parts in of_seeds.items():
        held = np.array([part[:, 0].mean() for part in parts])
        every = np.concatenate(parts)
        error = held.std(ddof=1) / np.sqrt(len(held)) if len(held) > 1 else np.nan
        print(f"{name}: coverage {held.mean():.3f} ± {error:.3f}, width {every[:, 1].mean():.3f}, "
              f"mean error {every[:, 2].mean():.4f}, {len(held)} studies")  # fmt: skip


if __name__ == "__main__":
    main()
