"""Reading Excel files (.xlsx), which need the package openpyxl."""

import functools
import io
import re
import zipfile
import zlib
from pathlib import Path

import pandas as pd

from choicegp.errors import ChoiceGPError, ReadingNote

MAX_BYTES = 2**28  # of what is packed in the file: a table of millions of cells
MAX_CELLS = 2**25
_PLACE = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,7})"')


def read_sheet(file: Path, content: bytes) -> tuple[pd.DataFrame, list[Warning]]:
    """Return the first sheet of an Excel file, with its first row as the names of the columns."""
    _check_size(file, content)
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise ChoiceGPError(f"{file}: Excel files need openpyxl; run pip install 'choicegp[excel]'") from error
    try:
        with pd.ExcelFile(io.BytesIO(content), engine="openpyxl") as book:
            sheets = [str(name) for name in book.sheet_names]
            cells = pd.read_excel(book, header=None, dtype=object, keep_default_na=False, na_values=[""])
    except Exception as error:
        # Damaged bytes make the readers fail in ways that no list of errors covers.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ChoiceGPError(f"{file} is not a readable Excel file: {reason}") from error
    if len(cells) == 0:
        raise ChoiceGPError(f"{file} is empty")
    names = ["" if pd.isna(name) else str(name).strip() for name in cells.iloc[0]]
    frame = cells.iloc[1:].set_axis(pd.Index(names, dtype=object), axis=1)
    others = f", the first of {len(sheets)} sheets" if len(sheets) > 1 else ""
    return frame, [ReadingNote(f"{file}: the sheet {sheets[0]!r}{others} was read")] if others else []


def _check_size(file: Path, content: bytes) -> None:
    """Refuse what is no archive, or would fill the memory."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist())
            n_cells = max((_n_cells(archive.read(part)) for part in _sheets(archive, size)), default=0)
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ChoiceGPError(f"{file} is not a readable Excel file: {error}") from error
    if size > MAX_BYTES:
        raise ChoiceGPError(f"{file} unpacks to {size:,} bytes, more than the limit of {MAX_BYTES:,}; save it as CSV")
    if n_cells > MAX_CELLS:
        raise ChoiceGPError(
            f"{file} has cells so far apart that its sheet would have {n_cells:,}, more than the limit of {MAX_CELLS:,}"
            ": delete what lies beyond the table, or save it as CSV"
        )


def _sheets(archive: zipfile.ZipFile, size: int) -> list[str]:
    """Return the parts that hold cells; nothing is unpacked of what is too large."""
    return [] if size > MAX_BYTES else [name for name in archive.namelist() if name.startswith("xl/worksheets/")]


def _n_cells(sheet: bytes) -> int:
    """Return how many cells a sheet has, with the empty ones up to its last row and column."""
    # One after the other: a list of millions of places would need more memory than the table.
    last_column, last_row = b"", 0
    for place in _PLACE.finditer(sheet):
        letters, row = place[1], int(place[2])
        last_column = max(last_column, letters, key=lambda one: (len(one), one))
        last_row = max(last_row, row)
    return last_row * functools.reduce(lambda n, letter: 26 * n + letter - 64, last_column, 0)
