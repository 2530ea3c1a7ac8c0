"""Reading the rows of a long table: sets, flags, objects, and everything that is wrong with them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.columns import Places, factorized, is_missing
from choicegp.reading.defects import Draft, Findings
from choicegp.reading.encoding import FeatureEncoding, check_encoding, group_equal_rows
from choicegp.reading.sequences import id_array

_FLAGS = {"0": False, "1": True}
_FLAGS |= {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}


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


def read_long(columns: LongColumns, encoding: FeatureEncoding | None) -> tuple[Draft, Findings]:
    """Read the columns of a long table into a draft, and report what is wrong row by row."""
    of_set, first_of_set, lost = _sets_in_order(columns.set_id)
    if len(first_of_set) == 0:
        raise ChoiceDataError(_missing_set_ids(columns, lost), columns.source)
    set_ids = id_array(columns.set_id.iloc[first_of_set], len(first_of_set), "set_id", "sets")
    findings = Findings(set_ids, 0, columns.source, columns.rows[first_of_set])
    for defect in _missing_set_ids(columns, lost):
        findings.of_nothing(defect)
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
    counts = np.bincount(of_set[entries], minlength=len(set_ids))
    draft = Draft(
        X=X,
        object_ids=ids,
        encoding=encoding,
        flat_shown=flat,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        flat_chosen=None if chosen is None else chosen[entries],
        set_ids=set_ids,
        respondents=_one_per_set(columns.respondent, "respondent", of_set, first_of_set, report),
        weights=_weights(columns, of_set, first_of_set, report),
        rows=columns.rows[entries],
    )
    findings.spoiled_objects = np.zeros(len(ids), dtype=bool)
    return draft, findings


def _sets_in_order(set_id: pd.Series) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the set of each row (-1 if missing), the first row of each set, and the rows without a set."""
    lost = is_missing(set_id)
    codes = factorized(set_id.where(~lost) if lost.any() else set_id)[0]
    first = np.empty(codes.max(initial=-1) + 1, dtype=np.int64)
    known = np.flatnonzero(codes >= 0)[::-1]
    first[codes[known]] = known
    return codes, first, np.flatnonzero(lost)


def _missing_set_ids(columns: LongColumns, lost: NDArray[np.int64]) -> list[Defect]:
    return [Defect("missing-id", "the set's id is missing", int(columns.rows[i])) for i in lost]


def _flags(column: pd.Series) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Read flags: (values, which are neither 0/1 nor missing, which are missing)."""
    missing = is_missing(column)
    codes, distinct = factorized(column)
    known = [_FLAGS.get(v) if isinstance(v, str) else {0: False, 1: True}.get(v) for v in distinct]
    values = np.array([bool(flag) for flag in known] + [False])[codes]
    wrong = np.array([flag is None for flag in known] + [True])[codes]
    return values, wrong & ~missing, missing


def _shown_and_chosen(
    columns: LongColumns, in_set: NDArray[np.bool_], report: Any
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
    shown = in_set.copy() if columns.absent is None else in_set & ~columns.absent
    if columns.available is not None:
        available, wrong, missing = _flags(columns.available)
        _report_flags(columns.available, "availability", in_set & (wrong | (missing & shown)), report)
        shown &= available | wrong | missing
    if columns.chosen is None:
        return shown, None
    chosen, wrong, missing = _flags(columns.chosen)
    # What was not shown needs no flag.
    _report_flags(columns.chosen, "choice", in_set & (wrong | (missing & shown)), report)
    report("chosen-not-shown", "the object is chosen but was not shown", np.flatnonzero(in_set & chosen & ~shown))
    return shown, chosen


def _report_flags(column: pd.Series, what: str, wrong: NDArray[np.bool_], report: Any) -> None:
    places = np.flatnonzero(wrong)
    missing = is_missing(column.iloc[places])
    said = ["it is missing" if gone else f"{plain(v)!r}" for v, gone in zip(column.iloc[places], missing, strict=True)]
    report("wrong-flag", [f"the {what} has a flag that is not 0/1: {value}" for value in said], places)


def _objects(
    columns: LongColumns, entries: NDArray[np.int64], encoding: FeatureEncoding | None, report: Any
) -> tuple[NDArray[np.float64], NDArray[Any], FeatureEncoding, NDArray[np.int64]]:
    """Make each distinct (id, features) an object: X, ids, encoding, and the object of each entry."""
    if encoding is not None:
        check_encoding(encoding)
    shown = columns.features.iloc[entries]
    places = Places(columns.rows[entries], None)
    if len(entries) == 0:
        raise ChoiceGPError(f"{columns.source}: no row shows an object")
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


def _one_per_set(
    column: pd.Series | None,
    name: str,
    of_set: NDArray[np.int64],
    first_of_set: NDArray[np.int64],
    report: Any,
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
    weights[words] = 1.0  # said once is enough
    return weights
