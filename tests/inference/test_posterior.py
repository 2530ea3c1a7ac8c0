"""The posterior against plain NumPy inverses and the textbook formulas of Gaussian processes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.data.packing import padded_generously
from choicegp.inference.dense import target_sites
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.posterior import (
    FIRST_JITTER,
    LAST_JITTER,
    Factor,
    Posterior,
    conclude,
    condition,
    draws_of,
    evidence_bound,
    factorise,
    factorise_on_host,
    prior_covariance,
)
from choicegp.inference.problem import Problem, pose
from choicegp.inference.sites import Sites, zero_sites
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior

D, T = 2, 6
factorise_jitted = jax.jit(factorise)
conditioned = jax.jit(condition)


@pytest.fixture(scope="module")
def problem():
    """Four sets of three out of six objects, of which one or two were chosen."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(T, 2))
    shown = [[0, 1, 2], [3, 4, 5], [0, 2, 4], [1, 3, 5]]
    data = ChoiceData.from_sets(X, shown, [[0], [3, 4], [2], [1]])
    return pose(data, X, np.arange(T), effects=False)


@pytest.fixture(scope="module")
def prior():
    kernel = RBF(lengthscale=1.5, variance=2.0)
    prior = UtilityPrior.create(kernel, 2, D)
    return jax.tree.map(lambda leaf: leaf + 0.2 * np.arange(D).reshape(-1, *[1] * (leaf.ndim - 1)), prior)


@pytest.fixture(scope="module")
def covariance(prior, problem):
    return np.asarray(prior_covariance(prior, problem))


@pytest.fixture(scope="module")
def factor(covariance):
    return factorise_on_host(covariance)


