"""Means and standard deviations of features, of one table or joined from many."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_FLAT = 1e-12  # a standard deviation that is a smaller part of the mean than this is rounding


class FeatureScaling(NamedTuple):
    """Number of objects, and the mean and standard deviation (k,) of each feature.

    Examples
    --------
    >>> one, other = FeatureScaling.of(np.array([[1.0], [2.0]])), FeatureScaling.of(np.array([[6.0]]))
    >>> one.joined(other).mean
    array([3.])
    """

    n: int
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> "FeatureScaling":
        """Return the moments of a table, one row per object."""
        # In units of a power of two near the largest value, which changes no digit: squares cannot overflow.
        _, exponent = np.frexp(np.abs(X).max(axis=0))
        scaled = np.ldexp(X, -exponent)
        return cls(len(X), np.ldexp(scaled.mean(axis=0), exponent), np.ldexp(scaled.std(axis=0), exponent))

    def joined(self, other: "FeatureScaling") -> "FeatureScaling":
        """Return the moments of both tables together; nothing cancels, and nothing overflows."""
        n = self.n + other.n
        own, others = self.n / n, other.n / n
        apart = (0.5 * self.mean - 0.5 * other.mean) * (2.0 * np.sqrt(own * others))
        within = np.hypot(np.sqrt(own) * self.sd, np.sqrt(others) * other.sd)
        return FeatureScaling(n, own * self.mean + others * other.mean, np.hypot(within, apart))

    @property
    def scale(self) -> NDArray[np.float64]:
        """The standard deviations, but 1 for a feature that does not vary."""
        return np.where(self.sd <= _FLAT * np.maximum(np.abs(self.mean), 1e-300), 1.0, self.sd)
