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
from choicegp.inference.annealing import StepTrace
from choicegp.inference.dense import Adam, climbed, likely_lapse, next_pace, objective_of
from choicegp.inference.driver import Learning
from choicegp.inference.expectation import Marginals, SharedCovariance, expect, inside, of_differences
from choicegp.inference.posterior import FIRST_JITTER, LEAST_VARIANCE, half_log_det
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Neighbours, psd_part
from choicegp.inference.starts import covariance_at
from choicegp.model.prior import Objects, UtilityPrior

_NOTHING = 1e-20  # relative size of a covariance that counts as zero


class ReducedState(NamedTuple):
    """Where the optimisation stands."""

    prior: UtilityPrior
    chosen: Array  # (r,) the inducing objects, rows of the problem's
    jitter: Array  # added to K_ZZ, in parts of its mean variance
    precision: tuple[Array, ...]  # (d, a, a, m) of the sites of each batch, weights included
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
    slopes: tuple[Array, ...]  # for each part R (q, t): the bound's slope with respect to F^T F is R^T R / 2
    kl: Array


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


def covariances(prior: UtilityPrior, problem: Problem, chosen: Array) -> tuple[Array, Array, tuple[Array, ...]]:
    """Return K_ZX (p, r, t), K_ZZ (p, r, r) and, of each batch, the covariances inside its sets (p, a, a, m)."""
    objects = Objects(jnp.asarray(problem.objects.X), jnp.asarray(problem.objects.codes))
    some = Objects(objects.X[chosen], objects.codes[chosen])
    cross = prior.covariance(some, objects)
    counts = jnp.abs(cross) > _NOTHING * jnp.max(cross, axis=(1, 2), keepdims=True)

    def of_set(rows: Array) -> Array:
        own = Objects(objects.X[rows], objects.codes[rows])
        return prior.covariance(own, own)

    within = tuple(jax.vmap(of_set, 1, 3)(jnp.asarray(batch.rows)) for batch in problem.batches)
    return jnp.where(counts, cross, 0.0), prior.covariance(some, some), within


def roots_of(cross: Array, among: Array, jitter: Array) -> tuple[Array, Array]:
    """Return L (p, r, r) and F (p, r, t)."""
    n = among.shape[-1]

    def one(args: tuple[Array, Array]) -> tuple[Array, Array]:
        across, matrix = args
        scale = jnp.maximum(jnp.trace(matrix) / n, LEAST_VARIANCE)
        root = jnp.linalg.cholesky(matrix + jitter * scale * jnp.eye(n))
        return root, solve_triangular(root, across, lower=True)

    return jax.lax.map(one, (cross, among))


class _Own(NamedTuple):
    """A utility given the shared part: W, T = W Λ, half the log determinant of B, and F_0 Q."""

    half: Array  # (r, t); W^T W = F^T B^-1 F
    through: Array  # (r, t)
    log_det: Array
    acts: Array | None


