"""The plot of calibration: the table is drawn, and its counts do not collide."""

import pandas as pd
import pytest

from choicegp import ChoiceGP, ChoiceGPError, plots
from choicegp.plotting.trust_plots import draw_calibration

from .conftest import legend_texts


def test_counts_stand_in_the_middle_of_their_bins():
    table = pd.DataFrame({
        "predicted": [0.199, 0.201, 1.0], "observed": [0.2, 0.3, 0.9], "low": [0.1, 0.2, 0.8], "high": [0.3, 0.4, 1.0],
        "objects": [1000, 2000, 30],
    })  # fmt: skip
    ax = draw_calibration(table, "Calibration")
    assert [(text.get_text(), text.get_position()[0]) for text in ax.texts] == [
        ("1000", pytest.approx(0.15)), ("2000", pytest.approx(0.25)), ("30", pytest.approx(0.95)),
    ]  # fmt: skip
    ax.figure.draw_without_rendering()
    first, second, _ = (text.get_window_extent() for text in ax.texts)
    assert not first.overlaps(second)
    points = next(one for one in ax.lines if one.get_color() == "#0072B2")
    assert points.get_ydata().tolist() == [0.2, 0.3, 0.9]
    assert all(text.endswith(".") for text in legend_texts(ax.get_legend()))


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(ChoiceGPError, match="not fitted yet"):
        plots.plot_calibration(ChoiceGP())
