"""Approval ballots of PrefLib: files of categorical preferences (.cat) become choices."""

import os
import re
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import pandas as pd

from choicegp.checks import check_one_of, counted, listed, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect, ReadingWarning
from choicegp.reading.defects import OnError

Unnamed = Literal["absent", "rejected"]

_HEADER = re.compile(r"#\s*([A-Z ]+?)\s*(\d*)\s*:\s*(.*?)\s*$")
_BALLOT = re.compile(r"(\d+)\s*:\s*(.*)$")
_CATEGORY = r"(?:\{[\d\s,]*\}|\d+)"
_UNNAMED = 'leave out what was not approved, pass unnamed="rejected"'
_ADVICE = {"empty-set": f"where ballots {_UNNAMED}; to leave such ballots out, pass on_error='skip'"}
_CATEGORIES = re.compile(rf"{_CATEGORY}(?:\s*,\s*{_CATEGORY})*$")


class _Ballot(NamedTuple):
    """How many people sorted the alternatives in this way: the numbers of the alternatives of each category."""

    row: int
    voters: int
    categories: list[list[int]]

    def named(self, n_categories: int | None = None) -> list[int]:
        """Return the alternatives of these categories, from the first; by default of all."""
        return [i for category in self.categories[:n_categories] for i in category]


def load_preflib(
    path: str | os.PathLike[str],
    features: pd.DataFrame | None = None,
    *,
    approved: int = 1,
    unnamed: Unnamed = "absent",
    on_error: OnError = "raise",
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
    unnamed : {"absent", "rejected"}
        What the alternatives are that a ballot does not name. "absent": they were not shown. "rejected": they were
        shown and not kept, which is what files mean that leave out what was not approved.
    on_error : {"raise", "skip"}
        Raise an error that names every defect with its line, or leave the defective ballots out (see ``skipped``).

    Returns
    -------
    ChoiceData
        The object ids are the names of the alternatives; a name that stands for several gets the number of each.

    Raises
    ------
    ChoiceGPError
        Also where no ballot rejects anything, since then the file was probably made for ``unnamed="rejected"``.

    Examples
    --------
    >>> lines = ["# DATA TYPE: cat", "# ALTERNATIVE NAME 1: Park", "# ALTERNATIVE NAME 2: Road"]
    >>> _ = Path("town.cat").write_text("\n".join([*lines, "7: 1, 2", "2: {1, 2}, {}", "1: {}, {1, 2}"]))
    >>> data = load_preflib("town.cat", pd.DataFrame({"cost": [3, 5]}, index=["Park", "Road"]))
    >>> [data.object_ids[rows].tolist() for rows in data.chosen], data.weights.tolist()
    ([['Park'], ['Park', 'Road'], []], [7.0, 2.0, 1.0])
    """
    whole_number("approved", approved, 1)
    check_one_of("unnamed", unnamed, get_args(Unnamed))
    check_one_of("on_error", on_error, get_args(OnError))
    path = Path(path)
    names, ballots, skipped = _read(path, unnamed, on_error)
    found = max(len(ballot.categories) for ballot in ballots)
    if approved > found:
        raise ChoiceGPError(f"{path} has {found} categories: pass a smaller number than approved={approved}")
    ids = list(names.values())
    shown = [ids if unnamed == "rejected" else [names[i] for i in ballot.named()] for ballot in ballots]
    kept = [[names[i] for i in ballot.named(approved)] for ballot in ballots]
    if all(len(one) == len(all_of_it) for one, all_of_it in zip(kept, shown, strict=True)):
        raise ChoiceGPError(_nothing_rejected(path, approved, unnamed))
    weights = [float(ballot.voters) for ballot in ballots]
    with warnings.catch_warnings():
        if features is None:
            # That every object has a word of its own is meant here.
            warnings.simplefilter("ignore", ReadingWarning)
            table = pd.DataFrame({"alternative": ids}, index=ids)
        else:
            table = _checked(features, ids, path)
        data = ChoiceData.from_sets(table, shown, kept, by="id", weights=weights, empty="none")
    if skipped:
        warnings.warn(
            f"{counted(len(skipped), 'defect')} of {path}: ballots were left out; see data.skipped",
            ReadingWarning,
            stacklevel=2,
        )
    return replace(data, skipped=tuple(skipped))


def _nothing_rejected(path: Path, approved: int, unnamed: Unnamed) -> str:
    """Say that no ballot rejects anything, and which options may read the file as it was meant."""
    parts = [f"{path}: every ballot keeps all that it shows (approved={approved}), so nothing is known to be rejected"]
    if approved > 1:
        parts.append("Pass a smaller number than this")
    if unnamed == "absent":
        parts.append(f"Where ballots {_UNNAMED}")
    return ". ".join(parts)


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


def _read(path: Path, unnamed: Unnamed, on_error: OnError) -> tuple[dict[int, str], list[_Ballot], list[Defect]]:
    """Return the names of the alternatives by number, the ballots, and the defects of those that were left out."""
    names, ballots, defects = _parsed(path)
    for ballot in ballots:
        defects += _wrong(ballot, names, unnamed)
    defects.sort(key=lambda defect: defect.row or 0)
    spoiled = {defect.row for defect in defects}
    kept = [ballot for ballot in ballots if ballot.row not in spoiled]
    if defects and (on_error == "raise" or not kept):
        no_set = "" if on_error == "raise" else ": no ballot is without defects"
        raise ChoiceDataError(defects, f"{path} (rows are lines){no_set}", _ADVICE)
    if not ballots or not names:
        lacks = "ballots" if names else "names of alternatives"
        raise ChoiceGPError(f"{path} has no {lacks}. Pass a file of PrefLib with categories (.cat)")
    times = Counter(names.values())
    unique = {i: name if times[name] == 1 else f"{name} ({i})" for i, name in sorted(names.items())}
    return unique, kept, defects


def _parsed(path: Path) -> tuple[dict[int, str], list[_Ballot], list[Defect]]:
    """Return the names by number, the ballots, and the lines that are none."""
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
    return names, ballots, defects


def _ballot(row: int, line: str) -> _Ballot | Defect:
    parts = _BALLOT.match(line)
    if parts is None or int(parts[1]) == 0 or not _CATEGORIES.match(parts[2]):
        problem = f"a ballot is written as in '12: {{1,4}},{{2,3}}', with the number of voters first; got {line[:60]!r}"
        return Defect("wrong-ballot", problem, row=row)
    categories = re.findall(_CATEGORY, parts[2])
    return _Ballot(row, int(parts[1]), [[int(i) for i in re.findall(r"\d+", category)] for category in categories])


def _wrong(ballot: _Ballot, names: dict[int, str], unnamed: Unnamed) -> list[Defect]:
    """Report alternatives that have no name, or that one ballot has twice, and ballots that show nothing."""
    times = Counter(ballot.named())
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
    if not times and unnamed == "absent":
        found.append(Defect("empty-set", "the ballot names no alternative", row=ballot.row))
    return found
