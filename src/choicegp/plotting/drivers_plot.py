"""What drives the choices, in one picture for someone who never saw a utility."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from choicegp.checks import in_digits, plain
from choicegp.evaluation.effects import Effects, model_effects
from choicegp.plotting.drawing import literal, short, wrapped
from choicegp.plotting.style import DIRECTION_COLOURS, new_figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from choicegp.estimators.choice_gp import ChoiceGP

_MOST_FEATURES = 8
_WORDS = {"rises": "more is better", "falls": "less is better", "unclear": "direction unclear"}


def plot_drivers(model: "ChoiceGP", *, effects: Effects | None = None) -> NDArray[Any]:
    """Draw what each utility depends on: the share of every feature, and whether more or less of it is better.

    A share is the feature's relevance (`plot_relevance`) in percent of the sum over all features. Features whose
    direction the choices do not settle are grey.

    Parameters
    ----------
    model : ChoiceGP
        Fitted.
    effects : Effects, optional
        From :func:`~choicegp.evaluation.effects.model_effects`, when it has been computed already.

    Returns
    -------
    array of Axes (n_utilities,)

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> [label.get_text() for label in plots.plot_drivers(model)[0].get_yticklabels()]
    ['x0']
    """
    effects = model_effects(model) if effects is None else effects
    n_utilities, n_features = effects.relevance.mean.shape
    n_rows = min(n_features, _MOST_FEATURES)
    figure = new_figure(7.6, 1.0 + n_utilities * (0.65 + 0.27 * n_rows))
    grid = panels(figure, n_utilities, 1, sharex=True)
    for i, ax in enumerate(grid):
        _draw_utility(ax, effects, i)
    farthest = max(ax.dataLim.x1 for ax in grid)
    grid[0].set_xlim(0.0, 1.55 * max(farthest, 1e-9))  # room for the words
    grid[-1].set_xlabel("share of what the utility depends on, in percent, with 95% intervals")
    figure.suptitle(_headline(n_utilities), fontsize=11)
    return grid


def _headline(n_utilities: int) -> str:
    if n_utilities == 1:
        return "What drives the choices: the object with the higher utility is preferred"
    every = "both utilities" if n_utilities == 2 else f"all {n_utilities} utilities"
    return f"What drives the choices: an object is kept unless another is better in {every}"


def _draw_utility(ax: "Axes", effects: Effects, utility: int) -> None:
    mean, low, high = (100.0 * part[utility] for part in effects.shares)
    order = np.argsort(-mean, kind="stable")[:_MOST_FEATURES]
    directions = [str(effects.direction[utility, j]) for j in order]
    size = mean[order]
    ends = np.maximum([size - low[order], high[order] - size], 0.0)
    colours = [DIRECTION_COLOURS[direction] for direction in directions]
    ax.barh(
        np.arange(len(order)), size, 0.68, xerr=ends, color=colours,
        error_kw={"elinewidth": 0.9, "capsize": 2.0, "ecolor": "0.2"},
    )  # fmt: skip
    for place, (j, direction) in enumerate(zip(order, directions, strict=True)):
        words = _WORDS.get(direction) or f"best {_best(effects.best[utility, j], direction)}"
        where = (size[place] + ends[1][place], place)
        quiet: dict[str, Any] = {"color": "0.4"} if direction == "unclear" else {}
        ax.annotate(literal(words), where, (5, 0), textcoords="offset points", va="center", fontsize=9, **quiet)
    ax.set_yticks(np.arange(len(order)), [wrapped(short(effects.names[j]), 24) for j in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.tick_params(left=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_title(_title(effects, utility, order, directions), fontsize=10, loc="left")


def _best(value: Any, direction: str) -> str:
    value = plain(value)
    shown = in_digits(value, 3) if isinstance(value, float) else short(value)
    return f"around {shown}" if direction == "non-monotone" else f"is {shown}"


def _title(effects: Effects, utility: int, order: NDArray[np.int64], directions: list[str]) -> str:
    """Say in a few words what the utility wants: the two largest clear features."""
    wants = []
    for j, direction in zip(order, directions, strict=True):
        name = short(effects.names[j])
        if direction in ("rises", "falls"):
            wants.append(f"{'high' if direction == 'rises' else 'low'} {name}")
        elif direction != "unclear":
            wants.append(f"{name} {_best(effects.best[utility, j], direction)}")
    words = ", ".join(wants[:2]) if wants else "no clear direction of any feature"
    more = len(effects.names) - len(order)
    left_out = f" ({len(order)} largest of {len(effects.names)} features)" if more else ""
    return literal(f"utility {utility + 1}: {words}") + left_out
