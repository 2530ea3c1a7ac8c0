"""Whether choices look like those that the model would make: posterior predictive checks.

Answers to the same sets are drawn again and again from the fitted model.  A number that is far outside what these
answers show names a way in which the people do something else than the model.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from choicegp.data.choices import ChoiceData

CLEAR = 0.01
_MEANING = {
    "kept": "the mean number of objects kept of a set",
    "varied": "how much the number of objects kept varies between sets",
    "all": "the share of sets of which everything is kept",
    "one": "the share of sets of which one object is kept",
    "reversed": "the share of repeated pairs in which each object was once kept where the other was rejected",
}
_ADVICE = "Try another number of utilities, threshold=True, rule='best-in-one' or lapse='learn', and check again."


class Check(NamedTuple):
    """Whether choices look like choices that the model would make.

    Attributes
    ----------
    fits : bool
        Whether no number is clearly outside what the model would show.
    message : str
    table : DataFrame
        One row per number: ``observed``, ``expected``, ``lower`` and ``upper`` (95% of the simulated answers) and
        ``p``, the probability of a number as far out as the observed one if the model were right.

    Examples
    --------
    >>> import numpy as np
    >>> from choicegp import ChoiceData
    >>> X, shown = np.arange(4.0)[:, None], [[0, 1], [2, 3], [0, 3]]
    >>> data = ChoiceData.from_sets(X, shown, [[0], [2], [0]])
    >>> found = compared(data, [data] * 20)  # in place of answers that a model has simulated
    >>> found.fits, found.message
    (True, 'The choices look like those that the model would make.')
    """

    fits: bool
    message: str
    table: pd.DataFrame

    def __str__(self) -> str:
        return f"{self.message}\n{self.table.to_string(float_format=lambda value: f'{value:.3f}')}"


def compared(data: ChoiceData, simulated: list[ChoiceData]) -> Check:
    """Compare numbers of the observed choices with the same numbers of simulated ones."""
    observed = statistics(data)
    drawn = pd.DataFrame([statistics(one) for one in simulated])
    above, below = (drawn >= observed).mean(), (drawn <= observed).mean()
    # As with any permutation test, the observed data are one of the samples: p is never zero.
    n = len(simulated)
    p = np.minimum(1.0, 2.0 * (n * np.minimum(above, below) + 1.0) / (n + 1.0))
    table = pd.DataFrame(
        {
            "observed": observed, "expected": drawn.mean(), "lower": drawn.quantile(0.025),
            "upper": drawn.quantile(0.975), "p": p,
        }
    ).rename_axis("number")  # fmt: skip
    unlike = [name for name in table.index if table.loc[name, "p"] < CLEAR]
    return Check(not unlike, _in_words(table, unlike), table)


def _in_words(table: pd.DataFrame, unlike: list[str]) -> str:
    if not unlike:
        return "The choices look like those that the model would make."
    parts = []
    for name in unlike:
        observed, lower, upper = (float(table[column][name]) for column in ("observed", "lower", "upper"))
        parts.append(f"{_MEANING[name]} is {observed:.3g}, where the model expects {lower:.3g} to {upper:.3g}")
    return f"The choices do not look like choices that the model would make: {'; '.join(parts)}. {_ADVICE}"


def statistics(data: ChoiceData) -> pd.Series:
    """Return the numbers by which choices are compared.

    Examples
    --------
    >>> data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 3, [[0], [1], [0, 1]])
    >>> statistics(data).round(2).to_dict()
    {'kept': 1.33, 'varied': 0.47, 'all': 0.33, 'one': 0.67, 'reversed': 1.0}
    """
    assert data.flat_chosen is not None
    n_kept = np.add.reduceat(data.flat_chosen.astype(float), data.offsets[:-1])
    sizes = np.diff(data.offsets)
    numbers = (n_kept.mean(), n_kept.std(), np.mean(n_kept == sizes), np.mean(n_kept == 1), _reversed(data))
    return pd.Series(dict(zip(_MEANING, map(float, numbers), strict=True)))


def _reversed(data: ChoiceData) -> float:
    """Return the share of pairs, shown together more than once with one kept alone, that were decided both ways."""
    assert data.flat_chosen is not None
    decided: dict[tuple[int, int], list[bool]] = {}
    for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        rows, kept = data.flat_shown[start:end], data.flat_chosen[start:end]
        for better in rows[kept].tolist():
            for worse in rows[~kept].tolist():
                decided.setdefault((min(better, worse), max(better, worse)), []).append(better < worse)
    repeated = [ways for ways in decided.values() if len(ways) > 1]
    return float(np.mean([len(set(ways)) > 1 for ways in repeated])) if repeated else 0.0
