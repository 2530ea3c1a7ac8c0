"""The choices of many people as inference sees them: people of similar numbers of objects, padded to one shape.

People are independent given the population, so that their blocks are worked through a few at a time; every array of a
crowd has a leading axis of such chunks.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_places, padded_size
from choicegp.inference.problem import SetBatch, with_threshold
from choicegp.inference.sparse.plan import far_apart
from choicegp.model.error_models import ErrorModel
from choicegp.model.prior import THRESHOLD, Objects

_SHAPES = 2  # of crowds: a program is compiled for all of them together
_CELLS = 1_000_000  # numbers in the largest array of a chunk
_MOST_AT_ONCE = 64  # people in a chunk
_TABLE = 200  # objects that the people of a chunk look up together; of more, each chunk has a table of its own


class Crowd(NamedTuple):
    """People who saw similar numbers of objects, in chunks of R.

    Attributes
    ----------
    people : int array (k, R)
        Numbers of the people; -1 for padding.
    rows : int array (k, R, n)
        The objects that each of them saw, as rows of the study's objects; padding repeats the last.
    table : int array (k, t)
        The objects that the people of a chunk look up, as rows of the study's objects.
    places : int array (k, R, n)
        The same as ``rows``, as places in the table.
    sets : tuple of SetBatch
        With a leading axis of chunks; ``rows`` (k, a, R s) are places among a person's own n objects, and s sets in a
        row belong to one person.
    """

    people: np.ndarray
    rows: np.ndarray
    table: np.ndarray
    places: np.ndarray
    sets: tuple[SetBatch, ...]


class Known(NamedTuple):
    """What others have said about the population: precision (p M, p M) and linear part (p M,) of v, prior included."""

    precision: np.ndarray
    linear: np.ndarray


class Study(NamedTuple):
    """What is to be inferred: utilities of all people at the objects that each of them saw.

    Attributes
    ----------
    objects : Objects
        The distinct shown objects, then the threshold where there is one.
    points : Objects
        Where the population's utilities are represented: all objects, or some that are well spread.
    crowds : tuple of Crowd
    n_people : int
    known : Known or None
        What is known about the population; None for nothing but its prior.
    """

    objects: Objects
    points: Objects
    crowds: tuple[Crowd, ...]
    n_people: int
    known: Known | None = None

    @property
    def n_sets(self) -> int:
        """Number of sets that say something."""
        return int(sum((batch.sets >= 0).sum() for crowd in self.crowds for batch in crowd.sets))


class StudyAnswers(NamedTuple):
    """Choices in the form in which they are gathered by person."""

    data: ChoiceData
    shown: np.ndarray  # row of the study's objects of every shown object, aligned with the data's ``flat_shown``
    people: np.ndarray  # number of the person of each set
    threshold: int  # row of the threshold
    errors: ErrorModel


def gathered(
    answers: StudyAnswers, n_people: int, n_objects: int, n_utilities: int, *, roomy: bool = False, n_devices: int = 1
) -> tuple[Crowd, ...]:
    """Gather the sets of ``n_people`` people, who saw ``n_objects`` objects in all.

    With ``roomy``, numbers are rounded up to powers of two, so that other answers need no other programs.  Each chunk
    can be divided among ``n_devices``.
    """
    owners, objects = _seen(answers)
    counts = np.bincount(owners, minlength=n_people)
    starts = np.concatenate([[0], np.cumsum(counts)])
    shapes = _shapes(counts, 0 if roomy else 2)
    crowds = []
    for n in np.unique(shapes[shapes > 0]).tolist():
        people = np.flatnonzero(shapes == n)
        on_each = -(-len(people) // n_devices)
        at_once = max(1, min(_MOST_AT_ONCE, _CELLS // (n_utilities * n) ** 2, on_each))
        if n_objects > _TABLE:
            at_once = max(1, min(at_once, _TABLE // n))
        if roomy:
            at_once = padded_size(at_once, 0)
        at_once *= n_devices
        n_chunks = -(-len(people) // at_once)
        padded = np.pad(people, (0, n_chunks * at_once - len(people)), constant_values=-1)
        owner = np.where(padded >= 0, padded, people[0])  # padding sees what the first person saw
        rows = objects[starts[owner][:, None] + np.minimum(np.arange(n), counts[owner][:, None] - 1)]
        sets = tuple(
            batch for kind in ("keep", "best", "worst")
            if (batch := _batch(answers, kind, padded, rows, counts, n_chunks, 0 if roomy else 2)) is not None
        )  # fmt: skip
        by_chunk = rows.reshape(n_chunks, at_once, n).astype(np.int32)
        table, places = _tables(by_chunk, n_objects, 0 if roomy else 2)
        crowds.append(Crowd(padded.reshape(n_chunks, at_once), by_chunk, table, places, sets))
    return tuple(crowds)


def _tables(rows: np.ndarray, n_objects: int, fineness: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the objects (k, t) that each chunk of people looks up, and their rows (k, R, n) as places among them."""
    if n_objects <= _TABLE:
        return np.tile(np.arange(n_objects, dtype=np.int32), (len(rows), 1)), rows
    seen = [np.unique(own) for own in rows]
    t = padded_size(max(map(len, seen)), fineness)
    table = np.array([np.pad(own, (0, t - len(own)), mode="edge") for own in seen], np.int32)
    places = [np.searchsorted(own, chunk) for own, chunk in zip(seen, rows, strict=True)]
    return table, np.array(places, np.int32)


