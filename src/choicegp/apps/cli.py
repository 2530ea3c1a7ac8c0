"""The command line. Each command imports what it needs when it runs, so that help is there at once."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

import choicegp
from choicegp.apps import console
from choicegp.apps.table_options import TableOptions, takes_table

N_DEFECTS_LISTED = 20

# Plain help and plain errors: `console` says in one line what is wrong.
app = typer.Typer(
    name="choicegp",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(console.run(lambda: _invoke(given or ["--help"])))


def _invoke(arguments: list[str]) -> None:
    # Not `app()`: it handles errors by itself, each kind in another way.
    command = typer.main.get_command(app)
    with command.make_context("choicegp", arguments) as context:
        command.invoke(context)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.say(f"choicegp {choicegp.__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Learn from choices: which objects a person would keep from any set, and why."""


@app.command()
def demo(
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="NUMBER", help="The same seed gives the same output.")
    ] = 0,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write the simulated choices to a .csv, .tsv or .parquet file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show what choicegp does on a small made-up example."""
    from choicegp.apps.demo import show_demo

    show_demo(seed, output)


@app.command()
@takes_table
def describe(table: TableOptions) -> None:
    """Describe a table of choices, and say all that is wrong with it.

    A long table has one row per set and shown object; a wide one (--wide) has one row per set.
    """
    data = table.read()
    console.say(data.describe())
    for defect in data.skipped[:N_DEFECTS_LISTED]:
        console.say(f"  {defect}")
    if len(data.skipped) > N_DEFECTS_LISTED:
        console.say(f"  ... and {len(data.skipped) - N_DEFECTS_LISTED} more")


if __name__ == "__main__":
    main()
