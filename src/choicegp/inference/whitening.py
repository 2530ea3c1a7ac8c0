"""Coordinates in which the Gaussian posterior is standard normal, and the exact log posterior in them.

With K = L L^T a utility is u = L v, v ~ N(0, I) before any choice.  The Gaussian posterior has
S = L B^-1 L^T, and B^-1 = I - L^T G L with G = K^-1 - K^-1 S K^-1, what the choices take off the prior covariance
(`Posterior.gain`).  So v = L^T K^-1 m + T w with T T^T = B^-1 and w ~ N(0, I): whatever the prior covariance's
condition, nothing is divided by its small eigenvalues.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.inference.posterior import Posterior, prior_root
from choicegp.inference.problem import Problem


class Whitening(NamedTuple):
    """A map from standard normals w (d, t) to utilities."""

    root: np.ndarray  # (d, t, t) L, the Cholesky factor of the prior covariance
    centre: np.ndarray  # (d, t) L^T K^-1 m
    spread: np.ndarray  # (d, t, t) T, the Cholesky factor of B^-1

    def latent(self, w: Array) -> Array:
        """Return v = L^-1 u, standard normal under the prior, for w (d, t)."""
        return jnp.asarray(self.centre) + jnp.einsum("dij,dj->di", self.spread, w)

    def utilities(self, w: Array) -> Array:
        """Return the utilities (d, t) of the objects."""
        return jnp.einsum("dij,dj->di", self.root, self.latent(w))


def whiten(posterior: Posterior) -> Whitening:
    """Find the coordinates of a Gaussian posterior."""
    root = prior_root(posterior)
    turned = np.swapaxes(root, 1, 2)
    rest = np.eye(root.shape[1]) - turned @ np.asarray(posterior.gain) @ root
    # Eigenvalues of B^-1 are in (0, 1]; rounding alone can push a small one below zero.
    values, vectors = np.linalg.eigh(0.5 * (rest + np.swapaxes(rest, 1, 2)))
    spread = vectors * np.sqrt(np.clip(values, 1e-10, 1.0))[:, None, :]
    centre = np.einsum("dji,dj->di", root, np.asarray(posterior.dual))
    return Whitening(root, centre, spread)


def log_choices(u: Array, problem: Problem, lapse: Array | None) -> Array:
    """Return the log-likelihood of each set (m,), batch after batch, at utilities u (d, t)."""
    logs = [
        batch.errors.log_likelihood(u[:, batch.rows], jnp.asarray(batch.present), jnp.asarray(batch.chosen), lapse)
        for batch in problem.batches
    ]
    return jnp.concatenate([jnp.zeros(0), *logs])


def log_posterior(w: Array, whitening: Whitening, problem: Problem, lapse: Array | None) -> tuple[Array, Array]:
    """Return the log of the exact posterior density of w, up to a constant, and its `log_choices`."""
    latent = whitening.latent(w)
    logs = log_choices(jnp.einsum("dij,dj->di", whitening.root, latent), problem, lapse)
    weight = jnp.concatenate([jnp.zeros(0), *(batch.weight for batch in problem.batches)])
    return weight @ logs - 0.5 * jnp.sum(latent**2), logs
