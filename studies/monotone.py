"""What a direction of a feature gains and costs: models with and without ``monotone={"price": -1}``.

Protocol, fixed before any run.  One person, 20 objects with a price and two other features, 40 noisy sets of 3, two
utilities of the other features (RBF, standard deviation 3) less a curve that rises with the price; "apart": the curve
is the same whatever the other features are, as the option assumes; "mixed": it is 0.4 to 1.6 times that, by another
feature.  Data sets 0 to 9 of each.  Reported with and without the option, default options otherwise: exact accuracy and
log score of 200 sets of 3 of new objects, and how often 95% intervals of the probabilities that objects are kept hold
the truth, in 40 sets of shown and 40 of new objects; with standard errors over data sets.  Finally, the share of steps
up over 9 equal steps of one object's price, between the lowest and the highest, in 256 draws: any, and by more than 0.2
error scales.

    python studies/monotone.py [--seeds 10] [--first 0] [--kinds apart mixed]
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
import pandas as pd

from choicegp import ChoiceData, ChoiceGP
from choicegp.compute.devices import computing
from choicegp.datasets.noisy import noisy_choices
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.prediction.taking import answered

N_SHOWN, N_NEW, N_SETS, SIZE = 20, 200, 40, 3
COLUMNS = ("accuracy", "log score", "coverage, shown", "coverage, new", "up", "up by 0.2", "seconds")


class Truth(NamedTuple):
    """A data set, and the utilities (t, d) of the shown objects and of new ones."""

    objects: pd.DataFrame
    utilities: np.ndarray
    train: ChoiceData
    test: ChoiceData


def simulated(seed: int, kind: str) -> Truth:
    """Simulate the answers of one person who never likes a higher price better."""
    rng = np.random.default_rng([seed, 20, kind == "mixed"])
    X = rng.standard_normal((N_SHOWN + N_NEW, 3))
    distance = np.sum((X[:, None, 1:] - X[None, :, 1:]) ** 2, axis=2) / (2.0 * 1.5**2)
    others = 3.0 * np.linalg.cholesky(np.exp(-distance) + 1e-8 * np.eye(len(X))) @ rng.standard_normal((len(X), 2))
    line, bend, at = rng.uniform(0.2, 2.0, 2), rng.uniform(0.0, 3.0, 2), rng.normal(size=2)
    price = X[:, :1]
    fall = line * price + bend * np.tanh(2.0 * (price - at))
    if kind == "mixed":
        fall = fall * (1.0 + 0.6 * np.tanh(2.0 * X[:, 1:2]))
    u = others - fall
    shown = [rng.choice(N_SHOWN, SIZE, replace=False) for _ in range(N_SETS)]
    new = [N_SHOWN + rng.choice(N_NEW, SIZE, replace=False) for _ in range(200)]
    answers = noisy_choices(np.zeros((len(u), 1)), u, shown + new, int(rng.integers(2**31))).chosen or ()
    names = [f"object {number}" for number in range(len(X))]
    objects = pd.DataFrame(X, columns=["price", "width", "weight"], index=names)
    sets = ChoiceData.from_sets(objects, shown + new, list(answers))
    return Truth(objects, u, sets.take(np.arange(N_SETS)), sets.take(np.arange(N_SETS, len(sets))))


def kept(utilities: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return the probabilities (S, m, a) that the objects of some sets (m, a) are kept, at utilities (S, t, d)."""
    with computing():
        found = [answered(utilities[:, None, rows], DISCERNIBILITY, None, "equal").keep[:, 0] for rows in sets]
    return np.stack(found, axis=1)


def judged(truth: Truth, monotone: dict[str, int] | None, seed: int) -> list[float]:
    """Fit a model and return its scores, in the order of `COLUMNS`."""
    began = time.perf_counter()
    model = ChoiceGP(2, monotone=monotone, random_state=seed, progress=False).fit(truth.train)
    seconds = time.perf_counter() - began
    rng = np.random.default_rng([seed, 1])
    drawn, covered = model.sample_utilities(truth.objects, 512), []
    for first, n in ((0, N_SHOWN), (N_SHOWN, N_NEW)):
        sets = np.array([first + rng.choice(n, SIZE, replace=False) for _ in range(40)])
        low, high = np.quantile(kept(drawn, sets), [0.025, 0.975], axis=0)
        true = kept(truth.utilities[None], sets)[0]
        covered.append(float(np.mean((low <= true) & (true <= high))))
    prices = truth.objects["price"].iloc[:N_SHOWN]
    one = pd.DataFrame({"price": np.linspace(prices.min(), prices.max(), 10), "width": 0.3, "weight": -0.2})
    steps = np.diff(model.sample_utilities(one.set_axis(["one"] * 10), 256), axis=1)
    logs = float(np.mean(model.log_prob(truth.test, normalized=True)))
    return [model.score(truth.test), logs, *covered, float(np.mean(steps > 0)), float(np.mean(steps > 0.2)), seconds]


def main() -> None:
    """Simulate, fit and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=["apart", "mixed"])
    options = parser.parse_args()
    print("| kind | data set | monotone |", " | ".join(COLUMNS), "|")
    for kind in options.kinds:
        found: dict[str, list[list[float]]] = {"no": [], "yes": []}
        for seed in range(options.first, options.first + options.seeds):
            truth = simulated(seed, kind)
            for word, monotone in (("no", None), ("yes", {"price": -1})):
                found[word].append(judged(truth, monotone, seed))
                print(
                    "|",
                    kind,
                    "|",
                    seed,
                    "|",
                    word,
                    "|",
                    " | ".join(f"{x:.3f}" for x in found[word][-1]),
                    "|",
                    flush=True,
                )
        both = {word: np.array(rows) for word, rows in found.items()} | {
            "yes - no": np.array(found["yes"]) - np.array(found["no"])
        }
        for word, rows in both.items():
            errors = rows.std(axis=0, ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.full(len(COLUMNS), np.nan)
            cells = (f"{mean:.3f} ± {error:.3f}" for mean, error in zip(rows.mean(axis=0), errors, strict=True))
            print("|", kind, "| all |", word, "|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
