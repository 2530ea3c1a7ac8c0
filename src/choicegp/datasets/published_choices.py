"""Choices that were published as files; they are sought as the tables of `choicegp.datasets.published` are."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import brief
from choicegp.data.choices import ChoiceData
from choicegp.datasets.published import file_in, read_columns
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.defects import OnError


class SinCosFiles(NamedTuple):
    """Training sets of the paper's Example 1 and two kinds of test sets.

    Attributes
    ----------
    train : ChoiceData
    known : ChoiceData
        Test sets of the training objects.
    new : ChoiceData
        Test sets of objects that were never shown in training.

    Examples
    --------
    As `load_sincos` returns it:

    >>> pair = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]], [[1]])
    >>> len(SinCosFiles(pair, pair, pair).new)
    1
    """

    train: ChoiceData
    known: ChoiceData
    new: ChoiceData


def load_sincos(folder: str | os.PathLike[str] | None = None) -> SinCosFiles:
    """Load sincos.json: the paper's Example 1, 150 sets of 3 out of 200 objects, and 2 x 1000 test sets.

    The new objects have ids of their own, which follow the ids of the training objects.

    Parameters
    ----------
    folder : path, optional
        Where sincos.json is; by default the folder that the environment variable CHOICEGP_DATA names.

    Returns
    -------
    SinCosFiles
        Train, 150 sets; known and new, 1000 sets each.

    Examples
    --------
    A file with one set of each kind instead of the published one:

    >>> names = ["shown", "chosen", "test_shown", "test_chosen", "new_shown", "new_chosen"]
    >>> one = {name: [[0, 1]] if "shown" in name else [[1]] for name in names}
    >>> _ = Path("sincos.json").write_text(json.dumps({"X": [0.0, 1.0], "X_new": [2.0, 3.0], **one}))
    >>> load_sincos(".").new.object_ids.tolist()
    [2, 3]
    """
    path = file_in(folder, "sincos.json")
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

    Returns
    -------
    ChoiceData
        Objects (50, 5): half-axes ``a`` and ``b``, rotation in radians, squared eccentricity, perimeter.

    Examples
    --------
    Files with three ellipses and one set instead of the published ones:

    >>> columns = ["object_id", "a", "b", "rotation", "ecc_sq", "perimeter"]
    >>> rows = [[0, 2.0, 1.0, 0.2, 0.75, 9.7], [1, 1.5, 1.5, 0.0, 0.0, 9.4], [2, 3.0, 1.0, 1.6, 0.89, 13.4]]
    >>> pd.DataFrame(rows, columns=columns).to_csv("ellipses_objects.csv", index=False)
    >>> _ = Path("ellipses_choices.json").write_text('{"shown": [[0, 1, 2]], "chosen": [[1, 2]]}')
    >>> load_ellipses(".").chosen
    (array([1, 2]),)
    """
    features = ["a", "b", "rotation", "ecc_sq", "perimeter"]
    objects = read_columns(file_in(folder, "ellipses_objects.csv"), ["object_id", *features])
    path = file_in(folder, "ellipses_choices.json")
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

    Examples
    --------
    As `load_zurich` returns it:

    >>> data = ChoiceData.from_sets([[5000.0], [9000.0]], [[0, 1]], [[1]], respondents=["v1"])
    >>> Ballots(data, pd.DataFrame({"weight_nature": [40.0]}, index=["v1"])).voters.loc["v1", "weight_nature"].item()
    40.0
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

    Returns
    -------
    Ballots

    Examples
    --------
    Files with two projects and one voter instead of the published ones:

    >>> projects = {"project": [1, 2], "cost_chf": [5000, 9000], "topic": ["nature", "culture"], "district": ["1", "2"]}
    >>> pd.DataFrame(projects).to_csv("zurich_projects.csv", index=False)
    >>> said = {"voter": "v1", "format": "SN", "projects": "2", "own_district": "1", "weight_nature": 20.0}
    >>> said |= {"weight_transport": 30.0, "weight_culture": 50.0}
    >>> pd.DataFrame([said]).to_csv("zurich_ballots.csv", index=False)
    >>> ballots = load_zurich(".")
    >>> ballots.data.chosen, ballots.voters["weight_culture"].tolist()
    ((array([1]),), [50.0])
    """
    projects = read_columns(
        file_in(folder, "zurich_projects.csv"), ["project", "cost_chf", "topic", "district"], ("topic", "district")
    )
    X = projects.set_index("project")[["cost_chf", "topic", "district"]]
    columns = ["weight_transport", "weight_culture", "weight_nature"]
    path = file_in(folder, "zurich_ballots.csv")
    text = ("voter", "format", "projects", "own_district")
    ballots = read_columns(path, [*text, *columns], text)
    free = ballots[ballots["format"] == "SN"].set_index("voter")
    ticked = [[int(number) for number in str(ticks).split()] for ticks in free["projects"]]
    try:
        data = ChoiceData.from_sets(
            X, [list(X.index)] * len(free), ticked, by="id", respondents=free.index.to_numpy(dtype=object), empty="none"
        )
    except ChoiceDataError as error:
        raise ChoiceDataError(error.defects, source=str(path)) from None
    return Ballots(data, free[[*columns, "own_district"]])


def _one_feature(path: Path, key: str, rows: list[Any], first_id: int) -> pd.DataFrame:
    try:
        x = np.array(rows, dtype=float).reshape(len(rows), 1)
    except (TypeError, ValueError):
        raise ChoiceGPError(f"{path}: {key} must hold one number per object") from None
    return pd.DataFrame(x, columns=["x"], index=range(first_id, first_id + len(x)))


def _read_json(path: Path, keys: Sequence[str]) -> list[list[Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChoiceGPError(f"{path} cannot be read as JSON: {error}") from error
    missing = [key for key in keys if not isinstance(content, dict) or not isinstance(content.get(key), list)]
    if missing:
        raise ChoiceGPError(f"{path} lacks the lists {', '.join(missing)}: it is not the file expected here")
    return [content[key] for key in keys]
