"""Whether the intervals and probabilities of ChoiceGP are honest with default options, as a user gets them.

Protocol, fixed before any run. Every model is ``ChoiceGP(n_utilities=d)`` with default options, so that its
hyperparameters are learned; nothing else is given but a seed and the true number of utilities.

Simulated data. Features are standard normal. Each utility is a draw from a Gaussian process with an RBF kernel: log
lengthscales are normal around log sqrt(c / 2) for c features, with standard deviation 0.5, one for each feature, and
the log variance is normal around log 4 with standard deviation 0.5. Noisy answers are drawn from the model's
likelihood, normalised over all subsets of a set; noise-free answers are the objects that no other object of the set
dominates. All combinations of d = 1, 2, 3 utilities, sets of a = 2, 3, 5, 12, 16 objects, and 2 and 15 features. Of
the four repetitions 0 and 2 have 25 objects and 60 sets, 1 and 3 have 50 objects and 120 sets; in 2 and 3 the
utilities share 80% of their variance. Noisy answers are simulated in all repetitions, noise-free answers in
repetitions 0 and 3. Beyond d t = 600 there are four more data sets with noisy answers: 3 utilities, 250 objects with 2
features, 300 sets of 5.

Measured on each data set: (1) Coverage: the share of true differences between consecutive shown objects, in all
utilities, that lie in their 95% intervals, from quantiles of 1000 draws of ``sample_utilities``. Differences do not
depend on the level of a utility, about which choices say nothing. The order of utilities has no meaning: the order
nearest to the truth is taken. (2) The share of true differences whose rank among the draws is in one of the two outer
tenths, which should be 0.2. (3) Of the differences whose interval excludes zero, the share whose sign is wrong.
Answers without errors say nothing about the scale of utilities: there each true utility is first multiplied by the
number that brings it nearest to the posterior mean, which favours the model a little. (4) Log score a set (normalised,
for sets that the model can enumerate), log loss an object and exact accuracy on 40 new sets of the training objects
and 40 sets of 30 new objects, beside two answers fitted to the same training sets: a constant answer that looks at no
feature (the number of chosen objects by training frequencies with half a count added to each, which ones by lot), and
logistic regression of single objects on standardised features relative to the mean of the set, normalised over the
non-empty subsets. (5) Predicted probabilities of the objects of these held-out sets, in tenths, and how many were
chosen.

The jump. 40 objects and a "lemon" far below all of them, d = 1, 2, 3, two repetitions: what adding the lemon to 60
sets of ten objects changes in the probabilities of the ten. Sets in which, by the draws of the posterior, it is
dominated with a probability below 0.999 are left out. Beside it stands the change when the lemon is added to the first
nine objects of these sets, since a prediction may count all subsets of ten objects and not of eleven.

Tables (am, edm, jura, slump where a folder of published tables is given, and vehicle): 50 objects, or two thirds of a
smaller table, are for training; up to 30 others are new. 120 training sets of 4, from which what no other object
dominates in three measured outputs is chosen; three utilities; 100 held-out sets of known and of new objects; three
repetitions with other objects.

The quick version has one data set of each of four kinds, one jump and one table.
"""

import time
from itertools import permutations, product

import numpy as np
from scipy.special import ndtr

from choicegp import ChoiceData, ChoiceGP
from choicegp.experiments.experiment import ExperimentOptions, RunSettings, RunValues
from choicegp.experiments.honesty_baselines import constant_answers, logistic_answers, model_answers
from choicegp.experiments.honesty_data import (
    TABLE_OBJECTS,
    TABLE_TEST,
    TABLES,
    WITHOUT_FILES,
    Answered,
    simulated,
    table_split,
    with_a_lemon,
)  # fmt: skip
from choicegp.experiments.honesty_report import report

__all__ = ["TITLE", "report", "run", "runs"]

TITLE = "Honesty: intervals and probabilities with default options"

