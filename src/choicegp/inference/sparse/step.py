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

Kernels, products and likelihoods of objects run in the precision of the objects' features (float32 on accelerators);
everything of the size of the inducing points is factorised in float64.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from choicegp.compute.programs import program
from choicegp.inference.dense import LAPSE_PRIOR, LOG_BOUNDS, Adam
from choicegp.inference.expectation import Marginals, of_differences, samples
from choicegp.inference.posterior import Posterior
from choicegp.inference.sites import psd_part
from choicegp.inference.sparse.feed import Sets
from choicegp.model.derivatives import expected_derivatives, sampled_log_likelihood
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior, is_learned, log_density

_FIRST_SIZE = 3.0  # of the utilities at the start
_LEAST_VARIANCE = 1e-12  # a covariance of zeros too has a factor: a linear kernel where no feature varies
_DECAY, _EPSILON = (0.9, 0.98), 1e-3  # of Adam


class SparseSettings(NamedTuple):
    """What does not change during a fit; hashable, part of the compiled program."""

    hyperpriors: HyperPriors | None
    learn_prior: bool = True
    learn_points: bool = False
    learn_lapse: bool = False
    jitter: float = 1e-6


class SparseState(NamedTuple):
    """Where the optimisation stands."""

    prior: UtilityPrior
    points: Array  # (d, M, c) inducing points of each utility
    precision: Array  # (d, M, M) R, the precision of all sites at the whitened inducing points
    linear: Array  # (d, M) their linear part h
    adam: Adam
    lapse: Array | None  # lapse rate


class Pace(NamedTuple):
    """How far a step goes: of the sites, of the hyperparameters; the likelihood's weight; the sites' ridge.

    Rounding errors of float32 in R can outweigh the prior's identity; a ridge, times R's largest entry, then helps.
    """

    rho: Array
    rate: Array
    weight: Array
    ridge: Array


class Whitened(NamedTuple):
    """The posterior of v: mean (d, M), H (d, M, M) with covariance H^T H, divergence from the prior (d,)."""

    mean: Array
    half: Array
    kl: Array


def begin(prior: UtilityPrior, points: np.ndarray, lapse: float | None, rng: np.random.Generator) -> SparseState:
    """Start from random utilities: a symmetric start would leave all utilities identical."""
    prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
    d, n, _ = points.shape
    variance = np.asarray(_variance_at(prior, Objects(points[0], np.zeros(n, int))))
    typical = np.maximum(np.mean(variance, axis=1, keepdims=True), _LEAST_VARIANCE)
    linear = rng.normal(size=(d, n)) * _FIRST_SIZE / np.sqrt(typical)
    points = np.asarray(points, float)
    rate: Any = None if lapse is None else np.asarray(lapse, float)
    return SparseState(prior, points, np.zeros((d, n, n)), linear, Adam.begin((prior, points)), rate)  # type: ignore[arg-type]


_variance_at = program(UtilityPrior.variance)


def posterior_of_points(precision: Array, linear: Array) -> Whitened:
    """Return the posterior of v that the sites make, one utility after the other."""

    def one(args: tuple[Array, Array]) -> Whitened:
        r, h = args
        n = len(h)
        root = jnp.linalg.cholesky(r + jnp.eye(n))
        half = solve_triangular(root, jnp.eye(n), lower=True)
        mean = half.T @ (half @ h)
        kl = 0.5 * (jnp.sum(half * half) - n + 2.0 * jnp.sum(jnp.log(jnp.diag(root))) + mean @ mean)
        return Whitened(mean, half, kl)

    return jax.lax.map(one, (precision, linear))


def _ridged(precision: Array, ridge: Array) -> Array:
    """Add ``ridge`` times the largest entry to the diagonal of R."""
    largest = jnp.max(jnp.abs(precision), axis=(1, 2))[:, None, None]
    return precision + ridge * largest * jnp.eye(precision.shape[-1])


def inverse_roots(prior: UtilityPrior, points: Array, jitter: float) -> Array:
    """Return L^-1 (d, M, M) of the prior covariance at the inducing points."""
    codes = jnp.zeros(points.shape[1], int)
    covariance = prior.covariance(Objects(points, codes), Objects(points, codes))
    n = points.shape[1]
    ridge = jitter * jnp.maximum(jnp.trace(covariance, axis1=1, axis2=2) / n, _LEAST_VARIANCE)
    return _inverse_root(covariance + ridge[:, None, None] * jnp.eye(n))


@jax.custom_vjp
def _inverse_root(covariance: Array) -> Array:
    """Return W = L^-1 of each covariance L L^T."""

    def one(matrix: Array) -> Array:
        return solve_triangular(jnp.linalg.cholesky(matrix), jnp.eye(len(matrix)), lower=True)

    return jax.lax.map(one, covariance)


def _inverse_root_forward(covariance: Array) -> tuple[Array, Array]:
    inverse = _inverse_root(covariance)
    return inverse, inverse


def _inverse_root_backward(inverse: Array, slope: Array) -> tuple[Array]:
    """Pull a slope W' back to the covariance: W^T Φ(-W' W^T) W, Φ the lower triangle with half its diagonal.

    Three products where differentiating through factorisation and solve takes two solves more.
    """
    transposed = jnp.swapaxes(inverse, 1, 2)
    lower = -jnp.tril(slope @ transposed)
    half = lower - 0.5 * lower * jnp.eye(lower.shape[-1])
    back = transposed @ half @ inverse
    return (0.5 * (back + jnp.swapaxes(back, 1, 2)),)


_inverse_root.defvjp(_inverse_root_forward, _inverse_root_backward)


