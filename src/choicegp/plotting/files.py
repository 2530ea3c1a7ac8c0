"""Pictures of a model as files."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.files import made_folder, replaced_when_complete
from choicegp.plotting import model_plots
from choicegp.plotting.drivers_plot import plot_drivers
from choicegp.plotting.preferences_plot import plot_preferences
from choicegp.plotting.style import DPI
from choicegp.plotting.trust_plots import plot_calibration

if TYPE_CHECKING:
    from choicegp.estimators.choice_gp import ChoiceGP

KINDS = ("drivers", "utilities", "effects", "objects", "relevance", "elbo", "calibration", "preferences")


class Wanted(NamedTuple):
    """What pictures are about, where it is not everything.

    Attributes
    ----------
    features : sequence of str or None
        Of the pictures of features.
    held_out : ChoiceData or None
        Sets of the picture of calibration; by default the training sets, each predicted from the others.
    """

    features: Sequence[str] | None = None
    held_out: ChoiceData | None = None


EVERYTHING = Wanted()


def suitable_kinds(model: "ChoiceGP") -> list[str]:
    """Name the pictures that show something for this model."""
    few = len(model.data_.object_ids) <= model_plots.MOST_OBJECTS
    if not hasattr(model, "posterior_"):
        # Effects and their bands need a joint posterior; a network and a model of pairs have none.
        objects = few and type(model)._utilities is not Estimator._utilities
        return ["objects"] * objects + ["preferences"] * hasattr(model, "predict_pair_proba")
    along = "utilities" if len(model.encoding_.columns) == 1 else "effects"
    drawable = model.n_utilities_ > 1 and few
    return ["drivers", along, *(["objects"] if drawable else []), "relevance", "elbo"]


def draw(model: "ChoiceGP", kind: str, wanted: Wanted = EVERYTHING) -> Any:
    """Draw one picture and return its figure."""
    if kind not in KINDS:
        raise ChoiceGPError(f"there is no plot {kind!r}: use one of {', '.join(KINDS)}")
    axes = _drawn(model, kind, wanted)
    return np.ravel(np.asarray(axes, dtype=object))[0].figure


def _drawn(model: "ChoiceGP", kind: str, wanted: Wanted) -> Any:
    if kind == "calibration":
        return plot_calibration(model, wanted.held_out)
    if kind == "drivers":
        return plot_drivers(model)
    if kind == "preferences":
        return plot_preferences(model)  # type: ignore[arg-type]  # it says itself which models have some
    if kind == "effects":
        return model_plots.plot_effects(model, wanted.features)
    if kind == "utilities" and wanted.features:
        if len(wanted.features) > 1:
            raise ChoiceGPError("a plot of utilities is along one feature: name one, or plot the effects of several")
        return model_plots.plot_utilities(model, wanted.features[0])
    return getattr(model_plots, f"plot_{kind}")(model)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF; nothing remains if it fails."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ChoiceGPError(f"{path}: pictures are written as .png, .svg or .pdf")
    with replaced_when_complete(path) as handle:
        figure.savefig(handle, format=path.suffix[1:].lower(), dpi=DPI, bbox_inches="tight")


def svg_text(figure: Any, *, transparent: bool = False) -> str:
    """Return a figure as the text of an SVG file, which is the same whenever it is made and needs no font."""
    from matplotlib import rc_context

    content = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.hashsalt": "choicegp", "svg.fonttype": "path"}):
        figure.savefig(content, format="svg", bbox_inches="tight", transparent=transparent, metadata=nothing)
    return content.getvalue().decode()


def save_all(model: "ChoiceGP", folder: Path, kinds: Sequence[str], wanted: Wanted = EVERYTHING) -> list[Path]:
    """Write pictures into a folder, which is created if necessary; return the files."""
    files = []
    for kind in kinds:
        figure = draw(model, kind, wanted)
        made_folder(folder)  # not before there is something to write
        files.append(folder / f"{kind}.png")
        save_figure(figure, files[-1])
    return files
