"""Choices as preferences between two objects, for models that know nothing else."""

from typing import Any, NamedTuple

import numpy as np

from choicegp.checks import brief, check_one_of, seed
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import sets_by_size
from choicegp.data.pareto import check_utilities
from choicegp.errors import ChoiceGPError

CONFLICTS = ("drop", "random", "majority")


class Preferences(NamedTuple):
    """Pairs of rows of a table of objects.

    Attributes
    ----------
    winners, losers : int array (k,)
    weights : array (k,)
    n_conflicts : int
        Pairs of objects that were both chosen, whatever was done with them.

    Examples
    --------
    >>> from choicegp import ChoiceData, preferences
    >>> data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]], [[1]])
    >>> found = preferences(data)
    >>> found.winners.tolist(), found.losers.tolist()
    ([1], [0])
    """

    winners: np.ndarray
    losers: np.ndarray
    weights: np.ndarray
    n_conflicts: int

    def __repr__(self) -> str:
        return brief(self)


def preferences(
    data: ChoiceData, conflicts: str = "drop", outputs: Any = None, random_state: int | None = 0
) -> Preferences:
    """Reduce choices to preferences: every chosen object of a set is preferred to every rejected one.

    Two objects that were both chosen are in conflict, and a rule decides. The marked object of a set of kind "worst" is
    below all others.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    conflicts : {"drop", "random", "majority"}
        "drop": they say nothing; "random": a fair coin decides; "majority": the one that is better in more of the
        ``outputs`` is preferred, and equal numbers say nothing.
    outputs : array (t, q), optional
        For "majority": what the rows of ``data.X`` are worth, larger is better.
    random_state : int or None
        Seed of the coin. None: a new one.

    Returns
    -------
    Preferences

    Examples
    --------
    >>> data = ChoiceData.from_sets([[0.0], [1.0], [2.0]], [[0, 1], [0, 2]], [[1], [0, 2]])
    >>> preferences(data).winners, preferences(data).losers
    (array([1]), array([0]))
    >>> preferences(data, "majority", outputs=[[0, 0, 0], [1, 1, 1], [1, 1, -1]]).winners
    array([1, 2])
    """
    check_one_of("conflicts", conflicts, CONFLICTS)
    if not isinstance(data, ChoiceData):
        raise ChoiceGPError(f"a ChoiceData is needed; got {type(data).__name__}")
    if not data.has_choices:
        raise ChoiceGPError("preferences need data with choices: these have none")
    worth = _outputs(outputs, len(data.X)) if conflicts == "majority" else None
    coin = np.random.default_rng(seed(random_state))
    weights = np.ones(len(data)) if data.weights is None else np.asarray(data.weights, float)
    direction = np.ones(len(data), int) if data.kinds is None else np.where(data.kinds == "worst", -1, 1)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    n_conflicts = 0
    for sets, places in sets_by_size(data.offsets, smallest=2):
        rows, kept = data.flat_shown[places], np.asarray(data.flat_chosen)[places]
        left, right = np.triu_indices(places.shape[1], 1)
        first, second = rows[:, left], rows[:, right]
        ahead = (kept[:, left].astype(int) - kept[:, right].astype(int)) * direction[sets][:, None]
        both = kept[:, left] & kept[:, right]
        n_conflicts += int(both.sum())
        if conflicts == "random":
            ahead = np.where(both, 2 * coin.integers(0, 2, size=both.shape) - 1, ahead)
        elif worth is not None:
            votes = np.sum(worth[first] > worth[second], axis=-1) - np.sum(worth[first] < worth[second], axis=-1)
            ahead = np.where(both, np.sign(votes), ahead)
        decided = ahead != 0
        winner = np.where(ahead > 0, first, second)[decided]
        loser = np.where(ahead > 0, second, first)[decided]
        found.append((winner, loser, np.broadcast_to(weights[sets][:, None], ahead.shape)[decided]))
    if not found:
        none = np.zeros(0, int)
        return Preferences(none, none, np.zeros(0), n_conflicts)
    winners, losers, each = (np.concatenate(part) for part in zip(*found, strict=True))
    return Preferences(winners, losers, each, n_conflicts)


def _outputs(outputs: Any, n: int) -> np.ndarray:
    if outputs is None:
        raise ChoiceGPError("conflicts='majority' needs outputs=: what each row of data.X is worth, larger is better")
    return check_utilities(outputs, n, "outputs")
