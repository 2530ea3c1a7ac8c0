"""Another rule: an object is kept when it is the best of its set in at least one utility (pseudo-rational choice).

Utility i has one winner.  Object o is it with probability

    q_i(o) = e^S_i,o / sum_v e^S_i,v,    S_i,o = sum_{v != o} log Φ((u_i(o) - u_i(v)) / σ),

the limit of discernibility, divided by its sum over the objects of the set.  Winners of different utilities are drawn
independently, and the answer is the set of all winners: p(C | A, u) is the sum over all assignments of winners to
utilities in which every object of C is a winner and no other is.  The probabilities of the answers sum to one as they
are, and as σ -> 0 the answer is the set of the objects that are best in some utility.  For two objects this is the rule
of `choicegp.model.likelihood`.  Were q not divided by the sum, an answer could be short of a winner.

Objects in excess of the number of utilities cannot be winners.  As with two objects and one utility there, such an
answer has the floor as a factor for each object too many, times the probability that all winners are in C.

The sum over assignments is built up utility by utility: with W(S) the probability that the winners so far are exactly
S, one more utility makes it W(S) sum_{o in S} q(o) + sum_{o in S} q(o) W(S - o), without any subtraction.

A threshold (see `choicegp.model.threshold`) is an object that may win without being seen: an assignment to it adds
nothing to C.  It stands after the chosen objects.

If the question is for the one best object, a utility is picked at random and its winner is the answer.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from choicegp.model.best_object import log_number_of_objects
from choicegp.model.derivatives import Compared, ExpectedDerivatives, compare, log_products, of_single_objects
from choicegp.model.likelihood import FLOOR, Pairs, log_number_of_subsets, object_pairs, with_random_answers
from choicegp.model.log_sums import shares
from choicegp.model.score_sums import Slopes, averaged_ratio
from choicegp.model.shapes import Lapse, MasksOfBatch, MasksOfSets, OfBatch, Samples
from choicegp.model.threshold import is_threshold, log_number_of_answers


def winners(compared: Compared, present: MasksOfBatch, pairs: Pairs) -> Float[Array, "d a *batch"]:
    """Return q_i(o), the probability that object o is the winner of utility i; 0 for padding."""
    both = zip(compared.above, compared.below, strict=True)
    scores = (log_products(above + FLOOR, below + FLOOR, present, pairs) for above, below in both)
    return jnp.stack([jnp.where(present, shares(own), 0.0) for own in scores])


def _one_more(
    table: Float[Array, "subsets *batch"], q: Float[Array, "c *batch"], free: Float[Array, "*batch"]
) -> Float[Array, "subsets *batch"]:
    """Add a utility with the winners ``q`` to the probabilities W of all subsets; ``free`` makes nobody a member."""
    codes = np.arange(len(table))
    inside = [((codes >> o) & 1 == 1).reshape(-1, *(1,) * free.ndim) for o in range(len(q))]
    stays = sum((jnp.where(inside[o], q[o][None], 0.0) for o in range(len(q))), jnp.zeros_like(table) + free[None])
    joins = (jnp.where(inside[o], q[o][None] * table[codes & ~(1 << o)], 0.0) for o in range(len(q)))
    return sum(joins, table * stays)


def _nobody(q: Float[Array, "d c *batch"]) -> Float[Array, "subsets *batch"]:
    """Return the probabilities W before the first utility: there is no winner yet."""
    return jnp.zeros((2 ** q.shape[1], *q.shape[2:]), q.dtype).at[0].set(1.0)


def _coefficients(
    q: Float[Array, "d a *batch"], chosen: MasksOfBatch, unseen: MasksOfBatch | None
) -> tuple[Float[Array, "*batch"], Float[Array, "d a *batch"]]:
    """Return p(C), without a floor, and how it depends on each utility: p = sum_o q_i(o) B_i(o)."""
    d, a = q.shape[:2]
    n, most = jnp.sum(chosen, axis=0), min(d, a)
    mine = jnp.where(chosen[None], q, 0.0)
    free = jnp.zeros_like(q[:, 0]) if unseen is None else jnp.sum(jnp.where(unseen[None], q, 0.0), axis=1)
    in_all = jnp.sum(mine, axis=1) + free
    nothing = jnp.zeros_like(q[0, 0])
    coefficients = []
    for i in range(d):
        table, product = _nobody(q[:, :most]), jnp.ones_like(nothing)
        for j in (j for j in range(d) if j != i):
            table, product = _one_more(table, mine[j, :most], free[j]), product * in_all[j]
        # The chosen objects come first, so that k of them have the code 2^k - 1.
        exact = sum((jnp.where(n == k, table[2**k - 1], 0.0) for k in range(most + 1)), nothing)
        # Object o is the winner of this utility, and the winners of the others are all of C, or all but o.
        own = [
            sum((jnp.where(n == k, table[(2**k - 1) ^ (1 << o)], 0.0) for k in range(o + 1, most + 1)), exact)
            for o in range(most)
        ]
        rest = jnp.zeros((a - most, *nothing.shape), q.dtype)
        stacked = jnp.where((n > d)[None], product[None], jnp.concatenate([jnp.stack(own), rest]))
        stacked = jnp.where(chosen, stacked, 0.0)
        if unseen is not None:
            stacked = jnp.where(unseen, jnp.where(n > d, product, exact)[None], stacked)
        coefficients.append(stacked)
    return jnp.sum(q[0] * coefficients[0], axis=0), jnp.stack(coefficients)


def _log_answers(present: MasksOfBatch, threshold: bool, dtype: Any) -> Float[Array, "*#batch"]:
    return log_number_of_answers(present) if threshold else log_number_of_subsets(present, dtype)


def _floored(p: Float[Array, "*batch"], chosen: MasksOfBatch, n_utilities: int) -> Float[Array, "*batch"]:
    excess = jnp.maximum(jnp.sum(chosen, axis=0) - n_utilities, 0)
    return jnp.log(p + FLOOR) + math.log(FLOOR) * excess


def log_best_in_one(
    u: OfBatch, present: MasksOfBatch, chosen: MasksOfBatch, lapse: Lapse = None, *, threshold: bool = False
) -> Float[Array, "*batch"]:
    """Return log p(C | A, u) of sets whose chosen objects come first; trailing axes are a batch.

    With ``threshold``, the threshold comes next; it is present and never chosen.

    Examples
    --------
    >>> u = jnp.array([[9.0, 0.0, 5.0], [0.0, 9.0, 5.0]])  # the third object is the best in nothing
    >>> all_three, two = jnp.array([True, True, True]), jnp.array([True, True, False])
    >>> float(jnp.exp(log_best_in_one(u, all_three, two))).__round__(3)
    1.0
    """
    if u.shape[1] == 1:
        return jnp.zeros(u.shape[2:], u.dtype)
    pairs = object_pairs(u.shape[1])
    q = winners(compare(u, present, pairs), present, pairs)
    p, _ = _coefficients(q, chosen, is_threshold(present, chosen) if threshold else None)
    value = _floored(p, chosen, len(u))
    return value if lapse is None else with_random_answers(value, _log_answers(present, threshold, u.dtype), lapse)


def expected_best_in_one_derivatives(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None, *, threshold: bool = False
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of log p(C | A, u) over samples."""
    d, a, _, _ = u.shape
    if a == 1:
        return of_single_objects(u)
    pairs, present, chosen = object_pairs(a), present[..., None], chosen[..., None]
    compared = compare(u, present, pairs)
    q = winners(compared, present, pairs)
    p, coefficients = _coefficients(q, chosen, is_threshold(present, chosen) if threshold else None)
    value, kept = _floored(p, chosen, d), jnp.ones_like(p)
    if lapse is not None:
        mixed = with_random_answers(value, _log_answers(present, threshold, u.dtype), lapse)
        kept, value = jnp.exp(jnp.log1p(-lapse) + value - mixed), mixed
    share = q * coefficients / jnp.maximum(p, jnp.finfo(p.dtype).tiny)[None, None]
    explained = (kept * p / (p + FLOOR))[None]
    gradient, curvature = averaged_ratio(compared.z, _slopes(compared, present, pairs), share, q, explained, pairs)
    return ExpectedDerivatives(jnp.mean(value, axis=-1), gradient, curvature, jnp.mean(1.0 - kept, axis=-1))


