"""One Markov chain over utilities and hyperparameters: what its steps are.

Utilities and hyperparameters depend on each other strongly, and no one pair of coordinates makes them independent.  So
a step has several moves, each of which keeps the exact posterior and is good where the others are bad:

- the utilities move by the no-U-turn sampler (BlackJAX), the hyperparameters held, in the coordinates w in which the
  Gaussian posterior of a dense fit is standard normal (`choicegp.inference.coordinates`): few steps go a long way, and
  none of them factorises a matrix;
- a few hyperparameters at a time move with w held, by a proposal that keeps the Gaussian approximation of
  `choicegp.inference.coordinates` (preconditioned Crank-Nicolson) or by a random walk of its shape: good where the
  choices say much about the utilities;
- a few hyperparameters move with v held, the coordinates in which the prior is standard normal: good where the choices
  say little.  Noise-free choices hardly say how large utilities are, and then the whole scale moves so;
- the scale of a part, or of all, moves with v held: utilities and variances change together, no matrix is factorised,
  and many such moves are made.

The last two are the other half of an interweaving strategy (Yu and Meng 2011).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.coordinates import HyperPosterior, Whitening, log_likelihood, log_posterior, log_rest, whiten
from choicegp.inference.posterior import FIRST_JITTER, factorise, prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.model.prior import HyperPriors, UtilityPrior

BLOCK = 16
"""Steps of a chain between two looks from Python."""
_MOST_DOUBLINGS = 7
_FIRST_STEP = 0.3
_TOGETHER = 6  # hyperparameters that move at a time
_SCALINGS = 12  # moves of scales in a step
_FIRST_SHARE = 0.5  # of a proposal that is new
_STRIDE = 2.0  # of a random walk of the hyperparameters with w held, times that share
_TARGET_MOVES = 0.35  # acceptance of these moves
_LONGEST, _HALVINGS = 1.5, 5.0  # strides with v held: from that length to it halved so often, at random


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
    shifts: Array  # (p, n) directions of q along which one part's scale grows, or (0, n)
    sites: Sites
    problem: Problem
    lapse: Array | None
    target: Array  # acceptance rate of the utilities' moves


class SampledBlock(NamedTuple):
    """What a block of steps gives: where the chain stood after each step, and how the steps went."""

    positions: Array  # (n, p, t) w
    hyper: Array  # (n, k) q
    utilities: Array  # (n, d, t)
    divergent: Array  # number of divergent steps
    log_density: Array


def first_chain(rng: np.random.Generator, shape: tuple[int, int], n_learned: int) -> Chain:
    """Draw a first position from the Gaussian approximations."""
    return Chain(rng.normal(size=shape), rng.normal(size=n_learned), first_tuning(), np.asarray(_FIRST_SHARE))  # type: ignore[arg-type]


def first_tuning() -> tuple[Any, ...]:
    """Return the arrays of dual averaging before any step."""
    first = dual_averaging(0.0)[0](_FIRST_STEP)
    # The average of no steps would be a step of 1: that of the first one counts until there are some.
    first = first._replace(log_step_size_avg=first.log_step_size)
    return tuple(np.asarray(leaf, float) for leaf in jax.tree.leaves(first))


def n_together(n_learned: int) -> int:
    """Return how many moves of a step let every hyperparameter move about once."""
    return -(-n_learned // _TOGETHER)


def dual_averaging(target: Any) -> tuple[Any, Any, Any]:
    """Return BlackJAX's functions of dual averaging."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target)


def prior_root(hyper: Array, model: ChainModel) -> tuple[UtilityPrior, Array]:
    """Return the prior of coordinates q and the Cholesky factors of its covariance."""
    prior = model.approximation.prior_at(hyper)
    covariance = prior_covariance(prior, model.problem)
    return prior, factorise(covariance, jnp.full(len(covariance), FIRST_JITTER)).root


def _whitened(hyper: Array, model: ChainModel) -> Whitening:
    return whiten(prior_root(hyper, model)[1], model.sites)


