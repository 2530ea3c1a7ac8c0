"""Answers drawn from the model itself: with errors, from the likelihood divided by its sum over all answers."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.checks import check_one_of
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import sets_by_size, split_sets
from choicegp.data.pareto import check_utilities
from choicegp.datasets.simulated import random_generator
from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    from choicegp.model.error_models import ErrorModel


def noisy_choices(
    X: Any,
    U: Any,
    shown: Sequence[Any],
    random_state: int | None = 0,
    *,
    rule: str = "pareto",
    threshold: Any = None,
    kinds: Any = None,
) -> ChoiceData:
    """Simulate a person who errs: each answer is drawn from the model's probabilities of all answers.

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
    rule : {"pareto", "best-in-one"}
        Which objects are kept, as in `ChoiceGP`.
    threshold : array (d,), optional
        Utilities of the threshold: what it dominates is not kept, and nothing may be.
    kinds : {"keep", "best", "worst"} or sequence of these, optional
        What is asked of each set; questions for the best or the worst object have no threshold.

    Returns
    -------
    ChoiceData

    Examples
    --------
    >>> data = noisy_choices([[0.0], [1.0]], [[0.0], [50.0]], [[0, 1]] * 3)
    >>> [rows.tolist() for rows in data.chosen]
    [[1], [1], [1]]
    >>> data = noisy_choices([[0.0], [1.0]], [[0.0], [50.0]], [[0], [1], [0, 1]], threshold=[25.0])
    >>> [rows.tolist() for rows in data.chosen]
    [[], [1], [1]]
    """
    # Imported here: other data sets need no JAX.
    from choicegp.model.error_models import RULES
    from choicegp.model.likelihood import MAX_ENUMERATED

    check_one_of("rule", rule, tuple(RULES))
    utilities, tau = check_utilities(U), None if threshold is None else np.asarray(threshold, float)
    if tau is not None and (tau.shape != utilities.shape[1:] or not np.all(np.isfinite(tau))):
        raise ChoiceGPError(f"threshold must be {utilities.shape[1]} numbers, one for each utility; got {threshold!r}")
    rng = random_generator(random_state)
    # Checked as sets by the same code as any others.
    data = ChoiceData.from_sets(X, shown, kinds=kinds)
    sizes = np.diff(data.offsets)
    if np.any(sizes > MAX_ENUMERATED):
        k = int(np.argmax(sizes > MAX_ENUMERATED))
        raise ChoiceGPError(f"set {k} has {sizes[k]} objects: choices are drawn from sets of at most {MAX_ENUMERATED}")
    chosen = np.ones(len(data.flat_shown), dtype=bool)  # of a set of one object, that one
    level = rng.random(len(data))
    asked = np.full(len(data), "keep") if data.kinds is None else data.kinds
    errors = RULES[rule] if tau is None else RULES[rule].with_threshold()
    for kind in dict.fromkeys(asked.tolist()):
        own = errors.of_kind(kind)
        for sets, places in sets_by_size(data.offsets, smallest=1 if own.has_threshold else 2):
            mine = asked[sets] == kind
            if mine.any():
                u = np.moveaxis(utilities[data.flat_shown[places[mine]]], (0, 1, 2), (2, 1, 0))  # (d, a, m)
                chosen[places[mine]] = _drawn(own, kind, u, tau, level[sets[mine]])
    return replace(data, flat_chosen=chosen)


def noisy_rankings(
    U: Any, shown: Sequence[Any], random_state: int | None = 0, *, rule: str = "pareto"
) -> list[np.ndarray]:
    """Simulate a person who puts the objects of sets in order: the best of a set, then the best of the rest, and so on.

    Parameters
    ----------
    U, shown, random_state, rule
        As in `noisy_choices`.

    Returns
    -------
    list of ndarray
        The row numbers of each set, the best first.

    Examples
    --------
    >>> [rows.tolist() for rows in noisy_rankings([[0.0], [50.0], [100.0]], [[0, 1, 2], [0, 2]])]
    [[2, 1, 0], [2, 0]]
    """
    utilities, rng = check_utilities(U), random_generator(random_state)
    left = [list(map(int, rows)) for rows in shown]
    found: list[list[int]] = [[] for _ in left]
    while any(left):
        open_sets = [k for k, rows in enumerate(left) if rows]
        data = noisy_choices(
            np.arange(len(utilities))[:, None], utilities, [left[k] for k in open_sets], int(rng.integers(2**31)),
            rule=rule, kinds="best",
        )  # fmt: skip
        for k, best in zip(open_sets, split_sets(data.flat_shown, data.offsets, data.flat_chosen), strict=True):
            found[k].append(int(best[0]))
            left[k].remove(int(best[0]))
    return [np.array(rows) for rows in found]


def _drawn(errors: "ErrorModel", kind: str, u: np.ndarray, tau: np.ndarray | None, level: np.ndarray) -> np.ndarray:
    """Draw an answer, (m, a), for each set of utilities (d, a, m) and level between 0 and 1."""
    import jax

    a = u.shape[1]
    if errors.has_threshold and tau is not None:
        u = np.concatenate([u, np.broadcast_to(tau[:, None, None], (len(u), 1, u.shape[2]))], axis=1)
    with jax.enable_x64(True):
        table = np.cumsum(np.asarray(_table(errors, kind)(u)), axis=0)
    code = np.sum(table < level * table[-1], axis=0)
    return code[:, None] == np.arange(a) if kind != "keep" else (code[:, None] >> np.arange(a)) & 1 == 1


@functools.cache
def _table(errors: "ErrorModel", kind: str) -> Callable:
    """Return the compiled table of answers: uncompiled, its loop is traced and compiled again at every call."""
    import jax
    import jax.numpy as jnp

    if kind == "keep":
        return jax.jit(errors.answers)

    def of_objects(u: Any) -> Any:
        """Return the probability of each object (a, m)."""
        present = jnp.ones((u.shape[1], 1), bool)
        marks = jnp.eye(u.shape[1], dtype=bool)
        return jnp.exp(jax.lax.map(lambda best: errors.log_likelihood(u, present, best[:, None]), marks))

    return jax.jit(of_objects)
