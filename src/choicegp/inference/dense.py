"""Block-site variational inference by natural gradient, for up to a few thousand objects.

One step evaluates every set's expected derivatives under the current posterior (one forward pass), moves the
sites towards them, and lets the hyperparameters climb the bound with the sites held fixed (the dual
parameterisation of t-SVGP, Adam et al. 2021).  With sites fixed, the gradient with respect to a prior
covariance K is (α α^T - Q) / 2, α = K^-1 m and Q = (K + Λ^-1)^-1: nothing is differentiated through a
factorisation.

Starts are annealed and compared as `choicegp.inference.annealing` says.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from choicegp.compute.programs import program
from choicegp.inference.annealing import BLOCK, AnnealedInference, Course, Schedule, StepTrace, looped
from choicegp.inference.driver import SCORE_POINTS, Inferred, Learning, Task, Verdict, inferred_from_sites
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
from choicegp.inference.starts import ANNEALING, Start, covariance_at, random_start
from choicegp.model.prior import UtilityPrior, log_density

N_POINTS = 16
LAPSE_PRIOR = (2.0, 20.0)
"""Beta prior of a learned lapse rate."""
LOG_BOUNDS = (-8.0, 14.0)
"""Smallest and largest log hyperparameter, of every inference."""
_QUICK = 400  # objects up to which a block of steps is made in one piece
_LOOK = 0.5  # seconds between two looks at the clock, where single steps take less
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


def begin(prior: UtilityPrior, problem: Problem, sites: Sites, lapse: Array | None) -> DenseState:
    """Make the first state, of NumPy arrays: every operation of JAX outside a program is compiled by itself."""
    factor = factorise_on_host(np.asarray(covariance_at(prior, problem)))
    prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
    return DenseState(prior, factor, sites, lapse, *first_pace(prior))


def first_pace(prior: UtilityPrior) -> tuple[Adam, Any, Any, Any]:
    """Return what a first state says about its steps: Adam, rho, rate and objective."""
    adam = Adam.begin(np.zeros(sum(leaf.size for leaf in jax.tree.leaves(prior))))
    # With explicit types: a weakly typed number in the first state would have the block compiled twice.
    rho, rate, objective = (np.asarray(number, float) for number in (0.5, _RATE, -np.inf))
    return adam, rho, rate, objective


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


def objective_of(state: Any, bound: Array, learning: Learning) -> Array:
    """Add the priors of the hyperparameters and of a learned lapse rate to the bound."""
    objective = bound
    if learning.hyperpriors is not None:
        objective += log_density(state.prior, learning.hyperpriors)
    if learning.learn_lapse:
        assert state.lapse is not None
        objective += (LAPSE_PRIOR[0] - 1.0) * jnp.log(state.lapse) + (LAPSE_PRIOR[1] - 1.0) * jnp.log1p(-state.lapse)
    return objective


def next_pace(state: Any, objective: Array, steady: Array) -> tuple[Array, Array]:
    """Return the next step sizes of the sites and of the hyperparameters: smaller ones after a drop."""
    # Near the fixed point the bound on few points wavers by their integration error: that is no drop.
    dropped = steady & (objective < state.objective - 1e-4 * jnp.abs(state.objective))
    grown = jnp.where(steady, jnp.minimum(1.2 * state.rho, 1.0), state.rho)
    rho = jnp.where(dropped, jnp.maximum(0.5 * state.rho, 0.05), grown)
    return rho, jnp.where(dropped, jnp.maximum(0.7 * state.rate, 0.01), state.rate)


def likely_lapse(lapsed: Array, n_sets: Any) -> Array:
    """Make a step of expectation-maximisation: the expected number of lapses, with the Beta prior's counts."""
    a, b = LAPSE_PRIOR
    return (lapsed + a - 1.0) / (n_sets + a + b - 2.0)


def climbed(state: Any, gradient: Any, learning: Learning) -> tuple[Any, Adam]:
    """Make one Adam step of the hyperparameters, given the gradient of the bound with the sites fixed."""
    # As one vector: a handful of operations instead of a handful for every parameter.
    parameters, restore = ravel_pytree(state.prior)
    slope = ravel_pytree(gradient)[0]
    if learning.hyperpriors is not None:
        slope += ravel_pytree(jax.grad(log_density)(state.prior, learning.hyperpriors))[0]
    update, adam = state.adam.direction(slope, _DECAY, _EPSILON)
    return restore(jnp.clip(parameters + state.rate * update, *LOG_BOUNDS)), adam


def _climb(
    state: DenseState, moments: GaussianMoments, problem: Problem, learning: Learning
) -> tuple[UtilityPrior, Factor, Adam]:
    """One Adam step of the hyperparameters with the sites fixed."""
    gradient = evidence_gradient(state.prior, problem, moments, state.sites)
    prior, adam = climbed(state, gradient, learning)
    return prior, factorise(prior_covariance(prior, problem), state.factor.jitter), adam


def _step(
    state: DenseState, schedule: tuple[Array, Array, Array], problem: Problem, normals: tuple, learning: Learning
) -> tuple[DenseState, StepTrace]:
    weight, learn, steady = schedule
    moments = condition(state.factor, state.sites)
    value, target, forces, lapsed = target_sites(
        moments.mean, moments.covariance, problem, normals, weight, state.lapse
    )
    bound = weight * value - jnp.sum(moments.kl)
    objective = objective_of(state, bound, learning)
    residual = jnp.linalg.norm(forces - moments.dual[-len(forces) :]) / (1e-12 + jnp.linalg.norm(forces))
    rho, rate = next_pace(state, objective, steady)
    sites = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, state.sites, target)
    prior, factor, adam = state.prior, state.factor, state.adam
    if learning.learn_prior:
        prior, factor, adam = jax.lax.cond(
            learn, lambda: _climb(state, moments, problem, learning), lambda: (prior, factor, adam)
        )
    lapse = state.lapse
    if learning.learn_lapse:
        # Ordered pairs are no answers, in which somebody could lapse.
        n_sets = sum((jnp.sum(batch.weight * (batch.sets >= 0)) for batch in problem.batches), jnp.zeros(()))
        lapse = jnp.where(learn, likely_lapse(lapsed, n_sets), jnp.asarray(lapse))
    after = DenseState(prior, factor, sites, lapse, adam, rho, rate, objective)
    return after, StepTrace(bound, objective, residual)


