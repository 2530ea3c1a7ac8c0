"""Predictions written to a file, a few sets at a time."""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from choicegp.compute.progress import progress_bar
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.files import check_place, replaced_when_complete
from choicegp.fitting.record import Fitted
from choicegp.model.prior import Objects

if TYPE_CHECKING:
    import pandas as pd

_SETS = 2048  # that are predicted before their rows are written
Table = Callable[[ChoiceData, Objects], "pd.DataFrame"]


def write_predictions(
    path: str | os.PathLike[str],
    source: Any,
    fitted: Fitted,
    table: Table,
    progress: bool | str,
    look: Callable[[ChoiceData], None],
) -> None:
    """Write predictions to a Parquet file, whole or not at all.

    Parameters
    ----------
    path : str or path
    source : ChoiceData or ChoiceFolder
    fitted : Fitted
    table : callable
        Takes some sets, and the objects of the table from which they come, and returns their predictions.
    progress : bool or "auto"
    look : callable
        Takes the sets of every file, or all sets, before they are predicted.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(path, str | os.PathLike) or not os.fspath(path).lower().endswith(".parquet"):
        raise ChoiceGPError(f"predictions are written to a Parquet file: its name must end in .parquet; got {path!r}")
    check_place(path)
    tables, writer, done = _tables(source, fitted, table, look), None, 0
    with replaced_when_complete(path) as handle, progress_bar(progress, len(source)) as bar:
        try:
            for n_sets, found in tables:
                try:
                    rows = pa.Table.from_pandas(found, None if writer is None else writer.schema, preserve_index=False)
                except pa.ArrowException as error:
                    raise ChoiceGPError(
                        "the ids of the sets, or the ids of the objects, are of several kinds, which a Parquet file "
                        "cannot hold: make them all numbers or all text"
                    ) from error
                writer = pq.ParquetWriter(handle, rows.schema) if writer is None else writer
                writer.write_table(rows)
                done += n_sets
                bar.show(f"{done} of {len(source)} sets", done)
        finally:
            # Also after an error; the draft is then thrown away with what it holds.
            if writer is not None:
                writer.close()


def _tables(
    source: Any, fitted: Fitted, table: Table, look: Callable[[ChoiceData], None]
) -> "Iterator[tuple[int, pd.DataFrame]]":
    """Return numbers of sets with their predictions; a wrong source is an error at once."""
    if isinstance(source, ChoiceFolder):
        source.sample.with_encoding(fitted.encoding)
        parts = (_read(source, file, fitted) for file in range(len(source.files)))
        return (found for part in parts for found in _tables_of(part, fitted, table, look))
    if not isinstance(source, ChoiceData):
        raise ChoiceGPError(f"a ChoiceData or a ChoiceFolder is needed; got {type(source).__name__}")
    return _tables_of(source.with_encoding(fitted.encoding), fitted, table, look)


def _read(folder: ChoiceFolder, file: int, fitted: Fitted) -> ChoiceData:
    data = folder.read(file)
    try:
        return data.with_encoding(fitted.encoding)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{folder.files[file]}: {error}") from error


def _tables_of(
    data: ChoiceData, fitted: Fitted, table: Table, look: Callable[[ChoiceData], None]
) -> "Iterator[tuple[int, pd.DataFrame]]":
    look(data)
    objects = fitted.objects(data)
    for start in range(0, len(data), _SETS):
        part = data.take(range(start, min(start + _SETS, len(data))))
        yield len(part), table(part, objects)
