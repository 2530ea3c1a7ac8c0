"""One column of the objects' table: what kind it is, and its features.

:class:`~choicegp.reading.encoding.FeatureEncoding` puts columns together.
"""

import datetime
import math
import numbers
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect

MAX_CATEGORIES = 1000


class FeatureColumn(NamedTuple):
    """One column of the objects' table.

    Attributes
    ----------
    name : str
    kind : {"numeric", "categorical"}
    categories : tuple
        The categories in the order of their features; empty for a numeric column.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    categories: tuple[Any, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features this column becomes."""
        if self.kind == "numeric":
            return (self.name,)
        shown = self.categories[1:] if len(self.categories) == 2 else self.categories
        return tuple(f"{self.name}={category}" for category in shown)


class Places(NamedTuple):
    """How a defect names the rows of a table: file rows, objects, or (both None) positions."""

    rows: NDArray[Any] | None = None
    objects: NDArray[Any] | None = None

    def defect(self, kind: str, problem: str, position: int) -> Defect:
        """Return a defect of the row at this position."""
        if self.rows is None and self.objects is None:
            return Defect(kind, problem, row=position)
        row = None if self.rows is None else int(self.rows[position])
        return Defect(kind, problem, row, None, None if self.objects is None else plain(self.objects[position]))


Encoded = tuple[NDArray[np.float64], list[tuple[int, Defect]]]


