"""Comparing models by their scores of sets that they have not seen, set by set."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from choicegp.selection.loo import standard_error

_NAME = TypeVar("_NAME")


class Judged(Protocol):
    """The scores of a model, such as a `LooResult`."""

    @property
    def elpd(self) -> float:
        """Expected log predictive density, the sum of ``pointwise``."""

    @property
    def pointwise(self) -> np.ndarray:
        """Score of each set (m,)."""


class HeldOut(NamedTuple):
    """Log score of each set by a model that has not seen its fold, times its weight (m,)."""

    pointwise: np.ndarray

    @property
    def elpd(self) -> float:
        """Sum of the scores."""
        return float(self.pointwise.sum())


class Difference(NamedTuple):
    """How much worse a model is than the best: the difference of the scores, and its standard error."""

    elpd: float
    se: float


def differences_to_best(results: Mapping[_NAME, Judged]) -> dict[_NAME, Difference]:
    """Compare each model with the best one, in pairs: both have scored the same sets.

    Examples
    --------
    >>> import numpy as np
    >>> from choicegp.selection.loo import PsisDiagnostics, loo_result
    >>> def scored(pointwise):
    ...     none = PsisDiagnostics(np.zeros(2), np.zeros(2))
    ...     return loo_result(np.array(pointwise), none, np.zeros(0), "", ())
    >>> differences_to_best({"a": scored([-1.0, -2.0]), "b": scored([-2.0, -3.0])})["b"]
    Difference(elpd=-2.0, se=0.0)
    """
    best = max(results, key=lambda name: results[name].elpd)
    return {
        name: Difference(result.elpd - results[best].elpd, standard_error(result.pointwise - results[best].pointwise))
        for name, result in results.items()
    }


def smallest_within_one_se(results: Mapping[int, Judged]) -> int:
    """Return the smallest number of utilities whose elpd is within one paired standard error of the best."""
    differences = differences_to_best(results)
    return min(d for d in results if -differences[d].elpd <= differences[d].se)


def undecided(results: Mapping[int, Judged]) -> list[int]:
    """Return the numbers of utilities up to the best that are within one paired standard error of it.

    Just the best one, when those below it are clearly worse.
    """
    differences = differences_to_best(results)
    best = max(results, key=lambda d: results[d].elpd)
    return [d for d in sorted(results) if d <= best and -differences[d].elpd <= differences[d].se]
