"""Block-site variational inference by natural gradient, for up to a few thousand objects.

One step evaluates every set's expected derivatives under the current posterior (one forward pass), moves the
sites towards them, and lets the hyperparameters climb the bound with the sites held fixed (the dual
parameterisation of t-SVGP, Adam et al. 2021).  With sites fixed, the gradient with respect to a prior
covariance K is (α α^T - Q) / 2, α = K^-1 m and Q = (K + Λ^-1)^-1: nothing is differentiated through a
factorisation.

Local optima dominate the result, so every start is annealed (the likelihood's weight rises from 0.05 to 1,
with the hyperparameters held: at low weight they would call everything noise), several starts from several
lengthscales are tried, and the one with the best bound goes on.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from choicegp.compute.programs import program, with_settings_of_this_thread
from choicegp.compute.progress import Clock, Report
from choicegp.inference.adam import LOG_BOUNDS, Adam
from choicegp.inference.expectation import expect, marginals, quasi_normals
from choicegp.inference.fit import Fit
from choicegp.inference.posterior import (
    LAST_JITTER,
    Factor,
    Moments,
    condition,
    factorise,
    factorise_on_host,
    gain_of,
    prior_covariance,
)
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites, add_up, zero_sites
from choicegp.inference.starts import ANNEALING, LENGTHSCALES, Start, covariance_at, random_start, scaled
from choicegp.model.hyperpriors import HyperPriors, log_density
from choicegp.model.prior import UtilityPrior

BLOCK = 6  # steps between two looks from Python: progress, clock, stopping rule
N_POINTS = 16
_ATTEMPTS = 4  # at a block of steps
_TRIAL_BLOCKS = 2  # blocks after annealing before the starts are compared
LAPSE_PRIOR = (2.0, 20.0)
"""Beta prior of a learned lapse rate."""
_RATE = 0.4  # of Adam, in log hyperparameters
_DECAY, _EPSILON = (0.8, 0.95), 1e-3  # of Adam


class State(NamedTuple):
    """Where the optimisation stands."""

    prior: UtilityPrior
    factor: Factor
    sites: Sites
    lapse: Array | None
    adam: Adam
    rho: Array
    rate: Array
    objective: Array


class Trace(NamedTuple):
    """What a step reports."""

    bound: Array
    objective: Array
    residual: Array
    rho: Array


class Settings(NamedTuple):
    """What does not change during a fit; hashable, part of the compiled program."""

    hyperpriors: HyperPriors | None
    learn_lapse: bool
    learn_prior: bool = True


def begin(prior: UtilityPrior, problem: Problem, sites: Sites, lapse: Array | None) -> State:
    """Make the first state, of NumPy arrays: every operation of JAX outside a program is compiled by itself."""
    factor = factorise_on_host(np.asarray(covariance_at(prior, problem)))
    prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
    adam = Adam.begin(np.zeros(sum(leaf.size for leaf in jax.tree.leaves(prior))))
    # With explicit types: a weakly typed number in the first state would have the block compiled twice.
    rho, rate, objective = (np.asarray(number, float) for number in (0.5, _RATE, -np.inf))
    return State(prior, factor, sites, lapse, adam, rho, rate, objective)  # type: ignore[arg-type]


@program
def _factorise_prior(prior: UtilityPrior, problem: Problem, jitter: Array) -> Factor:
    return factorise(prior_covariance(prior, problem), jitter)


def target_sites(
    mean: Array, covariance: Array, problem: Problem, normals: tuple, weight: Array, lapse: Array | None
) -> tuple[Array, Sites, Array, Array]:
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


def evidence_gradient(prior: UtilityPrior, problem: Problem, moments: Moments, sites: Sites) -> UtilityPrior:
    """Gradient of the bound with respect to the hyperparameters, with the sites fixed.

    It is also that of the bound at a fixed posterior, hence, at the best sites, that of the best bound.
    """
    gain = jax.lax.map(lambda args: gain_of(*args), (moments.half, sites.precision))
    slope = 0.5 * (moments.dual[:, :, None] * moments.dual[:, None, :] - gain)
    _, pull_back = jax.vjp(lambda prior: prior_covariance(prior, problem), prior)
    return pull_back(slope)[0]


def _climb(state: State, moments: Moments, problem: Problem, settings: Settings) -> tuple[UtilityPrior, Factor, Adam]:
    """One Adam step of the hyperparameters with the sites fixed."""
    # As one vector: a handful of operations instead of a handful for every parameter.
    parameters, restore = ravel_pytree(state.prior)
    gradient = ravel_pytree(evidence_gradient(state.prior, problem, moments, state.sites))[0]
    if settings.hyperpriors is not None:
        gradient += ravel_pytree(jax.grad(log_density)(state.prior, settings.hyperpriors))[0]
    update, adam = state.adam.direction(gradient, _DECAY, _EPSILON)
    prior = restore(jnp.clip(parameters + state.rate * update, *LOG_BOUNDS))
    return prior, factorise(prior_covariance(prior, problem), state.factor.jitter), adam


def _step(
    state: State, schedule: tuple[Array, Array, Array], problem: Problem, normals: tuple, settings: Settings
) -> tuple[State, Trace]:
    weight, learn, steady = schedule
    moments = condition(state.factor, state.sites)
    value, target, forces, lapsed = target_sites(
        moments.mean, moments.covariance, problem, normals, weight, state.lapse
    )
    bound = weight * value - jnp.sum(moments.kl)
    objective = bound
    if settings.hyperpriors is not None:
        objective += log_density(state.prior, settings.hyperpriors)
    residual = jnp.linalg.norm(forces - moments.dual) / (1e-12 + jnp.linalg.norm(forces))
    # Near the fixed point the bound on few points wavers by their integration error: that is no drop.
    dropped = steady & (objective < state.objective - 1e-4 * jnp.abs(state.objective))
    grown = jnp.where(steady, jnp.minimum(1.2 * state.rho, 1.0), state.rho)
    rho = jnp.where(dropped, jnp.maximum(0.5 * state.rho, 0.05), grown)
    rate = jnp.where(dropped, jnp.maximum(0.7 * state.rate, 0.01), state.rate)

    sites = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, state.sites, target)
    prior, factor, adam = state.prior, state.factor, state.adam
    if settings.learn_prior:
        prior, factor, adam = jax.lax.cond(
            learn, lambda: _climb(state, moments, problem, settings), lambda: (prior, factor, adam)
        )
    lapse = state.lapse
    if settings.learn_lapse:
        # A step of expectation-maximisation: the expected number of lapses, with the Beta prior's counts.
        a, b = LAPSE_PRIOR
        n_sets = sum((jnp.sum(batch.weight) for batch in problem.batches), jnp.zeros(()))
        lapse = jnp.where(learn, (lapsed + a - 1.0) / (n_sets + a + b - 2.0), jnp.asarray(lapse))
    after = State(prior, factor, sites, lapse, adam, rho, rate, objective)
    return after, Trace(bound, objective, residual, rho)


@partial(program, static="settings")
def run_block(
    state: State, schedule: tuple, problem: Problem, normals: tuple, settings: Settings
) -> tuple[State, Trace]:
    """Make the steps of a schedule."""
    return jax.lax.scan(lambda s, x: _step(s, x, problem, normals, settings), state, schedule)


def _schedule(weights: np.ndarray, learn: bool, steady: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(weights)
    return np.asarray(weights, float), np.full(n, learn), np.full(n, steady)


_first_sites = program(target_sites)


def fit_dense(
    prior: UtilityPrior,
    problem: Problem,
    *,
    seed: int,
    n_starts: int,
    max_iter: int,
    tol: float,
    clock: Clock,
    settings: Settings,
    lapse: float = 0.0,
    warm: tuple[Array, Array] | None = None,
    grown: Sequence[Start] = (),
    report: Report | None = None,
    n_jobs: int = 1,
) -> Fit:
    """Fit by annealed starts and one long run.

    Parameters
    ----------
    prior : UtilityPrior
        Where the hyperparameters start.
    problem : Problem
    seed : int
    n_starts : int
        Annealed starts to compare.
    max_iter : int
        Most steps of one run, annealing included, rounded up to whole blocks.
    tol : float
        Converged when a block of steps gains less than this many nats, for each 100 nats of the bound.
    clock : Clock
    settings : Settings
    lapse : float
        Lapse rate, or where it starts when it is learned.
    warm : (mean (d, t), covariance (d, t, t)), optional
        Marginals of an earlier model at the problem's objects: start there, without annealing.
    grown : sequence of Start
        Starts to be tried, without annealing, instead of random ones.
    report : callable, optional
        Called as report(phase, step, bound) after every block.
    n_jobs : int
        Threads that run starts side by side.
    """
    normals = jax.tree.map(jnp.asarray, quasi_normals(problem, prior.n_utilities, N_POINTS, seed))
    problem = jax.tree.map(jnp.asarray, problem)
    rate: Any = np.asarray(lapse, float) if lapse > 0 or settings.learn_lapse else None
    traces: list[Trace] = []
    run = _Run(problem, normals, settings, clock, report)
    if warm is not None:
        _, sites, _, _ = _first_sites(*warm, problem, normals, 1.0, rate)
        state = begin(prior, problem, sites, rate)
    elif grown:
        with ThreadPoolExecutor(n_jobs) as pool:
            tried = pool.map(with_settings_of_this_thread(lambda start: _tried(run, start, rate)), grown)
            state, traces = max(tried, key=_quality)
    else:
        state, traces = _best_start(run, prior, seed, n_starts, max_iter, rate, n_jobs)
    fit = run.to_the_end(state, traces, max_iter, tol)
    return fit._replace(n_annealing=0 if warm is not None or grown else min(len(ANNEALING[0]), fit.n_iter))


def _is_healthy(state: State, trace: Trace) -> bool:
    diagonal = np.diagonal(np.asarray(state.factor.root), axis1=1, axis2=2)
    parts = (trace.objective, np.asarray(state.sites.linear), diagonal)
    return all(bool(np.all(np.isfinite(part))) for part in parts)


class _Run:
    """Drives compiled blocks of steps from Python."""

    def __init__(
        self, problem: Problem, normals: tuple, settings: Settings, clock: Clock, report: Report | None
    ) -> None:
        self.problem, self.normals, self.settings = problem, normals, settings
        self.clock, self.report = clock, report

    def block(
        self, state: State, weights: np.ndarray, phase: str, done: int, *, learn: bool, steady: bool
    ) -> tuple[State, Trace]:
        """Make some steps; ones that leave the numbers are tried again, smaller and with more jitter."""
        schedule = _schedule(weights, learn, steady)
        tried = state
        for _ in range(_ATTEMPTS):
            after, trace = run_block(tried, schedule, self.problem, self.normals, self.settings)
            trace = jax.tree.map(np.asarray, trace)
            if _is_healthy(after, trace):
                break
            jitter = np.minimum(100.0 * np.asarray(tried.factor.jitter), LAST_JITTER)
            factor = _factorise_prior(tried.prior, self.problem, jitter)
            tried = tried._replace(rho=0.25 * tried.rho, rate=0.25 * tried.rate, factor=factor)
        else:
            return state, trace
        if self.report is not None:
            self.report(phase, done + len(weights), float(trace.bound[-1]))
        return after, trace

    def to_the_end(self, state: State, traces: list[Trace], max_iter: int, tol: float) -> Fit:
        """Repeat blocks at full weight until a stopping rule holds."""
        done = sum(len(trace.bound) for trace in traces)
        status, message = "stopped", f"the limit of {max_iter} steps"
        while done < max_iter:
            if traces and self.clock.is_up:
                message = f"the time limit of {self.clock.limit:g} s"
                break
            before = traces[-1].objective[-1] if traces else -np.inf
            state, trace = self.block(state, np.ones(BLOCK), "fit", done, learn=True, steady=bool(traces))
            traces.append(trace)
            done += BLOCK
            if not np.all(np.isfinite(trace.objective)):
                message = "no finite step was found; the last good place was kept"
                break
            gained = trace.objective[-1] - before
            small = tol * max(1.0, float(abs(trace.objective[-1])) / 100.0)
            if abs(gained) < small and trace.residual[-1] < 0.05:
                status, message = "converged", f"a block of {BLOCK} steps gained {gained:.2g} nats"
                break
        if not any(np.all(np.isfinite(trace.objective)) for trace in traces):
            status, message = "failed", "the bound was not finite at any step"
        bounds = np.concatenate([trace.bound for trace in traces]) if traces else np.zeros(0)
        return Fit(state.prior, state.factor, state.sites, state.lapse, status, message, done, bounds)


def _best_start(
    run: _Run, prior: UtilityPrior, seed: int, n_starts: int, max_iter: int, lapse: Array | None, n_jobs: int
) -> tuple[State, list[Trace]]:
    """Anneal several starts from several lengthscales, and take the better half further until one is left.

    The first steps after annealing tell little about where a start will end: halving by and by costs few steps and
    is wrong less often than one comparison.
    """

    def attempt(start: int) -> tuple[State, list[Trace]] | None:
        if start and run.clock.is_up:
            return None
        own = scaled(prior, LENGTHSCALES[start % len(LENGTHSCALES)]) if run.settings.learn_prior else prior
        sites = random_start(own, run.problem, np.random.default_rng([seed, start]))
        state, traces = begin(own, run.problem, sites, lapse), []
        annealing = ANNEALING[start % len(ANNEALING)].reshape(-1, BLOCK)
        phases = [*annealing, *[np.ones(BLOCK)] * _TRIAL_BLOCKS]
        for number, weights in enumerate(phases[: -(-max_iter // BLOCK)]):
            free = number >= len(phases) - _TRIAL_BLOCKS
            state, trace = run.block(
                state, weights, f"start {start + 1} of {n_starts}", BLOCK * number, learn=free, steady=free
            )
            traces.append(trace)
            if run.clock.is_up:
                break
        return state, traces

    def further(result: tuple[State, list[Trace]]) -> tuple[State, list[Trace]]:
        state, traces = result[0], list(result[1])
        for _ in range(_TRIAL_BLOCKS):
            state, trace = run.block(
                state, np.ones(BLOCK), "comparing starts", BLOCK * len(traces), learn=True, steady=True
            )
            traces.append(trace)
        return state, traces

    with ThreadPoolExecutor(n_jobs) as pool:
        tried = list(pool.map(with_settings_of_this_thread(attempt), range(n_starts)))
    results = [result for result in tried if result is not None]
    while len(results) > 1:
        results = sorted(results, key=_quality, reverse=True)[: (len(results) + 1) // 2]
        if len(results) > 1 and not run.clock.is_up and BLOCK * len(results[0][1]) < max_iter:
            with ThreadPoolExecutor(n_jobs) as pool:
                results = list(pool.map(with_settings_of_this_thread(further), results))
    return results[0]


def _quality(result: tuple[State, list[Trace]]) -> tuple[int, float]:
    # A start that the clock cut short has a smaller likelihood weight: its bound cannot be compared.
    objective = float(result[1][-1].objective[-1])
    return len(result[1]), objective if np.isfinite(objective) else -np.inf


def _tried(run: _Run, start: Start, lapse: Array | None) -> tuple[State, list[Trace]]:
    """Make the first steps from a given place, at full weight."""
    state, traces = begin(start.prior, run.problem, start.sites, lapse), []
    for number in range(_TRIAL_BLOCKS):
        state, trace = run.block(state, np.ones(BLOCK), "growing", BLOCK * number, learn=True, steady=number > 0)
        traces.append(trace)
        if run.clock.is_up:
            break
    return state, traces
