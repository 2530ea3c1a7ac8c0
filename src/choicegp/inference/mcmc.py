"""The posterior of the utilities by Markov chain Monte Carlo: slow, and right; a yardstick for the fast ones.

Hyperparameters come from a dense fit.  The utilities are sampled by the no-U-turn sampler (BlackJAX, with its window
adaptation) in the coordinates in which the Gaussian posterior is standard normal, where few steps go a long way.  All
chains start around that posterior: a mode that it does not see, they hardly reach.
"""

from functools import partial
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
BLOCK = 50  # draws of each chain between two looks from Python
_MOST_DOUBLINGS = 8
_FIRST_STEP = 0.3
_MOST_PERMUTED = 6  # utilities
_WELL_MIXED = 1.05  # R-hat
N_KEPT = 1024  # draws that predictions use, taken evenly from all chains; a power of two


class Chains(NamedTuple):
    """Where the chains stand (these have a leading axis of chains), and how far the steps of all of them go."""

    position: Array
    logdensity: Array
    logdensity_grad: Array
    step_size: Array
    inverse_mass: Array


class MCMCState(NamedTuple):
    """The chains, the draws (c, n, d, t) that are kept so far, and how many of them diverged."""

    chains: Chains
    kept: tuple[np.ndarray, ...] = ()
    n_divergent: int = 0

    @property
    def n_draws(self) -> int:
        """Kept draws of each chain."""
        return BLOCK * len(self.kept)


class MCMCInference:
    """Sample the utilities of the shown objects.

    The Gaussian posterior of ``before`` gives hyperparameters, coordinates and starting points.  The number of kept
    draws is rounded up to whole blocks.  Where the time is up before the first draw, nothing is adapted and one block
    is kept all the same: the result says that it is not complete.  The adaptation itself is not interrupted.
    """

    def __init__(self, task: Task, before: Inferred, n_warm_up: int, target_acceptance: float) -> None:
        self.task, self.before, self.n_warm_up, self.target = task, before, n_warm_up, target_acceptance
        self.posterior, self.whitening = before.posterior, whiten(before.posterior)
        lapse = before.posterior.lapse
        self.fixed = self.whitening, task.problem, None if lapse is None else np.asarray(lapse, float)

    def begin(self) -> MCMCState:
        """Draw the first positions, and adapt step sizes and scales."""
        shape = (N_CHAINS, *self.whitening.centre.shape)
        start = 1.2 * np.random.default_rng(self.task.seed).normal(size=shape)
        n_warm_up = 0 if self.task.watch.is_up else self.n_warm_up
        aim = np.asarray(self.target, float)
        self.task.watch.report("warming up", 0, float("nan"))
        return MCMCState(_warmed_up(start, self._key(0), aim, *self.fixed, n_warm_up))

    def _key(self, number: int) -> Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.key(self.task.seed), number))

    def step(self, state: MCMCState) -> MCMCState:
        """Make a block of draws of all chains."""
        key = self._key(1 + len(state.kept))
        chains, moves, divergent = _advance(state.chains, key, *self.fixed)
        latent = self.whitening.centre + np.einsum("dij,cndj->cndi", self.whitening.spread, np.asarray(moves))
        kept = np.einsum("dij,cndj->cndi", self.whitening.root, latent)
        self.task.watch.report("sampling", state.n_draws + BLOCK, float(np.mean(np.asarray(chains.logdensity))))
        return MCMCState(chains, (*state.kept, kept), state.n_divergent + int(np.sum(divergent)))

    def verdict(self, state: MCMCState) -> Verdict | None:
        """Stop when all draws are made, or at the time limit; say how well the chains have mixed."""
        complete = state.n_draws >= self.task.max_iter
        if not complete and not (state.kept and self.task.watch.is_up):
            return None
        return judged(self._draws(state), state.n_divergent, complete)

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


@partial(program, static="n_warm_up")
def _warmed_up(
    start: Array, key_data: Array, target: Array, whitening: Whitening, problem: Problem, lapse: Array | None,
    n_warm_up: int,
) -> Chains:  # fmt: skip
    """Adapt every chain, and then take the average: chains with equal steps do not wait for each other."""
    import blackjax

    flat = start.reshape(len(start), -1)

    def density(w: Array) -> Array:
        return log_posterior(w.reshape(start.shape[1:]), whitening, problem, lapse)[0]

    if n_warm_up == 0:
        return Chains(
            flat, *jax.vmap(jax.value_and_grad(density))(flat), jnp.asarray(_FIRST_STEP), jnp.ones_like(flat[0])
        )
    adaptation = blackjax.window_adaptation(
        blackjax.nuts, density, initial_step_size=_FIRST_STEP, target_acceptance_rate=target,
        max_num_doublings=_MOST_DOUBLINGS,
    )  # fmt: skip

    def one_chain(position: Array, key: Array) -> tuple[Any, Array, Array]:
        (last, found), _ = adaptation.run(key, position, n_warm_up)
        return last[:3], jnp.log(found["step_size"]), found["inverse_mass_matrix"]

    keys = jax.random.split(jax.random.wrap_key_data(key_data), len(start))
    last, log_step, inverse_mass = jax.vmap(one_chain)(flat, keys)
    position, logdensity, gradient = last
    return Chains(position, logdensity, gradient, jnp.exp(log_step.mean()), inverse_mass.mean(axis=0))


@program
def _advance(
    chains: Chains, key_data: Array, whitening: Whitening, problem: Problem, lapse: Array | None
) -> tuple[Chains, Array, Array]:
    """Make a block of draws of all chains: chains, positions (c, n, d, t), divergences (c, n)."""
    from blackjax.mcmc import hmc, nuts

    shape = whitening.centre.shape
    kernel = nuts.build_kernel()

    def density(w: Array) -> Array:
        return log_posterior(w.reshape(shape), whitening, problem, lapse)[0]

    def step(state: Any, key: Array) -> tuple[Any, Any]:
        state, info = kernel(key, state, density, chains.step_size, chains.inverse_mass, _MOST_DOUBLINGS)
        return state, (state.position.reshape(shape), info.is_divergent)

    def one_chain(chain: tuple, key: Array) -> tuple[Any, Any]:
        return jax.lax.scan(step, hmc.HMCState(*chain), jax.random.split(key, BLOCK))

    keys = jax.random.split(jax.random.wrap_key_data(key_data), len(chains.position))
    last, (positions, divergent) = jax.vmap(one_chain)(chains[:3], keys)
    position, logdensity, gradient = last[:3]
    return chains._replace(position=position, logdensity=logdensity, logdensity_grad=gradient), positions, divergent


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
    rhat = float(np.nanmax(array_stats.rhat(flat, chain_axis=1, draw_axis=2)))
    effective = float(np.nanmin(array_stats.ess(flat, chain_axis=1, draw_axis=2)))
    text = f"{n_chains * n_draws} draws, R-hat at most {rhat:.3f}, effective number of draws at least {effective:.0f}"
    if n_divergent:
        text += f", {n_divergent} divergent"
    if not complete:
        text += "; the time limit ended it early"
    mixed = rhat < _WELL_MIXED and effective > 100
    if not mixed:
        text += "; the chains have not mixed: make more draws (max_iter)"
    return Verdict("converged" if mixed and complete else "stopped", text)
