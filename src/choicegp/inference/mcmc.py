"""The posterior of utilities and hyperparameters by Markov chain Monte Carlo: honest intervals for small problems.

`choicegp.inference.chain` has the steps; here several chains run in parallel, are judged, and become draws
with which predictions are made.  A move of hyperparameters factorises a few matrices of the order of the objects.
Where that takes too long, they are drawn from their Gaussian approximation, and only the utilities are exact.

Chains start around dense fits: a mode that none of these sees, they hardly reach.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import permutations
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve

from choicegp.compute.devices import in_threads
from choicegp.compute.programs import program
from choicegp.inference.chain import (
    BLOCK,
    Chain,
    ChainModel,
    SampledBlock,
    advance,
    first_chain,
    n_together,
    prior_root,
)
from choicegp.inference.coordinates import (
    HyperPosterior,
    hyper_posterior,
    hyperprior_alone,
    prepare_slope,
    whiten,
)
from choicegp.inference.driver import Inferred, Task, Verdict
from choicegp.inference.posterior import Posterior, draws_of
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites, zero_sites
from choicegp.model.prior import HyperPriors, UtilityPrior

N_CHAINS = 4
_MOVES = 8e8  # multiplications that the moves of hyperparameters of one step may take
_MOST_MOVE = 1.5e9  # and one move: beyond, none is made
_LOOKS = (16, 32, 64, 96, 128, 192)  # numbers of blocks after which chains may have mixed
_MOST_PERMUTED = 6  # utilities
_WELL_MIXED = 1.05  # R-hat
_FEWEST_JUDGED = 4  # draws of a chain, below which R-hat is not defined
MORE = "make more draws, by MCMC(n_draws=...) or max_iter with inference='mcmc'"
MOST_SETTINGS = 32
"""Settings of the hyperparameters that predictions use, taken evenly from all chains; a power of two."""


class Kept(NamedTuple):
    """Draws at one setting of the hyperparameters."""

    log_hyper: np.ndarray  # (n,) the parameters of the prior in one row
    dual: np.ndarray  # (S, p, t)
    utilities: np.ndarray  # (S, d, t)


class MCMCState(NamedTuple):
    """The chains, the steps that they have behind them, and what is kept of them so far."""

    chains: tuple[Chain, ...]
    n_warmed: int = 0
    blocks: tuple[tuple[SampledBlock, ...], ...] = ()  # one entry per block, of all chains
    n_divergent: int = 0

    @property
    def n_draws(self) -> int:
        """Draws of each chain after the warm-up."""
        return BLOCK * len(self.blocks)


class MCMCInference:
    """Sample the utilities of the shown objects and the hyperparameters.

    The posterior of ``before`` gives coordinates and starting points.  Where the time is up during the warm-up, the
    steps are those that are known by then, and one block is made all the same: the result says that it is not
    complete.  With ``until_mixed``, the draws end before ``task.max_iter`` where the chains have mixed by then.  The
    chains start around the fits of ``modes`` in turn, by default all around ``before``; each fit has one at least.
    """

    def __init__(
        self, task: Task, before: Inferred, n_warm_up: int, target_acceptance: float, *, until_mixed: bool = False,
        modes: Sequence[Inferred] = (),
    ) -> None:  # fmt: skip
        self.task, self.before, self.n_warm_up, self.until_mixed = task, before, n_warm_up, until_mixed
        self.hyperpriors = task.learning.hyperpriors if task.learning.learn_prior else None
        fits = modes or [before]
        made = {id(one): _chain_model(task, one, self.hyperpriors, target_acceptance) for one in fits}
        self.models = tuple(made[id(one)] for one in fits)
        self.n_chains = max(N_CHAINS, len(self.models))
        n_learned = self.model.approximation.n_learned
        self.n_moves = _n_moves(n_learned, before.posterior.prior.n_parts, len(task.problem.valid))
        self.redraws = n_learned > 0 and self.n_moves == 0

    @property
    def model(self) -> ChainModel:
        """What the first chain samples, in its coordinates."""
        return self.models[0]

    def model_of(self, number: int) -> ChainModel:
        """Return what a chain samples: the same posterior in coordinates of its own."""
        return self.models[number % len(self.models)]

    def of_length(self, n_draws: int, n_warm_up: int) -> "MCMCInference":
        """Return the same inference with other numbers of steps."""
        other = copy(self)
        other.task, other.n_warm_up = self.task._replace(max_iter=n_draws), n_warm_up
        return other

    def begin(self) -> MCMCState:
        """Draw the first positions."""
        self.task.watch.report("warming up", 0, float("nan"))
        shape = (self.before.posterior.prior.n_parts, len(self.task.problem.valid))
        seeds = [[self.task.seed, number] for number in range(self.n_chains)]
        n_learned = self.model.approximation.n_learned
        return MCMCState(tuple(first_chain(np.random.default_rng(seed), shape, n_learned) for seed in seeds))

    def step(self, state: MCMCState) -> MCMCState:
        """Make a block of steps of all chains: of the warm-up, as long as that lasts and there is time, or of draws."""
        is_warm = state.n_warmed >= self.n_warm_up or self.task.watch.is_up
        made = state.n_warmed if not is_warm else self.n_warm_up + state.n_draws
        n_steps = BLOCK if is_warm else min(BLOCK, self.n_warm_up - state.n_warmed)
        chains, blocks = self._advanced(self._redrawn(state), made, n_steps, self.n_moves, adapt=not is_warm)
        density = float(np.mean([block.log_density for block in blocks]))
        self.task.watch.report("sampling" if is_warm else "warming up", made + n_steps, density)
        if not is_warm:
            return state._replace(chains=chains, n_warmed=state.n_warmed + n_steps)
        n_divergent = state.n_divergent + sum(int(block.divergent) for block in blocks)
        return MCMCState(chains, state.n_warmed, (*state.blocks, blocks), n_divergent)

    def _redrawn(self, state: MCMCState) -> tuple[Chain, ...]:
        """Where a move of the hyperparameters is too costly, draw them from their approximation between two blocks."""
        if not self.redraws:
            return state.chains
        rng = np.random.default_rng([self.task.seed, 9, state.n_warmed, len(state.blocks)])
        fresh: Any = [rng.normal(size=chain.hyper.shape) for chain in state.chains]
        return tuple(chain._replace(hyper=hyper) for chain, hyper in zip(state.chains, fresh, strict=True))

    def _advanced(
        self, chains: Sequence[Chain], first: int, n_steps: int, n_moves: int, *, adapt: bool
    ) -> tuple[tuple[Chain, ...], tuple[SampledBlock, ...]]:
        """Make steps of chains, in parallel threads."""
        counts = tuple(np.asarray(count, np.int32) for count in (first, n_steps, n_moves))

        def one(number: int) -> tuple[Chain, SampledBlock]:
            # A seed may be larger than JAX's keys take.
            seed = int(np.random.SeedSequence(self.task.seed).generate_state(1)[0])
            key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), number))
            made = advance(chains[number], key, *counts, np.asarray(adapt), self.model_of(number), self.hyperpriors)
            return jax.tree.map(np.asarray, made)

        made = in_threads(one, range(len(chains)), min(self.task.n_jobs, self.n_chains))
        return tuple(chain for chain, _ in made), tuple(block for _, block in made)

    def verdict(self, state: MCMCState) -> Verdict | None:
        """Stop when all draws are made or the chains have mixed, or at the time limit; say how well they have mixed."""
        complete = state.n_draws >= self.task.max_iter
        ended = complete or (len(state.blocks) > 0 and self.task.watch.is_up)
        looks = self.until_mixed and len(state.blocks) in _LOOKS
        if not (ended or looks):
            return None
        complete |= looks and not self.task.watch.is_up
        verdict = judged(self._utilities(state), state.n_divergent, complete and state.n_warmed >= self.n_warm_up)
        return verdict if ended or verdict.status == "converged" else None

    def _utilities(self, state: MCMCState) -> np.ndarray:
        """Return the utilities of the chains' draws, (c, n, d, t), in the posterior's order."""
        n = self.task.problem.n_objects
        return np.array([
            np.concatenate([_in_order(block.utilities[..., :n], self.before.posterior) for block in chain])
            for chain in zip(*state.blocks, strict=True)
        ])  # fmt: skip

    def conclude(self, state: MCMCState, verdict: Verdict) -> Inferred:
        """Turn draws into a posterior: settings from all chains, evenly, each with draws of its own.

        These come from more steps with the hyperparameters held; where the time is up, each setting has the one draw
        of its step.
        """
        n_blocks = len(state.blocks)
        n = min(MOST_SETTINGS // self.n_chains, 1 << (n_blocks.bit_length() - 1))
        settings: list[Kept] = []
        in_time = not self.task.watch.is_up
        for number, place in enumerate(np.arange(1, n + 1) * n_blocks // n - 1):
            ends = state.blocks[place]
            chains = [
                chain._replace(position=end.positions[-1], hyper=end.hyper[-1])
                for chain, end in zip(state.chains, ends, strict=True)
            ]
            if in_time:
                first = self.n_warm_up + state.n_draws + number * BLOCK
                ends = self._advanced(chains, first, BLOCK, 0, adapt=False)[1]
            for own, (chain, end) in enumerate(zip(chains, ends, strict=True)):
                positions = end.positions if in_time else end.positions[-1:]
                settings.append(duals_at(chain.hyper, positions, self.model_of(own)))
        posterior = posterior_of_settings(self.before.posterior, settings)
        return self.before._replace(posterior=posterior, status=verdict.status, message=verdict.message)


def _chain_model(task: Task, before: Inferred, hyperpriors: HyperPriors | None, target_acceptance: float) -> ChainModel:
    """Return what chains sample, in the coordinates that a dense fit gives."""
    assert before.sites is not None
    approximation = hyper_posterior(before.posterior.prior, before.sites, task.problem, hyperpriors)
    return _model_at(approximation, before.sites, task.problem, before.posterior.lapse, target_acceptance)


def _model_at(
    approximation: HyperPosterior, sites: Sites, problem: Problem, lapse: Any, target_acceptance: float
) -> ChainModel:
    target, rate = np.asarray(target_acceptance, float), None if lapse is None else np.asarray(lapse, float)
    shifts = approximation.shifts(problem.objects)
    return ChainModel(approximation, shifts, jax.tree.map(np.asarray, sites), problem, rate, target)  # type: ignore[arg-type]


def programs_of_chains(task: Task) -> Iterator[Callable[[], None]]:
    """Yield what compiles the programs of chains and of what comes before and after them, the longest first.

    They depend on the shapes of the task alone: neither the sites nor the hyperparameters of the fit are known yet.
    """
    prior, problem = task.prior, task.problem
    hyperpriors = task.learning.hyperpriors if task.learning.learn_prior else None
    shape = (prior.n_parts, len(problem.valid))
    sites: Any = jax.tree.map(np.asarray, zero_sites(prior.n_utilities, shape[1]))
    model = _model_at(hyperprior_alone(prior, problem, hyperpriors), sites, problem, task.rate, 0.0)
    chain = first_chain(np.random.default_rng(0), shape, model.approximation.n_learned)
    count, key = np.asarray(0, np.int32), jax.random.key_data(jax.random.key(0))
    yield lambda: advance.prepare(chain, key, count, count, count, np.asarray(False), model, hyperpriors)
    yield lambda: prepare_slope(prior, sites, problem, hyperpriors)
    without_sets = model._replace(problem=problem._replace(batches=()))
    yield lambda: _duals.prepare(chain.hyper, np.zeros((BLOCK, *shape)), without_sets)


def posterior_of_settings(posterior: Posterior, settings: list[Kept]) -> Posterior:
    """Replace the draws of a posterior by draws at some settings, each with its utilities in the posterior's order."""
    _, restore = ravel_pytree(posterior.prior)
    ordered = [_aligned(restore(jnp.asarray(one.log_hyper)), one, posterior) for one in settings]
    priors = jax.tree.map(lambda *leaves: np.stack(leaves), *(prior for prior, _ in ordered))
    draws = draws_of(priors, posterior.objects, np.array([dual for _, dual in ordered]))
    return eqx.tree_at(lambda old: old.draws, posterior, draws, is_leaf=lambda part: part is None)


