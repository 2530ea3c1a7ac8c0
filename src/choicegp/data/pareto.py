"""Which objects are Pareto-undominated, for utilities that are known.

An object is chosen from a set when no other object of the set dominates it. Ties matter when the utilities
are measured outputs: ``"weak"`` dominance is at least as good everywhere and better somewhere, ``"strict"``
dominance is better everywhere.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from choicegp.checks import check_one_of, number_array
from choicegp.data.packing import sets_by_size
from choicegp.errors import ChoiceGPError

Ties = Literal["weak", "strict"]

# Booleans held at once while all pairs are compared: keeps memory in the tens of megabytes.
_PAIRS_AT_ONCE = 2_000_000


def undominated(U: ArrayLike, ties: Ties = "weak") -> NDArray[np.bool_]:
    """Mark the objects of one set that no other object dominates.

    Parameters
    ----------
    U : array_like (a, d)
        Utilities of the set's objects, larger is better.
    ties : {"weak", "strict"}
        "weak": an object dominates one that is nowhere better and somewhere worse; "strict": that is worse everywhere.

    Returns
    -------
    bool array (a,)

    Examples
    --------
    >>> undominated([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    array([ True,  True, False])
    """
    check_one_of("ties", ties, get_args(Ties))
    return _undominated(check_utilities(U)[None], ties)[0]


def undominated_in_sets(
    U: ArrayLike, flat_shown: NDArray[np.int64], offsets: NDArray[np.int64], ties: Ties = "weak"
) -> NDArray[np.bool_]:
    """Mark the undominated objects of many sets, as :func:`undominated` does for one.

    ``U`` (t, d) holds the utilities of all objects, ``flat_shown`` (n,) and ``offsets`` (m + 1,) the sets as in
    ``ChoiceData``; the result (n,) is aligned with ``flat_shown``.

    Examples
    --------
    >>> undominated_in_sets([[0.0], [1.0], [2.0]], np.array([0, 1, 1, 2]), np.array([0, 2, 4]))
    array([False,  True, False,  True])
    """
    check_one_of("ties", ties, get_args(Ties))
    utilities = check_utilities(U)
    chosen = np.zeros(len(flat_shown), dtype=bool)
    for _, places in sets_by_size(offsets):
        sets_at_once = max(1, _PAIRS_AT_ONCE // places.shape[1] ** 2)
        for first in range(0, len(places), sets_at_once):
            part = places[first : first + sets_at_once]
            chosen[part] = _undominated(utilities[flat_shown[part]], ties)
    return chosen


def check_utilities(U: ArrayLike, n_objects: int | None = None, name: str = "U") -> NDArray[np.float64]:
    """Return ``U`` as a finite float array (t, d), or raise an error that says what is wrong with it."""
    utilities = number_array(name, U)
    if not np.isfinite(utilities).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(utilities))[0])
        raise ChoiceGPError(f"{name} holds a value that is not finite: {utilities[place]} at position {place}")
    if utilities.ndim != 2 or 0 in utilities.shape:
        raise ChoiceGPError(
            f"{name} must be a table with one row per object and one column per utility; its shape is {utilities.shape}"
        )
    if n_objects is not None and len(utilities) != n_objects:
        raise ChoiceGPError(f"{name} has {len(utilities)} rows but there are {n_objects} objects")
    return utilities


def _undominated(utilities: NDArray[np.float64], ties: Ties) -> NDArray[np.bool_]:
    """Undominated objects of sets of one size: (m, a, d) -> (m, a)."""
    n_sets, size, d = utilities.shape
    result = np.empty((n_sets, size), dtype=bool)
    block = max(1, _PAIRS_AT_ONCE // (n_sets * size))
    for first in range(0, size, block):
        mine = utilities[:, first : first + block]
        beaten = np.ones((n_sets, mine.shape[1], size), dtype=bool)
        better = np.zeros_like(beaten)
        # One utility at a time: the comparison never holds d copies of all pairs.
        for i in range(d):
            other, own = utilities[:, None, :, i], mine[:, :, None, i]
            if ties == "strict":
                beaten &= other > own
            else:
                beaten &= other >= own
                better |= other > own
        if ties == "weak":
            beaten &= better
        result[:, first : first + block] = ~beaten.any(axis=2)
    return result


def expected_undominated(n: int, d: int) -> float:
    """Return how many of n objects nothing dominates, on average, where d utilities are unrelated.

    Examples
    --------
    >>> [round(expected_undominated(24, d), 1) for d in (1, 2, 3, 4)]
    [1.0, 3.8, 7.9, 12.4]
    """
    expected = np.ones(n)
    for _ in range(d - 1):
        expected = np.cumsum(expected / np.arange(1, n + 1))
    return float(expected[-1])
