"""Populations of utilities, from which fits start where the posterior has many modes."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import log_ndtr

from choicegp import ChoiceData
from choicegp.inference import populations
from choicegp.inference.coordinates import log_likelihood
from choicegp.inference.populations import population
from choicegp.inference.problem import pose
from choicegp.inference.starts import covariance_at
from choicegp.kernels import RBF
from choicegp.model.prior import UtilityPrior


def posed(n_utilities, n_sets=6, size=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 2))
    shown = [rng.choice(7, size, replace=False) for _ in range(n_sets)]
    data = ChoiceData.from_utilities(X, rng.normal(size=(7, n_utilities)), shown)
    return pose(data, data.X, np.arange(7), effects=False)


def test_the_evidence_of_one_pair_is_found():
    """The difference of two utilities is normal: the probability of the answers is an integral in one dimension."""
    data = ChoiceData.from_pairs([[0.0], [1.0]], [[1, 0]] * 9 + [[0, 1]])
    problem, prior = pose(data, data.X, np.arange(2), effects=False), UtilityPrior.create(RBF(variance=4.0), 1, 1)
    covariance = np.asarray(covariance_at(prior, problem))[0]
    places, weights = hermegauss(80)
    difference = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) * places
    true = np.log(np.exp(9 * log_ndtr(difference) + log_ndtr(-difference)) @ weights / weights.sum())
    found = [population(prior, problem, np.random.default_rng(seed)) for seed in range(16)]
    estimates = np.exp([one.log_evidence for one in found])
    assert np.mean(estimates) == pytest.approx(np.exp(true), rel=0.2), "not biased"
    assert all(one.utilities[0, 1] > one.utilities[0, 0] for one in found)


def test_what_is_left_explains_the_answers():
    problem = posed(2)
    prior = UtilityPrior.create(RBF(variance=9.0), 2, 2, shared=True)
    found = population(prior, problem, np.random.default_rng(3))
    assert found.utilities.shape == (2, len(problem.valid))
    assert np.all(np.isfinite(found.utilities))
    covariance = np.asarray(covariance_at(prior, problem))
    root = np.linalg.cholesky(covariance + 1e-6 * np.eye(covariance.shape[1]))
    drawn = np.einsum("pij,npj->npi", root, np.random.default_rng(0).normal(size=(32, *covariance.shape[:2])))
    before = [float(log_likelihood(prior.total(jnp.asarray(parts)), problem, None)) for parts in drawn]
    assert log_likelihood(found.utilities, problem, None) > max(before)
    assert 0 < found.n_rises < 40
    assert -40.0 < found.log_evidence < 0.0
    again = population(prior, problem, np.random.default_rng(3))
    np.testing.assert_array_equal(found.utilities, again.utilities)
    other = population(prior, problem, np.random.default_rng(4))
    assert not np.array_equal(found.utilities, other.utilities)


def test_answers_that_no_member_explains_at_all_leave_nothing(monkeypatch):
    problem, prior = posed(2), UtilityPrior.create(RBF(), 2, 2, shared=True)
    explained = populations._explained

    def hopeless(places, root, prior, problem):
        logs, utilities = explained(places, root, prior, problem)
        return np.full(len(logs), hopeless.value), utilities

    monkeypatch.setattr(populations, "_explained", hopeless)
    for hopeless.value in (-np.inf, np.nan):
        found = population(prior, problem, np.random.default_rng(0))
        assert found.log_evidence == -np.inf
        assert found.n_rises == 0


def test_a_member_that_explains_nothing_dies_out(monkeypatch):
    problem, prior = posed(2), UtilityPrior.create(RBF(), 2, 2, shared=True)
    explained = populations._explained

    def hopeless(places, root, prior, problem):
        logs, utilities = map(np.array, explained(places, root, prior, problem))
        logs[0] = np.nan
        return logs, utilities

    monkeypatch.setattr(populations, "_explained", hopeless)
    found = population(prior, problem, np.random.default_rng(0))
    assert np.isfinite(found.log_evidence)
    assert found.n_rises > 0


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1.0, 1e4])
def test_the_weight_rises_until_half_of_the_members_count(scale):
    logs = scale * np.random.default_rng(0).normal(size=32) - 1e3
    rise = populations._rise(logs, 1e9)
    shares = np.exp(rise * (logs - logs.max()))
    assert np.sum(shares) ** 2 / np.sum(shares**2) == pytest.approx(16.0, rel=1e-3)
    assert populations._rise(logs, 0.1 * rise) == 0.1 * rise
    assert populations._rise(np.zeros(32), 0.7) == 0.7


def test_members_are_put_into_one_order():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(3, 8))
    members = np.array([one[rng.permutation(3)] for _ in range(10)])
    np.testing.assert_allclose(populations._mean_in_one_order(members), members[0])
    many = rng.normal(size=(4, 9, 2))
    np.testing.assert_allclose(populations._mean_in_one_order(many), many.mean(axis=0))


def test_the_seconds_grow_with_sets_and_utilities():
    few = populations.seconds_of_population(1, posed(1))
    assert populations.seconds_of_population(3, posed(1)) == pytest.approx(3 * few)
    # Numbers of sets are padded to few sizes.
    assert populations.seconds_of_population(1, posed(1, n_sets=200)) > 10 * few
