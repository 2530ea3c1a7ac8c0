"""Sets a few at a time, as arrays of a few fixed shapes: what sparse inference sees of any number of sets.

Sets of similar size share a shape.  Every step takes its share of sets from each shape, so that no step is biased
and nothing is padded much.  Which sets a step takes depends on the seed and on the number of the step alone: a fit
that was interrupted continues exactly as it would have.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.data.packing import padded_places, sets_by_shape
from choicegp.inference.problem import with_threshold

_WINDOW = 4  # files whose sets are mixed
_KEPT = 6  # files in memory: a window, and what another reader or the next window begins with


class Sets(NamedTuple):
    """Sets of one padded size, with the features of their objects; any leading axes (steps).

    Attributes
    ----------
    X : array (..., a, m, c)
        Features: chosen objects first, then the threshold where there is one, then rejected ones, then padding.
    present, chosen : bool array (..., a, m)
        The threshold is present and never chosen; its features say nothing.
    weight : array (..., m)
        How many sets of the data each one stands for; 0 for padding.
    """

    X: Any  # NumPy's arrays outside of programs, JAX's inside
    present: Any
    chosen: Any
    weight: Any


class Source(Protocol):
    """Where sets come from: memory, or files that do not fit into it."""

    sizes: np.ndarray
    """Number of objects of every set, the threshold included where there is one."""

    def order(self, sets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sets in a random order in which they can be read fast."""
        ...

    def read(self, sets: np.ndarray, size: int) -> Sets:
        """Return the sets of these numbers, padded to ``size`` objects, with their own weights."""
        ...


