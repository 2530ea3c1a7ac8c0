"""The posterior of utilities and hyperparameters by Markov chain Monte Carlo: honest intervals for small problems.

A step of a chain has two halves, both in the coordinates in which the Gaussian posterior of a dense fit is standard
normal whatever the hyperparameters are (`choicegp.inference.whitening`):

- the utilities move by the no-U-turn sampler (BlackJAX), the hyperparameters held: few steps go a long way, and none
  of them factorises a matrix;
- a few hyperparameters at a time move, the coordinates of the utilities held, by a proposal that keeps the Gaussian
  approximation of `choicegp.inference.hyperposterior` (preconditioned Crank-Nicolson) or by a random walk of its
  shape, accepted by the exact density.

Each move of hyperparameters factorises a few matrices of the order of the objects.  Where that takes too long, they are
drawn from the approximation itself, and only the utilities are exact.

All chains start around the dense fit: a mode that it does not see, they hardly reach.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve

from choicegp.compute.programs import program, with_settings_of_this_thread
from choicegp.inference.driver import Inferred, Task, Verdict
from choicegp.inference.hyperposterior import HyperPosterior, hyper_posterior
from choicegp.inference.posterior import FIRST_JITTER, Posterior, draws_of, factorise, prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.inference.whitening import Whitening, log_posterior, whiten
from choicegp.model.prior import HyperPriors, UtilityPrior

N_CHAINS = 4
BLOCK = 16  # steps of a chain between two looks from Python; also draws of the utilities for each kept setting
_THINNING = 8  # steps between two kept settings
_MOST_DOUBLINGS = 7
_FIRST_STEP = 0.3
_TOGETHER = 6  # hyperparameters that move at a time
_MOVES = 8e8  # multiplications that the moves of hyperparameters of one step may take
_MOST_MOVE = 1.5e9  # and one move: beyond, none is made
_FIRST_SHARE = 0.5  # of a proposal that is new
_STRIDE = 2.0  # of a random walk of the hyperparameters, times that share
_TARGET_MOVES = 0.35  # acceptance of moves of the hyperparameters
_MOST_PERMUTED = 6  # utilities
_WELL_MIXED = 1.05  # R-hat
_FEWEST_JUDGED = 4  # draws of a chain, below which R-hat is not defined
MORE = "make more draws, by MCMC(n_draws=...) or max_iter with inference='mcmc'"
MOST_SETTINGS = 32
"""Settings of the hyperparameters that predictions use, taken evenly from all chains; a power of two."""


class Chain(NamedTuple):
    """Where a chain stands, and what has been learned about its steps.

    ``tuning`` are the arrays of BlackJAX's dual averaging, without its class: programs of classes from elsewhere are
    not kept between processes.
    """

    position: Array  # (p, t) w
    hyper: Array  # (n,) q: hyperparameters, standard normal under their Gaussian approximation
    tuning: tuple[Array, ...]
    share: Array  # of a proposal of hyperparameters that is new


class ChainModel(NamedTuple):
    """What a chain samples: it does not change."""

    approximation: HyperPosterior
    sites: Sites
    problem: Problem
    lapse: Array | None
    target: Array  # acceptance rate of the utilities' moves


class SampledBlock(NamedTuple):
    """What a block of steps gives: the coordinates after each step, and how the steps went."""

    positions: Array  # (n, p, t)
    divergent: Array  # number of divergent steps
    log_density: Array


class Kept(NamedTuple):
    """Draws at one setting of the hyperparameters."""

    log_hyper: np.ndarray  # (n,) the parameters of the prior in one row
    dual: np.ndarray  # (S, p, t)
    utilities: np.ndarray  # (S, d, t)


class MCMCState(NamedTuple):
    """The chains, the warm-up that they have behind them, and what is kept of each so far."""

    chains: tuple[Chain, ...]
    n_warmed: int = 0
    kept: tuple[tuple[Kept, ...], ...] = ()  # one entry per setting, of all chains
    n_divergent: int = 0

    @property
    def n_draws(self) -> int:
        """Kept draws of each chain."""
        return BLOCK * len(self.kept)


class MCMCInference:
    """Sample the utilities of the shown objects and the hyperparameters.

    The posterior of ``before`` gives coordinates and starting points.  Where the time is up during the warm-up, the
    steps are those that are known by then, and one setting is kept all the same: the result says that it is not
    complete.
    """

    def __init__(self, task: Task, before: Inferred, n_warm_up: int, target_acceptance: float) -> None:
        assert before.sites is not None
        self.task, self.before, self.n_warm_up = task, before, n_warm_up
        prior, learning = before.posterior.prior, task.learning
        self.hyperpriors = learning.hyperpriors if learning.learn_prior else None
        approximation = hyper_posterior(prior, before.sites, task.problem, self.hyperpriors)
        lapse = before.posterior.lapse
        rate = None if lapse is None else np.asarray(lapse, float)
        sites = jax.tree.map(np.asarray, before.sites)
        self.model = ChainModel(approximation, sites, task.problem, rate, np.asarray(target_acceptance, float))  # type: ignore[arg-type]
        self.n_moves = _n_moves(approximation.n_learned, prior.n_parts, len(task.problem.valid))
        self.redraws = approximation.n_learned > 0 and self.n_moves == 0

    def begin(self) -> MCMCState:
        """Draw the first positions."""
        self.task.watch.report("warming up", 0, float("nan"))
        shape = (self.before.posterior.prior.n_parts, len(self.task.problem.valid))
        n = self.model.approximation.scale.shape[1]
        chains = []
        for number in range(N_CHAINS):
            rng = np.random.default_rng([self.task.seed, number])
            share = np.asarray(_FIRST_SHARE)
            chains.append(Chain(rng.normal(size=shape), rng.normal(size=n), _first_tuning(), share))  # type: ignore[arg-type]
        return MCMCState(tuple(chains))

    def step(self, state: MCMCState) -> MCMCState:
        """Make a block of steps of all chains: of the warm-up, as long as that lasts and there is time, or of draws."""
        if state.n_warmed < self.n_warm_up and not self.task.watch.is_up:
            n_steps = min(BLOCK, self.n_warm_up - state.n_warmed)
            chains, blocks = self._advanced(self._redrawn(state), state.n_warmed, n_steps, self.n_moves, adapt=True)
            n_warmed = state.n_warmed + n_steps
            self._report("warming up", n_warmed, blocks)
            return state._replace(chains=chains, n_warmed=n_warmed)
        made = self.n_warm_up + len(state.kept) * (_THINNING + BLOCK)
        chains = self._redrawn(state)
        if self.model.approximation.n_learned:
            chains, _ = self._advanced(chains, made, _THINNING, self.n_moves, adapt=False)
        chains, blocks = self._advanced(chains, made + _THINNING, BLOCK, 0, adapt=False)
        kept = tuple(
            duals_at(chain.hyper, block.positions, self.model) for chain, block in zip(chains, blocks, strict=True)
        )
        n_divergent = state.n_divergent + sum(int(block.divergent) for block in blocks)
        self._report("sampling", self.n_warm_up + state.n_draws + BLOCK, blocks)
        return MCMCState(chains, state.n_warmed, (*state.kept, kept), n_divergent)

    def _redrawn(self, state: MCMCState) -> tuple[Chain, ...]:
        """Where a move of the hyperparameters is too costly, draw them from their approximation between two blocks."""
        if not self.redraws:
            return state.chains
        rng = np.random.default_rng([self.task.seed, 9, state.n_warmed, len(state.kept)])
        fresh: Any = [rng.normal(size=chain.hyper.shape) for chain in state.chains]
        return tuple(chain._replace(hyper=hyper) for chain, hyper in zip(state.chains, fresh, strict=True))

    def _advanced(
        self, chains: tuple[Chain, ...], first: int, n_steps: int, n_moves: int, *, adapt: bool
    ) -> tuple[tuple[Chain, ...], tuple[SampledBlock, ...]]:
        """Make steps of all chains, in parallel threads."""
        counts = tuple(np.asarray(count, np.int32) for count in (first, n_steps, n_moves))

        def one(number: int) -> tuple[Chain, SampledBlock]:
            # A seed may be larger than JAX's keys take.
            seed = int(np.random.SeedSequence(self.task.seed).generate_state(1)[0])
            key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), number))
            made = _advance(chains[number], key, *counts, np.asarray(adapt), self.model, self.hyperpriors)
            return jax.tree.map(np.asarray, made)

        with ThreadPoolExecutor(min(self.task.n_jobs, N_CHAINS)) as pool:
            made = list(pool.map(with_settings_of_this_thread(one), range(N_CHAINS)))
        return tuple(chain for chain, _ in made), tuple(block for _, block in made)

    def _report(self, phase: str, step: int, blocks: tuple[SampledBlock, ...]) -> None:
        self.task.watch.report(phase, step, float(np.mean([block.log_density for block in blocks])))

    def verdict(self, state: MCMCState) -> Verdict | None:
        """Stop when all draws are made, or at the time limit; say how well the chains have mixed."""
        complete = state.n_draws >= self.task.max_iter
        if not complete and not (state.kept and self.task.watch.is_up):
            return None
        chains, posterior = zip(*state.kept, strict=True), self.before.posterior
        utilities = np.array(
            [np.concatenate([one.utilities[:, _order(one, posterior)] for one in chain]) for chain in chains]
        )
        return judged(utilities, state.n_divergent, complete and state.n_warmed >= self.n_warm_up)

    def conclude(self, state: MCMCState, verdict: Verdict) -> Inferred:
        """Turn draws into a posterior: settings from all chains, evenly, each with its draws."""
        n = min(MOST_SETTINGS // N_CHAINS, 1 << (len(state.kept).bit_length() - 1))
        settings = [one for i in np.linspace(0, len(state.kept) - 1, n).astype(int) for one in state.kept[i]]
        posterior = posterior_of_settings(self.before.posterior, settings)
        return self.before._replace(posterior=posterior, status=verdict.status, message=verdict.message)


def posterior_of_settings(posterior: Posterior, settings: list[Kept]) -> Posterior:
    """Replace the draws of a posterior by draws at some settings, each with its utilities in the posterior's order."""
    _, restore = ravel_pytree(posterior.prior)
    ordered = [_aligned(restore(jnp.asarray(one.log_hyper)), one, posterior) for one in settings]
    priors = jax.tree.map(lambda *leaves: np.stack(leaves), *(prior for prior, _ in ordered))
    draws = draws_of(priors, posterior.objects, np.array([dual for _, dual in ordered]))
    return eqx.tree_at(lambda old: old.draws, posterior, draws, is_leaf=lambda part: part is None)


