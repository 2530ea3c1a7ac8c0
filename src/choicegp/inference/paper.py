"""The authors' own approximation (the paper's appendix on variational inference), as a yardstick.

q(u) = prod_i N(m_i, S_i) with S_i^-1 = K_i^-1 + diag(λ_i): equation 10 of Opper and Archambeau (2009), 2 t
numbers per utility.  It is started from the best of several MAP runs and climbs the ELBO together with the
hyperparameters, without hyperpriors.  The paper fixes the kernels' variance at 1 and learns one error scale
σ.  Utilities are in units of σ here, so one variance 1 / σ² shared by all utilities says the same.

`PaperInference` optimises as the authors did, by Adam on fresh Monte Carlo samples, with the settings of their
code (5 MAP runs, λ = 1 at first, learning rate 0.01, 300 samples); only the means are whitened (m = L w),
where their code moves m itself and needs a jitter of 1e-4.  `ConvergedPaperInference` takes the same family
to its optimum, so that a comparison is with the family and not with its optimiser.

With L L^T = K, C C^T = B = I + L^T diag(λ) L and W = C^-1 L^T: m = L w, S = W^T W, a sample is m + W^T ε, and
KL = (log|B| - tr(diag(λ) S) + w^T w) / 2.  Nothing is inverted.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from choicegp.compute.programs import program
from choicegp.inference.dense import LOG_BOUNDS, Adam
from choicegp.inference.descent import Descent, descend
from choicegp.inference.driver import Inferred, Task, Verdict, inferred_from_sites
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.posterior import FIRST_JITTER, Factor, evidence_bound, factorise, prior_covariance
from choicegp.inference.problem import Problem, SetBatch
from choicegp.inference.sites import Sites
from choicegp.inference.starts import LENGTHSCALES, scaled
from choicegp.model.prior import UtilityPrior

BLOCK = 100  # Adam steps between two looks from Python: progress and clock
N_POINTS = 64
_MAP_ITERATIONS, _MAP_TOLERANCE = 500, 1e-3
_TRIAL = 40  # iterations of L-BFGS from every MAP run before the starts are compared
_LOG_PRECISIONS = (-20.0, 20.0)  # bounds
_CHUNK = 50_000  # utility differences worked on at a time
_RATE = 0.01  # of Adam


class Parameters(NamedTuple):
    """What is optimised: hyperparameters, whitened means w (d, t) and log λ (d, t)."""

    prior: UtilityPrior
    whitened: Array
    log_precision: Array

    def precision(self, problem: Problem) -> Array:
        """Return λ; none for padding, which thereby keeps its prior and costs nothing."""
        return jnp.where(problem.valid, jnp.exp(self.log_precision), 0.0)

    def within_bounds(self) -> "Parameters":
        """Move hyperparameters and precisions to where they may be."""
        prior = jax.tree.map(lambda leaf: jnp.clip(leaf, *LOG_BOUNDS), self.prior)
        return self._replace(prior=prior, log_precision=jnp.clip(self.log_precision, *_LOG_PRECISIONS))


class Approximation(NamedTuple):
    """The Gaussian q: mean (d, t), W (d, t, t) with covariance W^T W, and KL from the prior (d,)."""

    mean: Array
    half: Array
    kl: Array


def tie(prior: UtilityPrior) -> UtilityPrior:
    """Share each kernel's variance among the utilities; one per feature is a relevance, and stays free."""

    def share(path: tuple, leaf: Array) -> Array:
        shared = path[-1].name == "log_variance" and leaf.ndim == 1
        return jnp.full_like(leaf, jnp.mean(leaf)) if shared else leaf

    return jax.tree_util.tree_map_with_path(share, prior)


