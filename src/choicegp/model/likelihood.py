"""The probability of a choice, eq:likelihoodexpanse0 of Benavoli, Azzimonti and Piga (UAI 2023).

The maths is written for ONE set: utilities ``u`` of shape (d, a, ...), masks ``present`` and ``chosen`` of
shape (a, ...).  Trailing axes are a batch (sets, posterior samples) that is carried along: an elementwise
loop over a long contiguous batch ran three times faster on a CPU than the same loop with the tiny axes d and
a innermost, which is what ``vmap`` would give.

With z_i(o,v) = (u_i(o) - u_i(v)) / sigma, "o dominates v" has probability e^p = prod_i Φ(z_i(o,v)):

- each unordered pair {o, v} inside the chosen set contributes log(1 - e^p - e^q), q = p with o, v swapped;
- each rejected v contributes log(1 - prod_{o chosen} (1 - e^p(o,v))).

Over the answers these products sum to less than one when a > 2.  With two utilities or more the bias is small: known
utilities of unit scale explain simulated answers best at a scale of at most 1.04.  With one utility it is not (1.3, 1.6
and 2.1 for a = 3, 5 and 8), so there the probability of a single object o is divided by the sum over single objects,
Z = sum_o prod_v Φ(z(o,v)), the floor included in every factor.  Several chosen objects are impossible with one utility
and keep the paper's value, a floor for each pair: divided by Z they would favour equal utilities, and in large sets Z
can be smaller than the floor.

Both differences cancel catastrophically; a recursion over the utilities that only adds does not.  It is written
twice: in logs for `log_likelihood`, right however unlikely a choice is, and in probabilities for tables of all choices.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from choicegp.model.log_sums import log_add_exp, log_sum_exp
from choicegp.model.probit import log_probit, probit_and_hazard
from choicegp.model.shapes import AnyArray, Lapse, Masks, OfBatch, Scalar

FLOOR = 1e-10
"""Added to every factor, as in the paper's own code: with one utility, two chosen objects are impossible."""

MAX_ENUMERATED = 10
"""Sets of at most this many objects have all their subsets enumerated for predictions."""

MAX_SUMMED = 16
"""The largest sets whose likelihood is summed over all subsets, which takes seconds for some of them."""


class PairLogs(NamedTuple):
    """What can happen between the objects o and v of a pair, in logs.

    Attributes
    ----------
    dominates : Array
        log P(o dominates v) = p.
    dominated : Array
        log P(v dominates o) = q.
    incomparable : Array
        log(1 - e^p - e^q); -inf with one utility.
    not_dominates : Array
        log(1 - e^p).
    """

    dominates: Float[Array, "*batch"]
    dominated: Float[Array, "*batch"]
    incomparable: Float[Array, "*batch"]
    not_dominates: Float[Array, "*batch"]


def combine_utilities(above: Float[Array, "d *batch"], below: Float[Array, "d *batch"]) -> PairLogs:
    """Combine log Φ(z_i) (``above``) and log Φ(-z_i) (``below``) over the leading axis, without subtraction.

    "o does not dominate v" is split by the first utility in which o is behind, "incomparable" by the first
    utility that disagrees with all before it: e^c and e^r are then sums of products, and
    e^p + e^q + e^r = 1 and e^p + e^c = 1 hold in exact arithmetic.
    """
    p, q = above[0], below[0]
    falls_back, catches_up = [below[0]], []
    for i in range(1, above.shape[0]):
        falls_back.append(p + below[i])
        catches_up.append(q + above[i])
        p, q = p + above[i], q + below[i]
    c = _log_sum(falls_back)
    conflicts = falls_back[1:] + catches_up
    r = _log_sum(conflicts) if conflicts else jnp.full_like(p, -jnp.inf)
    # Where e^p is small, c is close to 0 and the sum above has only absolute accuracy: take it from p.
    small = p < -0.7
    c = jnp.where(small, jnp.log1p(-jnp.exp(jnp.where(small, p, -1.0))), c)
    return PairLogs(p, q, r, c)


def _log_sum(terms: list[Float[Array, "*batch"]]) -> Float[Array, "*batch"]:
    if len(terms) == 1:
        return terms[0]
    # All terms of a longer sum at once: a chain of d `log_add_exp` took twice as long to compile from d = 5 on.
    return log_add_exp(*terms) if len(terms) == 2 else log_sum_exp(jnp.stack(terms))


