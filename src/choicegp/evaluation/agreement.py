"""Where a prediction and the choices that were made agree, counted per set."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, plain
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.sequences import flatten, row_numbers


class Agreement(NamedTuple):
    """Numbers of objects per set, each (m,).

    Attributes
    ----------
    hits : int array
        Chosen and predicted to be chosen.
    chosen : int array
    rejections : int array
        Rejected and predicted to be rejected.
    rejected : int array
    predicted : int array
        Predicted to be chosen.
    """

    hits: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rejections: NDArray[np.int64]
    rejected: NDArray[np.int64]
    predicted: NDArray[np.int64]


def agreement(data: ChoiceData, predicted: Any) -> Agreement:
    """Compare a prediction, given as `choicegp.metrics` takes it, with the choices that were made.

    Examples
    --------
    >>> agreement(ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0], [0, 1]]), [[1], [1]]).hits
    array([1, 0])
    """
    check_data(data)
    if data.flat_chosen is None:
        raise ChoiceGPError("the data have no choices to compare a prediction with (data.has_choices is False)")
    kept, guessed = data.flat_chosen, _predicted_marks(data, predicted)

    def per_set(marks: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.add.reduceat(marks, data.offsets[:-1], dtype=np.int64)

    return Agreement(
        hits=per_set(kept & guessed),
        chosen=per_set(kept),
        rejections=per_set(~kept & ~guessed),
        rejected=per_set(~kept),
        predicted=per_set(guessed),
    )


def check_data(data: object) -> None:
    """Refuse what is not a ChoiceData."""
    if not isinstance(data, ChoiceData):
        raise ChoiceGPError(f"data must be a ChoiceData, not {kind_of(data)}")


def _predicted_marks(data: ChoiceData, predicted: Any) -> NDArray[np.bool_]:
    """Mark the shown objects that are predicted to be chosen, aligned with ``data.flat_shown``."""
    sets = flatten(predicted, "predicted")
    if len(sets.sizes) != len(data):
        raise ChoiceGPError(
            f"predicted has {len(sets.sizes)} sets but the data have {len(data)}: pass one prediction per set"
        )
    rows = row_numbers(sets, "predicted", "data.X", "pass what model.predict(data) returns").astype(np.int64)
    n = len(data.X)
    of_shown = np.repeat(np.arange(len(data)), np.diff(data.offsets))
    shown = pd.Series(of_shown * n + data.flat_shown)
    # Rows outside the table must not fall on a key of another set.
    keys = pd.Series(np.where((rows >= 0) & (rows < n), sets.of_set * n + rows, -1))
    absent = ~keys.isin(shown).to_numpy()
    again = keys.duplicated().to_numpy() & ~absent
    if absent.any() or again.any():
        raise ChoiceDataError(
            [_prediction_defect(data, sets.of_set[i], rows[i], absent[i]) for i in np.flatnonzero(absent | again)],
            "the prediction",
        )
    return shown.isin(keys).to_numpy()


def _prediction_defect(data: ChoiceData, k: int, row: int, absent: bool) -> Defect:
    set_id = plain(data.set_ids[k])
    if not 0 <= row < len(data.X):
        problem = f"row {row} is predicted to be chosen but data.X has only rows 0 to {len(data.X) - 1}"
        return Defect("unknown-object", problem, set=set_id)
    if absent:
        problem = f"the object (row {row}) is predicted to be chosen but is not in the set"
        return Defect("predicted-not-shown", problem, set=set_id, object=plain(data.object_ids[row]))
    problem = f"the object (row {row}) is predicted twice"
    return Defect("duplicate-object", problem, set=set_id, object=plain(data.object_ids[row]))
