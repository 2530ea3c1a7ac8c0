"""What the test of honesty measures on one data set: everything that a run depends on is here or imported here."""

import time
from itertools import permutations

import numpy as np
from scipy.special import ndtr

from choicegp import ChoiceData, ChoiceGP
from choicegp.experiments.experiment import RunSettings, RunValues
from choicegp.experiments.honesty_baselines import constant_answers, logistic_answers, model_answers
from choicegp.experiments.honesty_data import SplitAnswers, simulated, table_split, with_a_lemon

N_DRAWS, LEVEL, N_TENTHS = 1000, 0.95, 10
CERTAIN = 0.999  # probability of being dominated


def measured(settings: RunSettings, data: str | None = None) -> RunValues:
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
        "intervals": model.intervals_, "has_effects": model.fitted_.has_effects,
    }  # fmt: skip


def compared(model: ChoiceGP, train: ChoiceData, test: ChoiceData, name: str) -> RunValues:
    """Score the model, the constant answer and the logistic model on held-out sets."""
    return {
        **model_answers(model, test).values(test, name),
        **constant_answers(train, test).values(test, f"{name}_constant"),
        **logistic_answers(train, test).values(test, f"{name}_logistic"),
    }


def coverage(model: ChoiceGP, answered: SplitAnswers, seed: int, *, is_noisy: bool) -> RunValues:
    """Compare the true differences between shown objects with the draws of the posterior."""
    rows = np.unique(answered.train.flat_shown)
    # The objects by their ids: the rows of an array would be new objects, with effects of their own.
    drawn = np.diff(model.sample_utilities(answered.train, N_DRAWS, random_state=seed)[:, rows], axis=1)
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
    drawn = model.sample_utilities(lemon.train, N_DRAWS, random_state=settings["seed"])
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
