"""First and second derivatives of the log-likelihood of a set, averaged over samples of its utilities.

Natural-gradient steps need E[d log p / du] and, by Price's theorem, -E[d² log p / du²].  Every factor of the
likelihood is affine in each Φ(z_i(o,v)), so with f = d log p / d z_i(o,v) the second derivatives are known in
closed form: -d²/dz² = f (z + f), and for a rejected v with two chosen o, o': -d² = f_o f_o' / G_v, where
G_v = prod_o (1 - e^p(o,v)).  With one utility the single objects' probabilities e^S_o, S_o = sum_v log Φ(z(o,v)), are
divided by their sum Z.  With w_o = e^S_o / Z, g_o = dS_o / du and g = sum_o w_o g_o = d log Z / du,
d² log Z / du² = sum_o w_o (d² S_o / du² + (g_o - g)(g_o - g)^T).  No derivative is ever taken through a factorisation
of a covariance.

This is the inner loop of inference, so it works on probabilities, not on their logs: with a positive floor
nothing below the floor matters, the recursions only add and multiply, and a logarithm costs four times an
exponential (measured in float64 on a CPU).  `choicegp.model.likelihood.log_likelihood` is the same in logs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from choicegp.model.likelihood import (
    FLOOR,
    PairProbabilities,
    Pairs,
    is_normalised,
    object_pairs,
    of_all_pairs,
    pair_probabilities,
    with_lapse,
)
from choicegp.model.log_sums import log_sum_exp, shares
from choicegp.model.probit import probit_and_hazard
from choicegp.model.shapes import AnyArray, Lapse, MasksOfBatch, MasksOfSets, OfBatch, Samples

TINY = 1e-30  # keeps divisions by 1 - e^p finite in float32; whatever is divided by it is far smaller
_MULTIPLIED = 16  # factors of which the product is taken before its logarithm
WRITTEN_OUT = 6  # objects of a set whose pairs are written out: a batch of products so small costs twice as much
_UNROLLED = 16  # rows of the recursion over chosen objects that are unrolled; a longer one is a loop


class ExpectedDerivatives(NamedTuple):
    """Averages over samples, for a batch of m sets.

    Attributes
    ----------
    value : Array (m,)
        E[log p].
    gradient : Array (d, a, m)
        E[d log p / du].
    curvature : Array (d, a, a, m)
        -E[d² log p / du_i²], one block per utility, before any clipping.
    lapsed : Array (m,)
        Posterior probability that the answer was a lapse; 0 without a lapse rate.
    """

    value: Float[Array, " m"]
    gradient: Float[Array, "d a m"]
    curvature: Float[Array, "d a a m"]
    lapsed: Float[Array, " m"]


def of_single_objects(u: Float[AnyArray, "d 1 m S"]) -> ExpectedDerivatives:
    """Return the derivatives of answers to sets of one object, which are certain: zeros."""
    d, _, m, _ = u.shape
    none = jnp.zeros((d, 1, 1, m), u.dtype)
    return ExpectedDerivatives(none[0, 0, 0], none[:, 0], none, none[0, 0, 0])


def expected_derivatives(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None, *, floor: float = FLOOR
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of log p(C | A, u) over samples.

    Parameters
    ----------
    u : Array (d, a, m, S)
        S samples of the utilities of the a objects of each of m sets, in units of sigma.
    present, chosen : bool Array (a, m)
        The chosen objects of a set come first, then the rejected ones, then padding; what is chosen is present.
    floor : float
        Added to every factor; it must be positive here.
    lapse : float, optional
        Probability that an answer is one of the 2^a - 1 subsets at random.

    Returns
    -------
    ExpectedDerivatives
    """
    a = u.shape[1]
    if a == 1:
        return of_single_objects(u)
    pairs = object_pairs(a)
    compared = compare(u, present[..., None], pairs)
    answer = answer_terms(compared, present, chosen, pairs, floor)
    value, kept = answer.value, jnp.ones_like(answer.value)
    if lapse is not None:
        # The share of the mixture that the model explains, per sample, scales its derivatives.
        mixed = with_lapse(value, present[..., None], lapse)
        kept, value = jnp.exp(jnp.log1p(-lapse) + value - mixed), mixed
    gradient, curvature = averaged(answer, kept, compared, pairs)
    if lapse is not None:
        curvature -= mean_square(kept * (1 - kept), to_objects(answer.slope, pairs))
    return ExpectedDerivatives(jnp.mean(value, axis=-1), gradient, curvature, jnp.mean(1.0 - kept, axis=-1))


