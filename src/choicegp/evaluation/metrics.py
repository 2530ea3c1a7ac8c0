"""How well predicted choices agree with the choices that were made.

Every function takes data with choices and a prediction as ``model.predict(data)`` returns it: for each set
the row numbers of ``data.X`` that are predicted to be chosen. All sets count equally, whatever their weights.

A rate over no object is not defined and is given as None, never as NaN: the true-negative rate of data in
which nothing was rejected.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from choicegp.checks import check_one_of, kind_of, plain
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.agreement import Agreement, agreement, check_data
from choicegp.evaluation.calibration import calibration

Average = Literal["pooled", "set"]

# What rounding may add to a probability of one.
_ABOVE_ONE = 1e-6


class Rates(NamedTuple):
    """Shares of the objects that are predicted rightly.

    Attributes
    ----------
    tpr : float or None
        True-positive rate: of the chosen objects, the share predicted to be chosen.
    tnr : float or None
        True-negative rate: of the rejected objects, the share predicted to be rejected; None when nothing
        was rejected.

    Examples
    --------
    >>> from choicegp import metrics
    >>> metrics.Rates(0.9, 0.8)[0]
    0.9
    """

    tpr: float | None
    tnr: float | None


def exact_accuracy(data: ChoiceData, predicted: Any) -> float:
    """Return the fraction of sets whose choice is predicted exactly.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    predicted : sequence of int arrays
        Row numbers of ``data.X`` predicted to be chosen, one array per set.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], [[0, 1], [0, 1, 2]], [[1], [1, 2]])
    >>> exact_accuracy(data, [[1], [2]])
    0.5
    """
    return _exact(agreement(data, predicted))


def object_accuracy(data: ChoiceData, predicted: Any) -> float:
    """Return the fraction of shown objects rightly predicted to be chosen or rejected, over all sets.

    Parameters
    ----------
    data, predicted
        As in :func:`exact_accuracy`.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from choicegp import datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> round(object_accuracy(data, everything_chosen(data)), 2)
    0.6
    """
    return _of_objects(agreement(data, predicted))


def rates(data: ChoiceData, predicted: Any, average: Average = "pooled") -> Rates:
    """Return the true-positive and true-negative rates over objects.

    Parameters
    ----------
    data, predicted
        As in :func:`exact_accuracy`.
    average : {"pooled", "set"}
        Over all objects of all sets together, or per set and then averaged over the sets where the rate is
        defined (a set from which everything was chosen has no true-negative rate).

    Returns
    -------
    Rates
        ``tnr`` is None when nothing was rejected in any set.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], [[0, 1], [0, 1, 2]], [[1], [1, 2]])
    >>> rates(data, [[0, 1], [1, 2]])
    Rates(tpr=1.0, tnr=0.5)
    """
    check_one_of("average", average, ("pooled", "set"))
    return _rates(agreement(data, predicted), average)


def a_mean(data: ChoiceData, predicted: Any, average: Average = "pooled") -> float:
    """Return the A-mean: the mean of the true-positive and the true-negative rate.

    Predicting that everything is chosen, or that nothing is, gives 0.5. When only one of the rates is
    defined (nothing was rejected), it is the A-mean.

    Parameters
    ----------
    data, predicted, average
        As in :func:`rates`.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from choicegp import datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> a_mean(data, everything_chosen(data))
    0.5
    """
    return _mean_of(rates(data, predicted, average))


def f1(data: ChoiceData, predicted: Any) -> float:
    """Return the mean over sets of F1, the harmonic mean of precision and recall of the chosen objects.

    Parameters
    ----------
    data, predicted
        As in :func:`exact_accuracy`. Where nothing is predicted to be chosen F1 is 0, or 1 where nothing was chosen.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], [[0, 1, 2]], [[1, 2]])
    >>> f1(data, [[0, 1, 2]])
    0.8
    """
    return _f1(agreement(data, predicted))


def log_score(log_probabilities: ArrayLike) -> float:
    """Return the mean log probability of the choices that were made; higher is better, 0 is the best.

    Parameters
    ----------
    log_probabilities : array_like (m,)
        As ``model.log_prob(data, normalized=True)`` returns them. A choice held impossible (minus infinity)
        makes the score minus infinity. :func:`guessing_log_score` is a yardstick.

    Returns
    -------
    float
        In nats a set.

    Examples
    --------
    >>> round(log_score(np.log([0.5, 0.125])), 4)
    -1.3863
    """
    values = np.asarray(log_probabilities)
    if values.dtype.kind not in "biuf" or values.ndim != 1:
        raise ChoiceGPError(
            "log_probabilities must be one number per set, as model.log_prob returns them; "
            f"this is {kind_of(log_probabilities)} of type {values.dtype} and shape {values.shape}"
        )
    if len(values) == 0:
        raise ChoiceGPError("there are no sets to score: log_probabilities is empty")
    wrong = np.flatnonzero(~(values <= _ABOVE_ONE))
    if len(wrong):
        raise ChoiceGPError(
            f"a log probability is at most 0; at position {wrong[0]} stands {plain(values[wrong[0]])}"
            " (pass log probabilities, not probabilities or their negative logarithms)"
        )
    return float(np.mean(values, dtype=np.float64))


def guessing_log_score(data: ChoiceData) -> float:
    """Return the log score of someone who holds every non-empty part of a set for equally likely.

    Parameters
    ----------
    data : ChoiceData
        It needs no choices.

    Returns
    -------
    float
        In nats a set.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_sets([[1.0], [2.0]], [[0, 1]])
    >>> round(guessing_log_score(data), 4)  # log(1 / 3)
    -1.0986
    """
    check_data(data)
    sizes = np.diff(data.offsets).astype(np.float64)
    # log(2^a - 1) without 2^a, which overflows for sets of more than a thousand.
    return float(-np.mean(sizes * np.log(2.0) + np.log1p(-np.exp2(-sizes))))


def everything_chosen(data: ChoiceData) -> list[NDArray[np.int64]]:
    """Return the prediction that everything is chosen from every set: the baseline to beat.

    Parameters
    ----------
    data : ChoiceData
        It needs no choices.

    Returns
    -------
    list of int arrays
        ``data.shown``.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> everything_chosen(ChoiceData.from_sets([[1.0], [2.0]], [[1, 0], [0]]))
    [array([1, 0]), array([0])]
    """
    check_data(data)
    return list(data.shown)


def summary(
    data: ChoiceData, predicted: Any, log_prob: ArrayLike | None = None, probabilities: Any = None
) -> pd.DataFrame:
    """Return all metrics of a prediction, and beside them the metrics of two that look at nothing.

    Parameters
    ----------
    data, predicted
        As in :func:`exact_accuracy`.
    log_prob : array_like (m,), optional
        ``model.log_prob(data, normalized=True)``: adds the column ``log_score``.
    probabilities : sequence of arrays, optional
        ``model.predict_proba(data)``: adds the columns ``brier``, the mean squared difference between a probability and
        what happened (1 where the object was chosen, else 0), and ``calibration_error``, the mean difference between
        predicted and observed shares over the bins of :func:`calibration`.

    Returns
    -------
    DataFrame
        Rows "model", "everything chosen" and "random answer" (what every non-empty part of a set, held for equally
        likely, would reach on average); columns exact_accuracy, object_accuracy, a_mean, a_mean_set (the same with
        ``average="set"``), tpr, tnr, f1, log_score, brier and calibration_error.  What is not defined is pandas' NA:
        ``tnr`` when nothing was rejected, the log score of "everything chosen", which gives no probabilities, and F1 of
        a random answer.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], [[0, 1], [0, 1, 2]], [[1], [1, 2]])
    >>> summary(data, [[1], [1, 2]])[["exact_accuracy", "a_mean"]].round(2)
                       exact_accuracy  a_mean
    model                         1.0     1.0
    everything chosen             0.0     0.5
    random answer                0.24    0.49
    """
    rows = {
        "model": _all_metrics(agreement(data, predicted)),
        "everything chosen": _all_metrics(agreement(data, everything_chosen(data))),
        "random answer": _of_random_answers(data),
    }
    if log_prob is not None:
        score = log_score(log_prob)
        if len(np.asarray(log_prob)) != len(data):
            raise ChoiceGPError(f"log_prob has {len(np.asarray(log_prob))} numbers for {len(data)} sets")
        for row, own in zip(rows.values(), (score, None, guessing_log_score(data)), strict=True):
            row["log_score"] = own
    if probabilities is not None:
        given = (probabilities, [np.ones(len(rows_of)) for rows_of in data.shown], _random_probabilities(data))
        for row, own in zip(rows.values(), given, strict=True):
            row |= _of_probabilities(data, own)
    columns = {name: pd.array([row[name] for row in rows.values()], dtype="Float64") for name in rows["model"]}
    return pd.DataFrame(columns, index=list(rows))


def _random_probabilities(data: ChoiceData) -> list[NDArray[np.float64]]:
    """Return P(object is in a random non-empty part of its set), aligned with ``data.shown``."""
    return [np.full(n, 0.5 / (1.0 - np.exp2(-float(n)))) for n in np.diff(data.offsets).tolist()]


def _of_probabilities(data: ChoiceData, probabilities: Any) -> dict[str, float | None]:
    bins = calibration(data, probabilities)  # it checks the probabilities
    p = np.concatenate([np.asarray(part, dtype=float).ravel() for part in probabilities])
    off = np.abs(bins["predicted"] - bins["observed"])
    return {
        "brier": float(np.mean((p - np.asarray(data.flat_chosen, dtype=float)) ** 2)),
        "calibration_error": float(np.average(off, weights=bins["objects"])),
    }


def _of_random_answers(data: ChoiceData) -> dict[str, float | None]:
    """Return what random non-empty parts of the sets reach on average."""
    sizes = np.diff(data.offsets).astype(float)
    p = np.concatenate(_random_probabilities(data))
    kept = np.asarray(data.flat_chosen, dtype=bool)
    right = np.where(kept, p, 1.0 - p)
    something = np.add.reduceat(kept, data.offsets[:-1], dtype=int) > 0
    per_set = [right[mine] for mine in _per_set(data, kept)], [right[mine] for mine in _per_set(data, ~kept)]
    by_set = Rates(*(float(np.mean([part.mean() for part in of])) if of else None for of in per_set))
    pooled = Rates(*(float(right[marks].mean()) if marks.any() else None for marks in (kept, ~kept)))
    return {
        "exact_accuracy": float(np.mean(something / (np.exp2(sizes) - 1.0))),
        "object_accuracy": float(right.mean()),
        "a_mean": _mean_of(pooled),
        "a_mean_set": _mean_of(by_set),
        "tpr": pooled.tpr,
        "tnr": pooled.tnr,
        "f1": None,
    }


def _per_set(data: ChoiceData, marks: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return the marked places of each set that has any."""
    places = np.split(np.arange(len(marks)), data.offsets[1:-1])
    return [own[marks[own]] for own in places if marks[own].any()]