def approximate(parameters: Parameters, problem: Problem) -> Approximation:
    """Make the Gaussian that parameters stand for, one utility after the other (no batched LAPACK)."""
    covariance = prior_covariance(tie(parameters.prior), problem)
    d, n = covariance.shape[:2]
    # The ladder cannot be differentiated: it only finds the jitter.
    jitter = factorise(jax.lax.stop_gradient(covariance), jnp.full(d, FIRST_JITTER)).jitter

    def one(args: tuple[Array, Array, Array, Array]) -> Approximation:
        matrix, own_jitter, whitened, precision = args
        root = jnp.linalg.cholesky(matrix + own_jitter * jnp.trace(matrix) / n * jnp.eye(n))
        b_root = jnp.linalg.cholesky(jnp.eye(n) + (root.T * precision) @ root)
        half = solve_triangular(b_root, root.T, lower=True)
        log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diag(b_root)))
        shrunk = precision @ jnp.sum(half * half, axis=0)
        return Approximation(root @ whitened, half, 0.5 * (log_determinant - shrunk + whitened @ whitened))

    return jax.lax.map(one, (covariance, jitter, parameters.whitened, parameters.precision(problem)))


def bound_on_points(parameters: Parameters, problem: Problem, normals: tuple[Array, ...], lapse: Array | None) -> Array:
    """Return the ELBO on fixed points for each set: a smooth function of the parameters."""
    q = approximate(parameters, problem)
    return evidence_bound(q.mean, jnp.swapaxes(q.half, 1, 2) @ q.half, q.kl, problem, normals, lapse)


def bound_on_samples(
    parameters: Parameters, problem: Problem, key: Array, n_samples: int, lapse: Array | None
) -> Array:
    """Estimate the ELBO from joint samples of the utilities of all objects, each of which serves all sets."""
    q = approximate(parameters, problem)
    u = q.mean[:, :, None] + jnp.swapaxes(q.half, 1, 2) @ jax.random.normal(key, (*q.mean.shape, n_samples))
    return sum((_mean_log_likelihood(u, batch, lapse) for batch in problem.batches), -jnp.sum(q.kl))