def _slopes(compared: Compared, present: MasksOfBatch, pairs: Pairs) -> Slopes:
    together = (present[pairs.first] & present[pairs.second])[None]
    _, above, below, hazard, hazard_below, _ = compared
    forth, back = above * hazard / (above + FLOOR), below * hazard_below / (below + FLOOR)
    return Slopes(jnp.where(together, forth, 0.0), jnp.where(together, back, 0.0))


def answer_probabilities(u: OfBatch, *, threshold: bool = False) -> Float[Array, "answers *batch"]:
    """Return p(C | A, u) of every subset C of one set; bit i of the row number is set where object i is chosen.

    With ``threshold``, it is the last object of ``u`` and no member of any subset.

    Examples
    --------
    >>> table = answer_probabilities(jnp.array([[9.0, 0.0, 5.0], [0.0, 9.0, 5.0]]))
    >>> [round(float(p), 2) for p in table]
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    d, pairs = len(u), object_pairs(u.shape[1])
    present = jnp.ones((u.shape[1], *(1,) * (u.ndim - 2)), bool)
    q = winners(compare(u, present, pairs), present, pairs)
    free = q[:, -1] if threshold else jnp.zeros_like(q[:, 0])
    q = q[:, : u.shape[1] - threshold]
    table = _nobody(q)
    for own, unseen in zip(q, free, strict=True):
        table = _one_more(table, own, unseen)
    members = (np.arange(len(table))[:, None] >> np.arange(q.shape[1])) & 1
    excess = np.maximum(members.sum(axis=1) - d, 0).reshape(-1, *(1,) * (u.ndim - 2))
    inside = jnp.prod(jnp.einsum("so,do...->ds...", members.astype(u.dtype), q) + free[:, None], axis=0)
    table = (jnp.where(excess > 0, inside, table) + FLOOR) * FLOOR**excess
    return table if threshold else table.at[0].set(0.0)


def log_best_of_one(
    u: OfBatch, present: MasksOfBatch, best: MasksOfBatch, lapse: Lapse = None
) -> Float[Array, "*batch"]:
    """Return the log probability that the best object is the winner of a utility picked at random."""
    if u.shape[1] == 1:
        return jnp.zeros(u.shape[2:], u.dtype)
    pairs = object_pairs(u.shape[1])
    q = winners(compare(u, present, pairs), present, pairs)
    value = jnp.log(jnp.mean(_of_best(q, best), axis=0) + FLOOR)
    return value if lapse is None else with_random_answers(value, log_number_of_objects(present), lapse)


def _of_best(q: Float[Array, "d a *batch"], best: MasksOfBatch) -> Float[Array, "d *batch"]:
    return jnp.sum(jnp.where(best[None], q, 0.0), axis=1)


def expected_best_of_one_derivatives(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of the log probability of the best object over samples."""
    d, a, _, _ = u.shape
    if a == 1:
        return of_single_objects(u)
    pairs, present, chosen = object_pairs(a), present[..., None], chosen[..., None]
    compared = compare(u, present, pairs)
    q = winners(compared, present, pairs)
    own = _of_best(q, chosen)
    p = jnp.mean(own, axis=0)
    value, kept = jnp.log(p + FLOOR), jnp.ones_like(p)
    if lapse is not None:
        mixed = with_random_answers(value, log_number_of_objects(present), lapse)
        kept, value = jnp.exp(jnp.log1p(-lapse) + value - mixed), mixed
    share = jnp.where(chosen[None], jnp.ones_like(q[:1]), 0.0)
    explained = (kept / (d * (p + FLOOR)))[None] * own
    gradient, curvature = averaged_ratio(compared.z, _slopes(compared, present, pairs), share, q, explained, pairs)
    return ExpectedDerivatives(jnp.mean(value, axis=-1), gradient, curvature, jnp.mean(1.0 - kept, axis=-1))
