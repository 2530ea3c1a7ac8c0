"""Plots of a fitted model, of its calibration, of preferences, of shares, and of a search for the number of utilities.

Every function returns the Axes that it drew on and shows nothing by itself; the picture is their ``figure``, which has
``savefig``. With ``ax`` (or ``axes``) it draws on Axes that exist; without, on a new Figure of its own.
"""

from choicegp.plotting.drivers_plot import plot_drivers
from choicegp.plotting.market_plots import (
    plot_diversion,
    plot_elasticities,
    plot_segments,
    plot_shares,
    plot_what_if,
    plot_worth,
)
from choicegp.plotting.model_plots import (
    plot_effects,
    plot_elbo,
    plot_objects,
    plot_relevance,
    plot_utilities,
)
from choicegp.plotting.preferences_plot import plot_preferences
from choicegp.plotting.trust_plots import plot_calibration, plot_selection

__all__ = [
    "plot_calibration", "plot_diversion", "plot_drivers", "plot_effects", "plot_elasticities", "plot_elbo",
    "plot_objects", "plot_preferences", "plot_relevance", "plot_segments", "plot_selection", "plot_shares",
    "plot_utilities", "plot_what_if", "plot_worth",
]  # fmt: skip