UTILITIES, SIZES, FEATURES, REPETITIONS = (1, 2, 3), (2, 3, 5, 12, 16), (2, 15), 4
SMALL, MIDDLE, LARGE = ({"objects": t, "sets": m} for t, m in ((25, 60), (50, 120), (250, 300)))
RELATED = 0.8  # share of the variance that utilities have in common, in half of the data
NOISE_FREE_REPETITIONS = (0, 3)
TABLE_REPETITIONS, JUMP_REPETITIONS = 3, 2
N_DRAWS, LEVEL, N_TENTHS = 1000, 0.95, 10
CERTAIN = 0.999  # probability of being dominated
# d, a, features, answers of the quick version
QUICK = ((1, 3, 2, "noisy"), (2, 5, 15, "noisy"), (2, 3, 2, "noise-free"), (3, 12, 2, "noisy"))


def runs(options: ExperimentOptions) -> list[RunSettings]:
    """List the data sets of every repetition: simulated ones, jumps, tables."""
    planned: list[RunSettings] = []
    repetitions = options.repetitions or (1 if options.quick else REPETITIONS)
    for repetition in range(repetitions):
        common = {"repetition": repetition, "seed": options.seed + repetition, "code": options.code}
        kinds = QUICK if options.quick else [*product(UTILITIES, SIZES, FEATURES, ("noisy", "noise-free"))]
        shape = {**(MIDDLE if repetition % 2 else SMALL), "related": RELATED if repetition % 4 > 1 else 0.0}
        planned += [
            {"part": "simulated", "d": d, "a": a, "features": c, "answers": answers, **shape, **common}
            for d, a, c, answers in kinds
            if answers == "noisy" or repetition % REPETITIONS in NOISE_FREE_REPETITIONS
        ]
        if not options.quick:
            kind = {"part": "simulated", "d": 3, "a": 5, "features": 2, "answers": "noisy"}
            planned.append({**kind, **LARGE, "related": shape["related"], **common})
        if repetition < JUMP_REPETITIONS:
            planned += [{"part": "jump", "d": d, **common} for d in ((2,) if options.quick else UTILITIES)]
        if repetition < TABLE_REPETITIONS:
            size = {"d": 3, "a": 4, "objects": TABLE_OBJECTS, "sets": 120, "test": TABLE_TEST}
            planned += [{"part": "table", "table": name, **size, **common} for name in _tables(options)]
    return planned


def _tables(options: ExperimentOptions) -> list[str]:
    there = [name for name in TABLES if options.tables or name in WITHOUT_FILES]
    return there[-1:] if options.quick and not options.tables else ["slump"] if options.quick else there


def run(settings: RunSettings, data: str | None = None) -> RunValues:
    """Fit one model and measure it."""
    if settings["part"] == "jump":
        return jump(settings)
    is_table = settings["part"] == "table"
    answered = table_split(settings, data) if is_table else simulated(settings)
    model, values = fitted(settings, answered.train)
    for name, test in (("known", answered.known), ("new", answered.new)):
        values |= compared(model, answered.train, test, name)
    if is_table:
        return values
    values |= tenths(model, [answered.known, answered.new])
    return values | coverage(model, answered, settings["seed"], is_noisy=settings["answers"] == "noisy")


def fitted(settings: RunSettings, train: ChoiceData) -> tuple[ChoiceGP, RunValues]:
    """Fit a model with default options, and return it with how the fit went."""
    start = time.perf_counter()
    model = ChoiceGP(settings["d"], progress=False, random_state=settings["seed"]).fit(train)
    seconds = round(time.perf_counter() - start, 2)
    result = model.fit_result_
    shown = len(np.unique(train.flat_shown))
    return model, {
        "fit_seconds": seconds, "fit_status": result.status, "notes": "; ".join(result.notes), "shown_objects": shown,
    }  # fmt: skip


def compared(model: ChoiceGP, train: ChoiceData, test: ChoiceData, name: str) -> RunValues:
    """Score the model, the constant answer and the logistic model on held-out sets."""
    return {
        **model_answers(model, test).values(test, name),
        **constant_answers(train, test).values(test, f"{name}_constant"),
        **logistic_answers(train, test).values(test, f"{name}_logistic"),
    }