def _aligned(prior: UtilityPrior, kept: Kept, posterior: Posterior) -> tuple[UtilityPrior, np.ndarray]:
    """Undo label switching: give a setting's utilities the order nearest to the posterior's means."""
    rows = _order(kept.utilities.mean(axis=0), posterior) + prior.shared
    rows = np.concatenate([[0], rows]) if prior.shared else rows
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], prior), kept.dual[:, rows]


def _in_order(utilities: np.ndarray, posterior: Posterior) -> np.ndarray:
    """Give the utilities (n, d, t) of a block the order nearest to the posterior's means."""
    return utilities[:, _order(utilities.mean(axis=0), posterior)]


def _order(utilities: np.ndarray, posterior: Posterior) -> np.ndarray:
    """Return the order of utilities (d, t) that is nearest to the posterior's means."""
    d = posterior.n_utilities
    if d == 1 or d > _MOST_PERMUTED:
        return np.arange(d)
    ours, theirs = (part - part.mean(axis=1, keepdims=True) for part in (utilities, np.asarray(posterior.mean)))
    likeness = ours @ theirs.T
    return np.array(max(permutations(range(d)), key=lambda order: sum(likeness[order[i], i] for i in range(d))))


def _n_moves(n_learned: int, n_parts: int, n_objects: int) -> int:
    """Return how many moves of hyperparameters a step has: every one moves about once, unless a move is costly."""
    cost = 12.0 * n_parts * n_objects**3 + 1e6
    if n_learned == 0 or cost > _MOST_MOVE:
        return 0
    return int(np.clip(_MOVES / cost, 1, n_together(n_learned)))


