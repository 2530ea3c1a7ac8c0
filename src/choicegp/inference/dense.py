"""Block-site variational inference by natural gradient, for up to a few thousand objects.

One step evaluates every set's expected derivatives under the current posterior (one forward pass), moves the
sites towards them, and lets the hyperparameters climb the bound with the sites held fixed (the dual
parameterisation of t-SVGP, Adam et al. 2021).  With sites fixed, the gradient with respect to a prior
covariance K is (α α^T - Q) / 2, α = K^-1 m and Q = (K + Λ^-1)^-1: nothing is differentiated through a
factorisation.

Local optima dominate the result, so every start is annealed (the likelihood's weight rises from 0.05 to 1,
with the hyperparameters held: at low weight they would call everything noise), several starts from several
lengthscales are tried, and the one with the best bound continues.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from choicegp.compute.programs import program, with_settings_of_this_thread
from choicegp.inference.driver import Inferred, Learning, Task, Verdict, inferred_from_sites
from choicegp.inference.expectation import SharedCovariance, expect, marginals, quasi_normals
from choicegp.inference.posterior import (
    LAST_JITTER,
    Factor,
    GaussianMoments,
    condition,
    factorise,
    factorise_on_host,
    gains,
    prior_covariance,
)
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites, add_up, zero_sites
from choicegp.inference.starts import ANNEALING, LENGTHSCALES, Start, covariance_at, random_start, scaled
from choicegp.model.prior import UtilityPrior, log_density

BLOCK = 6  # steps between two looks from Python: progress, clock, stopping rule
N_POINTS = 16
_ATTEMPTS = 4  # at a block of steps
_TRIAL_BLOCKS = 2  # blocks after annealing before the starts are compared
LAPSE_PRIOR = (2.0, 20.0)
"""Beta prior of a learned lapse rate."""
LOG_BOUNDS = (-8.0, 14.0)
"""Smallest and largest log hyperparameter, of every inference."""
_RATE = 0.4  # of Adam, in log hyperparameters
_DECAY, _EPSILON = (0.8, 0.95), 1e-3  # of Adam


class Adam(NamedTuple):
    """Running averages of gradients (any pytree) and of their squares, and how many gradients they hold.

    Written out, because importing optax takes 0.17 s, a good part of a second fit of a small problem.
    """

    n_seen: Any
    first: Any
    second: Any

    @classmethod
    def begin(cls, like: Any) -> "Adam":
        """Start with nothing, for gradients of these shapes."""
        # NumPy's zeros: every operation of JAX outside a program is compiled by itself.
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
        return cls(np.zeros((), np.int32), zeros, zeros)

    def direction(
        self, gradient: Any, decay: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ) -> tuple[Any, "Adam"]:
        """Return the step of unit rate that this gradient asks for."""
        count = self.n_seen + 1

        def averaged(rate: float, old: Any, new: Any) -> Any:
            return jax.tree.map(lambda old, new: rate * old + (1.0 - rate) * new, old, new)

        first = averaged(decay[0], self.first, gradient)
        second = averaged(decay[1], self.second, jax.tree.map(jnp.square, gradient))

        def one(first: Any, second: Any) -> Any:
            short, long = ((1.0 - rate**count).astype(first.dtype) for rate in decay)
            return first / short / (jnp.sqrt(second / long) + epsilon)

        return jax.tree.map(one, first, second), Adam(count, first, second)


class DenseState(NamedTuple):
    """Where the optimisation stands."""

    prior: UtilityPrior
    factor: Factor
    sites: Sites
    lapse: Array | None
    adam: Adam
    rho: Array
    rate: Array
    objective: Array


class DenseTrace(NamedTuple):
    """What a step reports."""

    bound: Array
    objective: Array
    residual: Array


def begin(prior: UtilityPrior, problem: Problem, sites: Sites, lapse: Array | None) -> DenseState:
    """Make the first state, of NumPy arrays: every operation of JAX outside a program is compiled by itself."""
    factor = factorise_on_host(np.asarray(covariance_at(prior, problem)))
    prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
    adam = Adam.begin(np.zeros(sum(leaf.size for leaf in jax.tree.leaves(prior))))
    # With explicit types: a weakly typed number in the first state would have the block compiled twice.
    rho, rate, objective = (np.asarray(number, float) for number in (0.5, _RATE, -np.inf))
    return DenseState(prior, factor, sites, lapse, adam, rho, rate, objective)  # type: ignore[arg-type]


@program
def _factorise_prior(prior: UtilityPrior, problem: Problem, jitter: Array) -> Factor:
    return factorise(prior_covariance(prior, problem), jitter)


def target_sites(
    mean: Array,
    covariance: Array | SharedCovariance,
    problem: Problem,
    normals: tuple,
    weight: Array,
    lapse: Array | None,
) -> tuple[Array, Sites, Array, Array]:  # fmt: skip
    """Sites that the current marginals ask for: expected log-likelihood, sites, forces, lapsed share."""
    total = zero_sites(mean.shape[0], mean.shape[1])
    forces = jnp.zeros_like(mean)
    value, lapsed = jnp.zeros(()), jnp.zeros(())
    for batch, draws in zip(problem.batches, normals, strict=True):
        expected = expect(marginals(mean, covariance, batch), batch, draws, lapse)
        total, forces = add_up(batch, jnp.asarray(weight * batch.weight), expected, mean, total, forces)
        value += jnp.sum(batch.weight * expected.value)
        lapsed += jnp.sum(batch.weight * expected.lapsed)
    return value, total, forces, lapsed


def evidence_gradient(prior: UtilityPrior, problem: Problem, moments: GaussianMoments, sites: Sites) -> UtilityPrior:
    """Gradient of the bound with respect to the hyperparameters, with the sites fixed.

    It is also the gradient of the bound at a fixed posterior, hence, at the best sites, the gradient of the best bound.
    """
    slope = 0.5 * (moments.dual[:, :, None] * moments.dual[:, None, :] - gains(moments, sites))
    _, pull_back = jax.vjp(lambda prior: prior_covariance(prior, problem), prior)
    return pull_back(slope)[0]


def _climb(
    state: DenseState, moments: GaussianMoments, problem: Problem, learning: Learning
) -> tuple[UtilityPrior, Factor, Adam]:
    """One Adam step of the hyperparameters with the sites fixed."""
    # As one vector: a handful of operations instead of a handful for every parameter.
    parameters, restore = ravel_pytree(state.prior)
    gradient = ravel_pytree(evidence_gradient(state.prior, problem, moments, state.sites))[0]
    if learning.hyperpriors is not None:
        gradient += ravel_pytree(jax.grad(log_density)(state.prior, learning.hyperpriors))[0]
    update, adam = state.adam.direction(gradient, _DECAY, _EPSILON)
    prior = restore(jnp.clip(parameters + state.rate * update, *LOG_BOUNDS))
    return prior, factorise(prior_covariance(prior, problem), state.factor.jitter), adam


def _step(
    state: DenseState, schedule: tuple[Array, Array, Array], problem: Problem, normals: tuple, learning: Learning
) -> tuple[DenseState, DenseTrace]:
    weight, learn, steady = schedule
    moments = condition(state.factor, state.sites)
    value, target, forces, lapsed = target_sites(
        moments.mean, moments.covariance, problem, normals, weight, state.lapse
    )
    bound = weight * value - jnp.sum(moments.kl)
    objective = bound
    if learning.hyperpriors is not None:
        objective += log_density(state.prior, learning.hyperpriors)
    if learning.learn_lapse:
        assert state.lapse is not None
        objective += (LAPSE_PRIOR[0] - 1.0) * jnp.log(state.lapse) + (LAPSE_PRIOR[1] - 1.0) * jnp.log1p(-state.lapse)
    residual = jnp.linalg.norm(forces - moments.dual[-len(forces) :]) / (1e-12 + jnp.linalg.norm(forces))
    # Near the fixed point the bound on few points wavers by their integration error: that is no drop.
    dropped = steady & (objective < state.objective - 1e-4 * jnp.abs(state.objective))
    grown = jnp.where(steady, jnp.minimum(1.2 * state.rho, 1.0), state.rho)
    rho = jnp.where(dropped, jnp.maximum(0.5 * state.rho, 0.05), grown)
    rate = jnp.where(dropped, jnp.maximum(0.7 * state.rate, 0.01), state.rate)

    sites = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, state.sites, target)
    prior, factor, adam = state.prior, state.factor, state.adam
    if learning.learn_prior:
        prior, factor, adam = jax.lax.cond(
            learn, lambda: _climb(state, moments, problem, learning), lambda: (prior, factor, adam)
        )
    lapse = state.lapse
    if learning.learn_lapse:
        # A step of expectation-maximisation: the expected number of lapses, with the Beta prior's counts.
        a, b = LAPSE_PRIOR
        n_sets = sum((jnp.sum(batch.weight) for batch in problem.batches), jnp.zeros(()))
        lapse = jnp.where(learn, (lapsed + a - 1.0) / (n_sets + a + b - 2.0), jnp.asarray(lapse))
    after = DenseState(prior, factor, sites, lapse, adam, rho, rate, objective)
    return after, DenseTrace(bound, objective, residual)


@partial(program, static="learning")
def run_block(
    state: DenseState, schedule: tuple, problem: Problem, normals: tuple, learning: Learning
) -> tuple[DenseState, DenseTrace]:
    """Make the steps of a schedule."""
    return jax.lax.scan(lambda s, x: _step(s, x, problem, normals, learning), state, schedule)


_first_sites = program(target_sites)


class DenseCourse(NamedTuple):
    """A start, the blocks of steps made from it, and how many of them were made while starts were compared."""

    state: DenseState
    traces: tuple[DenseTrace, ...] = ()
    n_tried: int = 0

    @property
    def n_steps(self) -> int:
        """Number of steps made."""
        return BLOCK * len(self.traces)

    @property
    def quality(self) -> tuple[int, float]:
        """What starts are compared by."""
        # A start that the clock cut short has a smaller likelihood weight: its bound cannot be compared.
        objective = float(self.traces[-1].objective[-1])
        return len(self.traces), objective if np.isfinite(objective) else -np.inf


class DenseInference:
    """Annealed starts, and one long run of the best; the number of steps is rounded up to whole blocks.

    ``warm`` are the means (d, t) and covariances (d, t, t) of an earlier model at the problem's objects, to start at;
    ``grown`` are starts to be tried instead of random ones.  Neither is annealed.
    """

    def __init__(self, task: Task, warm: tuple[Array, Array] | None = None, grown: Sequence[Start] = ()) -> None:
        self.task, self.warm, self.grown = task, warm, grown
        normals = quasi_normals(task.problem, task.prior.n_utilities, N_POINTS, task.seed)
        self.problem, self.normals = jax.tree.map(jnp.asarray, (task.problem, normals))

    def begin(self) -> DenseCourse:
        """Return the best of the starts."""
        task, lapse = self.task, self.task.rate
        if self.warm is not None:
            _, sites, _, _ = _first_sites(*self.warm, self.problem, self.normals, 1.0, lapse)
            return DenseCourse(begin(task.prior, self.problem, sites, lapse))
        if self.grown:
            best = max(self._side_by_side(self._from_given, self.grown), key=lambda course: course.quality)
        else:
            best = self._best_start()
        return best._replace(n_tried=len(best.traces))

    def step(self, course: DenseCourse) -> DenseCourse:
        """Make a block of steps at full weight."""
        return self._block(course, np.ones(BLOCK), "fit", learn=True, steady=bool(course.traces))

    def verdict(self, course: DenseCourse) -> Verdict | None:
        """Stop when a block gains next to nothing, at a limit, or where no step is finite."""
        ended = self._ended(course)
        finite = any(np.all(np.isfinite(trace.objective)) for trace in course.traces)
        return ended if ended is None or finite else Verdict("failed", "the bound was not finite at any step")

    def _ended(self, course: DenseCourse) -> Verdict | None:
        traces, task = course.traces, self.task
        if len(traces) > course.n_tried:
            last = traces[-1]
            if not np.all(np.isfinite(last.objective)):
                return Verdict("stopped", "no finite step was found; the last good place was kept")
            gained = last.objective[-1] - (traces[-2].objective[-1] if len(traces) > 1 else -np.inf)
            small = task.tol * max(1.0, float(abs(last.objective[-1])) / 100.0)
            if abs(gained) < small and last.residual[-1] < 0.05:
                return Verdict("converged", f"a block of {BLOCK} steps gained {gained:.2g} nats")
        if course.n_steps >= task.max_iter:
            return Verdict("stopped", f"the limit of {task.max_iter} steps")
        return Verdict("stopped", task.watch.out_of_time) if traces and task.watch.is_up else None

    def conclude(self, course: DenseCourse, verdict: Verdict) -> Inferred:
        """Make the posterior."""
        state, bounds = course.state, np.concatenate([trace.bound for trace in course.traces])
        annealed = 0 if self.warm is not None or self.grown else min(len(ANNEALING[0]), len(bounds))
        return inferred_from_sites(
            self.task, state.prior, state.factor, state.sites, state.lapse, verdict, bounds, annealed
        )

    def _block(self, course: DenseCourse, weights: np.ndarray, phase: str, *, learn: bool, steady: bool) -> DenseCourse:
        """Make some steps; ones that leave the numbers are tried again, smaller and with more jitter."""
        schedule = np.asarray(weights, float), np.full(BLOCK, learn), np.full(BLOCK, steady)
        tried = course.state
        for _ in range(_ATTEMPTS):
            after, trace = run_block(tried, schedule, self.problem, self.normals, self.task.learning)
            trace = jax.tree.map(np.asarray, trace)
            if _is_healthy(after, trace):
                self.task.watch.report(phase, course.n_steps + BLOCK, float(trace.bound[-1]))
                break
            jitter = np.minimum(100.0 * np.asarray(tried.factor.jitter), LAST_JITTER)
            factor = _factorise_prior(tried.prior, self.problem, jitter)
            tried = tried._replace(rho=0.25 * tried.rho, rate=0.25 * tried.rate, factor=factor)
        else:
            after = course.state
        return course._replace(state=after, traces=(*course.traces, trace))

    def _side_by_side(self, function: Callable[[Any], Any], starts: Iterable[Any]) -> list[Any]:
        """Call a function of a start in several threads."""
        with ThreadPoolExecutor(self.task.n_jobs) as pool:
            return list(pool.map(with_settings_of_this_thread(function), starts))

    def _best_start(self) -> DenseCourse:
        """Anneal several starts from several lengthscales, and take the better half further until one is left.

        The first steps after annealing tell little about where a start will end: halving by and by costs few steps
        and is wrong less often than one comparison.
        """
        tried = self._side_by_side(self._annealed, range(self.task.n_starts))
        courses = [course for course in tried if course is not None]
        while len(courses) > 1:
            courses = sorted(courses, key=lambda course: course.quality, reverse=True)[: (len(courses) + 1) // 2]
            if len(courses) > 1 and not self.task.watch.is_up and courses[0].n_steps < self.task.max_iter:
                courses = self._side_by_side(self._further, courses)
        return courses[0]

    def _annealed(self, number: int) -> DenseCourse | None:
        task = self.task
        if number and task.watch.is_up:
            return None
        own = scaled(task.prior, LENGTHSCALES[number % len(LENGTHSCALES)]) if task.learning.learn_prior else task.prior
        sites = random_start(own, self.problem, np.random.default_rng([task.seed, number]))
        course = DenseCourse(begin(own, self.problem, sites, task.rate))
        annealing = ANNEALING[number % len(ANNEALING)].reshape(-1, BLOCK)
        phases = [*annealing, *[np.ones(BLOCK)] * _TRIAL_BLOCKS]
        for block, weights in enumerate(phases[: -(-task.max_iter // BLOCK)]):
            free = block >= len(annealing)
            course = self._block(course, weights, f"start {number + 1} of {task.n_starts}", learn=free, steady=free)
            if task.watch.is_up:
                break
        return course

    def _further(self, course: DenseCourse) -> DenseCourse:
        for _ in range(_TRIAL_BLOCKS):
            course = self._block(course, np.ones(BLOCK), "comparing starts", learn=True, steady=True)
        return course

    def _from_given(self, start: Start) -> DenseCourse:
        """Make the first steps from a given place, at full weight."""
        course = DenseCourse(begin(start.prior, self.problem, start.sites, self.task.rate))
        for block in range(_TRIAL_BLOCKS):
            course = self._block(course, np.ones(BLOCK), "growing", learn=True, steady=block > 0)
            if self.task.watch.is_up:
                break
        return course


def _is_healthy(state: DenseState, trace: DenseTrace) -> bool:
    diagonal = np.diagonal(np.asarray(state.factor.root), axis1=1, axis2=2)
    parts = (trace.objective, np.asarray(state.sites.linear), diagonal)
    return all(bool(np.all(np.isfinite(part))) for part in parts)
