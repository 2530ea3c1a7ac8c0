"""What to call objects in pictures and tables: their ids or, where these are mere row numbers, what they are."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.reading.encoding import FeatureEncoding

_LONGEST = 28  # letters of a profile
# Endings of column names that say in what a number is measured.
_UNIT = re.compile(
    r"[_ (]\(?(kg|g|mg|t|km|m|cm|mm|in|inch|l|ml|gb|mb|tb|h|min|s|eur|usd|gbp|chf|kwh|w|percent)\)?$", re.I
)


def object_names(
    ids: Sequence[Any], X: NDArray[np.float64], encoding: FeatureEncoding, order: Sequence[str] | None = None
) -> list[str]:
    """Return a name for every object: its id, or its profile where ids are row numbers.

    Parameters
    ----------
    ids : sequence
    X : ndarray (n, c)
        Encoded features of the objects.
    encoding : FeatureEncoding
    order : sequence of str, optional
        Names of the features, the most telling first; by default as in the table.

    Examples
    --------
    >>> frame = pd.DataFrame({"cpu": [9000, 12000], "weight_kg": [1.1, 2.0], "screen": [14, 14]})
    >>> encoding = FeatureEncoding.learn(frame)
    >>> object_names([0, 1], encoding.encode(frame), encoding)
    ['cpu 9000, 1.1 kg', 'cpu 12000, 2 kg']
    >>> object_names(["A", "B"], encoding.encode(frame), encoding)
    ['A', 'B']
    """
    if not are_row_numbers(ids):
        return [str(one) for one in ids]
    table = encoding.decode(X)
    named = [name for name in (order or table.columns) if name in table]
    # What all objects share does not say which one it is.
    telling = [name for name in named if len(table[name].unique()) > 1] or named
    columns = [[_said(name, value) for value in table[name]] for name in telling]
    return [profile(parts) for parts in zip(*columns, strict=True)]


def are_row_numbers(ids: Sequence[Any]) -> bool:
    """Whether ids are 0, 1, 2 and so on, as objects without ids have them."""
    return all(isinstance(one, int | np.integer) and one == row for row, one in enumerate(ids))


def profile(parts: Sequence[str]) -> str:
    """Join what is said about an object, as far as there is room; the first part is always there."""
    return ", ".join(_fitting(parts))


def _fitting(parts: Sequence[str]) -> Iterator[str]:
    length = 0
    for part in parts:
        if length and length + len(part) > _LONGEST:
            return
        length += len(part) + 2
        yield part


def _said(name: str, value: Any) -> str:
    written = str(value)
    if isinstance(value, float | np.floating) and not pd.isna(value):
        written = f"{value:.3g}" if abs(float(value)) < 1000 else f"{value:.0f}"
    unit = _UNIT.search(name)
    return f"{written} {unit[1]}" if unit else f"{name} {written}"
