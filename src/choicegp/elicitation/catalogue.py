"""The objects of a study as plain values, and how two catalogues differ."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from choicegp.checks import counted, listed, plain
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
