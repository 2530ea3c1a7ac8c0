"""Options that several commands share, each declared once: how to read a table, and what model to fit."""

import csv
import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData
    from choicegp.data.folder import ChoiceFolder
    from choicegp.storage.checkpoints import BesideOutput

Seed = Annotated[
    int, Option("--seed", min=0, metavar="NUMBER", help="Random seed: the same seed gives the same result.")
]
Jobs = Annotated[
    int, Option("--jobs", metavar="NUMBER", help="Number of fits that run in parallel; -1 uses all cores.")
]


ModelFile = Annotated[str, Argument(metavar="MODEL", help="A model written by `choicegp fit`.", show_default=False)]


def output_option(help: str, metavar: str = "FILE", default: bool = False) -> Any:
    """Declare the option that says where a command writes."""
    return Option("--output", "-o", metavar=metavar, help=help, show_default=default)


@dataclass(frozen=True)
class RunOptions:
    """Which runs of an experiment are made, and where."""

    quick: Annotated[bool, Option("--quick", help="Run a small version, to see that everything works.")] = False
    seed: Annotated[
        int, Option("--seed", "--random-state", min=0, metavar="NUMBER", help="Random seed of the first repetition.")
    ] = 0
    repetitions: Annotated[
        int | None, Option("--repetitions", min=1, show_default="as in the protocol", help="Number of repetitions.")
    ] = None
    output: Annotated[
        str, Option("--out", "--output", "-o", metavar="FOLDER", help="Folder for runs, tables and pages.")
    ] = "experiments-out"
    data: Annotated[
        str | None,
        Option("--data", metavar="FOLDER", help="Folder of the published tables.", show_default="CHOICEGP_DATA"),
    ] = None
    jobs: Jobs = -1


class DefectRule(StrEnum):
    """What to do about defects in the data."""

    RAISE = "raise"
    SKIP = "skip"


class EmptyRule(StrEnum):
    """What a set is from which nothing was chosen."""

    ERROR = "error"
    NONE = "none"
    SKIP = "skip"


class MissingRule(StrEnum):
    """What a missing feature is."""

    ERROR = "error"
    SKIP = "skip"
    LEVEL = "level"


def _column(option: str, which: str, default: str | bool = False) -> Any:
    return Option(option, metavar="COLUMN", help=f"Column {which}.", show_default=default)


def _names(option: str, help: str) -> Any:
    return Option(option, metavar="NAME,NAME,...", help=help, show_default=False)