def _aligned(prior: UtilityPrior, kept: Kept, posterior: Posterior) -> tuple[UtilityPrior, np.ndarray]:
    """Undo label switching: give a setting's utilities the order nearest to the posterior's means."""
    rows = _order(kept, posterior) + prior.shared
    rows = np.concatenate([[0], rows]) if prior.shared else rows
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], prior), kept.dual[:, rows]


def _order(kept: Kept, posterior: Posterior) -> np.ndarray:
    """Return the order of a setting's utilities that is nearest to the posterior's means."""
    d = posterior.n_utilities
    if d == 1 or d > _MOST_PERMUTED:
        return np.arange(d)
    ours, theirs = (part - part.mean(axis=1, keepdims=True) for part in (kept.utilities.mean(axis=0), posterior.mean))
    likeness = ours @ np.asarray(theirs).T
    return np.array(max(permutations(range(d)), key=lambda order: sum(likeness[order[i], i] for i in range(d))))


def _n_moves(n_learned: int, n_parts: int, n_objects: int) -> int:
    """Return how many moves of hyperparameters a step has: every one moves about once, unless a move is costly."""
    cost = 12.0 * n_parts * n_objects**3 + 1e6
    if n_learned == 0 or cost > _MOST_MOVE:
        return 0
    return int(np.clip(_MOVES / cost, 1, -(-n_learned // _TOGETHER)))


def _dual_averaging(target: Any) -> tuple[Any, Any, Any]:
    """Return BlackJAX's functions of dual averaging."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target)


def _first_tuning() -> tuple[Any, ...]:
    first = _dual_averaging(0.0)[0](_FIRST_STEP)
    # The average of no steps would be a step of 1: that of the first one counts until there are some.
    first = first._replace(log_step_size_avg=first.log_step_size)
    return tuple(np.asarray(leaf, float) for leaf in jax.tree.leaves(first))


def _whitened(hyper: Array, model: ChainModel) -> tuple[UtilityPrior, Array, Whitening]:
    """Return the prior of coordinates q, its Cholesky factors and the coordinates of the utilities."""
    prior = model.approximation.prior_at(hyper)
    covariance = prior_covariance(prior, model.problem)
    root = factorise(covariance, jnp.full(len(covariance), FIRST_JITTER)).root
    return prior, root, whiten(root, model.sites)


@partial(program, static="hyperpriors")
def _advance(
    chain: Chain, key_data: Array, first: Array, n_steps: Array, n_moves: Array, adapt: Array, model: ChainModel,
    hyperpriors: HyperPriors | None,
) -> tuple[Chain, SampledBlock]:  # fmt: skip
    """Make a block of steps of one chain: ``n_moves`` moves of hyperparameters after each move of the utilities."""
    from blackjax.mcmc import hmc, nuts

    kernel, (begin_steps, next_steps, _) = nuts.build_kernel(), _dual_averaging(model.target)
    tuning = jax.tree.unflatten(jax.tree.structure(begin_steps(1.0)), chain.tuning)
    shape = chain.position.shape
    key = jax.random.wrap_key_data(key_data)

    def density(whitening: Whitening) -> Callable[[Array], Array]:
        return lambda w: log_posterior(w.reshape(shape), whitening, model.sites, model.problem, model.lapse)

    def moved_hyper(state: Any, hyper: Array, whitening: Whitening, share: Array, key: Array) -> tuple[Any, ...]:
        def exact(q: Array, of_utilities: Array) -> Array:
            return of_utilities + (0.0 if hyperpriors is None else model.approximation.log_density(q, hyperpriors))

        def move(i: Array, carry: tuple) -> tuple:
            q, whitening, now, accepted = carry
            places, normals, coin, kind = jax.random.split(jax.random.fold_in(key, i), 4)
            rank = jnp.argsort(jnp.argsort(jax.random.uniform(places, q.shape)))
            # Where the approximation is narrower than the posterior, its own proposal never finds back: half of the
            # moves are a random walk.
            walks = jax.random.bernoulli(kind)
            old, new = jnp.where(walks, 1.0, jnp.sqrt(1.0 - share**2)), jnp.where(walks, _STRIDE, 1.0) * share
            fresh = old * q + new * jax.random.normal(normals, q.shape)
            proposed = jnp.where(rank < _TOGETHER, fresh, q)
            _, _, there = _whitened(proposed, model)
            then = exact(proposed, density(there)(state.position))
            kept = jnp.where(walks, 0.0, 0.5 * jnp.sum(proposed**2 - q**2))  # the Gaussian that the proposal keeps
            chance = jnp.nan_to_num(jnp.minimum(1.0, jnp.exp(then - now + kept)))
            taken = jax.random.uniform(coin) < chance
            after = jax.tree.map(lambda a, b: jnp.where(taken, a, b), (proposed, there, then), (q, whitening, now))
            return (*after, accepted + chance)

        now = exact(hyper, state.logdensity)
        hyper, whitening, _, accepted = jax.lax.fori_loop(0, n_moves, move, (hyper, whitening, now, jnp.zeros(())))
        return hyper, whitening, accepted / jnp.maximum(n_moves, 1)

    def step(i: Array, carry: tuple) -> tuple:
        w, hyper, whitening, tuning, share, block = carry
        own, theirs = jax.random.split(jax.random.fold_in(key, first + i))
        size = jnp.exp(jnp.where(adapt, tuning.log_step_size, tuning.log_step_size_avg))
        log_posterior_of = density(whitening)
        state = hmc.init(w.reshape(-1), log_posterior_of)
        state, info = kernel(own, state, log_posterior_of, size, jnp.ones(w.size), _MOST_DOUBLINGS)
        learned = next_steps(tuning, info.acceptance_rate)
        tuning = jax.tree.map(lambda new, old: jnp.where(adapt, new, old), learned, tuning)
        w = state.position.reshape(shape)
        hyper, whitening, accepted = moved_hyper(state, hyper, whitening, share, theirs)
        change = jnp.exp(0.15 * (accepted - _TARGET_MOVES))
        share = jnp.where(adapt & (n_moves > 0), jnp.clip(share * change, 0.05, 0.99), share)
        block = SampledBlock(
            block.positions.at[i].set(w), block.divergent + info.is_divergent, jnp.asarray(state.logdensity)
        )
        return w, hyper, whitening, tuning, share, block

    _, _, whitening = _whitened(chain.hyper, model)
    block = SampledBlock(jnp.zeros((BLOCK, *shape)), jnp.zeros((), int), jnp.zeros(()))
    tuning = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tuning)
    start = (chain.position, chain.hyper, whitening, tuning, chain.share, block)
    w, hyper, _, tuning, share, block = jax.lax.fori_loop(0, n_steps, step, start)
    return Chain(w, hyper, tuple(jax.tree.leaves(tuning)), share), block


def duals_at(hyper: np.ndarray | Array, positions: np.ndarray | Array, model: ChainModel) -> Kept:
    """Turn coordinates (n, p, t) at one setting of the hyperparameters into draws, without the padding."""
    log_hyper, dual, utilities = map(np.asarray, _duals(hyper, positions, model))
    n = model.problem.n_objects
    return Kept(log_hyper, dual[..., :n], utilities[..., :n])


@program
def _duals(hyper: Array, positions: Array, model: ChainModel) -> tuple[Array, Array, Array]:
    """Return the parameters of the prior, and for positions (n, p, t) K^-1 f of the parts and the utilities."""
    prior, root, whitening = _whitened(hyper, model)
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
