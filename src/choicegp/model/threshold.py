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

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from choicegp.model.derivatives import (
    ExpectedDerivatives,
    answer_terms,
    averaged,
    compare,
    compare_once,
    log_answer,
    mean_square,
    of_single_objects,
)
from choicegp.model.likelihood import (
    FLOOR,
    log_likelihood,
    object_pairs,
    subset_probabilities,
    with_random_answers,
)
from choicegp.model.log_sums import log_add_exp
from choicegp.model.shapes import AnyArray, Scalar

_NOTHING = 1e-30  # a share in a sum that is none


def is_threshold(present: Bool[AnyArray, "a ..."], chosen: Bool[AnyArray, "a ..."]) -> Bool[Array, "a ..."]:
    """Mark the threshold of each set: it stands after the chosen objects."""
    place = jnp.arange(len(chosen)).reshape((-1,) + (1,) * (chosen.ndim - 1))
    return jnp.asarray(present) & (place == jnp.sum(chosen, axis=0, keepdims=True))


def log_number_of_answers(present: Bool[AnyArray, "a ..."]) -> Float[Array, "..."]:
    """Return the log of 2^a, the threshold itself left out."""
    return jnp.maximum(jnp.sum(present, axis=0) - 1.0, 0.0) * math.log(2.0)


def _both_answers(
    present: Bool[AnyArray, "a ..."], chosen: Bool[AnyArray, "a ..."]
) -> tuple[Bool[Array, "a ..."], Bool[Array, "a ..."], Bool[Array, "..."]]:
    """Return the answers without and with the threshold, and whether the first is possible: not where it is empty."""
    possible = jnp.any(chosen, axis=0)
    with_it = jnp.asarray(chosen) | is_threshold(present, chosen)
    # An answer that is not counted stands in for one that is impossible, so that its derivatives are finite.
    return jnp.where(possible[None], chosen, with_it), with_it, possible


def log_likelihood_with_threshold(
    u: Float[AnyArray, "d a *batch"],
    present: Bool[AnyArray, "a ..."],
    chosen: Bool[AnyArray, "a ..."],
    lapse: Scalar | None = None,
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
    u: Float[AnyArray, "d a m S"],
    present: Bool[AnyArray, "a m"],
    chosen: Bool[AnyArray, "a m"],
    lapse: Scalar | None = None,
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
    u: Float[AnyArray, "d a m S"],
    present: Bool[AnyArray, "a m"],
    chosen: Bool[AnyArray, "a m"],
    lapse: Scalar | None = None,
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of log p(C | A, u) over samples."""
    a = u.shape[1]
    if a == 1:
        return of_single_objects(u)
    pairs = object_pairs(a)
    compared = compare_once(u, present[..., None], pairs)
    without, with_it, possible = _both_answers(present, chosen)
    first, second = (answer_terms(compared, present, answer, pairs, FLOOR) for answer in (without, with_it))
    value = log_add_exp(jnp.where(possible[:, None], first.value, -jnp.inf), second.value)
    share = jax.nn.sigmoid(first.value - second.value)
    # Products of tiny numbers leave the range in which a CPU is quick.
    share = jnp.where(possible[:, None] & (share > _NOTHING), share, 0.0)
    kept = jnp.ones_like(value)
    if lapse is not None:
        mixed = with_random_answers(value, log_number_of_answers(present)[:, None], lapse)
        kept, value = jnp.exp(jnp.log1p(-lapse) + value - mixed), mixed
    parts = averaged(first, kept * share, compared, pairs), averaged(second, kept * (1.0 - share), compared, pairs)
    gradient, curvature = (one + other for one, other in zip(*parts, strict=True))
    slopes = first.of_objects(pairs), second.of_objects(pairs)
    curvature -= mean_square(kept * share * (1.0 - share), slopes[0] - slopes[1])
    if lapse is not None:
        curvature -= mean_square(kept * (1.0 - kept), slopes[1] + share[None, None] * (slopes[0] - slopes[1]))
    return ExpectedDerivatives(jnp.mean(value, axis=-1), gradient, curvature, jnp.mean(1.0 - kept, axis=-1))


def answer_probabilities_with_threshold(u: Float[AnyArray, "d a *batch"]) -> Float[Array, "answers *batch"]:
    """Return p(C | A, u) of every subset C of the visible objects, the empty one included; the threshold comes last."""
    table = subset_probabilities(u)
    half = len(table) // 2
    return table[:half] + table[half:]
