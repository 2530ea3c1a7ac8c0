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
        """Value sets (m, k), keep them, and return the best; None where all are banned."""
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

    Of at most 1024 sets all are valued.  Else the best pair is grown by the object that gains most until the set has
    its size; the objects of the set, and of the best of the ``starts``, are then exchanged one at a time while that
    gains something.

    Parameters
    ----------
    value : callable
        Gives values (m,) of sets (m, j), of any size j from 2 to ``size``.
    n_objects, size : int
    banned : collection of frozenset
        Sets that must not be found.
    starts : int array (n, size), optional
        Other sets to start from.
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
    begun = [] if starts is None else [tried.best_of(starts)]
    if not tried.late:
        begun.insert(0, _grown(tried, value, n_objects, size))
    if swaps:
        for one in begun:
            if one is not None:
                _swapped(tried, one, n_objects)
    return tried.found(not tried.late)


def _grown(tried: _Tried, value: Value, n_objects: int, size: int) -> np.ndarray | None:
    pairs = np.array(list(itertools.combinations(range(n_objects), 2)))
    if size == 2:
        return tried.best_of(pairs)
    grown = pairs[np.argmax(value(pairs))]
    while len(grown) < size:
        if tried.late:
            return None
        others = np.setdiff1d(np.arange(n_objects), grown)
        sets = np.column_stack([np.tile(grown, (len(others), 1)), others])
        if len(grown) + 1 == size:
            return tried.best_of(sets)
        grown = sets[np.argmax(value(sets))]
    return grown


def _swapped(tried: _Tried, best: np.ndarray, n_objects: int) -> None:
    """Exchange one object after the other for the best of the pool, while that gains something."""
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
