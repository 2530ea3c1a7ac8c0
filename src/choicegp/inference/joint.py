"""A Gaussian posterior with correlated utilities and the exact posterior's spread, for small problems.

`dense` inference has one Gaussian for each utility, and minimises KL(q | p), which makes q too narrow where the
posterior is skewed: a clear choice only says that a difference is large.  Here all d t utilities have one Gaussian,
every set has one site of (a d) x (a d), and a site is not the one that maximises the bound but the one that gives q
the mean and covariance that q would have with the set's own likelihood in the site's place (expectation propagation,
Minka 2001).  Correlations alone change little (measured); matching moments does.

Hyperparameters and the starting point come from a `dense` fit.  Moments are weighted averages over fixed points of
each set, moved and scaled so that without weights they have mean zero and unit covariance exactly: a site that is
right stays where it is.

The posterior is then given as draws of that Gaussian, resampled by the exact posterior density over the Gaussian's
(truncated): what is left of skewness comes in with the weights.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import block_diag

from choicegp.compute.programs import program
from choicegp.errors import ChoiceGPError
from choicegp.inference.driver import Inferred, Task, Verdict, score_points
from choicegp.inference.expectation import quasi_normals, small_cholesky
from choicegp.inference.posterior import Factor, GaussianMoments, condition, posterior_of_draws
from choicegp.inference.problem import Problem, SetBatch
from choicegp.inference.sites import Sites

MOST = 1500  # utilities times shown objects: the order of the matrices
BLOCK = 5  # steps between two looks from Python
N_POINTS = 512
N_DRAWS = 1024  # a power of two
_PROPOSED, _CHUNK = 16_384, 128  # draws that are weighted, and how many of them at a time
_FEWEST = 400  # effective draws that are worth having
_RHO = 0.5  # how far a site moves in a step
_STILL = 0.003  # in standard deviations: a move that counts as none


class JointSites(NamedTuple):
    """Sites of a batch, on the utility differences to each set's first object."""

    precision: Array  # (n, n, m) with n = d (a - 1)
    linear: Array  # (n, m)


class JointState(NamedTuple):
    """Sites of every batch, the number of steps made, and the largest move of a utility in the last of them."""

    sites: tuple[JointSites, ...]
    n_steps: int
    moved: float


class JointInference:
    """Match moments, beginning at a finished dense inference ``before``."""

    def __init__(self, task: Task, before: Inferred) -> None:
        problem, d = task.problem, before.posterior.n_utilities
        if d * len(problem.valid) > MOST:
            raise ChoiceGPError(
                f"inference='joint' is for small problems: {d} utilities of {problem.n_objects} shown objects are more "
                f"than {MOST} together; use inference='dense'"
            )
        self.task, self.before, self.lapse = task, before, before.posterior.lapse
        self.normals = tuple(_standardised(points) for points in quasi_normals(problem, d, N_POINTS, task.seed))
        assert before.factor is not None
        self.root, self.first = _side_by_side(before.factor.root, before.sites)

    def begin(self) -> JointState:
        """Take every set's own site out of the dense posterior."""
        sites = _first_sites(self.first, self.root, self.task.problem, self.normals, self.lapse)
        return JointState(sites, 0, np.inf)

    def step(self, state: JointState) -> JointState:
        """Make a block of steps of all sites at once."""
        sites, moved = _advance(state.sites, self.root, self.task.problem, self.normals, self.lapse)
        if not np.isfinite(float(moved)):
            raise ChoiceGPError("inference='joint' found no finite step: use inference='dense' or 'mcmc'")
        self.task.watch.report("matching moments", state.n_steps + BLOCK, float("nan"))
        return JointState(sites, state.n_steps + BLOCK, float(moved))

    def verdict(self, state: JointState) -> Verdict | None:
        """Stop when no utility moves any more, or at a limit."""
        if state.moved < _STILL:
            found = f"after {state.n_steps} steps of moment matching utilities move by {state.moved:.2g} sd"
            return Verdict("converged", found)
        if state.n_steps and self.task.watch.is_up:
            return Verdict("stopped", self.task.watch.out_of_time)
        limit = f"the limit of {self.task.max_iter} steps"
        return Verdict("stopped", limit) if state.n_steps >= self.task.max_iter else None

    def conclude(self, state: JointState, verdict: Verdict) -> Inferred:
        """Draw from the joint Gaussian, and weight the draws by the exact posterior."""
        task, before = self.task, self.before
        problem, seed = task.problem, task.seed
        d, t = before.posterior.n_utilities, len(problem.valid)
        points = task.points or score_points(problem, d, seed)
        moments, bound = _conclude(state.sites, self.root, problem, points, self.lapse)
        drawn, weights, effective = _weighted(moments, self.root, problem, self.lapse, seed)
        message = verdict.message
        if effective < _FEWEST:
            message += "; too few draws fit the exact posterior, so they were left unweighted: compare with 'mcmc'"
            weights = np.full(_PROPOSED, 1.0 / _PROPOSED)
        else:
            message += f"; {effective:.0f} of {_PROPOSED} draws effective"
        u = drawn.reshape(_PROPOSED, d, t)[:, :, : problem.n_objects]
        mean = np.einsum("s,sdt->dt", weights, u)
        covariance = np.einsum("s,sdi,sdj->dij", weights, u - mean, u - mean, optimize=True)
        # Evenly spaced on the scale of the weights: no more noise than is needed; in random order, for who takes some.
        taken = np.searchsorted(np.cumsum(weights), (np.arange(N_DRAWS) + 0.5) / N_DRAWS).clip(max=_PROPOSED - 1)
        kept = u[np.random.default_rng(seed).permutation(taken)]
        posterior = posterior_of_draws(before.posterior, kept, mean, covariance)
        return before._replace(posterior=posterior, elbo=float(bound), status=verdict.status, message=message)


