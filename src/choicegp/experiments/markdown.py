"""How results are written: Markdown tables, and means with their spread."""

from collections.abc import Collection, Iterable, Sequence

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
