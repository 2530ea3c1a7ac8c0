"""Tables of measured outputs, and choice data published as files.

The files are not part of the package: the loaders read them from a folder, given as an argument or by the
environment variable CHOICEGP_DATA.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import brief, plain
from choicegp.data.choices import ChoiceData
from choicegp.data.pareto import Ties, check_utilities
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading.defects import OnError
from choicegp.reading.text import read_rows

FOLDER_VARIABLE = "CHOICEGP_DATA"


@dataclass(frozen=True, eq=False)
class ObjectTable:
    """Objects with features and measured outputs, from which choices can be made.

    Parameters
    ----------
    name : str
    X : DataFrame of shape (t, c)
        The features; the index holds the objects' ids.
    U : ndarray of shape (t, k)
        The outputs, with signs such that higher is better.
    output_names : tuple of str
        What was measured, one name per column of `U` (without the sign).

    Examples
    --------
    >>> X = pd.DataFrame({"power": [1.0, 2.0, 3.0]})
    >>> table = ObjectTable("engines", X, [[3, 1], [2, 0], [1, 2]], ("range", "speed"))
    >>> table.choices([[0, 1, 2]]).chosen[0].tolist()
    [0, 2]
    """

    name: str
    X: pd.DataFrame
    U: np.ndarray
    output_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.X, pd.DataFrame):
            raise ChoiceGPError(f"{self.name}: X must be a DataFrame whose index holds the objects' ids")
        U = check_utilities(self.U, len(self.X))
        if U.shape[1] != len(self.output_names):
            raise ChoiceGPError(
                f"{self.name}: U has {U.shape[1]} columns, but {len(self.output_names)} outputs are named"
            )
        U.flags.writeable = False
        object.__setattr__(self, "U", U)
        object.__setattr__(self, "output_names", tuple(self.output_names))

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Sequence[int] | np.ndarray) -> "ObjectTable":
        """Return the table of some rows; the objects keep their ids."""
        wanted = np.asarray(rows)
        if wanted.ndim != 1 or not np.issubdtype(wanted.dtype, np.integer):
            raise ChoiceGPError(f"{self.name}: rows must be a list of row numbers, not {rows!r}")
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if outside.size:
            raise ChoiceGPError(f"{self.name} has rows 0 to {len(self) - 1}, no row {outside[0]}")
        return ObjectTable(self.name, self.X.iloc[wanted], self.U[wanted], self.output_names)

    def choices(self, shown: Sequence[Sequence[int] | np.ndarray] | np.ndarray, ties: Ties = "weak") -> ChoiceData:
        """Choose what is Pareto-undominated from each set of row numbers, without noise.

        `ties` says when an object dominates another: at "weak" when no output is worse and one is better,
        at "strict" when every output is better.
        """
        return ChoiceData.from_utilities(self.X, self.U, shown, ties=ties)


class SinCosFiles(NamedTuple):
    """Training sets of the paper's Example 1 and two kinds of test sets.

    Attributes
    ----------
    train : ChoiceData
    known : ChoiceData
        Test sets of the training objects.
    new : ChoiceData
        Test sets of objects that were never shown in training.
    """

    train: ChoiceData
    known: ChoiceData
    new: ChoiceData


def load_am(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load am.csv: 50 prints of a 3D printer, 6 features (the material is a category), 3 outputs.

    Better is a lower roughness, a higher tension strength and a lower elongation, as the paper's authors
    have it.

    Examples
    --------
    All loaders of tables are used in this way::

        table = load_am("my/tables")
        data = table.choices(all_pairs(len(table)))
        first_fifty = table.take(range(50))
    """
    features = ["layer_height", "nozzle_temperature", "bed_temperature", "print_speed", "material", "fan_speed"]
    signs = {"roughness": -1, "tension_strength": 1, "elongation": -1}
    return _load_table("am", folder, features, signs, text={"material"})


