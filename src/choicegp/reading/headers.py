"""The header of a table in a file: what its columns are called, and whether its rows fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from choicegp.errors import ChoiceGPError

_UNNAMED = "\0"  # no file of text holds it
_MOST_UNNAMED = 100


def column_names(file: Path, names: Sequence[str]) -> list[str]:
    """Return the names of columns; those without a name, which must be empty, get names that no file holds."""
    if not any(names):
        raise ChoiceGPError(f"{file}: the first row must hold the column names, but it is blank")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t,"):
        mark = next(mark for mark in ";\t," if mark in names[0])
        raise ChoiceGPError(
            f"{file}: its columns seem to be separated by {mark!r}; save it with commas (.csv) or tabs (.tsv)"
        )
    if sum(not name.strip() for name in names) > _MOST_UNNAMED:
        check_names(file, names)
    found = [name if name.strip() else f"{_UNNAMED}{position}" for position, name in enumerate(names, start=1)]
    check_names(file, found)
    return found


def check_names(file: Path, names: Sequence[Any]) -> None:
    """Refuse columns without a name or of equal names."""
    seen: set[Any] = set()
    for position, name in enumerate(names, start=1):
        if not str(name).strip():
            raise _nameless(file, position)
        if name in seen:
            raise ChoiceGPError(f"{file}: the column name {name!r} appears twice")
        seen.add(name)


def without_empty_columns(file: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out columns without a name, as spreadsheets write them beside a table; they must be empty."""
    unnamed = [name for name in frame.columns if str(name).startswith(_UNNAMED)]
    for name in unnamed:
        if frame[name].notna().any():
            raise _nameless(file, int(name.removeprefix(_UNNAMED)))
    return frame.drop(columns=unnamed) if unnamed else frame


def _nameless(file: Path, position: int) -> ChoiceGPError:
    return ChoiceGPError(f"{file}: column {position} has no name; name it, or delete it")


def ragged(file: Path, row: int, n_cells: int, n_columns: int) -> ChoiceGPError:
    """Return the error of a row that has more or fewer cells than the header."""
    if n_columns == 1:
        hint = "the first row must hold the column names: delete what stands above them"
    elif n_cells > n_columns:
        hint = "put a cell that holds a separator, such as 1,549, into quotation marks"
    else:
        hint = "fill the row up, or delete it"
    return ChoiceGPError(f"{file}, row {row}: the row has {n_cells} cells, but the header has {n_columns}; {hint}")