def pair_logs(z: Float[AnyArray, "d ..."]) -> PairLogs:
    """Return what can happen between two objects, from scaled utility differences z of shape (d, ...)."""
    return combine_utilities(log_probit(z), log_probit(-z))


class PairProbabilities(NamedTuple):
    """What can happen between the objects o and v of a pair.

    Attributes
    ----------
    dominates, dominated, incomparable, not_dominates : Array
        e^p, e^q, 1 - e^p - e^q and 1 - e^p.
    """

    dominates: Float[Array, "*batch"]
    dominated: Float[Array, "*batch"]
    incomparable: Float[Array, "*batch"]
    not_dominates: Float[Array, "*batch"]


def pair_probabilities(above: Float[Array, "d *batch"], below: Float[Array, "d *batch"]) -> PairProbabilities:
    """Combine Φ(z_i) and Φ(-z_i) over the leading axis, as `combine_utilities` does in logs."""
    p, q, c = above[0], below[0], below[0]
    r = jnp.zeros_like(p)
    for i in range(1, above.shape[0]):
        r = r + p * below[i] + q * above[i]
        c = c + p * below[i]
        p, q = p * above[i], q * below[i]
    return PairProbabilities(p, q, r, c)


class Pairs(NamedTuple):
    """The unordered pairs of the objects of a set, as static index arrays.

    Attributes
    ----------
    first, second : ndarray (P,)
        Row numbers of the two objects of each pair.
    index : ndarray (a, a)
        Number of the pair {o, v}; the diagonal holds 0 and has to be masked.
    """

    first: Int[np.ndarray, " P"]
    second: Int[np.ndarray, " P"]
    index: Int[np.ndarray, "a a"]  # type: ignore[assignment]  # hides tuple.index, which nothing needs


def object_pairs(n_objects: int) -> Pairs:
    """List the unordered pairs of ``n_objects`` objects."""
    first, second = np.triu_indices(n_objects, 1)
    index = np.zeros((n_objects, n_objects), dtype=int)
    index[first, second] = index[second, first] = np.arange(len(first))
    return Pairs(first, second, index)


def _floored(log_value: Float[Array, "*batch"], floor: float) -> Float[Array, "*batch"]:
    return log_add_exp(log_value, math.log(floor)) if floor > 0 else log_value


def _sum_where(condition: Bool[AnyArray, "n ..."], values: Float[Array, "n *batch"]) -> Float[Array, "*batch"]:
    return jnp.sum(jnp.where(condition, values, 0.0), axis=0)


def _trailing(mask: Bool[AnyArray, "..."], like: Float[AnyArray, "..."]) -> Bool[AnyArray, "..."]:
    """Append axes to ``mask`` until it broadcasts against the batch of ``like``."""
    return jnp.reshape(mask, mask.shape + (1,) * (like.ndim - mask.ndim))


def log_one_minus_product(
    dominates: Float[Array, "o *batch"], not_dominates: Float[Array, "o *batch"]
) -> Float[Array, "*batch"]:
    """Return log(1 - prod_o (1 - e^p_o)) over the leading axis, from p_o and log(1 - e^p_o).

    log(-expm1(sum c)) is exact wherever e^p is not negligible; below e^-30 the sum of the e^p is, and stays
    finite (with finite gradients) where e^p underflows.
    """
    faint = jnp.all(dominates < -30.0, axis=0)
    clear = jnp.log(-jnp.expm1(jnp.where(faint, -1.0, jnp.sum(not_dominates, axis=0))))
    return jnp.where(faint, log_sum_exp(jnp.where(faint, dominates, 0.0)), clear)


def is_normalised(present: Masks, chosen: Masks) -> Bool[Array, "..."]:
    """Return in which sets the likelihood with one utility is divided by the sum over single objects.

    One object was chosen there, of three or more: of two, the probabilities sum to one as they are.
    """
    return (jnp.sum(chosen, axis=0) == 1) & (jnp.sum(present, axis=0) > 2)


def of_all_pairs(ahead: Float[Array, "P *batch"], behind: Float[Array, "P *batch"], pairs: Pairs, own: float) -> Array:
    """Lay numbers of pairs out by the objects (o, v): ``ahead`` where o is the first, ``own`` on the diagonal."""
    objects = np.arange(len(pairs.index))
    first = _trailing(objects[:, None] < objects, ahead[None])
    same = _trailing(objects[:, None] == objects, ahead[None])
    return jnp.where(same, own, jnp.where(first, ahead[pairs.index], behind[pairs.index]))


