"""Reading and writing tables: CSV, TSV, Parquet and Excel, with errors that name the row.

The suffix of a file decides its format. A CSV file may have tabs, or semicolons and decimal commas. An empty cell is a
missing value. So are NA, NaN, null and None in a column of numbers; in a column of words these are words.
"""

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import file_path, listed
from choicegp.errors import ChoiceGPError, ReadingNote
from choicegp.files import replaced_when_complete
from choicegp.reading.cells import numbers_in_text, tidy_id, tidy_numbers

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
_EXCEL = (".xlsx", ".xlsm")
# Beyond both a Parquet file is no table but a bomb. Beside ids, a hundred columns that are 1 in a row of a thousand and
# else 0 have 30 cells per byte.
_MANY_CELLS, _CELLS_PER_BYTE = 2**24, 100
_SUFFIXES = (*_SEPARATORS, ".parquet", *_EXCEL)
# In bytes. What is longer is no table, and a file without an end must not fill the memory.
_LONGEST_LINE = 2**24
_LARGE, _TIGHTEST = 2**28, 50  # bytes that any file may unpack to, and times its own size
_OTHERS = ((b"PAR1", "Parquet"), (b"PK\x03\x04", "spreadsheet or zip"), (b"\x1f\x8b", "gzip"), (b"{", "JSON"))
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_UNNAMED = "\0"  # begins the name of a column without one; no file of text holds it
_LONGEST_CELL = 2**17  # the limit of Python's own csv module
# Floats must come back as they were written; from 3.1 on pandas does so by itself and deprecates the option.
_PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])
_EXACT: dict[str, Any] = {} if _PANDAS >= (3, 1) else {"float_precision": "round_trip"}


class FileRows(NamedTuple):
    """A table and the numbers of its rows in the file, counted as a spreadsheet does (the header is row 1)."""

    frame: pd.DataFrame
    rows: NDArray[np.int64]


class FileTable(NamedTuple):
    """A table, the numbers of its rows in the file, and how it was read where that was not plain."""

    frame: pd.DataFrame
    rows: NDArray[np.int64]
    remarks: tuple[Warning, ...] = ()


def read_rows(path: str | os.PathLike[str], ids: Sequence[str] = ()) -> FileRows:
    """Read a table and the numbers of its rows in the file; rows that are entirely empty are left out.

    Parameters
    ----------
    path : str or path
        A .csv, .tsv, .csv.gz, .tsv.gz, .xlsx or .parquet file. If it cannot be read, a ``ChoiceGPError`` says in one
        line what is wrong with it, in which row, and what to do.
    ids : sequence of str
        Columns that keep ids such as 007 as they are.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_table(pd.DataFrame({"price": [3, 5]}), f"{folder}/pens.csv")
    >>> read_rows(f"{folder}/pens.csv").frame["price"].tolist()
    [3, 5]
    """
    return FileRows(*read_file(path, ids)[:2])


def read_file(path: str | os.PathLike[str], ids: Sequence[str] = (), decimal: str | None = None) -> FileTable:
    """Read a table as :func:`read_rows` does, with notes on how; ``decimal`` is the sign in a file with semicolons."""
    file, suffix = _checked_path(path)
    content = _file_bytes(file, suffix)
    if not content:
        raise ChoiceGPError(f"{file} is empty")
    if suffix == ".parquet":
        return _read_parquet(file, content)
    if suffix in _EXCEL:
        return _read_excel(file, content, ids)
    text, separator = _decoded(file, content), _SEPARATORS[suffix]
    notes = ["was read as UTF-16"] if content.startswith(_UTF16) else []
    header = re.sub('"[^"]*"', "", re.split("[\r\n]", text.lstrip(), maxsplit=1)[0])
    if separator == "," and "," not in header:
        separator = next((mark for mark in ";\t" if mark in header), separator)
    if suffix.startswith(".csv") and separator == "\t":
        notes.append("was read with tabs between its columns")
    if separator != ";" and decimal is None:
        read = _read_text(file, text, separator, ids)
    else:
        # A point may separate thousands: what a number is can only be decided over whole columns.
        read = _read_text(file, text, separator, ids, as_text=True)
        frame, sign = _with_numbers(file, read.frame, ids, decimal)
        read = read._replace(frame=frame)
        signs = {",": " and decimal commas", ".": " and decimal points"}.get(sign, "")
        notes += [f"was read with semicolons between its columns{signs}"] if separator == ";" else []
    return read._replace(remarks=tuple(ReadingNote(f"{file} {note}") for note in notes))


