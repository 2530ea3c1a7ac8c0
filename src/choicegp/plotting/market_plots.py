"""Plots of shares and of what is derived from them; each draws a frame that a model's method has returned."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed
from choicegp.errors import ChoiceGPError
from choicegp.plotting.drawing import short, wrapped
from choicegp.plotting.style import BESIDE, COLOURS, legend_below, new_axes, new_figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from choicegp.prediction.segments import Segments

_BAR: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "markersize": 5, "linestyle": ""}
_KEEP: dict[str, Any] = {"color": COLOURS[0], "marker": "o", **_BAR}
_TAKE: dict[str, Any] = {"color": COLOURS[1], "marker": "s", **_BAR}
_PARTS = ("before", "after", "difference")
_WHO = {"kept": "who keep", "taken": "who take"}
_BESIDE_EACH_OTHER = 0.13  # how far two marks of one row are from its middle


def plot_shares(shares: pd.DataFrame) -> NDArray[Any]:
    """Draw the shares of people who keep and who take each object, one panel per assortment, with 95% intervals.

    Parameters
    ----------
    shares : DataFrame
        From `ChoiceGP.shares`.

    Returns
    -------
    array of Axes (n_assortments,)

    Examples
    --------
    >>> from choicegp import plots
    >>> keep = {"kept": [0.5, 0.8], "kept_lower": [0.4, 0.7], "kept_upper": [0.6, 0.9]}
    >>> take = {"taken": [0.3, 0.7], "taken_lower": [0.2, 0.6], "taken_upper": [0.4, 0.8]}
    >>> shares = pd.DataFrame({"set": "today", "object": ["Alder", "Dune"], **keep, **take})
    >>> [ax.get_title() for ax in plots.plot_shares(shares)]
    ['today']
    """
    _check(shares, "shares", "set", "object", "kept", "taken")
    groups = list(shares.groupby("set", sort=False))
    columns = min(len(groups), 3)
    tallest = max(len(part) for _, part in groups)
    figure = new_figure(1.6 + 3.0 * columns, 1.2 + -(-len(groups) // columns) * (0.8 + 0.36 * tallest))
    grid = panels(figure, len(groups), columns, sharex=True)
    for ax, (name, part) in zip(grid, groups, strict=True):
        _draw_rows(ax, part, "kept", -_BESIDE_EACH_OTHER, label="They keep it.", **_KEEP)
        _draw_rows(ax, part, "taken", _BESIDE_EACH_OTHER, label="They take it.", **_TAKE)
        _name_rows(ax, part["object"])
        ax.set_xlim(-0.02, 1.02)
        ax.set_title(short(name), fontsize=10)
    for ax in grid[-columns:]:
        ax.set_xlabel("share, from 0 to 1")
    figure.suptitle("Shares, with 95% intervals", fontsize=11)
    legend_below(figure, 2)
    return grid


def plot_what_if(changes: pd.DataFrame) -> NDArray[Any]:
    """Draw the shares of an assortment before and after changes, with the 95% intervals of the differences.

    Parameters
    ----------
    changes : DataFrame
        From `ChoiceGP.what_if`.

    Returns
    -------
    array of Axes (2,)
        Of the shares who keep each object, and who take it.

    Examples
    --------
    >>> from choicegp import plots
    >>> one = {"before": 0.5, "after": 0.3, "difference": -0.2, "difference_lower": -0.3, "difference_upper": -0.1}
    >>> both = {f"{share}_{name}": [value] for share in ("kept", "taken") for name, value in one.items()}
    >>> changes = pd.DataFrame({"object": ["Alder"], **both})
    >>> [ax.get_xlabel() for ax in plots.plot_what_if(changes)]
    ['share who keep it, from 0 to 1', 'share who take it, from 0 to 1']
    """
    _check(changes, "what_if", "object", *(f"{name}_{part}" for name in ("kept", "taken") for part in _PARTS))
    figure = new_figure(8.4, 1.7 + 0.36 * len(changes))
    grid = panels(figure, 2, sharex=True, sharey=True)
    places = np.arange(len(changes))
    for ax, name, style in zip(grid, ("kept", "taken"), (_KEEP, _TAKE), strict=True):
        before = changes[f"{name}_before"]
        ax.plot(before, places, marker="|", color="0.35", markersize=11, linestyle="", label="Before the changes.")
        # Of what is withdrawn nobody's share is left, however uncertain the share was before.
        withdrawn = changes[f"{name}_after"] == 0.0
        moved = pd.DataFrame({
            name + end: (before + changes[f"{name}_difference{end}"]).clip(0.0, 1.0).mask(withdrawn, 0.0)
            for end in ("", "_lower", "_upper")
        })  # fmt: skip
        _draw_rows(ax, moved, name, 0.0, label="After them, with the 95%\ninterval of the difference.", **style)
        ax.set_xlabel(f"share {_WHO[name]} it, from 0 to 1", fontsize=9)
    _name_rows(grid[0], changes["object"])
    figure.suptitle("What the changes do", fontsize=11)
    grid[-1].legend(**BESIDE)
    return grid


def plot_elasticities(elasticities: pd.DataFrame, *, share: str = "kept", ax: "Axes | None" = None) -> "Axes":
    """Draw own and cross elasticities as a table: a row for each object that changes, a column for each share.

    Parameters
    ----------
    elasticities : DataFrame
        From `ChoiceGP.elasticities`.
    share : {"kept", "taken"}
        Whether of the shares who keep or who take an object.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import plots
    >>> names = {"changed": list("AABB"), "object": list("ABAB"), "kind": ["own", "cross", "cross", "own"]}
    >>> keep = {"kept": [-1.2, 0.4, 0.3, -0.8], "kept_lower": [-1.5, 0.2, -0.1, -1.1]}
    >>> found = pd.DataFrame({**names, **keep, "kept_upper": [-0.9, 0.6, 0.7, -0.5], "taken": 0.0})
    >>> plots.plot_elasticities(found).get_ylabel()
    'one percent more for this object'
    """
    _check(elasticities, "elasticities", "changed", "object", "kind", "kept", "taken")
    if share not in _WHO:
        raise ChoiceGPError(f"share must be 'kept' or 'taken', not {share!r}")
    rows, columns = (list(dict.fromkeys(elasticities[name])) for name in ("changed", "object"))
    values, low, high = (
        elasticities[share + end].to_numpy().reshape(len(rows), len(columns)) for end in ("", "_lower", "_upper")
    )
    ax = ax or new_axes(2.2 + 1.15 * len(columns), 1.5 + 0.6 * len(rows))
    clear = (low > 0) | (high < 0)
    largest = max(np.abs(values).max(), 1e-9)
    picture = ax.imshow(values, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    for i, j in np.ndindex(values.shape):
        middle, lower, upper = (_in_cell(float(numbers[i, j])) for numbers in (values, low, high))
        text = f"{middle}\n{lower} to {upper}"
        dark = np.abs(values[i, j]) > 0.6 * largest
        weight = "bold" if clear[i, j] else "normal"
        colour = "white" if dark else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour, fontweight=weight)
    ax.set_xticks(range(len(columns)), [wrapped(short(name), 13) for name in columns])
    ax.set_yticks(range(len(rows)), [wrapped(short(name), 22) for name in rows])
    ax.set(xlabel=f"share of people {_WHO[share]} this", ylabel="one percent more for this object")
    ax.figure.colorbar(picture, ax=ax, label="change of the share, in percent")
    ax.set_title("Elasticities, with 95% intervals\n(bold: the interval excludes 0)", fontsize=11)
    return ax


def plot_worth(worth: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw what the change of a feature is worth at each object, with 95% intervals; or that there is no such price.

    Parameters
    ----------
    worth : DataFrame
        From `ChoiceGP.worth`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import plots
    >>> worth = {"object": ["Alder"], "worth": [120.0], "worth_lower": [80.0], "worth_upper": [170.0]}
    >>> plots.plot_worth(pd.DataFrame({**worth, "no_price": [0.0]})).get_title()
    'What the change is worth, with 95% intervals'
    """
    _check(worth, "worth", "object", "worth", "worth_lower", "worth_upper", "no_price")
    ax = ax or new_axes(6.6, 1.4 + 0.36 * len(worth))
    _draw_rows(ax, worth, "worth", 0.0, label="median over draws", **_KEEP)
    for place in np.flatnonzero(worth["worth"].isna()).tolist():
        text = f"no such price in {worth['no_price'].iloc[place]:.0%} of the draws"
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": "0.35"}
        around = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        ax.text(0.5, place, text, transform=ax.get_yaxis_transform(), bbox=around, **style)
    if worth["worth"].notna().any():
        ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    else:
        ax.set_xticks([])  # there is no number to read off
    _name_rows(ax, worth["object"])
    ax.set_xlabel("change of the price, in its own units, that leaves\nthe share of people who keep it as it was")
    ax.set_title("What the change is worth, with 95% intervals", fontsize=11)
    return ax