_FILE = Argument(
    metavar="FILE", show_default=False,
    help="Table of choices: .csv or .tsv (also with .gz), .xlsx or .parquet. The commands fit and predict also take a "
    "folder of .parquet files.",
)  # fmt: skip
_SET_ID = Option(
    "--set-id", metavar="COLUMN,...", show_default="choice_id; wide: none",
    help="Column that names the set of each row; several columns, such as respondent,task, name it together.",
)  # fmt: skip
_OBJECT_ID = _column("--object-id", "that names the object of each row", "alt_id; wide: none")
_NO_OBJECT_ID = Option("--no-object-id", help="The objects have no ids; those with equal features are the same.")
_CHOSEN = _column(
    "--chosen", "that says whether the object was chosen (0/1, yes/no, x/blank ...); of best and worst, two", "choice"
)
_FEATURES = _names("--features", "Columns of features; by default all that have no other role.")
_AVAILABLE = _column("--available", "that says whether the object was shown (0/1, yes/no, x/blank ...)")
_WIDE = Option("--wide", help="The table has one row per set, with columns such as price_A and price_B.")
_ALTERNATIVES = _names("--alternatives", "Alternatives of a wide table: the endings of its column names.")
_SEP = Option(
    "--sep", metavar="TEXT", help="Text between feature and alternative in a wide table's columns.", show_default="_"
)
_ON_ERROR = Option("--on-error", help="Stop if the table has defects, or skip the sets that have them.")
_EMPTY = Option(
    "--empty", show_default="error",
    help="Sets from which nothing was chosen: an error, the answer none of these, or skipped.",
)  # fmt: skip
_MISSING = Option(
    "--missing", show_default="error",
    help="Missing features: an error, their sets skipped, or a value (level) of their own.",
)  # fmt: skip
_KIND = Option(
    "--kind", metavar="NAME", show_default="keep; wide with one column of choices: best",
    help="What was asked: keep, best, worst, best-worst, ranking, rating or yes-no; or the column that says it.",
)  # fmt: skip
_COVARIATE = _names("--covariate", "Columns that describe the person (--respondent), such as age.")
_NUMBER = _names("--number", "Columns of numbers with a currency or a unit, such as EUR 1,549.00.")
_DECIMAL = Option(
    "--decimal", metavar=". or ,", show_default="as the numbers show", help="Decimal sign of numbers in text."
)
_AT_MOST = Option("--at-most", metavar="NUMBER", show_default=False, help="How many objects one was allowed to choose.")


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How to read a table of choices.

    The fields but the flags are arguments of :meth:`ChoiceData.from_long` or :meth:`ChoiceData.from_wide`; ``None``
    stands for their defaults.
    """

    set_id: Annotated[str | None, _SET_ID] = None
    object_id: Annotated[str | None, _OBJECT_ID] = None
    no_object_id: Annotated[bool, _NO_OBJECT_ID] = False
    chosen: Annotated[str | None, _CHOSEN] = None
    no_choices: Annotated[bool, Option("--no-choices", help="The table has no choices.")] = False
    features: Annotated[str | None, _FEATURES] = None
    respondent: Annotated[str | None, _column("--respondent", "that names the person who answered the set")] = None
    covariate: Annotated[str | None, _COVARIATE] = None
    weight: Annotated[str | None, _column("--weight", "that holds the weight of the set")] = None
    available: Annotated[str | None, _AVAILABLE] = None
    wide: Annotated[bool, _WIDE] = False
    alternatives: Annotated[str | None, _ALTERNATIVES] = None
    sep: Annotated[str | None, _SEP] = None
    kind: Annotated[str | None, _KIND] = None
    at_most: Annotated[int | None, _AT_MOST] = None
    number: Annotated[str | None, _NUMBER] = None
    decimal: Annotated[str | None, _DECIMAL] = None
    empty: Annotated[EmptyRule | None, _EMPTY] = None
    missing: Annotated[MissingRule | None, _MISSING] = None
    on_error: Annotated[DefectRule, _ON_ERROR] = DefectRule.RAISE

    def of(self, file: str) -> "TableOptions":
        """Return a file with these options."""
        return TableOptions(file, **vars(self))


@dataclass(frozen=True)
class TableOptions(ReadingOptions):
    """A file with a table of choices and how to read it.

    Examples
    --------
    >>> TableOptions("choices.csv", no_choices=True).arguments()["chosen"] is None
    True
    """

    file: Annotated[str, _FILE]

    def read(self, **more: Any) -> "ChoiceData":
        """Read the file; ``more`` goes before what the options say."""
        arguments = self.arguments() | more
        from choicegp.data.choices import ChoiceData

        return (ChoiceData.from_wide if self.wide else ChoiceData.from_long)(self.file, **arguments)

    def has_own_kinds(self, features: list[str]) -> bool:
        """Whether a column of a long table, beside its ``features``, says by itself what was asked."""
        from choicegp.reading.columns import Roles, has_own_kinds, opened

        given = self.arguments()
        roles = Roles(*map(given.get, ("set_id", "object_id", "chosen", "available", "respondent", "weight", "kind")))
        return not self.wide and has_own_kinds(opened(self.file, [], self.decimal).frame, roles, features)

    @property
    def is_folder(self) -> bool:
        """Whether the tables are in a folder of files."""
        return os.path.isdir(self.file)

    def open_folder(self, **more: Any) -> "ChoiceFolder":
        """Look through the files of the folder; ``more`` goes before what the options say."""
        arguments = self.arguments() | more
        if self.wide:
            raise ChoiceGPError(f"{self.file} is a folder: its files must be long tables, without --wide")
        if arguments.pop("covariates", None):
            raise ChoiceGPError(f"{self.file} is a folder: --covariate is for single files")
        if arguments.pop("on_error") == DefectRule.SKIP:
            raise ChoiceGPError(f"{self.file} is a folder: --on-error skip is for single files. Fix the folder's files")
        from choicegp.data.folder import ChoiceFolder

        return ChoiceFolder(self.file, **arguments)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``from_wide`` or ``from_long``, after checking that they go together."""
        self._check()
        given = {name: value for name, value in vars(self).items() if value is not None}
        lists = {"features", "alternatives", "number", "covariate", "set_id"}
        for name in (lists | ({"chosen"} if self.kind == "best-worst" else set())) & given.keys():
            given[name] = split_names(given[name], f"--{name.replace('_', '-')}")
        for name in {"number", "covariate"} & given.keys():
            given[f"{name}s"] = given.pop(name)
        for name in {"set_id", "chosen"} & given.keys():
            if isinstance(given[name], list) and len(given[name]) == 1:
                given[name] = given[name][0]
        for name in {"empty", "missing"} & given.keys():
            given[name] = given[name].value
        for flag, name in (("no_object_id", "object_id"), ("no_choices", "chosen")):
            if given.pop(flag):
                given[name] = None
        del given["file"], given["wide"]
        return given | {"on_error": self.on_error.value}

    def _check(self) -> None:
        for flag, is_set, option, value in (
            ("--no-object-id", self.no_object_id, "--object-id", self.object_id),
            ("--no-choices", self.no_choices, "--chosen", self.chosen),
        ):
            if is_set and value is not None:
                raise ChoiceGPError(f"{option} {value} and {flag} contradict each other")
        if self.wide and (self.alternatives is None or self.features is None):
            raise ChoiceGPError("a wide table needs --alternatives A,B,... and --features NAME,NAME,...")
        if self.wide and self.covariate:
            raise ChoiceGPError("--covariate is for long tables; with a wide one use ChoiceData.with_covariates")
        if self.wide and self.no_object_id:
            raise ChoiceGPError("--no-object-id is for long tables; in a wide one alternatives are the objects")
        for option, value in (("--alternatives", self.alternatives), ("--sep", self.sep)):
            if value is not None and not self.wide:
                raise ChoiceGPError(f"{option} is for wide tables; add --wide")