class Compared(NamedTuple):
    """The objects of sets compared in pairs, once for all answers.

    Attributes
    ----------
    z, above, below, hazard, hazard_below : Array (d, P, ...)
        u(first) - u(second), Φ(z), Φ(-z), h(z) and h(-z).
    pair : PairProbabilities
        Over all utilities.
    """

    z: Float[Array, "d P *batch"]
    above: Float[Array, "d P *batch"]
    below: Float[Array, "d P *batch"]
    hazard: Float[Array, "d P *batch"]
    hazard_below: Float[Array, "d P *batch"]
    pair: PairProbabilities


def compare(u: OfBatch, present: MasksOfBatch, pairs: Pairs) -> Compared:
    """Compare the objects of each set in pairs."""
    u = jnp.where(present[None], u, 0.0)  # whatever stands in the padding, NaN too
    z = u[:, pairs.first] - u[:, pairs.second]
    above, below, hazard, hazard_below = probit_and_hazard(z)
    return Compared(z, above, below, hazard, hazard_below, pair_probabilities(above, below))


def compare_once(u: OfBatch, present: MasksOfBatch, pairs: Pairs) -> Compared:
    """Do as `compare` does, for several uses: a compiler might compare the objects again for each of them.

    It does not take a loop over the utilities apart; with a threshold a set's derivatives take 2.8 ms instead of 4.3.
    """
    u = jnp.where(present[None], u, 0.0)

    def of_utility(own: Float[Array, "a *batch"]) -> tuple[Array, ...]:
        z = own[pairs.first] - own[pairs.second]
        return z, *probit_and_hazard(z)

    z, above, below, hazard, hazard_below = jax.lax.map(of_utility, u)
    return Compared(z, above, below, hazard, hazard_below, pair_probabilities(above, below))


class ScoredAnswer(NamedTuple):
    """The log probability of an answer, and what its derivatives are made of.

    Attributes
    ----------
    value : Array (m, S)
        log p.
    f : Array (d, P, m, S)
        d log p / dz, but for the sum over single objects.
    coupling : Array (d, P, m, S) or None
        sqrt(G_v) f_o / G_v: two chosen objects o, o' that may both have beaten v.
    singles : SingleObjects or None
        The sum over single objects, where it is divided by.
    """

    value: Float[Array, "m S"]
    f: Float[Array, "d P m S"]
    coupling: Float[Array, "d P m S"] | None
    singles: "SingleObjects | None"

    @property
    def slope(self) -> Float[Array, "d P m S"]:
        """Return d log p / dz."""
        return self.f if self.singles is None else self.f - self.singles.slope


