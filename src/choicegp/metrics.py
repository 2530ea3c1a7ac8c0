"""Metrics: how well predicted choices agree with the choices that were made.

All take data with choices and a prediction as ``model.predict(data)`` returns it.

Per set
    `exact_accuracy` (the choice is predicted exactly), `f1`.
Over objects
    `object_accuracy`, `rates` (true positive and true negative) and their mean, `a_mean`.
Of probabilities
    `log_score`, and `guessing_log_score` as its yardstick; `calibration`, of ``model.predict_proba(data)``.
Together
    `summary`, with the baseline `everything_chosen` beside the model.

For example:

>>> from choicegp import ChoiceData, metrics
>>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], [[0, 1], [0, 1, 2]], [[1], [1, 2]])
>>> metrics.exact_accuracy(data, [[1], [2]])
0.5
>>> metrics.exact_accuracy(data, metrics.everything_chosen(data))
0.0
"""

from choicegp.evaluation.calibration import calibration
from choicegp.evaluation.metrics import (
    Rates,
    a_mean,
    everything_chosen,
    exact_accuracy,
    f1,
    guessing_log_score,
    log_score,
    object_accuracy,
    rates,
    summary,
)

__all__ = [
    "Rates", "a_mean", "calibration", "everything_chosen", "exact_accuracy", "f1", "guessing_log_score", "log_score",
    "object_accuracy", "rates", "summary",
]  # fmt: skip
