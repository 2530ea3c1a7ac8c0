"""Approval ballots of PrefLib: files of categorical preferences (.cat) become choices."""

import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from choicegp.checks import listed, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect, ReadingWarning

_HEADER = re.compile(r"#\s*([A-Z ]+?)\s*(\d*)\s*:\s*(.*?)\s*$")
_BALLOT = re.compile(r"(\d+)\s*:\s*(.*)$")
_CATEGORY = r"(?:\{[\d\s,]*\}|\d+)"
_CATEGORIES = re.compile(rf"{_CATEGORY}(?:\s*,\s*{_CATEGORY})*$")


class _Ballot(NamedTuple):
    """How many people sorted the alternatives in this way: the numbers of the alternatives of each category."""

    row: int
    voters: int
    categories: list[list[int]]


def load_preflib(
    path: str | os.PathLike[str], features: pd.DataFrame | None = None, *, approved: int = 1
) -> ChoiceData:
    r"""Load approval ballots from a file of PrefLib with categories (.cat).

    A ballot is a choice from the alternatives that it names: those in the first categories are kept. A ballot that
    approves nothing is an answer too. Equal ballots are one set, whose weight is the number of voters.

    Parameters
    ----------
    path : path
        The file, as https://www.preflib.org publishes it.
    features : DataFrame, optional
        The features of the alternatives, one row each, with their names as index. The files have none; by default
        the only feature is the alternative itself, which no model can carry over to other alternatives.
    approved : int
        How many categories, from the first, count as approval.

    Returns
    -------
    ChoiceData
        The object ids are the names of the alternatives; a name that stands for several gets the number of each.

    Examples
    --------
    >>> lines = ["# DATA TYPE: cat", "# ALTERNATIVE NAME 1: Park", "# ALTERNATIVE NAME 2: Road"]
    >>> _ = Path("town.cat").write_text("\n".join([*lines, "7: 1, 2", "2: {1, 2}, {}", "1: {}, {1, 2}"]))
    >>> data = load_preflib("town.cat", pd.DataFrame({"cost": [3, 5]}, index=["Park", "Road"]))
    >>> [data.object_ids[rows].tolist() for rows in data.chosen], data.weights.tolist()
    ([['Park'], ['Park', 'Road'], []], [7.0, 2.0, 1.0])
    """
    whole_number("approved", approved, 1)
    path = Path(path)
    names, ballots = _read(path)
    found = max(len(ballot.categories) for ballot in ballots)
    if approved > found:
        raise ChoiceGPError(f"{path} has {found} categories: pass a smaller number than approved={approved}")
    shown = [[names[i] for category in ballot.categories for i in category] for ballot in ballots]
    kept = [[names[i] for category in ballot.categories[:approved] for i in category] for ballot in ballots]
    weights = [float(ballot.voters) for ballot in ballots]
    ids = list(names.values())
    with warnings.catch_warnings():
        if features is None:
            # That every object has a word of its own is meant here.
            warnings.simplefilter("ignore", ReadingWarning)
            table = pd.DataFrame({"alternative": ids}, index=ids)
        else:
            table = _checked(features, ids, path)
        return ChoiceData.from_sets(table, shown, kept, by="id", weights=weights, empty="none")


def _checked(features: pd.DataFrame, ids: list[str], path: Path) -> pd.DataFrame:
    if not isinstance(features, pd.DataFrame):
        raise ChoiceGPError("features must be a DataFrame whose index holds the names of the alternatives")
    missing = [name for name in ids if name not in features.index]
    if missing:
        raise ChoiceGPError(
            f"features has no row for {listed(missing)}, which {path} names. Its index must hold the names of all "
            "alternatives"
        )
    return features


def _read(path: Path) -> tuple[dict[int, str], list[_Ballot]]:
    """Return the names of the alternatives by number, and the ballots; or raise with every defect and its line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ChoiceGPError(f"{path} cannot be read: {error}") from error
    names: dict[int, str] = {}
    ballots: list[_Ballot] = []
    defects: list[Defect] = []
    for row, line in enumerate(map(str.strip, lines), start=1):
        header = _HEADER.match(line)
        if header is not None:
            what, number, value = header.groups()
            if what == "DATA TYPE" and value != "cat":
                raise ChoiceGPError(
                    f"{path} holds data of the type {value!r}, not ballots with categories (cat). Pass rankings to "
                    "ChoiceData.from_rankings"
                )
            if what == "ALTERNATIVE NAME" and number:
                names[int(number)] = value
        elif line and not line.startswith("#"):
            ballot = _ballot(row, line)
            if isinstance(ballot, Defect):
                defects.append(ballot)
            else:
                ballots.append(ballot)
    for ballot in ballots:
        defects += _wrong(ballot, names)
    if defects:
        raise ChoiceDataError(sorted(defects, key=lambda defect: defect.row or 0), source=f"{path} (rows are lines)")
    if not ballots or not names:
        lacks = "ballots" if names else "names of alternatives"
        raise ChoiceGPError(f"{path} has no {lacks}. Pass a file of PrefLib with categories (.cat)")
    times = Counter(names.values())
    return {i: name if times[name] == 1 else f"{name} ({i})" for i, name in sorted(names.items())}, ballots


def _ballot(row: int, line: str) -> _Ballot | Defect:
    parts = _BALLOT.match(line)
    if parts is None or int(parts[1]) == 0 or not _CATEGORIES.match(parts[2]):
        problem = f"a ballot is written as in '12: {{1,4}},{{2,3}}', with the number of voters first; got {line[:60]!r}"
        return Defect("wrong-ballot", problem, row=row)
    categories = re.findall(_CATEGORY, parts[2])
    return _Ballot(row, int(parts[1]), [[int(i) for i in re.findall(r"\d+", category)] for category in categories])


def _wrong(ballot: _Ballot, names: dict[int, str]) -> list[Defect]:
    """Report alternatives that have no name, or that one ballot has twice, and ballots without alternatives."""
    times = Counter(i for category in ballot.categories for i in category)
    found = [
        Defect("unknown-object", "the alternative has no name in the file", row=ballot.row, object=i)
        for i in times
        if i not in names
    ]
    found += [
        Defect("duplicate-object", "the ballot has the alternative twice", row=ballot.row, object=i)
        for i, n in times.items()
        if n > 1
    ]
    if not times:
        found.append(Defect("empty-set", "the ballot names no alternative", row=ballot.row))
    return found