def load_edm(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load edm.csv: 30 runs of electrical discharge machining, 4 features, 3 outputs.

    Better is a higher material removal rate, a lower electrode wear rate and a lower roughness. The centre
    of the design is repeated: rows with equal features have different outputs.
    """
    features = ["voltage_v", "current_a", "pulse_on_us", "pulse_off_us"]
    return _load_table("edm", folder, features, {"mrr_g_min": 1, "ewr_g_min": -1, "roughness_um": -1})


def load_jura(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load jura.csv: 359 soil samples, 6 features, 3 outputs: heavy metals, of which less is better."""
    features = ["Xloc", "Yloc", "Cr", "Ni", "Pb", "Zn"]
    return _load_table("jura", folder, features, {"Cd": -1, "Co": -1, "Cu": -1})


def load_slump(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load slump.csv: 103 mixtures of concrete, 7 features, 3 outputs, of which more is better."""
    features = ["cement", "slag", "fly_ash", "water", "sp", "coarse_aggr", "fine_aggr"]
    signs = {"slump_cm": 1, "flow_cm": 1, "compressive_strength_mpa": 1}
    return _load_table("slump", folder, features, signs)


def load_sincos(folder: str | os.PathLike[str] | None = None) -> SinCosFiles:
    """Load sincos.json: the paper's Example 1, 150 sets of 3 out of 200 objects, and 2 x 1000 test sets.

    The new objects have ids of their own, which follow the ids of the training objects.
    """
    path = _file(folder, "sincos.json")
    keys = ["X", "shown", "chosen", "test_shown", "test_chosen", "X_new", "new_shown", "new_chosen"]
    X, shown, chosen, test_shown, test_chosen, X_new, new_shown, new_chosen = _read_json(path, keys)
    table = _one_feature(path, "X", X, first_id=0)
    new_table = _one_feature(path, "X_new", X_new, first_id=len(X))
    return SinCosFiles(
        ChoiceData.from_sets(table, shown, chosen),
        ChoiceData.from_sets(table, test_shown, test_chosen),
        ChoiceData.from_sets(new_table, new_shown, new_chosen),
    )


def load_ellipses(folder: str | os.PathLike[str] | None = None, on_error: OnError = "raise") -> ChoiceData:
    """Load the choices of a real person among fifty ellipses: 160 sets of 3.

    Two records (79 and 82, counted from 0) choose an object that was not shown.

    Parameters
    ----------
    folder : path, optional
        Where ellipses_objects.csv and ellipses_choices.json are.
    on_error : {"raise", "skip"}
        Refuse the data and name every bad record, or leave those records out with a warning
        (the result's ``skipped`` names them).

    Examples
    --------
    ::

        data = load_ellipses("my/tables", on_error="skip")
    """
    features = ["a", "b", "rotation", "ecc_sq", "perimeter"]
    objects = _read_csv(_file(folder, "ellipses_objects.csv"), ["object_id", *features])
    path = _file(folder, "ellipses_choices.json")
    shown, chosen = _read_json(path, ["shown", "chosen"])
    X = objects.set_index("object_id")[features]
    try:
        return ChoiceData.from_sets(X, shown, chosen, by="id", on_error=on_error)
    except ChoiceDataError as error:
        raise ChoiceDataError(error.defects, source=str(path)) from None


class Ballots(NamedTuple):
    """What voters approved, and what they said about themselves.

    Attributes
    ----------
    data : ChoiceData
        One set of all projects for each voter, who is its respondent.
    voters : DataFrame
        Stated weights of the topics (they sum to 100) and the own district, indexed by voter.
    """

    data: ChoiceData
    voters: pd.DataFrame

    def __repr__(self) -> str:
        return brief(self)


def load_zurich(folder: str | os.PathLike[str] | None = None) -> Ballots:
    """Load approval ballots of 180 people over 24 projects of a city (Yang et al. 2024, by way of Pabulib).

    Each voter saw all projects and ticked any number of them (the format SN of the table).

    Parameters
    ----------
    folder : path, optional
        Where zurich_projects.csv and zurich_ballots.csv are.

    Examples
    --------
    ::

        ballots = load_zurich("my/tables")
    """
    projects = _read_csv(
        _file(folder, "zurich_projects.csv"), ["project", "cost_chf", "topic", "district"], ("topic", "district")
    )
    X = projects.set_index("project")[["cost_chf", "topic", "district"]]
    columns = ["weight_transport", "weight_culture", "weight_nature"]
    path = _file(folder, "zurich_ballots.csv")
    text = ("voter", "format", "projects", "own_district")
    ballots = _read_csv(path, [*text, *columns], text)
    free = ballots[ballots["format"] == "SN"].set_index("voter")
    ticked = [[int(number) for number in str(ticks).split()] for ticks in free["projects"]]
    try:
        data = ChoiceData.from_sets(
            X, [list(X.index)] * len(free), ticked, by="id", respondents=free.index.to_numpy(dtype=object), empty="none"
        )
    except ChoiceDataError as error:
        raise ChoiceDataError(error.defects, source=str(path)) from None
    return Ballots(data, free[[*columns, "own_district"]])


def _load_table(
    name: str,
    folder: str | os.PathLike[str] | None,
    features: Sequence[str],
    signs: Mapping[str, int],
    text: Collection[str] = (),
) -> ObjectTable:
    """Read one table of measured outputs; `signs` gives +1 to outputs of which more is better."""
    frame = _read_csv(_file(folder, f"{name}.csv"), [*features, *signs], text)
    U = frame[list(signs)].to_numpy(dtype=float) * np.array(list(signs.values()))
    return ObjectTable(name, frame[list(features)], U, tuple(signs))


def _one_feature(path: Path, key: str, rows: list[Any], first_id: int) -> pd.DataFrame:
    try:
        x = np.array(rows, dtype=float).reshape(len(rows), 1)
    except (TypeError, ValueError):
        raise ChoiceGPError(f"{path}: {key} must hold one number per object") from None
    return pd.DataFrame(x, columns=["x"], index=range(first_id, first_id + len(x)))


def _file(folder: str | os.PathLike[str] | None, filename: str) -> Path:
    source = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if not source:
        raise ChoiceGPError(
            f"the folder of {filename} is not known; pass it, as in load(folder=...), "
            f"or set the environment variable {FOLDER_VARIABLE} to it"
        )
    path = Path(source) / filename
    if not path.is_file():
        by = "folder=" if folder is not None else f"the environment variable {FOLDER_VARIABLE}"
        raise ChoiceGPError(f"{filename} is not in {Path(source)}: check {by}, and that the file was copied there")
    return path


def _read_csv(path: Path, columns: Sequence[str], text: Collection[str] = ()) -> pd.DataFrame:
    """Read some columns; those not in `text` must be finite numbers."""
    frame, rows = read_rows(path)
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ChoiceGPError(f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, frame))}")
    defects = []
    for column in columns:
        kind, what = ("missing", "is empty") if column in text else ("not-a-number", "is not a number")
        values = frame[column] if column in text else pd.to_numeric(frame[column], errors="coerce")
        wrong = values.isna() if column in text else ~np.isfinite(values.to_numpy(dtype=float))
        problems = (f"{column} {what}: {plain(value)!r}" for value in frame[column][wrong])
        defects += [Defect(kind, problem, row=row) for problem, row in zip(problems, rows[wrong].tolist(), strict=True)]
    if defects:
        raise ChoiceDataError(defects, source=str(path))
    return frame[list(columns)]


def _read_json(path: Path, keys: Sequence[str]) -> list[list[Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChoiceGPError(f"{path} cannot be read as JSON: {error}") from error
    missing = [key for key in keys if not isinstance(content, dict) or not isinstance(content.get(key), list)]
    if missing:
        raise ChoiceGPError(f"{path} lacks the lists {', '.join(missing)}: it is not the file expected here")
    return [content[key] for key in keys]
