"""Whether a model that does not suit the data says so.

Protocol, fixed before the run.  40 objects with four standard normal features; two criteria, linear in them with normal
coefficients, each scaled to unit variance; 120 training sets and 200 held-out sets of four.  Six people answer:

- *model*: as the model says, errors of a third of a standard deviation (the control);
- *lexicographic*: she keeps what comes within half a standard deviation of the best in the first criterion and, of
  that, what comes within half a standard deviation of the best in the second;
- *threshold*: she keeps every object whose sum of criteria is among the best 40% of all objects, whatever else is
  shown; if there is none, the best one;
- *attraction*: as the control, but both criteria of an object grow by one standard deviation where it dominates one
  of the objects shown with it that is nearer to it than a quarter of all pairs are (a decoy);
- *compromise*: as the control, but both criteria of the object nearest to the mean of its set grow by one;
- *slips*: as the control, but a fifth of the answers are random.

A model with default options but without intervals is fitted to the training sets.  Three questions are asked: does
`model.check` find that the training sets do not fit, does it find that the held-out sets do not fit, and are four
or more of the ten bins of `metrics.calibration` on the held-out sets outside of their 95% intervals.  The table counts
how often each says yes.  The control must be called unfit rarely, in at most one of ten data sets.

The numbers that `model.check` compares, and the number of bins, were chosen on the seeds from 100 on; the table has the
seeds from 0 on.  Three bins, the first choice, were outside in 8 of 60 data sets of the control there, four in 3: the
intervals are of single answers, and what the posterior does not know moves many objects at once.

Run: ``python studies/misfit.py --seeds 20 --log misfit.jsonl``; what the log holds is not fitted again.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets, metrics

N_OBJECTS, N_TRAIN, N_TEST, SIZE = 40, 120, 200, 4
SCALE = 3.0  # of criteria, in units of the error
JUST_NOTICEABLE = 0.5
GOOD_ENOUGH = 0.6  # quantile
EFFECT = 1.0
SLIPS = 0.2
BINS = 4  # outside of their intervals


class Person:
    """The objects, the criteria and the sets of one data set."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 77])
        self.X = self.rng.normal(size=(N_OBJECTS, 4))
        U = self.X @ self.rng.normal(size=(4, 2))
        self.U = (U - U.mean(axis=0)) / U.std(axis=0)
        self.shown = np.array([self.rng.choice(N_OBJECTS, SIZE, replace=False) for _ in range(N_TRAIN + N_TEST)])

    def answers(self, rule: str) -> np.ndarray:
        """Return what is kept of each set, a boolean array (m, a)."""
        u = self.U[self.shown]  # (m, a, 2)
        if rule == "lexicographic":
            kept = u[:, :, 0] >= u[:, :, 0].max(axis=1, keepdims=True) - JUST_NOTICEABLE
            second = np.where(kept, u[:, :, 1], -np.inf)
            return kept & (second >= second.max(axis=1, keepdims=True) - JUST_NOTICEABLE)
        if rule == "threshold":
            value = self.U.sum(axis=1)
            own = value[self.shown]
            best = own == own.max(axis=1, keepdims=True)
            return (own >= np.quantile(value, GOOD_ENOUGH)) | best
        if rule == "attraction":
            u = u + EFFECT * self._has_decoy(u)[:, :, None]
        if rule == "compromise":
            far = np.linalg.norm(u - u.mean(axis=1, keepdims=True), axis=2)
            u = u + EFFECT * (far == far.min(axis=1, keepdims=True))[:, :, None]
        kept = self._with_errors(u)
        if rule == "slips":
            codes = self.rng.integers(1, 2**SIZE, size=len(kept))
            random = (codes[:, None] >> np.arange(SIZE)) & 1 == 1
            kept = np.where((self.rng.random(len(kept)) < SLIPS)[:, None], random, kept)
        return kept

    def _has_decoy(self, u: np.ndarray) -> np.ndarray:
        x = self.X[self.shown]
        apart = np.linalg.norm(x[:, :, None] - x[:, None], axis=3)
        every = np.linalg.norm(self.X[:, None] - self.X[None], axis=2)
        near = apart < np.quantile(every[np.triu_indices(N_OBJECTS, 1)], 0.25)
        dominates = np.all(u[:, :, None] > u[:, None], axis=3)
        return np.any(dominates & near, axis=2)

    def _with_errors(self, u: np.ndarray) -> np.ndarray:
        """Draw answers where an object has other utilities in every set."""
        places = np.arange(u.shape[0] * SIZE).reshape(-1, SIZE)
        seed = int(self.rng.integers(2**31))
        data = datasets.noisy_choices(np.zeros((places.size, 1)), SCALE * u.reshape(-1, 2), places, seed)
        assert data.flat_chosen is not None
        return data.flat_chosen.reshape(-1, SIZE)

    def data(self, rule: str) -> tuple[ChoiceData, ChoiceData]:
        """Return training and held-out sets."""
        kept = self.answers(rule)
        chosen = [rows[own] for rows, own in zip(self.shown, kept, strict=True)]
        data = ChoiceData.from_sets(self.X, self.shown, chosen)
        return data.take(range(N_TRAIN)), data.take(range(N_TRAIN, N_TRAIN + N_TEST))


RULES = ("model", "lexicographic", "threshold", "attraction", "compromise", "slips")


def judged(rule: str, seed: int) -> dict:
    """Fit one data set and ask the three questions."""
    train, test = Person(seed).data(rule)
    model = ChoiceGP(2, intervals="none", progress=False, random_state=seed).fit(train)
    checks = {"training": model.check(random_state=seed), "held out": model.check(test, random_state=seed)}
    bins = metrics.calibration(test, model.predict_proba(test))
    n_outside = int(np.sum((bins["predicted"] < bins["low"]) | (bins["predicted"] > bins["high"])))
    return {
        "rule": rule, "seed": seed, "exact": model.score(test), "bins": n_outside,
        **{name: {number: float(p) for number, p in found.table["p"].items()} for name, found in checks.items()},
        "unfit": {name: not found.fits for name, found in checks.items()},
    }  # fmt: skip


def main() -> None:
    """Fit what the log does not hold yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="number of data sets for each rule")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--log", type=Path, default=Path("misfit.jsonl"))
    options = parser.parse_args()
    found = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    done = {(one["rule"], one["seed"]) for one in found}
    seeds = range(options.first, options.first + options.seeds)
    for seed in seeds:
        for rule in options.rules:
            if (rule, seed) not in done:
                found.append(judged(rule, seed))
                with options.log.open("a") as log:
                    log.write(json.dumps(found[-1]) + "\n")
    print("rule           exact  training  held out  calibration  of")
    for rule in options.rules:
        own = [one for one in found if one["rule"] == rule and one["seed"] in seeds]
        counts = [sum(one["unfit"][name] for one in own) for name in ("training", "held out")]
        bins = sum(one["bins"] >= BINS for one in own)
        exact = np.mean([one["exact"] for one in own])
        print(f"{rule:14} {exact:5.3f}  {counts[0]:8}  {counts[1]:8}  {bins:11}  {len(own)}")


if __name__ == "__main__":
    main()
