"""What slips cost, and what a lapse rate saves.

Protocol, fixed before the run.  Two utilities, linear in four standard normal features with normal coefficients, 40
objects, 120 training sets and 200 test sets of four; answers are Pareto choices without errors.  A share of 0, 5, 10 or
20% of the training answers is replaced by a random non-empty subset.  Three models learn from them (`intervals="none"`,
no object effects): no lapse, a fixed lapse of the true share, and a learned lapse.  The measure is the exact accuracy
on test sets, against clean answers.  The goal: at 10% slips a learned lapse wins back at least two thirds of what the
slips cost the model without one, in the mean over seeds.

Run: ``python studies/slips.py --seeds 10``
"""

import argparse

import numpy as np

from choicegp import ChoiceData, ChoiceGP

SHARES = (0.0, 0.05, 0.1, 0.2)


def made(seed: int, share: float) -> tuple[ChoiceData, ChoiceData]:
    """Make training sets with slips, and clean test sets."""
    rng = np.random.default_rng([seed, 24])
    X = rng.normal(size=(40, 4))
    U = X @ rng.normal(size=(4, 2))
    shown = [rng.choice(40, 4, replace=False).tolist() for _ in range(320)]
    clean = ChoiceData.from_utilities(X, U, shown)
    train, test = clean.take(range(120)), clean.take(range(120, 320))
    chosen = [rows.tolist() for rows in train.chosen]
    for k in np.flatnonzero(rng.random(120) < share):
        code = int(rng.integers(1, 16))
        chosen[k] = [row for i, row in enumerate(shown[k]) if code >> i & 1]
    return ChoiceData.from_sets(X, shown[:120], chosen), test


def accuracy(seed: int, share: float, lapse: float | str) -> float:
    """Fit to one data set and score clean choices."""
    train, test = made(seed, share)
    model = ChoiceGP(2, lapse=lapse, intervals="none", object_effects=False, random_state=seed).fit(train)
    return model.score(test)


def main() -> None:
    """Run all settings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    options = parser.parse_args()
    print("slips  no lapse  fixed  learned  (mean exact accuracy, standard error of learned - none)")
    for share in options.shares:
        runs = np.array(
            [[accuracy(seed, share, lapse) for lapse in (0.0, share, "learn")] for seed in range(options.seeds)]
        )
        gain = runs[:, 2] - runs[:, 0]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
        means = "  ".join(f"{mean:7.3f}" for mean in runs.mean(axis=0))
        print(f"{share:5.0%}  {means}  {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
