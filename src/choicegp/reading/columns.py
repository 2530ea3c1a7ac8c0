"""The columns of a long table by their role: finding them, and saying what is wrong where one is not there."""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed, plain
from choicegp.errors import ChoiceGPError, Defect, ReadingNote
from choicegp.reading.cells import NumberForm, read_numbers, tidy_id
from choicegp.reading.defects import Kind, Question, factorized, is_missing
from choicegp.reading.text import read_file

_TOTALS = frozenset(["total", "totals", "grand total", "sum", "summe", "gesamt", "somme", "suma", "totale", "totaal"])
_NO_NUMBERS = NumberForm()
_CLOSE = 0.75


class Roles(NamedTuple):
    """Names of the columns of a long table; in a wide table, the parts of the names before the separator.

    The id of a set may be in several columns.  With ``worst``, ``chosen`` says what is the best.
    """

    set_id: str | Sequence[str] | None
    object_id: str | None
    chosen: str | None
    available: str | None
    respondent: str | None
    weight: str | None
    kind: str | None = None
    worst: str | None = None

    def columns(self) -> list[tuple[str, Any]]:
        """Return pairs of a role and the name of a column."""
        pairs = []
        for role, name in self._asdict().items():
            names = name if role == "set_id" and isinstance(name, list | tuple) else [name]
            pairs += [(role, one) for one in names if one is not None]
        return pairs