def _weighted(
    moments: GaussianMoments, root: Array, problem: Problem, lapse: Array | None, seed: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw from the joint Gaussian: draws (S, d t), their weights (S,), and the effective number of them."""
    half = np.asarray(moments.half)[0]
    z = np.random.default_rng(seed).normal(size=(_PROPOSED, len(half)))
    u = np.asarray(moments.mean)[0] + z @ half
    latent = np.linalg.solve(np.asarray(root)[0], u.T).T
    logs = np.asarray(_log_choices(u, problem, lapse)) - 0.5 * np.sum(latent**2 - z**2, axis=1)
    weights = np.exp(logs - np.max(logs))
    # Truncated at sqrt(S) times their mean (Ionides 2008).  Pareto smoothing does harm here: few large weights over
    # many equal ones are no Pareto tail, and it moved the mean of a single set's difference by a tenth.
    weights = np.minimum(weights, weights.sum() / np.sqrt(_PROPOSED))
    weights /= weights.sum()
    return u, weights, float(1.0 / np.sum(weights**2))


@program
def _log_choices(u: Array, problem: Problem, lapse: Array | None) -> Array:
    """Return the log-likelihood of all sets at each of the draws (S, d t)."""

    def of_chunk(u: Array) -> Array:
        by_utility = jnp.moveaxis(u.reshape(len(u), -1, len(problem.valid)), 0, -1)
        total = jnp.zeros(len(u))
        for batch in problem.batches:
            present, chosen = jnp.asarray(batch.present), jnp.asarray(batch.chosen)
            logs = batch.errors.sampled(by_utility[:, batch.rows], present, chosen, lapse)
            total += batch.weight @ logs
        return total

    return jax.lax.map(of_chunk, u.reshape(-1, _CHUNK, u.shape[1])).reshape(-1)


def _standardised(points: np.ndarray) -> np.ndarray:
    """Give the points (d, a - 1, m, S) of every set mean zero and unit covariance."""
    d, n, m, n_points = points.shape
    flat = np.moveaxis(points.reshape(d * n, m, n_points), 1, 0)
    flat = flat - flat.mean(axis=-1, keepdims=True)
    root = np.linalg.cholesky(flat @ np.swapaxes(flat, 1, 2) / n_points)
    return np.moveaxis(np.linalg.solve(root, flat), 0, 1).reshape(points.shape)


@program
def _side_by_side(root: Array, sites: Sites) -> tuple[Array, Sites]:
    """Put the matrices of the utilities along one diagonal, each (1, d t, d t)."""
    precision = block_diag(*sites.precision)
    return block_diag(*root)[None], Sites(precision[None], sites.linear.reshape(1, -1))


@program
def _first_sites(
    first: Sites, root: Array, problem: Problem, normals: tuple, lapse: Array | None
) -> tuple[JointSites, ...]:
    """Take every set's own site out of the variational posterior, by Price's theorem."""
    moments = condition(Factor(root, jnp.zeros(1)), first)
    sites = []
    for batch, points in zip(problem.batches, normals, strict=True):
        mean, spread = _differences(moments, batch, points)
        x = mean[..., None] + jnp.einsum("xym,yms->xms", spread, _flat(points))

        def total(x: Array, shape: tuple = points.shape, batch: SetBatch = batch) -> Array:
            return jnp.sum(batch.weight[:, None] * _log_p(x.reshape(shape), batch, lapse))

        slope = jax.grad(total)

        def column(direction: Array, x: Array = x, slope: Callable = slope) -> Array:
            return -jnp.mean(jax.jvp(slope, (x,), (jnp.broadcast_to(direction[:, None, None], x.shape),))[1], axis=-1)

        columns = jax.lax.map(column, jnp.eye(len(x)))
        precision = _psd_part(0.5 * (columns + jnp.swapaxes(columns, 0, 1)))
        linear = jnp.mean(slope(x), axis=-1) + jnp.einsum("xym,ym->xm", precision, mean)
        sites.append(JointSites(precision, linear))
    return tuple(sites)


@program
def _advance(
    sites: tuple[JointSites, ...], root: Array, problem: Problem, normals: tuple, lapse: Array | None
) -> tuple[tuple[JointSites, ...], Array]:
    """Make a block of steps of all sites at once; also the largest move of a utility in the last one."""

    def step(
        carry: tuple[tuple[JointSites, ...], Array], _: None
    ) -> tuple[tuple[tuple[JointSites, ...], Array], Array]:
        sites, mean = carry
        moments = _moments(sites, root, problem, normals)
        new = tuple(
            _matched(site, moments, batch, points, lapse)
            for site, batch, points in zip(sites, problem.batches, normals, strict=True)
        )
        sd = jnp.sqrt(jnp.diagonal(moments.covariance[0]))
        return (new, moments.mean[0]), jnp.max(jnp.abs(moments.mean[0] - mean) / (1e-6 + sd))

    start = _moments(sites, root, problem, normals).mean[0]
    (sites, _), moves = jax.lax.scan(step, (sites, start), None, length=BLOCK)
    return sites, moves[-1]


@program
def _conclude(
    sites: tuple[JointSites, ...], root: Array, problem: Problem, normals: tuple, lapse: Array | None
) -> tuple[GaussianMoments, Array]:
    moments = _moments(sites, root, problem, normals)
    bound = -moments.kl[0]
    for batch, points in zip(problem.batches, normals, strict=True):
        mean, spread = _differences(moments, batch, points)
        x = mean[..., None] + jnp.einsum("xym,yms->xms", spread, _flat(points))
        bound += jnp.sum(batch.weight * jnp.mean(_log_p(x.reshape(points.shape), batch, lapse), axis=-1))
    return moments, bound


def _flat(points: Array) -> Array:
    d, n, m, n_points = points.shape
    return points.reshape(d * n, m, n_points)


def _contrast(points: Array) -> np.ndarray:
    """Return the matrix (d (a - 1), d a) of differences to the first object, within each utility."""
    d, n = points.shape[:2]
    return np.kron(np.eye(d), np.column_stack([-np.ones(n), np.eye(n)]))


def _places(batch: SetBatch, points: Array, n: int) -> Array:
    """Return where the utilities (d a, m) of each set's objects are among all ``n``."""
    d = points.shape[0]
    return (jnp.arange(d)[:, None, None] * (n // d) + jnp.asarray(batch.rows)).reshape(-1, batch.rows.shape[1])


def _moments(sites: tuple[JointSites, ...], root: Array, problem: Problem, normals: tuple) -> GaussianMoments:
    """Combine the prior and all sites."""
    n = root.shape[1]
    precision, linear = jnp.zeros((n, n)), jnp.zeros(n)
    for site, batch, points in zip(sites, problem.batches, normals, strict=True):
        contrast, places = _contrast(points), _places(batch, points, n)
        own = jnp.einsum("xo,xym,yp->opm", contrast, site.precision, contrast)
        precision = precision.at[places[:, None], places[None, :]].add(own)
        linear = linear.at[places].add(jnp.einsum("xo,xm->om", contrast, site.linear))
    return condition(Factor(root, jnp.zeros(1)), Sites(precision[None], linear[None]))


def _differences(moments: GaussianMoments, batch: SetBatch, points: Array) -> tuple[Array, Array]:
    """Mean (n, m) and Cholesky factor (n, n, m) of the utility differences of each set."""
    mean, covariance = moments.mean[0], moments.covariance[0]
    contrast, places = _contrast(points), _places(batch, points, len(mean))
    own = covariance[places[:, None], places[None, :]]
    spread = small_cholesky(
        jnp.einsum("xo,opm,yp->xym", contrast, own, contrast)[None], jnp.max(jnp.abs(own), axis=(0, 1))[None]
    )[0]
    return jnp.asarray(contrast) @ mean[places], spread


def _log_p(differences: Array, batch: SetBatch, lapse: Array | None) -> Array:
    """Return log p (m, S) at utility differences (d, a - 1, m, S)."""
    u = jnp.pad(differences, ((0, 0), (1, 0), (0, 0), (0, 0)))
    return batch.errors.log_likelihood(u, jnp.asarray(batch.present), jnp.asarray(batch.chosen), lapse)


def _matched(
    site: JointSites, moments: GaussianMoments, batch: SetBatch, points: Array, lapse: Array | None
) -> JointSites:
    """Move each site towards the one that gives q the moments of q p / site.

    In coordinates z in which q is standard normal: with T and δ the covariance and mean of the points z under weights
    p / site, the site's precision grows by T^-1 - I and its linear part by T^-1 δ.
    """
    mean, spread = _differences(moments, batch, points)
    z = _flat(points)
    x = mean[..., None] + jnp.einsum("xym,yms->xms", spread, z)
    of_site = jnp.einsum("xm,xms->ms", site.linear, x) - 0.5 * jnp.einsum("xms,xym,yms->ms", x, site.precision, x)
    logs = batch.weight[:, None] * _log_p(x.reshape(points.shape), batch, lapse) - of_site
    weights = jax.nn.softmax(logs, axis=-1)
    centre = jnp.einsum("ms,xms->xm", weights, z)
    away = z - centre[..., None]
    tilted = jnp.moveaxis(jnp.einsum("ms,xms,yms->xym", weights, away, away), -1, 0)
    inverse = jnp.linalg.inv(tilted)
    # A difference without variance (near-identical objects) has no coordinate z, and its site stays.
    free = jnp.diagonal(spread) > 0  # (m, n)
    precise = (inverse - jnp.eye(len(z))) * free[:, :, None] * free[:, None, :]
    shift = jnp.einsum("mxy,ym->mx", inverse, centre) * free
    back = jnp.moveaxis(spread, -1, 0) + jnp.eye(len(z)) * ~free[:, None, :]
    turned = jnp.linalg.inv(back)
    grown = jnp.einsum("mzx,mzw,mwy->xym", turned, precise, turned)
    precision = site.precision + _RHO * grown
    # In x the new linear part is P' μ + h', with h' and P' in coordinates centred at μ.
    linear = site.linear + _RHO * (jnp.einsum("mzx,mz->xm", turned, shift) + jnp.einsum("xym,ym->xm", grown, mean))
    return JointSites(precision, linear)


def _psd_part(curvature: Array) -> Array:
    """Project (n, n, m) onto positive semi-definite matrices."""
    values, vectors = jnp.linalg.eigh(jnp.moveaxis(curvature, -1, 0))
    clipped = (vectors * jnp.maximum(values, 0.0)[:, None, :]) @ jnp.swapaxes(vectors, -1, -2)
    return jnp.moveaxis(clipped, 0, -1)
