"""Tables of measured outputs, published as files.

The files are not part of the package: the loaders read them from a folder, given as an argument or by the
environment variable CHOICEGP_DATA.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from choicegp.checks import plain
from choicegp.data.choices import ChoiceData
from choicegp.data.pareto import Ties, check_utilities
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
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
        """Return the table of some rows; the objects keep their ids.

        Parameters
        ----------
        rows : sequence of int

        Returns
        -------
        ObjectTable
        """
        wanted = np.asarray(rows)
        if wanted.ndim != 1 or not np.issubdtype(wanted.dtype, np.integer):
            raise ChoiceGPError(f"{self.name}: rows must be a list of row numbers, not {rows!r}")
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if outside.size:
            raise ChoiceGPError(f"{self.name} has rows 0 to {len(self) - 1}, no row {outside[0]}")
        return ObjectTable(self.name, self.X.iloc[wanted], self.U[wanted], self.output_names)

    def choices(self, shown: Sequence[Sequence[int] | np.ndarray] | np.ndarray, ties: Ties = "weak") -> ChoiceData:
        """Choose what is Pareto-undominated from each set of row numbers, without noise.

        Parameters
        ----------
        shown : sequence of sequences of int
            Row numbers of each set.
        ties : {"weak", "strict"}
            When an object dominates another: no output is worse and one is better, or every output is better.

        Returns
        -------
        ChoiceData
        """
        return ChoiceData.from_utilities(self.X, self.U, shown, ties=ties)


def load_am(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load am.csv: 50 prints of a 3D printer, 6 features (the material is a category), 3 outputs.

    Better is a lower roughness, a higher tension strength and a lower elongation, as the paper's authors
    have it.

    Parameters
    ----------
    folder : path, optional
        Where am.csv is; by default the folder that the environment variable CHOICEGP_DATA names.

    Returns
    -------
    ObjectTable
        ``X`` (50, 6) and ``U`` (50, 3).

    Examples
    --------
    A file with two rows instead of the published one:

    >>> columns = "layer_height nozzle_temperature bed_temperature print_speed material fan_speed".split()
    >>> columns += ["roughness", "tension_strength", "elongation"]
    >>> one, other = [0.1, 220, 60, 40, "abs", 0, 25, 18, 1.2], [0.2, 225, 65, 40, "pla", 50, 32, 16, 1.4]
    >>> pd.DataFrame([one, other], columns=columns).to_csv("am.csv", index=False)
    >>> load_am(".").choices([[0, 1]]).chosen
    (array([0]),)
    """
    features = ["layer_height", "nozzle_temperature", "bed_temperature", "print_speed", "material", "fan_speed"]
    signs = {"roughness": -1, "tension_strength": 1, "elongation": -1}
    return _load_table("am", folder, features, signs, text={"material"})


def load_edm(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load edm.csv: 30 runs of electrical discharge machining, 4 features, 3 outputs.

    Better is a higher material removal rate, a lower electrode wear rate and a lower roughness. The centre
    of the design is repeated: rows with equal features have different outputs.

    Parameters
    ----------
    folder : path, optional
        Where edm.csv is; by default the folder that the environment variable CHOICEGP_DATA names.

    Returns
    -------
    ObjectTable
        ``X`` (30, 4) and ``U`` (30, 3).

    Examples
    --------
    A file with two rows instead of the published one:

    >>> columns = "voltage_v current_a pulse_on_us pulse_off_us mrr_g_min ewr_g_min roughness_um".split()
    >>> one, other = [70, 8, 10, 7, 0.23, 0.003, 11.6], [70, 16, 10, 7, 0.46, 0.008, 12.1]
    >>> pd.DataFrame([one, other], columns=columns).to_csv("edm.csv", index=False)
    >>> load_edm(".").choices([[0, 1]]).chosen
    (array([0, 1]),)
    """
    features = ["voltage_v", "current_a", "pulse_on_us", "pulse_off_us"]
    return _load_table("edm", folder, features, {"mrr_g_min": 1, "ewr_g_min": -1, "roughness_um": -1})


def load_jura(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load jura.csv: 359 soil samples, 6 features, 3 outputs: heavy metals, of which less is better.

    Parameters
    ----------
    folder : path, optional
        Where jura.csv is; by default the folder that the environment variable CHOICEGP_DATA names.

    Returns
    -------
    ObjectTable
        ``X`` (359, 6) and ``U`` (359, 3).

    Examples
    --------
    A file with two rows instead of the published one:

    >>> columns = "Xloc Yloc Cr Ni Pb Zn Cd Co Cu".split()
    >>> one, other = [2.4, 3.1, 38, 21, 77, 92, 1.7, 9.3, 25.7], [2.5, 1.9, 40, 29, 78, 73, 1.3, 8.1, 24.8]
    >>> pd.DataFrame([one, other], columns=columns).to_csv("jura.csv", index=False)
    >>> load_jura(".").choices([[0, 1]]).chosen
    (array([1]),)
    """
    features = ["Xloc", "Yloc", "Cr", "Ni", "Pb", "Zn"]
    return _load_table("jura", folder, features, {"Cd": -1, "Co": -1, "Cu": -1})


def load_slump(folder: str | os.PathLike[str] | None = None) -> ObjectTable:
    """Load slump.csv: 103 mixtures of concrete, 7 features, 3 outputs, of which more is better.

    Parameters
    ----------
    folder : path, optional
        Where slump.csv is; by default the folder that the environment variable CHOICEGP_DATA names.

    Returns
    -------
    ObjectTable
        ``X`` (103, 7) and ``U`` (103, 3).

    Examples
    --------
    A file with two rows instead of the published one:

    >>> columns = "cement slag fly_ash water sp coarse_aggr fine_aggr slump_cm flow_cm compressive_strength_mpa".split()
    >>> one, other = [273, 82, 105, 210, 9, 904, 680, 23, 62, 35], [163, 149, 191, 180, 12, 843, 746, 0, 20, 41.1]
    >>> pd.DataFrame([one, other], columns=columns).to_csv("slump.csv", index=False)
    >>> load_slump(".").choices([[0, 1]]).chosen
    (array([0, 1]),)
    """
    features = ["cement", "slag", "fly_ash", "water", "sp", "coarse_aggr", "fine_aggr"]
    signs = {"slump_cm": 1, "flow_cm": 1, "compressive_strength_mpa": 1}
    return _load_table("slump", folder, features, signs)


def _load_table(
    name: str,
    folder: str | os.PathLike[str] | None,
    features: Sequence[str],
    signs: Mapping[str, int],
    text: Collection[str] = (),
) -> ObjectTable:
    """Read one table of measured outputs; `signs` gives +1 to outputs of which more is better."""
    frame = read_columns(file_in(folder, f"{name}.csv"), [*features, *signs], text)
    U = frame[list(signs)].to_numpy(dtype=float) * np.array(list(signs.values()))
    return ObjectTable(name, frame[list(features)], U, tuple(signs))


def file_in(folder: str | os.PathLike[str] | None, filename: str) -> Path:
    """Return the path of a published file, or an error that says where it was sought."""
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


def read_columns(path: Path, columns: Sequence[str], text: Collection[str] = ()) -> pd.DataFrame:
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
