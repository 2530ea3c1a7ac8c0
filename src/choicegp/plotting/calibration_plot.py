"""A picture of whether predicted probabilities are honest."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from choicegp.compute.devices import computing
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.calibration import calibration
from choicegp.plotting.style import BESIDE, COLOURS, new_axes
from choicegp.selection.left_out import left_out_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_calibration(
    model: Any, data: ChoiceData | None = None, *, n_bins: int = 10, ax: "Axes | None" = None
) -> "Axes":
    """Draw how often objects were chosen against their predicted probability.

    Parameters
    ----------
    model : ChoiceGP
        Fitted.
    data : ChoiceData, optional
        Held-out sets with choices, which the model has not seen.  By default the model's own sets, each predicted from
        all others, at the most probable hyperparameters.
    n_bins : int
        Bins of equal width.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> plots.plot_calibration(model).get_title()
    'Calibration on 3 sets, each predicted from the others'
    """
    if not hasattr(model, "encoding_"):
        raise ChoiceGPError("the model is not fitted yet: call fit(data) first")
    if data is None:
        data, table = left_out_calibration(model, n_bins)
        return draw_calibration(table, f"Calibration on {len(data)} sets, each predicted from the others", n_bins, ax)
    table = calibration(data, model.predict_proba(data), n_bins)
    return draw_calibration(table, f"Calibration on {len(data)} held-out sets", n_bins, ax)


def left_out_calibration(model: Any, n_bins: int = 10) -> tuple[ChoiceData, pd.DataFrame]:
    """Return the sets of a model that can be left out, one at a time, and how honest their predictions are."""
    if not hasattr(model, "posterior_"):
        raise ChoiceGPError(
            f"{type(model).__name__} has no leave-one-out: pass sets with choices that were held out as data"
        )
    with computing(model.device):
        found = left_out_probabilities(model.fitted_)
    return found.data, calibration(found.data, found.probabilities, n_bins)


def draw_calibration(table: pd.DataFrame, title: str, n_bins: int = 10, ax: "Axes | None" = None) -> "Axes":
    """Draw what `choicegp.metrics.calibration` returned."""
    ax = ax or new_axes(6.6, 4.6)
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1.0, linestyle="--", label="Where honest\nprobabilities lie.")
    spread = np.abs(table[["low", "high"]].to_numpy().T - table["observed"].to_numpy())
    ax.errorbar(
        table["predicted"], table["observed"], spread, color=COLOURS[0], marker="o", markersize=4, linewidth=1.5,
        elinewidth=1.0, capsize=2, label="What was observed,\nwith 95% intervals.",
    )  # fmt: skip
    # In the middle of their bins, where they cannot collide, and below all that is drawn.
    middle = (np.minimum((table["predicted"] * n_bins).astype(int), n_bins - 1) + 0.5) / n_bins
    size = 7 if n_bins <= 10 else 5
    for place, number in zip(middle, table["objects"], strict=True):
        ax.text(place, -0.075, f"{number}", ha="center", va="center", fontsize=size, color="0.35")
    ax.plot([], [], linestyle="", label="Small numbers: objects\nin each bin.")
    ax.axhline(-0.02, color="0.85", linewidth=0.6)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.13, 1.03), aspect="equal", yticks=np.linspace(0, 1, 6))
    ax.set(xlabel="predicted probability of being chosen", ylabel="share of the objects that was chosen")
    ax.set_title(title, fontsize=11)
    ax.legend(**BESIDE)
    return ax
