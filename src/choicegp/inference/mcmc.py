"""The posterior of the utilities by Markov chain Monte Carlo: slow, and right; a yardstick for the fast ones.

Hyperparameters are those of a variational fit.  The utilities are sampled by the no-U-turn sampler (BlackJAX) in
the coordinates in which the variational posterior is standard normal, where few steps go a long way.  All chains
start around that posterior: a mode that it does not see, they hardly reach.
"""

from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.compute.progress import Clock, Report
from choicegp.inference.posterior import Posterior, posterior_of_draws
from choicegp.inference.problem import Problem
from choicegp.inference.whitening import Whitening, log_posterior, whiten

N_CHAINS = 4
BLOCK = 50  # draws of each chain between two looks from Python
_WARM_UP_BLOCKS = 8
_MOST_DOUBLINGS = 8
_AIM = 0.8  # acceptance rate
_MOST_PERMUTED = 6  # utilities
_WELL_MIXED = 1.05  # R-hat
N_KEPT = 1024  # draws that predictions use, taken evenly from all chains; a power of two


class Sampling(NamedTuple):
    """Draws of the utilities, and how far they can be trusted.

    Attributes
    ----------
    utilities : ndarray (chains, draws, d, t)
    rhat : float
        Largest R-hat of all utilities of all objects.
    effective : float
        Smallest effective number of draws.
    n_divergent : int
    complete : bool
        Whether all draws that were asked for were made before the time was up.
    """

    utilities: np.ndarray
    rhat: float
    effective: float
    n_divergent: int
    complete: bool


class _Chains(NamedTuple):
    """Where the chains stand; everything has a leading axis of chains."""

    position: Array
    logdensity: Array
    logdensity_grad: Array


