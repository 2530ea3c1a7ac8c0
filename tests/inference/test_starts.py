"""Starts from a posterior of one utility less or more, with and without a shared part."""

import equinox as eqx
import jax
import numpy as np
import pytest

from choicegp.inference.dense import DenseInference
from choicegp.inference.driver import Task, Watch, run
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.posterior import conclude, factorise_on_host
from choicegp.inference.sites import Sites
from choicegp.inference.starts import grown_starts, moments_at, neighbouring_starts, shrunk_starts
from choicegp.model.kernels import RBF
from choicegp.model.likelihood import log_likelihood
from choicegp.model.prior import Objects, UtilityPrior

from .conftest import LEARN, Clock, T, conditioned, covariance_of, fitted


def made(d, *, shared, effect=0.2):
    prior = UtilityPrior.create(RBF(1.5, 2.7), 2, d, effect, shared=shared)
    return jax.tree.map(lambda leaf: leaf + 0.3 * np.arange(len(leaf)).reshape(-1, *[1] * (leaf.ndim - 1)), prior)


def posterior_of(prior, problem, seed=0):
    """Any sites do: they need not be those of a fit."""
    rng = np.random.default_rng(seed)
    d = prior.n_utilities
    root = rng.normal(size=(d, T, T))
    factor = factorise_on_host(np.asarray(covariance_of(prior, problem)))
    sites = Sites(root @ np.swapaxes(root, 1, 2) / T, rng.normal(size=(d, T)))
    return sites, conclude(prior, problem, factor, sites, quasi_normals(problem, d, 16, seed=3), None).posterior


def mean_at_start(start, problem):
    factor = factorise_on_host(np.asarray(covariance_of(start.prior, problem)))
    return np.asarray(conditioned(factor, start.sites).mean)


def rows_of(prior, rows):
    return [np.asarray(leaf)[rows] for leaf in jax.tree.leaves(prior)]


def assert_rows(prior, rows, other, other_rows, shift=0.0):
    for ours, theirs in zip(rows_of(prior, rows), rows_of(other, other_rows), strict=True):
        np.testing.assert_allclose(ours, theirs + shift, atol=1e-12)


def test_one_utility_grows_to_two_with_a_shared_part(problem):
    small, fresh = made(1, shared=False), made(2, shared=True)
    sites, posterior = posterior_of(small, problem)
    copied, empty = grown_starts(posterior, fresh, problem)
    for start in (copied, empty):
        assert start.prior.shared
        assert (start.prior.n_utilities, start.prior.n_parts) == (2, 3)
        np.testing.assert_allclose(start.sites.precision[0], sites.precision[0], atol=1e-4)
        np.testing.assert_allclose(start.sites.linear[0], sites.linear[0], atol=1e-4)
        # Half of the variance of the only utility each: its sum has the prior that it had.
        np.testing.assert_allclose(start.prior.kernels.log_variance[:2], small.kernels.log_variance[0] - np.log(2.0))
        np.testing.assert_array_equal(start.prior.kernels.log_lengthscale[0], small.kernels.log_lengthscale[0])
        np.testing.assert_array_equal(start.prior.kernels.log_lengthscale[1], small.kernels.log_lengthscale[0])
    assert_rows(copied.prior, [2], copied.prior, [1])
    np.testing.assert_allclose(copied.sites.precision[1], copied.sites.precision[0])
    np.testing.assert_allclose(copied.sites.linear[1], copied.sites.linear[0])
    assert_rows(empty.prior, [2], fresh, [1])
    assert not np.any(empty.sites.precision[1])
    assert not np.any(empty.sites.linear[1])
    # Equal sites and equal priors: the copies coincide.
    mean = mean_at_start(copied, problem)
    np.testing.assert_allclose(mean[0], mean[1], atol=1e-8)


def test_the_prior_of_a_sole_utility_is_kept_when_it_gets_a_shared_part(problem):
    # Its object effects too are a part of the variance.
    small, fresh = made(1, shared=False), made(2, shared=True)
    _, posterior = posterior_of(small, problem)
    (_, empty) = grown_starts(posterior, fresh, problem)
    parts = np.asarray(covariance_of(empty.prior, problem))
    np.testing.assert_allclose(parts[0] + parts[1], np.asarray(covariance_of(small, problem))[0], atol=1e-9)
    np.testing.assert_allclose(mean_at_start(empty, problem)[0], posterior.mean[0], atol=1e-4)


@pytest.mark.parametrize("shared", [False, True])
def test_two_utilities_grow_to_three(problem, shared):
    small, fresh = made(2, shared=shared), made(3, shared=shared)
    sites, posterior = posterior_of(small, problem)
    starts = grown_starts(posterior, fresh, problem)
    assert len(starts) == 3
    for start, source in zip(starts, (0, 1, None), strict=True):
        assert start.prior.shared is shared
        assert start.prior.n_utilities == 3
        assert_rows(start.prior, slice(0, small.n_parts), small, slice(None))
        if source is None:
            assert_rows(start.prior, [-1], fresh, [int(shared)])
            assert not np.any(start.sites.precision[2])
        else:
            assert_rows(start.prior, [-1], small, [source + shared])
            np.testing.assert_allclose(start.sites.precision[2], sites.precision[source], atol=1e-4)
            np.testing.assert_allclose(start.sites.linear[2], sites.linear[source], atol=1e-4)


