"""How far the Gaussian posterior is from the exact one, by importance sampling: no chain, no second fit.

Draws of the Gaussian are weighted by the exact posterior density over the Gaussian's.  The tail of the weights has
a shape k (Vehtari et al., Pareto smoothed importance sampling): below 0.5 the Gaussian covers the posterior, above
0.7 it misses parts of it and the weights say little else.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import Problem
from choicegp.inference.whitening import Whitening, whiten


class Importance(NamedTuple):
    """Weights of draws of the Gaussian posterior.

    Attributes
    ----------
    pareto_k : float
        Shape of the weights' tail.
    effective : float
        Effective number of draws after weighting.
    moved : float
        Mean absolute change, by weighting, of the probability of each observed choice.
    """

    pareto_k: float
    effective: float
    moved: float


def importance(posterior: Posterior, problem: Problem, *, n_draws: int, seed: int) -> Importance:
    """Weight draws of the Gaussian posterior by the exact one."""
    from arviz_stats.base import array_stats

    whitening = whiten(posterior)
    draws = np.random.default_rng(seed).normal(size=(n_draws, *whitening.centre.shape))
    lapse = None if posterior.lapse is None else np.asarray(posterior.lapse, float)
    logs, choices = (np.asarray(part) for part in _log_weights(draws, whitening, problem, lapse))
    # ArviZ takes the log-likelihood of a set left out, whose weights are its inverse: hence the sign.
    smooth, k = array_stats.psislw(-logs)
    weights = np.exp(smooth - np.max(smooth))
    weights /= weights.sum()
    sets = np.concatenate([np.zeros(0), *(batch.weight for batch in problem.batches)]) > 0
    moved = np.abs(weights @ choices[:, sets] - choices[:, sets].mean(axis=0)).mean() if sets.any() else 0.0
    return Importance(float(k), float(1.0 / np.sum(weights**2)), float(moved))


@program
def _log_weights(draws: Array, whitening: Whitening, problem: Problem, lapse: Array | None) -> tuple[Array, Array]:
    """Return log weights (S,), up to a constant, and the probabilities of the observed choices (S, m)."""

    def one(w: Array) -> tuple[Array, Array]:
        latent = whitening.latent(w)
        u = jnp.einsum("dij,dj->di", whitening.root, latent)
        logs = [
            batch.errors.log_likelihood(u[:, batch.rows], jnp.asarray(batch.present), jnp.asarray(batch.chosen), lapse)
            for batch in problem.batches
        ]
        total = sum((jnp.sum(batch.weight * part) for batch, part in zip(problem.batches, logs, strict=True)), 0.0)
        weight = total - 0.5 * jnp.sum(latent**2) + 0.5 * jnp.sum(w**2)
        return weight, jnp.exp(jnp.concatenate([*logs, jnp.zeros(0)]))

    return jax.lax.map(one, draws)
