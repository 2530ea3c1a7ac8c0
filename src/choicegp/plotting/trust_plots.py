"""Pictures of how far a model can be trusted: how many utilities there are, and whether probabilities are honest."""

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

    from choicegp.fitting.record import ChosenNumber
    from choicegp.selection.n_utilities import SelectionResult

_FAR = 20.0  # standard errors below the best: what is further is not drawn


def plot_selection(found: "SelectionResult | ChosenNumber", *, ax: "Axes | None" = None) -> "Axes":
    """Draw the leave-one-out score against the number of utilities, with standard errors; the chosen one is marked.

    The inner bars are standard errors of the difference to the best. A score far below the others, as one
    utility often has, is named instead of drawn.

    Parameters
    ----------
    found : SelectionResult
        From :func:`~choicegp.select_n_utilities`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import pandas as pd
    >>> from choicegp import SelectionResult, plots
    >>> numbers = pd.Index([1, 2, 3], name="n_utilities")
    >>> scores = {"elpd": [-90.0, -41.0, -43.0], "elpd_diff": [49.0, 0.0, 2.0]}
    >>> scores |= {"se": [9.0, 6.0, 6.0], "dse": [8.0, 0.0, 1.0]}
    >>> found = SelectionResult(2, pd.DataFrame(scores, index=numbers), {}, "the best score", {})
    >>> plots.plot_selection(found).get_xlabel()
    'number of utilities'
    """
    ax = ax or new_axes(6.4, 3.8)
    table = found.table
    inside = table["elpd_diff"] <= _FAR * float(table["se"].iloc[int(np.argmax(table["elpd"]))])
    near, far = table[inside], table[~inside]
    numbers, scores, errors, paired = near.reset_index()[["n_utilities", "elpd", "se", "dse"]].to_numpy(float).T
    ax.errorbar(numbers, scores, errors, color="0.6", capsize=4.0, label="Thin bars: standard errors\nof the scores.")
    ax.errorbar(
        numbers, scores, paired, color=COLOURS[0], linestyle="", marker="o", linewidth=2.5,
        label="Thick bars: of the differences\nto the best.",
    )  # fmt: skip
    chosen = found.n_utilities
    by = "\nby cross-validation" if "cv" in table and table["cv"].notna().any() else ""
    ax.plot([chosen], [table["elpd"].loc[chosen]], "s", color=COLOURS[1], markersize=9, label=f"Chosen: {chosen}{by}.")
    for d, score in far["elpd"].items():
        below: dict[str, Any] = {
            "xytext": (0, 14), "textcoords": "offset points", "arrowprops": {"arrowstyle": "->"},
        }  # fmt: skip
        ax.annotate(
            f"{score:.0f}, off\nthe scale", (d, 0), xycoords=("data", "axes fraction"), ha="center", fontsize=8, **below
        )
    ax.set_xticks(list(table.index))
    ax.set_xlim(table.index.min() - 0.5, table.index.max() + 0.5)
    ax.set(xlabel="number of utilities", ylabel="expected log score of all sets (elpd), nats")
    ax.set_title("How many utilities, by leaving out one set after the other", fontsize=11, loc="left")
    ax.legend(**BESIDE)
    return ax


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