class LongColumns(NamedTuple):
    """The columns of a long table by their role, and how its rows are named.

    ``absent`` marks alternatives that a wide table lists but leaves empty: they were not shown. ``one_chosen`` says
    that a wide table names the one chosen alternative of each set, and ``found`` lists defects of such names: their
    kind, the problem, and the place of the set's first row here. ``worst`` marks the worst object where ``chosen``
    marks the best one, and ``by_default`` says that no one has named the features.
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
    kind: pd.Series | None = None
    absent: NDArray[np.bool_] | None = None
    one_chosen: bool = False
    found: tuple[tuple[str, str, int], ...] = ()
    remarks: tuple[Warning, ...] = ()
    totals: Defect | None = None
    covariates: pd.DataFrame | None = None
    worst: pd.Series | None = None
    by_default: bool = False


class Opened(NamedTuple):
    """A table, the numbers of its rows, where it comes from, how it was read, and the row of totals it ended with."""

    frame: pd.DataFrame
    rows: NDArray[np.int64]
    source: str
    remarks: tuple[Warning, ...] = ()
    totals: Defect | None = None


def question_of(kind: str | None) -> tuple[Question, str | None]:
    """Return what was asked of all sets, or the column that says it of each set."""
    if kind is None or not isinstance(kind, str):
        return "keep", kind
    return (kind, None) if kind in get_args(Question) else ("keep", kind)  # type: ignore[return-value]  # one of them


def answer_columns(chosen: Any, question: Question) -> tuple[Any, str | None]:
    """Return the column of answers, or the columns of the best and of the worst."""
    if not isinstance(chosen, list | tuple):
        return chosen, None
    if question != "best-worst" or len(chosen) != 2:
        raise ChoiceGPError(
            f"chosen must be the name of a column, not {kind_of(chosen)}; two columns, which mark the best and the "
            "worst, go with kind='best-worst'"
        )
    return chosen[0], chosen[1]


def long_columns(
    frame: Any, roles: Roles, features: Sequence[str] | None, numbers: NumberForm = _NO_NUMBERS, *,
    own_kinds: bool = False, covariates: Sequence[str] = (),
) -> LongColumns:  # fmt: skip
    """Find the columns of a long table; some may hold numbers with a currency or a unit, or describe the respondent.

    With ``own_kinds`` a column ``kind`` that holds nothing but kinds of sets, as ``to_long`` writes it, is taken for
    what it is, unless it is named among the features.
    """
    check_roles(roles)
    if roles.set_id is None:
        raise ChoiceGPError("set_id must name the column that says to which set each row belongs")
    table, rows, source, remarks, totals = opened(
        frame,
        [name for role, name in roles.columns() if role in ("set_id", "object_id", "respondent")],
        numbers.decimal,
    )
    if own_kinds and has_own_kinds(table, roles, features):
        roles = roles._replace(kind="kind")
        remarks = (*remarks, ReadingNote("column 'kind' says what was asked of each set"))
    has = f"the columns are {listed(table.columns)}"
    taken = [name for _, name in roles.columns()]
    absent = [(role, name) for role, name in roles.columns() if name not in table.columns]
    if absent:
        names = ", ".join(f"{name!r} ({role})" for role, name in absent)
        without = {"object_id": "the objects have no ids", "chosen": "there are no choices"}
        if_none = "".join(
            f"; pass {role}=None if {said}"
            for role, said in without.items() if role in dict(absent)
        )  # fmt: skip
        free = [column for column in table.columns if column not in taken]
        offered = _offered(roles, absent, free)
        unknown = [f"{role}='COLUMN'" for role in dict(absent) if role not in offered]
        ones = "one" if len(unknown) == 1 else "ones"
        name_them = f"; name the right {ones} with {', '.join(unknown)}" if unknown else ""
        raise ChoiceGPError(f"{source}: there is no column {names}; {_hints(offered, free)}{has}{name_them}{if_none}")
    of_people = name_list(covariates, "covariates") if len(covariates) else []
    if of_people and roles.respondent is None:
        raise ChoiceGPError("covariates describe the respondents: pass respondent=COLUMN too")
    for name in of_people:
        if name not in table.columns:
            close = "".join(f"did you mean {one!r}? " for one in close_names(name, table.columns))
            raise ChoiceGPError(f"{source}: there is no column {name!r} (covariates); {close}{has}")
    taken += of_people
    wanted = [name for name in table.columns if name not in taken]
    if features is not None:
        wanted = name_list(features, "features")
    for name in wanted:
        if name not in table.columns:
            close = "".join(f"did you mean {one!r}? " for one in close_names(name, table.columns))
            raise ChoiceGPError(f"{source}: there is no feature column {name!r}; {close}{has}")
        if name in taken:
            raise ChoiceGPError(f"the column {name!r} cannot be both a feature and something else")
    if not wanted:
        raise ChoiceGPError(f"{source}: there is no feature column; {has}")
    chosen_features = table[wanted]
    for name in number_names(numbers):
        if name not in wanted:
            close = "".join(f"did you mean {one!r}? " for one in close_names(name, wanted))
            raise ChoiceGPError(f"{source}: there is no feature column {name!r} (numbers); {close}{has}")
        chosen_features = chosen_features.assign(**{name: read_numbers(table[name], numbers.decimal)})
    found: dict[str, Any] = {role: table.get(name) for role, name in roles._asdict().items() if role != "set_id"}
    set_id = joined_ids([table[name] for role, name in roles.columns() if role == "set_id"])
    return LongColumns(
        rows=rows, source=source, features=chosen_features, set_id=set_id, remarks=remarks, totals=totals,
        covariates=table[of_people] if of_people else None, by_default=features is None, **found,
    )  # fmt: skip


def _offered(roles: Roles, absent: Sequence[tuple[str, Any]], free: Sequence[Any]) -> dict[str, Any]:
    """Return which columns may be meant by names that are not there, for each role."""
    # The closest first, so that Choice is taken for choice, not for choice_id.
    pairs = sorted(
        ((_closeness(name, one), role, name, one) for role, name in absent for one in free), key=lambda pair: -pair[0]
    )
    meant: dict[tuple[str, Any], Any] = {}
    for closeness, role, name, one in pairs:
        if closeness >= _CLOSE and (role, name) not in meant and one not in meant.values():
            meant[role, name] = one
    kind = dict(absent).get("kind", "")
    questions = close_names(kind, get_args(Question))
    if questions and kind:
        meant["kind", kind] = questions[0]
    # Of a set id of several columns all are offered: one alone would join the sets of several people.
    of_set = [meant.get(("set_id", name), name) for role, name in roles.columns() if role == "set_id"]
    offered = {role: of_set if role == "set_id" and len(of_set) > 1 else one for (role, _), one in meant.items()}
    return {role: offered[role] for role in dict(absent) if role in offered}


def _hints(offered: dict[str, Any], free: Sequence[Any]) -> str:
    offers = ", ".join(repr(one) if role == "worst" else f"{role}={one!r}" for role, one in offered.items())
    hint = wide_hint(free)
    return (f"did you mean {offers}? " if offers else "") + (f"{hint}; " if hint else "")


def _closeness(one: Any, other: Any) -> float:
    """Return how similar two names are, from 0 to 1; capital letters and signs do not matter."""
    first, second = (re.sub(r"[\W_]+", "", str(name)).casefold() for name in (one, other))
    return difflib.SequenceMatcher(None, first, second).ratio()


def close_names(name: Any, names: Iterable[Any]) -> list[Any]:
    """Return the name that is closest to another, if one is close."""
    best = max(names, key=lambda one: _closeness(name, one), default=None)
    return [best] if best is not None and _closeness(name, best) >= _CLOSE else []


_ONE = r"\d{1,3}|[A-Za-z]"  # what alternatives are called in the names of columns


def wide_hint(names: Sequence[Any]) -> str:
    """Say that columns such as price_1 and price_2, or A_price and B_price, look like a wide table; nothing if none."""
    endings, written = dict[str, list[str]](), dict[tuple[str, str], str]()
    for name in names:
        last, first = re.fullmatch(rf"(.+)_({_ONE})", str(name)), re.fullmatch(rf"({_ONE})_(.+)", str(name))
        if last or first:
            stub, one = last.groups() if last else reversed(first.groups())  # type: ignore[union-attr]  # one of them
            endings.setdefault(stub, []).append(one)
            written[stub, one] = str(name)
    several = {stub: found for stub, found in endings.items() if len(found) > 1}
    if not several:
        return ""
    alternatives = list(dict.fromkeys(ending for found in several.values() for ending in found))
    shown = [written[stub, ending] for stub, found in several.items() for ending in found]
    return (
        f"columns such as {listed(shown[:3])} look like a wide table; read one with ChoiceData.from_wide, or with "
        f"--wide --alternatives {','.join(alternatives[:12])} --features {','.join(several)}"
    )


def joined_ids(columns: Sequence[pd.Series]) -> pd.Series:
    """Return the ids of sets; of several columns, as text such as r1/3."""
    if len(columns) == 1:
        return columns[0]
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        own, distinct = factorized(column)
        codes = pd.factorize(codes * (len(distinct) + 1) + own)[0].astype(np.int64)
    first, of_row = np.unique(codes, return_index=True, return_inverse=True)[1:]
    missing = np.logical_or.reduce([is_missing(column) for column in columns])
    parts = zip(*(column.iloc[first] for column in columns), strict=True)
    text = [None if missing[i] else "/".join(map(_id_text, row)) for i, row in zip(first, parts, strict=True)]
    known = [one for one in text if one is not None]
    if len(set(known)) < len(known):
        raise ChoiceGPError(
            f"the columns {listed(column.name for column in columns)} give different sets the same id, because their "
            "values contain '/': rename these"
        )
    return pd.Series(np.array(text, dtype=object)[of_row])


def _id_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(plain(value))


def check_roles(roles: Roles) -> None:
    """Refuse names of columns that are no text, or that are given twice."""
    taken: dict[Any, str] = {}
    if isinstance(roles.set_id, list | tuple) and not roles.set_id:
        raise ChoiceGPError("set_id is empty; name at least one column")
    for role, name in roles.columns():
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


def number_names(form: NumberForm) -> list[Any]:
    """Return the names of the columns of numbers, if any."""
    none = isinstance(form.columns, list | tuple) and not form.columns
    return [] if none else name_list(form.columns, "numbers")


def opened(frame: Any, ids: Sequence[str | None], decimal: str | None = None) -> Opened:
    """Open a table, without a row of totals at its end; ``ids`` are the columns that hold ids."""
    if isinstance(frame, str | os.PathLike):
        names = [name for name in ids if name is not None]
        read = read_file(frame, names, decimal)
        table = Opened(read.frame, read.rows, f"{os.fspath(frame)} (the header is row 1)", read.remarks)
        return _without_totals(table, names)
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
    table = Opened(frame.reset_index(drop=True), np.arange(len(frame)), "DataFrame (rows counted from 0)")
    return _without_totals(table, [])


def _without_totals(table: Opened, ids: Sequence[str]) -> Opened:
    """Take a last row that sums up the others for what it is."""
    frame = table.frame
    first = frame.iloc[-1, 0]
    if len(frame) < 2 or not isinstance(first, str) or first.strip(" :").casefold() not in _TOTALS:
        return table
    defect = Defect("totals-row", f"the last row holds totals ({first!r}), not an object", int(table.rows[-1]))
    rest = frame.iloc[:-1].copy()
    for name in ids:
        # The word made text of ids that are numbers.
        if name in rest and pd.api.types.infer_dtype(rest[name], skipna=True) == "string":
            rest[name] = tidy_id(rest[name])
    return table._replace(frame=rest, rows=table.rows[:-1], totals=defect)


def has_own_kinds(table: pd.DataFrame, roles: Roles, features: Sequence[str] | None) -> bool:
    """Say whether a column ``kind``, which has no other role, holds nothing but kinds of sets."""
    taken = [name for _, name in roles.columns()]
    free = [name for name in table.columns if name not in taken]
    if roles.kind is not None or "kind" not in free or (features is not None and "kind" in features):
        return False
    return (features is not None or len(free) > 1) and bool(table["kind"].isin(get_args(Kind)).all())
