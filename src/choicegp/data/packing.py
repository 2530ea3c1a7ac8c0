"""Choice data as arrays to compute with: sets of different sizes in arrays of one size, and features on one scale.

Sets are held end to end: set ``k`` has the places ``offsets[k]`` to ``offsets[k + 1] - 1`` of an array.  The functions
here return such places, with one row per set; the caller looks up there what it needs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from choicegp.reading.defects import offsets_of

_SHAPES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
_MOST_SHAPES = 3  # a program is compiled for each
_FLAT = 1e-12  # a standard deviation that is a smaller part of the mean than this is rounding
# While data grow: the least size, and the most fineness.
_GENEROUS: ContextVar[tuple[int, int] | None] = ContextVar("generous", default=None)


def split_sets(flat: NDArray, offsets: NDArray[np.int64], marks: NDArray[np.bool_] | None = None) -> list[NDArray]:
    """Return one array per set; with ``marks``, only what they mark.

    Examples
    --------
    >>> split_sets(np.array([7, 8, 9]), np.array([0, 2, 3]))
    [array([7, 8]), array([9])]
    >>> split_sets(np.array([7, 8, 9]), np.array([0, 2, 3]), np.array([False, True, True]))
    [array([8]), array([9])]
    """
    if marks is not None:
        flat, offsets = flat[marks], offsets_of(marks)[offsets]
    return [flat[start:stop] for start, stop in pairwise(offsets.tolist())]


def sets_by_size(
    offsets: NDArray[np.int64], smallest: int = 1
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the sets of each size that occurs: their numbers (m,) and the places of their objects (m, a).

    Sets with fewer than ``smallest`` objects are passed over. Computing with all sets of a size at once takes as
    many array operations as there are sizes, not as there are sets.

    Examples
    --------
    >>> for sets, places in sets_by_size(np.array([0, 2, 3, 5])):
    ...     print(sets.tolist(), places.tolist())
    [1] [[2]]
    [0, 2] [[0, 1], [3, 4]]
    """
    sizes = np.diff(offsets)
    for size in np.unique(sizes[sizes >= smallest]):
        sets = np.flatnonzero(sizes == size)
        yield sets, offsets[sets][:, None] + np.arange(size)


def padded_size(n: int, fineness: int) -> int:
    """Round ``n`` up so that nearby sizes share one shape, at a cost of at most 1 part in 2^fineness."""
    if (least := _GENEROUS.get()) is not None:
        # Twice the work costs more than one more program where a fit takes seconds.
        n, fineness = max(n, least[0]), min(fineness, least[1] + (n > 2 * least[0]))
    step = 1 << max(0, n.bit_length() - 1 - fineness)
    return -(-n // step) * step


@contextmanager
def padded_generously(least: int = 64, fineness: int = 0) -> Iterator[None]:
    """Pad generously inside, for data that grow set by set: few of their fits then need other programs than the last.

    Sizes are rounded up to ``least`` at least; the larger the ``fineness``, the less is added, and the more sizes there
    are. Beyond twice ``least`` there are twice as many.

    Examples
    --------
    >>> with padded_generously():
    ...     sorted({padded_size(n, 4) for n in range(1, 300)})
    [64, 128, 192, 256, 384]
    """
    before = _GENEROUS.set((least, fineness))
    try:
        yield
    finally:
        _GENEROUS.reset(before)


def sets_by_shape(sizes: NDArray[np.integer], sets: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield sizes to which the sets of these numbers can be padded, each with its sets; few, and seldom much larger.

    Examples
    --------
    >>> for size, sets in sets_by_shape(np.array([2, 7, 3, 8]), np.array([0, 1, 3])):
    ...     print(size, sets)
    2 [0]
    8 [1 3]
    """
    own, inverse = np.unique(sizes[sets], return_inverse=True)
    padded = [next((shape for shape in _SHAPES if shape >= n), padded_size(n, 2)) for n in own.tolist()]
    shapes = np.array(padded, dtype=int)[inverse]
    # The cheapest shapes are moved up to the next larger one until few are left.
    while len(present := np.unique(shapes)) > _MOST_SHAPES:
        cost = [(upper**2 - lower**2) * np.sum(shapes == lower) for lower, upper in pairwise(present)]
        cheapest = int(np.argmin(cost))
        shapes[shapes == present[cheapest]] = present[cheapest + 1]
    for shape in present.tolist():
        yield shape, sets[shapes == shape]


def padded_places(
    offsets: NDArray[np.int64], sets: NDArray[np.int64], size: int, first: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad sets to one size.

    Parameters
    ----------
    offsets : int array (m + 1,)
    sets : int array (n,)
        Numbers of the sets, none of which has more than ``size`` objects.
    size : int
    first : bool array, optional
        Marks, along the array that holds the sets end to end, the objects (such as the chosen ones) that come first
        in their set; by default all objects keep their order.

    Returns
    -------
    places : int array (n, size)
        The places of the objects; padding repeats the object at the start of its row, so that it brings in no other.
    present : bool array (n, size)
        False for padding.

    Examples
    --------
    >>> places, present = padded_places(np.array([0, 3, 5]), np.array([1, 0]), 3, np.array([0, 1, 0, 1, 0], bool))
    >>> places.tolist(), present.tolist()
    ([[3, 4, 3], [1, 0, 2]], [[True, True, False], [True, True, True]])
    """
    present = np.arange(size) < np.diff(offsets)[sets][:, None]
    places = offsets[sets][:, None] + np.where(present, np.arange(size), 0)
    if first is not None:
        order = np.argsort(np.where(present, ~first[places], 2), axis=1, kind="stable")
        places = np.take_along_axis(places, order, 1)
    return np.where(present, places, places[:, :1]), present


class FeatureScaling(NamedTuple):
    """Number of objects, and the mean and standard deviation (k,) of each feature.

    Examples
    --------
    >>> one, other = FeatureScaling.of(np.array([[1.0], [2.0]])), FeatureScaling.of(np.array([[6.0]]))
    >>> one.joined(other).mean
    array([3.])
    """

    n: int
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> "FeatureScaling":
        """Return the moments of a table, one row per object."""
        # In units of a power of two near the largest value, which changes no digit: squares cannot overflow.
        _, exponent = np.frexp(np.abs(X).max(axis=0))
        scaled = np.ldexp(X, -exponent)
        return cls(len(X), np.ldexp(scaled.mean(axis=0), exponent), np.ldexp(scaled.std(axis=0), exponent))

    def joined(self, other: "FeatureScaling") -> "FeatureScaling":
        """Return the moments of both tables together; nothing cancels, and nothing overflows."""
        n = self.n + other.n
        own, others = self.n / n, other.n / n
        apart = (0.5 * self.mean - 0.5 * other.mean) * (2.0 * np.sqrt(own * others))
        within = np.hypot(np.sqrt(own) * self.sd, np.sqrt(others) * other.sd)
        return FeatureScaling(n, own * self.mean + others * other.mean, np.hypot(within, apart))

    @property
    def scale(self) -> NDArray[np.float64]:
        """The standard deviations, but 1 for a feature that does not vary."""
        return np.where(self.sd <= _FLAT * np.maximum(np.abs(self.mean), 1e-300), 1.0, self.sd)
