"""Reading Excel files (.xlsx), which need the package openpyxl."""

import io
import zipfile
from pathlib import Path

import pandas as pd

from choicegp.errors import ChoiceGPError, ReadingNote

MAX_BYTES = 2**28  # of what is packed in the file: a table of millions of cells


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
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise ChoiceGPError(f"{file} is not a readable Excel file: {error}") from error
    if size > MAX_BYTES:
        raise ChoiceGPError(f"{file} unpacks to {size:,} bytes, more than the limit of {MAX_BYTES:,}; save it as CSV")
