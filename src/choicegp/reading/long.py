"""Reading a long table, one row per set and shown alternative: its columns by role, then its rows into a draft."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import id_array, kind_of, listed, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.defects import Draft, Findings, Places, factorized, is_missing, offsets_of
from choicegp.reading.encoding import FeatureEncoding, check_encoding
from choicegp.reading.text import read_rows

_FLAGS: dict[Any, bool] = {0: False, 1: True, "0": False, "1": True}
_FLAGS |= {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}


class Roles(NamedTuple):
    """Names of the columns of a long table; in a wide table, the parts of the names before the separator."""

    set_id: str | None
    object_id: str | None
    chosen: str | None
    available: str | None
    respondent: str | None
    weight: str | None


class LongColumns(NamedTuple):
    """The columns of a long table by their role, and how its rows are named.

    ``absent`` marks alternatives that a wide table lists but leaves empty: they were not shown.
    """

    rows: NDArray[np.int64]
    source: str
    set_id: pd.Series
    object_id: pd.Series | None
    chosen: pd.Series | None
    available: pd.Series | None
    respondent: pd.Series | None
    weight: pd.Series | None
    features: pd.DataFrame
    absent: NDArray[np.bool_] | None = None


def long_columns(frame: Any, roles: Roles, features: Sequence[str] | None) -> LongColumns:
    """Find the columns of a long table."""
    check_roles(roles)
    if roles.set_id is None:
        raise ChoiceGPError("set_id must name the column that says to which set each row belongs")
    table, rows, source = opened(frame, [roles.set_id, roles.object_id, roles.respondent])
    has = f"the columns are {listed(table.columns)}"
    named = {role: name for role, name in roles._asdict().items() if name is not None}
    for role, name in named.items():
        if name not in table.columns:
            hint = "; pass chosen=None (--no-choices) if there are no choices" if role == "chosen" else ""
            raise ChoiceGPError(f"{source}: there is no column {name!r} ({role}); {has}{hint}")
    if features is None:
        wanted = [name for name in table.columns if name not in named.values()]
    else:
        wanted = name_list(features, "features")
    for name in wanted:
        if name not in table.columns:
            raise ChoiceGPError(f"{source}: there is no feature column {name!r}; {has}")
        if name in named.values():
            raise ChoiceGPError(f"the column {name!r} cannot be both a feature and something else")
    if not wanted:
        raise ChoiceGPError(f"{source}: there is no feature column; {has}")
    found: dict[str, Any] = {role: table.get(name) for role, name in roles._asdict().items()}
    return LongColumns(rows=rows, source=source, features=table[wanted], **found)


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


def name_list(values: Any, argument: str) -> list[Any]:
    """Return the names of columns that an argument gives, at least one."""
    if isinstance(values, str):
        return [values]
    if not isinstance(values, list | tuple | pd.Index | np.ndarray) or getattr(values, "ndim", 1) != 1:
        raise ChoiceGPError(f"{argument} must be a list of names, not {kind_of(values)}")
    names = [plain(value) for value in values]
    for name in names:
        if not isinstance(name, str | int):
            raise ChoiceGPError(f"{argument} must be a list of names, but it holds {kind_of(name)}")
    if not names:
        raise ChoiceGPError(f"{argument} is empty; give at least one name")
    return names


def opened(frame: Any, ids: Sequence[str | None]) -> tuple[pd.DataFrame, NDArray[np.int64], str]:
    """Return a table, the numbers of its rows, and where it comes from; ``ids`` are the columns that hold ids."""
    if isinstance(frame, str | os.PathLike):
        read = read_rows(frame, [name for name in ids if name is not None])
        return read.frame, read.rows, f"{os.fspath(frame)} (the header is row 1)"
    if not isinstance(frame, pd.DataFrame):
        raise ChoiceGPError(f"the table must be a DataFrame or the path of a CSV or Parquet file, not {kind_of(frame)}")
    if len(frame) == 0:
        raise ChoiceGPError("the DataFrame has no rows")
    if isinstance(frame.columns, pd.MultiIndex):
        raise ChoiceGPError("the DataFrame's columns have several levels; give each column one name")
    if not frame.columns.is_unique:
        raise ChoiceGPError(
            f"the DataFrame has columns of the same name: {listed(frame.columns[frame.columns.duplicated()])}"
        )
    return frame.reset_index(drop=True), np.arange(len(frame)), "DataFrame (rows counted from 0)"


def read_long(columns: LongColumns, encoding: FeatureEncoding | None) -> tuple[Draft, Findings]:
    """Read the columns of a long table into a draft, and report what is wrong row by row."""
    lost = is_missing(columns.set_id)
    of_set = factorized(columns.set_id.where(~lost) if lost.any() else columns.set_id)[0]
    first_of_set = _first_places(of_set)
    no_id = [Defect("missing-id", "the set's id is missing", int(columns.rows[i])) for i in np.flatnonzero(lost)]
    if len(first_of_set) == 0:
        raise ChoiceDataError(no_id, columns.source)
    set_ids = id_array(columns.set_id.iloc[first_of_set], len(first_of_set), "set_id", "sets")
    findings = Findings(set_ids, columns.source, columns.rows[first_of_set])
    for defect in no_id:
        findings.add(defect)
    labels = None
    if columns.object_id is not None:
        labels = columns.object_id.astype(object).to_numpy(copy=True)
        labels[is_missing(columns.object_id)] = None

    def report(kind: str, problem: str | Sequence[str], places: NDArray[np.int64]) -> None:
        objects = None if labels is None else labels[places]
        findings.in_sets(kind, problem, of_set[places], objects, columns.rows[places])

    shown, chosen = _shown_and_chosen(columns, of_set >= 0, report)
    entries = np.flatnonzero(shown)
    entries = entries[np.argsort(of_set[entries], kind="stable")]
    X, ids, encoding, flat = _objects(columns, entries, encoding, report)
    draft = Draft(
        X=X,
        object_ids=ids,
        encoding=encoding,
        flat_shown=flat,
        offsets=offsets_of(np.bincount(of_set[entries], minlength=len(set_ids))),
        flat_chosen=None if chosen is None else chosen[entries],
        set_ids=set_ids,
        respondents=_one_per_set(columns.respondent, "respondent", of_set, first_of_set, report),
        weights=_weights(columns, of_set, first_of_set, report),
        rows=columns.rows[entries],
    )
    return draft, findings


def _first_places(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of the codes 0, 1, ... comes first."""
    first = np.empty(codes.max(initial=-1) + 1, dtype=np.int64)
    # Written back to front, so that the first place of a code is what remains.
    known = np.flatnonzero(codes >= 0)[::-1]
    first[codes[known]] = known
    return first


