"""From columns of numbers and words to the numeric features a model uses, and back.

Numbers pass as they are. A column of words becomes 0/1 features: one for two categories, otherwise one per
category. The encoding is learned once and kept with the data (and a fitted model), so that new objects are
encoded in the same way.
"""

import datetime
import json
import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from choicegp.checks import as_table, check_distinct, kind_of, listed, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.cells import is_float, reads_as_number
from choicegp.reading.defects import Missing, Places, factorized, is_missing

MAX_CATEGORIES = 1000
MISSING = "(missing)"
_POSITIONS = Places()
_TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)

Encoded = tuple[NDArray[np.float64], list[tuple[int, Defect]]]


class FeatureColumn(NamedTuple):
    """One column of the objects' table.

    Attributes
    ----------
    name : str
    kind : {"numeric", "categorical"}
    categories : tuple
        The categories in the order of their features; empty for a numeric column. A missing value is of the category
        ``(missing)``, if there is one.
    fill : float or None
        What stands for a missing number, beside a further feature that is then 1; None where no number may be missing.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    categories: tuple[Any, ...] = ()
    fill: float | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features this column becomes."""
        if self.kind == "numeric":
            return (self.name,) if self.fill is None else (self.name, f"{self.name}=missing")
        shown = self.categories[1:] if len(self.categories) == 2 else self.categories
        return tuple(f"{self.name}={category}" for category in shown)


