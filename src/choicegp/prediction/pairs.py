"""Who beats whom: from margins of pairs to probabilities, and from pairs to sets by Copeland's rule."""

from collections.abc import Callable
from typing import Any

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import sets_by_size

_CHUNK = 1024  # pairs at a time


def beating_probabilities(
    moments: Callable[[np.ndarray, np.ndarray], tuple[Any, Any]], X1: np.ndarray, X2: np.ndarray
) -> np.ndarray:
    """Return P(first beats second) = E[Φ(s)] = Φ(mean / sqrt(1 + variance)) of the margin s, (n,).

    ``moments`` returns the margins' means and variances, for as many first as second objects.
    """
    from scipy.special import ndtr

    found = np.empty(len(X1))
    for start in range(0, len(X1), _CHUNK):
        part = slice(start, start + _CHUNK)
        # Padded to one shape, so that few programs are compiled.
        n = len(X1[part])
        size = min(_CHUNK, 1 << (n - 1).bit_length())
        rows = np.minimum(np.arange(size), n - 1)
        mean, variance = (np.asarray(value) for value in moments(X1[part][rows], X2[part][rows]))
        found[part] = ndtr(mean / np.sqrt(1.0 + variance))[:n]
    return found


def copeland_winners(data: ChoiceData, beats: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """Return of each set the rows that beat the most others; a pair at exactly one half counts half for both.

    Parameters
    ----------
    data : ChoiceData
    beats : callable
        Takes two arrays of rows and returns P(first beats second).
    """
    result: list[np.ndarray] = [np.empty(0, int)] * len(data)
    for sets, places in sets_by_size(data.offsets):
        rows = data.flat_shown[places]
        wins = np.zeros(rows.shape)
        left, right = np.triu_indices(rows.shape[1], 1)
        if len(left):
            p = beats(rows[:, left].ravel(), rows[:, right].ravel()).reshape(len(sets), -1)
            ahead = np.where(p > 0.5, 1.0, np.where(p < 0.5, 0.0, 0.5))
            for number, (i, j) in enumerate(zip(left, right, strict=True)):
                wins[:, i] += ahead[:, number]
                wins[:, j] += 1.0 - ahead[:, number]
        best = wins == wins.max(axis=1, keepdims=True)
        for k, own, kept in zip(sets, rows, best, strict=True):
            result[k] = own[kept]
    return result
