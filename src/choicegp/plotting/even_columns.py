"""A layout whose columns of panels are equally far apart, whatever stands below them."""

from itertools import pairwise
from typing import Any

from matplotlib.layout_engine import ConstrainedLayoutEngine


class EvenColumns(ConstrainedLayoutEngine):
    """Matplotlib's constrained layout, with the widest gap between columns for all of them.

    That layout makes room beside a panel whose last number stands out, and beside no other panel.
    """

    def execute(self, fig: Any) -> None:
        """Lay the figure out."""
        super().execute(fig)
        panels = [ax for ax in fig.axes if ax.get_subplotspec() is not None]
        columns: dict[int, list[Any]] = {}
        for ax in panels:
            columns.setdefault(ax.get_subplotspec().colspan.start, []).append(ax)
        places = [columns[number][0].get_position() for number in sorted(columns)]
        if len(places) < 2:
            return
        gap = max(right.x0 - left.x1 for left, right in pairwise(places))
        left, right = places[0].x0, places[-1].x1
        width = (right - left - gap * (len(places) - 1)) / len(places)
        for number in sorted(columns):
            for ax in columns[number]:
                old = ax.get_position()
                ax._set_position([left + number * (width + gap), old.y0, width, old.height])
