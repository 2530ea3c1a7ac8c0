"""The best object of a set when there are several utilities: one of those that no other dominates.

With e^p(v,o) = prod_i Φ((u_i(v) - u_i(o)) / σ), the probability that v dominates o,

    p(o | A, u) = e^T_o / sum_v e^T_v,    T_o = sum_{v != o} log(1 - e^p(v,o)),

so that objects which nothing dominates are equally likely as σ -> 0.  With one utility this is the likelihood of
`choicegp.model.likelihood`, which is divided by the same sum.  The worst object is the best one at -u.
"""

import math

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from choicegp.model.derivatives import Compared, ExpectedDerivatives, compare, log_products, of_single_objects
from choicegp.model.likelihood import FLOOR, Pairs, object_pairs, of_all_pairs, with_random_answers
from choicegp.model.log_sums import log_sum_exp, shares
from choicegp.model.score_sums import Slopes, averaged_ratio
from choicegp.model.shapes import Lapse, Masks, MasksOfBatch, MasksOfSets, OfBatch, Samples


def log_number_of_objects(present: Masks) -> Float[Array, "..."]:
    """Return the log of the number of objects, one of which is the answer."""
    return jnp.log(jnp.maximum(jnp.sum(present, axis=0), 1.0))


def _standing(compared: Compared) -> tuple[Float[Array, "P *batch"], Float[Array, "P *batch"]]:
    """Return the probabilities that the first object of each pair stands against the second, and the reverse."""
    pair = compared.pair
    return pair.dominates + pair.incomparable + FLOOR, pair.not_dominates + FLOOR


def log_best_object(
    u: OfBatch, present: MasksOfBatch, best: MasksOfBatch, lapse: Lapse = None
) -> Float[Array, "*batch"]:
    """Return log p(o | A, u); trailing axes are a batch.

    Examples
    --------
    >>> u = jnp.array([[1.0, 0.0], [1.0, 0.0]])  # better by one σ in both of two utilities
    >>> both, first = jnp.array([True, True]), jnp.array([True, False])
    >>> float(jnp.exp(log_best_object(u, both, first))).__round__(3)
    0.769
    """
    if u.shape[1] == 1:
        return jnp.zeros(u.shape[2:], u.dtype)
    pairs = object_pairs(u.shape[1])
    value, _ = _log_best(compare(u, present, pairs), present, best, pairs)
    return value if lapse is None else with_random_answers(value, log_number_of_objects(present), lapse)


def _log_best(
    compared: Compared, present: MasksOfBatch, best: MasksOfBatch, pairs: Pairs
) -> tuple[Float[Array, "*batch"], Float[Array, "a *batch"]]:
    """Return log p of the best object, and T_o of all."""
    stands = _standing(compared)
    scores = log_products(*stands, present, pairs)
    # The best object's own score is a sum of logs: a product of many small factors may underflow.
    factors = jnp.sum(jnp.where(best[:, None], of_all_pairs(*stands, pairs, 1.0), 0.0), axis=0)
    own = jnp.sum(jnp.where(present & jnp.any(best, axis=0)[None], jnp.log(jnp.maximum(factors, FLOOR)), 0.0), axis=0)
    # A set of padding alone has no objects: then the sum is 1.
    some = jnp.any(present, axis=0)[None]
    return own - log_sum_exp(jnp.where(some, scores, -math.log(len(scores)))), scores


def expected_best_object_derivatives(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of log p(o | A, u) over samples."""
    a = u.shape[1]
    if a == 1:
        return of_single_objects(u)
    pairs = object_pairs(a)
    compared = compare(u, present[..., None], pairs)
    value, scores = _log_best(compared, present[..., None], chosen[..., None], pairs)
    share, kept = jnp.where(present[..., None], shares(scores), 0.0), jnp.ones_like(value)
    if lapse is not None:
        mixed = with_random_answers(value, log_number_of_objects(present)[:, None], lapse)
        kept, value = jnp.exp(jnp.log1p(-lapse) + value - mixed), mixed
    own = jnp.where(chosen[..., None], jnp.ones_like(scores), 0.0)
    slopes = _slopes(compared, present, pairs)
    gradient, curvature = averaged_ratio(compared.z, slopes, own[None], share[None], kept[None], pairs)
    return ExpectedDerivatives(jnp.mean(value, axis=-1), gradient, curvature, jnp.mean(1.0 - kept, axis=-1))


def _slopes(compared: Compared, present: MasksOfSets, pairs: Pairs) -> Slopes:
    together = (present[pairs.first] & present[pairs.second])[None, ..., None]
    stands, other_stands = _standing(compared)
    forth = (compared.pair.dominated / stands)[None] * compared.hazard_below
    back = (compared.pair.dominates / other_stands)[None] * compared.hazard
    return Slopes(jnp.where(together, forth, 0.0), jnp.where(together, back, 0.0))
