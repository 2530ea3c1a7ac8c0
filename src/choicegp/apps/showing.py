"""Commands that show what a model has learned, pictures and a report to mail, and one that checks answers by it."""

from typing import Annotated, Any

import typer
from typer import Option

from choicegp.apps import terminal
from choicegp.apps.options import ModelFile, ReadingOptions, Seed, TableOptions, output_option, takes_options
from choicegp.apps.terminal import say

_Data = Annotated[
    str | None, Option("--data", metavar="FILE", show_default=False, help="Sets with choices that were held out.")
]


@takes_options
def plot(
    model: ModelFile,
    output: Annotated[str, output_option("Folder for the plots.", "FOLDER", True)] = "plots",
    kind: Annotated[
        list[str] | None,
        Option(
            "--kind",
            metavar="NAME",
            help="Kind of plot: drivers, utilities, effects, objects, relevance, elbo, calibration or preferences. "
            "Can be repeated.",
            show_default="all that suit the model",
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        Option("--feature", metavar="NAME", show_default=False, help="Plot this feature alone. Can be repeated."),
    ] = None,
    data: _Data = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Plot what a model has learned.

    The plots show what drives the choices, the effects of features, objects by utility, the relevance of features, and
    the course of the fit; of models of preferences, how probably one object beats another. With --data, a plot of
    calibration shows whether predicted probabilities are honest on sets that were held out; --kind calibration alone
    predicts each set of the training data from the others. The options about columns are for the file of --data.
    """
    from pathlib import Path

    from choicegp.apps.models import known_to, load
    from choicegp.plotting.files import Wanted, save_all, suitable_kinds

    fitted = load(model)
    held_out = None if data is None else reading.of(data).read(**known_to(fitted))
    kinds = list(kind or (["effects"] if feature else suitable_kinds(fitted)))
    kinds += ["calibration"] if data and "calibration" not in kinds else []
    for file in save_all(fitted, Path(output), kinds, Wanted(feature, held_out)):
        terminal.say(str(file))


@takes_options
def report(
    context: typer.Context,
    model: ModelFile,
    output: Annotated[str, output_option("File for the report.", default=True)] = "report.html",
    data: _Data = None,
    assortments: Annotated[
        str | None,
        Option("--assortments", metavar="FILE", show_default=False, help="Assortments whose shares are estimated."),
    ] = None,
    change: Annotated[
        list[str] | None,
        Option(
            "--change",
            metavar="OBJECT:FEATURE=VALUE",
            show_default=False,
            help="Change an object of the first assortment, or withdraw it (OBJECT:withdrawn). Can be repeated.",
        ),
    ] = None,
    segments: Annotated[
        int | None, Option("--segments", min=2, show_default="2 or 3", help="Number of segments of people.")
    ] = None,
    title: Annotated[str, Option("--title", metavar="TEXT", help="Title of the report.")] = "What the choices say",
    seed: Seed = 0,
    *,
    reading: ReadingOptions,
) -> None:
    """Write a report on a model: one HTML file that can be mailed.

    It has the data, how far the fit can be trusted, how many utilities there are, what drives the choices, the objects,
    a short list, shares of assortments, and segments of people. With --data the model is tested on sets that were held
    out; without, each set is predicted from the others. The options about columns say how to read the files of --data
    and of --assortments.
    """
    from choicegp.apps.models import known_to, load
    from choicegp.reporting.report import report as written

    fitted, held_out = load(model, output), None
    offered = None
    if data is not None:
        held_out = reading.of(data).read(**known_to(fitted))
    if assortments is not None:
        offered = reading.of(assortments).read(**known_to(fitted), chosen=None, respondent=None, weight=None)
    written(
        fitted, output, held_out=held_out, assortments=offered,
        changes=_changes(fitted, offered, change or []) or None, n_segments=segments, title=title,
        command=context.find_root().obj, random_state=seed,
    )  # fmt: skip
    terminal.say(f"The report is in {output}.")


def _changes(fitted: Any, offered: Any, texts: list[str]) -> dict[Any, Any]:
    """Read changes such as ``B:price=799``; ids and values have the types that they have in the data."""
    from choicegp.errors import ChoiceGPError

    if not texts:
        return {}
    numeric = {column.name for column in fitted.encoding_.columns if column.kind == "numeric"}
    ids = {str(one): one for one in (fitted.data_ if offered is None else offered).object_ids.tolist()}
    changes: dict[Any, Any] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        name, _, feature = (part.strip() for part in place.rpartition(":"))
        object_id = ids.get(name, name)
        if not name or not (equals or feature == "withdrawn"):
            raise ChoiceGPError(f"--change takes OBJECT:FEATURE=VALUE or OBJECT:withdrawn, not {text!r}")
        if not equals:
            changes[object_id] = None
            continue
        try:
            new = float(value) if feature in numeric else value.strip()
        except ValueError:
            raise ChoiceGPError(f"--change {text!r}: the feature {feature} has numbers, not {value!r}") from None
        changes[object_id] = (changes.get(object_id) or {}) | {feature: new}
    return changes


@takes_options
def check(model: ModelFile, table: TableOptions, seed: Seed = 0) -> None:
    """Check whether answers look like those that a model would make.

    Answers to the same sets are simulated from the model and compared with the answers of the table. With --respondent,
    people who tick at random, or who tick everything, are named.
    """
    from choicegp.apps.models import known_to, load
    from choicegp.reporting.summaries import checks_in_words

    fitted = load(model)
    say(checks_in_words(fitted, table.read(**known_to(fitted)), seed))