People = Annotated[
    str | None,
    Option(
        "--people",
        metavar="NAME",
        help="How people (--respondent) are related: pooled (as one), individual, hierarchical or auto.",
        show_default="pooled",
    ),
]
CheckpointFile = Annotated[
    str | None,
    Option(
        "--checkpoint", metavar="FILE", show_default="the output file with .checkpoint",
        help="File from which the same command continues after an interrupt. It is written after half a minute.",
    ),
]  # fmt: skip


def checkpoint_place(named: str | None, output: str | None) -> "str | BesideOutput | None":
    """Return where a checkpoint goes: where it was asked for or, where a fit has an output file, beside that."""
    if named is not None or output is None:
        return named
    from choicegp.storage.checkpoints import BesideOutput

    return BesideOutput(output)


_KERNEL = Option("--kernel", metavar="NAME", help="Kernel: auto, rbf, matern52, linear, additive ...")
_OBJECT_EFFECTS = Option(
    "--object-effects/--no-object-effects", show_default=False,
    help="Give each object an effect of its own, beside its features, or none. By default the evidence decides.",
)  # fmt: skip
_LAPSE = Option("--lapse", metavar="RATE", help="Share of random answers; or the word learn.")
_THRESHOLD = Option(
    "--threshold/--no-threshold", show_default=False,
    help="Whether an object must also pass a threshold to be kept. By default only if some set was left empty.",
)  # fmt: skip
_RULE = Option("--rule", metavar="NAME", help="What is kept: pareto (what nothing beats) or best-in-one.")
_MONOTONE = Option(
    "--monotone", metavar="FEATURES", show_default=False,
    help='Features with which all utilities may only fall or rise: "falling price, rising battery".',
)  # fmt: skip
_RESTARTS = Option("--restarts", min=1, metavar="NUMBER", help="Number of annealed starts of the fit.")


