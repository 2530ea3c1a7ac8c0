"""Plots of fitted models and of the search for the number of utilities, on Matplotlib's axes.

`plot_utilities`, `plot_effects`, `plot_relevance` and `plot_objects` show what was learned, `plot_elbo` how the fit
went, `plot_calibration` whether its probabilities are honest, and `plot_selection` how many utilities there are.

Every function returns the Axes on which it has drawn and shows nothing by itself.
"""

from choicegp.apps.plots import (
    plot_calibration,
    plot_effects,
    plot_elbo,
    plot_objects,
    plot_relevance,
    plot_utilities,
)
from choicegp.apps.selection_plot import plot_selection

__all__ = [
    "plot_calibration",
    "plot_effects",
    "plot_elbo",
    "plot_objects",
    "plot_relevance",
    "plot_selection",
    "plot_utilities",
]