def _seen(answers: StudyAnswers) -> tuple[np.ndarray, np.ndarray]:
    """Return each person and object that she saw, once, in the order of people."""
    sizes = np.diff(answers.data.offsets)
    owners, rows = np.repeat(answers.people, sizes), answers.shown
    if answers.errors.has_threshold:
        everyone = np.unique(answers.people)
        owners = np.concatenate([owners, everyone])
        rows = np.concatenate([rows, np.full(len(everyone), answers.threshold)])
    pairs = np.unique(np.column_stack([owners, rows]), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _shapes(counts: np.ndarray, fineness: int) -> np.ndarray:
    """Return the number of objects to which each person is padded; there are few such numbers."""
    shapes = np.array([padded_size(n, fineness) if n else 0 for n in counts.tolist()])
    while len(present := np.unique(shapes[shapes > 0])) > _SHAPES:
        cost = [(upper**3 - lower**3) * np.sum(shapes == lower) for lower, upper in pairwise(present)]
        cheapest = int(np.argmin(cost))
        shapes[shapes == present[cheapest]] = present[cheapest + 1]
    return shapes


def _batch(
    answers: StudyAnswers,
    kind: str,
    people: np.ndarray,
    rows: np.ndarray,
    counts: np.ndarray,
    n_chunks: int,
    fineness: int,
) -> SetBatch | None:
    data, errors = answers.data, answers.errors.of_kind(kind)
    sizes, kinds = np.diff(data.offsets), np.full(len(data), "keep") if data.kinds is None else data.kinds
    sets = np.flatnonzero((sizes + errors.has_threshold > 1) & (kinds == kind) & np.isin(answers.people, people))
    if not len(sets):
        return None
    # The sets of each person in a row of their own; -1 where she has fewer than others.
    sets = sets[np.argsort(answers.people[sets], kind="stable")]
    owner = answers.people[sets]
    number = np.arange(len(sets)) - np.searchsorted(owner, owner)
    table = np.full((len(people), padded_size(int(number.max()) + 1, fineness)), -1)
    row_of = np.zeros(int(people.max()) + 1, int)
    row_of[people[people >= 0]] = np.flatnonzero(people >= 0)
    table[row_of[owner], number] = sets
    flat, is_set = np.maximum(table.ravel(), 0), table.ravel() >= 0
    a = int(sizes[sets].max())
    assert data.flat_chosen is not None
    places, present = padded_places(data.offsets, np.where(is_set, flat, sets[0]), a, data.flat_chosen)
    chosen = data.flat_chosen[places] & present & is_set[:, None]
    seen = answers.shown[places]
    present = present & is_set[:, None]
    if errors.has_threshold:
        seen, present, chosen = with_threshold(seen, present, chosen, answers.threshold)
        present = present & is_set[:, None]
    owned = np.repeat(rows, table.shape[1], axis=0)
    n_own = np.repeat(counts[people], table.shape[1])
    local = np.array([
        np.searchsorted(own[:n], objects) if mine else np.zeros(len(objects), int)
        for own, n, objects, mine in zip(owned, n_own, seen, is_set, strict=True)
    ])  # fmt: skip
    weight = np.where(is_set, 1.0 if data.weights is None else data.weights[flat], 0.0)

    def chunked(part: np.ndarray) -> np.ndarray:
        return np.swapaxes(part.reshape(n_chunks, -1, part.shape[1]), 1, 2)

    return SetBatch(
        chunked(local.astype(np.int32)), chunked(present), chunked(chosen), weight.reshape(n_chunks, -1),
        table.reshape(n_chunks, -1), errors,
    )  # fmt: skip


def studied(
    objects: Objects, points: Objects, answers: StudyAnswers, n_people: int, n_utilities: int, *, roomy: bool = False,
    n_devices: int = 1,
) -> Study:  # fmt: skip
    """Make the study of ``n_people`` people; for ``roomy`` and ``n_devices`` see `gathered`."""
    crowds = gathered(answers, n_people, len(objects.X), n_utilities, roomy=roomy, n_devices=n_devices)
    return Study(objects, points, crowds, n_people)


def spread_points(objects: Objects, n: int, seed: int) -> Objects:
    """Choose at most ``n`` objects, far from each other; a threshold is always among them."""
    if len(objects.X) <= n:
        return objects
    rng = np.random.default_rng([seed, 7])
    threshold = np.flatnonzero(objects.codes == THRESHOLD)
    rows = np.flatnonzero(objects.codes != THRESHOLD)
    kept = far_apart(np.asarray(objects.X)[rows], n - len(threshold), rng)
    chosen = np.concatenate([np.sort(rows[kept]), threshold])
    return Objects(objects.X[chosen], objects.codes[chosen])
