"""Reading the columns of a long table, one row per set and shown alternative, into a draft."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from choicegp.checks import id_array, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect, ReadingNote, ReadingWarning
from choicegp.reading.cells import MARKED, NOTHING, Report, read_flags, read_marks, remarks_on_words
from choicegp.reading.columns import LongColumns, wide_hint
from choicegp.reading.defects import (
    ADVICE,
    MANY_OBJECTS,
    Draft,
    Findings,
    Places,
    Rules,
    factorized,
    is_missing,
    offsets_of,
)
from choicegp.reading.encoding import FeatureEncoding, check_encoding

_PEOPLE = re.compile(r"(respondent|participant|person|people|subject|user|panelist|resp|who)s?[ _.-]?(id|nr|no)?", re.I)
_DEFAULT = Rules()
_FEWEST_SETS = 5  # of which a pattern is no accident
_FIRST_SETS = 20  # looked at before all
_MOST_NAMED = 6  # columns in a warning


def read_long(
    columns: LongColumns, encoding: FeatureEncoding | None, rules: Rules = _DEFAULT
) -> tuple[Draft, Findings]:
    """Read the columns of a long table into a draft, and report what is wrong row by row."""
    lost = is_missing(columns.set_id)
    of_set = factorized(columns.set_id.where(~lost) if lost.any() else columns.set_id)[0]
    first_of_set = _first_places(of_set)
    no_id = _rows_without_sets(columns, np.flatnonzero(lost))
    if len(first_of_set) == 0:
        raise ChoiceDataError(no_id, columns.source, ADVICE)
    set_ids = id_array(columns.set_id.iloc[first_of_set], len(first_of_set), "set_id", "sets")
    findings = Findings(set_ids, columns.source, columns.rows[first_of_set])
    findings.remarks += columns.remarks
    for defect in no_id:
        findings.add(defect)
    labels = None
    if columns.object_id is not None:
        labels = columns.object_id.astype(object).to_numpy(copy=True)
        labels[is_missing(columns.object_id)] = None

    def report(kind: str, problem: str | Sequence[str], places: NDArray[np.int64]) -> None:
        objects = None if labels is None else labels[places]
        findings.in_sets(kind, problem, of_set[places], objects, columns.rows[places])

    for kind, problem, place in columns.found:
        findings.in_sets(kind, problem, of_set[[place]], rows=columns.rows[[place]])
    shown = _shown(columns, of_set >= 0, report, findings)
    marks = chosen = None
    if columns.chosen is not None and columns.worst is not None:
        marks = _best_and_worst(columns.chosen, columns.worst, of_set >= 0, shown, report, findings)
    elif columns.chosen is not None and rules.question in MARKED:
        marks = read_marks(columns.chosen, rules.question, shown, report)
    elif rules.question in MARKED:
        raise ChoiceGPError(
            f"kind={rules.question!r} is for answers, of which there are none here: use kind='best', kind='worst' or "
            "kind='keep' for sets whose choice is to be predicted"
        )
    elif columns.chosen is not None:
        chosen = _chosen(columns.chosen, of_set >= 0, shown, report, findings)
    nothing = _nothing(columns, labels, shown, chosen, rules, report, findings)
    entries = np.flatnonzero(shown & ~nothing)
    entries = entries[np.argsort(of_set[entries], kind="stable")]
    X, ids, encoding, flat = _objects(columns, entries, encoding, rules, report, findings)
    offsets = offsets_of(np.bincount(of_set[entries], minlength=len(set_ids)))
    _remark_on_sets(columns, of_set, entries, np.diff(offsets), findings)
    draft = Draft(
        X=X,
        object_ids=ids,
        encoding=encoding,
        flat_shown=flat,
        offsets=offsets,
        flat_chosen=None if chosen is None else chosen[entries],
        set_ids=set_ids,
        respondents=_one_per_set(columns.respondent, "respondent", of_set, first_of_set, report),
        weights=_weights(columns, of_set, first_of_set, report),
        kinds=_one_per_set(columns.kind, "kind", of_set, first_of_set, report),
        rows=columns.rows[entries],
        marks=None if marks is None else marks[entries],
    )
    return draft, findings


def _rows_without_sets(columns: LongColumns, lost: NDArray[np.int64]) -> list[Defect]:
    """Report the rows without a set; if only the last one has none, it may hold totals."""
    rows = np.unique(columns.rows[lost]).tolist()  # a row of a wide table stands for several objects
    found = [Defect("missing-id", "the set's id is missing", row) for row in rows]
    if rows == [columns.rows[-1]] and rows != [columns.rows[0]]:
        problem = "the last row has no set; it seems to hold totals, not an object"
        found = [Defect("totals-row", problem, rows[0])]
    return found if columns.totals is None else [*found, columns.totals]


def _remark_on_sets(
    columns: LongColumns,
    of_set: NDArray[np.int64],
    entries: NDArray[np.int64],
    sizes: NDArray[np.int64],
    findings: Findings,
) -> None:
    """Warn where the id of a set seems to lack a column, or a table to be a wide one."""
    names = [name for name in columns.features.columns if _PEOPLE.fullmatch(str(name))]
    set_id = columns.set_id.name
    if columns.by_default:
        ids = None if columns.object_id is None else columns.object_id.iloc[entries]
        shown_again = ids is not None and ids.nunique() < len(entries)
        findings.remarks += _remarks_on_roles(
            columns.features.iloc[entries], of_set[entries], names, shown_again=shown_again
        )
    first_of_set = _first_places(of_set)
    for name in names:
        codes = factorized(columns.features[name])[0]
        if (codes != codes[first_of_set][of_set])[of_set >= 0].any():
            findings.remarks.append(
                ReadingWarning(
                    f"one set id serves several values of {name!r}, which is read as a feature: if it names people, "
                    "the set id lacks a column" + ("" if set_id is None else f"; pass set_id={[name, set_id]!r}")
                )
            )
            return
        findings.remarks.append(
            ReadingWarning(f"column {name!r} is read as a feature; if it names people, pass respondent={name!r}")
        )
    large = (sizes > MANY_OBJECTS) & (columns.absent is None)  # a wide table lists what is shown at once
    if large.any():
        findings.remarks.append(
            ReadingWarning(
                f"{large.sum()} of {len(sizes)} sets show more than {MANY_OBJECTS} objects, the largest "
                f"{sizes.max()}: if no one saw as many at once, the set id lacks a column such as the respondent"
                + ("" if set_id is None else f"; pass set_id={['respondent', set_id]!r}")
            )
        )
    elif columns.respondent is None and columns.absent is None:
        findings.remarks += _remark_on_scattered(of_set, len(sizes), set_id)
    hint = wide_hint(list(columns.features.columns)) if sizes.max() == 1 and columns.absent is None else ""
    if hint:
        findings.advice["wrong-flag"] = hint
        findings.remarks.append(ReadingWarning(f"every set shows one object, and {hint}"))


def _remarks_on_roles(
    features: pd.DataFrame, of_set: NDArray[np.int64], passed_over: list[str], *, shown_again: bool
) -> list[Warning]:
    """Warn of features (n, c) that seem to be none; ``of_set`` (n,) is the set of each row, which lie end to end."""
    several = np.bincount(of_set, minlength=1)[of_set] > 1
    sets, of_set = np.unique(of_set[several], return_inverse=True)
    if len(sets) < _FEWEST_SETS or len(features.columns) < 2:
        return []
    sizes = np.bincount(of_set)
    named = {str(name): column[several] for name, column in features.items() if name not in passed_over}
    what = {name: said for name, column in named.items() if (said := _seems_to_be(column, of_set, sizes, shown_again))}
    rest = [str(name) for name in features.columns if str(name) not in what]
    leave = f"pass features={rest!r}" if 0 < len(rest) <= _MOST_NAMED else "name the columns of features"
    return [
        ReadingWarning(f"column {name!r} is read as a feature, but {said}; to leave it out, {leave}")
        for name, said in what.items()
    ]


def _seems_to_be(column: pd.Series, of_set: NDArray[np.int64], sizes: NDArray[np.int64], shown_again: bool) -> str:
    """Say what a column seems to be, if it is no feature."""
    if (is_numeric_dtype(column.dtype) or column.dtype == bool) and not column.isna().any():
        values = column.to_numpy(dtype=np.float64)
        # Where no object is shown again, it may well number the objects.
        if shown_again and np.ptp(values) == len(values) - 1.0 and np.all(np.diff(np.sort(values)) == 1.0):
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


def _remark_on_scattered(of_row: NDArray[np.int64], n_sets: int, set_id: object) -> list[Warning]:
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


def _first_places(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of the codes 0, 1, ... comes first."""
    first = np.empty(codes.max(initial=-1) + 1, dtype=np.int64)
    # Written back to front, so that the first place of a code is what remains.
    known = np.flatnonzero(codes >= 0)[::-1]
    first[codes[known]] = known
    return first


