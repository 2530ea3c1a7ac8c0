"""From columns of numbers and words to the numeric features a model uses, and back.

Numbers pass as they are. A column of words becomes 0/1 features: one for two categories, otherwise one per
category. The encoding is learned once and kept with the data (and a fitted model), so that new objects are
encoded in the same way.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from choicegp.checks import check_distinct, kind_of, listed
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.columns import (
    Encoded,
    FeatureColumn,
    Places,
    encode_categorical,
    encode_numeric,
    learn_column,
    not_an_indicator,
    not_finite,
)

_POSITIONS = Places()


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
    def learn(cls, frame: pd.DataFrame, *, places: Places = _POSITIONS) -> "FeatureEncoding":
        """Learn the encoding of a table of objects; missing values are passed over.

        Parameters
        ----------
        frame : DataFrame
            One row per object, only feature columns.
        places : Places, optional
            How errors name the rows.
        """
        columns = _named_columns(frame)
        return cls(tuple(learn_column(name, column, places) for name, column in columns.items()))

    def encode(self, frame: pd.DataFrame | ArrayLike) -> NDArray[np.float64]:
        """Encode objects; an array is taken as features that are encoded already.

        Raises
        ------
        ChoiceDataError
            Names every value that is missing, not finite or of an unknown category.
        """
        X, defects = self.inspect(frame)
        if defects:
            raise ChoiceDataError([defect for _, defect in defects])
        return X

    def inspect(self, frame: pd.DataFrame | ArrayLike, *, places: Places = _POSITIONS) -> Encoded:
        """Encode objects and tell what is wrong with them, instead of raising.

        Returns
        -------
        X : array (t, k)
            Defective values are NaN.
        defects : list of (position, Defect)
        """
        if not isinstance(frame, pd.DataFrame):
            return self._inspect_array(as_table(frame), places)
        given = _named_columns(frame)
        self._check_columns(list(given))
        parts, defects = [], []
        for column in self.columns:
            encode = encode_numeric if column.kind == "numeric" else encode_categorical
            part, found = encode(column, given[column.name], places)
            parts.append(part)
            defects += found
        defects.sort(key=lambda found: found[0])
        return np.column_stack(parts), defects

    def decode(self, X: ArrayLike) -> pd.DataFrame:
        """Return the table that encodes to ``X``; categories come back as pandas categoricals.

        Examples
        --------
        >>> encoding = FeatureEncoding((FeatureColumn("size", "categorical", ("S", "M", "L")),))
        >>> encoding.decode([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])["size"].tolist()
        ['L', 'S']
        """
        table, defects = self._inspect_array(as_table(X), _POSITIONS)
        if defects:
            raise ChoiceDataError([defect for _, defect in defects])
        decoded: dict[str, Any] = {}
        start = 0
        for column in self.columns:
            part = table[:, start : start + len(column.feature_names)]
            start += part.shape[1]
            if column.kind == "numeric":
                decoded[column.name] = part[:, 0]
            else:
                codes = part[:, 0].astype(int) if len(column.categories) == 2 else part.argmax(axis=1)
                categories = pd.Index(list(column.categories))
                decoded[column.name] = pd.Categorical.from_codes(np.asarray(codes), categories=categories)
        return pd.DataFrame(decoded)

    def recode(
        self, X: ArrayLike, old: "FeatureEncoding", object_ids: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Encode by this encoding what another one had encoded.

        Parameters
        ----------
        X : array_like (t, k)
            Features encoded by ``old``.
        old : FeatureEncoding
        object_ids : array (t,), optional
            Names the objects in errors.
        """
        if old.is_plain and not self.is_plain:
            raise ChoiceGPError(
                f"the objects came as an array and their features have no names; wanted are "
                f"{listed(column.name for column in self.columns)}: use a DataFrame with these columns"
            )
        if old.is_plain and self.is_plain and len(old.columns) != len(self.columns):
            raise ChoiceGPError(f"the objects have {len(old.columns)} features; {len(self.columns)} are wanted")
        recoded, defects = self.inspect(old.decode(X), places=Places(objects=object_ids))
        if defects:
            raise ChoiceDataError([defect for _, defect in defects])
        return recoded

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
                FeatureColumn(str(c["name"]), c["kind"], tuple(c["categories"])) for c in json.loads(text)["columns"]
            ]
        except (TypeError, KeyError, ValueError) as error:
            raise ChoiceGPError("this is not the JSON text of a feature encoding") from error
        return cls(tuple(columns))

    def _check_columns(self, given: list[str]) -> None:
        wanted = [column.name for column in self.columns]
        if set(given) == set(wanted):
            return
        missing = [name for name in wanted if name not in given]
        extra = [name for name in given if name not in wanted]
        parts = [
            f"{names} {what}" for names, what in ((listed(missing), "missing"), (listed(extra), "not known")) if names
        ]
        raise ChoiceGPError(f"the feature columns do not fit: {'; '.join(parts)}; the features are {listed(wanted)}")

    def _inspect_array(self, table: NDArray[np.float64], places: Places) -> Encoded:
        if table.shape[1] != len(self.feature_names):
            raise ChoiceGPError(
                f"the array has {table.shape[1]} columns; {len(self.feature_names)} are wanted: "
                f"{listed(self.feature_names)}"
            )
        defects = []
        for i, j in np.argwhere(~np.isfinite(table)):
            defects.append((int(i), not_finite(self.feature_names[j], float(table[i, j]), int(i), places)))
        start = 0
        for column in self.columns:
            part = table[:, start : start + len(column.feature_names)]
            start += part.shape[1]
            if column.kind == "categorical":
                defects += not_an_indicator(column, part, places)
        return table, defects


