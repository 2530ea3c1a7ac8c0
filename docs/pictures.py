"""How sphinx-gallery finds the pictures of a script: choicegp draws outside pyplot, so it asks for the names."""

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

_DONE = "_shown_in_gallery"


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save every figure that a block has drawn and named, once, and return the text that shows them."""
    paths = []
    for figure, path in zip(
        _new_figures(block_vars["example_globals"]), block_vars["image_path_iterator"], strict=False
    ):
        figure.savefig(path, dpi=110)
        setattr(figure, _DONE, True)
        paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])


def _new_figures(names: dict[str, Any]) -> Iterator[Figure]:
    """Yield the figures of all Axes among the values, and those of pyplot, which were not shown before."""
    values = [value for value in names.values() if isinstance(value, Artist | np.ndarray)]
    parts = [part for value in values for part in np.ravel(np.array(value, dtype=object)) if isinstance(part, Artist)]
    drawn = [one if isinstance(one, Figure) else one.get_figure() for one in parts]
    drawn += [plt.figure(number) for number in plt.get_fignums()]
    for figure in dict.fromkeys(one for one in drawn if one is not None):
        if not hasattr(figure, _DONE):
            yield figure
