"""One Markov chain over the utilities of all people, of the population, and over the hyperparameters.

All of them move together, by the no-U-turn sampler (BlackJAX), in the coordinates of
`choicegp.inference.respondents.whitening` and of `choicegp.inference.coordinates`, in which Gaussian approximations
are standard normal.  What people say about the hyperparameters depends on the utilities of all of them: with these
held, as in the moves of `choicegp.inference.chain`, hyperparameters hardly moved (40 people with 10 sets).  The
gradient passes through the factorisations of all people, which are small.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from choicegp.compute.programs import program
from choicegp.inference.chain import dual_averaging, first_tuning
from choicegp.inference.coordinates import HyperPosterior
from choicegp.inference.respondents.whitening import Coordinates, Sampled, StudyWhitening, log_posterior, whiten_study
from choicegp.model.prior import HyperPriors

BLOCK = 4
"""Steps of a chain between two looks from Python."""
_MOST_DOUBLINGS = 4  # a trajectory through a standard normal turns after a length of about 3
_TARGET = 0.8  # acceptance


class Position(NamedTuple):
    """Where a chain stands: w, and hyperparameters q, standard normal under their approximation."""

    utilities: Coordinates
    hyper: Array  # (k,)


class StudyChain(NamedTuple):
    """Where a chain stands, and what has been learned about its steps."""

    position: Position
    tuning: tuple[Array, ...]


class StudyChainModel(NamedTuple):
    """What a chain samples: it does not change."""

    approximation: HyperPosterior
    sampled: Sampled


class StudyBlock(NamedTuple):
    """What a block of steps gives."""

    population: Array  # (n, d t) utilities of the population at all objects, after each step
    divergent: Array  # number of divergent steps


def first_study_chain(rng: np.random.Generator, like: Position) -> StudyChain:
    """Draw a first position from the Gaussian approximations."""
    return StudyChain(jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), like), first_tuning())


def whitened(hyper: Array, model: StudyChainModel) -> StudyWhitening:
    """Return the coordinates at a setting of the hyperparameters."""
    return whiten_study(model.approximation.prior_at(hyper), model.sampled)


@partial(program, static="hyperpriors")
def advance_study(
    chain: StudyChain, key_data: Array, first: Array, adapt: Array, model: StudyChainModel,
    hyperpriors: HyperPriors | None,
) -> tuple[StudyChain, StudyBlock]:  # fmt: skip
    """Make a block of steps of one chain."""
    from blackjax.mcmc import hmc, nuts

    kernel, (begin_steps, next_steps, _) = nuts.build_kernel(), dual_averaging(_TARGET)
    tuning: Any = jax.tree.unflatten(jax.tree.structure(begin_steps(1.0)), chain.tuning)
    flat, restore = ravel_pytree(chain.position)
    key = jax.random.wrap_key_data(key_data)

    def density(flat: Array) -> Array:
        w, q = restore(flat)
        of_prior = 0.0 if hyperpriors is None else model.approximation.log_density(q, hyperpriors)
        return log_posterior(w, whitened(q, model), model.sampled) + of_prior

    def step(carry: tuple, i: Array) -> tuple[tuple, tuple]:
        state, tuning = carry
        size = jnp.exp(jnp.where(adapt, tuning.log_step_size, tuning.log_step_size_avg))
        own = jax.random.fold_in(key, first + i)
        state, info = kernel(own, state, density, size, jnp.ones(flat.size), _MOST_DOUBLINGS)
        learned = next_steps(tuning, info.acceptance_rate)
        tuning = jax.tree.map(lambda new, old: jnp.where(adapt, new, old), learned, tuning)
        w, q = restore(state.position)
        return (state, tuning), (whitened(q, model).population_utilities(w), info.is_divergent)

    tuning = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tuning)
    start = (hmc.init(flat, density), tuning)
    (state, tuning), (population, divergent) = jax.lax.scan(step, start, jnp.arange(BLOCK))
    after = StudyChain(restore(state.position), tuple(jax.tree.leaves(tuning)))
    return after, StudyBlock(population, jnp.sum(divergent))