@partial(program, static="learning")
def run_block(
    state: DenseState, schedule: tuple, n_steps: Array, problem: Problem, normals: tuple, learning: Learning
) -> tuple[DenseState, StepTrace]:
    """Make the first steps of a schedule."""
    return looped(lambda s, x: _step(s, x, problem, normals, learning), state, schedule, n_steps)


_first_sites = program(target_sites, seldom=True)


class DenseInference(AnnealedInference):
    """Annealed starts, and one long run of the best, at all shown objects of a problem.

    ``warm`` are the means (d, t) and covariances (d, t, t) of an earlier model at the problem's objects, to start at;
    ``grown`` are starts to be tried instead of random ones.  Neither is annealed.
    """

    def __init__(self, task: Task, warm: tuple[Array, Array] | None = None, grown: Sequence[Start] = ()) -> None:
        super().__init__(task, grown)
        self.warm = warm
        normals = quasi_normals(task.problem, task.prior.n_utilities, N_POINTS, task.seed)
        self.problem, self.normals = jax.tree.map(jnp.asarray, (task.problem, normals))

    @property
    def piece(self) -> int:
        """Number of steps between two looks at the clock and at the bar: with many objects, half a second of steps."""
        if len(self.problem.valid) <= _QUICK:
            return BLOCK
        return int(np.clip(_LOOK / self.seconds_of_step, 1, BLOCK)) if self.seconds_of_step else 1

    @property
    def n_numbers(self) -> int:
        """Number of objects times parts of the utilities."""
        return len(self.problem.valid) * self.task.prior.n_parts

    def work_of_sets(self, n_points: int) -> float:
        """Return the seconds of derivatives at some points of each set, on the core where they were measured."""
        counts = [(*batch.rows.shape, batch.errors.n_nodes) for batch in self.problem.batches]
        n_pairs = sum(a * (a - 1) // 2 * m * n_nodes for a, m, n_nodes in counts)
        return 35e-9 * self.task.prior.n_utilities * n_pairs * n_points

    def work_of_step(self, state: DenseState) -> float:
        """Return the seconds of a step on that core."""
        t = len(self.problem.valid)
        return self.work_of_sets(N_POINTS) + self.n_numbers * (100e-9 * t + 0.16e-9 * t**2)

    @property
    def work_afterwards(self) -> float:
        """Seconds of the posterior and of its score on that core."""
        t = len(self.problem.valid)
        return 0.5 * self.work_of_sets(SCORE_POINTS) + self.n_numbers * (150e-9 * t + 0.25e-9 * t**2)

    def warm_state(self) -> DenseState | None:
        """Return the state at the earlier model, where there is one."""
        if self.warm is None:
            return None
        lapse = self.task.rate
        _, sites, _, _ = _first_sites(*self.warm, self.problem, self.normals, 1.0, lapse)
        return begin(self.task.prior, self.problem, sites, lapse)

    def random_state(self, prior: UtilityPrior, rng: np.random.Generator) -> DenseState:
        """Return the state whose utilities are smooth random functions."""
        return begin(prior, self.problem, random_start(prior, self.problem, rng), self.task.rate)

    def given_state(self, start: Start) -> DenseState:
        """Return the state at a given start."""
        return begin(start.prior, self.problem, start.sites, self.task.rate)

    def advance(self, state: DenseState, schedule: Schedule) -> tuple[DenseState, StepTrace]:
        """Make the steps of a schedule."""
        return self.in_block(partial(run_block, state), schedule, self.problem, self.normals, self.task.learning)

    @staticmethod
    def in_block(run: Callable, schedule: Schedule, *rest: Any) -> tuple[Any, StepTrace]:
        """Run a program that makes a block of steps or fewer."""
        n = len(schedule[0])
        whole = tuple(np.concatenate([part, np.repeat(part[-1:], BLOCK - n)]) for part in schedule)
        state, trace = run(whole, np.asarray(n, np.int32), *rest)
        return state, StepTrace(*(part[:n] for part in trace))

    def is_healthy(self, state: DenseState) -> bool:
        """Say whether the numbers of a state are finite."""
        diagonal = np.diagonal(np.asarray(state.factor.root), axis1=1, axis2=2)
        return bool(np.all(np.isfinite(np.asarray(state.sites.linear))) and np.all(np.isfinite(diagonal)))

    def steadier(self, state: DenseState) -> DenseState:
        """Return the state with more jitter."""
        jitter = np.minimum(100.0 * np.asarray(state.factor.jitter), LAST_JITTER)
        return state._replace(factor=_factorise_prior(state.prior, self.problem, jitter))

    def conclude(self, course: Course, verdict: Verdict) -> Inferred:
        """Make the posterior."""
        state, bounds = course.state, np.concatenate([trace.bound for trace in course.traces])
        annealed = 0 if self.warm is not None or self.grown else min(len(ANNEALING[0]), len(bounds))
        return inferred_from_sites(
            self.task, state.prior, state.factor, state.sites, state.lapse, verdict, bounds, annealed
        )
