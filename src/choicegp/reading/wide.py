"""Reading a wide table: one row per set, a group of columns per alternative."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed, plain
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect, ReadingNote
from choicegp.reading.cells import NOTHING, NumberForm, read_numbers
from choicegp.reading.columns import (
    LongColumns,
    Roles,
    check_roles,
    close_names,
    joined_ids,
    name_list,
    number_names,
    opened,
)
from choicegp.reading.defects import factorized, is_missing

_NO_NUMBERS = NumberForm()
_BETWEEN = (";", ",", "|", "/")  # what may stand between the alternatives that a cell lists


def wide_columns(
    frame: Any,
    roles: Roles,
    alternatives: Sequence[Any],
    features: Sequence[str],
    sep: str,
    numbers: NumberForm = _NO_NUMBERS,
) -> LongColumns:
    """Find the columns of a wide table and turn them into the columns of a long one."""
    check_roles(roles)
    names, stubs = name_list(alternatives, "alternatives"), name_list(features, "features")
    if not isinstance(sep, str):
        raise ChoiceGPError(f"sep must be text, not {kind_of(sep)}")

    def of_stub(stub: str | None) -> list[str]:
        return [] if stub is None else [f"{stub}{sep}{name}" for name in names]

    of_sets = [name for role, name in roles.columns() if role in ("set_id", "respondent", "weight", "kind")]
    ids = [name for role, name in roles.columns() if role in ("set_id", "respondent")]
    own_ids = of_stub(roles.object_id)
    turned = {f"{name}{sep}{stub}": f"{stub}{sep}{name}" for stub in (*stubs, *_of_objects(roles)) for name in names}
    ids += [*own_ids, *(old for old, new in turned.items() if new in own_ids)]
    table, rows, source, remarks, totals = opened(frame, ids, numbers.decimal)
    if not any(name in table.columns for stub in stubs for name in of_stub(stub)) and any(
        name in turned for name in table.columns
    ):
        first = next(name for name in table.columns if name in turned)
        remarks = (*remarks, ReadingNote(f"columns such as {first!r} name the alternative first"))
        table = table.rename(columns=turned)
    answers = [name for name in (roles.chosen, roles.worst) if name is not None]
    of_all = [name for name in answers if name in table.columns and not any(c in table.columns for c in of_stub(name))]
    groups = [*stubs, *(name for name in answers if name not in of_all), roles.available, roles.object_id]
    wanted = [column for stub in groups for column in of_stub(stub)] + of_sets
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        close = "".join(f"did you mean {one!r}? " for one in close_names(missing[0], table.columns))
        raise ChoiceGPError(
            f"{source}: there are no columns {listed(missing)}; {close}the columns are {listed(table.columns)}"
        )
    m, a = len(table), len(names)

    def stacked(stub: str) -> pd.Series:
        return _stacked([table[column] for column in of_stub(stub)]).rename(stub)

    def repeated(column: pd.Series | None) -> pd.Series | None:
        return None if column is None else column.repeat(a).reset_index(drop=True)

    set_id = pd.Series(np.arange(m), name="choice_id")
    if roles.set_id is not None:
        set_id = joined_ids([table[name] for role, name in roles.columns() if role == "set_id"])
        _check_one_row_per_set(set_id, rows, source)
    table_features = _with_numbers(pd.DataFrame({stub: stacked(stub) for stub in stubs}), numbers)
    chosen: dict[str | None, pd.Series] = {}
    found, n_lists = list[tuple[str, str, int]](), 0
    for answer in answers:
        if answer in of_all:
            chosen[answer], how, own, is_list = _named_choices(table[answer], names, source)
            best = "" if is_list or roles.worst else ", the best one unless you pass kind='keep'"
            remarks = (*remarks, ReadingNote(f"column {answer!r} holds the {how}{best}"))
            found, n_lists = found + own, n_lists + is_list
        else:
            chosen[answer] = stacked(answer)
    long_id = repeated(set_id)
    assert long_id is not None
    return LongColumns(
        rows=np.repeat(rows, a),
        source=source,
        set_id=long_id,
        object_id=pd.Series(names * m) if roles.object_id is None else stacked(roles.object_id),
        chosen=chosen.get(roles.chosen),
        available=None if roles.available is None else stacked(roles.available),
        respondent=repeated(table.get(roles.respondent)),
        weight=repeated(table.get(roles.weight)),
        kind=repeated(table.get(roles.kind)),
        features=table_features,
        absent=np.logical_and.reduce([is_missing(table_features[stub]) for stub in stubs]),
        one_chosen=roles.chosen in of_all and not n_lists,
        worst=chosen.get(roles.worst),
        found=tuple(found),
        remarks=remarks,
        totals=totals,
    )


def _of_objects(roles: Roles) -> list[str]:
    """Return the beginnings of columns, one for each alternative, that are no features."""
    return [str(stub) for stub in (roles.chosen, roles.worst, roles.available, roles.object_id) if stub is not None]


def _with_numbers(features: pd.DataFrame, numbers: NumberForm) -> pd.DataFrame:
    for stub in number_names(numbers):
        if stub not in features:
            raise ChoiceGPError(f"numbers names {stub!r}, which is none of the features {listed(features.columns)}")
        features[stub] = read_numbers(features[stub], numbers.decimal)
    return features


def _named_choices(
    column: pd.Series, names: list[Any], source: str
) -> tuple[pd.Series, str, list[tuple[str, str, int]], bool]:
    """Turn a column that names the chosen alternative of each set into flags, row by row.

    Also return what the column holds, its defects, and whether its cells are lists: all are where one names several.
    """
    codes, distinct = factorized(column.mask(is_missing(column)))
    # Capital letters do not matter, unless they distinguish alternatives.
    fold = len({_word(name, True) for name in names}) == len(names)
    words = [_word(value, fold) for value in distinct]
    nothing = dict.fromkeys(NOTHING, -1)
    known, how = nothing | {_word(name, fold): j for j, name in enumerate(names)}, "names"
    by_position = nothing | {"0": -1} | {str(j + 1): j for j in range(len(names))}
    # What names an alternative as a whole, such as "Tea/Milk", is no list.
    marks = () if any(all(word in names for word in words) for names in (known, by_position)) else _BETWEEN
    for mark in marks:
        listed_words = [[part.strip() for part in word.split(mark)] for word in words]
        single = {part for parts in listed_words for part in parts}
        for meaning, form in ((known, "names"), (by_position, "positions, from 1,")):
            # A cell that keeps nothing says so alone.
            empty = {word for word in words if word in nothing or (word == "0" and form != "names")}
            if any(mark in word for word in words) and single - empty <= meaning.keys() - nothing.keys() - {"0"}:
                kept = [{meaning[part] for part in parts} - {-1} for parts in listed_words]
                return _listed_choices(column, codes, kept, len(names)), f"{form} of the kept alternatives", [], True
    if not all(word in known for word in words) and all(word in by_position for word in words):
        known, how = by_position, "positions, from 1,"
        if "0" in words and str(len(names)) not in words:
            raise ChoiceGPError(
                f"{source}: column {column.name!r} holds 0 but never {len(names)}: it may number the alternatives from "
                "0, or 0 may mean none of them; write their names instead"
            )
    wrong = np.flatnonzero(np.array([*(word not in known for word in words), True])[codes])
    said = ["is missing" if codes[i] < 0 else f"is {plain(column.iloc[i])!r}" for i in wrong]
    problems = [f"the chosen alternative {text}; the alternatives are {listed(names)}" for text in said]
    chosen = np.array([*(known.get(word, -1) for word in words), -1])[codes][:, None] == np.arange(len(names))
    places = (wrong * len(names)).tolist()
    found = [("unknown-alternative", problem, place) for problem, place in zip(problems, places, strict=True)]
    return pd.Series(chosen.ravel(), name=column.name), f"{how} of one alternative per set", found, False


def _listed_choices(column: pd.Series, codes: NDArray[np.int64], places: list[set[int]], n: int) -> pd.Series:
    """Turn lists of alternatives into flags; a blank is the list of nothing."""
    chosen = np.array([*([j in own for j in range(n)] for own in places), [False] * n])[codes]
    return pd.Series(chosen.ravel(), name=column.name)


def _word(value: Any, fold: bool) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(plain(value)).strip()
    return text.casefold() if fold else text


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
