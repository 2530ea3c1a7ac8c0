"""The objects of a study as plain values, and how two catalogues differ."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from choicegp.checks import counted, listed, plain
from choicegp.elicitation.events import ObjectId, Question
from choicegp.errors import ChoiceGPError, StoreError

if TYPE_CHECKING:
    import pandas as pd


def checked_objects(objects: Any) -> "pd.DataFrame":
    """Return a catalogue with distinct ids that are texts or whole numbers, or raise an error.

    The objects of an array have their row numbers as ids.
    """
    import numpy as np
    import pandas as pd

    if isinstance(objects, np.ndarray) and objects.ndim == 2:
        objects = pd.DataFrame(objects, columns=[f"x{j}" for j in range(objects.shape[1])])
    if not isinstance(objects, pd.DataFrame):
        raise ChoiceGPError(f"objects must be a DataFrame with one row per object, not {type(objects).__name__}")
    if len(objects) < 2 or len(objects.columns) == 0:
        raise ChoiceGPError("objects must have at least two rows and at least one column")
    if not objects.index.is_unique:
        twice = objects.index[objects.index.duplicated()].unique()
        raise ChoiceGPError(f"objects must have different ids (the index); these repeat: {listed(twice)}")
    wrong = [label for label in objects.index if not _is_id(plain(label))]
    if wrong:
        raise ChoiceGPError(f"the ids of objects (the index) must be texts or whole numbers; got {listed(wrong, 3)}")
    return objects


def _is_id(label: Any) -> bool:
    return isinstance(label, str | int) and not isinstance(label, bool)


class Places(NamedTuple):
    """Which object stands in which row of the table that a session was given."""

    ids: tuple[ObjectId, ...]
    rows: dict[ObjectId, int]

    @classmethod
    def of(cls, table: "pd.DataFrame") -> Self:
        """Return the places of the objects of a table."""
        ids = tuple(plain(label) for label in table.index)
        return cls(ids, {label: row for row, label in enumerate(ids)})

    def put_in(self, question: Question) -> Question:
        """Return the question with the row numbers of its objects."""
        return question._replace(shown=tuple(self.rows[label] for label in question.ids))

    def named(self, given: Iterable[ObjectId]) -> Iterable[ObjectId]:
        """Return ids of objects that are given by ids, or, where all ids are texts, by row numbers."""
        if any(isinstance(label, int) for label in self.ids):
            return given
        return self._at(given, range(len(self.ids)))

    def chosen_of(self, shown: tuple[ObjectId, ...], given: Iterable[ObjectId]) -> Iterable[ObjectId]:
        """Return ids of chosen objects, which are given by row numbers or, if these do not fit, by ids.

        Examples
        --------
        >>> places = Places((10, 2, 30), {10: 0, 2: 1, 30: 2})
        >>> [list(places.chosen_of((30, 2), given)) for given in ([2], [2, 1], [30], [2, 30])]
        [[30], [30, 2], [30], [2, 30]]
        """
        rows = {self.rows[label] for label in shown}
        return self._at(given, rows, whole=True)

    def _at(self, given: Iterable[ObjectId], rows: "range | set[int]", whole: bool = False) -> Iterable[ObjectId]:
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            return given
        labels = [plain(one) for one in given]
        are_rows = [type(one) is int and one in rows for one in labels]
        if whole and not all(are_rows):
            return labels
        return [self.ids[one] if is_row else one for one, is_row in zip(labels, are_rows, strict=True)]


def as_plain(objects: "pd.DataFrame") -> dict[str, Any]:
    """Return a catalogue as plain values that JSON can hold, columns in their order."""
    import pandas as pd

    columns = []
    for name, column in objects.items():
        number = pd.api.types.is_numeric_dtype(column.dtype)
        kind = str(column.dtype) if number else "words"
        columns.append({"name": str(name), "kind": kind, "values": [_value(one, number) for one in column.tolist()]})
    name = None if objects.index.name is None else str(objects.index.name)
    return {"index": name, "ids": [plain(label) for label in objects.index], "columns": columns}


def _value(value: Any, number: bool) -> Any:
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    value = plain(value)
    if isinstance(value, float) and math.isinf(value):
        raise ChoiceGPError("objects must have finite features")
    return value if number or isinstance(value, str | int | float | bool) else str(value)


def as_frame(catalogue: dict[str, Any]) -> "pd.DataFrame":
    """Return the table of objects that :func:`as_plain` made plain."""
    import pandas as pd

    try:
        index = pd.Index(catalogue["ids"], name=catalogue["index"])
        columns = {
            one["name"]: pd.Series(one["values"], index=index, dtype=object if one["kind"] == "words" else one["kind"])
            for one in catalogue["columns"]
        }
        return pd.DataFrame(columns, index=index)
    except (TypeError, KeyError, ValueError) as error:  # what no program of ours has written
        raise StoreError("the objects of this study are damaged: restore its database from a copy") from error


def differences(known: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Say what differs between the catalogue of a study and another; nothing if they hold the same.

    Examples
    --------
    >>> known = {"index": None, "ids": ["a", "b"], "columns": [{"name": "x", "kind": "int64", "values": [1, 2]}]}
    >>> given = {"index": None, "ids": ["a", "c"], "columns": [{"name": "x", "kind": "int64", "values": [1, 2]}]}
    >>> differences(known, given)
    ["1 object is missing: 'b'", "1 object is new: 'c'"]
    """
    old, new = ({one["name"]: one["values"] for one in each["columns"]} for each in (known, given))
    found = _only_in_one("object", known["ids"], given["ids"]) + _only_in_one("column", old, new)
    rows = {label: row for row, label in enumerate(given["ids"])}
    both = [(label, row) for row, label in enumerate(known["ids"]) if label in rows]
    for name in [name for name in old if name in new]:
        changed = [label for label, row in both if old[name][row] != new[name][rows[label]]]
        if changed:
            found.append(f"{name!r} differs for {counted(len(changed), 'object')}: {listed(changed, 3)}")
    return found


def _only_in_one(what: str, old: Iterable[Any], new: Iterable[Any]) -> list[str]:
    seen = set(old), set(new)
    missing, further = [x for x in old if x not in seen[1]], [x for x in new if x not in seen[0]]
    return [
        f"{counted(len(names), what)} {'is' if len(names) == 1 else 'are'} {word}: {listed(names, 3)}"
        for names, word in ((missing, "missing"), (further, "new"))
        if names
    ]