def answer_terms(
    compared: Compared, present: MasksOfSets, chosen: MasksOfSets, pairs: Pairs, floor: float
) -> ScoredAnswer:
    """Return log p of the answers ``chosen``, of which the objects come first, and the terms of its derivatives."""
    z, above, below, hazard, hazard_below, pair = compared
    d, a = len(z), len(present)
    rejected = (present & ~chosen)[..., None]
    inside = chosen[pairs.first, :, None] & chosen[pairs.second, :, None]
    beats = chosen[pairs.first, :, None] & rejected[pairs.second]
    g, beaten = beaten_by(pair, beats, pairs)
    conflict, beaten = pair.incomparable + floor, beaten + floor
    value = jnp.sum(jnp.where(inside, jnp.log(conflict), 0.0), axis=0)
    value += jnp.sum(jnp.where(rejected, jnp.log(beaten), 0.0), axis=0)

    # f = d log p / dz: a multiple of h(z) = φ/Φ and, for two chosen objects, one of h(-z).
    share = 1.0 / (jnp.maximum(pair.not_dominates, TINY) * beaten[pairs.second])
    up = jnp.where(inside, -1.0 / conflict, jnp.where(beats, g[pairs.second] * share, 0.0)) * pair.dominates
    down = jnp.where(inside, pair.dominated / conflict, 0.0)
    # With one utility two chosen objects have probability `floor` whatever u is.
    f = up[None] * hazard + down[None] * hazard_below if d > 1 else jnp.where(inside[None], 0.0, up[None] * hazard)
    singles = coupling = None
    if d == 1 and a > 2:
        singles = _single_objects((z, above, below, hazard, hazard_below), present, chosen, pairs, floor)
        value -= singles.log_sum
    if a > 2:
        root = jnp.sqrt(g * (1 + floor))[pairs.second]
        coupling = jnp.where(beats, root * pair.dominates * share, 0.0)[None] * hazard
    return ScoredAnswer(value, f, coupling, singles)


def averaged(
    answer: ScoredAnswer, kept: Float[Array, "m S"], compared: Compared, pairs: Pairs
) -> tuple[Float[Array, "d a m"], Float[Array, "d a a m"]]:
    """Average gradient and negative Hessian of log p over samples that have the weights ``kept``."""
    of_pairs = kept[None, None] * answer.f
    gradient = to_objects(jnp.mean(of_pairs, axis=-1), pairs)
    curvature = laplacian(jnp.mean(of_pairs * (compared.z + answer.f), axis=-1), pairs)
    if answer.coupling is not None:
        curvature += coupling_curvature(jnp.sqrt(kept)[None, None] * answer.coupling, pairs)
    singles = answer.singles
    if singles is not None:
        gradient -= to_objects(jnp.mean(kept[None, None] * singles.slope, axis=-1), pairs)
        curvature -= laplacian(jnp.mean(kept[None, None] * singles.bend, axis=-1), pairs)
        curvature += _spread(kept[None] * singles.share, singles.gradient)[None]
    return gradient, curvature


def mean_square(weight: Float[Array, "m S"], slope: Float[Array, "d a m S"]) -> Float[Array, "d a a m"]:
    """Mean over samples of weight g g^T."""
    return jnp.einsum("ioms,ipms->iopm", weight[None, None] * slope, slope) / weight.shape[-1]


def sampled_log_likelihood(
    u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None, *, floor: float = FLOOR
) -> Float[Array, "m S"]:
    """Return log p(C | A, u) of m sets for each of S samples, (m, S).

    This is `choicegp.model.likelihood.log_likelihood` from probabilities: it takes a quarter of the time, and needs a
    positive floor.  The arguments are as in `expected_derivatives`.
    """
    if u.shape[1] == 1:
        return jnp.zeros(u.shape[2:], u.dtype)
    pairs = object_pairs(u.shape[1])
    value = log_answer(compare(u, present[..., None], pairs), present, chosen, pairs, floor)
    return value if lapse is None else with_lapse(value, present[..., None], lapse)


def log_answer(
    compared: Compared, present: MasksOfSets, chosen: MasksOfSets, pairs: Pairs, floor: float
) -> Float[Array, "m S"]:
    """Return log p of the answers ``chosen``, of which the objects come first."""
    pair, d, a = compared.pair, len(compared.z), len(present)
    rejected = (present & ~chosen)[..., None]
    inside = chosen[pairs.first, :, None] & chosen[pairs.second, :, None]
    beats = chosen[pairs.first, :, None] & rejected[pairs.second]
    _, beaten = beaten_by(pair, beats, pairs)
    value = jnp.sum(jnp.where(inside, jnp.log(pair.incomparable + floor), 0.0), axis=0)
    value += jnp.sum(jnp.where(rejected, jnp.log(beaten + floor), 0.0), axis=0)
    if d == 1 and a > 2:
        logs = log_products(compared.above[0] + floor, compared.below[0] + floor, present[..., None], pairs)
        value -= jnp.where(is_normalised(present, chosen)[:, None], log_sum_exp(logs), 0.0)
    return value


