"""Probabilities of answers that hardly any draw of the posterior explains.

Where answers have no errors, one draw of the utilities of a set of sixteen objects explains one of 65,535 answers and
no other.  The mean likelihood of the true answer over a thousand draws may then rest on none of them, though the
posterior gives it a probability of 0.001.  Sequential Monte Carlo finds such means.  The likelihood's power grows from
0 to 1, in steps after which the weights of the draws differ little.  After each, draws are taken again in proportion
to their weights, and moved so that the posterior times that power of the likelihood is kept.  The product of the mean
weights of all steps approaches the mean likelihood as draws become many, and the last draws approach draws of the
posterior given the answer.

Where enough of the first draws explain the answer, there is one step, and the result is their mean.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.respondents.personal import AnyPosterior
from choicegp.model.error_models import ErrorModel
from choicegp.model.likelihood import subset_probabilities
from choicegp.model.prior import Objects
from choicegp.prediction.set_utilities import SetUtilities, set_utilities

N_PARTICLES = 256
"""Draws that are moved; the first step has as many draws as there are points."""
N_LAST = 64
"""Draws of the posterior given the answer that are returned."""
_N_MOVES = 8  # between two steps
_ENOUGH = 100.0  # effective draws: with as many, the power may be 1 at once
_LEAST_EFFECTIVE = 0.5  # share of the draws that another step leaves effective
_SMALLEST_STEP, _MOST_STEPS = 1e-4, 1000  # of the power, so that there is an end
_HALVINGS = 30  # of the range in which the next step is sought
_REDRAWN = 0.25  # share of the moves that also take another draw of the shown objects
_FINEST = 4.0  # halvings of the longest move
_SUMMED = 500_000  # numbers in a table of subsets


class TemperedMeans(NamedTuple):
    """Mean likelihoods of answers, and what the utilities are where these answers are given.

    Attributes
    ----------
    log_mean : Array (m,)
        log E[p(C | A, u)].
    utilities : Array (d, a, m, `N_LAST`)
        Draws of the posterior given the answer, in the order of the objects.
    """

    log_mean: Array
    utilities: Array


class _OneSet(NamedTuple):
    """The posterior inside one set: H settings of as many draws each, D in all."""

    mean: Array  # (H, p, a - 1) of differences to the first object
    root: Array  # (H, p, a - 1, a - 1), or (H, p (a - 1), p (a - 1)) of parts that depend on each other
    moves: Array  # (D, p, a) what each draw of the shown objects predicts

    def utilities(self, draw: Array, normals: Array, *, shared: bool) -> Array:
        """Return utilities (d, a, 1, N) from numbers of draws (N,) and standard normals (N, p, a - 1)."""
        setting = draw // (len(self.moves) // len(self.mean))
        if self.root.ndim == 3:
            flat = jnp.einsum("nij,nj->ni", self.root[setting], normals.reshape(len(normals), -1))
            differences = flat.reshape(normals.shape)
        else:
            differences = jnp.einsum("npij,npj->npi", self.root[setting], normals)
        parts = jnp.pad(self.mean[setting] + differences, ((0, 0), (0, 0), (1, 0))) + self.moves[draw]
        u = jnp.moveaxis(parts, 0, -1)[:, :, None]
        return u[:1] + u[1:] if shared else u


class _Particles(NamedTuple):
    """Draws on their way from the posterior to the posterior given the answer."""

    draw: Array  # (N,) numbers of draws of the shown objects
    normals: Array  # (N, p, a - 1)
    log_p: Array  # (N,) log-likelihood of the answer

    def taken(self, rows: Array) -> "_Particles":
        """Return some of the particles."""
        return jax.tree.map(lambda part: part[rows], self)


@program
def tempered_means(
    posterior: AnyPosterior, objects: Objects, order: Array, chosen: Array, normals: Array, lapse: Array | None,
    errors: ErrorModel,
) -> TemperedMeans:  # fmt: skip
    """Return log E[p(C | A, u)] of the answers ``chosen`` (a, m), of which the objects come first.

    ``order`` (a, m) has the places of the objects in that order, and ``normals`` (p, a - 1, 1, S) are the points of
    the first step.
    """
    found = set_utilities(posterior, objects, normals.shape[-1])
    first = jnp.moveaxis(normals[:, :, 0], -1, 0)
    present = jnp.ones((len(chosen), 1), bool)

    def of_set(args: tuple[_OneSet, Array, Array]) -> tuple[Array, Array]:
        one, own_order, own_chosen = args

        def particles(draw: Array, points: Array) -> _Particles:
            u = one.utilities(draw, points, shared=found.shared)[:, own_order]
            return _Particles(draw, points, errors.sampled(u, present, own_chosen[:, None], lapse)[0])

        start = particles(jnp.arange(len(first)) * len(one.moves) // len(first), first)
        log_mean, last = _tempered(start, particles, len(one.moves))
        last = last.taken(jnp.arange(N_LAST) * len(last.log_p) // N_LAST)
        return log_mean, one.utilities(last.draw, last.normals, shared=found.shared)[:, :, 0]

    log_mean, utilities = jax.lax.map(of_set, (_by_set(found), order.T, chosen.T))
    return TemperedMeans(log_mean, jnp.moveaxis(utilities, 0, 2))


@program
def log_sums(utilities: Array) -> Array:
    """Return the log of the likelihood's sum over all subsets at utilities (d, a, m, S): (m, S)."""
    d, a, m, n_samples = utilities.shape
    size = min(m * n_samples, 1 << max(0, (_SUMMED >> a).bit_length() - 1))
    n_blocks = -(-m * n_samples // size)
    flat = jnp.pad(utilities.reshape(d, a, -1), ((0, 0), (0, 0), (0, n_blocks * size - m * n_samples)))
    blocks = jnp.moveaxis(flat.reshape(d, a, n_blocks, size), 2, 0)
    sums = jax.lax.map(lambda block: jnp.log(jnp.sum(subset_probabilities(block), axis=0)), blocks)
    return sums.reshape(-1)[: m * n_samples].reshape(m, n_samples)


def _by_set(found: SetUtilities) -> _OneSet:
    """Lay the posterior out with the sets along the first axis."""
    mean, root = (part if found.moves is not None else part[None] for part in found.marginal)
    if found.moves is None:
        moves = jnp.zeros((mean.shape[-1], 1, mean.shape[1], mean.shape[2] + 1))
    else:
        _, p, a, m, _ = found.moves.shape
        moves = jnp.transpose(found.moves, (3, 0, 4, 1, 2)).reshape(m, -1, p, a)
    return _OneSet(jnp.moveaxis(mean, -1, 0), jnp.moveaxis(root, -1, 0), moves)


def _tempered(
    start: _Particles, particles: Callable[[Array, Array], _Particles], n_draws: int
) -> tuple[Array, _Particles]:
    """Let the power of the likelihood grow to 1; return the log of its mean, and the last particles.

    Where the log-likelihood of all particles is -inf, or of one NaN, so is the result, at once.
    """

    def reweighted(state: _Particles, power: Array, key: Array, made: Array) -> tuple[_Particles, Array, Array]:
        step = jnp.where(made + 1 < _MOST_STEPS, _next_step(state.log_p, power), 1.0 - power)
        weights = jax.nn.softmax(step * state.log_p)
        gained = jax.nn.logsumexp(step * state.log_p) - math.log(len(state.log_p))
        # Evenly spaced places in the sum of the weights: a draw is taken as often as its weight says, but for one.
        places = (jnp.arange(N_PARTICLES) + jax.random.uniform(key)) / N_PARTICLES
        rows = jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), places), len(weights) - 1)
        return state.taken(rows), power + step, gained

    def moved(state: _Particles, power: Array, key: Array) -> _Particles:
        normal, other, which, length, coin = jax.random.split(key, 5)
        n = len(state.draw)
        size = jnp.exp2(-_FINEST * jax.random.uniform(length, (n, 1, 1)))
        fresh = jax.random.normal(normal, state.normals.shape)
        points = jnp.sqrt(1.0 - size**2) * state.normals + size * fresh
        redrawn = jax.random.bernoulli(which, _REDRAWN, (n,))
        draw = jnp.where(redrawn, jax.random.randint(other, (n,), 0, n_draws), state.draw)
        there = particles(draw, points)
        taken = jnp.log(jax.random.uniform(coin, (n,))) < power * (there.log_p - state.log_p)
        return jax.tree.map(lambda new, old: jnp.where(taken.reshape(n, *[1] * (new.ndim - 1)), new, old), there, state)

    def further(carry: tuple[_Particles, Array, Array, Array, Array]) -> tuple[_Particles, Array, Array, Array, Array]:
        state, power, log_mean, key, made = carry
        key, own, theirs = jax.random.split(key, 3)
        keys = jax.random.split(own, _N_MOVES)
        state = jax.lax.fori_loop(0, _N_MOVES, lambda i, now: moved(now, power, keys[i]), state)
        state, power, gained = reweighted(state, power, theirs, made)
        return state, power, log_mean + gained, key, made + 1

    def goes_on(carry: tuple[_Particles, Array, Array, Array, Array]) -> Array:
        _, power, log_mean, _, made = carry
        return (power < 1.0) & jnp.isfinite(log_mean) & (made < _MOST_STEPS)

    key, first = jax.random.split(jax.random.key(0))
    made = jnp.zeros((), int)
    carry = (*reweighted(start, jnp.zeros(()), first, made), key, made + 1)
    last, _, log_mean, _, _ = jax.lax.while_loop(goes_on, further, carry)
    return log_mean, last


def _next_step(log_p: Array, power: Array) -> Array:
    """Return by how much the power may grow: to 1 where enough draws stay effective, or until a share of them does."""

    def is_effective(step: Array, least: float) -> Array:
        # The effective number of draws is (sum w)² / sum w².
        return 2.0 * jax.nn.logsumexp(step * log_p) - jax.nn.logsumexp(2.0 * step * log_p) >= math.log(least)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        is_larger = is_effective(middle, _LEAST_EFFECTIVE * len(log_p))
        return jnp.where(is_larger, middle, ends[0]), jnp.where(is_larger, ends[1], middle)

    whole = 1.0 - power
    largest, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(whole), whole))
    step = jnp.maximum(largest, jnp.minimum(whole, _SMALLEST_STEP))
    return jnp.where(is_effective(whole, _ENOUGH), whole, step)
