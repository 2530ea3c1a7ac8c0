"""Differences between models over the same repetitions, and what they say of a claim."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

NEGLIGIBLE = 0.01  # a difference between accuracies that does not matter: the paper's rope
FEWEST = 5  # repetitions that a verdict needs: standard errors of fewer say little
TOO_FEW = "too few runs"


class MeanDifference(NamedTuple):
    """Mean of a difference over repetitions."""

    mean: float
    se: float  # NaN for fewer than two repetitions
    n: int  # repetitions that both have

    @property
    def sign(self) -> int:
        """1 or -1 where it differs from zero by more than two standard errors, else 0."""
        return int(self.mean > 2 * self.se) - int(self.mean < -2 * self.se)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.se:.3f}" if self.n > 1 else f"{self.mean:+.3f}" if self.n else ""


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> MeanDifference:
    """Return the mean of first minus second over the seeds that both have.

    Examples
    --------
    >>> print(difference({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.8, 1: 0.6}))
    +0.150 ± 0.050
    """
    seeds = sorted(first.keys() & second.keys())
    gaps = np.array([first[seed] - second[seed] for seed in seeds])
    if not seeds:
        return MeanDifference(np.nan, np.nan, 0)
    se = float(np.std(gaps, ddof=1) / np.sqrt(len(seeds))) if len(seeds) > 1 else np.nan
    return MeanDifference(float(gaps.mean()), se, len(seeds))


def mean_and_error(values: Mapping[int, float]) -> str:
    """Write the mean over repetitions and its standard error.

    Examples
    --------
    >>> mean_and_error({0: 0.9, 1: 0.8})
    '0.850 ± 0.050'
    """
    found = difference(values, dict.fromkeys(values, 0.0))
    return str(found).removeprefix("+")


def is_better(found: MeanDifference) -> str:
    """Judge "the first is better": confirmed, contradicted by its being clearly worse, or neither."""
    return _verdict(found, found.sign > 0, found.sign < 0)


def is_equal(found: MeanDifference) -> str:
    """Judge "the two are equal": confirmed by a small and sure mean, contradicted by a clear one that is not small."""
    is_small = abs(found.mean) <= NEGLIGIBLE
    return _verdict(found, is_small and 2 * found.se <= NEGLIGIBLE, not is_small and found.sign != 0)


def is_not_worse(found: MeanDifference) -> str:
    """Judge "the first is no worse": contradicted where it is clearly worse, and by more than is negligible."""
    is_small = found.mean >= -NEGLIGIBLE
    return _verdict(found, is_small, not is_small and found.sign < 0)


def _verdict(found: MeanDifference, is_confirmed: bool, is_contradicted: bool) -> str:
    if found.n < FEWEST:
        return TOO_FEW
    return "confirmed" if is_confirmed else "contradicted" if is_contradicted else "not confirmed"


def together(verdicts: list[str]) -> str:
    """Judge a claim of several parts: as good as the weakest of them."""
    return next((worst for worst in (TOO_FEW, "contradicted", "not confirmed") if worst in verdicts), "confirmed")
