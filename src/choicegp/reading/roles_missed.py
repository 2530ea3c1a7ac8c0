"""Columns of a long table that are read as features, though they seem to say something else.

They are warned of where no one has named the features: the number of a row, the place of an object in its set, what
describes the person or the set, and a second answer.  Ids of sets that several people share are found by the order of
the rows.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from choicegp.errors import ReadingWarning
from choicegp.reading.defects import factorized

_FEWEST_SETS = 5  # of which a pattern is no accident
_FIRST_SETS = 20  # looked at before all
_MOST_NAMED = 6


def remarks_on_roles(features: pd.DataFrame, of_set: NDArray[np.int64], passed_over: list[str]) -> list[Warning]:
    """Warn of features (n, c) that seem to be none; ``of_set`` (n,) is the set of each row, which lie end to end."""
    several = np.bincount(of_set, minlength=1)[of_set] > 1
    sets, of_set = np.unique(of_set[several], return_inverse=True)
    if len(sets) < _FEWEST_SETS or len(features.columns) < 2:
        return []
    sizes = np.bincount(of_set)
    named = {str(name): column[several] for name, column in features.items() if name not in passed_over}
    what = {name: said for name, column in named.items() if (said := _seems_to_be(column, of_set, sizes))}
    rest = [str(name) for name in features.columns if str(name) not in what]
    leave = f"pass features={rest!r}" if 0 < len(rest) <= _MOST_NAMED else "name the columns of features"
    return [
        ReadingWarning(f"column {name!r} is read as a feature, but {said}; to leave it out, {leave}")
        for name, said in what.items()
    ]


def _seems_to_be(column: pd.Series, of_set: NDArray[np.int64], sizes: NDArray[np.int64]) -> str:
    """Say what a column seems to be, if it is no feature."""
    if (is_numeric_dtype(column.dtype) or column.dtype == bool) and not column.isna().any():
        values = column.to_numpy(dtype=np.float64)
        if np.ptp(values) == len(values) - 1.0 and np.all(np.diff(np.sort(values)) == 1.0):
            return "its values number the rows"
        first = of_set < _FIRST_SETS
        for pattern, said in _OF_NUMBERS:
            if pattern(values[first], of_set[first], sizes[:_FIRST_SETS]) and pattern(values, of_set, sizes):
                return said
    codes = factorized(column)[0]
    of_first = codes[np.cumsum(sizes) - sizes]
    if np.ptp(of_first) and np.array_equal(codes, of_first[of_set]):
        return (
            "all objects of a set share its value, so it cannot say which of them is better; if it describes people, "
            f"pass covariates={[str(column.name)]!r} and respondent='COLUMN'"
        )
    return ""


def _numbers_places(values: NDArray[np.float64], of_set: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
    """Say whether the values are 1, 2, ... (or 0, 1, ...) in every set."""
    place = np.arange(len(values)) - (np.cumsum(sizes) - sizes)[of_set]
    ordered = values[np.lexsort((values, of_set))]
    return bool(np.all(ordered == place + 1.0) or np.all(ordered == place))


def _marks_one(values: NDArray[np.float64], of_set: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
    """Say whether one object of every set is marked by 1 and all others by 0."""
    if sizes.min() < 3 or not np.all((values == 0.0) | (values == 1.0)):
        return False
    return bool(np.all(np.bincount(of_set, weights=values, minlength=len(sizes)) == 1.0))


_OF_NUMBERS = (
    (_numbers_places, "its values number the objects of every set"),
    (_marks_one, "it marks one object of every set: it seems to be an answer"),
)


def remark_on_scattered(of_row: NDArray[np.int64], n_sets: int, set_id: object) -> list[Warning]:
    """Warn where the rows of most sets lie in several pieces: then several people seem to share the ids.

    Pieces of single rows are no sign of that: the table may be in any order.
    """
    known = of_row[of_row >= 0]
    starts = np.flatnonzero(np.diff(known, prepend=-1))
    n_pieces = np.bincount(known[starts], minlength=n_sets)
    if n_sets < 2 or 2 * np.sum(n_pieces > 1) <= n_sets or len(known) < 2 * len(starts):
        return []
    name_them = "" if set_id is None else f"; pass set_id={['respondent', set_id]!r}"
    return [
        ReadingWarning(
            f"the rows of {np.sum(n_pieces > 1)} of {n_sets} sets lie in several places of the table: if several "
            f"people answered sets of one id, the set id lacks a column such as the respondent{name_them}"
        )
    ]