def coverage(model: ChoiceGP, answered: Answered, seed: int, *, is_noisy: bool) -> RunValues:
    """Compare the true differences between shown objects with the draws of the posterior."""
    rows = np.unique(answered.train.flat_shown)
    drawn = np.diff(model.sample_utilities(answered.train.X[rows], N_DRAWS, random_state=seed), axis=1)
    true = aligned(drawn.mean(axis=0), np.diff(answered.U[rows], axis=0), free_scale=not is_noisy)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    ranks = np.mean(drawn < true, axis=0)
    sure = (low > 0) | (high < 0)
    return {
        "coverage": np.mean((low <= true) & (true <= high)),
        "outer_tenths": np.mean((ranks < 1 / N_TENTHS) | (ranks >= 1 - 1 / N_TENTHS)),
        "sure_signs": np.sum(sure), "wrong_signs": np.sum(sure & (np.sign(true) != np.sign(low + high))),
        "differences": true.size, "width": np.mean(high - low),
    }  # fmt: skip


def aligned(mean: np.ndarray, true: np.ndarray, *, free_scale: bool) -> np.ndarray:
    """Return the true differences (n, d) in the order of utilities, and on the scale, that are nearest to the mean.

    The mean is tried in all orders of the true utilities. With ``free_scale`` each true utility is multiplied by a
    number that is not negative: the direction of a utility is known.

    Examples
    --------
    >>> mean, true = np.array([[1.0, 4.0], [2.0, 8.0]]), np.array([[40.0, 1.0], [80.0, 2.0]])
    >>> aligned(mean, true, free_scale=True).tolist()
    [[1.0, 4.0], [2.0, 8.0]]
    """

    def scaled(own: np.ndarray) -> np.ndarray:
        factor = np.maximum(np.sum(own * mean, axis=0), 0) / np.sum(own**2, axis=0) if free_scale else 1.0
        return own * factor

    candidates = [scaled(true[:, order]) for order in permutations(range(true.shape[1]))]
    return min(candidates, key=lambda own: float(np.abs(own - mean).sum()))


def tenths(model: ChoiceGP, tests: list[ChoiceData]) -> RunValues:
    """Return for each tenth of probabilities how many there are, their sum, and how many objects were chosen."""
    p = np.concatenate([part for test in tests for part in model.predict_proba(test)])
    chosen = np.concatenate([np.asarray(test.flat_chosen, dtype=float) for test in tests])
    tenth = np.minimum((p * N_TENTHS).astype(int), N_TENTHS - 1)
    weights = {"tenth_count": np.ones_like(p), "tenth_predicted": p, "tenth_chosen": chosen}
    return {name: np.bincount(tenth, of, minlength=N_TENTHS) for name, of in weights.items()}


def jump(settings: RunSettings) -> RunValues:
    """Add a certainly dominated object to sets of ten and of nine, and measure what that changes for the others."""
    lemon = with_a_lemon(settings)
    model, values = fitted(settings, lemon.train)
    X = lemon.train.X
    drawn = model.sample_utilities(X, N_DRAWS, random_state=settings["seed"])
    certain = [rows for rows in lemon.sets if surely_dominated(drawn[:, rows], drawn[:, -1:]) >= CERTAIN]
    values["certain_sets"] = len(certain)
    if not certain:
        return values
    change = {n: np.abs(changes(model, X, [rows[:n] for rows in certain])) for n in (9, 10)}
    return values | {
        "mean_change": change[10].mean(), "largest_change": change[10].max(), "change_below": change[9].mean(),
    }  # fmt: skip


def surely_dominated(others: np.ndarray, lemon: np.ndarray) -> float:
    """Return the probability that any of the others (S, n, d) dominates one object (S, 1, d), errors included.

    Examples
    --------
    >>> surely_dominated(np.array([[[9.0, 9.0], [-9.0, 9.0]]]), np.zeros((1, 1, 2)))
    1.0
    """
    return float(np.mean(1 - np.prod(1 - ndtr(others - lemon).prod(axis=2), axis=1)))


def changes(model: ChoiceGP, X: np.ndarray, sets: list[np.ndarray]) -> np.ndarray:
    """Return how the probabilities in sets of one size change when the last object of X is added, (m, n)."""
    before = model.predict_proba(ChoiceData.from_sets(X, sets))
    after = model.predict_proba(ChoiceData.from_sets(X, [np.append(rows, len(X) - 1) for rows in sets]))
    return np.array(after)[:, :-1] - np.array(before)