def plot_diversion(diversion: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw where people go when an object is withdrawn, with 95% intervals.

    Parameters
    ----------
    diversion : DataFrame
        From `ChoiceGP.diversion`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import plots
    >>> ends = {"diverted_lower": 0.2, "diverted_upper": 0.8, "instead_lower": 0.1, "instead_upper": 0.9}
    >>> diversion = pd.DataFrame({"object": ["Alder", "Dune"], "diverted": [0.6, 0.4], "instead": [0.7, 0.3], **ends})
    >>> plots.plot_diversion(diversion).get_xlabel()
    'share of people, from 0 to 1'
    """
    _check(diversion, "diversion", "object", "diverted", "instead")
    ax = ax or new_axes(7.4, 1.4 + 0.4 * len(diversion))
    kept = "What people who kept it\ntake instead."
    taken = "What each gains, as a share\nof those who took it."
    _draw_rows(ax, diversion, "diverted", -_BESIDE_EACH_OTHER, label=taken, **_TAKE)
    _draw_rows(ax, diversion, "instead", _BESIDE_EACH_OTHER, label=kept, **_KEEP)
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    _name_rows(ax, diversion["object"])
    ax.set_xlabel("share of people, from 0 to 1")
    ax.set_title("Where people go when the object is withdrawn", fontsize=11)
    ax.legend(**BESIDE)
    return ax


def plot_segments(segments: "Segments") -> NDArray[Any]:
    """Draw what sets each segment of people apart, one panel per segment, with 95% intervals.

    Parameters
    ----------
    segments : Segments
        From `ChoiceGP.segments`.

    Returns
    -------
    array of Axes (k,)

    Examples
    --------
    >>> from choicegp import Segments, plots
    >>> one = {"difference": [0.2, -0.2], "difference_lower": [0.1, -0.3], "difference_upper": [0.3, -0.1]}
    >>> differences = pd.DataFrame({"segment": [1, 2], "feature": "price", **one})
    >>> table = pd.DataFrame({"segment": [1, 2], "share": [0.6, 0.4]})
    >>> found = Segments(table, pd.DataFrame(), differences, 0.9)
    >>> [ax.get_title() for ax in plots.plot_segments(found)]
    ['segment 1 (60% of people)', 'segment 2 (40% of people)']
    """
    if not hasattr(segments, "differences"):
        raise ChoiceGPError(f"pass what model.segments returns; got {kind_of(segments)}")
    table, groups = segments.table, list(segments.differences.groupby("segment"))
    columns = min(len(groups), 4)
    height = 0.9 + 0.32 * segments.differences["feature"].nunique()
    figure = new_figure(1.6 + 2.4 * columns, 1.3 + -(-len(groups) // columns) * height)
    grid = panels(figure, len(groups), columns, sharex=True, sharey=True)
    for ax, (number, part), share in zip(grid, groups, table["share"], strict=True):
        points = pd.DataFrame({f"points{end}": 100 * part[f"difference{end}"] for end in ("", "_lower", "_upper")})
        _draw_rows(ax, points, "points", 0.0, **_KEEP)
        ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
        ax.set_title(f"segment {number} ({share:.0%} of people)", fontsize=10)
    _name_rows(grid[0], groups[0][1]["feature"])
    more = "one standard deviation more of the feature"
    words = f"how much more often than others they keep objects\nwith {more}, in percentage points"
    figure.supxlabel(words, fontsize=9)
    figure.suptitle(f"What sets segments apart (stability {segments.stability:.2f})", fontsize=11)
    return grid


def _in_cell(value: float) -> str:
    """Write a number with two decimals, a large one without; never minus zero."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{round(value, 2) + 0.0:.2f}"


def _draw_rows(ax: "Axes", frame: pd.DataFrame, name: str, shift: float, **style: Any) -> None:
    """Draw a number of each row, from the top down, with its interval."""
    middle = frame[name].to_numpy()
    ends = np.maximum([middle - frame[f"{name}_lower"], frame[f"{name}_upper"] - middle], 0.0)
    ax.errorbar(middle, np.arange(len(frame)) + shift, xerr=ends, **style)


def _name_rows(ax: "Axes", names: Any) -> None:
    labels = [wrapped(short(name), 22) for name in names]
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)


def _check(frame: Any, method: str, *columns: str) -> None:
    """Refuse what is not the frame of a method."""
    given = list(frame.columns) if isinstance(frame, pd.DataFrame) else []
    if missing := [name for name in columns if name not in given]:
        got = f"it has no column {listed(missing)}" if given else f"got {kind_of(frame)}"
        raise ChoiceGPError(f"pass the table that model.{method} returns; {got}")
