"""Sets from which nothing may be kept: a threshold, a virtual object 0 that stands in every set and is never seen.

What is seen of the choice from A + 0 is its part in A:

    p(nothing | A) = p({0} | A + 0),    p(C | A) = p(C | A + 0) + p(C + 0 | A + 0),  C not empty,

with the likelihood of `choicegp.model.likelihood` on the right.  An object may be rejected because 0 dominates it, all
may be, and a set of one object is a question that is answered by yes or no.

The threshold has one place: after the chosen objects and before the rejected ones.  There it may count as chosen or
as rejected, and in either case the chosen objects come first.  ``chosen`` never marks it.

For p = p_1 + p_2 with shares w_j = p_j / p and gradients g_j and Hessians H_j of log p_j, the gradient of log p is
g = w_1 g_1 + w_2 g_2, and its Hessian is sum_j w_j H_j + w_1 w_2 (g_1 - g_2)(g_1 - g_2)^T.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from choicegp.model.derivatives import (
    TINY,
    WRITTEN_OUT,
    Compared,
    ExpectedDerivatives,
    answer_terms,
    averaged,
    beaten_by,
    compare,
    compare_once,
    coupling_curvature,
    laplacian,
    log_answer,
    of_single_objects,
    to_objects,
)
from choicegp.model.likelihood import (
    FLOOR,
    Pairs,
    log_likelihood,
    object_pairs,
    subset_probabilities,
    with_random_answers,
)
from choicegp.model.log_sums import log_add_exp
from choicegp.model.shapes import Lapse, Masks, MasksOfSets, OfBatch, Samples

_NOTHING = 1e-30  # a share in a sum that is none


def is_threshold(present: Masks, chosen: Masks) -> Bool[Array, "a ..."]:
    """Mark the threshold of each set: it stands after the chosen objects."""
    place = jnp.arange(len(chosen)).reshape((-1,) + (1,) * (chosen.ndim - 1))
    return jnp.asarray(present) & (place == jnp.sum(chosen, axis=0, keepdims=True))


def log_number_of_answers(present: Masks) -> Float[Array, "..."]:
    """Return the log of 2^a, the threshold itself left out."""
    return jnp.maximum(jnp.sum(present, axis=0) - 1.0, 0.0) * math.log(2.0)


def _both_answers(
    present: Masks, chosen: Masks
) -> tuple[Bool[Array, "a ..."], Bool[Array, "a ..."], Bool[Array, "..."]]:
    """Return the answers without and with the threshold, and whether the first is possible: not where it is empty."""
    possible = jnp.any(chosen, axis=0)
    with_it = jnp.asarray(chosen) | is_threshold(present, chosen)
    # An answer that is not counted stands in for one that is impossible, so that its derivatives are finite.
    return jnp.where(possible[None], chosen, with_it), with_it, possible


def log_likelihood_with_threshold(
    u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None
) -> Float[Array, "*batch"]:
    """Return log p(C | A, u) in logs; ``u`` and ``present`` include the threshold, ``chosen`` does not mark it.

    Examples
    --------
    >>> u = jnp.array([[0.0, 1.0], [0.0, 1.0]])  # the threshold, and an object that was not kept
    >>> both, nothing = jnp.array([True, True]), jnp.array([False, False])
    >>> float(jnp.exp(log_likelihood_with_threshold(u, both, nothing))).__round__(3)  # Φ(-1)²
    0.025
    """
    without, with_it, possible = _both_answers(present, chosen)
    first, second = (log_likelihood(u, present, answer) for answer in (without, with_it))
    possible = jnp.reshape(possible, possible.shape + (1,) * (first.ndim - possible.ndim))
    value = log_add_exp(jnp.where(possible, first, -jnp.inf), second)
    if lapse is None:
        return value
    answers = log_number_of_answers(present)
    return with_random_answers(value, answers.reshape(answers.shape + (1,) * (value.ndim - answers.ndim)), lapse)


def sampled_with_threshold(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
) -> Float[Array, "m S"]:
    """Return log p(C | A, u) of m sets for each of S samples, from probabilities."""
    if u.shape[1] == 1:  # the threshold alone
        return jnp.zeros(u.shape[2:], u.dtype)
    pairs = object_pairs(u.shape[1])
    compared = compare(u, present[..., None], pairs)
    without, with_it, possible = _both_answers(present, chosen)
    first, second = (log_answer(compared, present, answer, pairs, FLOOR) for answer in (without, with_it))
    value = log_add_exp(jnp.where(possible[:, None], first, -jnp.inf), second)
    return value if lapse is None else with_random_answers(value, log_number_of_answers(present)[:, None], lapse)


def expected_derivatives_with_threshold(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of log p(C | A, u) over samples."""
    d, a = u.shape[:2]
    if a == 1:
        return of_single_objects(u)
    pairs = object_pairs(a)
    compared = compare_once(u, present[..., None], pairs)
    # With one utility, sums over single objects differ between the two answers: there they are taken one by one.
    answers = _one_by_one(compared, present, chosen, pairs) if d == 1 else _together(compared, present, chosen, pairs)
    value, kept = answers.value, jnp.ones_like(answers.value)
    if lapse is not None:
        mixed = with_random_answers(value, log_number_of_answers(present)[:, None], lapse)
        kept, value = jnp.exp(jnp.log1p(-lapse) + value - mixed), mixed
    gradient, curvature = answers.averaged(kept)
    share, gap = answers.share, answers.gap
    curvature -= _mean_of_pairs(kept * share * (1.0 - share), gap, pairs)
    if lapse is not None:
        curvature -= _mean_of_pairs(kept * (1.0 - kept), answers.second + share[None, None] * gap, pairs)
    return ExpectedDerivatives(jnp.mean(value, axis=-1), gradient, curvature, jnp.mean(1.0 - kept, axis=-1))


