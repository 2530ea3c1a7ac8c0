"""The study file: a TOML file that says what a study is called, what it shows and how it ends."""

import os
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from choicegp.checks import listed
from choicegp.errors import ChoiceGPError

#: A text in each language, by code.
Local = Mapping[str, str]

DESIGNS = ("information", "predictive", "staged", "uncertain", "best", "space-filling", "random")
PANEL = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "workerId", "assignmentId", "hitId")
_PERSONS = ("PROLIFIC_PID", "workerId")
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNITS = {
    "eur": "€", "usd": "$", "gbp": "£", "chf": "CHF", "kg": "kg", "g": "g", "gb": "GB", "tb": "TB", "h": "h",
    "min": "min", "in": "in", "cm": "cm", "mm": "mm", "m": "m", "km": "km", "kw": "kW", "kwh": "kWh", "w": "W",
    "l": "l", "pct": "%", "percent": "%",
}  # fmt: skip


class Feature(NamedTuple):
    """How a column of the catalogue is shown on the cards.

    Attributes
    ----------
    column : str
    label : mapping of language to text
    unit : str
    decimals : int or None
        None: as many as the table has.
    """

    column: str
    label: Local
    unit: str = ""
    decimals: int | None = None


class Language(NamedTuple):
    """Everything that the page says to participants in one language.

    Attributes
    ----------
    code : str
        As in ``<html lang="...">``.
    texts : mapping of key to text
    consent : tuple of str
        Paragraphs.
    """

    code: str
    texts: Mapping[str, str]
    consent: tuple[str, ...] = ()

    def say(self, key: str, **values: Any) -> str:
        """Return a text with its gaps filled."""
        return self.texts[key].format_map(values)


class StudySettings(NamedTuple):
    """What a study shows, and how much of it.

    Attributes
    ----------
    languages : tuple of Language
        The first is the default.
    title : mapping of language to text
    features : tuple of Feature
        What the cards show, in their order; empty: every column.
    images : str or None
        Column with the names of picture files; None: a picture is called as its object.
    sets, set_size : int
    design : str
    threshold : bool
        Whether "none of these" is an answer.
    utilities : int
        Number of criteria to learn.
    participants : int
        Maximum number of participants.
    panel : tuple of str
        Parameters of the link that are kept with a participant.
    completion_url : str or None
        Where participants go when they have finished.
    completion_sets : int or None
        After how many questions they are sent there; None: after all.
    decimal : {".", ","} or None
        The decimal sign of numbers with units in the table; None where it is clear.
    """

    languages: tuple[Language, ...]
    title: Local
    features: tuple[Feature, ...] = ()
    images: str | None = None
    sets: int = 12
    set_size: int = 4
    design: str = "information"
    threshold: bool = True
    utilities: int = 2
    participants: int = 1000
    panel: tuple[str, ...] = PANEL
    completion_url: str | None = None
    decimal: str | None = None
    completion_sets: int | None = None

    @property
    def persons(self) -> tuple[str, ...]:
        """The parameters that name a person: the ones that known panels use, or else the first."""
        return tuple(name for name in self.panel if name in _PERSONS) or self.panel[:1]

    def language(self, code: object = None) -> Language:
        """Return the language with this code, or the default."""
        return next((one for one in self.languages if one.code == code), self.languages[0])


def said(text: Local, code: str) -> str:
    """Return a text in a language, or in the first one that it has.

    Examples
    --------
    >>> said({"en": "Price", "de": "Preis"}, "de")
    'Preis'
    """
    return text.get(code) or next(iter(text.values()))


def default_feature(column: str) -> Feature:
    """Read a label and a unit out of the name of a column.

    Examples
    --------
    >>> default_feature("battery_h").label["en"], default_feature("battery_h").unit
    ('Battery', 'h')
    """
    words = column.replace("_", " ").split() or [column]
    unit = _UNITS.get(words[-1].lower(), "") if len(words) > 1 else ""
    label = " ".join(words[:-1] if unit else words)
    return Feature(column, {"en": label[:1].upper() + label[1:]}, unit)


def read_study(path: str | os.PathLike[str] | None = None, **given: Any) -> StudySettings:
    """Read a study file; without one, return a study with defaults.

    Parameters
    ----------
    path : path, optional
    **given
        Values that replace what the file says, such as ``sets=8``; None for none.

    Examples
    --------
    >>> read_study(sets=8).sets
    8
    """
    file = None if path is None else Path(path)
    table = _table(file)
    folder = Path() if file is None else file.parent
    where = "the study" if file is None else str(file)
    table |= {name: value for name, value in given.items() if value is not None}
    try:
        return _study(table, folder)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{where}: {error}") from error