class _Moves(NamedTuple):
    """The moves of hyperparameters of a step, each a loop over proposals that are taken or not."""

    model: ChainModel
    hyperpriors: HyperPriors | None

    def of_prior(self, q: Array) -> Array:
        """Log density of the hyperpriors."""
        return jnp.zeros(()) if self.hyperpriors is None else self.model.approximation.log_density(q, self.hyperpriors)

    def likelihood(self, parts: Array, whitening: Whitening) -> Array:
        return log_likelihood(whitening.total(parts), self.model.problem, self.model.lapse)

    def with_posterior_held(
        self, q: Array, w: Array, whitening: Whitening, now: Array, share: Array, n_moves: Array, key: Array
    ) -> tuple[Array, Whitening, Array, Array]:
        """Move hyperparameters with w held, from where the log posterior of w is ``now``.

        Also return the log posterior of w afterwards, and the mean chance that a proposal is taken.
        """
        model = self.model

        def move(i: Array, carry: tuple) -> tuple:
            q, whitening, now, accepted = carry
            places, normals, coin, kind = jax.random.split(jax.random.fold_in(key, i), 4)
            # Where the approximation is narrower than the posterior, its own proposal never finds back: half of the
            # moves are a random walk.
            walks = jax.random.bernoulli(kind)
            old, new = jnp.where(walks, 1.0, jnp.sqrt(1.0 - share**2)), jnp.where(walks, _STRIDE, 1.0) * share
            proposed = jnp.where(_some(places, q), old * q + new * jax.random.normal(normals, q.shape), q)
            there = _whitened(proposed, model)
            then = log_posterior(w, there, model.sites, model.problem, model.lapse)
            kept = jnp.where(walks, 0.0, 0.5 * jnp.sum(proposed**2 - q**2))  # the Gaussian that the proposal keeps
            log_ratio = then + self.of_prior(proposed) - now - self.of_prior(q) + kept
            chance, after = _decided(coin, log_ratio, (proposed, there, then), (q, whitening, now))
            return (*after, accepted + chance)

        q, whitening, now, accepted = jax.lax.fori_loop(0, n_moves, move, (q, whitening, now, jnp.zeros(())))
        return q, whitening, now, accepted / jnp.maximum(n_moves, 1)

    def with_prior_held(
        self, q: Array, w: Array, whitening: Whitening, log_p: Array, n_moves: Array, key: Array
    ) -> tuple[Array, Array, Whitening]:
        """Move hyperparameters and scales with v held, from where the log-likelihood is ``log_p``.

        Return q, w and the new coordinates.
        """
        model, approximation = self.model, self.model.approximation
        v = whitening.to_prior(w)

        def some(q: Array, parts: Array, keys: tuple[Array, Array], length: Array) -> tuple[Array, Array, Array]:
            places, normals = keys
            change = approximation.spread * jax.random.normal(normals, approximation.spread.shape)
            change = _stride(length) * jnp.where(_some(places, change), change, 0.0)
            proposed = q + approximation.inverse @ change
            return proposed, jnp.einsum("pij,pj->pi", prior_root(proposed, model)[1], v), jnp.asarray(True)

        def scales(q: Array, parts: Array, keys: tuple[Array, Array], length: Array) -> tuple[Array, Array, Array]:
            which, normals = keys
            n_parts = len(parts)
            chosen = jax.random.randint(which, (), 0, n_parts + 1)
            growth = jnp.where((jnp.arange(n_parts) == chosen) | (chosen == n_parts), 1.0, 0.0)
            growth *= _stride(length) * jax.random.normal(normals)
            proposed = q + growth @ model.shifts
            # Beyond the bounds of hyperparameters, variances do not follow.
            inside = approximation.is_within(proposed) & approximation.is_within(q)
            return proposed, jnp.exp(growth)[:, None] * parts, inside

        def move(i: Array, carry: tuple) -> tuple:
            q, parts, now = carry
            first, second, coin, length = jax.random.split(jax.random.fold_in(key, i), 4)
            given = q, parts, (first, second), length
            # One likelihood for both kinds: it is most of what is compiled.
            proposed, there, inside = jax.lax.cond(i < n_moves, some, scales, *given) if scalings else some(*given)
            then = self.likelihood(there, whitening) + self.of_prior(proposed)
            then = jnp.where(inside, then, -jnp.inf)
            return _decided(coin, then - now, (proposed, there, then), (q, parts, now))[1]

        scalings = _SCALINGS if len(model.shifts) else 0
        carry = (q, whitening.parts(w), log_p + self.of_prior(q))
        q, *_ = jax.lax.fori_loop(0, n_moves + scalings, move, carry)
        whitening = _whitened(q, model)
        return q, whitening.from_prior(v), whitening


