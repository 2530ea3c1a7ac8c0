"""The posterior of the utilities by Markov chain Monte Carlo: slow, and right; a yardstick for the fast ones.

Hyperparameters come from a dense fit.  The utilities are sampled by the no-U-turn sampler (BlackJAX, with its window
adaptation) in the coordinates in which the Gaussian posterior is standard normal, where few steps go a long way.  All
chains start around that posterior: a mode that it does not see, they hardly reach.
"""

from itertools import permutations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.driver import Inferred, Task, Verdict
from choicegp.inference.posterior import Posterior, posterior_of_draws
from choicegp.inference.problem import Problem
from choicegp.inference.whitening import Whitening, log_posterior, whiten

N_CHAINS = 4
BLOCK = 50  # steps of each chain between two looks from Python
# Stages of steps.  Those of the warm-up are 0 (the step size is adapted), 1 (scales too) and 2 (the end of a window).
_DRAW, _REST = 3, 4  # nothing is adapted; no step is made
_MOST_DOUBLINGS = 8
_FIRST_STEP = 0.3
_MOST_PERMUTED = 6  # utilities
_WELL_MIXED = 1.05  # R-hat
_FEWEST_JUDGED = 4  # draws of a chain, below which R-hat is not defined
_MORE = "make more draws, by MCMC(n_draws=...) or max_iter with inference='mcmc'"
N_KEPT = 1024  # draws that predictions use, taken evenly from all chains; a power of two


class Chains(NamedTuple):
    """Where the chains stand, and what has been learned about their steps; every array has a leading axis of chains.

    ``tuning`` are the arrays of BlackJAX's states of dual averaging and of running moments, without their classes:
    programs of classes from elsewhere are not kept between processes.
    """

    position: Array
    tuning: tuple[Array, ...]


class MCMCState(NamedTuple):
    """The chains, the warm-up that they have behind them, and the draws (c, n, d, t) that are kept so far."""

    chains: Chains
    n_warmed: int = 0
    kept: tuple[np.ndarray, ...] = ()
    n_divergent: int = 0

    @property
    def n_draws(self) -> int:
        """Kept draws of each chain."""
        return sum(block.shape[1] for block in self.kept)


class MCMCInference:
    """Sample the utilities of the shown objects.

    The Gaussian posterior of ``before`` gives hyperparameters, coordinates and starting points.  Where the time is up
    during the warm-up, the steps are those that are known by then, and one block of draws is kept all the same: the
    result says that it is not complete.
    """

    def __init__(self, task: Task, before: Inferred, n_warm_up: int, target_acceptance: float) -> None:
        self.task, self.before, self.n_warm_up = task, before, n_warm_up
        self.posterior, self.whitening = before.posterior, whiten(before.posterior)
        self.stages = _schedule(n_warm_up)
        lapse = before.posterior.lapse
        rate = None if lapse is None else np.asarray(lapse, float)
        self.fixed = np.asarray(target_acceptance, float), self.whitening, task.problem, rate

    def begin(self) -> MCMCState:
        """Draw the first positions."""
        shape = (N_CHAINS, *self.whitening.centre.shape)
        start = 1.2 * np.random.default_rng(self.task.seed).normal(size=shape)
        self.task.watch.report("warming up", 0, float("nan"))
        return MCMCState(Chains(start.reshape(N_CHAINS, -1), _first_tuning(start[0].size)))  # type: ignore[arg-type]

    def step(self, state: MCMCState) -> MCMCState:
        """Make a block of steps of all chains: of the warm-up, as long as that lasts and there is time, or of draws."""
        if state.n_warmed < self.n_warm_up and not self.task.watch.is_up:
            return self._warmed(state)
        n_new = min(BLOCK, self.task.max_iter - state.n_draws)
        key = self._key(1 + len(state.kept))
        chains, moves, divergent, logdensity = _advance(state.chains, *_block([_DRAW] * n_new), key, *self.fixed)
        moves = np.asarray(moves)[:, :n_new]
        latent = self.whitening.centre + np.einsum("dij,cndj->cndi", self.whitening.spread, moves)
        kept = np.einsum("dij,cndj->cndi", self.whitening.root, latent)
        made = self.n_warm_up + state.n_draws + n_new
        self.task.watch.report("sampling", made, float(np.mean(np.asarray(logdensity))))
        n_divergent = state.n_divergent + int(np.sum(np.asarray(divergent)[:, :n_new]))
        return MCMCState(chains, state.n_warmed, (*state.kept, kept), n_divergent)

    def _warmed(self, state: MCMCState) -> MCMCState:
        """Make a block of steps of the warm-up, which the schedule says how to learn from."""
        stages = self.stages[state.n_warmed : state.n_warmed + BLOCK]
        chains, _, _, logdensity = _advance(state.chains, *_block(stages, state.n_warmed), self._key(0), *self.fixed)
        n_warmed = state.n_warmed + len(stages)
        self.task.watch.report("warming up", n_warmed, float(np.mean(np.asarray(logdensity))))
        return state._replace(chains=chains, n_warmed=n_warmed)

    def _key(self, number: int) -> Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.key(self.task.seed), number))

    def verdict(self, state: MCMCState) -> Verdict | None:
        """Stop when all draws are made, or at the time limit; say how well the chains have mixed."""
        complete = state.n_draws >= self.task.max_iter
        if not complete and not (state.kept and self.task.watch.is_up):
            return None
        return judged(self._draws(state), state.n_divergent, complete and state.n_warmed >= self.n_warm_up)

    def _draws(self, state: MCMCState) -> np.ndarray:
        return align(np.concatenate(state.kept, axis=1), self.posterior)

    def conclude(self, state: MCMCState, verdict: Verdict) -> Inferred:
        """Turn draws into a posterior: their moments, and the draws themselves, thinned, for what is not Gaussian."""
        drawn = self._draws(state)
        u = drawn.reshape(-1, *drawn.shape[2:])
        mean = u.mean(axis=0)
        centred = u - mean
        covariance = np.einsum("sdi,sdj->dij", centred, centred) / len(u)
        kept = u[np.linspace(0, len(u) - 1, N_KEPT).astype(int)]
        posterior = posterior_of_draws(self.posterior, kept, mean, covariance)
        return self.before._replace(posterior=posterior, status=verdict.status, message=verdict.message)


