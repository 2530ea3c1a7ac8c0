"""Steps of dense inference that see the prior through some of the objects, for problems with many.

With r inducing objects Z, K_ZZ = L L^T and F = L^-1 K_ZX, a part of the utilities is F^T v, v ~ N(0, I), plus an
independent rest of covariance K - F^T F.  The sites act on the first, and a set's marginal has the rest in addition,
so that the bound is a lower bound of the one with all objects.  It is lower by about tr(Λ (K - F^T F)) / 2, which says
how many inducing objects are enough.  Smooth utilities need far fewer than there are objects, and nothing of the order
of all objects is factorised here, or multiplied out: a step takes O(t r²) and, for the sets, O(m a² r).

With a shared part the algebra is the one of `choicegp.inference.posterior`, Q_i = Λ_i - T_i^T T_i kept as its factor.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from choicegp.compute.programs import program
from choicegp.inference.annealing import StepTrace, looped
from choicegp.inference.dense import Adam, climbed, likely_lapse, next_pace, objective_of
from choicegp.inference.driver import Learning
from choicegp.inference.expectation import (
    Marginals,
    SharedCovariance,
    expect,
    from_roots,
    gram_of_differences,
    small_cholesky,
    to_first,
)
from choicegp.inference.posterior import FIRST_JITTER, LEAST_VARIANCE, half_log_det
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Neighbours, psd_part
from choicegp.inference.starts import covariance_at
from choicegp.model.prior import Objects, UtilityPrior

_NOTHING = 1e-20  # relative size of a covariance that counts as zero
_FEWEST_ROWS = 32  # of roots of whole covariances


class ReducedState(NamedTuple):
    """Where the optimisation stands."""

    prior: UtilityPrior
    chosen: Array  # (r,) the inducing objects, rows of the problem's
    jitter: Array  # added to K_ZZ, in parts of its mean variance
    precision: Array  # (d, t, w) of all sites, at the neighbours of every object
    linear: Array  # (d, t)
    lapse: Array | None
    adam: Adam
    rho: Array
    rate: Array
    objective: Array


class ReducedMoments(NamedTuple):
    """The posterior that inducing objects and sites make; p parts, r inducing objects."""

    mean: Array  # (d, t)
    spread: Array | None  # (d, r, t) H of the shared part, where there is one
    own: Array  # (d, r, t) W of a utility's own part
    dual: Array  # (p, t)
    kl: Array
    conditioned: "_Own"  # every field has a leading axis of length d
    shared: "_Shared | None"


class Choice(NamedTuple):
    """Objects in the order in which they would be chosen as inducing ones, and what is lost with the first n."""

    order: np.ndarray  # (t,)
    loss: np.ndarray  # (rank + 1,) nats of the bound

    def first(self, n: int) -> np.ndarray:
        """Return the first n objects, in the order of the problem."""
        return np.sort(self.order[:n]).astype(np.int32)


def choice_of_objects(prior: UtilityPrior, problem: Problem, precision: np.ndarray | None = None) -> Choice:
    """Choose objects that leave least of the prior variance, each weighted by its sites' precision (t,).

    One choice serves all parts, and one pivoted Cholesky factorisation finds it: what the chosen objects leave of a
    sum of covariances is at least the sum of what they leave of each.
    """
    from scipy.linalg.lapack import dpstrf

    valid = np.asarray(problem.valid)
    scale = np.sqrt(valid if precision is None else valid * np.maximum(precision, 0.0))
    total = scale[:, None] * np.sum(np.asarray(covariance_at(prior, problem)), axis=0) * scale
    whole = np.diag(total)
    root, pivots, rank, _ = dpstrf(total.T, tol=FIRST_JITTER * np.max(whole), lower=1)
    taken = np.cumsum(np.sum(np.tril(root)[:, :rank] ** 2, axis=0))
    return Choice(pivots - 1, 0.5 * (np.sum(whole) - np.concatenate([[0.0], taken])))


def whole_roots(covariance: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return F (p, r, t) with F^T F the covariances (p, t, t), to rounding errors, in as few rows as that takes.

    The number of rows is a power of two, so that few programs are compiled for it; padding has columns of zeros.
    """
    from scipy.linalg.lapack import dpstrf

    found, t = [], len(valid)
    for matrix in covariance:
        own = matrix * (valid[:, None] & valid[None, :])
        root, pivots, rank, _ = dpstrf(own, tol=FIRST_JITTER * np.max(np.diag(own)), lower=1)
        turned = np.zeros((rank, t))
        turned[:, pivots - 1] = np.tril(root)[:, :rank].T
        found.append(turned)
    most = max(_FEWEST_ROWS, *map(len, found))
    n = min(1 << (most - 1).bit_length(), t)
    return np.stack([np.pad(one, ((0, n - len(one)), (0, 0))) for one in found])