def log_products(
    ahead: Float[Array, "P *batch"], behind: Float[Array, "P *batch"], present: MasksOfBatch,
    pairs: Pairs
) -> Float[Array, "a *batch"]:  # fmt: skip
    """Return S_o from Φ(z) and Φ(-z), the floor included; padding has -inf.

    A product may underflow, which is harmless: the best object has factors of at least 1/2, and larger ones than any
    other object against every third, so an object whose product vanishes has no share in the sum either.
    """
    factors = jnp.where(present[None], of_all_pairs(ahead, behind, pairs, 1.0), 1.0)
    parts = [jnp.prod(factors[:, i : i + _MULTIPLIED], axis=1) for i in range(0, len(present), _MULTIPLIED)]
    return jnp.where(present, sum(map(jnp.log, parts[1:]), jnp.log(parts[0])), -jnp.inf)


class SingleObjects(NamedTuple):
    """The sum Z over the single objects of a set with one utility, and what its derivatives are made of.

    Attributes
    ----------
    log_sum : Array (m, S)
        log Z.
    share : Array (a, m, S)
        w_o, the probability that o alone is chosen.
    slope, bend : Array (1, P, m, S)
        d log Z / dz of each pair, and -sum_o w_o d² S_o / dz².
    gradient : Array (a, a, m, S)
        g_o - g: one row for each o.
    """

    log_sum: Float[Array, "m S"]
    share: Float[Array, "a m S"]
    slope: Float[Array, "1 P m S"]
    bend: Float[Array, "1 P m S"]
    gradient: Float[Array, "a a m S"]


def _single_objects(
    of_pairs: tuple[Array, ...], present: MasksOfSets, chosen: MasksOfSets, pairs: Pairs, floor: float
) -> SingleObjects:
    """Return Z from z, Φ(z), Φ(-z), h(z) and h(-z) of the pairs; log Z and w are 0 where Z is not used."""
    z, above, below, hazard, hazard_below = (part[0] for part in of_pairs)
    together = (present[pairs.first] & present[pairs.second])[..., None]
    used = is_normalised(present, chosen)[:, None]
    ahead, behind = above + floor, below + floor
    logs = log_products(ahead, behind, present[..., None], pairs)
    share = jnp.where(used[None], shares(logs), 0.0)
    # d log(Φ + floor) / dz where the first object of the pair is alone, and where the second is.
    forth = jnp.where(together, above * hazard / ahead, 0.0)
    back = jnp.where(together, below * hazard_below / behind, 0.0)
    first, second = share[pairs.first] * forth, share[pairs.second] * back
    slope, bend = first - second, first * (z + forth) + second * (back - z)
    f = of_all_pairs(forth, back, pairs, 0.0)
    diagonal = np.eye(len(f), dtype=bool)[:, :, None, None]
    gradient = jnp.where(diagonal, jnp.sum(f, axis=1, keepdims=True), -f) - to_objects(slope[None], pairs)
    return SingleObjects(jnp.where(used, log_sum_exp(logs), 0.0), share, slope[None], bend[None], gradient)


def _spread(weight: Float[Array, "a m S"], rows: Float[Array, "a a m S"]) -> Float[Array, "a a m"]:
    """Mean over samples of sum_o weight_o row_o row_o^T."""
    return jnp.einsum("opms,oqms->pqm", weight[:, None] * rows, rows) / weight.shape[-1]


