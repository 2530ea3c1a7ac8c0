"""Checks of arguments: each returns the value in its own type, or raises an error with one clear message."""

import os
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    import pandas as pd


def whole_number(name: str, value: object, least: int) -> int:
    """Return `value` as an int, or raise an error that says what is wrong with the argument called `name`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ChoiceGPError(f"{name} must be a whole number of at least {least}; got {plain(value)!r}")
    return int(value)


def seed(random_state: object) -> int:
    """Return the seed that ``random_state`` names; None draws a new one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return whole_number("random_state", random_state, 0)


def check_one_of(name: str, value: object, options: tuple[str, ...]) -> str:
    """Return a value that is one of the options of an argument, and refuse any other."""
    if not isinstance(value, str) or value not in options:
        *others, last = map(repr, options)
        raise ChoiceGPError(f"{name} must be {', '.join(others)} or {last}, not {value!r}")
    return value


def file_path(path: object) -> Path:
    """Return the path that an argument names; whether there is such a file is not looked at."""
    if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
        raise ChoiceGPError(f"a file name is needed; got {path!r}")
    return Path(path)


def number_option(name: str, value: Any, least: float, most: float) -> float:
    """Check that an option is a number between two others."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise ChoiceGPError(f"{name} must be a number between {least:g} and {most:g}; got {value!r}")
    return float(value)


def jobs_option(value: Any) -> int | None:
    """Check ``n_jobs``: a number, -1 or None."""
    return value if value is None or value == -1 else whole_number("n_jobs", value, 1)


def flag_option(name: str, value: Any) -> bool:
    """Check that an option is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ChoiceGPError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def kind_of(value: object) -> str:
    """Name the type of a wrong argument: 'None', 'an int', 'a dict'."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python object of the same value, for messages."""
    return value.item() if isinstance(value, np.generic) else value


def brief(record: Any) -> str:
    """Show a record in a line: arrays and tables by their shapes.

    Examples
    --------
    >>> from choicegp.data.preferences import Preferences
    >>> Preferences(np.array([1]), np.array([0]), np.ones(1), 0)
    Preferences(winners: array (1,), losers: array (1,), weights: array (1,), n_conflicts: 0)
    """
    parts = (f"{name}: {_shape(getattr(record, name))}" for name in record._fields)
    return f"{type(record).__name__}({', '.join(parts)})"


def _shape(value: Any) -> str:
    if hasattr(value, "columns"):
        return f"table {value.shape}"
    if isinstance(value, np.ndarray) and value.ndim:
        return f"array {value.shape}"
    return repr(plain(value))


def counted(n: int, noun: str, form: str = "", many: str = "") -> str:
    """Count things in a message: '1 set', '2 sets'; ``form`` is the format of the number, ``many`` the plural."""
    return f"{n:{form}} {noun if n == 1 else many or noun + 's'}"


def in_digits(value: float, n: int = 5) -> str:
    """Write a number with n digits, a large one whole instead of as a power of ten, and a missing one as a dash."""
    if value != value:
        return "–"
    return f"{value:.0f}" if 10**n <= abs(value) < 1e15 else f"{value:.{n}g}"


def check_distinct(names: Iterable[Any], what: str) -> None:
    """Refuse names that repeat."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise ChoiceGPError(f"the {what} must have different names: {name!r} appears twice")
        seen.add(name)


def listed(names: Iterable[Any], limit: int = 12) -> str:
    """List names in a message, at most ``limit`` of them."""
    kept = [repr(plain(name)) for name in names]
    return ", ".join(kept[:limit]) + (f" and {len(kept) - limit} more" if len(kept) > limit else "")


def number_array(name: str, values: Any, advice: str = "") -> NDArray[np.float64]:
    """Return a new float array, which may hold NaN, or raise an error when ``values`` are no real numbers."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise ChoiceGPError(f"{name} must hold real numbers, but its rows differ in length{advice}") from error
    if array.dtype.kind not in "biuf":
        kind = "None" if values is None else f"{kind_of(values)} of type {array.dtype}"
        raise ChoiceGPError(f"{name} must hold real numbers, but it is {kind}{advice}")
    return array.astype(np.float64)


def as_table(X: ArrayLike, name: str = "X") -> NDArray[np.float64]:
    """Return a new float array (t, c), which may hold NaN, or raise an error when ``X`` is no table of numbers."""
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
        X = np.ma.filled(X.astype(np.float64), np.nan)
    if X is None or isinstance(X, str | bytes | dict | set | frozenset):
        raise ChoiceGPError(f"{name} must be an array or a DataFrame with one row per object, not {kind_of(X)}")
    array = number_array(name, X, "; pass a DataFrame if some columns are words")
    if array.ndim != 2:
        hint = "; for a single feature use X.reshape(-1, 1)" if array.ndim == 1 else ""
        raise ChoiceGPError(f"{name} must have two dimensions (objects, features), not {array.ndim}{hint}")
    if len(array) == 0:
        raise ChoiceGPError(f"{name} has no rows: there are no objects")
    if array.shape[1] == 0:
        raise ChoiceGPError(f"{name} has no columns: objects need at least one feature")
    return array


def as_index(name: str, values: Any) -> "pd.Index":
    """Return row numbers or ids as a pandas Index, or raise an error when they hold sequences."""
    import pandas as pd

    try:
        ready = isinstance(values, np.ndarray | pd.Index | pd.Series)
        return pd.Index(values if ready else list(values), tupleize_cols=False)
    except (ValueError, TypeError) as error:
        problem = f"{name} holds sequences inside its sets; each entry must be a single row number or id"
        raise ChoiceGPError(problem) from error


def id_array(values: Any, n: int, name: str, what: str) -> NDArray[Any]:
    """Return ids as an array (n,): numbers as numbers, text as Python strings."""
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise ChoiceGPError(f"{name} must be a sequence with one id for each of the {n} {what}, not {kind_of(values)}")
    index = as_index(name, values)
    if len(index) != n:
        raise ChoiceGPError(f"{name} has {len(index)} ids but there are {n} {what}")
    if index.dtype.kind in "mM":
        index = index.astype(object)
    ids = index.infer_objects().to_numpy(copy=True)
    return ids.astype(object) if ids.dtype.kind in "US" else ids


def unique_index(ids: NDArray[Any], rule: str) -> "pd.Index":
    """Return ids as a pandas Index, or raise an error that states the rule and lists the ids that repeat."""
    index = as_index("ids", ids)
    if not index.is_unique:
        raise ChoiceGPError(f"{rule}; these repeat: {listed(index[index.duplicated()].unique())}")
    return index