class _Projected(NamedTuple):
    """Means (d, a, m) and covariances (d, a, a, m) inside sets, and A as (d, a, m, M)."""

    mean: Array
    covariance: Array
    weights: Array


def project(prior: UtilityPrior, points: Array, inverse_root: Array, whitened: Whitened, sets: Sets) -> _Projected:
    """Return the marginals of sets under the posterior of the inducing points."""
    a, m, c = sets.X.shape
    dtype = sets.X.dtype
    prior, points = jax.tree.map(lambda leaf: leaf.astype(dtype), (prior, points))
    X = sets.X.reshape(a * m, c)
    codes = jnp.zeros(a * m, int)
    cross = prior.covariance(Objects(X, codes), Objects(points, codes[: points.shape[1]]))
    weights = cross @ jnp.swapaxes(inverse_root.astype(dtype), 1, 2)
    mean = jnp.einsum("dnj,dj->dn", weights, whitened.mean.astype(dtype)).reshape(-1, a, m)
    spread = weights @ jnp.swapaxes(whitened.half.astype(dtype), 1, 2)
    weights, spread = (part.reshape(-1, a, m, part.shape[-1]) for part in (weights, spread))
    objects = Objects(sets.X, jnp.zeros((a, m), int))
    own = jax.vmap(lambda one: prior.covariance(one, one), 1, -1)(objects)
    covariance = own + jnp.einsum("damj,dbmj->dabm", spread, spread) - jnp.einsum("damj,dbmj->dabm", weights, weights)
    return _Projected(mean, covariance, weights)


def _step(
    state: SparseState, batch: tuple[tuple[Sets, ...], Pace], normals: tuple, settings: SparseSettings
) -> tuple[SparseState, Array]:
    groups, pace = batch
    whitened = posterior_of_points(_ridged(state.precision, pace.ridge), state.linear)

    def forward(prior: UtilityPrior, points: Array) -> tuple[Any, Any]:
        inverse_root = inverse_roots(prior, points, settings.jitter)
        parts = [project(prior, points, inverse_root, whitened, sets) for sets in groups]
        return [(part.mean, part.covariance) for part in parts], [part.weights for part in parts]

    moments, pull_back, weights = jax.vjp(forward, state.prior, state.points, has_aux=True)
    value, lapsed, n_sets = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    slopes = []
    precision, linear = jnp.zeros_like(state.precision), jnp.zeros_like(state.linear)
    for sets, draws, (mean, covariance), a in zip(groups, normals, moments, weights, strict=True):
        marginal = of_differences(mean, covariance)
        lapse = None if state.lapse is None else state.lapse.astype(mean.dtype)
        expected = expected_derivatives(samples(marginal, draws), sets.present, sets.chosen, lapse=lapse)
        weight = pace.weight.astype(mean.dtype) * sets.weight
        site = weight * psd_part(expected.curvature)
        gradient = weight * expected.gradient
        value += jnp.sum(sets.weight * expected.value)
        lapsed += jnp.sum(sets.weight * expected.lapsed)
        n_sets += jnp.sum(sets.weight)
        slopes.append((gradient, -0.5 * weight * expected.curvature))
        through = jnp.einsum("dabm,dbmj->damj", site, a)
        d, n = linear.shape
        flat, through = a.reshape(d, -1, n), through.reshape(d, -1, n)
        precision += (jnp.swapaxes(flat, 1, 2) @ through).astype(float)
        pull = gradient + jnp.einsum("dabm,dbm->dam", site, mean)
        linear += jnp.einsum("dnj,dn->dj", flat, pull.reshape(d, -1)).astype(float)
    bound = pace.weight * value - jnp.sum(whitened.kl)

    def towards(old: Array, new: Array) -> Array:
        return (1.0 - pace.rho) * old + pace.rho * new

    precision = towards(state.precision, 0.5 * (precision + jnp.swapaxes(precision, 1, 2)))
    after = state._replace(precision=precision, linear=towards(state.linear, linear))
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
    whitened = posterior_of_points(_ridged(state.precision, ridge), state.linear)
    return Solved(whitened, inverse_roots(state.prior, state.points, jitter))


@program
def score(state: SparseState, solved: Solved, sets: Sets, normals: Array) -> Array:
    """Return the expected log-likelihood of some sets."""
    with jax.default_matmul_precision("highest"):
        part = project(state.prior, state.points, solved.inverse_root, solved.whitened, sets)
        marginal: Marginals = of_differences(part.mean, part.covariance)
        u = samples(marginal, normals)
        lapse = None if state.lapse is None else state.lapse.astype(u.dtype)
        logs = sampled_log_likelihood(u, sets.present, sets.chosen, lapse=lapse)
        return jnp.mean(logs, axis=-1)


def posterior_of(state: SparseState, solved: Solved) -> Posterior:
    """Return the posterior as what predicts any objects: the inducing points take the place of shown objects."""
    inverse_root, half = np.asarray(solved.inverse_root), np.asarray(solved.whitened.half)
    mean = np.asarray(solved.whitened.mean)
    dual = np.einsum("dji,dj->di", inverse_root, mean)
    through = half @ inverse_root
    gain = np.swapaxes(inverse_root, 1, 2) @ inverse_root - np.swapaxes(through, 1, 2) @ through
    roots = np.linalg.inv(inverse_root)
    objects = Objects(np.asarray(state.points), np.zeros(state.points.shape[1], int))
    rate = None if state.lapse is None else np.asarray(state.lapse)
    prior = jax.tree.map(np.asarray, state.prior)
    return Posterior(prior, objects, np.einsum("dij,dj->di", roots, mean), dual, gain, rate)  # type: ignore[arg-type]
