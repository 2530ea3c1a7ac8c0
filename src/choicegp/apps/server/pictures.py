"""Plots as SVG, which a strict content security policy allows: without scripts, and without styles of their own."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from choicegp.plotting.drawing import literal
from choicegp.plotting.files import svg_text
from choicegp.plotting.style import COLOURS, new_axes

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.evaluation.effects import Effects
    from choicegp.prediction.segments import Segments

_STYLE = re.compile(r' style="([^"]*)"')
_SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)


def matters(sizes: Sequence[tuple[str, float]], axis: str) -> bytes:
    """Draw how much each feature matters, the most important on top, for someone who never saw a plot like this.

    Parameters
    ----------
    sizes : sequence of (label, size)
    axis : str
        What the length of a bar means.

    Returns
    -------
    bytes
        SVG.
    """
    ax = new_axes(4.6, 0.6 + 0.36 * len(sizes))  # to be read on a phone, too
    largest = max((size for _, size in sizes), default=0.0) or 1.0
    labels = [literal(label if len(label) <= 28 else f"{label[:27]}…") for label, _ in sizes]
    ax.barh(range(len(sizes)), [size / largest for _, size in sizes], 0.62, color=COLOURS[0])
    ax.set_yticks(range(len(sizes)), labels, fontsize=12)
    ax.set_ylim(len(sizes) - 0.4, -0.6)
    ax.set_xlim(0.0, 1.03)
    ax.set_xticks([])
    ax.set_xlabel(literal(axis), fontsize=11)
    ax.tick_params(left=False)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    return svg(ax.figure)


def owner_pictures(model: "ChoiceGP", effects: "Effects", objects: "pd.DataFrame") -> dict[str, bytes]:
    """Draw the effects of features on the utilities, and the objects by their utilities."""
    from choicegp.plotting.model_plots import plot_effects, plot_objects

    return {
        "effects": svg(plot_effects(model, effects=effects)[0].figure),
        "objects": svg(plot_objects(model, objects).figure),
    }


def people_pictures(shares: "pd.DataFrame", segments: "Segments | None") -> dict[str, bytes]:
    """Draw what people would keep, and what sets segments of people apart."""
    from choicegp.plotting.market_plots import plot_segments, plot_shares

    drawn = {"shares": svg(plot_shares(shares)[0].figure)}
    if segments is not None:
        drawn["segments"] = svg(plot_segments(segments)[0].figure)
    return drawn


def svg(figure: Any) -> bytes:
    """Return a figure as SVG with attributes in place of styles."""
    return without_styles(svg_text(figure)).encode()


def without_styles(text: str) -> str:
    """Turn the styles of an SVG file into attributes.

    Examples
    --------
    >>> without_styles('<svg width="1"><g style="fill: #fff; opacity: 0.5"/></svg>')
    '<svg stroke-linejoin="round" stroke-linecap="butt" width="1"><g fill="#fff" opacity="0.5"/></svg>'
    """
    text = _SHEET.sub("", text)
    text = _STYLE.sub(lambda found: "".join(_attribute(one) for one in found[1].split(";") if one.strip()), text)
    return text.replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)


def _attribute(rule: str) -> str:
    name, _, value = rule.partition(":")
    return f' {name.strip()}="{value.strip()}"'
