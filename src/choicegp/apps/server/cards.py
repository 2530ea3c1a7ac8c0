"""Objects as people see them: cards with a picture, a name and features with their units."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from choicegp.apps.server.study_file import Feature, StudySettings, default_feature, said
from choicegp.checks import listed, plain
from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    import pandas as pd

PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
_BEFORE = ("€", "$", "£")
_CLOSE = ("″", "′", "°", '"')
_SPACE = "\N{NO-BREAK SPACE}"
_LONGEST_IMAGE = 10 * 2**20
_MOST_DECIMALS = 3
_LONGEST_NAME = 255  # bytes of a file's name


class Fact(NamedTuple):
    """One line of a card; ``same`` says whether all cards beside it have the same value."""

    label: str
    value: str
    same: bool


class Card(NamedTuple):
    """One object as it is shown; ``image`` is the number of its picture."""

    place: int
    name: str
    image: int | None
    facts: tuple[Fact, ...]


def learned_from(objects: "pd.DataFrame", columns: Sequence[str], decimal: str | None) -> "pd.DataFrame":
    """Return the features that a model sees: those on the cards, with numbers where a cell holds one and a unit."""
    table = objects[list(columns)].copy()
    for name in columns:
        found = {sign: numbers for sign in ".," if (numbers := _numbers(table[name], sign)) is not None}
        if decimal is None and len(found) == 2 and not found["."].equals(found[","]):
            example = next(value for value, a, b in zip(table[name], found["."], found[","], strict=True) if a != b)
            raise ChoiceGPError(
                f"{name!r} holds {example!r}, of which the sign may separate decimals or thousands: "
                'add decimal = "." or decimal = "," to the study file'
            )
        if found:
            table[name] = found.get(decimal or "", next(iter(found.values())))
    return table


def _numbers(column: "pd.Series", sign: str) -> "pd.Series | None":
    from choicegp.reading.cells import read_numbers

    try:
        numbers = read_numbers(column, sign)
    except ChoiceGPError:
        return None
    return numbers if numbers.dtype.kind in "iuf" else None


def shown_features(objects: "pd.DataFrame", study: StudySettings) -> tuple[Feature, ...]:
    """Return what the cards show: the study's own features, or every column but the one with pictures."""
    names = [str(name) for name in objects.columns]
    if missing := [one.column for one in study.features if one.column not in names]:
        raise ChoiceGPError(
            f"the study shows {listed(missing)}, which the table lacks; its columns are {listed(names)}"
        )
    if study.images is not None and study.images not in names:
        raise ChoiceGPError(f"there is no column {study.images!r} with pictures; the columns are {listed(names)}")
    return study.features or tuple(default_feature(name) for name in names if name != study.images)


class Cards:
    """The catalogue of a study as cards.

    Parameters
    ----------
    objects : DataFrame
    study : StudySettings
    images : path, optional
        Folder of pictures: ``<id>.png`` and so on, or the names in the study's column of images.
    """

    def __init__(
        self, objects: "pd.DataFrame", study: StudySettings, images: str | os.PathLike[str] | None = None
    ) -> None:
        self.features = shown_features(objects, study)
        self.ids: list[str | int] = [plain(label) for label in objects.index]
        self._rows = {label: row for row, label in enumerate(self.ids)}
        self._values = {one.column: [plain(value) for value in objects[one.column].tolist()] for one in self.features}
        self._decimals = {one.column: _decimals(one, self._values[one.column]) for one in self.features}
        names = objects[study.images].tolist() if study.images is not None else [None] * len(self.ids)
        folder = None if images is None else Path(images).resolve()
        if folder is not None and not folder.is_dir():
            raise ChoiceGPError(f"there is no folder {images} with pictures")
        self.pictures: dict[int, Path] = {}
        for row, (label, name) in enumerate(zip(self.ids, names, strict=True)):
            if folder is not None and (found := _picture(folder, label, name)) is not None:
                self.pictures[row] = found

    def of(self, shown: Sequence[str | int], code: str) -> list[Card]:
        """Return the cards of a set, in its order."""
        rows = [self._rows[label] for label in shown]
        values = {one.column: [self._said(one, row, code) for row in rows] for one in self.features}
        return [
            Card(
                place,
                str(self.ids[row]),
                row if row in self.pictures else None,
                tuple(
                    Fact(said(one.label, code), values[one.column][place], len(set(values[one.column])) == 1)
                    for one in self.features
                ),
            )
            for place, row in enumerate(rows)
        ]

    def value(self, column: str, value: Any, code: str) -> str:
        """Return a value of a column in words, with its unit."""
        feature = next(one for one in self.features if one.column == column)
        return in_words(feature, value, self._decimals[column], code)

    def label(self, column: str, code: str) -> str:
        """Return what a column is called."""
        return said(next(one.label for one in self.features if one.column == column), code)

    def _said(self, feature: Feature, row: int, code: str) -> str:
        return in_words(feature, self._values[feature.column][row], self._decimals[feature.column], code)


def in_words(feature: Feature, value: Any, decimals: int, code: str) -> str:
    r"""Write a value as people of a language do, with its unit.

    Examples
    --------
    >>> in_words(default_feature("price_eur"), 1549, 0, "en"), in_words(default_feature("weight_kg"), 1.25, 2, "de")
    ('€1,549', '1,25\xa0kg')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = str(value)
    else:
        text = f"{value:,.{decimals}f}"
        if code.startswith("de"):
            text = text.translate(str.maketrans(",.", ".,"))
    if not feature.unit:
        return text
    if feature.unit in _BEFORE and code.startswith("en"):
        return f"{feature.unit}{text}"
    return f"{text}{'' if feature.unit in _CLOSE else _SPACE}{feature.unit}"


def _decimals(feature: Feature, values: list[Any]) -> int:
    """Return how many decimals the numbers of a column need."""
    if feature.decimals is not None:
        return feature.decimals
    numbers = [one for one in values if isinstance(one, float) and math.isfinite(one)]
    for n in range(_MOST_DECIMALS):
        if all(math.isclose(round(one, n), one, rel_tol=1e-9, abs_tol=1e-9 * abs(one)) for one in numbers):
            return n
    return _MOST_DECIMALS


def _picture(folder: Path, label: str | int, name: Any) -> Path | None:
    """Return the picture of an object, if it is in the folder; nothing outside is ever served."""
    named = [str(name)] if isinstance(name, str) and name else [f"{label}{ending}" for ending in PICTURES]
    for one in named:
        if "\0" in one or len(one.encode()) > _LONGEST_NAME:
            continue
        path = (folder / one).resolve()
        if path.is_relative_to(folder) and path.suffix.lower() in PICTURES and path.is_file():
            if path.stat().st_size > _LONGEST_IMAGE:
                raise ChoiceGPError(f"the picture {path.name} is larger than {_LONGEST_IMAGE // 2**20} MiB; shrink it")
            return path
    return None
