"""How results are shown: Markdown tables and figures outside pyplot."""

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind; markers and line styles tell them apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", "-", "--", "-.")


def new_figure(width: float, height: float) -> Figure:
    """Make a figure without a window or a state that someone must close."""
    return Figure(figsize=(width, height), dpi=140, layout="constrained")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a Markdown table; a cell that is None stays empty.

    Examples
    --------
    >>> print(markdown_table(("d", "score"), [(1, None), (2, "0.9")]))
    | d | score |
    |---|---|
    | 1 |  |
    | 2 | 0.9 |
    """
    lines = [head, *rows]
    texts = [f"| {' | '.join('' if cell is None else str(cell) for cell in line)} |" for line in lines]
    return "\n".join([texts[0], "|---" * len(head) + "|", *texts[1:]])
