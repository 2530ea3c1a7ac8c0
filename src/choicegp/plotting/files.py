"""Pictures of a model as files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.errors import ChoiceGPError
from choicegp.files import made_folder, replaced_when_complete
from choicegp.plotting import model_plots
from choicegp.plotting.style import DPI

if TYPE_CHECKING:
    from choicegp.estimators.choice_gp import ChoiceGP

KINDS = ("utilities", "effects", "objects", "relevance", "elbo")


def suitable_kinds(model: "ChoiceGP") -> list[str]:
    """Name the pictures that show something for this model."""
    if not hasattr(model, "posterior_"):
        raise ChoiceGPError(
            f"a {type(model).__name__} has no posterior of utilities to draw, as a ChoiceGP or a BatchPreferenceGP has"
        )
    along = "utilities" if len(model.encoding_.columns) == 1 else "effects"
    drawable = model.n_utilities_ > 1 and len(model.data_.object_ids) <= model_plots.MOST_OBJECTS
    return [along, *(["objects"] if drawable else []), "relevance", "elbo"]


def draw(model: "ChoiceGP", kind: str) -> Any:
    """Draw one picture and return its figure."""
    if kind not in KINDS:
        raise ChoiceGPError(f"there is no plot {kind!r}: use one of {', '.join(KINDS)}")
    axes = getattr(model_plots, f"plot_{kind}")(model)
    return np.ravel(np.asarray(axes, dtype=object))[0].figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF; nothing remains if it fails."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ChoiceGPError(f"{path}: pictures are written as .png, .svg or .pdf")
    with replaced_when_complete(path) as handle:
        figure.savefig(handle, format=path.suffix[1:].lower(), dpi=DPI, bbox_inches="tight")


def save_all(model: "ChoiceGP", folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write pictures into a folder, which is created if necessary; return the files."""
    made_folder(folder)
    files = []
    for kind in kinds:
        files.append(folder / f"{kind}.png")
        save_figure(draw(model, kind), files[-1])
    return files
