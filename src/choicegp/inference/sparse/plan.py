"""What a sparse fit is told, what it knows on its way, and what it gives back."""

from typing import NamedTuple, Protocol

import numpy as np

from choicegp.inference.sparse.feed import Source
from choicegp.inference.sparse.step import Settings, Solved, State
from choicegp.model.prior import UtilityPrior

_LEAST_HELD_OUT = 1000  # sets from which on some are held out
_MOST_HELD_OUT = 2048


class Start(NamedTuple):
    """A kernel to start from, and what it is called."""

    name: str
    prior: UtilityPrior


class Course(NamedTuple):
    """What is known so far.

    Attributes
    ----------
    trial : int
        Number of the start that is tried; the number of starts once the best of them goes on.
    step : int
        Steps made from the present start.
    state : State
    best : State
        The best start, and later the best state, by score.
    best_score : float
    best_trial, best_step : int
    scores : ndarray
        Of the checks since the best start went on.
    cooling : (int, int)
        Step after which the steps become smaller, and in how many; (-1, 0) before that is known.
    ridge : float
        See `Pace`.
    bounds : ndarray
        Of the steps of the start that went on.
    broken : bool
        Whether the last block found no finite step; ``state`` is then the last good one.
    """

    trial: int
    step: int
    state: State
    best: State
    best_score: float
    best_trial: int
    best_step: int
    scores: np.ndarray
    cooling: tuple[int, int]
    ridge: float
    bounds: np.ndarray
    broken: bool = False


class SparseFit(NamedTuple):
    """A finished sparse inference.

    Attributes
    ----------
    state : State
    solved : Solved
    bound : float
        Evidence lower bound, estimated on fresh points from at most a few thousand training sets.
    held_out : float
        Mean expected log-likelihood of the held-out sets; NaN when there are none.
    status, message : str
    n_iter : int
    trace : ndarray
        Bounds, each estimated from the sets of its step.
    start : str
        Name of the start that went on.
    n_annealing : int
        How many of the first steps were annealing.
    """

    state: State
    solved: Solved
    bound: float
    held_out: float
    status: str
    message: str
    n_iter: int
    trace: np.ndarray
    start: str
    n_annealing: int


class Plan(NamedTuple):
    """How to fit.

    Attributes
    ----------
    n_inducing, batch_size, max_iter : int
    tol : float
        Nothing is gained any more when the score rises by less than this part of itself in some checks (or, with all
        sets in every step, the bound by a hundredth of that).
    settings : Settings
    lapse : float or None
    dtype : type
    seed : int
    """

    n_inducing: int
    batch_size: int
    max_iter: int
    tol: float
    settings: Settings
    lapse: float | None
    dtype: type
    seed: int


def held_out_and_training(source: Source, batch_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide the sets of at least two objects; few sets, or sets that are all in each step, are all for training."""
    sets = np.flatnonzero(source.sizes > 1)
    many = len(sets) >= _LEAST_HELD_OUT and len(sets) > batch_size
    n = min(_MOST_HELD_OUT, len(sets) // 20) if many else 0
    mixed = np.random.default_rng([seed, 1]).permutation(len(sets))
    return np.sort(sets[mixed[:n]]), np.sort(sets[mixed[n:]])


def inducing_points(objects: np.ndarray, n_utilities: int, n_inducing: int, seed: int) -> np.ndarray:
    """Choose well spread objects, others for each utility, (d, M, c); all of them where they are few."""
    distinct = np.unique(objects, axis=0)
    n = min(n_inducing, len(distinct))
    if n == len(distinct):
        return np.stack([distinct] * n_utilities)
    rngs = (np.random.default_rng([seed, 7, i]) for i in range(n_utilities))
    return np.stack([distinct[_far_apart(distinct, n, rng)] for rng in rngs])


def _far_apart(objects: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows by k-means++: each with probability in proportion to its squared distance from those drawn before."""
    rows = np.empty(n, int)
    rows[0] = rng.integers(len(objects))
    nearest = np.full(len(objects), np.inf)
    for i in range(1, n):
        nearest = np.minimum(nearest, np.sum((objects - objects[rows[i - 1]]) ** 2, axis=1))
        total = np.cumsum(nearest)
        rows[i] = min(np.searchsorted(total, rng.random() * total[-1], side="right"), len(objects) - 1)
    return rows


class Keeper(Protocol):
    """Keeps a course where a killed process finds it again."""

    def load(self, first: Course) -> Course | None:
        """Return the kept course, of the same structure as ``first``, if there is one."""
        ...

    def save(self, course: Course) -> None:
        """Keep the course instead of an earlier one."""
        ...

    def remove(self) -> None:
        """Forget the course of a fit that is done."""
        ...