def _schedule(n_warm_up: int) -> np.ndarray:
    """Return the stage of each step of the warm-up, by BlackJAX's windows."""
    from blackjax.adaptation.window_adaptation import build_schedule

    windows = np.asarray(build_schedule(n_warm_up), int).reshape(-1, 2)
    return windows.sum(axis=1)  # each is whether scales are adapted, and whether a window ends


def _block(stages: Any, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the stages of a block, filled up by steps that are not made, and the numbers of its steps."""
    padded = np.pad(np.asarray(stages, np.int32), (0, BLOCK - len(stages)), constant_values=_REST)
    return padded, (first + np.arange(BLOCK)).astype(np.uint32)


def _tuner(target: Any) -> tuple[Any, Any]:
    """Return BlackJAX's functions of dual averaging (step sizes) and of running moments (scales)."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target), mass_matrix_adaptation(True)


def _first_tuning(size: int) -> tuple[np.ndarray, ...]:
    """Return what is known before the warm-up, once for each chain."""
    (begin_steps, *_), (begin_scales, *_) = _tuner(0.0)
    leaves = map(np.asarray, jax.tree.leaves((begin_steps(_FIRST_STEP), begin_scales(size))))
    return tuple(np.repeat(leaf[None], N_CHAINS, axis=0) for leaf in leaves)


def _tuning(chains: Chains) -> tuple[Any, Any]:
    """Return BlackJAX's states of dual averaging and of running moments."""
    (begin_steps, *_), (begin_scales, *_) = _tuner(0.0)
    return jax.tree.unflatten(jax.tree.structure((begin_steps(1.0), begin_scales(1))), chains.tuning)


def _learned(stage: Array, tuning: Any, position: Array, acceptance: Array, target: Array) -> Any:
    """Learn from one step of the warm-up, as its stage says; from a draw nothing is learned."""
    (begin_steps, next_steps, end_steps), (_, next_scales, end_scales) = _tuner(target)
    steps, scales = tuning

    def step_size() -> Any:
        return next_steps(steps, acceptance), scales

    def both() -> Any:
        return next_steps(steps, acceptance), next_scales(scales, position)

    def end_of_window() -> Any:
        last_steps, last_scales = both()
        return begin_steps(end_steps(last_steps)), end_scales(last_scales)

    return jax.lax.switch(stage, (step_size, both, end_of_window, lambda: tuning))


def _common(tuning: Any) -> tuple[Array, Array]:
    """Return the average of step sizes and scales: chains with equal steps do not wait for each other."""
    steps, scales = tuning
    # Where a window has just ended, there is no average of step sizes yet.
    log_step = jnp.where(steps.step > 1, steps.log_step_size_avg, steps.log_step_size)
    return jnp.exp(log_step.mean()), scales.inverse_mass_matrix.mean(axis=0)


@program
def _advance(
    chains: Chains, stages: Array, numbers: Array, key_data: Array, target: Array, whitening: Whitening,
    problem: Problem, lapse: Array | None,
) -> tuple[Chains, Array, Array, Array]:  # fmt: skip
    """Make a block of steps of all chains: chains, positions (c, n, d, t), divergences (c, n), log densities (c,)."""
    from blackjax.mcmc import hmc, nuts

    shape = whitening.centre.shape
    kernel = nuts.build_kernel()
    n_steps = jnp.sum(stages != _REST)
    is_drawing, common = stages[0] == _DRAW, _common(_tuning(chains))

    def density(w: Array) -> Array:
        return log_posterior(w.reshape(shape), whitening, problem, lapse)[0]

    def one_chain(position: Array, tuning: Any, key: Array) -> tuple[Any, Any, Array, Array]:
        def step(i: Array, carry: tuple) -> tuple:
            state, tuning, positions, divergent = carry
            own = jnp.exp(tuning[0].log_step_size), tuning[1].inverse_mass_matrix
            step_size, scales = (jnp.where(is_drawing, ours, mine) for ours, mine in zip(common, own, strict=True))
            key_here = jax.random.fold_in(key, numbers[i])
            state, info = kernel(key_here, state, density, step_size, scales, _MOST_DOUBLINGS)
            tuning = _learned(stages[i], tuning, state.position, info.acceptance_rate, target)
            return state, tuning, positions.at[i].set(state.position), divergent.at[i].set(info.is_divergent)

        first = hmc.init(position, density), tuning
        made = jnp.zeros((BLOCK, *position.shape), position.dtype), jnp.zeros(BLOCK, bool)
        return jax.lax.fori_loop(0, n_steps, step, (*first, *made))

    keys = jax.random.split(jax.random.wrap_key_data(key_data), len(chains.position))
    last, tuning, positions, divergent = jax.vmap(one_chain)(chains.position, _tuning(chains), keys)
    positions = positions.reshape(*positions.shape[:2], *shape)
    return Chains(last.position, tuple(jax.tree.leaves(tuning))), positions, divergent, last.logdensity


def align(utilities: np.ndarray, posterior: Posterior) -> np.ndarray:
    """Undo label switching: give each draw (c, n, d, t) the order of utilities nearest to the posterior's means.

    Utilities with different hyperparameters are distinguished by them; where all have the same, their order means
    nothing, and a chain may change it on its way.
    """
    d = utilities.shape[2]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.prior)]
    if d == 1 or d > _MOST_PERMUTED or not all(np.allclose(leaf, leaf[:1]) for leaf in leaves):
        return utilities
    orders = np.array(list(permutations(range(d))))
    likeness = np.einsum("cnit,jt->cnij", utilities, np.asarray(posterior.mean))
    totals = sum(likeness[:, :, orders[:, i], i] for i in range(d))
    best = orders[np.argmax(totals, axis=-1)]
    return np.take_along_axis(utilities, best[..., None], axis=2)


def judged(utilities: np.ndarray, n_divergent: int, complete: bool) -> Verdict:
    """Say how far draws (c, n, d, t) can be trusted, by R-hat and by the effective number of draws."""
    from arviz_stats.base import array_stats

    n_chains, n_draws, d, t = utilities.shape
    flat = np.moveaxis(utilities.reshape(n_chains, n_draws, d * t), 2, 0)
    if n_draws < _FEWEST_JUDGED:
        return Verdict("stopped", f"{n_chains * n_draws} draws are too few to see whether the chains mix: {_MORE}")
    rhat = float(np.nanmax(array_stats.rhat(flat, chain_axis=1, draw_axis=2)))
    effective = float(np.nanmin(array_stats.ess(flat, chain_axis=1, draw_axis=2)))
    text = f"{n_chains * n_draws} draws, R-hat at most {rhat:.3f}, effective number of draws at least {effective:.0f}"
    if n_divergent:
        text += f", {n_divergent} divergent"
    if not complete:
        text += "; the time limit ended it early"
    mixed = rhat < _WELL_MIXED and effective > 100
    if not mixed:
        text += "; the chains have not mixed: " + _MORE
    return Verdict("converged" if mixed and complete else "stopped", text)
