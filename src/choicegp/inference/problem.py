"""Choice data as inference sees them: shown objects, and sets as padded arrays of a few fixed shapes."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_places, padded_size, sets_by_shape
from choicegp.model.error_models import DISCERNIBILITY, ErrorModel
from choicegp.model.monotone import N_STEPS, Ordered
from choicegp.model.prior import STEP, THRESHOLD, Objects


class SetBatch(NamedTuple):
    """Sets of similar size, padded to one.

    Attributes
    ----------
    rows : int array (a, m)
        Objects of each set, as rows of the problem's objects: chosen first, then the threshold where there is one, then
        rejected, then padding.
    present, chosen : bool array (a, m)
    weight : array (m,)
        Weight of each set; 0 for padding.
    sets : int array (m,)
        Number of the set in the data; -1 for padding, and for pairs that are ordered without an answer.
    errors : ErrorModel
        How likely the choices are, given utilities.
    """

    rows: np.ndarray
    present: np.ndarray
    chosen: np.ndarray
    weight: np.ndarray
    sets: np.ndarray
    errors: ErrorModel = DISCERNIBILITY


class Problem(NamedTuple):
    """What is to be inferred: utilities at the shown objects, from batches of sets.

    Attributes
    ----------
    objects : Objects
        The distinct shown objects, then the threshold where there is one, then those between which utilities must rise,
        padded by copies of the first.
    valid : bool array (t,)
        False for padding.
    batches : tuple of SetBatch
    """

    objects: Objects
    valid: np.ndarray
    batches: tuple[SetBatch, ...]

    @property
    def n_objects(self) -> int:
        """Number of distinct shown objects and of thresholds, padding left out."""
        return int(self.valid.sum())

    @property
    def n_sets(self) -> int:
        """Number of sets that say something: with at least two objects, or one and the threshold."""
        return int(sum((batch.sets >= 0).sum() for batch in self.batches))


def pose(
    data: ChoiceData, X: np.ndarray, codes: np.ndarray, *, effects: bool, errors: ErrorModel = DISCERNIBILITY,
    directions: Mapping[int, float] | None = None,
) -> Problem:  # fmt: skip
    """Turn choice data into a `Problem`.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    X : ndarray (t, c)
        Scaled features of the rows of ``data.X``.
    codes : ndarray (t,)
        A number for each object id.
    effects : bool
        Whether objects have effects of their own; without, rows equal in features are one object.
    errors : ErrorModel
        How likely the choices are, given utilities; of sets of which the best or the worst object was asked for, its
        model of that kind.
    directions : dict, optional
        By their numbers, features with 1 where all utilities must rise with them and -1 where they must fall.
    """
    kept, local = distinct_objects(data, X, codes, effects=effects)
    n_seen = len(kept) + errors.has_threshold
    steps, batches = _steps(X[kept], directions, n_seen) if directions else (X[:0], ())
    n_used = n_seen + len(steps)
    n = padded_size(n_used, 4)
    padding = np.full(n - len(kept), kept[0])
    rows = np.concatenate([kept, padding])
    own_X, own_codes = np.ascontiguousarray(X[rows]), codes[rows]
    if errors.has_threshold:
        own_codes[len(kept)] = THRESHOLD
    own_X[n_seen:n_used], own_codes[n_seen:n_used] = steps, STEP
    batches = (*_batches(data, local, errors, len(kept)), *batches)
    return Problem(Objects(own_X, own_codes), np.arange(n) < n_used, batches)


def _steps(X: np.ndarray, directions: Mapping[int, float], first: int) -> tuple[np.ndarray, tuple[SetBatch, ...]]:
    """Return objects over the range of each feature with a direction, and the pairs of them that it orders."""
    objects: list[np.ndarray] = []
    pairs: list[np.ndarray] = []
    for j, sign in directions.items():
        line = np.tile(X.mean(axis=0), (N_STEPS + 1, 1))
        line[:, j] = np.linspace(X[:, j].min(), X[:, j].max(), N_STEPS + 1)
        places = first + len(objects) * len(line) + np.arange(len(line))
        better, worse = (places[1:], places[:-1]) if sign > 0 else (places[:-1], places[1:])
        objects.append(line)
        pairs.append(np.stack([better, worse]))
    rows = np.concatenate(pairs, axis=1).astype(np.int32)
    n = rows.shape[1]
    chosen = np.repeat([[True], [False]], n, axis=1)
    batch = SetBatch(rows, np.ones_like(chosen), chosen, np.ones(n), np.full(n, -1), Ordered())
    return np.concatenate(objects), (batch,)


def distinct_objects(
    data: ChoiceData, X: np.ndarray, codes: np.ndarray, *, effects: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the distinct shown objects, and for every row which of them it is (-1: never shown)."""
    shown = np.unique(data.flat_shown)
    key = np.column_stack([X[shown], codes[shown]]) if effects else X[shown]
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    local = np.full(len(data.X), -1)
    local[shown] = inverse.ravel()
    return shown[first], local


def _batches(data: ChoiceData, local: np.ndarray, errors: ErrorModel, threshold: int) -> tuple[SetBatch, ...]:
    sizes = np.diff(data.offsets)
    kinds = np.full(len(sizes), "keep") if data.kinds is None else data.kinds
    batches = []
    for kind in [kind for kind in ("keep", "best", "worst") if kind in kinds]:
        own = errors.of_kind(kind)
        # A set of one object says nothing, unless there is a threshold to compare it with.
        sets = np.flatnonzero((sizes + own.has_threshold > 1) & (kinds == kind))
        shapes = sets_by_shape(sizes + own.has_threshold, sets)
        batches += [_batch(data, local, mine, size, own, threshold) for size, mine in shapes]
    return tuple(batches)


def _batch(
    data: ChoiceData, local: np.ndarray, sets: np.ndarray, a: int, errors: ErrorModel, threshold: int
) -> SetBatch:
    assert data.flat_chosen is not None
    places, present = padded_places(data.offsets, sets, a - errors.has_threshold, data.flat_chosen)
    rows, chosen = local[data.flat_shown[places]].astype(np.int32), data.flat_chosen[places] & present
    if errors.has_threshold:
        rows, present, chosen = with_threshold(rows, present, chosen, threshold)
    weight = np.ones(len(sets)) if data.weights is None else data.weights[sets]
    padding = (0, padded_size(len(sets), 3) - len(sets))
    parts: list[np.ndarray] = [np.pad(part.T, ((0, 0), padding)) for part in (rows, present, chosen)]
    numbers = np.pad(sets, padding, constant_values=-1)
    return SetBatch(parts[0], parts[1], parts[2], np.pad(weight, padding), numbers, errors)


def with_threshold(
    rows: np.ndarray, present: np.ndarray, chosen: np.ndarray, threshold: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put the threshold after the chosen objects of each set, (m, a)."""
    place = np.arange(rows.shape[1] + 1) - np.sum(chosen, axis=1, keepdims=True)

    def spread(part: np.ndarray, own: int | bool) -> np.ndarray:
        before, after = np.pad(part, ((0, 0), (0, 1))), np.pad(part, ((0, 0), (1, 0)))
        return np.where(place < 0, before, np.where(place > 0, after, own)).astype(part.dtype)

    return spread(rows, threshold), spread(present, True), spread(chosen, False)
