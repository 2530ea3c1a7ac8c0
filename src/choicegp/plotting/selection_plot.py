"""A picture of how many utilities there are."""

from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.plotting.style import BESIDE, COLOURS, new_axes

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