def _table(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ChoiceGPError(f"cannot read {file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ChoiceGPError(f"{file} is not a TOML file: {error}") from error
    except RecursionError:
        raise ChoiceGPError(f"{file} is not a TOML file that can be read: its brackets are too deep") from None


def _study(table: dict[str, Any], folder: Path) -> StudySettings:
    known = {*StudySettings._fields, "consent", "texts"}
    if unknown := sorted(set(table) - known):
        raise ChoiceGPError(f"there is no setting {listed(unknown)}; the settings are {listed(sorted(known), 20)}")
    codes = table.get("languages", ["en", "de"])
    if not isinstance(codes, list) or not codes or not all(isinstance(one, str) for one in codes):
        raise ChoiceGPError('languages must be a list such as ["en", "de"]')
    languages = tuple(_language(one, table, folder) for one in codes)
    first = languages[0].code
    study = StudySettings(
        languages,
        _local("title", table.get("title", {one.code: one.texts["title"] for one in languages}), first),
        tuple(_feature(one, first) for one in _list("features", table)),
        _optional_text("images", table),
        _number("sets", table, 1, 200),
        _number("set_size", table, 2, 6),
        str(table.get("design", StudySettings._field_defaults["design"])),
        table.get("threshold", True),
        _number("utilities", table, 1, 5),
        _number("participants", table, 1, 1_000_000),
        tuple(table.get("panel", PANEL)),
        _optional_text("completion_url", table),
        _optional_text("decimal", table),
        _number("completion_sets", table, 0, 200) if "completion_sets" in table else None,
    )
    _check(study)
    return study


def _check(study: StudySettings) -> None:
    if study.design not in DESIGNS:
        raise ChoiceGPError(f"there is no design {study.design!r}; use one of {listed(DESIGNS)}")
    if study.decimal not in (None, ".", ","):
        raise ChoiceGPError(f'decimal must be "." or ","; got {study.decimal!r}')
    if not isinstance(study.threshold, bool):
        raise ChoiceGPError("threshold must be true or false")
    if not all(isinstance(name, str) and _PARAMETER.fullmatch(name) for name in study.panel):
        raise ChoiceGPError('panel must be a list of names of parameters, such as ["PROLIFIC_PID"]')
    if study.completion_url is not None and not re.match(r"https?://[^\s]+$", study.completion_url):
        raise ChoiceGPError("completion_url must begin with https:// or http://")


def _list(name: str, table: dict[str, Any]) -> list[Any]:
    value = table.get(name, [])
    if not isinstance(value, list):
        raise ChoiceGPError(f"{name} must be written as [[{name}]], once for each")
    return value


def _number(name: str, table: dict[str, Any], least: int, most: int) -> int:
    value = table.get(name, StudySettings._field_defaults[name])
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ChoiceGPError(f"{name} must be a whole number from {least} to {most}; got {value!r}")
    return value


def _optional_text(name: str, table: dict[str, Any]) -> str | None:
    value = table.get(name)
    if value is not None and not isinstance(value, str):
        raise ChoiceGPError(f"{name} must be a text; got {value!r}")
    return value


def _local(name: str, value: Any, first: str) -> Local:
    if isinstance(value, str) and value:
        return {first: value}
    if isinstance(value, dict) and value and all(isinstance(one, str) and one for one in value.values()):
        return value
    raise ChoiceGPError(f'{name} must be a text, or a text in each language such as {{ en = "Price", de = "Preis" }}')


def _feature(value: Any, first: str) -> Feature:
    known = ("column", "label", "unit", "decimals")
    if not isinstance(value, dict) or not isinstance(value.get("column"), str) or set(value) - set(known):
        raise ChoiceGPError(f"a feature has the settings {listed(known)}, of which column is needed; got {value!r}")
    decimals = value.get("decimals")
    if decimals is not None and (not isinstance(decimals, int) or not 0 <= decimals <= 10):
        raise ChoiceGPError(f"decimals must be a whole number from 0 to 10; got {decimals!r}")
    usual = default_feature(value["column"])
    label = _local("label", value["label"], first) if "label" in value else usual.label
    return Feature(value["column"], label, str(value.get("unit", usual.unit)), decimals)


def _language(name: str, table: dict[str, Any], folder: Path) -> Language:
    """Return an included language by its code, or another by its file."""
    included = files("choicegp.apps.server") / "texts"
    needed = tomllib.loads((included / "en.toml").read_text(encoding="utf-8"))
    if name.endswith(".toml"):
        code, own = Path(name).stem, _table(folder / name)
    elif name in ("en", "de"):
        code, own = name, tomllib.loads((included / f"{name}.toml").read_text(encoding="utf-8"))
    else:
        raise ChoiceGPError(f"there are no texts in {name!r}: name a file of your own, such as {name}.toml")
    if not _CODE.fullmatch(code):
        raise ChoiceGPError(f"{code!r} is not the code of a language, such as en or pt-BR")
    changed = table.get("texts", {}).get(code, {})
    texts = {**own, **changed}
    if missing := sorted(set(needed) - set(texts)):
        raise ChoiceGPError(f"the texts in {name!r} lack {listed(missing, 20)}")
    if unknown := sorted(set(texts) - set(needed)):
        raise ChoiceGPError(f"the texts in {name!r} hold {listed(unknown)}, which the page does not use")
    for key, text in texts.items():
        _check_gaps(name, key, text, needed[key])
    return Language(code, texts, _consent(table.get("consent"), code, folder))


def _check_gaps(name: str, key: str, text: Any, model: str) -> None:
    """Refuse a text with gaps that nobody fills."""
    allowed = {gap for _, gap, _, _ in Formatter().parse(model) if gap is not None}
    try:
        found = [(gap, how, turned) for _, gap, how, turned in Formatter().parse(str(text)) if gap is not None]
    except ValueError as error:
        raise ChoiceGPError(f"the text {key!r} in {name!r} cannot be filled: {error}") from None
    # Neither attributes nor formats: a text is a text.
    if any(gap not in allowed or how or turned for gap, how, turned in found):
        names = listed(sorted(f"{{{gap}}}" for gap in allowed)) or "none"
        raise ChoiceGPError(f"the text {key!r} in {name!r} has a gap that is not filled; allowed: {names}")


def _consent(value: Any, code: str, folder: Path) -> tuple[str, ...]:
    if isinstance(value, dict):
        value = value.get(code)
    if value is None:
        return ()
    try:
        text = (folder / str(value)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChoiceGPError(f"cannot read the consent text {value!r}: {error}") from error
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip())
