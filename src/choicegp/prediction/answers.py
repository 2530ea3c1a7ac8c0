"""Answers drawn from the likelihood of sets that are too large for all their subsets to be enumerated.

Given utilities, an answer C has a probability proportional to the paper's likelihood (eq:likelihoodexpanse0).  Whether
one object belongs to C, given which others do, needs only two values of it: Gibbs sampling draws one object's place
after the other.  A chain starts close to its target, from the Pareto set of utilities with noise of variance 1/2 each:
the noise of two objects has variance 1, so that every pair alone has its Φ(z).  A few sweeps correct what is left.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import present_device
from choicegp.inference.expectation import latin_normals
from choicegp.model.likelihood import FLOOR, object_pairs, pair_probabilities
from choicegp.model.probit import log_probit, probit_and_hazard

N_SWEEPS = 8
"""With 128 samples these leave a mean error of at most 0.005, also where a set's objects are almost equal."""

MAX_CONTENDERS = 200
"""Objects of a set between which answers are drawn: time and memory grow with the square of this number."""

N_PROPOSALS = 16
_BLOCK = 500_000  # differences of utilities worked on at a time
_ON_ACCELERATOR = 16_000_000


class Answers(NamedTuple):
    """Answers of people with given utilities.

    Attributes
    ----------
    inclusion : Array (a, ...)
        Probability that an object is part of the answer.
    drawn : bool Array (a, ...)
        One answer each.
    """

    inclusion: Array
    drawn: Array


class Chances(NamedTuple):
    """Random numbers of `sampled_answers`, the same for all sets.

    Attributes
    ----------
    noise : Array (d, a, 1, S)
        Standard normals.
    levels : Array (sweeps, a, 1, S)
        Between 0 and 1; of very large sets for `MAX_CONTENDERS` objects alone.
    """

    noise: Array
    levels: Array


def mean_answers(u: Array, chances: Chances) -> Answers:
    """Average inclusion probabilities (a, m) over samples of utilities (d, a, m, S), and draw an answer for each.

    Of very large sets, objects that are almost never in the front of noisy utilities are chosen as often as they are
    in it, and are not drawn; they have next to no influence on the others.
    """
    d, a, _, _ = u.shape
    if d == 1 or a <= MAX_CONTENDERS:
        return _in_blocks(u, chances)
    rows, share = _contenders(u, chances.noise)
    places = rows[None, :, :, None]
    noise = jnp.take_along_axis(jnp.broadcast_to(chances.noise, u.shape), places, axis=1)
    answers = _in_blocks(jnp.take_along_axis(u, places, axis=1), chances._replace(noise=noise))
    column = jnp.arange(rows.shape[1])
    drawn = jnp.zeros(u.shape[1:], bool).at[rows, column].set(answers.drawn)
    return Answers(share.at[rows, column].set(answers.inclusion), drawn)


