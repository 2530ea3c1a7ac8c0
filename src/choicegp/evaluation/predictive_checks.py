"""Whether choices look like those that the model would make: posterior predictive checks.

Answers to the same sets are drawn again and again from the fitted model.  A number that is far outside what these
answers show names a way in which the people do something else than the model.  Some numbers only count what is kept.
The others look for what a choice by dominance rules out: that it hardly matters what else is shown (a person who keeps
all that is good enough), that objects kept together in one set are decided in another more often than errors explain
(criteria that are gone through in order), that the best in a utility is not kept (a liking for the middle), and that
an object gains from a worse one beside it (a decoy).
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import FeatureScaling

CLEAR = 0.05
"""Probability that any number is called clearly outside if the model is right."""
_NEAR = 0.25  # of the pairs of objects shown together
_MEANING = {
    "kept": "the mean number of objects kept of a set",
    "varied": "how much the number of objects kept varies between sets",
    "all": "the share of sets of which everything is kept",
    "one": "the share of sets of which one object is kept",
    "reversed": "the share of repeated pairs in which each object was once kept where the other was rejected",
    "mixed": "the share of repeated pairs that were kept together once and of which one was rejected once",
    "depends": "how much it depends on the rest of a set whether an object is kept",
    "best": "the share of sets of which the best object in a utility is kept",
    "beside": "the share kept of objects that dominate a similar one in their set",
}
_ADVICE = "Try another number of utilities, threshold=True, rule='best-in-one' or lapse='learn', and check again."


class Check(NamedTuple):
    """Whether choices look like choices that the model would make.

    Attributes
    ----------
    fits : bool
        Whether no number is clearly outside what the model would show; if the model is right, that is so in at least
        95% of all data.
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
    >>> found = compared(data, [data] * 20, -X)  # in place of answers that a model has simulated
    >>> found.fits, found.message
    (True, 'The choices look like those that the model would make.')
    """

    fits: bool
    message: str
    table: pd.DataFrame

    def __str__(self) -> str:
        return f"{self.message}\n{self.table.to_string(float_format=lambda value: f'{value:.3f}')}"


def compared(data: ChoiceData, simulated: list[ChoiceData], utilities: np.ndarray) -> Check:
    """Compare numbers of the observed choices with the same numbers of simulated ones.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    simulated : list of ChoiceData
        Other choices from the same sets.
    utilities : array (n, d)
        Utilities of the objects, as the model sees them.
    """
    sets = Questions.of(data, utilities)
    observed = sets.statistics(data)
    drawn = pd.DataFrame([sets.statistics(one) for one in simulated])
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
    # By Bonferroni: the more numbers are looked at, the further out one must be.
    unlike = [name for name in table.index if table.loc[name, "p"] < CLEAR / len(table)]
    return Check(not unlike, _in_words(table, unlike), table)


FEWEST_DRAWS = int(2 * len(_MEANING) / CLEAR)
"""Simulated answers: with fewer, no number could be clearly outside."""


def _in_words(table: pd.DataFrame, unlike: list[str]) -> str:
    if not unlike:
        return "The choices look like those that the model would make."
    parts = []
    for name in unlike:
        observed, lower, upper = (float(table[column][name]) for column in ("observed", "lower", "upper"))
        parts.append(f"{_MEANING[name]} is {observed:.3g}, where the model expects {lower:.3g} to {upper:.3g}")
    return f"The choices do not look like choices that the model would make: {'; '.join(parts)}. {_ADVICE}"


class Questions(NamedTuple):
    """What the numbers need of the sets: places are positions in ``flat_shown``.

    Attributes
    ----------
    offsets : int array (m + 1,)
    rows : int array (n,)
        The object at every place.
    first, second : int array
        Places of every pair of objects that were shown together, in the order of their rows.
    pair : int array
        A number for each such pair of objects.
    best : int array (m, d)
        Places of the best object of each set in each utility.
    beside : bool array (n,)
        Which objects dominate a similar one of their set.
    """

    offsets: np.ndarray
    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray
    pair: np.ndarray
    best: np.ndarray
    beside: np.ndarray

    @classmethod
    def of(cls, data: ChoiceData, utilities: np.ndarray) -> "Questions":
        """Look at the sets of some data, and at utilities (n, d) of their objects."""
        offsets, rows = np.asarray(data.offsets), np.asarray(data.flat_shown)
        sizes = np.diff(offsets)
        places = list(zip(offsets[:-1], sizes, strict=True))
        within = [np.triu_indices(size, 1) for size in range(int(sizes.max(initial=0)) + 1)]
        one, other = (
            np.concatenate([np.zeros(0, int), *(start + within[size][side] for start, size in places)])
            for side in (0, 1)
        )
        swapped = rows[one] > rows[other]
        first, second = np.where(swapped, other, one), np.where(swapped, one, other)
        pair = np.unique(rows[first] * len(data.X) + rows[second], return_inverse=True)[1]
        values = utilities[rows]
        best = [start + np.argmax(values[start : start + size], axis=0) for start, size in places]
        unit = FeatureScaling.of(data.X[np.unique(rows)]).scale
        apart = np.linalg.norm((data.X[rows[first]] - data.X[rows[second]]) / unit, axis=1)
        near = apart <= np.quantile(apart, _NEAR) if len(apart) else np.zeros(0, bool)
        beside = np.zeros(len(rows), bool)
        for better, worse in ((first, second), (second, first)):
            beside[better[near & np.all(values[better] > values[worse], axis=1)]] = True
        return cls(offsets, rows, first, second, pair, np.array(best), beside)

    def statistics(self, data: ChoiceData) -> pd.Series:
        """Return the numbers by which choices are compared.

        Examples
        --------
        >>> data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 3, [[0], [1], [0, 1]])
        >>> found = Questions.of(data, np.array([[0.0], [1.0]])).statistics(data)
        >>> found[["kept", "varied", "all", "one", "reversed", "mixed"]].round(2).tolist()
        [1.33, 0.47, 0.33, 0.67, 1.0, 1.0]
        """
        assert data.flat_chosen is not None
        kept = np.asarray(data.flat_chosen, bool)
        n_kept = np.add.reduceat(kept.astype(float), self.offsets[:-1])
        numbers = (
            n_kept.mean(), n_kept.std(), np.mean(n_kept == np.diff(self.offsets)), np.mean(n_kept == 1),
            *self._pairs(kept), self._dependence(kept), kept[self.best].mean(), _share(kept, self.beside),
        )  # fmt: skip
        return pd.Series(dict(zip(_MEANING, map(float, numbers), strict=True)))

    def _pairs(self, kept: np.ndarray) -> tuple[float, float]:
        """Return the shares of repeated pairs that were decided both ways, and that were decided and kept together."""
        one, other = kept[self.first], kept[self.second]
        n = int(self.pair.max(initial=-1)) + 1
        won, lost, both = (
            np.bincount(self.pair, now, minlength=n) for now in (one & ~other, other & ~one, one & other)
        )
        decided = won + lost
        return _share((won > 0) & (lost > 0), decided > 1), _share((decided > 0) & (both > 0), decided + both > 1)

    def _dependence(self, kept: np.ndarray) -> float:
        """Return the mean variance, between the sets that show an object, of whether it is kept."""
        n_shown = np.bincount(self.rows)
        share = np.bincount(self.rows, kept) / np.maximum(n_shown, 1)
        several = n_shown > 1
        variance = share * (1.0 - share) * n_shown / np.maximum(n_shown - 1, 1)
        return float(np.mean(variance[several])) if several.any() else 0.0


def _share(what: np.ndarray, among: np.ndarray) -> float:
    return float(np.mean(what[among])) if among.any() else 0.0
