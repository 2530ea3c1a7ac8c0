"""Columns of panels are equally far apart, where Matplotlib's own layout has them at different distances."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from choicegp.plotting.even_columns import EvenColumns


def gaps(engine):
    figure = Figure(figsize=(9, 4))
    figure.set_layout_engine(engine)
    grid = figure.subplots(2, 4, sharey=True)
    grid[1, 3].remove()
    grid[0, 0].set_xlim(0, 400_000)  # its last number stands out to the right
    grid[1, 2].twinx()
    figure.draw_without_rendering()
    places = [ax.get_position() for ax in grid[0]]
    below = [ax.get_position().x0 for ax in grid[1, :3]]
    assert below == pytest.approx([place.x0 for place in places[:3]])
    return np.array([right.x0 - left.x1 for left, right in pairwise(places)])


def test_gaps_are_equal_and_as_wide_as_the_widest():
    uneven, even = gaps(ConstrainedLayoutEngine()), gaps(EvenColumns())
    assert np.ptp(uneven) > 0.003
    assert even == pytest.approx(np.full(3, uneven.max()))


def test_a_single_column_stays_as_it_is():
    places = []
    for engine in (ConstrainedLayoutEngine(), EvenColumns()):
        figure = Figure()
        figure.set_layout_engine(engine)
        ax = figure.subplots()
        figure.draw_without_rendering()
        places.append(ax.get_position().bounds)
    assert places[0] == pytest.approx(places[1])