def _shown(columns: LongColumns, in_set: NDArray[np.bool_], report: Report, findings: Findings) -> NDArray[np.bool_]:
    shown = in_set.copy() if columns.absent is None else in_set & ~columns.absent
    if columns.available is not None:
        available, unclear, note = read_flags(columns.available, "availability", in_set, shown, report)
        findings.remarks += [] if note is None else [note]
        shown &= available | unclear
    return shown


def _chosen(
    column: pd.Series, in_set: NDArray[np.bool_], shown: NDArray[np.bool_], report: Report, findings: Findings
) -> NDArray[np.bool_]:
    chosen, _, note = read_flags(column, "choice", in_set, shown, report)
    findings.remarks += [] if note is None else [note]
    report("chosen-not-shown", "the object is chosen but was not shown", np.flatnonzero(in_set & chosen & ~shown))
    return chosen


def _best_and_worst(
    best: pd.Series, worst: pd.Series, in_set: NDArray[np.bool_], shown: NDArray[np.bool_], report: Report,
    findings: Findings,
) -> NDArray[np.float64]:  # fmt: skip
    """Return 1 for the best and -1 for the worst of each set, which two columns of flags mark."""
    marked = []
    for column, what in ((best, "best"), (worst, "worst")):
        flags, _, note = read_flags(column, f"mark of the {what}", in_set, shown, report)
        findings.remarks += [] if note is None else [note]
        marked.append(flags)
    report("best-is-worst", "the object is marked as the best and as the worst", np.flatnonzero(marked[0] & marked[1]))
    return marked[0] * 1.0 - marked[1] * 1.0


