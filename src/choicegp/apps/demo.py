"""A short tour with made-up data: Alice, who is shown laptops and ticks those she would not reject."""

import sys
from typing import TYPE_CHECKING

from choicegp.apps.console import say

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData

N_LISTED = 8
PIPE_WIDTH = 100

NEXT = """\
Where to go next:
  choicegp demo --output alice.csv    write Alice's answers to a file
  choicegp describe alice.csv         describe a table of choices: these, or your own
  choicegp describe --help            names of columns, wide tables, what to do about defects\
"""


def show_demo(seed: int = 0, output: str | None = None) -> None:
    """Show a catalogue of laptops, a page of it as Alice answered it, and a description of all her answers.

    Parameters
    ----------
    seed : int
        The same seed gives the same laptops and answers.
    output : str, optional
        File to which the answers are written.
    """
    from choicegp import datasets

    catalogue = datasets.laptops(random_state=seed)
    data = datasets.alice_choices(random_state=seed).data
    if output is not None:
        data.write(output)
    say(f"Alice looks for a laptop. The catalogue has {len(catalogue)} models; the first {N_LISTED}:\n")
    show_table(catalogue.head(N_LISTED))
    say(
        f"\nShe saw {len(data)} pages of a few laptops each and ticked every one that she would not reject.\n"
        "The first page (x: ticked):\n"
    )
    show_table(first_page(data, catalogue))
    say(f"\nAll her answers in short:\n\n{data.describe()}\n")
    if output is not None:
        say(f"Her answers are in {output}.\n")
    say(NEXT)


def first_page(data: "ChoiceData", catalogue: "pd.DataFrame") -> "pd.DataFrame":
    """Return the laptops of the first set, as in the catalogue, marked by Alice's ticks."""
    page = catalogue.iloc[data.shown[0]]
    ticked = catalogue.index[data.chosen[0]] if data.chosen is not None else ()
    return page.set_axis([f"{'x' if model in ticked else ' '} {model}" for model in page.index]).rename_axis(
        "  model"
    )


def show_table(frame: "pd.DataFrame") -> None:
    """Print a small table, its index first."""
    import pandas as pd
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(str(frame.index.name or ""), no_wrap=True)
    for name, column in frame.items():
        is_number = pd.api.types.is_numeric_dtype(column.dtype)
        # Headers on two lines keep the catalogue within the usual 80 letters.
        header = str(name).replace("_", "\n")
        table.add_column(header, justify="right" if is_number else "left", no_wrap=True)
    for label, *cells in frame.itertuples(name=None):
        table.add_row(str(label), *map(str, cells))
    # In a pipe there is no width to keep to, and the output should not depend on where it was made.
    width = None if sys.stdout is not None and sys.stdout.isatty() else PIPE_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    # Captured, because Rich ends the process by itself when a pipe breaks.
    with console.capture() as captured:
        console.print(table)
    print(captured.get(), end="")