def log_likelihood(
    u: Float[AnyArray, "d a ..."],
    present: Masks,
    chosen: Masks,
    lapse: Lapse = None,
    *,
    sigma: Scalar = 1.0,
    floor: float = FLOOR,
) -> Float[Array, "..."]:
    """Return log p(C | A, u) for one set, or for a batch of them along trailing axes.

    With one utility the probabilities of the single objects of a set sum to one.

    Parameters
    ----------
    u : Array (d, a, ...)
        Utilities of the set's objects.
    present, chosen : bool Array (a, ...)
        Which rows are objects (the rest is padding) and which of them were chosen.
    sigma : float
        Scale of the probit errors.
    floor : float
        Added to every factor; 0 for the bare formula.
    lapse : float, optional
        Probability that the answer is one of the 2^a - 1 non-empty subsets at random.

    Returns
    -------
    Array (...)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> u = jnp.array([[1.0, 0.0]])  # one utility: the first object is better by one sigma
    >>> both = jnp.array([True, True])
    >>> float(log_likelihood(u, both, jnp.array([True, False]))).__round__(3)  # log Φ(1)
    -0.173
    """
    pairs = object_pairs(u.shape[1])
    chosen = _trailing(chosen & present, u[0])
    present = _trailing(present, u[0])
    rejected = present & ~chosen
    # Whatever stands in the padding, NaN too, must not reach a gradient.
    u = jnp.where(present, u, 0.0)
    z = (u[:, pairs.first] - u[:, pairs.second]) / sigma
    # A pair is a factor when at least one of its objects is chosen; the chosen one comes first.
    z = jnp.where(chosen[pairs.first], z, -z)
    logs = pair_logs(z)
    if u.shape[1] == 1:
        return jnp.zeros(u.shape[2:], u.dtype)
    inside = chosen[pairs.first] & chosen[pairs.second]
    incomparable = _floored(jnp.where(inside, logs.incomparable, 0.0), floor)
    beats = chosen[:, None] & rejected[None]  # (o, v, ...): o is chosen, v is rejected
    # A column v that is not rejected is masked below; zeros there keep its gradient finite.
    idle = ~rejected[None]
    dominates = jnp.where(beats, logs.dominates[pairs.index], jnp.where(idle, 0.0, -jnp.inf))
    not_dominates = jnp.where(beats, logs.not_dominates[pairs.index], jnp.where(idle, -1.0, 0.0))
    beaten = _floored(log_one_minus_product(dominates, not_dominates), floor)
    value = _sum_where(inside, incomparable) + _sum_where(rejected, beaten)
    if u.shape[0] == 1 and u.shape[1] > 2:
        wins, loses = _floored(logs.dominates, floor), _floored(logs.dominated, floor)
        ahead, behind = (jnp.where(chosen[pairs.first], *both) for both in ((wins, loses), (loses, wins)))
        singles = jnp.sum(jnp.where(present[None], of_all_pairs(ahead, behind, pairs, 0.0), 0.0), axis=1)
        log_sum = log_sum_exp(jnp.where(present, singles, -jnp.inf))
        value -= jnp.where(is_normalised(present, chosen), log_sum, 0.0)
    return value if lapse is None else with_lapse(value, present, lapse)


def with_lapse(log_p: Float[Array, "*batch"], present: Masks, lapse: Scalar) -> Float[Array, "*batch"]:
    """Return log((1 - lapse) p + lapse / (2^a - 1)): some answers say nothing about the utilities.

    A learned constant added to every factor would grow without bound; a mixture per set cannot.
    """
    return with_random_answers(log_p, log_number_of_subsets(present, log_p.dtype), lapse)


def log_number_of_subsets(present: Masks, dtype: Any) -> Float[Array, "..."]:
    """Return the log of 2^a - 1, the number of answers that are not empty."""
    # A set of padding alone has no subsets; it counts as a set of one object, whose answer is certain.
    a = jnp.maximum(jnp.sum(present, axis=0), 1).astype(dtype)
    return a * math.log(2.0) + jnp.log1p(-jnp.exp2(-a))


def with_random_answers(
    log_p: Float[Array, "*batch"], log_answers: Float[Array, "*#batch"], lapse: Scalar
) -> Float[Array, "*batch"]:
    """Return log((1 - lapse) p + lapse / n), from the log of the number n of answers that there are."""
    return log_add_exp(jnp.log1p(-lapse) + log_p, jnp.log(lapse) - log_answers)


