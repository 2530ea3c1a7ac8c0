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


_Kernel = Annotated[str, typer.Option("--kernel", metavar="NAME", help="auto, rbf, matern52, linear, additive ...")]
_ObjectEffects = Annotated[
    bool, typer.Option("--object-effects", help="Give each object id an effect beside its features.")
]
_Lapse = Annotated[str, typer.Option("--lapse", metavar="RATE", help="Share of random answers, or: learn.")]
_Restarts = Annotated[int | None, typer.Option("--restarts", min=1, help="Number of annealed starts.")]
_Seed = Annotated[int, typer.Option("--seed", min=0, metavar="NUMBER", help="The same seed gives the same result.")]
_Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model written by `choicegp fit`.", show_default=False)]


@app.command()
def demo(
    seed: _Seed = 0,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where Alice's answers, the model and plots go."),
    ] = "choicegp-demo",
) -> None:
    """Simulate Alice choosing laptops, learn her utilities, and say in plain words what was found."""
    from choicegp.apps.demo import show_demo

    show_demo(seed, output)


@app.command()
@takes_table
def fit(
    table: TableOptions,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the model is written.", show_default=False)
    ] = "",
    utilities: Annotated[int, typer.Option("--utilities", "-d", min=1, help="Number of hidden utilities.")] = 2,
    kernel: _Kernel = "auto",
    object_effects: _ObjectEffects = False,
    lapse: _Lapse = "0",
    inference: Annotated[
        str, typer.Option("--inference", metavar="NAME", help="auto, dense, sparse, joint, paper or mcmc.")
    ] = "auto",
    restarts: _Restarts = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0, help="Time limit.", show_default=False)
    ] = None,
    seed: _Seed = 0,
) -> None:
    """Learn utilities from a table of choices, or from a folder of them, and write the model to a file."""
    from choicegp.errors import ChoiceGPError
    from choicegp.files import check_place

    if not output:
        raise ChoiceGPError("say where the model goes: -o FILE")
    check_place(output)
    rate = _lapse_rate(lapse)
    data = table.open_folder() if table.is_folder else table.read()
    from choicegp.apps.words import drivers_in_words, fit_in_words
    from choicegp.estimators.choice_gp import ChoiceGP

    model = ChoiceGP(
        utilities, kernel=kernel, object_effects=object_effects, lapse=rate, inference=inference,
        n_restarts=restarts, max_seconds=max_seconds, random_state=seed,
    )  # fmt: skip
    model.fit(data).save(output)
    console.say(fit_in_words(model, len(data)))
    console.say(drivers_in_words(model))
    console.say(f"The model is in {output}.")


@app.command()
@takes_table
def select(
    table: TableOptions,
    max_utilities: Annotated[int, typer.Option("--max-utilities", min=1, help="Most utilities to try.")] = 5,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the chosen model is written.", show_default=False),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Where a picture of the scores goes.", show_default=False),
    ] = None,
    kernel: _Kernel = "auto",
    object_effects: _ObjectEffects = False,
    lapse: _Lapse = "0",
    restarts: _Restarts = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds", min=2, show_default=False, help="Where that leaves several numbers, cross-validate with so many."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Fits side by side; -1 for all cores.")] = -1,
    seed: _Seed = 0,
) -> None:
    """Find out how many utilities there are, by leaving out one set after the other."""
    from pathlib import Path

    from choicegp.files import check_place

    for place in (output, picture):
        if place is not None:
            check_place(place)
    rate = _lapse_rate(lapse)
    data = table.read()
    from choicegp.apps.words import selection_in_words
    from choicegp.estimators.n_utilities import select_n_utilities

    found = select_n_utilities(
        data, max_utilities, seed, n_jobs=jobs, kernel=kernel, object_effects=object_effects, lapse=rate,
        n_restarts=restarts, folds=folds,
    )  # fmt: skip
    console.say(selection_in_words(found))
    if output is not None:
        found.model.save(output)
        console.say(f"The model is in {output}.")
    if picture is not None:
        from choicegp.apps.figures import save_figure
        from choicegp.apps.selection_plot import plot_selection

        save_figure(plot_selection(found).figure, Path(picture))
        console.say(f"The picture is in {picture}.")


def _lapse_rate(text: str) -> float | str:
    from choicegp.errors import ChoiceGPError

    if text == "learn":
        return text
    try:
        return float(text)
    except ValueError:
        raise ChoiceGPError(f"--lapse takes a number or the word learn, not {text!r}") from None


@app.command()
@takes_table
def predict(
    table: TableOptions,
    model: _Model,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where predictions go; else they are printed.", show_default=False
        ),
    ] = None,
) -> None:
    """Predict what would be kept from each set of a table, or of a folder; choices are not looked at."""
    from choicegp.errors import ChoiceGPError
    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.files import check_place
    from choicegp.reading.text import write_table

    if output is not None:
        check_place(output)
    fitted = ChoiceGP.load(model)
    known = {
        "chosen": None, "features": [column.name for column in fitted.encoding_.columns], "encoding": fitted.encoding_
    }  # fmt: skip
    if table.is_folder:
        if output is None:
            raise ChoiceGPError("say where the predictions for a folder go: -o FILE.parquet")
        folder = table.open_folder(**known)
        fitted.predict_file(folder, output)
        console.say(f"Predictions for {len(folder)} sets are in {output}.")
        return
    data = table.read(**known)
    frame = fitted.predict_frame(data)
    if output is None:
        console.say(frame.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    else:
        write_table(frame, output)
        console.say(f"Predictions for {len(data)} sets are in {output}.")


@app.command()
def plot(
    model: _Model,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="Where the pictures go.")] = "plots",
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="NAME",
            help="utilities, effects, objects, relevance or elbo.",
            show_default="all that fit",
        ),
    ] = None,
) -> None:
    """Draw pictures of a model: effects of features, objects by utility, relevance, and how the fit went."""
    from pathlib import Path

    from choicegp.apps.figures import save_all, suitable_kinds
    from choicegp.estimators.choice_gp import ChoiceGP

    fitted = ChoiceGP.load(model)
    for file in save_all(fitted, Path(output), kind or suitable_kinds(fitted)):
        console.say(str(file))


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


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An experiment; --list names them all.", show_default=False)
    ] = "",
    show_list: Annotated[bool, typer.Option("--list", help="Say which experiments there are.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, to see that everything works.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="NUMBER", help="Of the first repetition.")] = 0,
    repetitions: Annotated[
        int | None, typer.Option("--repetitions", min=1, show_default="as in the protocol", help="How many there are.")
    ] = None,
    output: Annotated[
        str, typer.Option("--out", "--output", "-o", metavar="FOLDER", help="Where runs, tables and pages go.")
    ] = "experiments-out",
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FOLDER", help="Published tables.", show_default="that of CHOICEGP_DATA"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Runs side by side; -1 for all cores.")] = -1,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler of a Dask cluster to run on.", show_default=False),
    ] = None,
) -> None:
    """Run an experiment of the paper again, or go on with one: runs that are done are not repeated."""
    from choicegp.apps import reproduce as body
    from choicegp.experiments.experiment import Options

    if show_list:
        body.list_experiments()
        return
    body.reproduce(body.Request(name, Options(quick, seed, repetitions), output, data, jobs, dask))


if __name__ == "__main__":
    main()