def _with_numbers(file: Path, frame: pd.DataFrame, ids: Sequence[str], decimal: str | None) -> tuple[pd.DataFrame, str]:
    try:
        return numbers_in_text(frame, [str(name) for name in frame.columns if name not in ids], decimal)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{file}: {error}") from error


def write_table(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table, without its index, to a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file, whole or not at all."""
    file, suffix = _checked_path(path)
    if suffix in _EXCEL:
        raise ChoiceGPError(
            f"{file}: Excel files are only read; the suffix of a table to write is one of {', '.join(_SUFFIXES[:-2])}"
        )
    compression = "gzip" if suffix.endswith(".gz") else None
    with replaced_when_complete(file) as handle:
        if suffix == ".parquet":
            frame.to_parquet(handle, index=False)
        else:
            form: Any = {"sep": _SEPARATORS[suffix], "compression": compression, "lineterminator": "\n"}
            frame.to_csv(handle, index=False, encoding="utf-8", **form)


def _checked_path(path: str | os.PathLike[str]) -> tuple[Path, str]:
    file = file_path(path)
    if file.is_dir():
        raise ChoiceGPError(f"{file} is a folder; name a file in it")
    for suffix in _SUFFIXES:
        if file.name.lower().endswith(suffix):
            return file, suffix
    raise ChoiceGPError(f"{file}: the suffix must name the format, as one of {', '.join(_SUFFIXES)} does")


def _file_bytes(file: Path, suffix: str) -> bytes:
    """Return what a file holds, decompressed."""
    if file.is_char_device() or file.is_block_device():
        raise ChoiceGPError(f"{file} is a device; name a file")
    try:
        with file.open("rb") as handle:
            if suffix == ".parquet" or suffix in _EXCEL:
                return handle.read()
            return _read_lines(file, gzip.GzipFile(fileobj=handle) if suffix.endswith(".gz") else handle)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ChoiceGPError(f"{file} is not a readable gzip file: {error}") from error
    except OSError as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: OSError) -> ChoiceGPError:
    """Return the error of a file that cannot be opened or read."""
    if isinstance(error, FileNotFoundError):
        return ChoiceGPError(f"there is no file {file}")
    if isinstance(error, PermissionError):
        return ChoiceGPError(f"no permission to read {file}")
    return ChoiceGPError(f"cannot read {file}: {error.strerror or error}")


def _read_lines(file: Path, handle: io.BufferedIOBase) -> bytes:
    """Read all lines, unless one does not end or they are packed more tightly than tables are."""
    parts: list[bytes] = []
    unended, most = 0, max(_LARGE, _TIGHTEST * file.stat().st_size)
    while part := handle.read(_LONGEST_LINE):
        parts.append(part)
        if isinstance(handle, gzip.GzipFile) and len(parts) * _LONGEST_LINE > most:
            raise ChoiceGPError(f"{file} unpacks to more than {most:,} bytes: unpack it first if it is a table")
        end = max(part.rfind(b"\n"), part.rfind(b"\r"))
        unended = len(part) - end - 1 if end >= 0 else unended + len(part)
        if unended > _LONGEST_LINE:
            row = sum(part.count(b"\n") for part in parts) + 1
            raise ChoiceGPError(f"{file} is not a table: row {row} is longer than {_LONGEST_LINE} bytes")
    return b"".join(parts)


def _decoded(file: Path, content: bytes) -> str:
    for start, kind in _OTHERS:
        if content.startswith(start):
            raise ChoiceGPError(f"{file} is a {kind} file, not text; give it its own suffix or save it as CSV")
    if content.startswith(_UTF16):
        try:
            text = content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise ChoiceGPError(
                f"{file} begins like UTF-16 but is not: {error.reason}; save it as CSV in UTF-8"
            ) from error
        content = text.encode("utf-8", errors="replace")
    nul = content.find(b"\0")
    if nul >= 0:
        raise ChoiceGPError(f"{file} is not text: it has a NUL byte at position {nul} (row {_line(content, nul)})")
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ChoiceGPError(
            f"{file} is not in UTF-8: byte {content[error.start]:#04x} at position {error.start} "
            f"(row {_line(content, error.start)}); save it as CSV in UTF-8"
        ) from error


def _line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def _read_text(file: Path, text: str, separator: str, ids: Sequence[str], as_text: bool = False) -> FileTable:
    if not text.strip():
        raise ChoiceGPError(f"{file} is empty")
    names = _checked_records(file, text, separator)
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=0,
            names=names,
            index_col=False,
            dtype=str if as_text else dict.fromkeys([name for name in ids if name in names], str),
            keep_default_na=False,
            na_values=[""],
            skip_blank_lines=False,
            skipinitialspace=True,
            low_memory=False,
            **_EXACT,
        )
    except (pd.errors.ParserError, ValueError, OverflowError) as error:
        raise ChoiceGPError(f"{file} cannot be read as a table: {str(error).splitlines()[0]}") from error
    return _tidied(file, frame, ids, as_text)


def _tidied(file: Path, frame: pd.DataFrame, ids: Sequence[str], as_text: bool = False) -> FileTable:
    """Leave out empty rows, and turn columns of ids and (unless they stay text) of numbers into what they are."""
    frame, rows = _without_empty_columns(file, frame), np.arange(len(frame)) + 2
    filled = np.flatnonzero(np.asarray(frame.notna()).any(axis=1))
    if len(filled) < len(frame):
        frame, rows = frame.iloc[filled].reset_index(drop=True), rows[filled]
    if len(frame) == 0:
        raise ChoiceGPError(f"{file} has a header but no rows")
    for name in frame.columns:
        column = frame[name]
        tidy = tidy_id(column) if name in ids else column if as_text else tidy_numbers(column)
        if tidy is not column:  # setting thousands of columns takes long
            frame[name] = tidy
    return FileTable(frame, rows)


def _checked_records(file: Path, text: str, separator: str) -> list[str]:
    """Return the column names after checking that every row has as many cells."""
    if '"' not in text:
        return _checked_lines(file, text, separator)
    names: list[str] = []
    row = 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    try:
        for row, record in enumerate(reader, start=1):
            if row == 1:
                names = _column_names(file, [name.strip() for name in record])
            elif len(record) > len(names) or (len(record) < len(names) and any(map(str.strip, record))):
                raise _ragged(file, row, len(record), len(names))
    except csv.Error as error:
        problem = str(error)
        if "unexpected end" in problem:
            problem = "a quotation mark is opened and never closed"
        elif "field larger" in problem:
            problem = f"a quotation mark is never closed, or a cell is longer than {_LONGEST_CELL} letters"
        raise ChoiceGPError(f"{file}, row {row + 1}: {problem}") from error
    return names


def _checked_lines(file: Path, text: str, separator: str) -> list[str]:
    """Check a text without quotation marks, where rows are lines and cells can be counted all at once."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n") + "\n"
    names = _column_names(file, [name.strip() for name in lines[: lines.index("\n")].split(separator)])
    letters = np.frombuffer(lines.encode(), dtype=np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    if len(letters) > _LONGEST_CELL:
        _check_cells(file, letters, separator, ends)
    marks = np.flatnonzero(letters == ord(separator))
    n_cells = np.diff(np.searchsorted(marks, ends), prepend=0) + 1
    for i in np.flatnonzero(n_cells != len(names)):
        line = letters[ends[i - 1] + 1 : ends[i]].tobytes().decode()
        if n_cells[i] > len(names) or line.replace(separator, "").strip():
            raise _ragged(file, int(i) + 1, int(n_cells[i]), len(names))
    return names


def _check_cells(file: Path, letters: NDArray[np.uint8], separator: str, ends: NDArray[np.intp]) -> None:
    borders = np.flatnonzero((letters == ord("\n")) | (letters == ord(separator)))
    lengths = np.diff(borders, prepend=-1) - 1
    longest = int(lengths.argmax())
    if lengths[longest] > _LONGEST_CELL:
        row = int(np.searchsorted(ends, borders[longest])) + 1
        raise ChoiceGPError(f"{file}, row {row}: a cell is longer than {_LONGEST_CELL} bytes")


def _column_names(file: Path, names: Sequence[str]) -> list[str]:
    """Return the names of columns; those without a name, which must be empty, get names that no file holds."""
    if not any(names):
        raise ChoiceGPError(f"{file}: the first row must hold the column names, but it is blank")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t,"):
        mark = next(mark for mark in ";\t," if mark in names[0])
        raise ChoiceGPError(
            f"{file}: its columns seem to be separated by {mark!r}; save it with commas (.csv) or tabs (.tsv)"
        )
    if sum(not name.strip() for name in names) > 100:  # more than a spreadsheet writes beside a table
        _check_names(file, names)
    found = [name if name.strip() else f"{_UNNAMED}{position}" for position, name in enumerate(names, start=1)]
    _check_names(file, found)
    return found


def _check_names(file: Path, names: Sequence[Any]) -> None:
    """Refuse columns without a name or of equal names."""
    seen: set[Any] = set()
    for position, name in enumerate(names, start=1):
        if not str(name).strip():
            raise _nameless(file, position)
        if name in seen:
            raise ChoiceGPError(f"{file}: the column name {name!r} appears twice")
        seen.add(name)


def _without_empty_columns(file: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out columns without a name, as spreadsheets write them beside a table; they must be empty."""
    for name in (unnamed := [name for name in frame.columns if str(name).startswith(_UNNAMED)]):
        if frame[name].notna().any():
            raise _nameless(file, int(name.removeprefix(_UNNAMED)))
    return frame.drop(columns=unnamed) if unnamed else frame


def _nameless(file: Path, position: int) -> ChoiceGPError:
    return ChoiceGPError(f"{file}: column {position} has no name; name it, or delete it")


def _ragged(file: Path, row: int, n_cells: int, n_columns: int) -> ChoiceGPError:
    """Return the error of a row that has more or fewer cells than the header."""
    if n_columns == 1:
        hint = "the first row must hold the column names: delete what stands above them"
    elif n_cells > n_columns:
        hint = "put a cell that holds a separator, such as 1,549, into quotation marks"
    else:
        hint = "fill the row up, or delete it"
    return ChoiceGPError(f"{file}, row {row}: the row has {n_cells} cells, but the header has {n_columns}; {hint}")


def _read_excel(file: Path, content: bytes, ids: Sequence[str]) -> FileTable:
    from choicegp.reading.excel import read_sheet

    frame, remarks = read_sheet(file, content)
    frame = frame.set_axis(pd.Index(_column_names(file, frame.columns.tolist()), dtype=object), axis=1)
    words = [name for name in ids if name in frame and all(isinstance(value, str) for value in frame[name].dropna())]
    frame = frame.reset_index(drop=True).infer_objects()
    return _tidied(file, frame, words)._replace(remarks=tuple(remarks))


def _read_parquet(file: Path, content: bytes) -> FileTable:
    import pyarrow as pa

    table = open_parquet(file, pa.BufferReader(content))
    names = table.schema_arrow.names
    _check_names(file, names)
    try:
        read = table.read()
        read.validate(full=True)  # bytes of texts, too, which pandas looks at only later
        frame = read.to_pandas()
    except Exception as error:
        raise _damaged_parquet(file, error) from error
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if len(frame) == 0:
        raise ChoiceGPError(f"{file} has columns ({listed(frame.columns)}) but no rows")
    return FileTable(frame.reset_index(drop=True), np.arange(len(frame)) + 2)


def open_parquet(file: Path, source: Any = None) -> Any:
    """Return the ``ParquetFile`` of a file, or of ``source``, which holds what was read of it."""
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file if source is None else source)
        n_cells, size = table.metadata.num_rows * table.metadata.num_columns, file.stat().st_size
    except FileNotFoundError as error:
        raise unreadable(file, error) from error
    except Exception as error:
        raise _damaged_parquet(file, error) from error
    if n_cells > _MANY_CELLS and n_cells > _CELLS_PER_BYTE * size:
        raise ChoiceGPError(f"{file} packs {n_cells:,} cells in {size:,} bytes: if it is a table, write it as CSV")
    return table


def _damaged_parquet(file: Path, error: Exception) -> ChoiceGPError:
    # Damaged bytes make the readers fail in ways that no list of errors covers.
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ChoiceGPError(f"{file} is not a readable Parquet file: {reason}")
