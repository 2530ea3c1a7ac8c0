"""The command line. Each command imports what it needs when it runs, so that help is there at once."""

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer import Argument, Option

import choicegp
from choicegp.apps import asking, showing, terminal
from choicegp.apps.options import (
    CheckpointFile,
    Jobs,
    ModelFile,
    ModelOptions,
    People,
    RunOptions,
    Seed,
    TableOptions,
    checkpoint_place,
    output_option,
    takes_options,
)
from choicegp.apps.server.command import serve, work
from choicegp.apps.showing import check

N_DEFECTS_LISTED = 20

# Plain help and plain errors: `terminal` says in one line what is wrong.
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
        By default the arguments of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    terminal.leave(terminal.run(lambda: _invoke(given or ["--help"])))


def _invoke(arguments: list[str]) -> None:
    # Not `app()`: it handles errors by itself, each kind in another way.
    command = typer.main.get_command(app)
    # A report repeats the command that made it.
    with command.make_context("choicegp", arguments, obj=shlex.join(["choicegp", *arguments])) as context:
        command.invoke(context)


def _show_version(wanted: bool) -> None:
    if wanted:
        terminal.say(f"choicegp {choicegp.__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn from choices: which objects a person would keep from any set, and why."""


@app.command()
def demo(
    seed: Seed = 0,
    output: Annotated[
        str, output_option("Folder for Alice's answers, the model and a plot.", "FOLDER", True)
    ] = "choicegp-demo",
) -> None:
    """Show with simulated data what choices reveal.

    Alice is shown laptops and chooses those that she would not reject. Her utilities are learned from her choices and
    explained in plain words.
    """
    from choicegp.apps.demo import show_demo

    show_demo(seed, output)


@app.command()
@takes_options
def fit(
    table: TableOptions,
    model: ModelOptions,
    output: Annotated[str, output_option("File for the model.")] = "",
    name: Annotated[
        str,
        Option(
            "--model",
            metavar="NAME",
            help="choice, or of single best objects: best, preference, general-preference, pair; or embedding.",
        ),
    ] = "choice",
    utilities: Annotated[
        int | None, Option("--utilities", "-d", min=1, help="Number of hidden utilities.", show_default="2")
    ] = None,
    inference: Annotated[
        str, Option("--inference", metavar="NAME", help="Method: auto, dense, sparse, paper or mcmc.")
    ] = "auto",
    people: People = None,
    intervals: Annotated[
        str, Option("--intervals", metavar="auto|none", help="auto: sampled intervals; none: quicker, but too narrow.")
    ] = "auto",
    max_seconds: Annotated[
        float | None, Option("--max-seconds", min=0, help="Time limit in seconds.", show_default=False)
    ] = None,
    checkpoint: CheckpointFile = None,
) -> None:
    """Learn utilities from choices and save the model.

    The choices are in a table, or in a folder of tables. One line of the output says what made the intervals; with
    --intervals none, or with another inference than auto and mcmc, they are too narrow.
    """
    from choicegp.apps.models import check_name, check_people, made
    from choicegp.errors import ChoiceGPError
    from choicegp.files import check_place

    if not output:
        raise ChoiceGPError("the model needs a file: pass -o FILE")
    check_name(name)  # what is wrong is said before a large table is read
    if name != "choice" and checkpoint is not None:
        raise ChoiceGPError(f"--checkpoint is not an option of --model {name}: leave it out")
    check_place(output)
    given = model.given()
    own = {
        "n_utilities": ("--utilities", utilities, None), "inference": ("--inference", inference, "auto"),
        "intervals": ("--intervals", intervals, "auto"), "max_seconds": ("--max-seconds", max_seconds, None),
        "respondents": ("--people", people or "pooled", "pooled"),
    }  # fmt: skip
    given |= {argument: (option, value) for argument, (option, value, usual) in own.items() if value != usual}
    data = table.open_folder() if table.is_folder else table.read()
    if name == "choice" and not table.is_folder:
        check_people(table.file, people, data)
    from choicegp.reporting.summaries import drivers_in_words, fit_in_words

    kept = {"checkpoint": checkpoint_place(checkpoint, output)} if name == "choice" else {}
    fitted = made(name, given).fit(data, **kept)
    fitted.save(output)
    if name == "choice":
        terminal.say(fit_in_words(fitted, len(data)))
        terminal.say(drivers_in_words(fitted))
    else:
        terminal.say(str(fitted))
    terminal.say(f"The model is in {output}.")


@app.command()
@takes_options
def select(
    table: TableOptions,
    model: ModelOptions,
    max_utilities: Annotated[int, Option("--max-utilities", min=1, help="Maximum number of utilities to try.")] = 5,
    people: People = None,
    folds: Annotated[
        int | None, Option("--folds", min=2, show_default=False, help="Break ties by k-fold cross-validation.")
    ] = None,
    output: Annotated[str | None, output_option("File for the model with the chosen number of utilities.")] = None,
    picture: Annotated[
        str | None, Option("--plot", metavar="FILE", help="File for a plot of the scores.", show_default=False)
    ] = None,
    jobs: Jobs = -1,
    checkpoint: CheckpointFile = None,
) -> None:
    """Find the number of utilities.

    Models with one utility, two, and so on are compared by leave-one-out cross-validation: each set is predicted from
    the others. They have no intervals, and no object effects unless these are asked for: the command fit adds both.
    With --people hierarchical or individual, the models are of all people, each with her own utilities.
    Instead of a table, pass a model file to compare models of the choices that it was fitted to: --people is then by
    default what that model has.
    """
    from pathlib import Path

    from choicegp.files import check_place

    for place in filter(None, (output, picture)):
        check_place(place)
    from choicegp.apps.models import check_people, choices_and_options

    data, options = choices_and_options(table, model)
    check_people(table.file, people, data)
    if people is not None:
        options["respondents"] = people
    from choicegp.estimators.n_utilities import select_n_utilities
    from choicegp.reporting.summaries import selection_in_words

    kept = checkpoint_place(checkpoint, output)
    found = select_n_utilities(data, max_utilities, n_jobs=jobs, folds=folds, checkpoint=kept, **options)
    terminal.say(selection_in_words(found))
    if output is not None:
        found.model.save(output)
        better = f"For better ones run choicegp fit with -d {found.n_utilities}"
        terminal.say(f"Intervals: {found.model.intervals_}. {better}.")
        terminal.say(f"The model is in {output}.")
    if picture is not None:
        from choicegp.plotting.files import save_figure
        from choicegp.plotting.trust_plots import plot_selection

        save_figure(plot_selection(found).figure, Path(picture))
        terminal.say(f"The plot is in {picture}.")


@app.command()
@takes_options
def predict(
    model: ModelFile,
    table: TableOptions,
    output: Annotated[str | None, output_option("File for the predictions. By default they are printed.")] = None,
) -> None:
    """Predict what would be chosen from new sets.

    The sets are in a table, or in a folder of tables. Choices in them are ignored. The question is --kind or, where the
    model learned from answers to one other question than keep, that one. The probability that an object is chosen
    includes the errors that people make when they answer.
    """
    from choicegp.apps.models import asked_as_learned, known_to, learned_question, load, note_as_learned, show_or_write
    from choicegp.errors import ChoiceGPError

    if output is None and table.is_folder:
        raise ChoiceGPError("predictions for a folder need a file: pass -o FILE.parquet")
    fitted = load(model, output)
    known = known_to(fitted) | {"chosen": None}
    if table.is_folder and not hasattr(fitted, "predict_file"):
        raise ChoiceGPError(f"a {type(fitted).__name__} predicts tables, not folders: predict one file after the other")
    question = learned_question(fitted) if table.kind is None else None
    if output is not None and table.is_folder:
        folder = table.open_folder(**known, **({} if question is None else {"kind": question}))
        if question is not None:
            note_as_learned(question)
        fitted.predict_file(folder, output)
        terminal.say(f"Predictions for {len(folder)} sets are in {output}.")
        return
    data = table.read(**known)
    # Where all sets of the table say "keep", the data have no kinds: the table is looked at again.
    if question is not None and not table.has_own_kinds(known["features"]):
        data = asked_as_learned(fitted, data)
    show_or_write(fitted.predict_frame(data), output, f"Predictions for {len(data)} sets")


@app.command()
@takes_options
def shares(
    model: ModelFile,
    table: TableOptions,
    output: Annotated[str | None, output_option("File for the shares. By default they are printed.")] = None,
    take: Annotated[
        str, Option("--take", metavar="NAME", help="Which of the kept objects a person takes: equal or best.")
    ] = "equal",
    new_people: Annotated[
        bool, Option("--new-people", help="Shares of the population at large, instead of the respondents.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Estimate the share of people who keep and who take each object of new assortments.

    Each set of the table is an assortment. Choices in it are ignored. The table of shares has a 95% interval for every
    number, and where the model has a threshold a row none for people who keep nothing.
    """
    from choicegp.apps.models import known_to, load, show_or_write
    from choicegp.errors import ChoiceGPError

    if table.is_folder:
        raise ChoiceGPError(f"{table.file} is a folder: pass one file of assortments")
    fitted = load(model, output)
    if not hasattr(fitted, "shares"):
        raise ChoiceGPError(f"a {type(fitted).__name__} has no shares, as a ChoiceGP has")
    data = table.read(chosen=None, **known_to(fitted))
    frame = fitted.shares(data, take=take, random_state=seed, people="new" if new_people else None)
    show_or_write(frame, output, f"Shares of {len(data)} assortments")


app.command()(showing.plot)
app.command()(showing.report)


@app.command()
@takes_options
def describe(table: TableOptions) -> None:
    """Describe a table and report all its defects.

    A long table has one row for each object that was shown in a set; a wide one (--wide) has one row for each set.
    """
    data = table.read()
    terminal.say(data.describe())
    for defect in data.skipped[:N_DEFECTS_LISTED]:
        terminal.say(f"  {defect}")
    if len(data.skipped) > N_DEFECTS_LISTED:
        terminal.say(f"  ... and {len(data.skipped) - N_DEFECTS_LISTED} more")


@app.command()
@takes_options
def reproduce(
    runs: RunOptions,
    name: Annotated[
        str, Argument(metavar="NAME", help="An experiment; --list names them all.", show_default=False)
    ] = "",
    show_list: Annotated[bool, Option("--list", help="List the experiments.")] = False,
    dask: Annotated[
        str | None,
        Option("--dask", metavar="ADDRESS", help="Run on a Dask cluster, with this scheduler.", show_default=False),
    ] = None,
) -> None:
    """Run an experiment of the paper, or continue one.

    Runs that are done are not repeated.
    """
    from choicegp.apps import reproduce as body

    if show_list:
        body.list_experiments()
    else:
        body.reproduce(body.RunRequest.of(name, runs)._replace(dask=dask))


@app.command()
@takes_options
def honesty(runs: RunOptions) -> None:
    """Test whether intervals and probabilities are honest with default options.

    Simulated data show whether 95% intervals contain the truth. Held-out sets show whether predictions are better than
    an answer that looks at nothing. The page says which goals are reached and which are missed. The same command
    continues what was stopped; after a change of the sources it begins again.
    """
    from choicegp.apps.reproduce import RunRequest, check_honesty

    check_honesty(RunRequest.of("honesty", runs))


app.command()(check)
app.command()(asking.ask)
app.command()(asking.answers)
app.command()(serve)
app.command()(work)


if __name__ == "__main__":
    main()
