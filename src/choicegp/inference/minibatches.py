"""Sets a few at a time, as arrays of a few fixed shapes: what sparse inference sees of any number of sets.

Sets of similar size share a shape.  Every step takes its share of sets from each shape, so that no step is biased
and nothing is padded much.  Which sets a step takes depends on the seed and on the number of the step alone: a fit
that was interrupted goes on exactly as it would have.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.inference.problem import set_shapes


class Sets(NamedTuple):
    """Sets of one padded size, with the features of their objects; any leading axes (steps).

    Attributes
    ----------
    X : array (..., a, m, c)
        Features: chosen objects first, then rejected ones, then padding.
    present, chosen : bool array (..., a, m)
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
    """Number of objects of every set."""
    mean_weight: float
    """Mean weight of a set."""

    def order(self, sets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sets in a random order in which they can be read fast."""
        ...

    def read(self, sets: np.ndarray, size: int) -> Sets:
        """Return the sets of these numbers, padded to ``size`` objects, with their own weights."""
        ...


class InMemory:
    """The sets of a `ChoiceData` as a `Source`."""

    def __init__(self, data: ChoiceData, centre: np.ndarray, scale: np.ndarray) -> None:
        self.data, self.centre, self.scale = data, centre, scale
        self.sizes = np.diff(data.offsets)
        self.mean_weight = 1.0 if data.weights is None else float(np.mean(data.weights))

    @property
    def digest(self) -> str:
        """A fingerprint of the data."""
        data = self.data
        parts = (data.X, data.flat_shown, data.offsets, data.flat_chosen, data.weights)
        text = hashlib.sha256()
        for part in parts:
            text.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
        return text.hexdigest()

    def order(self, sets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sets in a random order."""
        return rng.permutation(sets)

    def read(self, sets: np.ndarray, size: int) -> Sets:
        """Return the sets of these numbers, padded to ``size`` objects, with their own weights."""
        data = self.data
        assert data.flat_chosen is not None
        position = np.arange(size)[:, None]
        present = position < self.sizes[sets]
        flat = data.offsets[sets] + np.where(present, position, 0)
        chosen = data.flat_chosen[flat] & present
        # Chosen first, then rejected, then padding, which repeats an object of its own set.
        order = np.argsort(np.where(chosen, 0, np.where(present, 1, 2)), axis=0, kind="stable")
        flat, chosen, present = (np.take_along_axis(part, order, 0) for part in (flat, chosen, present))
        X = (data.X[data.flat_shown[flat]] - self.centre) / self.scale
        weight = np.ones(len(sets)) if data.weights is None else data.weights[sets]
        return Sets(X, present, chosen, weight)


class Share(NamedTuple):
    """What a step takes of the sets of one shape."""

    size: int
    sets: np.ndarray
    n_taken: int


def shares(sizes: np.ndarray, sets: np.ndarray, batch_size: int, multiple: int = 1) -> tuple[Share, ...]:
    """Divide a step's sets among the shapes, in proportion to how many sets each has, at least a few of each.

    ``multiple`` is the number of devices among which the sets of a shape are divided.
    """
    shapes = set_shapes(sizes[sets])
    parts = []
    for size in np.unique(shapes):
        own = sets[shapes == size]
        wanted = min(len(own), round(batch_size * len(own) / len(sets)))
        parts.append(Share(int(size), own, -(-max(1, wanted) // multiple) * multiple))
    return tuple(parts)


def steps_of(source: Source, parts: Sequence[Share], steps: range, seed: int, dtype: type) -> tuple[Sets, ...]:
    """Read the sets of some steps, one `Sets` for each shape, with a leading axis of steps.

    A shape's sets come in an order drawn anew for every pass over them; the weights make a step's sets stand for all.
    """
    return tuple(_of_shape(source, part, number, steps, seed, dtype) for number, part in enumerate(parts))


def _of_shape(source: Source, part: Share, number: int, steps: range, seed: int, dtype: type) -> Sets:
    first, last = steps.start * part.n_taken, steps.stop * part.n_taken
    n = len(part.sets)
    scale: np.ndarray | float = n / part.n_taken
    if n <= part.n_taken:
        # Always in the same places; what fills up the devices has no weight.
        taken = np.tile(np.resize(part.sets, part.n_taken), len(steps))
        scale = np.tile(1.0 * (np.arange(part.n_taken) < n), len(steps))
    else:
        passes = range(first // n, -(-last // n))
        order = np.concatenate([source.order(part.sets, np.random.default_rng([seed, number, p])) for p in passes])
        taken = order[first - passes.start * n : last - passes.start * n]
    flat = source.read(taken, part.size)

    def split(array: np.ndarray, axis: int) -> np.ndarray:
        shape = (*array.shape[:axis], len(steps), part.n_taken, *array.shape[axis + 1 :])
        return np.ascontiguousarray(np.moveaxis(array.reshape(shape), axis, 0))

    return Sets(
        split(flat.X.astype(dtype), 1), split(flat.present, 1), split(flat.chosen, 1),
        split((scale * flat.weight).astype(dtype), 0),
    )  # fmt: skip


def all_of(source: Source, sets: np.ndarray, chunk: int, dtype: type) -> Iterator[Sets]:
    """Yield the sets in chunks of at most ``chunk``, each of one shape.

    Chunks of a shape have one length: the last is filled up with copies of weight 0.
    """
    shapes = set_shapes(source.sizes[sets])
    for size in np.unique(shapes):
        own = sets[shapes == size]
        length = min(chunk, len(own))
        for start in range(0, len(own), length):
            part = own[start : start + length]
            filled = np.concatenate([part, np.repeat(part[:1], length - len(part))])
            read = source.read(filled, int(size))
            real = np.arange(length) < len(part)
            weight: Any = np.where(real, read.weight, 0.0).astype(dtype)
            yield Sets(read.X.astype(dtype), read.present, read.chosen, weight)
