"""Reading a wide table: one row per set, a group of columns per alternative."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.defects import is_missing
from choicegp.reading.long import LongColumns, Roles, check_roles, name_list, opened


def wide_columns(
    frame: Any, roles: Roles, alternatives: Sequence[Any], features: Sequence[str], sep: str
) -> LongColumns:
    """Find the columns of a wide table and turn them into the columns of a long one."""
    check_roles(roles)
    names, stubs = name_list(alternatives, "alternatives"), name_list(features, "features")
    if not isinstance(sep, str):
        raise ChoiceGPError(f"sep must be text, not {kind_of(sep)}")

    def of_stub(stub: str | None) -> list[str]:
        return [] if stub is None else [f"{stub}{sep}{name}" for name in names]

    table, rows, source = opened(frame, [roles.set_id, roles.respondent, *of_stub(roles.object_id)])
    groups = [*stubs, roles.chosen, roles.available, roles.object_id]
    wanted = [column for stub in groups for column in of_stub(stub)]
    wanted += [name for name in (roles.set_id, roles.respondent, roles.weight) if name is not None]
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise ChoiceGPError(
            f"{source}: there are no columns {listed(missing)}; the columns are {listed(table.columns)}"
        )
    m, a = len(table), len(names)

    def stacked(stub: str) -> pd.Series:
        return _stacked([table[column] for column in of_stub(stub)])

    def repeated(column: pd.Series) -> pd.Series:
        return column.repeat(a).reset_index(drop=True)

    if roles.set_id is not None:
        _check_one_row_per_set(table[roles.set_id], rows, source)
    table_features = pd.DataFrame({stub: stacked(stub) for stub in stubs})
    return LongColumns(
        rows=np.repeat(rows, a),
        source=source,
        set_id=repeated(pd.Series(np.arange(m)) if roles.set_id is None else table[roles.set_id]),
        object_id=pd.Series(names * m) if roles.object_id is None else stacked(roles.object_id),
        chosen=None if roles.chosen is None else stacked(roles.chosen),
        available=None if roles.available is None else stacked(roles.available),
        respondent=None if roles.respondent is None else repeated(table[roles.respondent]),
        weight=None if roles.weight is None else repeated(table[roles.weight]),
        features=table_features,
        absent=np.logical_and.reduce([is_missing(table_features[stub]) for stub in stubs]),
    )


def _stacked(columns: list[pd.Series]) -> pd.Series:
    """Join columns row by row: the entries of the first row, the entries of the second row, and so on."""
    if len({str(column.dtype) for column in columns}) > 1:
        # An alternative that is always absent is a column of NaN among words; pandas joins them as objects.
        columns = [column.astype(object) for column in columns]
    by_row = np.arange(len(columns) * len(columns[0])).reshape(len(columns), -1).T.ravel()
    return pd.concat(columns, ignore_index=True).iloc[by_row].reset_index(drop=True).infer_objects()


def _check_one_row_per_set(set_id: pd.Series, rows: NDArray[np.int64], source: str) -> None:
    again = np.flatnonzero((set_id.duplicated() & ~is_missing(set_id)).to_numpy())
    if len(again):
        problem = "the set has a second row, but a wide table has one row per set"
        raise ChoiceDataError(
            [Defect("duplicate-set", problem, int(rows[i]), plain(set_id.iloc[i])) for i in again], source
        )