def duals_at(hyper: np.ndarray | Array, positions: np.ndarray | Array, model: ChainModel) -> Kept:
    """Turn coordinates (n, p, t) at one setting of the hyperparameters into draws, without the padding."""
    without_sets = model._replace(problem=model.problem._replace(batches=()))  # one program, whatever the sets are
    log_hyper, dual, utilities = map(np.asarray, _duals(hyper, positions, without_sets))
    n = model.problem.n_objects
    return Kept(log_hyper, dual[..., :n], utilities[..., :n])


@program
def _duals(hyper: Array, positions: Array, model: ChainModel) -> tuple[Array, Array, Array]:
    """Return the parameters of the prior, and for positions (n, p, t) K^-1 f of the parts and the utilities."""
    prior, root = prior_root(hyper, model)
    whitening = whiten(root, model.sites)
    parts = jax.vmap(whitening.parts)(positions)
    dual = jax.lax.map(lambda args: cho_solve((args[0], True), args[1].T).T, (root, jnp.swapaxes(parts, 0, 1)))
    return ravel_pytree(prior)[0], jnp.swapaxes(dual, 0, 1), jax.vmap(prior.total)(parts)


def judged(utilities: np.ndarray, n_divergent: int, complete: bool) -> Verdict:
    """Say how far draws (c, n, d, t) can be trusted, by R-hat and by the effective number of draws."""
    from arviz_stats.base import array_stats

    n_chains, n_draws, d, t = utilities.shape
    # Choices do not say where zero is: differences to the mean of all objects count.
    utilities = utilities - utilities.mean(axis=3, keepdims=True)
    flat = np.moveaxis(utilities.reshape(n_chains, n_draws, d * t), 2, 0)
    if n_draws < _FEWEST_JUDGED:
        return Verdict("stopped", f"{n_chains * n_draws} draws are too few to see whether the chains mix: {MORE}")
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that never move have an R-hat without bound
        rhat = float(np.nanmax(array_stats.rhat(flat, chain_axis=1, draw_axis=2)))
        effective = float(np.nanmin(array_stats.ess(flat, chain_axis=1, draw_axis=2)))
    text = f"{n_chains * n_draws} draws, R-hat at most {rhat:.3f}, effective number of draws at least {effective:.0f}"
    if n_divergent:
        text += f", {n_divergent} divergent"
    if not complete:
        text += "; the time limit ended it early"
    mixed = rhat < _WELL_MIXED and effective > 100
    if not mixed:
        text += "; the chains have not mixed: " + MORE
    return Verdict("converged" if mixed and complete else "stopped", text)
