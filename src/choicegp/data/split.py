"""Which sets an index selects, and which go to a training and a test part."""

import contextlib
import operator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import check_one_of, kind_of, seed
from choicegp.errors import ChoiceGPError


def set_positions(key: Any, m: int) -> NDArray[np.int64]:
    """Return the positions that an index selects among ``m`` sets.

    The index is an int, a slice, a sequence of int, a bool mask, or (index, Ellipsis) as scikit-learn writes it.

    Examples
    --------
    >>> set_positions(slice(1, None), 3)
    array([1, 2])
    """
    if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
        key = key[0]
    if isinstance(key, slice):
        try:
            positions = np.arange(m)[key]
        except TypeError as error:
            raise ChoiceGPError(f"sets cannot be sliced by {key}; use whole numbers") from error
    elif isinstance(key, tuple | str | bytes | dict) or key is None:
        raise ChoiceGPError(f"sets are selected by position (a number, a list, a slice or a mask), not by {key!r}")
    else:
        positions = _listed_positions(key, m)
    if len(positions) == 0:
        raise ChoiceGPError("no sets are selected")
    return positions


def _listed_positions(key: Any, m: int) -> NDArray[np.int64]:
    if not isinstance(key, bool | np.bool_):
        with contextlib.suppress(TypeError):
            key = [operator.index(key)]
    try:
        array = np.asarray(key)
    except (ValueError, TypeError) as error:
        raise ChoiceGPError("sets are selected by a flat list of positions") from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise ChoiceGPError(f"sets are selected by whole numbers or a mask, not by {kind_of(key)} of {array.dtype}")
    if array.dtype.kind == "b":
        if len(array) != m:
            raise ChoiceGPError(f"the mask has {len(array)} entries but there are {m} sets")
        return np.flatnonzero(array)
    outside = array[(array < -m) | (array >= m)]
    if len(outside):
        raise ChoiceGPError(f"there is no set at position {outside[0]}: there are {m} sets, counted from 0")
    return np.where(array < 0, array + m, array).astype(np.int64)


def split_positions(
    m: int, respondents: NDArray[Any] | None, test_size: float | int, by: str, random_state: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the positions of the training and the test sets, each in their old order; see ``ChoiceData.split``."""
    check_one_of("by", by, ("set", "respondent"))
    if by == "set":
        unit = np.arange(m)
    elif respondents is None:
        raise ChoiceGPError("the data have no respondents to split by; use by='set'")
    else:
        unit = pd.factorize(respondents)[0]
    n_units = int(unit.max()) + 1
    n_test = _n_test(test_size, n_units, f"{by}s")
    generator = np.random.default_rng(seed(random_state))
    in_test = np.zeros(n_units, dtype=bool)
    in_test[generator.permutation(n_units)[:n_test]] = True
    return np.flatnonzero(~in_test[unit]), np.flatnonzero(in_test[unit])


def _n_test(test_size: float | int, n: int, what: str) -> int:
    if isinstance(test_size, bool | np.bool_) or not isinstance(test_size, int | float | np.integer | np.floating):
        raise ChoiceGPError(f"test_size must be a share between 0 and 1 or a number of {what}, not {test_size!r}")
    if n < 2:
        raise ChoiceGPError(f"at least two {what} are needed for a split; there is {n}")
    if isinstance(test_size, int | np.integer):
        if not 1 <= test_size < n:
            raise ChoiceGPError(f"test_size must be from 1 to {n - 1} {what}, not {test_size}")
        return int(test_size)
    if not 0 < test_size < 1:
        raise ChoiceGPError(f"test_size must be a share between 0 and 1 (or a whole number), not {test_size}")
    return min(max(round(test_size * n), 1), n - 1)
