"""What a threshold and another rule gain where the data have them, and what one person's data say.

Protocol, fixed before any run.

Threshold.  100 objects with two standard normal features, two utilities drawn from a Gaussian process (lengthscale 1.5,
variance 9), both multiplied by 2 against errors of answers; 150 training sets and 300 test sets of 4; the threshold has
the same value in both utilities, that of 99 values between the smallest and the largest utility with which the share of
test and training sets left empty by who never errs is nearest to 0.15.  Answers are drawn from the model's
probabilities.  Seeds 0 to 19.  Exact accuracy on all test sets and on those of which something is kept, of a model with
a threshold and of one that leaves the empty training sets out; both with ``intervals="none"``.  Then the same without
a threshold in the data: a model with one, and one without.  With default options, as many seeds as asked for: is the
true threshold, as contrast to the mean of the shown objects, in its 95% interval in both utilities?

Rule.  60 objects with two features, utilities as above without a threshold, 120 sets of 5, answers drawn from the
model's probabilities under one rule; seeds 0 to 19, d = 2 and 3.  Leave-one-out of a model with each rule and the true
number of utilities: how often is the rule that made the data ahead?

Ellipses.  The choices of a person (`choicegp.datasets.load_ellipses`): leave-one-out of both rules, with a threshold
and without, one to four utilities.

    python studies/answers.py threshold|intervals|rule|ellipses [--seeds 20] [--first 0] [--data FOLDER]
    python studies/answers.py rule --utilities 3 --made-by best-in-one     # one row of the table
"""

import argparse
import warnings

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.experiments.results import markdown_table, table_row

QUICK = {"intervals": "none", "progress": False, "random_state": 0}
RULES = ("pareto", "best-in-one")


def utilities(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw features and utilities."""
    X = rng.standard_normal((n, 2))
    gram = 9.0 * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2) / 1.5**2)
    return X, 2.0 * np.linalg.cholesky(gram + 1e-8 * np.eye(n)) @ rng.standard_normal((n, d))


def answered(seed: int, *, with_threshold: bool) -> tuple[ChoiceData, ChoiceData, np.ndarray, np.ndarray]:
    """Return training sets, test sets, true utilities and the true threshold."""
    rng = np.random.default_rng([seed, 18])
    X, U = utilities(rng, 100, 2)
    shown = [rng.choice(100, 4, replace=False) for _ in range(450)]
    best = np.array([U[rows].max(axis=0) for rows in shown])  # a set is empty where even these are dominated
    levels = np.linspace(U.min(), U.max(), 99)
    empty = np.array([np.mean(np.all(best < level, axis=1)) for level in levels])
    tau = np.full(2, levels[np.argmin(np.abs(empty - 0.15))])
    data = datasets.noisy_choices(X, U, shown, seed, threshold=tau if with_threshold else None)
    return data.take(range(150)), data.take(range(150, 450)), U, tau


def threshold(seeds: range) -> None:
    """Print accuracies with the threshold and without it."""
    print(markdown_table(("seed", "empty", "with: all", "with: kept", "without: all", "without: kept", "no empty: with",
                          "no empty: without"), []))  # fmt: skip
    rows = []
    for seed in seeds:
        train, test, *_ = answered(seed, with_threshold=True)
        kept, some = (np.array([len(one) > 0 for one in part.chosen or ()]) for part in (train, test))
        models = ChoiceGP(2, **QUICK).fit(train), ChoiceGP(2, **QUICK).fit(train.take(kept))
        scores = [model.score(part) for model in models for part in (test, test.take(some))]
        plain, plain_test, *_ = answered(seed, with_threshold=False)
        scores += [ChoiceGP(2, threshold=has, **QUICK).fit(plain).score(plain_test) for has in (True, False)]
        rows.append([1 - kept.mean(), *scores])
        print(table_row((seed, *(f"{value:.3f}" for value in rows[-1]))), flush=True)
    table = np.array(rows)
    print(table_row(("mean", *(f"{value:.3f}" for value in table.mean(axis=0)))))
    for first, second in ((1, 3), (2, 4), (5, 6)):
        gain = table[:, first] - table[:, second]
        print(f"paired difference {gain.mean():+.4f} ± {gain.std(ddof=min(1, len(gain) - 1)) / np.sqrt(len(gain)):.4f}")


def intervals(seeds: range) -> None:
    """Print whether the true threshold is in its interval."""
    n_inside = 0
    for seed in seeds:
        train, _, U, tau = answered(seed, with_threshold=True)
        model = ChoiceGP(2, progress=False, random_state=0).fit(train)
        rows = np.unique(train.flat_shown)
        mean, found = model.utilities(train).mean, model.threshold_utilities()
        order = min(
            ([0, 1], [1, 0]), key=lambda order: -np.sum(mean[rows] * (U[:, order] - U[rows][:, order].mean(0))[rows])
        )
        true = (tau - U[rows].mean(axis=0))[order]
        inside = bool(np.all((found.lower <= true) & (true <= found.upper)))
        n_inside += inside
        print(seed, inside, true.round(1), found.lower.round(1), found.upper.round(1), model.intervals_, flush=True)
    print(f"inside in both utilities: {n_inside} of {len(seeds)}")


def rule(seeds: range, numbers: tuple[int, ...] = (2, 3), made_by: tuple[str, ...] = RULES) -> None:
    """Print how often leave-one-out finds the rule that made the data."""
    for d in numbers:
        for true in made_by:
            gains = []
            for seed in seeds:
                rng = np.random.default_rng([seed, d, 19])
                X, U = utilities(rng, 60, d)
                shown = [rng.choice(60, 5, replace=False) for _ in range(120)]
                data = datasets.noisy_choices(X, U, shown, seed, rule=true)
                other = RULES[1 - RULES.index(true)]
                elpd = [
                    ChoiceGP(d, rule=name, object_effects=False, **QUICK).fit(data).loo().elpd for name in (true, other)
                ]
                gains.append(elpd[0] - elpd[1])
                print(f"seed {seed}: gain {gains[-1]:.1f}", flush=True)
            print(f"d = {d}, made by {true}: found in {np.sum(np.array(gains) > 0)} of {len(seeds)}, "
                  f"smallest gain {min(gains):.1f}, median {np.median(gains):.1f}", flush=True)  # fmt: skip


def ellipses(folder: str | None) -> None:
    """Print leave-one-out of rules, thresholds and numbers of utilities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = datasets.load_ellipses(folder, on_error="skip")
    print(markdown_table(("utilities", *(f"{name}{more}" for name in RULES for more in ("", ", threshold"))), []))
    for d in (1, 2, 3, 4):
        found = [
            ChoiceGP(d, rule=name, threshold=has, **QUICK).fit(data).loo() for name in RULES for has in (False, True)
        ]
        print(table_row((d, *(f"{one.elpd:.1f} ± {one.se:.1f}" for one in found))), flush=True)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("threshold", "intervals", "rule", "ellipses"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--data", help="folder of published tables")
    parser.add_argument("--utilities", type=int, help="of the rule: this number of utilities alone")
    parser.add_argument("--made-by", choices=RULES, help="of the rule: data made by this one alone")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    if args.part == "ellipses":
        ellipses(args.data)
    elif args.part == "rule":
        rule(seeds, (args.utilities,) if args.utilities else (2, 3), (args.made_by,) if args.made_by else RULES)
    else:
        {"threshold": threshold, "intervals": intervals}[args.part](seeds)


if __name__ == "__main__":
    main()
