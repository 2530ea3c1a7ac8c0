"""Coordinates in which the Gaussian posterior is standard normal, and the exact log posterior in them.

The Gaussian approximation of the hyperparameters' posterior is held against differences of the log evidence.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from choicegp import ChoiceData
from choicegp.evaluation.diagnosis import importance
from choicegp.inference.coordinates import hyper_posterior, log_choices, log_posterior, whiten
from choicegp.inference.dense import LOG_BOUNDS
from choicegp.inference.posterior import FIRST_JITTER, Posterior, factorise, factorise_on_host
from choicegp.inference.sites import Sites, zero_sites
from choicegp.kernels import RBF, Warped
from choicegp.model.likelihood import FLOOR
from choicegp.model.prior import HyperPriors, UtilityPrior, log_density

from .conftest import FIXED, LEARN, T, conditioned, covariance_of, fitted, make_prior, posed

X = np.array([[0.0], [0.7], [2.0], [2.6]])
PAIRS = [[0, 1], [1, 2], [0, 2], [3, 2]]
SHAPES = {"one": (1, False), "two": (2, False), "two shared": (2, True), "three shared": (3, True)}
whitened = jax.jit(whiten)
log_density_of = jax.jit(log_posterior)


@pytest.fixture(scope="module")
def pairs():
    problem = posed(ChoiceData.from_pairs(X, PAIRS, weights=[1.0, 2.0, 1.0, 0.5]))
    np.testing.assert_array_equal(problem.objects.X[problem.valid], X)
    return problem


@pytest.fixture(scope="module", params=list(SHAPES.values()), ids=list(SHAPES))
def shape(request):
    return request.param


def prior_of(shape, lengthscale=1.0, variance=4.0):
    d, shared = shape
    prior = UtilityPrior.create(RBF(lengthscale, variance), 1, d, shared=shared)
    return jax.tree.map(lambda leaf: leaf + 0.1 * np.arange(len(leaf)).reshape(-1, *[1] * (leaf.ndim - 1)), prior)


@pytest.fixture(scope="module")
def sites(shape, pairs):
    rng = np.random.default_rng(1)
    d, t = shape[0], len(pairs.valid)
    root = rng.normal(size=(d, t, t)) * pairs.valid[:, None]
    return Sites(root @ np.swapaxes(root, 1, 2) / t, rng.normal(size=(d, t)) * pairs.valid)


def root_of(prior, problem):
    return factorise_on_host(np.asarray(covariance_of(prior, problem))).root


def log_likelihood(u):
    """Of pairs of which one object was chosen: it dominates the other, in every utility."""
    weights = (1.0, 2.0, 1.0, 0.5)
    total = 0.0
    for weight, (i, j) in zip(weights, PAIRS, strict=True):
        total += weight * np.log(ndtr(u[:, i] - u[:, j]).prod() + FLOOR)
    return total


def test_log_choices_are_those_of_pairs(shape, pairs):
    u = np.random.default_rng(0).normal(size=(shape[0], len(pairs.valid)))
    weight = np.concatenate([batch.weight for batch in pairs.batches])
    assert float(weight @ np.asarray(jax.jit(log_choices)(u, pairs, None))) == pytest.approx(
        log_likelihood(u), abs=1e-6
    )


def test_standard_normals_become_draws_with_the_posteriors_moments(shape, pairs, sites):
    d, shared = shape
    prior = prior_of(shape)
    root = root_of(prior, pairs)
    whitening = whitened(root, sites)
    p, t = prior.n_parts, len(pairs.valid)
    # The map is affine: its constant is the mean, and its columns make the covariance.
    utilities = jax.jit(lambda w: whitening.utilities(w))
    centre = np.asarray(utilities(np.zeros((p, t))))
    steps = np.array([np.asarray(utilities(unit.reshape(p, t))) - centre for unit in np.eye(p * t)])
    covariance = np.einsum("sit,sju->ijtu", steps, steps)
    moments = conditioned(factorise_on_host(np.asarray(covariance_of(prior, pairs))), sites)
    np.testing.assert_allclose(centre, moments.mean, atol=1e-8)
    for i in range(d):
        for j in range(d):
            independent = 0.0 if i != j or shared else moments.covariance[i]
            wanted = moments.covariance.full()[i, j] if shared else independent
            np.testing.assert_allclose(covariance[i, j], wanted, atol=1e-8)
    w = np.random.default_rng(2).normal(size=(p, t))
    np.testing.assert_allclose(jax.jit(lambda w: prior.total(whitening.parts(w)))(w), utilities(w), atol=1e-12)
    np.testing.assert_allclose(utilities(w), centre + np.einsum("s,sit->it", w.ravel(), steps), atol=1e-8)


def exact_log_joint(prior, problem, parts):
    """log p(choices | u) + log p(parts), by the densities of SciPy."""
    root = np.asarray(root_of(prior, problem))
    K = root @ np.swapaxes(root, 1, 2)
    density = sum(multivariate_normal.logpdf(part, cov=K_i) for part, K_i in zip(parts, K, strict=True))
    return log_likelihood(np.asarray(prior.total(jnp.asarray(parts)))) + density


def test_the_log_posterior_is_the_log_joint_density_of_choices_and_parts_in_these_coordinates(shape, pairs, sites):
    # At all hyperparameters with one constant: what differs between them is the density of w itself, by the
    # determinant of the map from w to the parts.
    p, t = prior_of(shape).n_parts, len(pairs.valid)
    values = []
    for lengthscale, variance, seed in [(1.0, 4.0, 0), (1.0, 4.0, 1), (0.6, 4.0, 2), (1.0, 9.0, 3), (1.7, 2.0, 4)]:
        prior = prior_of(shape, lengthscale, variance)
        whitening = whitened(root_of(prior, pairs), sites)
        w = np.random.default_rng(seed).normal(size=(p, t))
        parts = np.asarray(whitening.parts(w))
        units = np.array([np.asarray(whitening.parts(w + unit.reshape(p, t))) - parts for unit in np.eye(p * t)])
        log_volume = np.linalg.slogdet(units.reshape(p * t, p * t))[1]
        exact = exact_log_joint(prior, pairs, parts) + log_volume
        values.append(float(log_density_of(w, whitening, sites, pairs, None)) - exact)
    np.testing.assert_allclose(values, values[0], atol=1e-5)
    np.testing.assert_allclose(values[0], 0.5 * p * t * np.log(2 * np.pi), atol=1e-5)


def test_sites_of_one_place_serve_at_another(shape, pairs, sites):
    """Other sites, other coordinates: the density of the same parts is the same."""
    prior = prior_of(shape)
    root = root_of(prior, pairs)
    others = Sites(2.0 * sites.precision, -0.5 * sites.linear)
    p, t = prior.n_parts, len(pairs.valid)
    found, target = [], None
    w = np.random.default_rng(0).normal(size=(p, t))
    for each in (sites, others):
        whitening = whitened(root, each)
        zero = np.ravel(whitening.parts(np.zeros((p, t))))
        columns = np.array([np.ravel(whitening.parts(unit.reshape(p, t))) for unit in np.eye(p * t)]) - zero
        there = w if target is None else np.linalg.solve(columns.T, np.ravel(target) - zero).reshape(p, t)
        target = whitening.parts(there)
        found.append(float(log_density_of(there, whitening, each, pairs, None)) - np.linalg.slogdet(columns)[1])
    assert found[1] == pytest.approx(found[0], abs=1e-5)


def test_a_lapse_rate_is_part_of_the_log_posterior(pairs):
    prior = prior_of((1, False))
    t = len(pairs.valid)
    empty = Sites(jnp.zeros((1, t, t)), jnp.zeros((1, t)))
    whitening = whitened(root_of(prior, pairs), empty)
    w = np.random.default_rng(0).normal(size=(1, t))
    with_lapse, without = (float(log_density_of(w, whitening, empty, pairs, lapse)) for lapse in (0.1, None))
    u = np.asarray(whitening.utilities(w))[0]
    exact = 0.0
    for weight, (i, j) in zip((1.0, 2.0, 1.0, 0.5), PAIRS, strict=True):
        p = ndtr(u[i] - u[j])
        # A lapse is a random subset of the two objects, not empty.
        exact += weight * (np.log(0.9 * p + 0.1 / 3.0) - np.log(p))
    assert with_lapse - without == pytest.approx(exact, abs=1e-9)


def test_importance_weights_find_a_posterior_that_is_too_narrow():
    problem = posed(ChoiceData.from_pairs(X[:3], PAIRS[:3]))
    p = fitted(problem, FIXED, prior=make_prior(1.0, 4.0, n_utilities=1, n_features=1), tol=1e-4).posterior
    _, effective, moved = importance(p, problem, n_draws=4000, seed=0)
    covariance = np.asarray(p.prior.covariance(p.objects, p.objects))
    inverse = np.linalg.inv(covariance + 1e-9 * np.eye(3))
    shrunk = inverse - 0.02 * (inverse - np.asarray(p.gain))
    narrow = Posterior(p.prior, p.objects, p.mean, p.dual, shrunk)
    narrow_k, fewer, _ = importance(narrow, problem, n_draws=4000, seed=0)
    assert effective > 3000
    assert moved < 0.02
    assert fewer < 1000
    assert narrow_k > 0.7


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
