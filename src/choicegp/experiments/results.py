"""How results are written: Markdown tables, means with their spread, differences between models and their verdicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a Markdown table; a cell that is None stays empty.

    Examples
    --------
    >>> print(markdown_table(("d", "score"), [(1, None), (2, "0.9")]))
    | d | score |
    |---|---|
    | 1 |  |
    | 2 | 0.9 |
    """
    return "\n".join([table_row(head), "|---" * len(head) + "|", *map(table_row, rows)])


def table_row(cells: Sequence[object]) -> str:
    """Write one row of a Markdown table."""
    texts = ("" if cell is None else str(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def mean_and_sd(values: Collection[float], digits: int = 3) -> str:
    """Write the mean and the standard deviation of repetitions; a single one has no deviation.

    Examples
    --------
    >>> mean_and_sd([0.9, 0.8]), mean_and_sd([0.9]), mean_and_sd([])
    ('0.850 ± 0.071', '0.900', '–')
    """
    if len(values) == 0:
        return "–"
    numbers = np.asarray(values, float)
    sd = f" ± {numbers.std(ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():.{digits}f}{sd}"


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
