"""A short tour with simulated data: Alice, who is shown laptops and ticks those she would not reject."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from choicegp.apps.terminal import plain_text, say

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData

N_LISTED = 8
PIPE_WIDTH = 100

N_SETS = 150
SET_SIZE = 4
N_RECOMMENDED = 5

# Each command has a line of its own, which can be copied whole.
NEXT = """\
Where to go next. Draw more pictures of the model:
  {program} plot {folder}/model.cgp -o {folder}
Fit this table, or your own:
  {program} fit {folder}/alice.csv -o my.cgp
Predict choices from other sets:
  {program} predict my.cgp {folder}/alice.csv
See how to name columns, read wide tables and handle defects:
  {program} describe --help\
"""


def show_demo(seed: int = 0, output: str = "choicegp-demo") -> None:
    """Show Alice's laptops and answers, learn her utilities, and say what was found.

    Parameters
    ----------
    seed : int
        The same seed gives the same laptops, answers and model.
    output : str
        Folder for her answers, the model and a plot; it is created if necessary.
    """
    from choicegp import datasets
    from choicegp.files import made_folder

    folder = made_folder(output)
    catalogue = datasets.laptops(random_state=seed)
    data = datasets.alice_choices(n_sets=N_SETS, set_size=SET_SIZE, random_state=seed).data
    data.write(folder / "alice.csv")
    say(f"Alice looks for a laptop. The catalogue has {len(catalogue)} models; the first {N_LISTED}:\n")
    show_table(catalogue.head(N_LISTED))
    say(
        f"\nShe saw {len(data)} pages of a few laptops each and ticked every one that she would not reject.\n"
        "The first page (x: ticked):\n"
    )
    show_table(first_page(data, catalogue))
    say(f"\nAll her answers in short:\n\n{data.describe()}\n")
    _learn(data, catalogue, seed, folder)
    say(f"Her answers, the model and a plot are in {folder}.\n")
    say(NEXT.format(folder=shlex.quote(str(folder)), program=program()))


def program() -> str:
    """Return what starts this program in the shell that runs it: its name where the PATH leads to it, else its path."""
    found, script = shutil.which("choicegp"), Path(sys.executable).with_name("choicegp")
    if found and (not script.exists() or script.samefile(found)):
        return "choicegp"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m choicegp.apps.cli"
    # Without a folder in it, a shell would look for the name on the PATH.
    relative = os.path.join(os.curdir, path) if os.sep not in (path := os.path.relpath(script)) else path
    return shlex.quote(min(str(script), relative, key=len))


def _learn(data: "ChoiceData", catalogue: "pd.DataFrame", seed: int, folder: Path) -> None:
    """Fit the model and say what it found, tested on pages that it has not seen."""
    from choicegp import ChoiceGP, datasets
    from choicegp.plotting.files import draw, save_figure
    from choicegp.reporting.summaries import drivers_in_words, fit_in_words, quality_in_words

    say("Learning two hidden utilities from her answers, and how sure they are. This can take a minute or two ...")
    model = ChoiceGP(n_utilities=2, random_state=seed).fit(data)
    say(fit_in_words(model, len(data)) + "\n")
    known = datasets.ObjectTable("alice", catalogue, datasets.alice(catalogue), ("work", "comfort"))
    others = datasets.laptops(random_state=seed + 1)
    unknown = datasets.ObjectTable("alice", others, datasets.alice(others), ("work", "comfort"))
    pages = datasets.random_sets(len(catalogue), 300, SET_SIZE, random_state=seed + 10**6)
    say(quality_in_words(model, known.choices(pages), "New pages of laptops it has seen"))
    say(quality_in_words(model, unknown.choices(pages), "New pages of laptops it has never seen") + "\n")
    say("What drives her choices (in brackets: how much, in units of the error of a comparison):")
    say(drivers_in_words(model, sizes=True) + "\n")
    say(f"Of the {len(catalogue)} laptops, those that most probably no other laptop beats in both utilities:\n")
    best = model.recommend(catalogue, N_RECOMMENDED)
    table = catalogue.loc[best.index].assign(probability=best["probability"].map("{:.2f}".format))
    show_table(table.rename_axis("model"))
    say("\nThese probabilities leave out errors in her answers. Those that predict gives include them.\n")
    model.save(folder / "model.cgp")
    save_figure(draw(model, "effects"), folder / "effects.png")


def first_page(data: "ChoiceData", catalogue: "pd.DataFrame") -> "pd.DataFrame":
    """Return the laptops of the first set, as in the catalogue, marked by Alice's ticks."""
    page = catalogue.iloc[data.shown[0]]
    ticked = catalogue.index[data.chosen[0]] if data.chosen is not None else ()
    return page.set_axis([f"{'x' if model in ticked else ' '} {model}" for model in page.index]).rename_axis("  model")


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
        table.add_row(*(plain_text(str(cell)) for cell in (label, *cells)))
    # In a pipe there is no width to keep to, and the output should not depend on where it was made.
    width = None if sys.stdout is not None and sys.stdout.isatty() else PIPE_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    # Captured, because Rich ends the process by itself when a pipe breaks.
    with console.capture() as captured:
        console.print(table)
    print(captured.get(), end="")