@pytest.fixture(scope="module")
def sites():
    """Sites of full rank, so that they are also observations with noise."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(D, T, T))
    return Sites(
        jnp.asarray(root @ np.swapaxes(root, 1, 2) / T + 0.1 * np.eye(T)), jnp.asarray(rng.normal(size=(D, T)))
    )


@pytest.fixture(scope="module")
def normals(problem):
    return quasi_normals(problem, D, 256, seed=3)


@pytest.fixture(scope="module")
def posterior(prior, problem, factor, sites, normals):
    return conclude(prior, problem, factor, sites, normals, None).posterior


def test_condition_is_the_formula_with_inverses(covariance, factor, sites):
    moments = conditioned(factor, sites)
    for i in range(D):
        K = covariance[i] + FIRST_JITTER * np.trace(covariance[i]) / T * np.eye(T)
        inverse = np.linalg.inv(K)
        S = np.linalg.inv(inverse + np.asarray(sites.precision[i]))
        m = S @ np.asarray(sites.linear[i])
        np.testing.assert_allclose(moments.covariance[i], S, atol=1e-9)
        np.testing.assert_allclose(moments.mean[i], m, atol=1e-9)
        np.testing.assert_allclose(moments.dual[i], inverse @ m, atol=1e-6)
        np.testing.assert_allclose(moments.half[i].T @ moments.half[i], S, atol=1e-9)
        log_determinants = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
        kl = 0.5 * (np.trace(inverse @ S) + m @ inverse @ m - T + log_determinants)
        np.testing.assert_allclose(moments.kl[i], kl, rtol=1e-7)


def test_sites_that_say_nothing_leave_the_prior(covariance, factor):
    moments = conditioned(factor, zero_sites(D, T))
    np.testing.assert_allclose(moments.covariance, covariance, atol=1e-7)
    np.testing.assert_array_equal(moments.mean, 0.0)
    np.testing.assert_allclose(moments.kl, 0.0, atol=1e-12)


def with_smallest_eigenvalue(value, n=8):
    """A matrix of mean variance 1 whose smallest eigenvalue is `value`."""
    orthogonal = np.linalg.qr(np.random.default_rng(0).normal(size=(n, n)))[0]
    values = np.ones(n)
    values[0] = value
    values[1] += 1 - value
    return (orthogonal * values) @ orthogonal.T


@pytest.fixture(params=["jax", "numpy"])
def any_factorise(request):
    if request.param == "numpy":
        return factorise_on_host
    return lambda matrices: factorise_jitted(matrices, jnp.full(len(matrices), FIRST_JITTER))


def test_duplicate_objects_are_factorised_on_the_lowest_rung(any_factorise):
    twice = np.repeat(np.repeat(with_smallest_eigenvalue(0.5, 4), 2, axis=0), 2, axis=1)
    result = any_factorise(np.stack([twice, np.ones((8, 8))]))
    np.testing.assert_allclose(result.jitter, FIRST_JITTER, rtol=1e-9)
    roots = np.asarray(result.root)
    np.testing.assert_allclose(roots @ np.swapaxes(roots, 1, 2), [twice, np.ones((8, 8))], atol=1e-8)


def test_the_ladder_climbs_for_each_utility_by_itself_and_reports_how_far(any_factorise):
    result = any_factorise(np.stack([with_smallest_eigenvalue(value) for value in (0.1, -3e-9, -3e-6)]))
    np.testing.assert_allclose(result.jitter, [1e-9, 1e-8, 1e-5], rtol=1e-9)
    assert np.all(np.isfinite(result.root))


def test_a_hopeless_matrix_ends_the_ladder_with_no_number(any_factorise):
    result = any_factorise(np.stack([with_smallest_eigenvalue(-0.5), np.eye(8)]))
    assert np.all(np.isnan(np.tril(result.root[0])[np.tril_indices(8)]))
    assert result.jitter[0] >= 0.99 * LAST_JITTER
    assert np.all(np.isfinite(result.root[1]))


def test_a_covariance_of_zeros_has_a_factor(any_factorise):
    # A linear kernel on features that are all zero, say.
    result = any_factorise(np.zeros((1, 8, 8)))
    assert np.all(np.isfinite(result.root))
    assert np.abs(result.root).max() < 1e-15


def test_the_posterior_at_the_shown_objects_is_that_of_the_fit(posterior, problem, factor, sites):
    moments = conditioned(factor, sites)
    mean, covariance = posterior.mean_and_covariance_at(problem.objects)
    # Prediction leaves out the jitter of the fit, 1e-9 of the variance.
    np.testing.assert_allclose(mean, moments.mean, atol=1e-7)
    np.testing.assert_allclose(covariance, moments.covariance, atol=1e-7)
    np.testing.assert_allclose(posterior.mean, moments.mean, atol=1e-12)
    assert posterior.n_utilities == D


def test_the_posterior_at_new_objects_is_the_textbooks(posterior, prior, problem, covariance, sites):
    # A site of precision Λ and linear part η is an observation y = Λ^-1 η with noise of covariance Λ^-1.
    X = np.random.default_rng(2).normal(size=(5, 2))
    new = Objects(X, np.arange(5) + 100)
    mean, between = posterior.mean_and_covariance_at(new)
    cross = np.asarray(prior.covariance(problem.objects, new))
    own = np.asarray(prior.covariance(new, new))
    for i in range(D):
        noise = np.linalg.inv(sites.precision[i])
        weights = np.linalg.solve(covariance[i] + noise, cross[i]).T
        np.testing.assert_allclose(mean[i], weights @ noise @ np.asarray(sites.linear[i]), atol=1e-7)
        np.testing.assert_allclose(between[i], own[i] - weights @ cross[i], atol=1e-7)
    means, variances = posterior.mean_and_variance_at(new)
    np.testing.assert_allclose(means, mean, atol=1e-12)
    np.testing.assert_allclose(variances, np.diagonal(between, axis1=1, axis2=2), atol=1e-10)
    np.testing.assert_allclose(posterior.mean_at(new), mean, atol=1e-12)


def test_far_from_all_objects_the_posterior_is_the_prior(posterior, prior):
    far = Objects(np.full((1, 2), 1e3), np.array([100]))
    mean, variance = posterior.mean_and_variance_at(far)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, prior.variance(far), rtol=1e-12)


def test_an_unknown_id_has_the_effects_variance_and_a_known_one_its_own_effect(problem, sites, normals):
    prior = UtilityPrior.create(RBF(), 2, D, effect_variance=0.7)
    factor = factorise_on_host(np.asarray(prior_covariance(prior, problem)))
    posterior = conclude(prior, problem, factor, sites, normals, None).posterior
    known = Objects(problem.objects.X[:1], problem.objects.codes[:1])
    unknown = Objects(problem.objects.X[:1], np.array([100]))
    moments = conditioned(factor, sites)
    mean, variance = posterior.mean_and_variance_at(known)
    np.testing.assert_allclose(mean[:, 0], moments.mean[:, 0], atol=1e-7)
    np.testing.assert_allclose(variance[:, 0], moments.covariance[:, 0, 0], atol=1e-7)
    shared = Objects(jnp.concatenate([known.X, unknown.X]), jnp.concatenate([known.codes, unknown.codes]))
    _, between = posterior.mean_and_covariance_at(shared)
    difference = between[:, 0, 0] + between[:, 1, 1] - 2 * between[:, 0, 1]
    # Equal features: the two differ by their effects alone, of which the unknown one is untouched by the choices.
    assert np.all(difference > 0.7)


def improved(factor, sites, problem, normals, steps):
    """Take natural-gradient steps of size one half, with the hyperparameters held."""
    target = jax.jit(target_sites)
    for _ in range(steps):
        moments = conditioned(factor, sites)
        _, wanted, _, _ = target(moments.mean, moments.covariance, problem, normals, 1.0, None)
        sites = jax.tree.map(lambda old, new: 0.5 * (old + new), sites, wanted)
    return sites


@pytest.fixture(scope="module")
def better_sites(factor, problem, normals):
    """Sites after one step and after eight."""
    one = improved(factor, zero_sites(D, T), problem, normals, 1)
    return one, improved(factor, one, problem, normals, 7)


def test_the_bound_rises_with_better_sites(prior, problem, factor, better_sites):
    fresh = quasi_normals(problem, D, 256, seed=99)
    bounds = [conclude(prior, problem, factor, each, fresh, None).bound for each in (zero_sites(D, T), *better_sites)]
    assert bounds[0] + 0.5 < bounds[1] < bounds[2] - 0.1
    assert bounds[2] < 0


def test_conclude_reports_the_bound_of_its_own_moments(prior, problem, factor, sites, normals):
    result = conclude(prior, problem, factor, sites, normals, None)
    moments = conditioned(factor, sites)
    bound = jax.jit(evidence_bound)(moments.mean, moments.covariance, moments.kl, problem, normals, None)
    np.testing.assert_allclose(result.bound, bound, rtol=1e-12)
    assert isinstance(result.bound, float)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(result.posterior))


def padded(problem):
    """The same problem with two padded objects and three padded sets."""
    objects = Objects(
        np.concatenate([problem.objects.X, problem.objects.X[[0, 0]]]),
        np.concatenate([problem.objects.codes, problem.objects.codes[[0, 0]]]),
    )
    (batch,) = problem.batches
    wide = batch._replace(
        rows=np.column_stack([batch.rows, np.zeros((3, 3), int)]),
        present=np.column_stack([batch.present, np.zeros((3, 3), bool)]),
        chosen=np.column_stack([batch.chosen, np.zeros((3, 3), bool)]),
        weight=np.append(batch.weight, np.zeros(3)),
        sets=np.append(batch.sets, [-1] * 3),
    )
    return Problem(objects, np.append(problem.valid, [False] * 2), (wide,))


def test_padding_changes_nothing(prior, problem, factor, better_sites, normals):
    plain = conclude(prior, problem, factor, better_sites[1], normals, None)
    wide = padded(problem)
    assert (wide.n_objects, wide.n_sets) == (T, 4)
    wide_factor = factorise_on_host(np.asarray(prior_covariance(prior, wide)))
    wide_normals = (np.concatenate([normals[0], np.ones((D, 2, 3, 256))], axis=2),)
    sites = improved(wide_factor, zero_sites(D, T + 2), wide, wide_normals, 8)
    result = conclude(prior, wide, wide_factor, sites, wide_normals, None)
    np.testing.assert_allclose(result.bound, plain.bound, rtol=1e-7)
    assert result.posterior.mean.shape == (D, T)
    # The jitter is a part of the mean variance, to which padding contributes.
    np.testing.assert_allclose(result.posterior.mean, plain.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(result.posterior.dual, plain.posterior.dual, atol=1e-6)
    np.testing.assert_allclose(result.posterior.gain, plain.posterior.gain, atol=1e-6)


def test_padding_is_independent_of_everything(prior, problem):
    K = np.asarray(prior_covariance(prior, padded(problem)))
    np.testing.assert_array_equal(K[:, T:, T:], np.broadcast_to(np.eye(2), (D, 2, 2)))
    assert not np.any(K[:, :T, T:])


def test_weights_count_in_the_bound(prior, problem, factor, sites, normals):
    (batch,) = problem.batches
    double = problem._replace(batches=(batch._replace(weight=2 * batch.weight),))
    once, twice = (conclude(prior, each, factor, sites, normals, None).bound for each in (problem, double))
    kl = float(np.sum(conditioned(factor, sites).kl))
    np.testing.assert_allclose(twice + kl, 2 * (once + kl), rtol=1e-9)


def test_a_posterior_is_a_tree_of_arrays(posterior):
    doubled = jax.tree.map(lambda leaf: 2 * leaf, posterior)
    assert isinstance(doubled, Posterior)
    np.testing.assert_array_equal(doubled.dual, 2 * posterior.dual)
    assert isinstance(factorise_on_host(np.eye(2)[None]), Factor)


def test_draws_of_data_that_grow_need_one_program(prior, monkeypatch):
    sizes, real, rng = set(), UtilityPrior.covariance, np.random.default_rng(0)

    def noted(self, one, other):
        sizes.add((len(one.codes), len(other.codes)))
        return real(self, one, other)

    monkeypatch.setattr(UtilityPrior, "covariance", noted)
    settings = jax.tree.map(lambda leaf: np.asarray(leaf)[None], prior)
    with padded_generously():
        for n in (5, 40):
            objects = Objects(20.0 * rng.normal(size=(n, 2)), np.arange(n))
            draws = draws_of(settings, objects, np.zeros((1, 3, prior.n_parts, n)))
            own = np.asarray(real(prior, objects, objects))
            assert draws.inverse.shape == (1, prior.n_parts, n, n)
            assert np.allclose(draws.inverse[0] @ own, np.eye(n), atol=1e-3)
    assert sizes == {(64, 64)}