@dataclass(frozen=True)
class FeatureEncoding:
    """How the columns of objects become numeric features.

    Parameters
    ----------
    columns : tuple of FeatureColumn

    Examples
    --------
    >>> frame = pd.DataFrame({"price": [3, 5], "material": ["pla", "abs"]})
    >>> encoding = FeatureEncoding.learn(frame)
    >>> encoding.feature_names
    ('price', 'material=pla')
    >>> encoding.encode(frame)
    array([[3., 1.],
           [5., 0.]])
    """

    columns: tuple[FeatureColumn, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(FeatureColumn(*column) for column in self.columns))
        if not self.columns:
            raise ChoiceGPError("there is no feature: objects need at least one feature column")
        for column in self.columns:
            if column.kind not in ("numeric", "categorical"):
                raise ChoiceGPError(f"feature {column.name!r} is of an unknown kind: {column.kind!r}")
            if column.kind == "categorical" and not column.categories:
                raise ChoiceGPError(f"feature {column.name!r} has no category")
            check_distinct(column.categories, f"categories of feature {column.name!r}")
        check_distinct([column.name for column in self.columns], "feature columns")
        check_distinct(self.feature_names, "features")

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded features, one per column of the encoded table."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def is_plain(self) -> bool:
        """Whether the columns have no names of their own (they came from an array)."""
        return self == FeatureEncoding.plain(len(self.columns))

    @classmethod
    def plain(cls, n_features: int) -> "FeatureEncoding":
        """Return the encoding of an array: numeric columns x0, x1, and so on."""
        return cls(tuple(FeatureColumn(f"x{j}", "numeric") for j in range(n_features)))

    @classmethod
    def learn(
        cls, frame: pd.DataFrame, *, places: Places = _POSITIONS, missing: Missing = "error"
    ) -> "FeatureEncoding":
        """Learn the encoding of a table of feature columns, one row per object.

        Missing values are passed over; with ``missing="level"`` they are a value of their own.
        """
        columns = [(_learned(name, column, places), column) for name, column in _named_columns(frame).items()]
        if missing == "level":
            return cls(tuple(_with_missing(*pair) for pair in columns))
        return cls(tuple(learned for learned, _ in columns))

    def encode(self, frame: pd.DataFrame | ArrayLike, *, places: Places = _POSITIONS) -> NDArray[np.float64]:
        """Encode objects; an array is taken as features that are encoded already.

        Raises
        ------
        ChoiceDataError
            Names every value that is missing, not finite or of an unknown category.
        """
        return _without_defects(self.inspect(frame, places=places))

    def inspect(self, frame: pd.DataFrame | ArrayLike, *, places: Places = _POSITIONS) -> Encoded:
        """Encode objects and return what is wrong with them, instead of raising an error; defective values are NaN."""
        if not isinstance(frame, pd.DataFrame):
            return self._inspect_array(as_table(frame), places)
        given = _named_columns(frame)
        self._check_columns(given)
        parts, defects = [], []
        for column in self.columns:
            encode = _encode_numeric if column.kind == "numeric" else _encode_categorical
            part, found = encode(column, given[column.name], places)
            parts.append(part)
            defects += found
        return np.column_stack(parts), sorted(defects, key=lambda found: found[0])

    def by_column(self, X: NDArray[np.float64]) -> Iterator[tuple[FeatureColumn, NDArray[np.float64]]]:
        """Yield each column with its features, a part of the encoded table ``X``."""
        ends = np.cumsum([len(column.feature_names) for column in self.columns])
        return zip(self.columns, np.split(X, ends[:-1], axis=1), strict=True)

    def decode(self, X: ArrayLike) -> pd.DataFrame:
        """Return the table that encodes to ``X``; categories come back as pandas categoricals.

        Examples
        --------
        >>> encoding = FeatureEncoding((FeatureColumn("size", "categorical", ("S", "M", "L")),))
        >>> encoding.decode([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])["size"].tolist()
        ['L', 'S']
        """
        decoded: dict[str, Any] = {}
        for column, part in self.by_column(_without_defects(self._inspect_array(as_table(X), _POSITIONS))):
            if column.kind == "numeric":
                decoded[column.name] = part[:, 0] if column.fill is None else np.where(part[:, 1], np.nan, part[:, 0])
            else:
                codes = part[:, 0].astype(int) if len(column.categories) == 2 else part.argmax(axis=1)
                categories = pd.Index(list(column.categories))
                decoded[column.name] = pd.Categorical.from_codes(np.asarray(codes), categories=categories)
        return pd.DataFrame(decoded)

    def recode(
        self, X: ArrayLike, old: "FeatureEncoding", object_ids: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Encode by this encoding what ``old`` had encoded as ``X``; errors name the objects by their ids."""
        if old.is_plain and not self.is_plain:
            raise ChoiceGPError(
                "the objects came as an array, whose features have no names; use a DataFrame with the columns "
                f"{listed(column.name for column in self.columns)}"
            )
        if old.is_plain and self.is_plain and len(old.columns) != len(self.columns):
            raise ChoiceGPError(f"the objects have {len(old.columns)} features instead of {len(self.columns)}")
        return self.encode(old.decode(X), places=Places(objects=object_ids))

    def to_json(self) -> str:
        """Return the encoding as JSON text."""
        return json.dumps({"columns": [column._asdict() for column in self.columns]}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "FeatureEncoding":
        """Read back what :meth:`to_json` wrote.

        Examples
        --------
        >>> encoding = FeatureEncoding.plain(2)
        >>> FeatureEncoding.from_json(encoding.to_json()) == encoding
        True
        """
        try:
            columns = [
                FeatureColumn(str(c["name"]), c["kind"], tuple(c["categories"]), c.get("fill"))
                for c in json.loads(text)["columns"]
            ]
        except (TypeError, KeyError, ValueError) as error:
            raise ChoiceGPError("this is not the JSON text of a feature encoding") from error
        return cls(tuple(columns))

    def _check_columns(self, given: dict[str, pd.Series]) -> None:
        known = dict.fromkeys(column.name for column in self.columns)
        missing = listed(name for name in known if name not in given)
        extra = listed(name for name in given if name not in known)
        parts = [f"{names} {what}" for names, what in ((missing, "missing"), (extra, "not known")) if names]
        if parts:
            raise ChoiceGPError(f"the feature columns do not fit: {'; '.join(parts)}; the features are {listed(known)}")

    def _inspect_array(self, table: NDArray[np.float64], places: Places) -> Encoded:
        names = self.feature_names
        if table.shape[1] != len(names):
            raise ChoiceGPError(f"the array has {table.shape[1]} columns instead of {len(names)}: {listed(names)}")
        defects = [_not_finite(names[j], float(table[i, j]), i, places) for i, j in np.argwhere(~np.isfinite(table))]
        for column, part in self.by_column(table):
            if column.kind == "categorical":
                proper = ((part == 0) | (part == 1)).all(axis=1) & (
                    (part.sum(axis=1) == 1) | (len(column.categories) == 2)
                )
                wrong = np.flatnonzero(~proper & np.isfinite(part).all(axis=1))
                problem = f"the 0/1 features of {column.name!r} do not name one category"
                defects += [places.found("not-a-category", problem, i) for i in wrong]
        return table, defects


def check_encoding(encoding: object) -> None:
    """Refuse what is no encoding."""
    if not isinstance(encoding, FeatureEncoding):
        raise ChoiceGPError(f"encoding must be a FeatureEncoding, not {kind_of(encoding)}")


def _without_defects(encoded: Encoded) -> NDArray[np.float64]:
    X, defects = encoded
    if defects:
        raise ChoiceDataError([defect for _, defect in defects])
    return X


def _named_columns(frame: pd.DataFrame) -> dict[str, pd.Series]:
    if not isinstance(frame, pd.DataFrame):
        raise ChoiceGPError(f"features must be a DataFrame, not {kind_of(frame)}")
    names = [str(name) for name in frame.columns]
    check_distinct(names, "columns")
    return {name: column for name, (_, column) in zip(names, frame.items(), strict=True)}


def _learned(name: str, column: pd.Series, places: Places) -> FeatureColumn:
    """Find out what kind a column is, and its categories."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = [plain(value) for value in dtype.categories]
        for value in categories:
            if not isinstance(value, str | bool | int | float):
                raise ChoiceGPError(
                    f"feature {name!r} has a category that is neither a word nor a number but {kind_of(value)}; "
                    "turn its categories into words"
                )
        return FeatureColumn(name, "categorical", _few_enough(name, categories))
    if pd.api.types.is_complex_dtype(dtype):
        raise ChoiceGPError(f"feature {name!r} holds complex numbers; use its real and imaginary parts")
    distinct = np.zeros(0)
    if not pd.api.types.is_numeric_dtype(dtype):
        distinct = factorized(column[~is_missing(column)].astype(object))[1]
    # A column without any value counts as numeric: all its values are reported as missing when it is encoded.
    if all(isinstance(value, numbers.Real) for value in distinct):
        return FeatureColumn(name, "numeric")
    _check_words(name, column, distinct, places)
    return FeatureColumn(name, "categorical", _few_enough(name, sorted(distinct)))


def _with_missing(learned: FeatureColumn, column: pd.Series) -> FeatureColumn:
    """Give the missing values of a column a category of their own, or the mean of its numbers."""
    if not is_missing(column).any():
        return learned
    if learned.kind == "categorical":
        known = [category for category in learned.categories if category != MISSING]
        return learned._replace(categories=_few_enough(learned.name, [*known, MISSING]))
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        raise ChoiceGPError(f"feature {learned.name!r} is missing everywhere; leave it out")
    return learned._replace(fill=float(finite.mean()))


def _few_enough(name: str, categories: Sequence[Any]) -> tuple[Any, ...]:
    if not categories:
        raise ChoiceGPError(f"feature {name!r} is a pandas Categorical without categories")
    if len(categories) > MAX_CATEGORIES:
        raise ChoiceGPError(
            f"feature {name!r} has {len(categories)} categories, more than {MAX_CATEGORIES}; "
            "is it an id or free text? Name the other columns by features=['COLUMN', 'COLUMN'], or group its categories"
        )
    return tuple(categories)


def _check_words(name: str, column: pd.Series, distinct: NDArray[Any], places: Places) -> None:
    for value in distinct:
        if isinstance(value, _TIMES):
            raise ChoiceGPError(
                f"feature {name!r} holds dates or times; turn them into numbers (such as days since a start) "
                "or leave it out"
            )
        if not isinstance(value, str | numbers.Real):
            raise ChoiceGPError(f"feature {name!r} holds {kind_of(value)}; features must be numbers or words")
    words = [value for value in distinct if not reads_as_number(value)]
    if 2 * len(words) >= len(distinct) and all(isinstance(value, str) for value in distinct):
        return
    # A number that Python cannot read (such as 5,5) shows best why the column was not read as numbers.
    example = plain(next((value for value in distinct if not is_float(value)), distinct[0]))
    where = np.flatnonzero(column.isin(words or [example]).to_numpy(dtype=bool))
    if words:
        problem = f"feature {name!r} must be a number like most of its column, not "
        found = [places.found("not-a-number", f"{problem}{plain(column.iloc[i])!r}", i) for i in where]
    else:
        problem = (
            f"feature {name!r} holds numbers stored as text such as {example!r}; store them as numbers "
            "(with a decimal point), or make the column a pandas Categorical if they are names"
        )
        found = [places.found("not-a-number", problem, where[0])]
    raise ChoiceDataError([defect for _, defect in found])


def _encode_numeric(column: FeatureColumn, given: pd.Series, places: Places) -> Encoded:
    """Encode a column of numbers; what is not a finite number becomes NaN and a defect."""
    dtype = given.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        values = given.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = np.zeros(len(given), dtype=bool)
    else:
        codes, distinct = factorized(given.astype(object).to_numpy())
        real = [isinstance(value, numbers.Real) for value in distinct]
        known = np.array([_as_float(v) if ok else np.nan for v, ok in zip(distinct, real, strict=True)] + [np.nan])
        values = known[codes]
        wrong = np.append(~np.array(real, dtype=bool), False)[codes] & ~is_missing(given)

    def defect(i: int | np.integer) -> tuple[int, Defect]:
        if not wrong[i]:
            return _not_finite(column.name, values[i], i, places)
        problem = f"feature {column.name!r} must be a number, not {plain(given.iloc[i])!r}"
        return places.found("not-a-number", problem, i)

    parts = [values]
    if column.fill is not None:
        missing = np.isnan(values) & ~wrong
        values = np.where(missing, column.fill, values)
        parts = [values, missing.astype(np.float64)]
    return np.column_stack(parts), [defect(i) for i in np.flatnonzero(~np.isfinite(values))]


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _encode_categorical(column: FeatureColumn, given: pd.Series, places: Places) -> Encoded:
    """Encode a column of categories as 0/1; what is no known category becomes NaN and a defect."""
    missing = is_missing(given)
    codes, distinct = factorized(given)
    known = pd.Index(list(column.categories), dtype=object)
    found = np.append(known.get_indexer(pd.Index(distinct, dtype=object)), -1)[codes]
    if MISSING in column.categories:
        found[missing] = column.categories.index(MISSING)
        missing = np.zeros_like(missing)

    def defect(i: int | np.integer) -> tuple[int, Defect]:
        if missing[i]:
            return _not_finite(column.name, np.nan, i, places)
        word = f"feature {column.name!r} has the unknown category {plain(given.iloc[i])!r}"
        return places.found("unknown-category", f"{word}; the known ones are {listed(column.categories)}", i)

    indicators = (found[:, None] == np.arange(len(known))).astype(np.float64)
    indicators[found < 0] = np.nan
    return indicators[:, int(len(known) == 2) :], [defect(i) for i in np.flatnonzero(found < 0)]


def _not_finite(name: str, value: float, position: int | np.integer, places: Places) -> tuple[int, Defect]:
    if np.isnan(value):
        return places.found("missing-feature", f"feature {name!r} is missing", position)
    return places.found("non-finite-feature", f"feature {name!r} is not finite ({value})", position)
