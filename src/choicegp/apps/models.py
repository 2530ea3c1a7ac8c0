"""Models by the names that the command line has for them: which class learns what, and whose file a file is."""

import importlib
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.apps.options import ModelOptions, TableOptions
from choicegp.apps.terminal import say
from choicegp.checks import check_one_of
from choicegp.errors import ChoiceGPError, ReadingNote

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData

_CLASSES = {
    "choice": ("choice_gp", "ChoiceGP"),
    "best": ("batch_preference_gp", "BatchPreferenceGP"),
    "preference": ("preference_gp", "PreferenceGP"),
    "general-preference": ("preference_gp", "GeneralPreferenceGP"),
    "pair": ("preference_gp", "PairGP"),
    "embedding": ("pareto_embedding", "ParetoEmbedding"),
}
MODELS = tuple(_CLASSES)
_OF_MANY = ("individual", "hierarchical", "auto")


def check_name(name: str) -> None:
    """Refuse a name that no model has; no class is imported for that."""
    check_one_of("--model", name, MODELS)


def class_of(name: str) -> Any:
    """Return the class of a model.

    Examples
    --------
    >>> class_of("best").__name__
    'BatchPreferenceGP'
    """
    check_name(name)
    module, of_model = _CLASSES[name]
    return getattr(importlib.import_module(f"choicegp.estimators.{module}"), of_model)


def made(name: str, given: dict[str, tuple[str, Any]]) -> Any:
    """Make a model with the options that were given: option on the command line and value, by argument.

    An option that the model does not have is refused, and not passed over.
    """
    kind = class_of(name)
    known = kind().get_params(deep=False)
    for argument, (option, _) in given.items():
        if argument not in known:
            raise ChoiceGPError(
                f"{option} is not an option of --model {name}, which is a {kind.__name__}: leave it out"
            )
    return kind(**{argument: value for argument, (_, value) in given.items()})


def load(path: str, output: str | None = None) -> Any:
    """Read a model of any kind, once it is known that the file for what it will say can be written."""
    from choicegp.files import check_place
    from choicegp.storage.models import load_model

    if output is not None:
        check_place(output)

    def keeper_of(kind: str, params: dict[str, Any]) -> Callable[[Any], Any]:
        return next(of for of in map(class_of, MODELS) if of._format == kind)._with_options(params)

    return load_model(path, keeper_of)


def known_to(fitted: Any) -> dict[str, Any]:
    """Return how tables for a model are read: with its features, and as it encodes them."""
    return {"features": [column.name for column in fitted.encoding_.columns], "encoding": fitted.encoding_}


def show_or_write(frame: "pd.DataFrame", output: str | None, what: str) -> None:
    """Print a table or, where there is a file for it, write it there and say so."""
    from choicegp.reading.text import write_table

    if output is None:
        say(frame.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    else:
        write_table(frame, output)
        say(f"{what} are in {output}.")


def learned_question(fitted: Any) -> str | None:
    """Return what a model's own data asked, "yes-no", "best" or "worst"; None where it was (also) "keep".

    Yes or no is asked of single objects.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from choicegp import ChoiceData, ChoiceGP
    >>> answers = ChoiceData.from_yes_no([[1.0], [2.0]], [0, 1], ["yes", "no"])
    >>> learned_question(ChoiceGP()._keep(SimpleNamespace(data=answers)))
    'yes-no'
    """
    if not isinstance(fitted, class_of("choice")):
        return None
    data = fitted.data_
    if data.kinds is None or np.any(data.kinds == "keep"):
        return "yes-no" if data.kinds is None and np.all(np.diff(data.offsets) == 1) else None
    return "best" if np.any(data.kinds == "best") else "worst"


def asked_as_learned(fitted: Any, data: "ChoiceData") -> "ChoiceData":
    """Ask of sets that do not say what is asked what the model's own data asked, and say so."""
    from choicegp.data.split import one_by_one

    question = learned_question(fitted)
    if question is None or data.kinds is not None or (question == "yes-no" and np.all(np.diff(data.offsets) == 1)):
        return data
    note_as_learned(question)
    return one_by_one(data) if question == "yes-no" else replace(data, kinds=np.full(len(data), question, dtype=object))


def note_as_learned(question: str) -> None:
    """Say that the question of the model's own data is asked."""
    warnings.warn(_AS_LEARNED[question], ReadingNote, stacklevel=3)


_KEEP = "for what is kept of each set, pass kind='keep'"
_AS_LEARNED = {
    "yes-no": f"the model learned from answers of yes or no to single objects, so each is predicted by itself; {_KEEP}",
    "best": f"the model learned which object of a set is the best, so that is what is predicted; {_KEEP}",
    "worst": f"the model learned which object of a set is the worst, so that is what is predicted; {_KEEP}",
}


def choices_and_options(table: TableOptions, model: ModelOptions) -> "tuple[ChoiceData, dict[str, Any]]":
    """Read a table; or take the choices that a model file keeps, with its model's options where none are given."""
    from choicegp.storage.archive import kind_of

    if not kind_of(table.file).startswith("choicegp-"):
        options = model.arguments()  # before a large table is read
        return table.read(), options
    for field in fields(table):
        if field.name != "file" and getattr(table, field.name) != field.default:
            option = f"--{field.name.replace('_', '-')}"
            raise ChoiceGPError(f"{table.file} is a model, whose choices are read already: leave {option} out")
    fitted = load(table.file)
    data = fitted.data_
    if isinstance(fitted, class_of("best")) and data.kinds is None:
        # It asks for the one best object of every set, whatever its data say was asked.
        data = replace(data, kinds=np.full(len(data), "best", dtype=object))
    if not isinstance(fitted, class_of("choice")):
        return data, model.arguments()
    own = fitted.get_params(deep=False)
    given = {argument: value for argument, (_, value) in model.given().items()}
    # As it was chosen, where it was "auto".
    study = fitted.fitted_.study
    people = "pooled" if study is None else "individual" if study.prior.alone else "hierarchical"
    return data, {name: own[name] for name in vars(model)} | {"respondents": people} | given


def check_people(file: str, people: str | None, data: Any) -> None:
    """Refuse models of many people where the choices do not say who answered."""
    if people in _OF_MANY and data.respondents is None:
        raise ChoiceGPError(
            f"--people {people}: the choices of {file} do not say who answered; pass their table with "
            "--respondent COLUMN"
        )