class _Answers(NamedTuple):
    """The two answers whose sum is seen: log p, the first one's share in it, slopes by z, and averages of both."""

    value: Float[Array, "m S"]
    share: Float[Array, "m S"]
    gap: Float[Array, "d P m S"]  # the first one's slope less the second one's
    second: Float[Array, "d P m S"]
    averaged: Callable[[Array], tuple[Array, Array]]


def _share(first: Array, second: Array, possible: Array) -> Array:
    share = jax.nn.sigmoid(first - second)
    # Products of tiny numbers leave the range in which a CPU is quick.
    return jnp.where(possible & (share > _NOTHING), share, 0.0)


def _one_by_one(compared: Compared, present: MasksOfSets, chosen: MasksOfSets, pairs: Pairs) -> _Answers:
    without, with_it, possible = _both_answers(present, chosen)
    first, second = (answer_terms(compared, present, answer, pairs, FLOOR) for answer in (without, with_it))
    share = _share(first.value, second.value, possible[:, None])

    def of_both(kept: Array) -> tuple[Array, Array]:
        parts = averaged(first, kept * share, compared, pairs), averaged(second, kept * (1 - share), compared, pairs)
        return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]

    value = log_add_exp(jnp.where(possible[:, None], first.value, -jnp.inf), second.value)
    return _Answers(value, share, first.slope - second.slope, second.slope, of_both)


