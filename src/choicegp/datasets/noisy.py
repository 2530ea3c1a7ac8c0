"""Choices drawn from the model itself: with errors, from the likelihood divided by its sum over all subsets."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import sets_by_size
from choicegp.data.pareto import check_utilities
from choicegp.datasets.simulated import random_generator
from choicegp.errors import ChoiceGPError


def noisy_choices(X: Any, U: Any, shown: Sequence[Any], random_state: int | None = 0) -> ChoiceData:
    """Simulate a person who errs: each choice is drawn from the model's probabilities of all subsets.

    Parameters
    ----------
    X : array (t, c) or DataFrame
        Objects.
    U : array (t, d)
        Their utilities, in units of the error scale: multiply by a large number for few errors.
    shown : sequence of sequences of row numbers
        Sets of at most ten objects.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    ChoiceData

    Examples
    --------
    >>> data = noisy_choices([[0.0], [1.0]], [[0.0], [50.0]], [[0, 1]] * 3)
    >>> [rows.tolist() for rows in data.chosen]
    [[1], [1], [1]]
    """
    # Imported here: other data sets need no JAX.
    import jax

    from choicegp.model.likelihood import MAX_ENUMERATED

    utilities = check_utilities(U)
    rng = random_generator(random_state)
    # Checked as sets by the same code as any others.
    data = ChoiceData.from_sets(X, shown)
    sizes = np.diff(data.offsets)
    if np.any(sizes > MAX_ENUMERATED):
        k = int(np.argmax(sizes > MAX_ENUMERATED))
        raise ChoiceGPError(f"set {k} has {sizes[k]} objects: choices are drawn from sets of at most {MAX_ENUMERATED}")
    chosen = np.ones(len(data.flat_shown), dtype=bool)  # of a set of one object, that one
    level = rng.random(len(data))
    for sets, places in sets_by_size(data.offsets, smallest=2):
        u = np.moveaxis(utilities[data.flat_shown[places]], 0, -1)  # (a, d, m)
        with jax.enable_x64(True):
            table = np.cumsum(np.asarray(_subset_table()(np.swapaxes(u, 0, 1))), axis=0)
        code = np.sum(table < level[sets] * table[-1], axis=0)
        chosen[places] = (code[:, None] >> np.arange(places.shape[1])) & 1 == 1
    return replace(data, flat_chosen=chosen)


@functools.cache
def _subset_table() -> Callable:
    """Return the compiled table of subsets: uncompiled, its loop is traced and compiled again at every call."""
    import jax

    from choicegp.model.likelihood import subset_probabilities

    return jax.jit(subset_probabilities)