def _in_blocks(u: Array, chances: Chances) -> Answers:
    """Draw answers for a few samples at a time, so that tables of pairs stay small; S is a power of two."""
    d, a, m, n_samples = u.shape
    most = _BLOCK if present_device().platform == "cpu" else _ON_ACCELERATOR
    size = min(n_samples, 1 << max(0, (most // (d * a * a * m)).bit_length() - 1))
    blocks = jax.tree.map(
        lambda part: jnp.moveaxis(part.reshape(*part.shape[:3], n_samples // size, size), 3, 0), (u, chances)
    )
    inclusion, drawn = jax.lax.map(lambda block: sampled_answers(*block), blocks)
    return Answers(jnp.mean(inclusion, axis=(0, 3)), jnp.moveaxis(drawn, 0, 2).reshape(a, m, n_samples))


def sampled_answers(u: Array, chances: Chances) -> Answers:
    """Draw answers at utilities (d, a, m, S); inclusion probabilities are averages over all sweeps but the first.

    With one utility an answer is one object, and the probabilities are exact.
    """
    if u.shape[0] == 1:
        return _best_objects(u[0], chances.levels[0, 0])
    agree, stays = _tables(u)
    tables = jnp.arange(u.shape[1]), agree, stays, jnp.log(stays)

    def sweep(inside: Array, levels: Array) -> tuple[Array, Array]:
        standing = jnp.sum(jnp.where(inside[:, None], tables[-1], 0.0), axis=0)
        (inside, _), chance = jax.lax.scan(_placed, (inside, standing), (*tables, levels))
        return inside, chance

    start = _n_beating(u, chances.noise) == 0
    drawn, inclusion = jax.lax.scan(sweep, start, chances.levels)
    # What the first sweep does depends on where it begins.
    return Answers(jnp.mean(inclusion[1:], axis=0), drawn)


def _tables(u: Array) -> tuple[Array, Array]:
    """Return, from (o, v), the log of what two chosen objects contribute, and P(o leaves v standing): (a, a, ...)."""
    pairs, itself = object_pairs(u.shape[1]), np.eye(u.shape[1], dtype=bool)
    n, earlier = len(pairs.first), np.triu(~itself)
    above, below, _, _ = probit_and_hazard(u[:, pairs.first] - u[:, pairs.second])
    forth, back = pair_probabilities(above, below), pair_probabilities(below, above)
    # What an object does to itself changes nothing.
    neutral = jnp.zeros_like(u[0, :1])
    agree = jnp.concatenate([jnp.log(forth.incomparable + FLOOR), neutral])
    stays = jnp.concatenate([forth.not_dominates, back.not_dominates, neutral + 1.0])
    # Nothing smaller than the floor counts, and sums from which terms are taken out again need moderate terms.
    stays = jnp.clip(stays, FLOOR, 1.0)
    place = np.where(earlier, pairs.index, n + pairs.index)
    return agree[np.where(itself, n, pairs.index)], stays[np.where(itself, 2 * n, place)]


def _placed(state: tuple[Array, Array], of_object: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
    """Draw whether object j is chosen, given which others are; ``standing`` holds log prod_{o chosen} c(o, v)."""
    inside, standing = state
    j, agree, stays, log_stays, level = of_object
    own = (jnp.arange(len(inside)) == j)[:, None, None]
    others = inside & ~own
    # Rounding must not leave anything more than standing.
    without = jnp.minimum(standing - jnp.where(inside[j], log_stays, 0.0), 0.0)
    left = jnp.exp(without)
    gain = jnp.log((1.0 - left * stays + FLOOR) / (1.0 - left + FLOOR))
    beaten = jnp.log(1.0 - left[j] + FLOOR)
    odds = jnp.sum(jnp.where(others, agree, jnp.where(own, 0.0, gain)), axis=0) - beaten
    # Somebody who chooses nothing does not answer.
    chance = jnp.where(jnp.any(others, axis=0), jax.nn.sigmoid(odds), 1.0)
    chosen = level < chance
    return (others | (own & chosen), without + jnp.where(chosen, log_stays, 0.0)), chance


def _best_objects(u: Array, level: Array) -> Answers:
    """Return p({o}) proportional to prod_v Φ(u_o - u_v), and one object each."""
    a = u.shape[0]

    def score(o: Array) -> Array:
        return jnp.sum(jnp.where((jnp.arange(a) != o)[:, None, None], log_probit(u[o] - u), 0.0), axis=0)

    chance = jax.nn.softmax(jax.lax.map(score, jnp.arange(a)), axis=0)
    best = jnp.minimum(jnp.sum(jnp.cumsum(chance, axis=0) < level, axis=0), a - 1)
    return Answers(chance, jnp.arange(a)[:, None, None] == best)


def _n_beating(u: Array, noise: Array) -> Array:
    """Count the objects that dominate each object (a, m, S) once every utility has noise of variance 1/2."""
    u = u + math.sqrt(0.5) * noise

    def count(o: Array, beating: Array) -> Array:
        return beating + jnp.all(u[:, o, None] > u, axis=0)

    return jax.lax.fori_loop(0, u.shape[1], count, jnp.zeros(u.shape[1:], jnp.int32))


def _contenders(u: Array, noise: Array) -> tuple[Array, Array]:
    """Find the objects of very large sets between which answers have to be drawn: (`MAX_CONTENDERS`, m).

    They are those most often in the front of noisy utilities, then those that the fewest objects beat.  An object that
    is certainly dominated has no influence on the others.  The second result (a, m) is how often each is in the front.
    """
    beating = _n_beating(u, noise)
    share = jnp.mean(beating == 0, axis=-1, dtype=u.dtype)
    rank = share - jnp.mean(beating, axis=-1, dtype=u.dtype) / (u.shape[1] * u.shape[-1])
    return jax.lax.top_k(rank.T, MAX_CONTENDERS)[1].T, share


def mean_winners(u: Array, chances: Chances) -> Answers:
    """Do as `mean_answers` does under the rule that keeps the best in one utility: each utility draws its winner."""
    inclusion, drawn = sampled_winners(u, chances)
    return Answers(jnp.mean(inclusion, axis=-1), drawn)


def sampled_winners(u: Array, chances: Chances) -> Answers:
    """Do as `sampled_answers` does under the rule that keeps the best in one utility; the probabilities are exact."""
    levels = chances.levels.reshape(-1, *chances.levels.shape[2:])[: len(u)]
    found = [_best_objects(own, level) for own, level in zip(u, levels, strict=True)]
    loses = jnp.prod(jnp.stack([1.0 - one.inclusion for one in found]), axis=0)
    return Answers(1.0 - loses, jnp.any(jnp.stack([one.drawn for one in found]), axis=0))


def draw_chances(n_utilities: int, n_objects: int, n_samples: int, rng: np.random.Generator) -> Chances:
    """Draw the random numbers: each takes S evenly spread values, in an order of its own."""
    spread = (np.arange(n_samples) + 0.5) / n_samples
    shape = (N_SWEEPS, min(n_objects, MAX_CONTENDERS), 1, n_samples)
    levels = rng.permuted(np.broadcast_to(spread, shape), axis=-1)
    return Chances(latin_normals(n_utilities, n_objects, 1, n_samples, rng), levels)  # type: ignore[arg-type]


def probable(inclusion: np.ndarray) -> np.ndarray:
    """Mark the objects (a, ...) that are more likely chosen than not, and the likeliest of all."""
    return np.maximum(inclusion > 0.5, inclusion >= inclusion.max(axis=0))


def proposals(inclusion: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Propose subsets of one set, (a, `N_PROPOSALS`): its most probable objects, the most frequent answers (a, S)."""
    rank = np.argsort(np.argsort(-inclusion, kind="stable"), kind="stable")
    # As many of the most probable objects as are more likely chosen than not, and a few more or less.
    sizes = np.clip(np.count_nonzero(probable(inclusion)) + np.arange(-4, 5), 1, len(rank))
    answers, counts = np.unique(drawn, axis=1, return_counts=True)
    frequent = answers[:, np.argsort(-counts, kind="stable")[: N_PROPOSALS - len(sizes)]]
    tried = np.column_stack([rank[:, None] < sizes, frequent])
    return np.pad(tried, ((0, 0), (0, N_PROPOSALS - tried.shape[1])), mode="edge")
