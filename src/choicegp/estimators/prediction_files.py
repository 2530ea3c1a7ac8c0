"""Predictions as tables, and as files that are written while they are made."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from choicegp.compute.devices import computing
from choicegp.compute.progress import count_report
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.files import check_place, whole_file

if TYPE_CHECKING:
    from choicegp.estimators.utility_gp import Predictor, UtilityGP

_SETS = 2048  # that are predicted before their rows are written


def prediction_table(data: ChoiceData, predictor: "Predictor") -> pd.DataFrame:
    """Return predictions as a long table: set, object, probability, chosen."""
    probability, chosen = predictor.of_shown()
    return pd.DataFrame(
        {
            "set": np.repeat(data.set_ids, np.diff(data.offsets)),
            "object": data.object_ids[data.flat_shown],
            "probability": probability,
            "chosen": chosen.astype(int),
        }
    )


def write_predictions(model: "UtilityGP", source: Any, path: str | os.PathLike[str]) -> None:
    """Predict a few sets at a time, and write them; see `UtilityGP.predict_file`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(path, str | os.PathLike) or not os.fspath(path).lower().endswith(".parquet"):
        raise ChoiceGPError(f"predictions are written to a Parquet file: its name must end in .parquet; got {path!r}")
    check_place(path)
    tables = _tables(model, source)
    writer: Any = None
    with whole_file(path) as handle, count_report(model.progress, len(source), "sets") as report:
        try:
            for n_sets, table in tables:
                try:
                    rows = pa.Table.from_pandas(table, None if writer is None else writer.schema, preserve_index=False)
                except pa.ArrowException as error:
                    raise ChoiceGPError(
                        "the ids of the sets, or those of the objects, are of several kinds, which a Parquet file "
                        "cannot hold: make them all numbers or all text"
                    ) from error
                writer = pq.ParquetWriter(handle, rows.schema) if writer is None else writer
                writer.write_table(rows)
                report(n_sets)
        finally:
            # Also after an error; the draft is then thrown away with what it holds.
            if writer is not None:
                writer.close()


def _tables(model: "UtilityGP", source: Any) -> Iterator[tuple[int, pd.DataFrame]]:
    """Return numbers of sets with their predictions; a wrong source is an error at once."""
    if isinstance(source, ChoiceFolder):
        source.sample.with_encoding(model.encoding_)
        return (found for file in range(len(source.files)) for found in _tables_of(model, _read(model, source, file)))
    if not isinstance(source, ChoiceData):
        raise ChoiceGPError(f"a ChoiceData or a ChoiceFolder is needed; got {type(source).__name__}")
    return _tables_of(model, source.with_encoding(model.encoding_))


def _read(model: "UtilityGP", folder: ChoiceFolder, file: int) -> ChoiceData:
    data = folder.read(file)
    try:
        return data.with_encoding(model.encoding_)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{folder.files[file]}: {error}") from error


def _tables_of(model: "UtilityGP", data: ChoiceData) -> Iterator[tuple[int, pd.DataFrame]]:
    objects = model.fitted_.objects(data)
    for start in range(0, len(data), _SETS):
        part = data.take(range(start, min(start + _SETS, len(data))))
        with computing(model.device):
            table = prediction_table(part, model._posterior_predictor(objects, part))
        yield len(part), table
