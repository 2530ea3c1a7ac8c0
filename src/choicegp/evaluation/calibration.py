"""Whether predicted probabilities are honest: of the objects given 70%, about 70% should be chosen."""

from typing import Any

import numpy as np
import pandas as pd

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.agreement import check_data

_Z95 = 1.959963984540054


def calibration(data: ChoiceData, probabilities: Any, n_bins: int = 10) -> pd.DataFrame:
    """Compare predicted probabilities with how often objects were chosen, bin by bin.

    Parameters
    ----------
    data : ChoiceData
        With choices, which the model has not seen.
    probabilities : sequence of arrays
        As ``model.predict_proba(data)`` returns them.
    n_bins : int
        Bins of equal width between 0 and 1; empty ones are left out.

    Returns
    -------
    DataFrame
        One row per bin: ``predicted`` (mean probability), ``observed`` (share chosen), ``low`` and ``high``
        (Wilson's 95% interval of the share) and ``objects`` (how many).

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 4, [[1]] * 3 + [[0]])
    >>> calibration(data, [[0.3, 0.7]] * 4)[["predicted", "observed", "objects"]].round(2).values.tolist()
    [[0.3, 0.25, 4.0], [0.7, 0.75, 4.0]]
    """
    check_data(data)
    if data.flat_chosen is None:
        raise ChoiceGPError("calibration needs data with choices: these have none")
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ChoiceGPError(f"n_bins must be a positive whole number; got {n_bins!r}")
    sizes = np.diff(data.offsets)
    parts = [np.asarray(part, dtype=float).ravel() for part in probabilities]
    if [len(part) for part in parts] != sizes.tolist():
        raise ChoiceGPError("probabilities must be one array per set, one number per object: see predict_proba")
    p = np.concatenate([*parts, np.zeros(0)])
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ChoiceGPError("probabilities must be between 0 and 1")
    chosen = np.asarray(data.flat_chosen, dtype=float)
    bins = np.minimum((p * n_bins).astype(int), n_bins - 1)
    n = np.bincount(bins, minlength=n_bins)
    full = n > 0
    predicted, observed = (np.bincount(bins, weights=of, minlength=n_bins)[full] / n[full] for of in (p, chosen))
    low, high = _wilson(observed, n[full])
    return pd.DataFrame({"predicted": predicted, "observed": observed, "low": low, "high": high, "objects": n[full]})


def _wilson(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z2 = _Z95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
