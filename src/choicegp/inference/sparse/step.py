"""Sparse inference: utilities at a few inducing points stand for all utilities, and a step sees a few sets.

For one utility with inducing points Z, K_ZZ = L L^T and v = L^-1 u(Z), whose prior is N(0, I), the utilities of any
objects are A v and an independent rest, A = K_XZ L^-T.  The posterior of v is N(m, (I + R)^-1): R = sum_k A_k^T P_k A_k
and the linear part h = sum_k A_k^T (g_k + P_k A_k m) are the sites of `choicegp.inference.sites`, projected.  A step
estimates both sums from a few sets and moves towards them, which is a step of natural gradient; with Z at all objects
and all sets in every step it is the step of `choicegp.inference.dense`.

Hyperparameters (and inducing points, when they are learned) climb the bound with the posterior of v held: by Price's
theorem its derivatives with respect to the marginal mean and covariance of a set are g_k and -P_k / 2 (unclipped),
which are at hand, and the divergence from the prior does not depend on them.  In these coordinates the posterior moves
along when the kernel does.

With a shared part (see `choicegp.inference.sparse.points`) the covariances inside a set are also those between its
utilities, for which there is no site, as in dense inference, and no slope: these are the slopes of the bound in which
the sites stand for the likelihood, which is stationary in the posterior and so has the same slopes in all coordinates.

Kernels, products and likelihoods of objects run in the precision of the objects' features (float32 on accelerators);
everything of the size of the inducing points is factorised in float64.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.dense import LAPSE_PRIOR, LOG_BOUNDS, Adam
from choicegp.inference.expectation import Marginals, samples
from choicegp.inference.posterior import N_GAUSSIAN, Posterior, draws_of
from choicegp.inference.sites import psd_part
from choicegp.inference.sparse.feed import Sets
from choicegp.inference.sparse.points import (
    LEAST_VARIANCE,
    Projected,
    Whitened,
    inverse_roots,
    points_as_objects,
    posterior_of_points,
    project,
)
from choicegp.model.error_models import DISCERNIBILITY, ErrorModel
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior, is_learned, log_density

_FIRST_SIZE = 3.0  # of the utilities at the start
_FIRST_PRECISION = 99.0  # of the sites at a start from given utilities: it begins near them
_DECAY, _EPSILON = (0.9, 0.98), 1e-3  # of Adam


class SparseSettings(NamedTuple):
    """What does not change during a fit; hashable, part of the compiled program."""

    hyperpriors: HyperPriors | None
    learn_prior: bool = True
    learn_points: bool = False
    learn_lapse: bool = False
    jitter: float = 1e-6
    errors: ErrorModel = DISCERNIBILITY


class SparseState(NamedTuple):
    """Where the optimisation stands."""

    prior: UtilityPrior
    points: Array  # (p, M, c) inducing points of each part of the utilities
    precision: Array  # (p, M, M) R, the precision of all sites at the whitened inducing points
    linear: Array  # (p, M) their linear part h
    adam: Adam
    lapse: Array | None  # lapse rate
    cross: Array | None = None  # (d, M, M) R_0i, where there is a shared part


class Pace(NamedTuple):
    """How far a step goes: of the sites, of the hyperparameters; the likelihood's weight; the sites' ridge.

    Rounding errors of float32 in R can outweigh the prior's identity; a ridge, times R's largest entry, then helps.
    """

    rho: Array
    rate: Array
    weight: Array
    ridge: Array


def begin(prior: UtilityPrior, points: np.ndarray, lapse: float | None, rng: np.random.Generator) -> SparseState:
    """Start from random utilities: a symmetric start would leave all utilities identical."""
    prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
    p, n, _ = points.shape
    variance = np.asarray(_variance_at(prior, Objects(points[0], np.zeros(n, int))))
    typical = np.maximum(np.mean(variance, axis=1, keepdims=True), LEAST_VARIANCE)
    linear = rng.normal(size=(p, n)) * _FIRST_SIZE / np.sqrt(typical)
    linear[: int(prior.shared)] = 0.0  # the shared part begins with what the choices say about all utilities
    if prior.log_threshold_variance is not None:
        linear[:, -1] = 0.0  # the threshold begins amid the objects
    points = np.asarray(points, float)
    rate: Any = None if lapse is None else np.asarray(lapse, float)
    cross = np.zeros((prior.n_utilities, n, n)) if prior.shared else None
    return SparseState(prior, points, np.zeros((p, n, n)), linear, Adam.begin((prior, points)), rate, cross)  # type: ignore[arg-type]


_variance_at = program(UtilityPrior.variance)


def placed(state: SparseState, solved: "Solved", utilities: np.ndarray) -> SparseState:
    """Return a start near given utilities (d, M) of the inducing points, each at the points of its own part."""
    n, d = state.points.shape[1], len(utilities)
    v = np.einsum("dij,dj->di", np.asarray(solved.inverse_root)[-d:], utilities)
    linear = np.array(state.linear)
    linear[-d:] = (1.0 + _FIRST_PRECISION) * v
    return state._replace(precision=np.array(state.precision) + _FIRST_PRECISION * np.eye(n), linear=linear)  # type: ignore[arg-type]


def _ridged(precision: Array, ridge: Array) -> Array:
    """Add ``ridge`` times the largest entry to the diagonal of R."""
    largest = jnp.max(jnp.abs(precision), axis=(1, 2))[:, None, None]
    return precision + ridge * largest * jnp.eye(precision.shape[-1])


def _step(
    state: SparseState, batch: tuple[tuple[Sets, ...], Pace], normals: tuple, settings: SparseSettings
) -> tuple[SparseState, Array]:
    groups, pace = batch
    whitened = posterior_of_points(_ridged(state.precision, pace.ridge), state.linear, state.cross)

    def forward(prior: UtilityPrior, points: Array) -> tuple[Any, Any]:
        inverse_root = inverse_roots(prior, points, settings.jitter)
        parts = [project(prior, points, inverse_root, whitened, sets) for sets in groups]
        return [(part.mean, part.covariance) for part in parts], [(part.weights, part.joint) for part in parts]

    moments, pull_back, beside = jax.vjp(forward, state.prior, state.points, has_aux=True)
    value, lapsed, n_sets = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    slopes = []
    target = jax.tree.map(jnp.zeros_like, (state.precision, state.linear, state.cross))
    for sets, draws, (mean, covariance), (weights, joint) in zip(groups, normals, moments, beside, strict=True):
        part = Projected(mean, covariance, weights, joint)
        lapse = None if state.lapse is None else state.lapse.astype(mean.dtype)
        drawn = samples(part.differences, draws)
        expected = settings.errors.expected_derivatives(drawn, sets.present, sets.chosen, lapse)
        weight = pace.weight.astype(mean.dtype) * sets.weight
        site = weight * psd_part(expected.curvature)
        gradient = weight * expected.gradient
        value += jnp.sum(sets.weight * expected.value)
        lapsed += jnp.sum(sets.weight * expected.lapsed)
        n_sets += jnp.sum(sets.weight)
        slopes.append((gradient, -0.5 * weight * expected.curvature))
        pull = gradient + jnp.einsum("dabm,dbm->dam", site, mean)
        target = jax.tree.map(jnp.add, target, _at_points(site, pull, weights))
    bound = pace.weight * value - jnp.sum(whitened.kl)

    def towards(old: Array, new: Array) -> Array:
        return (1.0 - pace.rho) * old + pace.rho * new

    precision, linear, cross = target
    target = 0.5 * (precision + jnp.swapaxes(precision, 1, 2)), linear, cross
    precision, linear, cross = jax.tree.map(towards, (state.precision, state.linear, state.cross), target)
    after = state._replace(precision=precision, linear=linear, cross=cross)
    if settings.learn_lapse:
        # A step of expectation-maximisation, with the Beta prior's counts.
        a, b = LAPSE_PRIOR
        learned = (lapsed + a - 1.0) / (n_sets + a + b - 2.0)
        old = jnp.asarray(state.lapse)
        after = after._replace(lapse=jnp.where(pace.rate > 0.0, towards(old, learned), old))
    if settings.learn_prior or settings.learn_points:
        gradient = pull_back(slopes)
        after = jax.lax.cond(pace.rate > 0.0, lambda: _climb(after, gradient, pace.rate, settings), lambda: after)
    return after, bound


def _at_points(site: Array, pull: Array, weights: Array) -> tuple[Array, Array, Array | None]:
    """Project sites (d, a, a, m) and their linear parts (d, a, m) onto the inducing points, by A (p, a, m, M).

    What is said about the utilities is said about each of their own parts, and all of it about the shared one.
    """
    shared = len(weights) > len(site)
    if shared:
        site, pull = (jnp.concatenate([jnp.sum(own, axis=0, keepdims=True), own]) for own in (site, pull))
    p, n = len(weights), weights.shape[-1]
    through = jnp.einsum("pabm,pbmj->pamj", site, weights).reshape(p, -1, n)
    flat = weights.reshape(p, -1, n)
    precision = (jnp.swapaxes(flat, 1, 2) @ through).astype(float)
    linear = jnp.einsum("pnj,pn->pj", flat, pull.reshape(p, -1)).astype(float)
    return precision, linear, (flat[0].T @ through[1:]).astype(float) if shared else None


def _climb(
    state: SparseState, gradient: tuple[UtilityPrior, Array], rate: Array, settings: SparseSettings
) -> SparseState:
    """One step of Adam of the hyperparameters and, when they are learned, of the inducing points."""
    of_prior, of_points = gradient
    if settings.hyperpriors is not None:
        more = jax.grad(log_density)(state.prior, settings.hyperpriors)
        of_prior = jax.tree.map(jnp.add, of_prior, more)
    if not settings.learn_points:
        of_points = jnp.zeros_like(of_points)
    (move, shift), adam = state.adam.direction((of_prior, of_points), _DECAY, _EPSILON)
    prior = state.prior
    if settings.learn_prior:

        def moved(path: Any, x: Array, dx: Array) -> Array:
            return jnp.clip(x + rate * dx, *LOG_BOUNDS) if is_learned(path) else x

        prior = jax.tree_util.tree_map_with_path(moved, prior, move)
    return state._replace(prior=prior, points=state.points + rate * shift, adam=adam)


@partial(program, static="settings")
def run_steps(
    state: SparseState, groups: tuple[Sets, ...], pace: Pace, normals: tuple, settings: SparseSettings
) -> tuple[SparseState, Array, Array]:
    """Make as many steps as the leading axes have.

    Returns the state, the bounds, estimated from each step's sets, and whether all numbers are finite.
    """
    with jax.default_matmul_precision("highest"):
        state, bounds = jax.lax.scan(lambda now, batch: _step(now, batch, normals, settings), state, (groups, pace))
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in (bounds, *jax.tree.leaves(state))]
    return state, bounds, jnp.all(jnp.stack(finite))


class Solved(NamedTuple):
    """Everything that predicts, at the inducing points."""

    whitened: Whitened
    inverse_root: Array


@partial(program, static="jitter")
def solve(state: SparseState, ridge: Array, jitter: float) -> Solved:
    """Factorise once what all later scores need."""
    whitened = posterior_of_points(_ridged(state.precision, ridge), state.linear, state.cross)
    return Solved(whitened, inverse_roots(state.prior, state.points, jitter))


@program
def score(state: SparseState, solved: Solved, sets: Sets, normals: Array, errors: ErrorModel) -> Array:
    """Return the expected log-likelihood of some sets."""
    with jax.default_matmul_precision("highest"):
        part = project(state.prior, state.points, solved.inverse_root, solved.whitened, sets)
        u = samples(part.differences, normals)
        lapse = None if state.lapse is None else state.lapse.astype(u.dtype)
        return jnp.mean(errors.sampled(u, sets.present, sets.chosen, lapse), axis=-1)


@program
def differences_in(state: SparseState, solved: Solved, sets: Sets) -> Marginals:
    """Return the marginals of some sets."""
    with jax.default_matmul_precision("highest"):
        return project(state.prior, state.points, solved.inverse_root, solved.whitened, sets).differences


def posterior_of(state: SparseState, solved: Solved, seed: int = 0) -> Posterior:
    """Return the posterior as what predicts any objects: the inducing points take the place of shown objects."""
    inverse_root, half = np.asarray(solved.inverse_root), np.asarray(solved.whitened.half)
    mean = np.asarray(solved.whitened.mean)
    prior = jax.tree.map(np.asarray, state.prior)
    dual = np.einsum("pji,pj->pi", inverse_root, mean)
    through = (half @ inverse_root)[int(prior.shared) :]
    own = inverse_root[int(prior.shared) :]
    gain = np.swapaxes(own, 1, 2) @ own - np.swapaxes(through, 1, 2) @ through
    roots = np.linalg.inv(inverse_root)
    objects = points_as_objects(prior, np.asarray(state.points))  # type: ignore[arg-type]
    rate: Any = None if state.lapse is None else np.asarray(state.lapse)
    at_points = np.einsum("pij,pj->pi", roots, mean)
    if not prior.shared:
        return Posterior(prior, objects, at_points, dual, gain, rate)
    drawn = np.einsum("pji,spj->spi", inverse_root, _draws(solved.whitened, seed))
    one = jax.tree.map(lambda leaf: leaf[None], prior)
    draws = draws_of(one, objects, drawn[None])
    posterior = Posterior(prior, objects, at_points[1:], dual, gain, rate, draws)
    # Every part has inducing points of its own: utilities are given at those of their own parts.
    means = [np.asarray(posterior.mean_at(Objects(state.points[1 + i], objects.codes)))[i] for i in range(len(gain))]
    return eqx.tree_at(lambda made: made.mean, posterior, np.stack(means))


def _draws(whitened: Whitened, seed: int) -> np.ndarray:
    """Draw v (S, p, M), in pairs of opposite signs, so that the draws have the posterior's means."""
    mean, half, taken = (np.asarray(part) for part in (whitened.mean, whitened.half, whitened.taken))
    standard = np.random.default_rng(seed).normal(size=(N_GAUSSIAN // 2, *mean.shape))
    moves = np.einsum("pji,spj->spi", half, standard, optimize=True)
    moves[:, 1:] -= np.einsum("pji,sj->spi", taken, standard[:, 0], optimize=True)
    return mean + np.concatenate([moves, -moves])
