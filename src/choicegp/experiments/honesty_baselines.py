"""What a prediction is measured by: the model, an answer that looks at nothing, and a logistic model."""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, metrics
from choicegp.experiments.experiment import RunValues

PSEUDOCOUNT = 0.5  # Jeffreys' prior: a number of chosen objects that training does not have is not impossible
CLIPPED = 1e-6  # probabilities in the log loss of objects


class PredictedAnswers(NamedTuple):
    """What was predicted of held-out sets."""

    log_prob: np.ndarray | None  # of each set's choice, normalised over its subsets; None where it is not available
    probabilities: list[np.ndarray]  # of each shown object
    exact: float  # share of the sets that are predicted exactly

    def values(self, test: ChoiceData, name: str) -> RunValues:
        """Return log score a set, log loss an object and exact accuracy, under names that begin with ``name``."""
        p = np.clip(np.concatenate(self.probabilities), CLIPPED, 1 - CLIPPED)
        return {
            f"{name}_score": None if self.log_prob is None else metrics.log_score(self.log_prob),
            f"{name}_loss": -np.mean(np.log(np.where(_chosen(test), p, 1 - p))),
            f"{name}_exact": self.exact,
        }


def model_answers(model: ChoiceGP, test: ChoiceData) -> PredictedAnswers:
    """Return what a fitted model predicts; sets may be too large for the sum over their subsets."""
    try:
        log_prob = np.asarray(model.log_prob(test, normalized=True))
    except ChoiceGPError:
        log_prob = None
    return PredictedAnswers(log_prob, list(model.predict_proba(test)), model.score(test))


def constant_answers(train: ChoiceData, test: ChoiceData) -> PredictedAnswers:
    """Answer without looking: the number of chosen objects by training frequencies, and which ones by lot.

    All sets of both have one size.
    """
    a = int(np.diff(train.offsets)[0])
    counts, held_out = (np.array([len(rows) for rows in _choices(data)]) for data in (train, test))
    share = np.bincount(counts, minlength=a + 1)[1:] + PSEUDOCOUNT
    share = share / share.sum()
    numbers = np.arange(1, a + 1)
    ways = gammaln(a + 1) - gammaln(numbers + 1) - gammaln(a - numbers + 1)  # log of how many subsets have this number
    log_prob = np.log(share) - ways
    best = int(np.argmax(log_prob))
    # The answer is one subset of that number: it is right with this probability.
    exact = float(np.mean(held_out == best + 1) / np.exp(ways[best]))
    inclusion = float(share @ numbers) / a
    return PredictedAnswers(log_prob[held_out - 1], [np.full(a, inclusion)] * len(test), exact)


def logistic_answers(train: ChoiceData, test: ChoiceData) -> PredictedAnswers:
    """Predict each object by logistic regression on its features relative to its set, independently of the others.

    The probabilities of subsets are divided by the probability that something is chosen.
    """
    from sklearn.linear_model import LogisticRegression

    shown = np.unique(train.flat_shown)
    scale = train.X[shown].std(axis=0)
    Z = (train.X - train.X[shown].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    y = _chosen(train)
    if y.all() or not y.any():  # nothing to learn from: regression refuses it
        log_odds = np.full(len(test.flat_shown), np.log((y.sum() + PSEUDOCOUNT) / (len(y) - y.sum() + PSEUDOCOUNT)))
    else:
        model = LogisticRegression(max_iter=1000).fit(_relative(train, Z), y)
        log_odds = model.decision_function(_relative(test, Z))
    log_in, log_out = -np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds)
    starts = test.offsets[:-1]
    something = np.log(-np.expm1(np.minimum(np.add.reduceat(log_out, starts), -1e-12)))
    log_prob = np.add.reduceat(np.where(_chosen(test), log_in, log_out), starts) - something
    inclusion = np.minimum(np.exp(log_in - np.repeat(something, np.diff(test.offsets))), 1.0)
    by_set = np.split(log_odds, starts[1:])
    predicted = [
        rows[odds > 0] if np.any(odds > 0) else rows[[np.argmax(odds)]]
        for rows, odds in zip(test.shown, by_set, strict=True)
    ]
    exact = metrics.exact_accuracy(test, predicted)
    return PredictedAnswers(np.minimum(log_prob, 0.0), list(np.split(inclusion, starts[1:])), exact)


def _relative(data: ChoiceData, Z: np.ndarray) -> np.ndarray:
    sizes = np.diff(data.offsets)
    values = Z[data.flat_shown]
    means = np.add.reduceat(values, data.offsets[:-1], axis=0) / sizes[:, None]
    return values - np.repeat(means, sizes, axis=0)


def _chosen(data: ChoiceData) -> np.ndarray:
    assert data.flat_chosen is not None
    return np.asarray(data.flat_chosen, dtype=bool)


def _choices(data: ChoiceData) -> tuple[np.ndarray, ...]:
    assert data.chosen is not None
    return data.chosen