def check_encoding(encoding: object) -> None:
    """Refuse what is no encoding."""
    if not isinstance(encoding, FeatureEncoding):
        raise ChoiceGPError(f"encoding must be a FeatureEncoding, not {kind_of(encoding)}")


def group_equal_rows(
    X: NDArray[np.float64], labels: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give equal rows of ``X`` (of equal labels) equal numbers.

    Parameters
    ----------
    X : float array (n, k)
    labels : int array (n,), optional
        Rows of different labels are kept apart.

    Returns
    -------
    group : int array (n,)
        0, 1, ... in the order of first appearance.
    first : int array (groups,)
        The first row of each group.

    Examples
    --------
    >>> group_equal_rows(np.array([[1.0], [2.0], [1.0]]))
    (array([0, 1, 0]), array([0, 1]))
    """
    values = np.asarray(X, dtype=np.float64) + 0.0  # -0.0 equals 0.0 but has other bits
    columns: list[NDArray[Any]] = [] if labels is None else [labels]
    columns += [values[:, j] for j in range(values.shape[1])]
    hashed = pd.util.hash_pandas_object(pd.DataFrame(dict(enumerate(columns))), index=False)
    group, first = _factorized(hashed.to_numpy())
    same = (values == values[first[group]]).all()
    if labels is not None:
        same = same and (labels == labels[first[group]]).all()
    if not same:
        # Two rows share a hash: number them column by column, which is slower but exact.
        group = np.zeros(len(values), dtype=np.int64)
        for column in columns:
            codes = _factorized(column)[0]
            group, first = _factorized(group * (codes.max(initial=0) + 1) + codes)
    return group, first


def _factorized(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    first = np.empty(len(distinct), dtype=np.int64)
    # Written back to front, so that the first row of a group is what remains.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes.astype(np.int64), first


def as_table(X: ArrayLike, name: str = "X") -> NDArray[np.float64]:
    """Return a new float array (t, c), which may hold NaN, or say why ``X`` is no table of numbers."""
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
        X = np.ma.filled(X.astype(np.float64), np.nan)
    if X is None or isinstance(X, str | bytes | dict | set | frozenset):
        raise ChoiceGPError(f"{name} must be an array or a DataFrame with one row per object, not {kind_of(X)}")
    try:
        array = np.asarray(X)
    except (ValueError, TypeError) as error:
        raise ChoiceGPError(f"{name} is not a table of numbers: its rows differ in length") from error
    if array.dtype.kind not in "biuf":
        raise ChoiceGPError(
            f"{name} is not a table of real numbers (it is {kind_of(X)} of type {array.dtype}); "
            "pass a DataFrame if some columns are words"
        )
    if array.ndim != 2:
        hint = "; for a single feature use X.reshape(-1, 1)" if array.ndim == 1 else ""
        raise ChoiceGPError(f"{name} must have two dimensions (objects, features), not {array.ndim}{hint}")
    if len(array) == 0:
        raise ChoiceGPError(f"{name} has no rows: there are no objects")
    if array.shape[1] == 0:
        raise ChoiceGPError(f"{name} has no columns: objects need at least one feature")
    return array.astype(np.float64)


def _named_columns(frame: pd.DataFrame) -> dict[str, pd.Series]:
    if not isinstance(frame, pd.DataFrame):
        raise ChoiceGPError(f"features must be a DataFrame, not {kind_of(frame)}")
    names = [str(name) for name in frame.columns]
    check_distinct(names, "columns")
    return {name: column for name, (_, column) in zip(names, frame.items(), strict=True)}