def _members(n_objects: int) -> Bool[np.ndarray, "a subsets"]:
    """Return for each object (row) which subsets (columns, numbered in binary) contain it."""
    return (np.arange(2**n_objects) >> np.arange(n_objects)[:, None]) & 1 == 1


def subset_probabilities(u: OfBatch, *, sigma: float = 1.0, floor: float = FLOOR) -> Float[Array, "2**a *batch"]:
    """Return p(C | A, u) of every subset C of one set, the empty one included (as 0).

    These are the paper's products, which do not sum to one over the subsets when a > 2, whatever d is; dividing by
    the sum of this table makes probabilities of them.  Built from the subsets of two halves of the objects, in about
    3 a 2^a multiplications and no subtraction.

    Parameters
    ----------
    u : Array (d, a, ...)
        Utilities; a is at most `MAX_SUMMED`.
    sigma : float
        Scale of the probit errors.
    floor : float
        Added to every factor.

    Returns
    -------
    Array (2^a, ...)
        Bit i of the row number is set where object i is chosen.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> table = subset_probabilities(jnp.array([[0.0, 1.0], [1.0, 0.0]]))  # each is better in one utility
    >>> [round(float(p), 2) for p in table]
    [0.0, 0.13, 0.13, 0.73]
    """
    a = u.shape[1]
    if a > MAX_SUMMED:
        raise ValueError(f"{a} objects have 2^{a} subsets; at most {MAX_SUMMED} objects are enumerated")
    pairs = object_pairs(a)
    n, earlier = len(pairs.first), np.triu(np.ones((a, a), bool), 1)
    above, below, _, _ = probit_and_hazard((u[:, pairs.first] - u[:, pairs.second]) / sigma)
    forth, back = pair_probabilities(above, below), pair_probabilities(below, above)
    # From the pairs to all (o, v); what an object does to itself is never used.
    neutral = jnp.ones_like(u[0, :1])
    place = np.where(earlier, pairs.index, np.where(earlier.T, n + pairs.index, 2 * n))
    dominates = jnp.concatenate([forth.dominates, back.dominates, neutral])[place]
    stays = jnp.concatenate([forth.not_dominates, back.not_dominates, neutral])[place]
    # Each pair of chosen objects is counted once, with the later of the two.
    conflict = jnp.concatenate([forth.incomparable + floor, neutral])[np.where(earlier, pairs.index, n)]

    def of_half(objects: range) -> list[Float[Array, "a half *batch"]]:
        """Return what the subsets of some objects do to each v: beat it, leave it standing, agree with it."""
        one = jnp.ones((a, 2 ** len(objects), *u.shape[2:]), u.dtype)
        beaten, untouched, agreed = jnp.zeros_like(one), one, one
        for inside, o in zip(_members(len(objects)), objects, strict=True):
            inside = _trailing(jnp.asarray(inside), one[0])
            beaten = jnp.where(inside, beaten + untouched * dominates[o][:, None], beaten)
            untouched = jnp.where(inside, untouched * stays[o][:, None], untouched)
            agreed = jnp.where(inside, agreed * conflict[o][:, None], agreed)
        return [beaten, untouched, agreed]

    def multiply_in(table: Array, parts: tuple[list[Array], list[Array], Array]) -> tuple[Array, None]:
        """Multiply every subset's entry by the factor that object v has in it, chosen or rejected."""
        # A subset is one of the first half and one of the second, and so are all products and sums over it.
        first, second = [part[None] for part in parts[0]], [part[:, None] for part in parts[1]]
        beaten, agreed = first[0] + first[1] * second[0], first[2] * second[2]
        return table * jnp.where(_trailing(parts[2], table), agreed, beaten + floor), None

    halves = of_half(range(a // 2)), of_half(range(a // 2, a))
    shape = 2 ** (a - a // 2), 2 ** (a // 2)
    start = jnp.ones((*shape, *u.shape[2:]), u.dtype)
    # A loop over v, not unrolled: at a = 10 the unrolled program took 19 s to compile, this one less than 1.
    table, _ = jax.lax.scan(multiply_in, start, (*halves, jnp.asarray(_members(a).reshape(a, *shape))))
    table = table.reshape(2**a, *u.shape[2:])
    return table.at[0].set(0.0)