def _all_metrics(counts: Agreement) -> dict[str, float | None]:
    pooled = _rates(counts, "pooled")
    return {
        "exact_accuracy": _exact(counts),
        "object_accuracy": _of_objects(counts),
        "a_mean": _mean_of(pooled),
        "a_mean_set": _mean_of(_rates(counts, "set")),
        "tpr": pooled.tpr,
        "tnr": pooled.tnr,
        "f1": _f1(counts),
    }


def _exact(counts: Agreement) -> float:
    return float(np.mean((counts.hits == counts.chosen) & (counts.rejections == counts.rejected)))


def _of_objects(counts: Agreement) -> float:
    right = counts.hits.sum() + counts.rejections.sum()
    return float(right / (counts.chosen.sum() + counts.rejected.sum()))


def _f1(counts: Agreement) -> float:
    # Where nothing was chosen and nothing predicted, the prediction is right.
    total = counts.predicted + counts.chosen
    return float(np.mean(np.where(total > 0, 2 * counts.hits / np.maximum(total, 1), 1.0)))


def _rates(counts: Agreement, average: Average) -> Rates:
    return Rates(_rate(counts.hits, counts.chosen, average), _rate(counts.rejections, counts.rejected, average))


def _rate(right: NDArray[np.int64], total: NDArray[np.int64], average: Average) -> float | None:
    if not total.any():
        return None
    if average == "pooled":
        return float(right.sum() / total.sum())
    return float(np.mean(right[total > 0] / total[total > 0]))


def _mean_of(both: Rates) -> float:
    return float(np.mean([rate for rate in both if rate is not None]))