def covariances(
    prior: UtilityPrior, problem: Problem, chosen: Array, among: Neighbours
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return K_ZX (p, r, t), K_ZZ (p, r, r) and the covariances of objects with their neighbours (p, t, w)."""
    objects = Objects(jnp.asarray(problem.objects.X), jnp.asarray(problem.objects.codes))

    def at(rows: Array) -> Objects:
        return Objects(objects.X[rows], objects.codes[rows])

    some, (t, w) = at(chosen), among.columns.shape
    cross = prior.covariance(some, objects)
    counts = jnp.abs(cross) > _NOTHING * jnp.max(cross, axis=(1, 2), keepdims=True)
    if w == t:
        near = prior.covariance(objects, objects)
    else:
        own = jax.vmap(lambda row, columns: prior.covariance(at(row[None]), at(columns))[:, 0])
        near = jnp.swapaxes(own(jnp.arange(t), jnp.asarray(among.columns)), 0, 1)
    return jnp.where(counts, cross, 0.0), prior.covariance(some, some), near


def inverse_root(root: Array) -> Array:
    """Invert a Cholesky factor: products with the inverse take a third of the time of solutions with the factor."""
    return solve_triangular(root, jnp.eye(len(root)), lower=True)


def roots_of(cross: Array, among: Array, jitter: Array) -> tuple[Array, Array]:
    """Return L^-1 (p, r, r) and F (p, r, t)."""
    n = among.shape[-1]

    def one(args: tuple[Array, Array]) -> tuple[Array, Array]:
        across, matrix = args
        scale = jnp.maximum(jnp.trace(matrix) / n, LEAST_VARIANCE)
        root = inverse_root(jnp.linalg.cholesky(matrix + jitter * scale * jnp.eye(n)))
        return root, root @ across

    return jax.lax.map(one, (cross, among))


class _Own(NamedTuple):
    """A utility given the shared part, as far as the shared part is concerned; r inducing objects."""

    half: Array  # (r, t) W; W^T W = F^T B^-1 F
    acts: Array  # (r, t) F Λ and, with a shared part, F_0 Λ below it, (2 r, t)
    b: Array  # (r, r)
    inverse: Array  # (r, r) B^-1
    log_det: Array  # half of log |B|
    cross: Array  # (r, r) F_0 Λ F^T, or nothing, (0, r)


def _own(args: tuple[Array, Array], first: Array | None, among: Neighbours) -> _Own:
    """Condition one utility on its sites, B = I + F Λ F^T."""
    roots, values = args
    r = len(roots)
    # One product for two: with few rows these take half the time together.
    acts = among.product(roots if first is None else jnp.concatenate([roots, first]), values)
    products = acts @ roots.T
    b = jnp.eye(r) + products[:r]
    b_root = jnp.linalg.cholesky(b)
    turned = inverse_root(b_root)
    return _Own(turned @ roots, acts, b, turned.T @ turned, half_log_det(b_root), products[r:])


class _Shared(NamedTuple):
    """The shared part, conditioned on the sites of all utilities, B_0 = I + sum_i F_0 Q_i F_0^T."""

    half: Array  # (r, t) W_0
    acts: Array  # (r, t) F_0 sum_i Λ_i
    turned: Array  # (d, r, r) Y_i = F_0 Λ_i F_i^T B_i^-1
    taken: Array  # (r, r) sum_i Y_i F_i Λ_i F_0^T
    b: Array  # (r, r) B_0
    inverse: Array  # (r, r)
    log_det: Array
    through: Array  # (d, r, r) W_0 Q_i F_i^T


def _shared(first: Array, own: _Own) -> _Shared:
    """Condition the shared part: with Q = Λ - Λ F^T B^-1 F Λ nothing but products of order r is left to do."""
    r = len(first)
    acts = jnp.sum(own.acts[:, r:], axis=0)
    turned = own.cross @ own.inverse
    taken = jnp.sum(turned @ own.cross.mT, axis=0)
    b = jnp.eye(r) + acts @ first.T - taken
    b_root = jnp.linalg.cholesky(b)
    root = inverse_root(b_root)
    return _Shared(root @ first, acts, turned, taken, b, root.T @ root, half_log_det(b_root), root @ turned)


def condition_reduced(roots: Array, values: Array, linear: Array, among: Neighbours) -> ReducedMoments:
    """Combine prior and sites at the inducing objects.

    Parameters
    ----------
    roots : Array (p, r, t)
        F of each part.
    values : Array (d, t, w)
        Λ, at the neighbours of each object.
    linear : Array (d, t)
    among : Neighbours
    """
    d, r = len(linear), roots.shape[1]
    first = roots[0] if len(roots) > d else None
    own = jax.lax.map(partial(_own, first=first, among=among), (roots[-d:], values))
    times = jax.vmap(among.of_vector)

    def projected(vectors: Array) -> Array:
        """W^T W times a vector of each utility."""
        return jnp.einsum("drt,dr->dt", own.half, jnp.einsum("drt,dt->dr", own.half, vectors))

    log_det = jnp.sum(own.log_det)
    # tr(Λ S) of one's own part, in which F Λ F^T = B - I.
    traced = d * r - jnp.sum(jnp.trace(own.inverse, axis1=1, axis2=2))
    shared, spread, left = None, None, linear
    if first is not None:
        shared = _shared(first, own)
        pulled = jnp.sum(linear - times(values, projected(linear)), axis=0)
        level = jnp.broadcast_to(shared.half.T @ (shared.half @ pulled), linear.shape)
        left = linear - times(values, level)
        spread = shared.half - shared.through @ roots[1:]
        log_det += shared.log_det
        traced += r - jnp.trace(shared.inverse) - jnp.sum(shared.through**2)
    mean = projected(left) if shared is None else level + projected(left)
    dual = linear - times(values, mean)
    kl = log_det + 0.5 * (jnp.sum(mean * dual) - traced)
    if shared is not None:
        dual = jnp.concatenate([jnp.sum(dual, axis=0, keepdims=True), dual])
    return ReducedMoments(mean, spread, own.half, dual, kl, own, shared)


def _marginals(moments: ReducedMoments, roots: Array, within: Array, variance: Array, rows: Array) -> Marginals:
    """Moments of the utility differences inside sets, with what the inducing objects leave of the prior covariance."""
    left = to_first(within) - gram_of_differences(roots, rows)  # (p, a - 1, a - 1, m)
    left_over = variance - jnp.sum(roots**2, axis=1)  # (p, t)
    if moments.spread is not None:
        covariance = SharedCovariance(moments.spread, moments.own)
        return from_roots(moments.mean, covariance, rows, left, left_over[:1] + left_over[1:])
    mean, whole = moments.mean[:, rows], left_over + jnp.sum(moments.own**2, axis=1)
    roots = small_cholesky(left + gram_of_differences(moments.own, rows), jnp.max(whole[:, rows], axis=1))
    return Marginals(mean[:, 1:] - mean[:, :1], roots)


def slope_of(moments: ReducedMoments, inverses: Array, roots: Array, precision: Array) -> tuple:
    """Slopes of the bound, with the sites fixed, with respect to what `covariances` returns.

    With respect to F^T F of a part it is R^T R / 2, in which R has the rows K^-1 m, W Λ and W_0 Q (for the shared part,
    of all utilities): so it is L^-T F R^T R with respect to K_ZX, and -L^-T F R^T R F^T L^-1 / 2 with respect to
    K_ZZ.  The products F R^T are of order r, and B - I stands for F Λ F^T in them.
    """
    own, shared, d, eye = moments.conditioned, moments.shared, len(moments.mean), jnp.eye(roots.shape[1])
    weights, squares = eye - own.inverse, own.b - 2.0 * eye + own.inverse
    first: tuple = ()
    if shared is not None:
        turned = shared.inverse @ shared.turned  # B_0^-1 Y
        both = turned.mT @ shared.turned
        weights, squares = jnp.concatenate([weights - both, turned.mT], axis=2), squares + both
        whole = jnp.concatenate([eye - shared.inverse, *turned], axis=1)
        square = shared.b - 2.0 * eye + shared.inverse + shared.taken
        acts = jnp.concatenate([shared.acts, *own.acts[:, : len(eye)]])
        first = (_slope_of_part((inverses[0], roots[0], moments.dual[0], acts, whole, square)),)
    parts = (inverses[-d:], roots[-d:], moments.dual[-d:], own.acts, weights, squares)
    cross, among = jax.lax.map(_slope_of_part, parts)
    for one in first:
        cross, among = jnp.concatenate([one[0][None], cross]), jnp.concatenate([one[1][None], among])

    rest = -0.5 * precision
    if shared is not None:
        rest = jnp.concatenate([jnp.sum(rest, axis=0, keepdims=True), rest])
    return cross, among, rest


def _slope_of_part(args: tuple[Array, ...]) -> tuple[Array, Array]:
    """Return the slopes of K_ZX and K_ZZ of one part; F R^T R is F d d^T, d = K^-1 m, plus ``weights @ acts``."""
    inverse, roots, dual, acts, weights, square = args
    ours = roots @ dual
    square = square + jnp.outer(ours, ours)
    return (inverse.T @ weights) @ acts + jnp.outer(ours @ inverse, dual), -0.5 * inverse.T @ square @ inverse


def _step(
    state: ReducedState, schedule: tuple[Array, Array, Array], problem: Problem, among: Neighbours,
    normals: tuple, learning: Learning,
) -> tuple[ReducedState, StepTrace]:  # fmt: skip
    weight, learn, steady = schedule
    (cross, square, near), pull_back = jax.vjp(
        lambda prior: covariances(prior, problem, state.chosen, among), state.prior
    )
    inverses, roots = roots_of(cross, square, state.jitter)
    moments = condition_reduced(roots, state.precision, state.linear, among)
    variance = state.prior.variance(problem.objects)
    mean, value, lapsed = moments.mean, jnp.zeros(()), jnp.zeros(())
    forces, linear, precision = jnp.zeros_like(mean), jnp.zeros_like(mean), []
    for batch, draws, places in zip(problem.batches, normals, among.places, strict=True):
        rows, within = batch.rows, near.reshape(len(near), -1)[:, places]
        marginal = _marginals(moments, roots, within, variance, jnp.asarray(rows))
        expected = expect(marginal, batch, draws, state.lapse)
        curvature, gradient = (
            weight * batch.weight * part for part in (psd_part(expected.curvature), expected.gradient)
        )
        precision.append(curvature)
        forces = forces.at[:, rows].add(gradient)
        linear = linear.at[:, rows].add(gradient + jnp.einsum("dopm,dpm->dom", curvature, mean[:, rows]))
        value += jnp.sum(batch.weight * expected.value)
        lapsed += jnp.sum(batch.weight * expected.lapsed)
    bound = weight * value - moments.kl
    objective = objective_of(state, bound, learning)
    residual = jnp.linalg.norm(forces - moments.dual[-len(forces) :]) / (1e-12 + jnp.linalg.norm(forces))
    rho, rate = next_pace(state, objective, steady)
    old = (state.precision, state.linear)
    sites = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, old, (among.values(precision), linear))
    prior, adam = state.prior, state.adam
    if learning.learn_prior:
        slope = partial(slope_of, moments, inverses, roots, state.precision)
        prior, adam = jax.lax.cond(
            learn, lambda: climbed(state, pull_back(slope())[0], learning), lambda: (prior, adam)
        )
    lapse = state.lapse
    if learning.learn_lapse:
        n_sets = sum((jnp.sum(batch.weight) for batch in problem.batches), jnp.zeros(()))
        lapse = jnp.where(learn, likely_lapse(lapsed, n_sets), jnp.asarray(lapse))
    after = state._replace(
        prior=prior,
        precision=sites[0],
        linear=sites[1],
        lapse=lapse,
        adam=adam,
        rho=rho,
        rate=rate,
        objective=objective,
    )
    return after, StepTrace(bound, objective, residual)


@partial(program, static="learning")
def run_reduced(
    state: ReducedState, schedule: tuple, n_steps: Array, problem: Problem, among: Neighbours, normals: tuple,
    learning: Learning,
) -> tuple[ReducedState, StepTrace]:  # fmt: skip
    """Make the first steps of a schedule."""
    return looped(lambda s, x: _step(s, x, problem, among, normals, learning), state, schedule, n_steps)