_AUTOMATIC = ("object_effects", "threshold")
_NAMES = {"n_restarts": "--restarts", "random_state": "--seed"}


@dataclass(frozen=True)
class ModelOptions:
    """What every fitted model shares; the fields are arguments of `ChoiceGP`, with its defaults.

    Examples
    --------
    >>> ModelOptions(lapse="0.1").arguments()["lapse"]
    0.1
    """

    kernel: Annotated[str, _KERNEL] = "auto"
    object_effects: Annotated[bool | None, _OBJECT_EFFECTS] = None
    lapse: Annotated[str, _LAPSE] = "0"
    threshold: Annotated[bool | None, _THRESHOLD] = None
    rule: Annotated[str, _RULE] = "pareto"
    monotone: Annotated[str | None, _MONOTONE] = None
    n_restarts: Annotated[int | None, _RESTARTS] = None
    random_state: Seed = 0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `ChoiceGP`."""
        try:
            rate = self.lapse if self.lapse == "learn" else float(self.lapse)
        except ValueError:
            raise ChoiceGPError(f"--lapse takes a number or the word learn, not {self.lapse!r}") from None
        either = {name: "auto" if vars(self)[name] is None else vars(self)[name] for name in _AUTOMATIC}
        directions = None if self.monotone is None else _directions(self.monotone)
        return vars(self) | {"lapse": rate, "monotone": directions} | either

    def given(self) -> dict[str, tuple[str, Any]]:
        """Return what is not the default, as option on the command line and value, by argument."""
        usual, arguments = ModelOptions(), self.arguments()
        changed = [name for name, value in vars(self).items() if value != vars(usual)[name]]
        return {name: (_NAMES.get(name, f"--{name.replace('_', '-')}"), arguments[name]) for name in changed}


def _directions(text: str) -> dict[str, int]:
    """Read names of features, each after the word falling or rising."""
    words = [name.split(maxsplit=1) for name in split_names(text, "--monotone")]
    if any(len(pair) != 2 or pair[0] not in ("falling", "rising") for pair in words):
        raise ChoiceGPError(f'--monotone takes features such as "falling price, rising battery", not {text!r}')
    if len({name for _, name in words}) < len(words):
        raise ChoiceGPError(f"--monotone names a feature twice: {text!r}")
    return {name: 1 if word == "rising" else -1 for word, name in words}


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a group of options (a dataclass) by the options themselves.

    Parameters
    ----------
    command : callable
        Its options are its own and the options of its groups, in the order of its parameters. Where both have an
        option of a name, the command's own is there.

    Examples
    --------
    >>> @takes_options
    ... def count(table: TableOptions, twice: bool = False) -> None: ...
    >>> list(inspect.signature(count).parameters)[-2:]
    ['on_error', 'twice']
    """
    parameters = inspect.signature(command).parameters
    groups: dict[str, type] = {
        name: one.annotation
        for name, one in parameters.items()
        if isinstance(one.annotation, type) and dataclasses.is_dataclass(one.annotation)
    }
    options = {
        name: {one: given for one, given in inspect.signature(group).parameters.items() if one not in parameters}
        for name, group in groups.items()
    }

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        made = {name: group(**{one: given.pop(one) for one in options[name]}) for name, group in groups.items()}
        command(**made, **given)

    # Typer reads the signature and the annotations: both must show the options one by one.
    shown = [one for name in parameters for one in options.get(name, {name: parameters[name]}).values()]
    shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in shown]
    with_options.__dict__["__signature__"] = inspect.Signature(shown)
    with_options.__annotations__ = {one.name: one.annotation for one in shown}
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
