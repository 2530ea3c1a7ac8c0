"""Search of the best set: grown object by object, then improved by swaps.

A set's value is any function of sets: the search knows neither models nor objects, only rows of a pool.
"""

import itertools
import math
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

_ALL = 1024  # sets up to which all are valued
_MOST_PAIRS = 1024  # with which growing begins
_MOST_SWEEPS = 4
_MORE = 1e-6  # what a swap must gain to be made, relative to the value: less is rounding

Value = Callable[[np.ndarray], np.ndarray]


class Found(NamedTuple):
    """The sets that a search has valued.

    Attributes
    ----------
    sets : int array (n, k)
        The best first, none twice; each in ascending order.
    values : ndarray (n,)
    complete : bool
        Whether the search came to its end before its time did.
    """

    sets: np.ndarray
    values: np.ndarray
    complete: bool


class _Tried:
    """The sets of full size that were valued, without the ones that must not be shown."""

    def __init__(self, value: Value, banned: Collection[frozenset[int]], deadline: float) -> None:
        self._value, self._banned, self._deadline = value, frozenset(banned), deadline
        self.values: dict[tuple[int, ...], float] = {}

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def best_of(self, sets: np.ndarray) -> np.ndarray | None:
        """Value sets (m, k), keep the values, and return the best set; None where all are banned."""
        sets = np.sort(sets, axis=1)
        if self._banned:
            sets = sets[[frozenset(one) not in self._banned for one in sets.tolist()]]
        if len(sets) == 0:
            return None
        values = self._value(sets)
        self.values.update(zip(map(tuple, sets.tolist()), values.tolist(), strict=True))
        return sets[np.argmax(values)]

    def found(self, complete: bool) -> Found:
        order = sorted(self.values, key=lambda one: (-self.values[one], one))
        return Found(np.array(order), np.array([self.values[one] for one in order]), complete)


def search(
    value: Value, n_objects: int, size: int, *, banned: Collection[frozenset[int]] = (),
    starts: np.ndarray | None = None, deadline: float = math.inf, swaps: bool = True,
) -> Found:  # fmt: skip
    """Find sets of high value among the objects of a pool.

    Of at most 1024 sets all are valued.  Else the best of about 1024 pairs is grown by the object that gains most until
    the set has its size; the objects of this set, or of the best of the ``starts`` where that is better, are then
    exchanged one at a time while that gains something.

    Parameters
    ----------
    value : callable
        Gives values (m,) of sets (m, j), of any size j from 2 to ``size``.
    n_objects, size : int
    banned : collection of frozenset
        Sets that must not be found.
    starts : int array (n, size), optional
        Sets that are valued first.
    deadline : float
        By the clock `time.monotonic`; what was found by then is returned.
    swaps : bool
        Whether to exchange objects.

    Examples
    --------
    >>> weight = np.array([1.0, 5.0, 2.0, 4.0])
    >>> search(lambda sets: weight[sets].sum(axis=1), 4, 2).sets[0].tolist()
    [1, 3]
    """
    tried = _Tried(value, banned, deadline)
    if math.comb(n_objects, size) <= _ALL:
        tried.best_of(np.array(list(itertools.combinations(range(n_objects), size))))
        return tried.found(True)
    if starts is not None:
        tried.best_of(starts)
    if not tried.late:
        _grow(tried, value, n_objects, size)
    if swaps and tried.values:
        _swap(tried, n_objects)
    return tried.found(not tried.late)


def _grow(tried: _Tried, value: Value, n_objects: int, size: int) -> None:
    """Add to the best pair what gains most, until there are sets of full size."""
    sets = np.array(list(itertools.combinations(range(n_objects), 2)))
    if size > 2:
        sets = sets[:: -(-len(sets) // _MOST_PAIRS)]
    while sets.shape[1] < size:
        grown = sets[np.argmax(value(sets))]
        if tried.late:
            return
        others = np.setdiff1d(np.arange(n_objects), grown)
        sets = np.column_stack([np.tile(grown, (len(others), 1)), others])
    tried.best_of(sets)


def _swap(tried: _Tried, n_objects: int) -> None:
    """Exchange one object of the best set after the other for the best of the pool, while that gains something."""
    best = np.array(max(tried.values, key=lambda one: (tried.values[one], tuple(-row for row in one))))
    unchanged = 0
    for step in range(_MOST_SWEEPS * len(best)):
        if tried.late or unchanged == len(best):
            return
        # The order of a set changes with every swap: each object is met again before the search ends.
        kept = np.delete(best, step % len(best))
        others = np.setdiff1d(np.arange(n_objects), best)
        other = tried.best_of(np.column_stack([np.tile(kept, (len(others), 1)), others]))
        before = tried.values[tuple(best.tolist())]
        if other is not None and tried.values[tuple(other.tolist())] > before + _MORE * abs(before):
            best, unchanged = other, 0
        else:
            unchanged += 1
