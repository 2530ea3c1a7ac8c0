"""The options that tell how to read a table of choices, shared by every command that reads one."""

import csv
import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData
    from choicegp.data.folder import ChoiceFolder


class OnError(StrEnum):
    """What to do about defects in the data."""

    RAISE = "raise"
    SKIP = "skip"


def _column(option: str, help: str, default: str | bool = False) -> Any:
    return typer.Option(option, metavar="COLUMN", help=help, show_default=default)


def _names(option: str, help: str) -> Any:
    return typer.Option(option, metavar="NAME,NAME,...", help=help, show_default=False)


@dataclass(frozen=True)
class TableOptions:
    """A file with a table of choices and how to read it.

    Each field is an option of the commands that :func:`takes_table` decorates. ``None`` stands for the
    default of :meth:`ChoiceData.from_long` or :meth:`ChoiceData.from_wide`.

    Examples
    --------
    >>> TableOptions("choices.csv", no_choices=True).arguments()["chosen"] is None
    True
    """

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Table of choices: .csv or .tsv (also with .gz), or .parquet; fit, predict: or a folder of .parquet.",
            show_default=False,
        ),
    ]
    set_id: Annotated[str | None, _column("--set-id", "Which rows belong to one set.", "choice_id; wide: none")] = None
    object_id: Annotated[str | None, _column("--object-id", "Which object a row is about.", "alt_id; wide: none")] = (
        None
    )
    no_object_id: Annotated[
        bool, typer.Option("--no-object-id", help="Objects have no ids: equal features are one object.")
    ] = False
    chosen: Annotated[
        str | None, _column("--chosen", "Whether the object was chosen (0/1 or true/false).", "choice")
    ] = None
    no_choices: Annotated[bool, typer.Option("--no-choices", help="It is not known what was chosen.")] = False
    features: Annotated[
        str | None, _names("--features", "Columns of features; by default all that have no other role.")
    ] = None
    respondent: Annotated[str | None, _column("--respondent", "Who answered the set.")] = None
    weight: Annotated[str | None, _column("--weight", "How much the set counts.")] = None
    available: Annotated[str | None, _column("--available", "Whether the object was shown (0/1 or true/false).")] = None
    wide: Annotated[bool, typer.Option("--wide", help="One row per set, with columns such as price_A and price_B.")] = (
        False
    )
    alternatives: Annotated[str | None, _names("--alternatives", "In a wide table: how its columns' names end.")] = None
    sep: Annotated[
        str | None,
        typer.Option(
            "--sep",
            metavar="TEXT",
            help="In a wide table: what stands between feature and alternative.",
            show_default="_",
        ),
    ] = None
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="Stop at defects, or leave the defective sets out.")
    ] = OnError.RAISE

    def read(self, **more: Any) -> "ChoiceData":
        """Read the file; ``more`` goes before what the options say."""
        arguments = self.arguments() | more
        from choicegp.data.choices import ChoiceData

        return (ChoiceData.from_wide if self.wide else ChoiceData.from_long)(self.file, **arguments)

    @property
    def is_folder(self) -> bool:
        """Whether the choices are in a folder of files."""
        return os.path.isdir(self.file)

    def open_folder(self, **more: Any) -> "ChoiceFolder":
        """Look through the files of the folder; ``more`` goes before what the options say."""
        arguments = self.arguments() | more
        if self.wide:
            raise ChoiceGPError(f"{self.file} is a folder: its files must be long tables, without --wide")
        if self.on_error is OnError.SKIP:
            raise ChoiceGPError(f"{self.file} is a folder: --on-error skip is for single files; mend the folder's")
        del arguments["on_error"]
        from choicegp.data.folder import ChoiceFolder

        return ChoiceFolder(self.file, **arguments)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``from_wide`` or ``from_long``, after checking that they go together."""
        self._check()
        given = {
            "set_id": self.set_id,
            "object_id": self.object_id,
            "chosen": self.chosen,
            "features": None if self.features is None else split_names(self.features, "--features"),
            "respondent": self.respondent,
            "weight": self.weight,
            "available": self.available,
            "sep": self.sep,
        }
        arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.alternatives is not None:
            arguments["alternatives"] = split_names(self.alternatives, "--alternatives")
        if self.no_object_id:
            arguments["object_id"] = None
        if self.no_choices:
            arguments["chosen"] = None
        return arguments | {"on_error": self.on_error.value}

    def _check(self) -> None:
        for flag, is_set, option, value in (
            ("--no-object-id", self.no_object_id, "--object-id", self.object_id),
            ("--no-choices", self.no_choices, "--chosen", self.chosen),
        ):
            if is_set and value is not None:
                raise ChoiceGPError(f"{option} {value} and {flag} contradict each other")
        if self.wide and (self.alternatives is None or self.features is None):
            raise ChoiceGPError("a wide table needs --alternatives A,B,... and --features NAME,NAME,...")
        if self.wide and self.no_object_id:
            raise ChoiceGPError("--no-object-id is for long tables; in a wide one alternatives are the objects")
        for option, value in (("--alternatives", self.alternatives), ("--sep", self.sep)):
            if value is not None and not self.wide:
                raise ChoiceGPError(f"{option} is for wide tables; add --wide")


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`TableOptions`, which it gets as its first argument.

    Parameters
    ----------
    command : callable
        Its first parameter takes a TableOptions; the others are options of its own.

    Examples
    --------
    >>> @takes_table
    ... def count(table: TableOptions, twice: bool = False) -> None: ...
    >>> list(inspect.signature(count).parameters)[-2:]
    ['on_error', 'twice']
    """
    shared = inspect.signature(TableOptions).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        table = TableOptions(**{name: given.pop(name) for name in shared})
        command(table, **given)

    # Typer reads the signature and the annotations: both must show the options one by one. What a command
    # needs beside the table (a model) comes before it on the command line.
    needed = [parameter for parameter in own if parameter.default is inspect.Parameter.empty]
    optional = [parameter for parameter in own if parameter.default is not inspect.Parameter.empty]
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*needed, *shared.values(), *optional)
    ]
    with_options.__dict__["__signature__"] = inspect.Signature(parameters)
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def split_names(text: str, option: str) -> list[str]:
    """Split a list of names at its commas; a name that holds a comma can be put in quotation marks.

    Examples
    --------
    >>> split_names('price, "width, cm"', "--features")
    ['price', 'width, cm']
    """
    try:
        (names,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise ChoiceGPError(f"{option}: {text!r} is not a list of names separated by commas") from error
    names = [name.strip() for name in names]
    if not names or not all(names):
        raise ChoiceGPError(f"{option}: {text!r} holds an empty name")
    return names