def beaten_by(
    pair: PairProbabilities, beats: Bool[AnyArray, "P m 1"], pairs: Pairs
) -> tuple[Float[Array, "a m S"], Float[Array, "a m S"]]:
    """G_v = prod_o (1 - e^p(o,v)) and 1 - G_v for every object v, over the chosen o before it."""
    if len(pairs.index) <= WRITTEN_OUT:  # pair by pair: of few objects, a list of all pairs takes longer
        left, lost = ([jnp.full_like(pair.dominates[0], value)] * len(pairs.index) for value in (1.0, 0.0))
        for number, v in enumerate(pairs.second):
            lost[v] = lost[v] + left[v] * jnp.where(beats[number], pair.dominates[number], 0.0)
            left[v] = left[v] * jnp.where(beats[number], pair.not_dominates[number], 1.0)
        return jnp.stack(left), jnp.stack(lost)
    upper = np.triu(np.ones(pairs.index.shape, bool), 1)[:, :, None, None]
    beats = beats[pairs.index] & upper
    dominates = jnp.where(beats, pair.dominates[pairs.index], 0.0)
    stays = jnp.where(beats, pair.not_dominates[pairs.index], 1.0)

    def step(carry: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        g, beaten = carry
        return (g * row[1], beaten + g * row[0]), None

    start = (jnp.ones_like(stays[0]), jnp.zeros_like(stays[0]))
    (g, beaten), _ = jax.lax.scan(step, start, (dominates, stays), unroll=min(len(stays), _UNROLLED))
    return g, beaten


def to_objects(f: Float[Array, "d P *batch"], pairs: Pairs) -> Float[Array, "d a *batch"]:
    """Map derivatives with respect to u(first) - u(second) of each pair to the objects."""
    a = pairs.index.shape[0]
    signs = np.sign(np.arange(a)[None, :] - np.arange(a)[:, None])  # +1 where the row is first
    return jnp.sum(signs.reshape((1, a, a) + (1,) * (f.ndim - 2)) * f[:, pairs.index], axis=2)


def laplacian(weight: Float[Array, "d P m"], pairs: Pairs) -> Float[Array, "d a a m"]:
    """Sum of weight (e_o - e_v)(e_o - e_v)^T over the pairs."""
    off_diagonal = ~np.eye(pairs.index.shape[0], dtype=bool)[:, :, None]
    dense = jnp.where(off_diagonal, weight[:, pairs.index], 0.0)
    return jnp.where(off_diagonal, -dense, jnp.sum(dense, axis=2)[:, :, None])


def coupling_curvature(coupling: Float[Array, "d P m S"], pairs: Pairs) -> Float[Array, "d a a m"]:
    """Mean over samples of sum_{o != o'} t_o t_o' (e_o - e_v)(e_o' - e_v)^T over the rejected v.

    Written out pair by pair for small sets: a batched product of matrices this small takes eight times as long.
    """
    a, index = len(pairs.index), pairs.index
    if a > WRITTEN_OUT:
        return _coupling_by_products(coupling, pairs)
    weights = []
    for o, v in zip(pairs.first, pairs.second, strict=True):
        # o has beaten v together with another object; or o and v have both beaten a third.
        with_it = [coupling[:, index[o, v]] * coupling[:, index[p, v]] for p in range(v) if p != o]
        both = [-coupling[:, index[o, w]] * coupling[:, index[v, w]] for w in range(v + 1, a)]
        weights.append(jnp.mean(sum(with_it + both, jnp.zeros_like(coupling[:, 0])), axis=-1))
    return laplacian(jnp.stack(weights, axis=1), pairs)


def _coupling_by_products(coupling: Float[Array, "d P m S"], pairs: Pairs) -> Float[Array, "d a a m"]:
    n = coupling.shape[-1]
    upper = np.triu(np.ones(pairs.index.shape, bool), 1)[:, :, None, None]
    t = jnp.where(upper, coupling[:, pairs.index], 0.0)  # (d, o, v, m, S)
    together = jnp.einsum("iovms,ipvms->iopm", t, t) / n
    with_rejected = jnp.mean(t * (jnp.sum(t, axis=1, keepdims=True) - t), axis=-1)
    off_diagonal = ~np.eye(pairs.index.shape[0], dtype=bool)[:, :, None]
    dense = with_rejected + jnp.swapaxes(with_rejected, 1, 2) - jnp.where(off_diagonal, together, 0.0)
    return jnp.where(off_diagonal, -dense, jnp.sum(dense, axis=2)[:, :, None])
