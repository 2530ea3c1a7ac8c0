"""The Gaussian approximation of the hyperparameters' posterior, against differences of the log evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from choicegp.inference.coordinates import hyper_posterior, whiten
from choicegp.inference.dense import LOG_BOUNDS
from choicegp.inference.posterior import FIRST_JITTER, factorise
from choicegp.inference.sites import zero_sites
from choicegp.kernels import RBF, Warped
from choicegp.model.prior import HyperPriors, UtilityPrior, log_density

from .conftest import LEARN, T, covariance_of, fitted

HYPERPRIORS = HyperPriors()
SHARED = [False, True]


@pytest.fixture(scope="module", params=SHARED, ids=["independent", "shared"])
def fit(request, problem):
    prior = UtilityPrior.create(RBF(1.5, 2.7), 2, 2, 0.3, shared=request.param)
    return fitted(problem, LEARN, prior=prior, tol=1e-4, max_iter=300)


def prior_sds(prior):
    sds = {"log_lengthscale": HYPERPRIORS.lengthscale, "log_variance": HYPERPRIORS.variance,
           "log_effect_variance": HYPERPRIORS.effect_variance, "log_warp": HYPERPRIORS.warp}  # fmt: skip
    tree = jax.tree_util.tree_map_with_path(lambda path, leaf: np.full(leaf.shape, sds[path[-1].name][1]), prior)
    return np.asarray(ravel_pytree(tree)[0])


def test_no_direction_is_wider_than_the_hyperpriors(fit, problem):
    found = hyper_posterior(fit.prior, fit.sites, problem, HYPERPRIORS)
    sds = prior_sds(fit.prior)
    assert found.n_learned == len(sds)
    relative = (found.scale @ found.scale.T) / np.outer(sds, sds)
    values = np.linalg.eigvalsh(relative)
    assert values.max() <= 1 + 1e-9
    assert values.min() < 0.7, "the choices say something about some direction"
    assert values.min() > 0


def test_without_choices_the_hyperpriors_are_left(fit, problem):
    found = hyper_posterior(fit.prior, zero_sites(2, T), problem, HYPERPRIORS)
    np.testing.assert_allclose(found.scale @ found.scale.T, np.diag(prior_sds(fit.prior) ** 2), atol=1e-6)


def test_the_precision_is_the_curvature_of_the_log_evidence_and_the_hyperpriors(fit, problem):
    found = hyper_posterior(fit.prior, fit.sites, problem, HYPERPRIORS)
    best, restore = (lambda flat, back: (np.asarray(flat), back))(*ravel_pytree(fit.prior))

    @jax.jit
    def objective(flat):
        prior = restore(flat)
        covariance = covariance_of(prior, problem)
        root = factorise(covariance, jnp.full(len(covariance), FIRST_JITTER)).root
        return whiten(root, fit.sites).log_evidence + log_density(prior, HYPERPRIORS)

    precision = np.linalg.inv(found.scale @ found.scale.T)
    sds = prior_sds(fit.prior)
    values, vectors = np.linalg.eigh(sds[:, None] * precision * sds)
    # Along directions in which the choices say something; in the others the hyperpriors speak.
    for value, vector in list(zip(values, vectors.T, strict=True))[-3:]:
        step = 0.05 * sds * vector
        up, here, down = (float(objective(jnp.asarray(best + k * step))) for k in (1, 0, -1))
        assert value > 1.2
        # Differences of gradients on one side of the best place, 0.1 away, against the curvature there.
        assert (2 * here - up - down) / 0.05**2 == pytest.approx(value, rel=0.2)


def test_coordinates_are_linear_and_stay_in_bounds(fit, problem):
    found = hyper_posterior(fit.prior, fit.sites, problem, HYPERPRIORS)
    best = np.asarray(ravel_pytree(fit.prior)[0])
    np.testing.assert_array_equal(ravel_pytree(found.prior_at(np.zeros(found.n_learned)))[0], best)
    q = 0.3 * np.random.default_rng(0).normal(size=found.n_learned)
    np.testing.assert_allclose(ravel_pytree(found.prior_at(q))[0], best + found.scale @ q, rtol=1e-12)
    for far in (1e3 * q, -1e3 * q):
        flat = np.asarray(ravel_pytree(found.prior_at(far))[0])
        assert LOG_BOUNDS[0] <= flat.min() < flat.max() <= LOG_BOUNDS[1]


def test_without_hyperpriors_nothing_moves(fit, problem):
    found = hyper_posterior(fit.prior, fit.sites, problem, None)
    assert found.n_learned == 0
    assert found.scale.shape == (len(ravel_pytree(fit.prior)[0]), 0)
    np.testing.assert_array_equal(ravel_pytree(found.prior_at(np.zeros(0)))[0], ravel_pytree(fit.prior)[0])


def test_what_is_never_learned_has_no_spread(fit, problem):
    ends = np.stack([problem.objects.X.min(axis=0), problem.objects.X.max(axis=0)])
    prior = UtilityPrior.create(Warped(RBF(1.5, 2.7), 0.1, ends), 2, 2, shared=fit.prior.shared)
    found = hyper_posterior(prior, fit.sites, problem, HYPERPRIORS)
    _, restore = ravel_pytree(prior)
    spread = restore(jnp.asarray(np.abs(found.scale).max(axis=1)))
    np.testing.assert_array_equal(spread.kernels.ends, 0.0)
    for learned in (spread.kernels.log_warp, spread.kernels.kernel.log_lengthscale, spread.kernels.kernel.log_variance):
        assert np.all(np.asarray(learned) > 0)
    assert found.n_learned == len(found.scale) - prior.kernels.ends.size
    moved = found.prior_at(np.ones(found.n_learned))
    np.testing.assert_array_equal(moved.kernels.ends, prior.kernels.ends)


def test_beyond_the_bounds_the_density_goes_on_falling(fit, problem):
    """Or a random walk would leave and not come back."""
    found = hyper_posterior(fit.prior, fit.sites, problem, HYPERPRIORS)
    steps = [float(found.log_density(size * jnp.eye(found.n_learned)[0], HYPERPRIORS)) for size in (20.0, 40.0, 80.0)]
    assert steps[0] > steps[1] + 10.0 > steps[2] + 20.0
    assert np.all(np.asarray(ravel_pytree(found.prior_at(80.0 * jnp.eye(found.n_learned)[0]))[0]) <= LOG_BOUNDS[1])