def _mean_log_likelihood(u: Array, batch: SetBatch, lapse: Array | None) -> Array:
    """Average a batch's log-likelihood over samples u (d, t, S), in blocks that fit a core's cache."""
    d, t, n_samples = u.shape
    a, m = batch.rows.shape
    size = min(n_samples, max(1, _CHUNK // (d * a * (a - 1) // 2 * m)))
    while n_samples % size:
        size -= 1
    present, chosen = jnp.asarray(batch.present)[..., None], jnp.asarray(batch.chosen)[..., None]

    @jax.checkpoint  # or the gradient would keep what every block computed
    def of_block(part: Array) -> Array:
        value = batch.errors.log_likelihood(part[:, batch.rows], present, chosen, lapse)
        return jnp.sum(batch.weight[:, None] * value)

    blocks = jnp.moveaxis(u.reshape(d, t, n_samples // size, size), 2, 0)
    return jnp.sum(jax.lax.map(of_block, blocks)) / n_samples


@program
def _map_loss(root: Array, problem: Problem, lapse: Array | None, vector: Array) -> tuple[Array, Array]:
    """-log p(choices | u = L w) - log p(w), up to a constant, and its gradient."""

    def loss(vector: Array) -> Array:
        u = jnp.einsum("dij,dj->di", root, vector.reshape(root.shape[:2]))[:, :, None]
        return 0.5 * vector @ vector - sum(_mean_log_likelihood(u, batch, lapse) for batch in problem.batches)

    return jax.value_and_grad(loss)(vector)


@program
def _bound_loss(
    template: Parameters, problem: Problem, normals: tuple, lapse: Array | None, vector: Array
) -> tuple[Array, Array]:
    unravel = ravel_pytree(template)[1]
    return jax.value_and_grad(lambda x: -bound_on_points(unravel(x), problem, normals, lapse))(vector)


@program
def _factor_of(prior: UtilityPrior, problem: Problem) -> Factor:
    return factorise(prior_covariance(prior, problem), jnp.full(prior.n_utilities, FIRST_JITTER))


class _PaperFamily:
    """What both ways to optimise share: MAP runs at the beginning, and the posterior at the end."""

    def __init__(self, task: Task) -> None:
        self.task, self.lapse = task, jnp.asarray(task.lapse) if task.lapse > 0 else None
        self.prior, self.problem = jax.tree.map(jnp.asarray, (task.prior, task.problem))

    def map_starts(self, priors: list[UtilityPrior]) -> list[Parameters]:
        """Run MAP from random utilities, once for each prior; the best comes first."""
        task, valid = self.task, np.asarray(self.task.problem.valid)
        runs = []
        for i, prior in enumerate(priors):
            loss = partial(_map_loss, _factor_of(prior, self.problem).root, self.problem, self.lapse)
            draw = np.zeros((prior.n_utilities, len(valid)))
            draw[:, valid] = np.random.default_rng([task.seed, i]).normal(size=(len(draw), valid.sum()))
            phase, start = f"MAP run {i + 1} of {len(priors)}", Descent(draw.ravel())
            found = descend(task.watch, phase, loss, start, _MAP_ITERATIONS, _MAP_TOLERANCE)
            parameters = Parameters(prior, jnp.asarray(found.x).reshape(draw.shape), jnp.zeros(draw.shape))
            runs.append((min(found.losses, default=np.inf), parameters.within_bounds()))
            if task.watch.is_up:
                break
        return [parameters for _, parameters in sorted(runs, key=lambda run: run[0])]

    def concluded(self, parameters: Parameters, verdict: Verdict, trace: np.ndarray) -> Inferred:
        """Write the approximation as prior and sites: precision diag(λ), linear part K^-1 m + λ m."""
        prior, precision = tie(parameters.prior), parameters.precision(self.problem)
        factor = _factor_of(prior, self.problem)
        pairs = factor.root, parameters.whitened
        dual = jax.lax.map(lambda pair: solve_triangular(pair[0], pair[1], lower=True, trans=1), pairs)
        linear = dual + precision * jnp.einsum("dij,dj->di", *pairs)
        sites = Sites(jax.vmap(jnp.diag)(precision), linear)
        lost = len(trace) > 0 and not np.any(np.isfinite(trace[-BLOCK:]))
        if lost or not np.all(np.isfinite(ravel_pytree((factor, sites))[0])):
            verdict = Verdict("failed", "the bound is not finite")
        return inferred_from_sites(self.task, prior, factor, sites, self.lapse, verdict, trace)


class PaperState(NamedTuple):
    """Where Adam stands, and the last place whose numbers were good."""

    parameters: Parameters
    adam: Adam
    safe: Parameters


class PaperCourse(NamedTuple):
    """A state, and the noisy bound of every step so far."""

    state: PaperState
    trace: np.ndarray


@partial(program, static="n_samples")
def _adam_block(
    state: PaperState, keys: Array, problem: Problem, lapse: Array | None, learn: Array, n_samples: int
) -> tuple[PaperState, Array]:
    def step(state: PaperState, key: Array) -> tuple[PaperState, Array]:
        now = state.parameters
        bound, slope = jax.value_and_grad(bound_on_samples)(now, problem, key, n_samples, lapse)
        slope = slope._replace(prior=jax.tree.map(lambda part: learn * part, slope.prior))
        direction, adam = state.adam.direction(slope)
        moved = jax.tree.map(lambda x, dx: x + _RATE * dx, now, direction)
        on = PaperState(moved.within_bounds(), adam, now)
        # A step that left the numbers goes back to the last good place, with Adam's memory wiped.
        back = PaperState(state.safe, Adam.begin(state.safe), state.safe)
        healthy = jnp.isfinite(bound) & jnp.all(jnp.isfinite(ravel_pytree(slope)[0]))
        return jax.tree.map(lambda good, retry: jnp.where(healthy, good, retry), on, back), bound

    return jax.lax.scan(step, state, keys)


class PaperInference(_PaperFamily):
    """The authors' way: MAP runs, then Adam on a Monte Carlo ELBO, with fresh samples at every step.

    All steps are made unless the time is up; the tolerance is not used.
    """

    def __init__(self, task: Task, n_samples: int = 300) -> None:
        super().__init__(task)
        self.n_samples = n_samples

    def begin(self) -> PaperCourse:
        """Return the best of the MAP runs."""
        start = self.map_starts([tie(self.prior)] * self.task.n_starts)[0]
        return PaperCourse(PaperState(start, Adam.begin(start), start), np.zeros(0))

    def step(self, course: PaperCourse) -> PaperCourse:
        """Make a block of Adam's steps."""
        done, task = len(course.trace), self.task
        key = jax.random.fold_in(jax.random.key(task.seed), done)
        keys = jax.random.split(key, min(BLOCK, task.max_iter - done))
        learn = np.asarray(float(task.learning.learn_prior))
        state, bounds = _adam_block(course.state, keys, self.problem, self.lapse, learn, self.n_samples)
        task.watch.report("fit", done + len(bounds), float(np.mean(bounds)))
        return PaperCourse(state, np.concatenate([course.trace, bounds]))

    def verdict(self, course: PaperCourse) -> Verdict | None:
        """Stop after all steps; they have converged when the bound, smoothed over hundreds of steps, is flat."""
        trace, n_max = course.trace, self.task.max_iter
        if len(trace) < n_max:
            if not self.task.watch.is_up:
                return None
            return Verdict("stopped", f"{self.task.watch.out_of_time}, after {len(trace)} steps")
        whose = "the paper's 5000 steps" if n_max == 5000 else f"the limit of {n_max} steps"
        # The last tenth of the steps against the one before it, with twice the difference's standard error.
        n = n_max // 10
        before, after = trace[-2 * n : -n], trace[-n:]
        if n >= BLOCK and np.mean(after) - np.mean(before) < 2.0 * np.sqrt((np.var(before) + np.var(after)) / n):
            return Verdict("converged", f"{whose}; the last {n} no longer raised the bound")
        return Verdict("stopped", f"{whose}; the bound was still rising")

    def conclude(self, course: PaperCourse, verdict: Verdict) -> Inferred:
        """Make the posterior."""
        return self.concluded(course.state.safe, verdict, course.trace)


class ConvergedPaperInference(_PaperFamily):
    """The authors' family, taken to its optimum: L-BFGS on a smooth ELBO, with fixed points for each set.

    Starts have several lengthscales.  Every MAP run is followed for a few iterations, and the one with the best bound
    continues; it has converged when ten iterations gain less than the tolerance.  Its state is a `Descent`.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        normals = quasi_normals(task.problem, task.prior.n_utilities, N_POINTS, task.seed)
        self.normals = jax.tree.map(jnp.asarray, normals)
        nothing = jnp.zeros((task.prior.n_utilities, len(task.problem.valid)))
        template = Parameters(tie(self.prior), nothing, nothing).within_bounds()
        self._unravel = ravel_pytree(template)[1]
        sizes = [ravel_pytree(part)[0].size for part in template]
        self._bounds = np.repeat([LOG_BOUNDS, (-np.inf, np.inf), _LOG_PRECISIONS], sizes, axis=0)
        if not task.learning.learn_prior:
            self._bounds[: sizes[0]] = np.asarray(ravel_pytree(template.prior)[0])[:, None]
        self._loss = partial(_bound_loss, template, self.problem, self.normals, self.lapse)

    def begin(self) -> Descent:
        """Return the best of the starts after a few iterations."""
        task = self.task
        # One lengthscale has hardly more than one MAP: local optima are found from several.
        factors = [LENGTHSCALES[i % len(LENGTHSCALES)] if task.learning.learn_prior else 1.0
                   for i in range(task.n_starts)]  # fmt: skip
        starts = self.map_starts([scaled(tie(self.prior), factor) for factor in factors])
        trials: list[Descent] = []
        while len(trials) < len(starts) and not (trials and task.watch.is_up):
            start = Descent(np.asarray(ravel_pytree(starts[len(trials)])[0]))
            trials.append(self._descend(start, f"start {len(trials) + 1} of {len(starts)}", min(_TRIAL, task.max_iter)))
        return min(trials, key=lambda run: min(run.losses, default=np.inf))

    def _descend(self, start: Descent, phase: str, max_iter: int) -> Descent:
        return descend(self.task.watch, phase, self._loss, start, max_iter, self.task.tol, self._bounds)

    def step(self, now: Descent) -> Descent:
        """Descend to the end."""
        return self._descend(now, "fit", self.task.max_iter)

    def verdict(self, now: Descent) -> Verdict | None:
        """Stop after a descent, or after a second one where a line search failed."""
        going = now.status != "converged" and len(now.losses) < self.task.max_iter and not self.task.watch.is_up
        return None if going and now.n_runs < 3 else Verdict(now.status, now.message)

    def conclude(self, now: Descent, verdict: Verdict) -> Inferred:
        """Make the posterior."""
        return self.concluded(self._unravel(jnp.asarray(now.x)), verdict, -np.asarray(now.losses))
