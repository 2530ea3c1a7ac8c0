"""The pieces that plots of a model are made of: bands, bars, and names that cover neither each other nor points."""

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from choicegp.evaluation.effects import FeatureEffect
from choicegp.plotting.style import BESIDE, COLOURS, LINES, MARKERS, UNIT, mark_values, new_figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOLLAR = re.compile(r"(?<!\\)\$")
_MOST_TICKS = 200  # more of them would be one black bar
_LONGEST_NAME = 28
_MOST_NAMES = 15
_LABEL: dict[str, Any] = {
    "textcoords": "offset points", "ha": "center", "va": "center", "zorder": 4,
    "bbox": {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.6},
    "arrowprops": {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
}  # fmt: skip
_MOST_BARS = 16  # objects whose uncertainty is drawn: more would be a mesh
_DIFFERENT = 3.0  # times as large: the smaller utility would be nearly a flat line
_THRESHOLD: dict[str, Any] = {"color": "black", "zorder": 3.5}


def new_panels(n: int) -> NDArray[Any]:
    """Return Axes of a new figure, at most four in a row, with one vertical scale."""
    from choicegp.plotting.even_columns import EvenColumns

    columns = n if n <= 3 else 2 if n == 4 else 3 if n <= 6 else 4
    figure = new_figure(max(5.6, 2.9 * columns), 1.1 + 2.3 * -(-n // columns))
    figure.set_layout_engine(EvenColumns())
    grid = panels(figure, n, columns, sharey=True)
    for ax in grid[::columns]:
        ax.set_ylabel(f"effect on utility,\n{UNIT}", fontsize=8)
    return grid


def own_scales(
    axes: NDArray[Any], effects: Sequence[FeatureEffect], of_all: Sequence[FeatureEffect]
) -> NDArray[Any] | None:
    """Give two utilities of very different size a vertical scale each, with a common zero; None where one serves both.

    Answers without errors leave the scale of a utility open: one may be many times as large as the other, which would
    be a flat line beside it. The size of a utility is how far its bands reach, over ``of_all`` features.
    """
    sizes = np.max([np.maximum(np.abs(one.low), np.abs(one.high)).max(axis=0) for one in of_all], axis=0)
    if len(sizes) != 2 or not 0.0 < _DIFFERENT * sizes.min() < sizes.max():
        return None
    seconds = np.array([ax.twinx() for ax in axes], dtype=object)
    ends = np.array([(one.low.min(axis=0) / sizes, one.high.max(axis=0) / sizes) for one in effects])
    low, high = 1.06 * ends[:, 0].min(), 1.06 * ends[:, 1].max()
    columns = axes[0].get_gridspec().ncols
    for place, (ax, second) in enumerate(zip(axes, seconds, strict=True)):
        ax.set_ylim(low * sizes[0], high * sizes[0])
        second.set_ylim(low * sizes[1], high * sizes[1])
        is_last = place % columns == columns - 1 or place == len(axes) - 1
        for i, (own, labelled) in enumerate(((ax, place % columns == 0), (second, is_last))):
            own.tick_params(axis="y", colors=COLOURS[i], labelleft=labelled and i == 0, labelright=labelled and i == 1)
            own.set_ylabel(f"effect on utility {i + 1},\n{UNIT}" if labelled else "", fontsize=8, color=COLOURS[i])
        # Below a full row there is room beside the last panel: its labels must not widen the gap above them.
        second.yaxis.set_in_layout(place % columns == columns - 1)
    return seconds


def utility_style(utility: int, line: bool = True, marker: bool = False) -> dict[str, Any]:
    """Return colour and label of a utility, with its line and its marker where they are wanted."""
    i = utility % len(COLOURS)
    shape = {"linestyle": LINES[i] if line else "", "marker": MARKERS[i] if marker else ""}
    return {"color": COLOURS[i], "label": f"utility {utility + 1}", **shape}


def draw_effect(ax: "Axes", effect: FeatureEffect, second: "Axes | None" = None) -> None:
    """Draw mean and band of every utility along a feature; categories as points with bars.

    The second utility is drawn on ``second``, where it has a scale of its own.
    """
    scales = [second if second is not None and i == 1 else ax for i in range(effect.mean.shape[1])]
    if effect.kind == "numeric":
        _draw_lines(ax, scales, effect)
    else:
        _draw_categories(ax, scales, effect)
    ax.set_xlabel(wrapped(effect.name, 28))


def _draw_lines(ax: "Axes", scales: list["Axes"], effect: FeatureEffect) -> None:
    n_utilities = len(scales)
    faint = 0.18 if n_utilities < 3 else 0.3 / n_utilities  # many bands lie over each other
    for i in range(n_utilities):
        style = utility_style(i, marker=len(effect.grid) == 1)  # a line through a single value would not be seen
        low, high = effect.low[:, i], effect.high[:, i]
        scales[i].fill_between(effect.grid, low, high, color=style["color"], alpha=faint, linewidth=0)
        scales[i].plot(effect.grid, effect.mean[:, i], linewidth=1.6, **style)
    values = np.unique(effect.values)
    values = values[:: 1 + len(values) // _MOST_TICKS]
    mark_values(ax, values, label="objects shown", markeredgewidth=0.7)
    ax.locator_params(axis="x", nbins=5)


def _draw_categories(ax: "Axes", scales: list["Axes"], effect: FeatureEffect) -> None:
    n_utilities = len(scales)
    places = np.arange(len(effect.grid))
    for i in range(n_utilities):
        mean = effect.mean[:, i]
        beside = places + (i - (n_utilities - 1) / 2) * min(0.18, 0.6 / n_utilities)
        interval = np.maximum([mean - effect.low[:, i], effect.high[:, i] - mean], 0.0)
        style = utility_style(i, line=False, marker=True)
        scales[i].errorbar(beside, mean, yerr=interval, markersize=5, capsize=2.5, elinewidth=1.2, **style)
    names = [short(category) for category in effect.grid]
    room = 72 * ax.bbox.width / ax.figure.dpi
    crowded = max(map(len, names)) * len(names) * 6.5 > room
    ax.set_xticks(places, names, rotation=90 if crowded else 0, fontsize=9 if len(names) < 15 else 6)
    ax.set_xlim(-0.6, len(names) - 0.4)


def utility_keys(n_utilities: int, kinds: set[str]) -> list[Any]:
    """Return the entries of a legend for pictures with lines ("numeric"), points ("categorical") or both."""
    from matplotlib.lines import Line2D

    styles = [utility_style(i, "numeric" in kinds, "categorical" in kinds) for i in range(n_utilities)]
    keys = [Line2D([], [], markersize=5, **style) for style in styles]
    if "numeric" in kinds:
        keys.append(Line2D([], [], color="0.3", linestyle="", marker="|", markersize=7, label="objects shown"))
    return keys


def utility_label(number: int, sd: NDArray[np.float64]) -> str:
    """Return what stands beside an axis: the outputs of a network, which has no errors, have no unit."""
    return f"utility {number + 1}, {UNIT if np.isfinite(sd).any() else 'output of the network'}"


def draw_ranking(
    ax: "Axes", mean: NDArray[np.float64], sd: NDArray[np.float64], names: list[str], total: int,
    threshold: NDArray[np.float64] | None = None,
) -> None:  # fmt: skip
    """Draw objects from the best down, with one utility each, and the threshold where there is one."""
    places = np.arange(len(mean))
    words = "Bars are standard deviations." if np.isfinite(sd).any() else "Utilities, without uncertainty."
    ax.errorbar(mean, places, xerr=sd, fmt="o", color=COLOURS[0], ecolor="0.7", elinewidth=1.0, label=words)
    ax.set_yticks(places, names, fontsize=8)
    ax.set_ylim(len(mean) - 0.5, -0.5)
    if threshold is not None:
        middle, low, high = threshold[:, 0]
        ax.axvspan(low, high, color="0.9", linewidth=0, zorder=0)
        label = "The threshold, with its 95% interval:\nan object below it is rejected even alone."
        ax.axvline(middle, linestyle="--", linewidth=1.2, label=label, **_THRESHOLD)
    ax.legend(loc="lower right", fontsize=8, framealpha=0.9)
    ax.set_xlabel(utility_label(0, sd))
    ax.set_title(f"The best {len(mean)} of {total} objects" if len(mean) < total else "Objects", fontsize=11)


def draw_front(
    ax: "Axes", mean: NDArray[np.float64], sd: NDArray[np.float64], front: NDArray[np.bool_],
    near: NDArray[np.bool_], names: list[str], threshold: NDArray[np.float64] | None = None, in_all: str = "both",
) -> None:  # fmt: skip
    """Draw objects by two utilities; objects of the front are marked, and as many as can be are named.

    Bars are drawn for the front and for what is ``near`` it: bars of all objects would make a mesh. The threshold,
    where there is one, is given as mean and ends of its interval (3, 2) in these utilities.
    """
    x, y = mean[:, 0], mean[:, 1]
    barred, words = _barred(front, near)
    if np.isfinite(sd[barred]).any():
        bars: dict[str, Any] = {"ecolor": "0.6", "elinewidth": 0.7, "alpha": 0.5, "zorder": 1, "label": words}
        ax.errorbar(x[barred], y[barred], xerr=sd[barred, 0], yerr=sd[barred, 1], fmt="none", **bars)
    rest = f"Dominated: another object\nis better in {in_all} utilities."
    ax.scatter(x[~front], y[~front], s=18, color="0.45", linewidths=0, zorder=2, label=rest)
    points = mean
    if threshold is not None:
        _draw_threshold(ax, threshold, in_all)
        points = np.vstack([mean, threshold[:1]])  # no name is written over it
    named, labels = _front_names(mean, front, names)
    n_points = len(np.unique(mean[front], axis=0))
    marked = ax.scatter(
        x[front], y[front], s=42, marker="D", color=COLOURS[1], edgecolors="white", linewidths=0.6, zorder=3
    )
    ax.margins(0.04)
    # The legend takes its room before names are placed, though their number is known only then.
    marked.set_label(f"Undominated: no other\nobject is\n({n_points} of {n_points} are named).")
    ax.legend(**BESIDE)
    written = _write_names(ax, points, named, labels)
    some = f"\n({written} of {n_points} are named)" if written < n_points else ""
    marked.set_label(f"Undominated: no other\nobject is{some}.")
    ax.legend(**BESIDE)


def near_the_front(mean: NDArray[np.float64], sd: NDArray[np.float64], front: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the front and the objects that one standard deviation more in every utility would lift to it."""
    best, lifted = mean[front], mean + np.nan_to_num(sd)
    beaten = np.array([bool(np.any(np.all(best >= one, axis=1))) for one in lifted])
    return front | ~beaten


def _barred(front: NDArray[np.bool_], near: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], str]:
    """Choose the objects whose uncertainty is drawn, and say which they are."""
    if near.sum() <= _MOST_BARS:
        return near, "Bars: standard deviations, of\nthe undominated and of what\none of them would lift there."
    if front.sum() <= _MOST_BARS:
        return front, "Bars: standard deviations,\nof the undominated."
    return np.zeros_like(front), ""


def _draw_threshold(ax: "Axes", threshold: NDArray[np.float64], in_all: str) -> None:
    """Mark where the threshold lies, with its interval, and what it rejects."""
    (x, y), low, high = threshold
    across, up = np.maximum([threshold[0] - low, high - threshold[0]], 0.0).T[..., None]
    label = f"The threshold, with 95%\nintervals: an object\nbelow it in {in_all}\nutilities is rejected\neven alone."
    style: dict[str, Any] = {"fmt": "X", "markersize": 9, "markeredgecolor": "white", "capsize": 3, "elinewidth": 1.2}
    ax.errorbar([x], [y], xerr=across, yerr=up, label=label, **style, **_THRESHOLD)


def _front_names(
    mean: NDArray[np.float64], front: NDArray[np.bool_], names: list[str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Rows of the front to name, evenly spread from left to right, and their names.

    Objects at the same point share a name: the name of the first, and how many more there are.
    """
    rows = np.flatnonzero(front)
    # From left to right: the first column decides the order.
    _, first, copies = np.unique(mean[rows], axis=0, return_index=True, return_counts=True)
    if len(first) > _MOST_NAMES:
        kept = np.linspace(0, len(first) - 1, _MOST_NAMES).round().astype(int)
        first, copies = first[kept], copies[kept]
    labels = [names[row] + (f" (+{n - 1})" if n > 1 else "") for row, n in zip(rows[first], copies, strict=True)]
    return rows[first], labels


def _write_names(ax: "Axes", points: NDArray[np.float64], rows: NDArray[np.int64], names: list[str]) -> int:
    """Write names beside some of the points, as far as there is room, and return how many."""
    fontsize = 8.0
    # The layout must be settled before places in pixels mean anything.
    figure = ax.figure.canvas.figure
    figure.draw_without_rendering()
    point = figure.dpi / 72
    pixels = ax.transData.transform(points) - ax.bbox.min
    sizes = np.array([[0.56 * fontsize * len(name) + 2, 1.25 * fontsize] for name in names]).reshape(-1, 2)
    centres = label_places(pixels[rows], sizes * point, pixels, (ax.bbox.width, ax.bbox.height), 6.0 * point)
    for row, name, centre in zip(rows, names, centres, strict=True):
        if centre is None:
            continue
        away = (np.array(centre) - pixels[row]) / point
        ax.annotate(name, points[row], xytext=(away[0], away[1]), fontsize=fontsize, **_LABEL)
    return sum(centre is not None for centre in centres)


def short(name: Any) -> str:
    """Return a name that is not too long to be written beside a point."""
    text = " ".join(str(name).split())
    return literal(text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1].rstrip() + "…")


def wrapped(text: str, width: int) -> str:
    """Break a long text into lines, also behind underscores."""
    lines = textwrap.wrap(text.replace("_", "_ "), width)
    return literal("\n".join(line.replace("_ ", "_") for line in lines) or text)


def literal(text: str) -> str:
    r"""Keep matplotlib from reading what is between two dollar signs as a formula.

    Examples
    --------
    >>> print(literal("$5 to $9"))
    \$5 to \$9
    """
    return _DOLLAR.sub(r"\\$", text)


# Directions in which a name may stand from its point: (across, up), the nearest to reading order first.
_AROUND = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
_STEPS = (1.0, 2.0, 3.5, 5.0, 7.0, 9.0)


def label_places(
    points: NDArray[np.float64],
    sizes: NDArray[np.float64],
    obstacles: NDArray[np.float64],
    bounds: tuple[float, float],
    gap: float,
) -> list[tuple[float, float] | None]:
    """Return the centre of each name, at the first free place around its point; None where there is no room.

    All lengths are in pixels: the ``points`` (n, 2) to name, measured from the lower left corner, the width and height
    of each name (``sizes``) and of the area (``bounds``), points not to be covered (``obstacles``), and the ``gap``
    between a point and a name beside it.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.array([[50.0, 50.0]])
    >>> label_places(one, np.array([[20.0, 10.0]]), one, (100.0, 100.0), gap=5.0)
    [(65.0, 50.0)]
    """
    places: list[tuple[float, float] | None] = []
    taken = np.empty((0, 4))
    for point, size in zip(points, sizes, strict=True):
        centres = _candidates(point, size, gap)
        boxes = np.hstack([centres - size / 2, centres + size / 2])
        free = np.all((boxes[:, :2] >= 0) & (boxes[:, 2:] <= np.asarray(bounds)), axis=1)
        free &= ~_overlap(boxes, taken)
        clear = free & ~_cover(boxes, obstacles, gap / 3)
        # Better over a point than not at all, but never over another name.
        choice = np.flatnonzero(clear if clear.any() else free)
        if len(choice) == 0:
            places.append(None)
            continue
        taken = np.vstack([taken, boxes[choice[0]]])
        places.append((float(centres[choice[0], 0]), float(centres[choice[0], 1])))
    return places


def _candidates(point: NDArray[np.float64], size: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    way = np.array([direction for _ in _STEPS for direction in _AROUND], dtype=float)
    far = np.repeat(_STEPS, len(_AROUND))[:, None]
    return point + way * (size / 2 + gap * far)


def _overlap(boxes: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.bool_]:
    one, other = boxes[:, None], taken[None]
    apart = (one[..., 0] >= other[..., 2]) | (one[..., 2] <= other[..., 0])
    apart |= (one[..., 1] >= other[..., 3]) | (one[..., 3] <= other[..., 1])
    return np.any(~apart, axis=1)


def _cover(boxes: NDArray[np.float64], points: NDArray[np.float64], margin: float) -> NDArray[np.bool_]:
    inside = (points[None, :, 0] > boxes[:, None, 0] - margin) & (points[None, :, 0] < boxes[:, None, 2] + margin)
    inside &= (points[None, :, 1] > boxes[:, None, 1] - margin) & (points[None, :, 1] < boxes[:, None, 3] + margin)
    return np.any(inside, axis=1)