def _together(compared: Compared, present: MasksOfSets, chosen: MasksOfSets, pairs: Pairs) -> _Answers:
    """Evaluate both answers at once: all pairs without the threshold have the same comparisons in both.

    The slope of either answer by z is U h(z) + D h(-z) with U and D common to all utilities, so that the sums over
    the two answers are taken before anything has one entry per utility.
    """
    z, _, _, hazard, hazard_below, pair = compared
    zero, one, two = is_threshold(present, chosen), pairs.first, pairs.second
    rejected = present & ~chosen & ~zero
    inside, before = (chosen[one] & chosen[two])[..., None], (chosen[one] & zero[two])[..., None]
    beats, stands = (chosen[one] & rejected[two])[..., None], (zero[one] & rejected[two])[..., None]
    zero, rejected, possible = zero[..., None], rejected[..., None], jnp.any(chosen, axis=0)[:, None]
    g, beaten = beaten_by(pair, beats | before, pairs)
    # The threshold comes after all chosen objects: as one of them it is the last factor.
    own = zero[:, None] & np.triu(np.ones(pairs.index.shape, bool), 1)[:, :, None, None]
    its = jnp.sum(jnp.where(own, pair.dominates[pairs.index], 0.0), axis=0)
    left = 1.0 + jnp.sum(jnp.where(own, pair.not_dominates[pairs.index] - 1.0, 0.0), axis=0)
    g = jnp.stack([g, g * left])
    beaten = jnp.stack([beaten, beaten + g[0] * its]) + FLOOR
    conflict = pair.incomparable + FLOOR
    logs, log_beaten = jnp.log(conflict), jnp.log(beaten)
    first = jnp.sum(jnp.where(rejected | zero, log_beaten[0], 0.0), axis=0)
    second = jnp.sum(jnp.where(rejected, log_beaten[1], 0.0), axis=0) + jnp.sum(jnp.where(before, logs, 0.0), axis=0)
    share = _share(first, second, possible)
    value = log_add_exp(jnp.where(possible, first, -jnp.inf), second)
    value += jnp.sum(jnp.where(inside, logs, 0.0), axis=0)

    odds = pair.dominates / jnp.maximum(pair.not_dominates, TINY)
    up, down = -pair.dominates / conflict, pair.dominated / conflict
    raised = odds[None] * (g / beaten)[:, two]
    ups = (
        jnp.where(inside, up, jnp.where(beats | before, raised[0], 0.0)),
        jnp.where(inside | before, up, jnp.where(beats | stands, raised[1], 0.0)),
    )
    downs = jnp.where(inside, down, 0.0), jnp.where(inside | before, down, 0.0)

    def of_both(kept: Array) -> tuple[Array, Array]:
        weights = (kept * share)[None], (kept * (1.0 - share))[None]

        def summed(*terms: Array) -> Array:
            return (weights[0] * terms[0] + weights[1] * terms[1])[None]

        f = summed(*ups) * hazard + summed(*downs) * hazard_below
        squares = summed(*(u * u for u in ups)) * hazard * hazard + summed(*(d * d for d in downs)) * hazard_below**2
        squares += 2.0 * summed(*(u * d for u, d in zip(ups, downs, strict=True))) * hazard * hazard_below
        gradient = to_objects(jnp.mean(f, axis=-1), pairs)
        curvature = laplacian(jnp.mean(f * z + squares, axis=-1), pairs)
        if len(present) > 2:
            of_first, of_second = (w * (1.0 + FLOOR) * g[j] / beaten[j] ** 2 for j, w in enumerate(weights))
            root = jnp.sqrt(jnp.where(zero, of_first, of_first + of_second))
            alone = of_second / jnp.where(root > 0.0, root, 1.0)  # the threshold, with a chosen object
            t = odds * jnp.where(beats | before, root[two], jnp.where(stands, alone[two], 0.0))
            curvature += coupling_curvature(t[None] * hazard, pairs)
        return gradient, curvature

    gap, second_slope = (
        up[None] * hazard + down[None] * hazard_below
        for up, down in ((ups[0] - ups[1], downs[0] - downs[1]), (ups[1], downs[1]))
    )
    return _Answers(value, share, gap, second_slope, of_both)


def _mean_of_pairs(
    weight: Float[Array, "m S"], slope: Float[Array, "d P m S"], pairs: Pairs
) -> Float[Array, "d a a m"]:
    """Mean over samples of weight g g^T, for the slopes g by u that belong to slopes by z; they sum to zero.

    Written out object by object for small sets: lists of all pairs would take a sixth of a step.
    """
    if len(pairs.index) > WRITTEN_OUT:
        g = to_objects(slope, pairs)
        return -laplacian(jnp.mean(weight[None, None] * g[:, pairs.first] * g[:, pairs.second], axis=-1), pairs)
    of_objects = [jnp.zeros_like(slope[:, 0])] * len(pairs.index)
    of_pairs = list(zip(pairs.first, pairs.second, strict=True))
    for number, (o, v) in enumerate(of_pairs):
        of_objects[o], of_objects[v] = of_objects[o] + slope[:, number], of_objects[v] - slope[:, number]
    products = [jnp.mean(weight[None] * of_objects[o] * of_objects[v], axis=-1) for o, v in of_pairs]
    return -laplacian(jnp.stack(products, axis=1), pairs)


def answer_probabilities_with_threshold(u: OfBatch) -> Float[Array, "answers *batch"]:
    """Return p(C | A, u) of every subset C of the visible objects, the empty one included; the threshold comes last."""
    table = subset_probabilities(u)
    half = len(table) // 2
    return table[:half] + table[half:]