def _shown_and_chosen(
    columns: LongColumns, in_set: NDArray[np.bool_], report: Any
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
    shown = in_set.copy() if columns.absent is None else in_set & ~columns.absent
    if columns.available is not None:
        available, unclear = _flags(columns.available, "availability", in_set, shown, report)
        shown &= available | unclear
    if columns.chosen is None:
        return shown, None
    chosen, _ = _flags(columns.chosen, "choice", in_set, shown, report)
    report("chosen-not-shown", "the object is chosen but was not shown", np.flatnonzero(in_set & chosen & ~shown))
    return shown, chosen


def _flags(
    column: pd.Series, what: str, in_set: NDArray[np.bool_], shown: NDArray[np.bool_], report: Any
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Read flags: their values, and which are not 0/1 (reported) or missing (reported where an object is shown)."""
    missing = is_missing(column)
    codes, distinct = factorized(column)
    known = [_FLAGS.get(value) for value in distinct]
    values = np.array([bool(flag) for flag in known] + [False])[codes]
    unclear = np.array([flag is None for flag in known] + [True])[codes] | missing
    places = np.flatnonzero(in_set & unclear & (shown | ~missing))
    said = ["it is missing" if missing[i] else f"{plain(column.iloc[i])!r}" for i in places]
    report("wrong-flag", [f"the {what} has a flag that is not 0/1: {value}" for value in said], places)
    return values, unclear


def _objects(
    columns: LongColumns, entries: NDArray[np.int64], encoding: FeatureEncoding | None, report: Any
) -> tuple[NDArray[np.float64], NDArray[Any], FeatureEncoding, NDArray[np.int64]]:
    """Make each distinct (id, features) an object: X, ids, encoding, and the object of each entry."""
    if encoding is not None:
        check_encoding(encoding)
    if len(entries) == 0:
        raise ChoiceGPError(f"{columns.source}: no row shows an object")
    shown, places = columns.features.iloc[entries], Places(columns.rows[entries])
    try:
        encoding = FeatureEncoding.learn(shown, places=places) if encoding is None else encoding
    except ChoiceDataError as error:
        raise ChoiceDataError(error.defects, columns.source) from error
    X, defects = encoding.inspect(shown, places=places)
    good = np.ones(len(entries), dtype=bool)
    for position, defect in defects:
        good[position] = False
        report(defect.kind, defect.problem, entries[[position]])
    labels = None
    if columns.object_id is not None:
        missing = is_missing(columns.object_id.iloc[entries])
        report("missing-id", "the object's id is missing", entries[missing])
        good &= ~missing
        labels = factorized(columns.object_id.iloc[entries])[0]
    usable = np.flatnonzero(good)
    group, first = group_equal_rows(X[usable], None if labels is None else labels[usable])
    flat = np.full(len(entries), -1, dtype=np.int64)
    flat[usable] = group
    ids: NDArray[Any] = np.arange(len(first))
    if columns.object_id is not None:
        ids = id_array(columns.object_id.iloc[entries[usable[first]]], len(first), "object_id", "objects")
    return X[usable[first]], ids, encoding, flat


def group_equal_rows(
    X: NDArray[np.float64], labels: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each row of ``X`` (n, k), equal for equal rows of equal labels, and each number's first row.

    The numbers are 0, 1, ... in the order of first appearance.

    Examples
    --------
    >>> group_equal_rows(np.array([[1.0], [2.0], [1.0]]))
    (array([0, 1, 0]), array([0, 1]))
    """
    values = np.asarray(X, dtype=np.float64) + 0.0  # -0.0 equals 0.0 but has other bits
    columns = [*([] if labels is None else [labels]), *values.T]
    hashed = pd.util.hash_pandas_object(pd.DataFrame(dict(enumerate(columns))), index=False)
    group = pd.factorize(hashed.to_numpy())[0].astype(np.int64)
    first = _first_places(group)
    if not all((column == column[first[group]]).all() for column in columns):
        # Two rows share a hash: number them column by column, which is slower but exact.
        group = np.zeros(len(values), dtype=np.int64)
        for column in columns:
            codes = pd.factorize(column)[0]
            group = pd.factorize(group * (codes.max(initial=0) + 1) + codes)[0].astype(np.int64)
        first = _first_places(group)
    return group, first


def _one_per_set(
    column: pd.Series | None, name: str, of_set: NDArray[np.int64], first_of_set: NDArray[np.int64], report: Any
) -> NDArray[Any] | None:
    if column is None:
        return None
    codes = factorized(column)[0]
    differs = (of_set >= 0) & (codes != codes[first_of_set][of_set])
    report(f"differing-{name}", f"the {name} differs inside the set", np.flatnonzero(differs))
    return id_array(column.iloc[first_of_set], len(first_of_set), name, "sets")


def _weights(
    columns: LongColumns, of_set: NDArray[np.int64], first_of_set: NDArray[np.int64], report: Any
) -> NDArray[np.float64] | None:
    if columns.weight is None:
        return None
    first = pd.Series(_one_per_set(columns.weight, "weight", of_set, first_of_set, report))
    weights = pd.to_numeric(first, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    words = np.flatnonzero(np.isnan(weights) & ~is_missing(first))
    problems = [f"the weight must be a number, not {plain(first.iloc[k])!r}" for k in words]
    report("bad-weight", problems, first_of_set[words])
    weights[words] = 1.0  # so that it is not reported again
    return weights
