"""One Markov chain over the utilities of all people, of the population, and over the hyperparameters.

Utilities and hyperparameters move in turn, by Hamiltonian steps, in the coordinates w of
`choicegp.inference.respondents.whitening` and q of `choicegp.inference.coordinates`.  With the hyperparameters held,
the coordinates are found once, and a step costs a few products with small matrices.  A step of the hyperparameters
passes through the factorisations of all people, a few times.

The same slope makes the hyperparameters climb.  Whatever the coordinates w are, Fisher's identity says that

    d log p(choices | q) / dq = E[ d log p(choices, w | q) / dq ],    w ~ p(w | choices, q):

means over a chain are slopes of the exact marginal likelihood, which the bound of a fit only approximates.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from choicegp.compute.programs import program
from choicegp.inference.coordinates import HyperPosterior
from choicegp.inference.respondents.whitening import Coordinates, Sampled, StudyWhitening, log_posterior, whiten_study
from choicegp.model.prior import HyperPriors
from choicegp.model.respondents import StudyPrior

N_MOVES = 2
"""Steps of the utilities with the hyperparameters held."""
_LENGTH = 1.4  # of a trajectory: a standard normal forgets where it came from after about this time
_MOST_LEAPS = 40
_LEAPS = 3  # of the hyperparameters
_JITTER = 0.2  # of the sizes of leaps, so that no trajectory returns to where it began


class Walk(NamedTuple):
    """Where a chain stands: w, and hyperparameters q, standard normal under their approximation."""

    utilities: Coordinates
    hyper: Array  # (k,)


class StudyChainModel(NamedTuple):
    """What a chain samples: it does not change."""

    approximation: HyperPosterior
    sampled: Sampled


class Moved(NamedTuple):
    """What a few steps of the utilities give."""

    utilities: Coordinates
    population: Array  # (d t,) the population's utilities at all objects
    accepted: Array  # mean chance that a step is taken


def whitened(hyper: Array, model: StudyChainModel) -> StudyWhitening:
    """Return the coordinates at a setting of the hyperparameters."""
    return whiten_study(model.approximation.prior_at(hyper), model.sampled)


@program
def moved(walk: Walk, key_data: Array, size: Array, model: StudyChainModel) -> Moved:
    """Move the utilities by `N_MOVES` Hamiltonian steps, with leaps of about this size."""
    flat, restore = ravel_pytree(walk.utilities)
    whitening, key = whitened(walk.hyper, model), jax.random.wrap_key_data(key_data)
    log_density = jax.value_and_grad(lambda flat: log_posterior(restore(flat), whitening, model.sampled))

    def step(carry: tuple, own: Array) -> tuple[tuple, Array]:
        w, value, slope = carry
        normals, coin, length = jax.random.split(own, 3)
        leap = size * (1.0 + _JITTER * jax.random.uniform(length, minval=-1.0))
        push = jax.random.normal(normals, w.shape)

        def leaped(_: Array, there: tuple) -> tuple:
            w, push, _, slope = there
            push = push + 0.5 * leap * slope
            w = w + leap * push
            value, slope = log_density(w)
            return w, push + 0.5 * leap * slope, value, slope

        n_leaps = jnp.clip(jnp.ceil(_LENGTH / leap), 1, _MOST_LEAPS).astype(int)
        *there, then, slope_there = jax.lax.fori_loop(0, n_leaps, leaped, (w, push, value, slope))
        gained = then - value - 0.5 * (jnp.sum(there[1] ** 2) - jnp.sum(push**2))
        # A step that ends where numbers are not finite is not taken.
        chance = jnp.where(jnp.isfinite(gained), jnp.exp(jnp.minimum(gained, 0.0)), 0.0)
        taken = jax.random.uniform(coin) < chance
        new, old = (there[0], then, slope_there), (w, value, slope)
        return jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, old), chance

    (flat, _, _), chances = jax.lax.scan(step, (flat, *log_density(flat)), jax.random.split(key, N_MOVES))
    w = restore(flat)
    return Moved(w, whitening.population_utilities(w), jnp.mean(chances))


@partial(program, static="hyperpriors")
def log_joint(walk: Walk, model: StudyChainModel, hyperpriors: HyperPriors) -> tuple[Array, Array]:
    """Return the log density of w and q together, and its slope in q."""

    def density(q: Array) -> Array:
        of_choices = log_posterior(walk.utilities, whitened(q, model), model.sampled)
        return of_choices + model.approximation.log_density(q, hyperpriors)

    return jax.value_and_grad(density)(walk.hyper)


def turned(
    walk: Walk, root: np.ndarray, size: float, rng: np.random.Generator, model: StudyChainModel,
    hyperpriors: HyperPriors,
) -> tuple[Walk, float]:  # fmt: skip
    """Move the hyperparameters by one Hamiltonian step with the utilities held; also return its chance.

    ``root`` (k, k) is a root of about the covariance of q that the utilities leave.
    """

    def at(q: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = log_joint(walk._replace(hyper=q), model, hyperpriors)  # type: ignore[arg-type]
        return float(value), root.T @ np.asarray(slope)

    first: np.ndarray = np.asarray(rng.normal(size=root.shape[1]))
    push, q = first, np.asarray(walk.hyper)
    before, slope = at(q)
    value = before
    leap = size * (1.0 + _JITTER * rng.uniform(-1.0, 1.0))
    for _ in range(_LEAPS):
        push = push + 0.5 * leap * slope
        q = q + leap * (root @ push)
        value, slope = at(q)
        if not np.isfinite(value) or not np.all(np.isfinite(slope)):
            return walk, 0.0
        push = push + 0.5 * leap * slope
    chance = float(np.exp(min(0.0, value - before - 0.5 * (push @ push - first @ first))))
    return (walk._replace(hyper=q) if rng.uniform() < chance else walk), chance  # type: ignore[arg-type]


@program
def drawn(walk: Walk, model: StudyChainModel) -> tuple[StudyPrior, Array, tuple[Array, ...]]:
    """Return the prior, v (p M,), and what is people's own at their objects, (R, dn) of each group."""
    population, people = whitened(walk.hyper, model).parts(walk.utilities, model.sampled)
    return model.approximation.prior_at(walk.hyper), population, people