def _own(args: tuple[Array, Array], first: Array | None, among: Neighbours) -> _Own:
    """Condition one utility on its sites, B = I + F Λ F^T; Q = Λ - T^T T is what they say about the shared part."""
    roots, values = args
    r, t = roots.shape
    # One product, and one solution, for two: with few rows these take half the time together.
    through = among.product(roots if first is None else jnp.concatenate([roots, first]), values)
    b_root = jnp.linalg.cholesky(jnp.eye(r) + through[:r] @ roots.T)
    solved = solve_triangular(b_root, jnp.concatenate([roots, through[:r]], axis=1), lower=True)
    half, own = solved[:, :t], solved[:, t:]
    acts = None if first is None else through[r:] - (first @ own.T) @ own
    return _Own(half, own, half_log_det(b_root), acts)


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
    d = len(linear)
    first = roots[0] if len(roots) > d else None
    own, through, log_dets, acts = jax.lax.map(partial(_own, first=first, among=among), (roots[-d:], values))
    shared, log_det, taken, spread = jnp.zeros(roots.shape[2]), jnp.zeros(()), None, None
    if first is not None:
        b_root = jnp.linalg.cholesky(jnp.eye(len(first)) + jnp.sum(acts, axis=0) @ first.T)
        solved = solve_triangular(b_root, jnp.concatenate([first, *acts], axis=1), lower=True)
        half, *rest = jnp.split(solved, d + 1, axis=1)
        taken = jnp.stack(rest)  # W_0 Q
        said = jnp.einsum("drt,dr->dt", through, jnp.einsum("drt,dt->dr", own, linear))
        shared, log_det = half.T @ (half @ jnp.sum(linear - said, axis=0)), half_log_det(b_root)
        spread = jnp.stack([half - (part @ root.T) @ root for part, root in zip(taken, roots[1:], strict=True)])
    times = jax.vmap(among.of_vector)
    left = linear - times(values, jnp.broadcast_to(shared, linear.shape))
    mean = shared + jnp.einsum("drt,dr->dt", own, jnp.einsum("drt,dt->dr", own, left))
    dual = linear - times(values, mean)
    traced = jnp.sum(through * own)
    slopes = [jnp.concatenate([one[None], part]) for one, part in zip(dual, through, strict=True)]
    if taken is not None and spread is not None:
        traced += jnp.sum(taken * spread)
        whole = [jnp.sum(dual, axis=0, keepdims=True), *through, jnp.sum(taken, axis=0)]
        slopes = [jnp.concatenate(whole), *(jnp.concatenate(pair) for pair in zip(slopes, taken, strict=True))]
        dual = jnp.concatenate([whole[0], dual])
    kl = log_det + jnp.sum(log_dets) + 0.5 * (jnp.sum(mean * dual[-d:]) - traced)
    return ReducedMoments(mean, spread, own, dual, tuple(slopes), kl)


def _marginals(moments: ReducedMoments, roots: Array, within: Array, rows: Array) -> Marginals:
    """Moments of the utility differences inside sets, with what the inducing objects leave of the prior covariance."""
    left = within - inside(roots, rows)  # (p, a, a, m)
    d = len(moments.mean)
    mean = moments.mean[:, rows]
    if moments.spread is None:
        return of_differences(mean, inside(moments.own, rows) + left)
    covariance = SharedCovariance(moments.spread, moments.own).inside(rows) + left[0]
    same = jnp.eye(d)[:, :, None, None, None] * left[1:]
    return of_differences(mean, covariance + same)


def slope_of(moments: ReducedMoments, lower: Array, roots: Array, precision: tuple[Array, ...]) -> tuple:
    """Slopes of the bound, with the sites fixed, with respect to what `covariances` returns."""
    among, cross = [], []
    for rows, root, part in zip(moments.slopes, lower, roots, strict=True):
        weights = solve_triangular(root, part, lower=True, trans=1)  # K_ZZ^-1 K_ZX
        pulled = weights @ rows.T
        cross.append(pulled @ rows)
        among.append(-0.5 * pulled @ pulled.T)

    def rest(own: Array) -> Array:
        own = -0.5 * own
        return own if moments.spread is None else jnp.concatenate([jnp.sum(own, axis=0, keepdims=True), own])

    return jnp.stack(cross), jnp.stack(among), tuple(map(rest, precision))


def _step(
    state: ReducedState, schedule: tuple[Array, Array, Array], problem: Problem, among: Neighbours,
    normals: tuple, learning: Learning,
) -> tuple[ReducedState, StepTrace]:  # fmt: skip
    weight, learn, steady = schedule
    (cross, square, within), pull_back = jax.vjp(lambda prior: covariances(prior, problem, state.chosen), state.prior)
    lower, roots = roots_of(cross, square, state.jitter)
    moments = condition_reduced(roots, among.values(state.precision), state.linear, among)
    mean, value, lapsed = moments.mean, jnp.zeros(()), jnp.zeros(())
    forces, linear, precision = jnp.zeros_like(mean), jnp.zeros_like(mean), []
    for batch, draws, own in zip(problem.batches, normals, within, strict=True):
        rows = batch.rows
        expected = expect(_marginals(moments, roots, own, jnp.asarray(rows)), batch, draws, state.lapse)
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
    sites = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, old, (tuple(precision), linear))
    prior, adam = state.prior, state.adam
    if learning.learn_prior:
        slope = partial(slope_of, moments, lower, roots, state.precision)
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
    state: ReducedState, schedule: tuple, problem: Problem, among: Neighbours, normals: tuple, learning: Learning
) -> tuple[ReducedState, StepTrace]:
    """Make the steps of a schedule."""
    return jax.lax.scan(lambda s, x: _step(s, x, problem, among, normals, learning), state, schedule)