def learn_column(name: str, column: pd.Series, places: Places) -> FeatureColumn:
    """Tell what kind a column is, and its categories."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = [plain(value) for value in dtype.categories]
        for value in categories:
            if not isinstance(value, str | bool | int | float):
                raise ChoiceGPError(
                    f"feature {name!r}: its categories are neither words nor numbers but {kind_of(value)}; "
                    "turn them into words"
                )
        return FeatureColumn(name, "categorical", _few_enough(name, categories))
    if pd.api.types.is_complex_dtype(dtype):
        raise ChoiceGPError(f"feature {name!r} holds complex numbers; use its real and imaginary parts")
    if pd.api.types.is_numeric_dtype(dtype):
        return FeatureColumn(name, "numeric")
    distinct = factorized(column[~is_missing(column)].astype(object))[1]
    if len(distinct) == 0:
        # Nothing is known of it; every value is reported as missing when the column is encoded.
        return FeatureColumn(name, "numeric")
    if all(isinstance(value, numbers.Real) for value in distinct):
        return FeatureColumn(name, "numeric")
    _check_words(name, column, distinct, places)
    return FeatureColumn(name, "categorical", _few_enough(name, sorted(distinct)))


def _check_words(name: str, column: pd.Series, distinct: NDArray[Any], places: Places) -> None:
    for value in distinct:
        if isinstance(value, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64 | pd.Period):
            raise ChoiceGPError(
                f"feature {name!r} holds dates or times; turn them into numbers (such as days since a start) "
                "or leave it out"
            )
        if not isinstance(value, str | numbers.Real):
            raise ChoiceGPError(f"feature {name!r} holds {kind_of(value)}; features must be numbers or words")
    words = [value for value in distinct if not _reads_as_number(value)]
    if 2 * len(words) >= len(distinct) and all(isinstance(value, str) for value in distinct):
        return
    if words:
        problem = f"feature {name!r} must be a number like most of its column, not "
        positions = np.flatnonzero(column.isin(words).to_numpy(dtype=bool))
        raise ChoiceDataError(
            [places.defect("not-a-number", f"{problem}{plain(column.iloc[i])!r}", int(i)) for i in positions]
        )
    # One that Python cannot read (such as 5,5) tells the reason why none were read.
    unread = [value for value in distinct if not _is_float(value)]
    example = plain(unread[0] if unread else distinct[0])
    problem = (
        f"feature {name!r} holds numbers stored as text such as {example!r}; store them as numbers "
        "(with a decimal point), or make the column a pandas Categorical if they are names"
    )
    position = int(np.flatnonzero(column.isin([example]).to_numpy(dtype=bool))[0])
    raise ChoiceDataError([places.defect("not-a-number", problem, position)])


def _is_float(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _reads_as_number(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    text = value.strip().replace(" ", "").replace("\u00a0", "")
    if not any(letter.isdigit() for letter in text):
        return False
    # Decimal commas and thousands separators: numbers to their writer, words to Python.
    return any(
        _is_float(candidate)
        for candidate in (
            text,
            text.replace(",", "."),
            text.replace(",", ""),
            text.replace(".", "").replace(",", "."),
        )
    )


def _few_enough(name: str, categories: Iterable[Any]) -> tuple[Any, ...]:
    kept = tuple(categories)
    if not kept:
        raise ChoiceGPError(f"feature {name!r} is a pandas Categorical without categories")
    if len(kept) > MAX_CATEGORIES:
        raise ChoiceGPError(
            f"feature {name!r} has {len(kept)} categories, more than {MAX_CATEGORIES}; "
            "is it an id or free text? Leave it out or group its categories"
        )
    return kept


def encode_numeric(column: FeatureColumn, given: pd.Series, places: Places) -> Encoded:
    """Encode a column of numbers; what is not a finite number becomes NaN and a defect."""
    dtype = given.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        values = given.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = np.zeros(len(given), dtype=bool)
    else:
        objects = given.astype(object).to_numpy()
        codes, distinct = factorized(objects)
        real = [isinstance(value, numbers.Real) for value in distinct]
        known = np.array([_as_float(v) if ok else np.nan for v, ok in zip(distinct, real, strict=True)] + [np.nan])
        values = known[codes]
        wrong = np.append(~np.array(real, dtype=bool), False)[codes] & ~is_missing(given)
    defects = []
    for i in np.flatnonzero(~np.isfinite(values)):
        if wrong[i]:
            problem = f"feature {column.name!r} must be a number, not {plain(given.iloc[i])!r}"
            defects.append((int(i), places.defect("not-a-number", problem, int(i))))
        else:
            defects.append((int(i), not_finite(column.name, values[i], int(i), places)))
    return values[:, None], defects


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf if value > 0 else -math.inf


def encode_categorical(column: FeatureColumn, given: pd.Series, places: Places) -> Encoded:
    """Encode a column of categories as 0/1; what is no known category becomes NaN and a defect."""
    missing = is_missing(given)
    codes, distinct = factorized(given)
    known = pd.Index(list(column.categories), dtype=object)
    found = np.append(known.get_indexer(pd.Index(distinct, dtype=object)), -1)[codes]
    defects = []
    for i in np.flatnonzero(found < 0):
        if missing[i]:
            defects.append((int(i), not_finite(column.name, np.nan, int(i), places)))
        else:
            problem = (
                f"feature {column.name!r} has the unknown category {plain(given.iloc[i])!r}; "
                f"known are {listed(column.categories)}"
            )
            defects.append((int(i), places.defect("unknown-category", problem, int(i))))
    indicators = (found[:, None] == np.arange(len(column.categories))).astype(np.float64)
    indicators[found < 0] = np.nan
    return (indicators[:, 1:] if len(column.categories) == 2 else indicators), defects


def not_finite(name: str, value: float, position: int, places: Places) -> Defect:
    """Return the defect of a feature that is missing or infinite."""
    if np.isnan(value):
        return places.defect("missing-feature", f"feature {name!r} is missing", position)
    return places.defect("non-finite-feature", f"feature {name!r} is not finite ({value})", position)


def not_an_indicator(column: FeatureColumn, part: NDArray[np.float64], places: Places) -> list[tuple[int, Defect]]:
    """Return defects of encoded rows that do not name exactly one category."""
    proper = ((part == 0) | (part == 1)).all(axis=1)
    if len(column.categories) != 2:
        proper &= part.sum(axis=1) == 1
    problem = f"the 0/1 features of {column.name!r} do not name one category"
    wrong = np.flatnonzero(~proper & np.isfinite(part).all(axis=1))
    return [(int(i), places.defect("not-a-category", problem, int(i))) for i in wrong]


def factorized(column: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return codes (-1 for missing) and the distinct values in the order of their appearance."""
    try:
        codes, distinct = pd.factorize(column)
    except (TypeError, ValueError, NotImplementedError) as error:
        name = getattr(column, "name", None)
        where = "a column" if name is None else f"column {name!r}"
        raise ChoiceGPError(f"{where} holds lists, dicts or sets; single numbers or words are wanted") from error
    return codes.astype(np.int64), np.asarray(distinct, dtype=object)


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Mark missing values of a column: NaN, None and blank text."""
    series = pd.Series(values)
    missing = series.isna().to_numpy(dtype=bool)
    if not pd.api.types.is_numeric_dtype(series.dtype):
        codes, distinct = factorized(series)
        blank = np.array([isinstance(value, str) and not value.strip() for value in distinct], dtype=bool)
        if blank.any():
            missing = missing | np.append(blank, False)[codes]
    return missing