class InMemory:
    """The sets of a `ChoiceData` as a `Source`; ``threshold`` says whether every set has one more object, not seen."""

    def __init__(self, data: ChoiceData, centre: np.ndarray, scale: np.ndarray, threshold: bool = False) -> None:
        self.data, self.centre, self.scale, self.threshold = data, centre, scale, threshold
        self.sizes = np.diff(data.offsets) + threshold

    def order(self, sets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sets in a random order."""
        return rng.permutation(sets)

    def read(self, sets: np.ndarray, size: int) -> Sets:
        """Return the sets of these numbers, padded to ``size`` objects, with their own weights."""
        data = self.data
        assert data.flat_chosen is not None
        places, present = padded_places(data.offsets, sets, size - self.threshold, data.flat_chosen)
        chosen = data.flat_chosen[places] & present
        if self.threshold:
            places, present, chosen = with_threshold(places, present, chosen, 0)
        X = (data.X[data.flat_shown[places.T]] - self.centre) / self.scale
        weight = np.ones(len(sets)) if data.weights is None else data.weights[sets]
        return Sets(X, present.T, chosen.T, weight)


class InFolder:
    """The sets of a `ChoiceFolder` as a `Source` that holds a few files at a time; threads may share it."""

    def __init__(self, folder: ChoiceFolder, centre: np.ndarray, scale: np.ndarray, threshold: bool = False) -> None:
        self.folder, self.centre, self.scale, self.threshold = folder, centre, scale, threshold
        self.sizes = folder.sizes + np.int32(threshold)
        self._file_of_set = np.repeat(np.arange(len(folder.files), dtype=np.int32), np.diff(folder.starts))
        self._open: OrderedDict[int, InMemory] = OrderedDict()
        self._lock = threading.Lock()

    def order(self, sets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sets in a random order: files at random, a few at a time, and their sets mixed.

        The files come first from ``rng``: with an equal one, other sets are taken from the files in the same order.
        """
        n_files = len(self.folder.files)
        place = np.empty(n_files, dtype=np.min_scalar_type(n_files))
        place[rng.permutation(n_files)] = np.arange(n_files) // _WINDOW
        mixed = rng.permutation(sets)
        return mixed[np.argsort(place[self._file_of_set[mixed]], kind="stable")]

    def read(self, sets: np.ndarray, size: int) -> Sets:
        """Return the sets of these numbers, padded to ``size`` objects, with their own weights."""
        shape = size, len(sets)
        read = Sets(
            np.empty((*shape, len(self.centre))), np.empty(shape, bool), np.empty(shape, bool), np.empty(len(sets))
        )
        files = self._file_of_set[sets]
        for file in np.unique(files):
            places = np.flatnonzero(files == file)
            part = self._file(int(file)).read(sets[places] - self.folder.starts[file], size)
            read.X[:, places], read.present[:, places], read.chosen[:, places] = part.X, part.present, part.chosen
            read.weight[places] = part.weight
        return read

    def _file(self, number: int) -> InMemory:
        # The lock is held while a file is read: two threads that want the same one read it once.
        with self._lock:
            if number not in self._open:
                while len(self._open) >= _KEPT:
                    self._open.popitem(last=False)
                self._open[number] = InMemory(self.folder.read(number), self.centre, self.scale, self.threshold)
            self._open.move_to_end(number)
            return self._open[number]


class BatchShare(NamedTuple):
    """What a step takes of the sets of one shape."""

    size: int
    sets: np.ndarray
    n_taken: int


def shares(
    sizes: np.ndarray, sets: np.ndarray, batch_size: int, multiple: int = 1, most: Callable[[int], int] | None = None
) -> tuple[BatchShare, ...]:
    """Divide a step's sets among the shapes, in proportion to how many sets each has, at least one of each.

    ``multiple`` is the number of devices among which the sets of a shape are divided; ``most(size)`` tells how many
    sets of a shape fit into a step, where sets are large.
    """
    parts = []
    for size, own in sets_by_shape(sizes, sets):
        wanted = min(len(own), round(batch_size * len(own) / len(sets)))
        if most is not None:
            wanted = min(wanted, most(size))
        parts.append(BatchShare(size, own, -(-max(1, wanted) // multiple) * multiple))
    return tuple(parts)


class Feed:
    """The sets of every step.

    A shape's sets come in an order drawn anew for every pass over them; the weights make a step's sets stand for all.
    """

    def __init__(self, source: Source, parts: Sequence[BatchShare], seed: int, dtype: type) -> None:
        self.source, self.parts, self.seed, self.dtype = source, tuple(parts), seed, dtype
        self._orders: dict[tuple[int, int], np.ndarray] = {}  # of the passes under way

    def steps(self, steps: range) -> tuple[Sets, ...]:
        """Read the sets of some steps, one `Sets` for each shape, with a leading axis of steps."""
        return tuple(self._of_shape(number, part, steps) for number, part in enumerate(self.parts))

    def _order(self, number: int, sets: np.ndarray, of_pass: int) -> np.ndarray:
        key = number, of_pass
        if key not in self._orders:
            for old in [other for other in self._orders if other[0] == number and other[1] != of_pass - 1]:
                del self._orders[old]
            # All shapes with the same random numbers: where sets are in files, one file then serves them all.
            self._orders[key] = self.source.order(sets, np.random.default_rng([self.seed, 0, of_pass]))
        return self._orders[key]

    def _of_shape(self, number: int, part: BatchShare, steps: range) -> Sets:
        first, last = steps.start * part.n_taken, steps.stop * part.n_taken
        n = len(part.sets)
        scale: np.ndarray | float = n / part.n_taken
        if n <= part.n_taken:
            # Always in the same places; what fills up the devices has no weight.
            taken = np.tile(np.resize(part.sets, part.n_taken), len(steps))
            scale = np.tile(1.0 * (np.arange(part.n_taken) < n), len(steps))
        else:
            passes = range(first // n, -(-last // n))
            bounds = ((max(first - p * n, 0), min(last - p * n, n)) for p in passes)
            taken = np.concatenate(
                [self._order(number, part.sets, p)[low:high] for p, (low, high) in zip(passes, bounds, strict=True)]
            )
        flat = self.source.read(taken, part.size)

        def split(array: np.ndarray, axis: int) -> np.ndarray:
            shape = (*array.shape[:axis], len(steps), part.n_taken, *array.shape[axis + 1 :])
            return np.ascontiguousarray(np.moveaxis(array.reshape(shape), axis, 0))

        return Sets(
            split(flat.X.astype(self.dtype), 1), split(flat.present, 1), split(flat.chosen, 1),
            split((scale * flat.weight).astype(self.dtype), 0),
        )  # fmt: skip


def all_of(source: Source, sets: np.ndarray, most: Callable[[int], int], dtype: type) -> Iterator[Sets]:
    """Yield the sets in chunks of at most ``most(size)``, each of one shape.

    Chunks of a shape have one length: the last is filled up with copies of weight 0.
    """
    for size, own in sets_by_shape(source.sizes, sets):
        length = min(most(size), len(own))
        for start in range(0, len(own), length):
            part = own[start : start + length]
            filled = np.concatenate([part, np.repeat(part[:1], length - len(part))])
            read = source.read(filled, size)
            real = np.arange(length) < len(part)
            weight: Any = np.where(real, read.weight, 0.0).astype(dtype)
            yield Sets(read.X.astype(dtype), read.present, read.chosen, weight)
