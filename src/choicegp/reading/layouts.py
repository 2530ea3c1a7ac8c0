"""Finding the columns of choice data in tables: long (a row per shown alternative), wide (a row per set)."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.columns import is_missing
from choicegp.reading.long import LongColumns
from choicegp.reading.text import read_rows


class Roles(NamedTuple):
    """Names of the columns of a long table (of column stubs, of a wide one)."""

    set_id: str | None
    object_id: str | None
    chosen: str | None
    available: str | None
    respondent: str | None
    weight: str | None


def long_columns(frame: Any, roles: Roles, features: Sequence[str] | None) -> LongColumns:
    """Find the columns of a long table."""
    check_roles(roles)
    if roles.set_id is None:
        raise ChoiceGPError("set_id must name the column that tells which rows belong to one set")
    table, rows, source = _opened(frame, [roles.set_id, roles.object_id, roles.respondent])
    named = {role: name for role, name in roles._asdict().items() if name is not None}
    for role, name in named.items():
        if name not in table.columns:
            hint = "; pass chosen=None (--no-choices) if there are no choices" if role == "chosen" else ""
            raise ChoiceGPError(
                f"{source}: there is no column {name!r} ({role}); the columns are {listed(table.columns)}{hint}"
            )
    if features is None:
        wanted = [name for name in table.columns if name not in named.values()]
    else:
        wanted = _names(features, "features")
    for name in wanted:
        if name not in table.columns:
            raise ChoiceGPError(
                f"{source}: there is no feature column {name!r}; the columns are {listed(table.columns)}"
            )
        if name in named.values():
            raise ChoiceGPError(f"the column {name!r} cannot be both a feature and something else")
    if not wanted:
        raise ChoiceGPError(f"{source}: there is no feature column; the columns are {listed(table.columns)}")
    found: dict[str, Any] = {role: table.get(name) for role, name in roles._asdict().items()}
    return LongColumns(rows=rows, source=source, features=table[wanted], **found)


def wide_columns(
    frame: Any, roles: Roles, alternatives: Sequence[Any], features: Sequence[str], sep: str
) -> LongColumns:
    """Find the columns of a wide table and turn them into those of a long one."""
    check_roles(roles)
    names, stubs = _names(alternatives, "alternatives"), _names(features, "features")
    if not isinstance(sep, str):
        raise ChoiceGPError(f"sep must be text, not {kind_of(sep)}")
    ids = [roles.set_id, roles.respondent]
    ids += [f"{roles.object_id}{sep}{name}" for name in names] if roles.object_id is not None else []
    table, rows, source = _opened(frame, ids)
    groups = [
        *stubs,
        *(stub for stub in (roles.chosen, roles.available, roles.object_id) if stub is not None),
    ]
    wanted = [f"{stub}{sep}{name}" for stub in groups for name in names]
    wanted += [name for name in (roles.set_id, roles.respondent, roles.weight) if name is not None]
    _check_present(wanted, table, source)
    m, a = len(table), len(names)
    by_set = (np.arange(a) * m + np.arange(m)[:, None]).ravel()

    def stacked(stub: str | None) -> pd.Series | None:
        return None if stub is None else _stacked([table[f"{stub}{sep}{name}"] for name in names], by_set)

    def repeated(name: str | None) -> pd.Series | None:
        return None if name is None else table[name].repeat(a).reset_index(drop=True)

    table_features = pd.DataFrame({stub: stacked(stub) for stub in stubs})
    set_id = pd.Series(np.repeat(np.arange(m), a))
    if roles.set_id is not None:
        _check_one_row_per_set(table[roles.set_id], rows, source)
        set_id = table[roles.set_id].repeat(a).reset_index(drop=True)
    object_id = stacked(roles.object_id)
    return LongColumns(
        rows=np.repeat(rows, a),
        source=source,
        set_id=set_id,
        object_id=pd.Series(names * m) if object_id is None else object_id,
        chosen=stacked(roles.chosen),
        available=stacked(roles.available),
        respondent=repeated(roles.respondent),
        weight=repeated(roles.weight),
        features=table_features,
        absent=np.logical_and.reduce([is_missing(table_features[stub]) for stub in stubs]),
    )


def check_roles(roles: Roles) -> None:
    """Refuse names of columns that are no text, or that are given twice."""
    taken: dict[Any, str] = {}
    for role, name in roles._asdict().items():
        if name is None:
            continue
        if not isinstance(name, str | int):
            raise ChoiceGPError(f"{role} must be the name of a column, not {kind_of(name)}")
        # A table with one set per person may name its sets by the person.
        if name in taken and {role, taken[name]} != {"set_id", "respondent"}:
            raise ChoiceGPError(f"the column {name!r} cannot be both {taken[name]} and {role}")
        taken.setdefault(name, role)


def _names(values: Any, argument: str) -> list[Any]:
    if isinstance(values, str):
        return [values]
    if not isinstance(values, list | tuple | pd.Index | np.ndarray) or getattr(values, "ndim", 1) != 1:
        raise ChoiceGPError(f"{argument} must be a list of names, not {kind_of(values)}")
    names = [plain(value) for value in values]
    for name in names:
        if not isinstance(name, str | int):
            raise ChoiceGPError(f"{argument} must be a list of names, but it holds {kind_of(name)}")
    if not names:
        raise ChoiceGPError(f"{argument} is empty; at least one name is wanted")
    return names


def _check_present(wanted: list[str], table: pd.DataFrame, source: str) -> None:
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise ChoiceGPError(
            f"{source}: there are no columns {listed(missing)}; the columns are {listed(table.columns)}"
        )


def _opened(frame: Any, ids: Sequence[str | None]) -> tuple[pd.DataFrame, NDArray[np.int64], str]:
    if isinstance(frame, str | os.PathLike):
        read = read_rows(frame, [name for name in ids if name is not None])
        return read.frame, read.rows, f"{os.fspath(frame)} (the header is row 1)"
    if not isinstance(frame, pd.DataFrame):
        raise ChoiceGPError(f"a DataFrame or the path of a CSV or Parquet file is wanted, not {kind_of(frame)}")
    if len(frame) == 0:
        raise ChoiceGPError("the DataFrame has no rows")
    if isinstance(frame.columns, pd.MultiIndex):
        raise ChoiceGPError("the DataFrame's columns have several levels; one name each is wanted")
    if not frame.columns.is_unique:
        raise ChoiceGPError(
            f"the DataFrame has columns of the same name: {listed(frame.columns[frame.columns.duplicated()])}"
        )
    return frame.reset_index(drop=True), np.arange(len(frame)), "DataFrame (rows counted from 0)"


def _stacked(columns: list[pd.Series], order: NDArray[np.int64]) -> pd.Series:
    if len({str(column.dtype) for column in columns}) > 1:
        # An alternative that is always absent is a column of NaN among words; pandas joins them as objects.
        columns = [column.astype(object) for column in columns]
    joined = pd.concat(columns, ignore_index=True).iloc[order].reset_index(drop=True)
    return joined.infer_objects()


def _check_one_row_per_set(set_id: pd.Series, rows: NDArray[np.int64], source: str) -> None:
    again = np.flatnonzero((set_id.duplicated() & ~is_missing(set_id)).to_numpy())
    if len(again):
        problem = "the set has a second row; a wide table has one row per set"
        raise ChoiceDataError(
            [Defect("duplicate-set", problem, int(rows[i]), plain(set_id.iloc[i])) for i in again], source
        )
