"""What all pictures share: colours, markers, figures outside pyplot, and legends beside or below the data."""

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 140
# Okabe and Ito's colours, which the colour-blind can distinguish; line styles and markers do the same in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DIRECTION_COLOURS = {
    "rises": COLOURS[0], "falls": COLOURS[1], "non-monotone": COLOURS[2], "categorical": COLOURS[2], "unclear": "0.78",
}  # fmt: skip
UNIT = "in units of the error of a comparison"  # of utilities and of everything that is made of them

# A legend outside the data, to their right.
BESIDE: dict[str, Any] = {
    "loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False, "handlelength": 2.6,
    "fontsize": 9,
}  # fmt: skip


def new_figure(width: float, height: float) -> "Figure":
    """Make a figure outside pyplot: no window, no state, nothing to close."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def new_axes(width: float, height: float) -> "Axes":
    """Return the only Axes of a new figure."""
    return new_figure(width, height).add_subplot()


def panels(figure: "Figure", n: int, columns: int | None = None, **options: Any) -> NDArray[Any]:
    """Return n Axes of a figure, by default all in one row; ``options`` go to ``figure.subplots``."""
    columns = n if columns is None else columns
    grid = figure.subplots(-(-n // columns), columns, squeeze=False, **options).ravel()
    for ax in grid[n:]:
        ax.remove()
    return grid[:n]


def mark_values(
    ax: "Axes", values: NDArray[Any] | list[float], size: float = 7, label: str = "", **options: Any
) -> None:
    """Draw a tick at every value on the lower edge, whatever the vertical scale."""
    place: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "color": "0.3", "markersize": size, "label": label}
    ax.plot(values, [0.0] * len(values), "|", **place, **options)


def legend_below(figure: "Figure", columns: int) -> None:
    """Write one legend below the panels: everything that has a label in some of them."""
    keys = {label: handle for ax in figure.axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(list(keys.values()), list(keys), loc="outside lower center", ncols=columns, frameon=False)
