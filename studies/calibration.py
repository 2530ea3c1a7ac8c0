"""Are posteriors and predictions honest?  Data simulated from independent utilities and the normalised likelihood.

A hundred data sets: utilities drawn from a Gaussian process, sets answered with errors.  Reported are the coverage of
95% intervals of utility differences, the ranks of true differences among posterior draws (simulation-based calibration:
they should be uniform), and predicted choice probabilities of held-out sets against how often objects were chosen.  The
fits learn the hyperparameters, as a user's do, and make intervals unless an inference is named; with --true they are
given the true ones and independent utilities, which shows what the approximation alone does.  `choicegp honesty` is the
wider test: other numbers of utilities, set sizes and features, and new objects.

    python studies/calibration.py [--datasets 100]
    python studies/calibration.py --true --inference dense    # about five minutes on two cores
"""

import argparse
from itertools import permutations

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets, metrics
from choicegp.kernels import RBF

LENGTHSCALE, VARIANCE = 1.0, 4.0
N_OBJECTS, N_UTILITIES, N_SETS, SIZE, N_TEST = 20, 2, 60, 3, 40
N_RANKS = 10  # bins


def main() -> None:
    """Simulate, fit and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--true", action="store_true", help="give the true hyperparameters to the fits")
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--inference", default="auto")
    args = parser.parse_args()
    covered, ranks, shown, probabilities, chosen = [], [], [], [], []
    for seed in range(args.datasets):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(N_OBJECTS, 2))
        gram = VARIANCE * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2) / LENGTHSCALE**2)
        root = np.linalg.cholesky(gram + 1e-9 * np.eye(N_OBJECTS))
        U = root @ rng.normal(size=(N_OBJECTS, N_UTILITIES))
        train, test = (
            datasets.noisy_choices(X, U, datasets.random_sets(N_OBJECTS, n, SIZE, random_state=seed + k), seed + k)
            for n, k in ((N_SETS, 0), (N_TEST, 10_000))
        )
        model = ChoiceGP(
            N_UTILITIES, kernel=RBF(LENGTHSCALE, VARIANCE), learn_hyperparameters=not args.true, standardize=False,
            shared_part=not args.true, inference=args.inference, progress=False, random_state=seed,
        ).fit(train)  # fmt: skip
        drawn = model.sample_utilities(train, 400, random_state=seed)
        # The order of utilities has no meaning: take the one nearest to the truth.
        mean = drawn.mean(axis=0)
        order = min(permutations(range(N_UTILITIES)), key=lambda p: np.abs(centred(mean[:, p]) - centred(U)).sum())
        steps, true = np.diff(drawn[:, :, order], axis=1), np.diff(U, axis=0)
        low, high = np.quantile(steps, [0.025, 0.975], axis=0)
        covered.append(np.mean((low <= true) & (true <= high)))
        ranks.append(np.mean(steps < true, axis=0).ravel())
        shown += list(test.shown)
        chosen += list(test.chosen)
        probabilities += model.predict_proba(test)
    counts = np.histogram(np.concatenate(ranks), bins=N_RANKS, range=(0, 1))[0]
    print(f"coverage of 95% intervals of utility differences: {np.mean(covered):.3f} over {args.datasets} data sets")
    print(
        f"ranks of true differences among draws, {N_RANKS} bins (uniform: {counts.sum() / N_RANKS:.0f} each): {counts}"
    )
    together = ChoiceData.from_sets(np.zeros((N_OBJECTS, 1)), shown, chosen)
    print(metrics.calibration(together, probabilities).round(3).to_string(index=False))


def centred(values: np.ndarray) -> np.ndarray:
    """Leave out what choices cannot tell: each utility's level."""
    return values - values.mean(axis=0)


if __name__ == "__main__":
    main()
