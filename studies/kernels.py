"""Which kernel predicts new objects of published tables best, inside the range of the shown ones and beyond it.

    python studies/kernels.py edm slump jura --seed 40

Three utilities, no intervals. New objects are drawn as the shown ones are, or lie further along a random direction of
the features than all of them. The tables are read from the folder that CHOICEGP_DATA names.
"""

import argparse
import json
import os
import warnings

import numpy as np

from choicegp import ChoiceGP, ExtrapolationWarning, kernels
from choicegp.experiments.honesty_baselines import constant_answers
from choicegp.experiments.honesty_data import TABLES

WAYS = {"rbf": "rbf", "line + rbf": kernels.Linear() + kernels.RBF(), "matern52": "matern52"}
N_OBJECTS, N_OLD, N_NEW, N_SETS, N_TEST, SIZE = 80, 50, 30, 120, 100, 4


def main() -> None:
    """Fit every split with every kernel, and print bounds, log scores and accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--seed", type=int, default=40)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ExtrapolationWarning)
    for name in args.tables:
        for place in ("inside", "beyond"):
            rng = np.random.default_rng([args.seed, 77])
            table = TABLES[name](os.environ.get("CHOICEGP_DATA"), args.seed)
            rows = rng.permutation(len(table))[:N_OBJECTS]
            n_old = min(N_OLD, round(2 / 3 * len(rows)))
            if place == "beyond":
                X = np.asarray(table.X, float)[rows]
                Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
                rows = rows[np.argsort(Z @ rng.standard_normal(Z.shape[1]))]
            old, new = rows[:n_old], rows[n_old : n_old + N_NEW]
            train, test = (
                table.choices([rng.choice(own, SIZE, replace=False) for _ in range(n)])
                for own, n in ((old, N_SETS), (new, N_TEST))
            )
            constant = constant_answers(train, test).log_prob
            for way, kernel in WAYS.items():
                model = ChoiceGP(3, kernel=kernel, intervals="none", random_state=args.seed, progress=False).fit(train)
                found = {
                    "table": name, "new": place, "kernel": way, "elbo": model.elbo_,
                    "score": float(np.mean(model.log_prob(test, normalized=True))),
                    "constant": float(np.mean(constant)), "exact": model.score(test),
                }  # fmt: skip
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