def _some(key: Array, like: Array) -> Array:
    """Mark a few places, at random."""
    return jnp.argsort(jnp.argsort(jax.random.uniform(key, like.shape))) < _TOGETHER


def _stride(key: Array) -> Array:
    """Return a length of any order of size: no tuning, and one of them is right."""
    return _LONGEST * jnp.exp2(-_HALVINGS * jax.random.uniform(key))


def _decided(coin: Array, log_ratio: Array, new: tuple, old: tuple) -> tuple[Array, tuple]:
    """Take a proposal or not (Metropolis); also return the chance that it had."""
    chance = jnp.nan_to_num(jnp.minimum(1.0, jnp.exp(log_ratio)))
    taken = jax.random.uniform(coin) < chance
    return chance, jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, old)


@partial(program, static="hyperpriors")
def advance(
    chain: Chain, key_data: Array, first: Array, n_steps: Array, n_moves: Array, adapt: Array, model: ChainModel,
    hyperpriors: HyperPriors | None,
) -> tuple[Chain, SampledBlock]:  # fmt: skip
    """Make a block of steps of one chain: ``n_moves`` moves of hyperparameters after each move of the utilities."""
    from blackjax.mcmc import hmc, nuts

    kernel, (begin_steps, next_steps, _) = nuts.build_kernel(), dual_averaging(model.target)
    tuning = jax.tree.unflatten(jax.tree.structure(begin_steps(1.0)), chain.tuning)
    shape, moves = chain.position.shape, _Moves(model, hyperpriors)
    key = jax.random.wrap_key_data(key_data)

    def density(whitening: Whitening) -> Callable[[Array], Array]:
        return lambda w: log_posterior(w.reshape(shape), whitening, model.sites, model.problem, model.lapse)

    def step(i: Array, carry: tuple) -> tuple:
        w, q, whitening, tuning, share, block = carry
        own, theirs, ours = jax.random.split(jax.random.fold_in(key, first + i), 3)
        size = jnp.exp(jnp.where(adapt, tuning.log_step_size, tuning.log_step_size_avg))
        log_posterior_of = density(whitening)
        state = hmc.init(w.reshape(-1), log_posterior_of)
        state, info = kernel(own, state, log_posterior_of, size, jnp.ones(w.size), _MOST_DOUBLINGS)
        learned = next_steps(tuning, info.acceptance_rate)
        tuning = jax.tree.map(lambda new, old: jnp.where(adapt, new, old), learned, tuning)
        w = state.position.reshape(shape)
        if len(q):
            q, whitening, log_density, accepted = moves.with_posterior_held(
                q, w, whitening, state.logdensity, share, n_moves, theirs
            )
            change = jnp.exp(0.15 * (accepted - _TARGET_MOVES))
            share = jnp.where(adapt & (n_moves > 0), jnp.clip(share * change, 0.05, 0.99), share)
            log_p = log_density - log_rest(w, whitening.utilities(w), whitening, model.sites)
            here = q, w, whitening
            q, w, whitening = jax.lax.cond(
                n_moves > 0, lambda: moves.with_prior_held(*here, log_p, n_moves, ours), lambda: here
            )
        block = SampledBlock(
            block.positions.at[i].set(w), block.hyper.at[i].set(q), block.utilities.at[i].set(whitening.utilities(w)),
            block.divergent + info.is_divergent, jnp.asarray(state.logdensity),
        )  # fmt: skip
        return w, q, whitening, tuning, share, block

    whitening = _whitened(chain.hyper, model)
    empty = (
        jnp.zeros((BLOCK, *shape)),
        jnp.zeros((BLOCK, len(chain.hyper))),
        jnp.zeros((BLOCK, *model.sites.linear.shape)),
    )
    block = SampledBlock(*empty, jnp.zeros((), int), jnp.zeros(()))
    tuning = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tuning)
    start = (chain.position, chain.hyper, whitening, tuning, chain.share, block)
    w, q, _, tuning, share, block = jax.lax.fori_loop(0, n_steps, step, start)
    return Chain(w, q, tuple(jax.tree.leaves(tuning)), share), block
