"""What the tests of predictions share: posteriors made without a fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.inference.posterior import Posterior, draws_of
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior

N_KNOWN = 20


def objects_at(X, first_code=1000):
    return Objects(np.asarray(X), np.arange(len(X)) + first_code)


def posterior_of_draws(n_utilities=2, *, shared=True, effect=None, n_settings=4, n_draws=128, spread=0.4):
    """A posterior that consists of draws: smooth parts and a spread of the prior's shape, at several settings."""
    rng = np.random.default_rng(8)
    X = np.random.default_rng(0).normal(size=(N_KNOWN, 2))
    known = Objects(X, np.arange(N_KNOWN))
    prior = UtilityPrior.create(RBF(1.5, 4.0), 2, n_utilities, effect, shared=shared)
    settings = jax.tree.map(lambda leaf: leaf + 0.3 * rng.normal(size=(n_settings, *leaf.shape)), prior)
    truth = np.stack([X[:, 0], np.sin(X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]])[: prior.n_parts]
    K = np.stack([
        np.asarray(jax.tree.map(lambda leaf, h=h: leaf[h], settings).covariance(known, known))
        for h in range(n_settings)
    ]) + 1e-6 * np.eye(N_KNOWN)  # fmt: skip
    noise = rng.normal(size=(n_settings, n_draws, prior.n_parts, N_KNOWN))
    parts = 2.0 * truth + spread * np.einsum("hpij,hspj->hspi", np.linalg.cholesky(K), noise)
    dual = np.swapaxes(np.linalg.solve(K, np.moveaxis(parts, 1, 3)), 2, 3)  # (H, p, S, t)
    draws = draws_of(settings, known, np.swapaxes(dual, 1, 2))
    mean = np.asarray(prior.total(jnp.asarray(parts.mean(axis=(0, 1)))))
    nothing = np.zeros((n_utilities, N_KNOWN, N_KNOWN))
    return Posterior(prior, known, mean, dual.mean(axis=(0, 2)), nothing, None, draws)


@pytest.fixture(scope="package")
def drawn():
    """Return a posterior of draws with a shared part, at four settings of the hyperparameters."""
    return posterior_of_draws()