def test_a_utility_without_sites_is_the_shared_part_alone(problem):
    small, fresh = made(2, shared=True), made(3, shared=True)
    _, posterior = posterior_of(small, problem)
    mean = mean_at_start(grown_starts(posterior, fresh, problem)[-1], problem)
    np.testing.assert_allclose(mean[:2], posterior.mean, atol=1e-4)
    K = np.asarray(covariance_of(small, problem))[0]
    np.testing.assert_allclose(mean[2], K @ posterior.dual[0], atol=1e-4)


@pytest.mark.parametrize("larger", [0, 1, 2])
def test_two_utilities_with_a_shared_part_shrink_to_one_without(problem, larger):
    prior = made(2, shared=True)
    prior.kernels.log_variance[:] = np.where(np.arange(3) == larger, 3.0, 1.0)
    sites, posterior = posterior_of(prior, problem)
    starts = shrunk_starts(posterior, problem)
    assert len(starts) == 2
    for left_out, start in enumerate(starts):
        kept = 1 - left_out
        assert not start.prior.shared
        assert start.prior.n_utilities == start.prior.n_parts == 1
        # The larger of the shared part and one's own; of equal ones the shared part.
        assert_rows(start.prior, [0], prior, [1 + kept if larger == 1 + kept else 0])
        np.testing.assert_allclose(start.sites.precision, sites.precision[[kept]], atol=1e-4)
        np.testing.assert_allclose(start.sites.linear, sites.linear[[kept]], atol=1e-4)
        assert np.all(np.isfinite(mean_at_start(start, problem)))


@pytest.mark.parametrize("shared", [False, True])
def test_three_utilities_shrink_to_two(problem, shared):
    prior = made(3, shared=shared)
    sites, posterior = posterior_of(prior, problem)
    for left_out, start in enumerate(shrunk_starts(posterior, problem)):
        kept = [i for i in range(3) if i != left_out]
        assert start.prior.shared is shared
        rows = [0, *(1 + i for i in kept)] if shared else kept
        assert_rows(start.prior, slice(None), prior, rows)
        np.testing.assert_allclose(start.sites.precision, sites.precision[kept], atol=1e-4)


def test_the_moments_of_draws_at_inducing_points_are_those_of_the_posterior(problem, monkeypatch):
    """A sparse posterior, as which the dense one may be seen too, has draws alone to say how its parts depend."""
    monkeypatch.setattr("choicegp.inference.posterior.N_GAUSSIAN", 2**14)
    posterior = posterior_of(made(2, shared=True), problem)[1]
    X, codes = posterior.objects[:2]
    sparse = eqx.tree_at(lambda p: p.objects, posterior, Objects(np.stack([X] * 3), codes))
    some = Objects(X + 0.1, codes)
    (mean, covariance), (wanted, exact) = moments_at(sparse, some), moments_at(posterior, some)
    np.testing.assert_allclose(mean, wanted, atol=1e-5)
    np.testing.assert_allclose(covariance, exact, atol=0.05 * np.max(exact))


def test_neighbours_are_grown_or_shrunk(problem):
    one, two = (posterior_of(made(d, shared=d > 1), problem)[1] for d in (1, 2))
    assert [start.prior.n_utilities for start in neighbouring_starts(one, two.prior, problem)] == [2, 2]
    assert [start.prior.n_utilities for start in neighbouring_starts(two, one.prior, problem)] == [1, 1]


def test_a_fit_continues_from_neighbours_in_both_directions(problem):
    """As far as random starts go, or nearly: eight sets say little, and there are several optima."""
    fits = {d: fitted(problem, LEARN, prior=made(d, shared=d > 1, effect=None), n_starts=3) for d in (1, 2)}
    for d, other in ((1, 2), (2, 1)):
        starts = neighbouring_starts(fits[other].posterior, fits[d].prior, problem)
        task = Task(fits[d].prior, problem, LEARN, Watch(Clock(None)), 1, 150)
        inference = DenseInference(task, grown=starts)
        found = inference.conclude(*run(inference))
        assert found.status == "converged"
        assert found.n_annealing == 0
        assert found.posterior.n_utilities == d
        assert found.prior.shared == (d > 1)
        assert found.elbo > fits[d].elbo - 3.0


def test_a_copy_begins_where_the_smaller_model_ended_and_a_utility_of_zero_does_not():
    # The same choice of one object of two, sure by one utility.
    both, first = np.array([True, True]), np.array([True, False])
    sure = np.array([[2.99, 0.0]])
    values = [
        float(jax.jit(log_likelihood)(u, both, first))
        for u in (sure, np.concatenate([sure, sure]), np.concatenate([sure, np.zeros((1, 2))]))
    ]
    np.testing.assert_allclose(values, [-0.0014, -0.0028, -0.694], atol=6e-4)
