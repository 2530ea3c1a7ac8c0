"""What a careful reader may want to know about a fit: odd data, and utilities that are several in name only."""

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.inference.problem import Problem

_MOST_OBJECTS = 400
_CLEAR = 1.0  # difference, in units of the error scale, from which on an order means something
_TOLERATED = 0.02  # share of clear pairs that may be ordered oppositely


def alike_utilities(mean: np.ndarray) -> list[tuple[int, ...]]:
    """Group the utilities by how they order objects.

    Two are alike when they order all pairs of objects alike, but for a few: those pairs count that differ
    clearly, by more than the error of a comparison, in one of the two.  An object that one of two such
    utilities prefers the other prefers too, so that both together say what one would.

    Parameters
    ----------
    mean : ndarray (d, t)
        Posterior means, in units of the error scale.

    Returns
    -------
    list of tuples of int
        Every utility in one group; groups in the order of their first utilities.

    Examples
    --------
    >>> u = np.array([[0.0, 3.0, 6.0], [6.0, 2.0, 0.0], [1.0, 9.0, 30.0]])
    >>> alike_utilities(u)
    [(0, 2), (1,)]
    """
    d, t = mean.shape
    some = mean[:, np.linspace(0, t - 1, min(t, _MOST_OBJECTS)).astype(int)]
    first, second = np.triu_indices(some.shape[1], 1)
    difference = some[:, first] - some[:, second]
    clear = np.abs(difference) > _CLEAR
    groups: list[list[int]] = []
    for i in range(d):
        for group in groups:
            j = group[0]
            either = clear[i] | clear[j]
            opposite = np.sign(difference[i]) * np.sign(difference[j]) <= 0
            both = bool(clear[i].any() and clear[j].any())
            if both and np.mean(opposite[either]) <= _TOLERATED:
                group.append(i)
                break
        else:
            groups.append([i])
    return [tuple(group) for group in groups]


def alike_notes(mean: np.ndarray) -> tuple[str, ...]:
    """Say in words which utilities order all objects alike.

    Examples
    --------
    >>> alike_notes(np.array([[0.0, 3.0, 6.0], [1.0, 9.0, 30.0]]))
    ('utilities 1 and 2 order all objects alike: they count as one',)
    """
    notes = []
    for group in alike_utilities(mean):
        if len(group) > 1:
            names = [str(i + 1) for i in group]
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            notes.append(f"utilities {listed} order all objects alike: they count as one")
    return tuple(notes)


def notes_on(
    data: ChoiceData | ChoiceFolder, X: np.ndarray, utilities: np.ndarray, problem: Problem | None = None
) -> tuple[str, ...]:
    """Say what is odd about the data of a fit, and about its utilities.

    Parameters
    ----------
    data : ChoiceData or ChoiceFolder
    X : ndarray (n, c)
        Features of shown objects.
    utilities : ndarray (d, t)
        Posterior means at some objects.
    problem : Problem, optional
        Where all sets and objects are in one.
    """
    notes = []
    if isinstance(data, ChoiceFolder):
        notes.append(f"{len(data)} sets in {len(data.files)} files; data_ is a sample of {len(data.sample)} of them")
    elif problem is not None:
        merged = len(np.unique(data.flat_shown)) - problem.n_objects
        if merged > 0:
            notes.append(f"{merged} objects equal to another in all features were merged with it")
    constant = np.ptp(X, axis=0) == 0
    if constant.any():
        names = ", ".join(np.asarray(data.encoding.feature_names)[constant])
        notes.append(f"these features are the same for all shown objects and say nothing: {names}")
    if problem is not None and problem.n_sets < len(data):
        notes.append(f"{len(data) - problem.n_sets} sets of one object say nothing")
    return (*notes, *alike_notes(utilities))