def sample(
    posterior: Posterior,
    problem: Problem,
    *,
    n_draws: int,
    seed: int,
    clock: Clock,
    report: Report | None = None,
) -> Sampling:
    """Sample the utilities of the shown objects at the posterior's own hyperparameters.

    Parameters
    ----------
    posterior : Posterior
        A Gaussian approximation: it gives hyperparameters, coordinates and starting points.
    problem : Problem
    n_draws : int
        Kept draws of each of four chains, rounded up to whole blocks.
    seed : int
    clock : Clock
    report : callable, optional
        Called as report(phase, draws made, log posterior).
    """
    whitening = whiten(posterior)
    shape = whitening.centre.shape
    key = jax.random.key(seed)
    start = 1.2 * np.random.default_rng(seed).normal(size=(N_CHAINS, *shape))
    lapse = None if posterior.lapse is None else np.asarray(posterior.lapse, float)
    chains = _begin(start, whitening, problem, lapse)
    size, scale = np.asarray(0.3), np.ones(shape)
    kept: list[np.ndarray] = []
    n_divergent = 0
    n_blocks = _WARM_UP_BLOCKS + -(-n_draws // BLOCK)
    for number in range(n_blocks):
        # When the time is up while warming, one block is kept all the same: the result says that it is not complete.
        warming = number < _WARM_UP_BLOCKS and not clock.is_up
        key, own = jax.random.split(key)
        chains, moves, accepted, divergent = _advance(
            chains, jax.random.key_data(own), size, scale, whitening, problem, lapse
        )
        moves, rate = np.asarray(moves), float(np.mean(accepted))
        if warming:
            size = np.asarray(np.clip(size * np.exp(2.0 * (rate - _AIM)), 1e-4, 3.0))
            if number == _WARM_UP_BLOCKS // 2:
                # Pull the estimate towards one: a block has few independent draws.
                scale = 0.5 + 0.5 * np.clip(moves.var(axis=(0, 1)), 0.1, 10.0)
        else:
            kept.append(np.einsum("dij,cndj->cndi", whitening.root, _latents(whitening, moves)))
            n_divergent += int(np.sum(divergent))
        if report is not None:
            done = BLOCK * (number - _WARM_UP_BLOCKS + 1)
            level = float(np.mean(np.asarray(chains.logdensity)))
            report("warming up" if warming else "sampling", max(0, done), level)
        if kept and clock.is_up:
            break
    complete = len(kept) == n_blocks - _WARM_UP_BLOCKS
    utilities = align(np.concatenate(kept, axis=1), posterior)
    rhat, effective = _quality(utilities)
    return Sampling(utilities, rhat, effective, n_divergent, complete)


@program
def _begin(start: Array, whitening: Whitening, problem: Problem, lapse: Array | None) -> _Chains:
    value = jax.value_and_grad(lambda w: log_posterior(w, whitening, problem, lapse))
    return _Chains(start, *jax.vmap(value)(start))


@program
def _advance(
    chains: _Chains, key_data: Array, size: Array, scale: Array, whitening: Whitening, problem: Problem,
    lapse: Array | None,
) -> tuple[_Chains, Array, Array, Array]:  # fmt: skip
    """Make a block of draws of all chains: chains, positions (c, n, d, t), acceptance rates and divergences (c, n)."""
    from blackjax.mcmc import hmc, nuts  # type: ignore[import-untyped]

    def density(w: Array) -> Array:
        return log_posterior(w.reshape(scale.shape), whitening, problem, lapse)

    kernel = partial(
        nuts.build_kernel(), logdensity_fn=density, step_size=size, inverse_mass_matrix=scale.ravel(),
        max_num_doublings=_MOST_DOUBLINGS,
    )  # fmt: skip

    def one_chain(chain: _Chains, key: Array) -> tuple[_Chains, Any]:
        flat = hmc.HMCState(chain.position.ravel(), chain.logdensity, chain.logdensity_grad.ravel())

        def step(state: Any, key: Array) -> tuple[Any, Any]:
            state, info = kernel(key, state)
            return state, (state.position.reshape(scale.shape), info.acceptance_rate, info.is_divergent)

        last, kept = jax.lax.scan(step, flat, jax.random.split(key, BLOCK))
        after = _Chains(last.position.reshape(scale.shape), last.logdensity, last.logdensity_grad.reshape(scale.shape))
        return after, kept

    keys = jax.random.split(jax.random.wrap_key_data(key_data), chains.position.shape[0])
    after, (positions, rates, divergent) = jax.vmap(one_chain)(chains, keys)
    return after, positions, rates, divergent


def _latents(whitening: Whitening, w: np.ndarray) -> np.ndarray:
    return whitening.centre + np.einsum("dij,cndj->cndi", whitening.spread, w)


def align(utilities: np.ndarray, posterior: Posterior) -> np.ndarray:
    """Undo label switching: give each draw (c, n, d, t) the order of utilities nearest to the posterior's means.

    Utilities with different hyperparameters are told apart by them; where all have the same, their order means
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


def _quality(utilities: np.ndarray) -> tuple[float, float]:
    from arviz_stats.base import array_stats

    n_chains, n_draws, d, t = utilities.shape
    flat = np.moveaxis(utilities.reshape(n_chains, n_draws, d * t), 2, 0)
    rhat = array_stats.rhat(flat, chain_axis=1, draw_axis=2)
    effective = array_stats.ess(flat, chain_axis=1, draw_axis=2)
    return float(np.nanmax(rhat)), float(np.nanmin(effective))


def message_of(sampling: Sampling) -> tuple[str, str]:
    """Return the status of a sampling, and what is to be known about it, in words."""
    n = sampling.utilities.shape[0] * sampling.utilities.shape[1]
    told = f"{n} draws, R-hat at most {sampling.rhat:.3f}, effective number of draws at least {sampling.effective:.0f}"
    if sampling.n_divergent:
        told += f", {sampling.n_divergent} divergent"
    if not sampling.complete:
        told += "; the time limit ended it early"
    mixed = sampling.rhat < _WELL_MIXED and sampling.effective > 100
    if not mixed:
        told += "; the chains have not mixed: make more draws (max_iter)"
    return "converged" if mixed and sampling.complete else "stopped", told


def posterior_of(sampling: Sampling, posterior: Posterior) -> Posterior:
    """Turn draws into a posterior: their moments, and the draws themselves, thinned, for what is not Gaussian."""
    u = sampling.utilities.reshape(-1, *sampling.utilities.shape[2:])
    mean = u.mean(axis=0)
    centred = u - mean
    covariance = np.einsum("sdi,sdj->dij", centred, centred) / len(u)
    kept = u[np.linspace(0, len(u) - 1, N_KEPT).astype(int)]
    return posterior_of_draws(posterior, kept, mean, covariance)