def _nothing(
    columns: LongColumns, labels: NDArray[Any] | None, shown: NDArray[np.bool_], chosen: NDArray[np.bool_] | None,
    rules: Rules, report: Report, findings: Findings,
) -> NDArray[np.bool_]:  # fmt: skip
    """Mark rows of "none of these", which are no objects where keeping nothing is an answer."""
    if labels is None or columns.absent is not None or rules.question in MARKED:
        return np.zeros(len(shown), dtype=bool)
    codes, distinct = factorized(columns.object_id)
    names = np.array([*(str(one).strip(" .").casefold() in NOTHING for one in distinct), False])[codes] & shown
    if not names.any():
        return names
    of_set = factorized(columns.set_id)[0]
    n_with, n_sets = (len(np.unique(of_set[rows])) for rows in (names, shown))
    has_features = not all(is_missing(column[names]).all() for _, column in columns.features.items())
    if has_features and (n_with < 2 or 2 * n_with < n_sets):  # one object among others that is called so
        return np.zeros(len(shown), dtype=bool)
    name = labels[names][0]
    if rules.empty != "none":
        findings.advice["missing-feature"] = f"if {name!r} means that nothing is kept, pass empty='none'"
        findings.remarks.append(
            ReadingWarning(f"{name!r} is read as an object; if it means that nothing is kept, pass empty='none'")
        )
        return np.zeros(len(shown), dtype=bool)
    findings.remarks.append(ReadingNote(f"{name!r} is no object: choosing it was read as keeping nothing"))
    if chosen is not None:
        kept = np.bincount(of_set[(of_set >= 0) & chosen & ~names], minlength=of_set.max(initial=0) + 1) > 0
        both = np.flatnonzero(names & chosen & kept[of_set])
        report("none-and-object", f"{name!r} is chosen, and an object too", both)
    return names


def _objects(
    columns: LongColumns,
    entries: NDArray[np.int64],
    encoding: FeatureEncoding | None,
    rules: Rules,
    report: Report,
    findings: Findings,
) -> tuple[NDArray[np.float64], NDArray[Any], FeatureEncoding, NDArray[np.int64]]:
    """Make each distinct (id, features) an object: X, ids, encoding, and the object of each entry."""
    if encoding is not None:
        check_encoding(encoding)
    if len(entries) == 0:
        raise ChoiceGPError(f"{columns.source}: no row shows an object")
    shown, places = columns.features.iloc[entries], Places(columns.rows[entries])
    try:
        if encoding is None:
            encoding = FeatureEncoding.learn(shown, places=places, missing=rules.missing)
            words = [column.name for column in encoding.columns if column.kind == "categorical"]
            findings.remarks += remarks_on_words(shown.set_axis(shown.columns.map(str), axis=1), words) if words else []
    except ChoiceDataError as error:
        raise ChoiceDataError(error.defects, columns.source, ADVICE) from error
    X, defects = encoding.inspect(shown, places=places)
    named = {str(name): column for name, column in shown.items()}
    words = [c.name for c in encoding.columns if c.kind == "numeric" and not is_numeric_dtype(named[c.name].dtype)]
    findings.advice["not-a-number"] = ADVICE["not-a-number"].replace("['COLUMN']", repr(words))
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
    if labels is not None:
        values = np.column_stack([labels, values])
    rows = np.ascontiguousarray(values).view(f"S{values.itemsize * values.shape[1]}")[:, 0]
    group = pd.factorize(rows.astype(object))[0].astype(np.int64)
    return group, _first_places(group)


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
