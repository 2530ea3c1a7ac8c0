"""The Bayesian tests: known answers, brute force over a grid, and baycomp as an oracle."""

import numpy as np
import pytest
from scipy import stats

from choicegp.errors import ChoiceGPError
from choicegp.experiments.bayesian_tests import HierarchicalTest, correlated_t_test, hierarchical_test

RHO = 0.4
N = 5  # data sets: with as many in all tests, the sampler is compiled once


def noise(sd: float, n: int, seed: int) -> np.ndarray:
    """Draw differences with mean zero and exactly that standard deviation, a row per data set."""
    x = np.random.default_rng(seed).normal(size=(N, n))
    x -= x.mean(axis=1, keepdims=True)
    return sd * x / x.std(axis=1, ddof=1, keepdims=True)


def sampled(differences: np.ndarray) -> HierarchicalTest:
    found = hierarchical_test(list(differences), RHO, n_draws=300)
    assert found.rhat < 1.05
    assert found.n_divergent == 0
    np.testing.assert_allclose(found.points.sum(axis=1), 1.0)
    assert found.shares == pytest.approx(np.bincount(found.points.argmax(axis=1), minlength=3) / len(found.points))
    assert found.means == pytest.approx(found.points.mean(axis=0))
    return found


def on_a_grid(differences: np.ndarray, rope: float) -> np.ndarray:
    """Return the probabilities of the three regions on a new data set, by sums over mu_0, sigma_0, nu and mu_i.

    With a flat prior sigma_i integrates to a power of the quadratic form of x_i - mu_i.
    """
    n = differences.shape[1]
    inverse = np.linalg.inv(np.full((n, n), RHO) + (1 - RHO) * np.eye(n))
    centre = differences.mean()
    mu = centre + np.linspace(-0.3, 0.3, 241)
    gaps = differences[:, None, :] - mu[:, None]
    likelihood = np.einsum("qmi,ij,qmj->qm", gaps, inverse, gaps) ** (-(n - 1) / 2)
    likelihood /= likelihood.max(axis=1, keepdims=True)
    # What alpha and beta, uniform, leave of the prior of nu.
    nu, alpha, beta = np.geomspace(0.2, 200, 8), np.linspace(0.5, 5, 20), np.linspace(0.05, 0.15, 10)
    prior = nu * stats.gamma.pdf(nu[:, None, None], alpha[:, None], scale=1 / beta).mean(axis=(1, 2))
    total, mass = np.zeros(3), 0.0
    for weight, df in zip(prior, nu, strict=True):
        for sigma in np.geomspace(0.004, 1.0, 20):
            mu_0 = centre + np.linspace(-0.2, 0.2, 41)
            density = stats.t.pdf(mu, df, mu_0[:, None], sigma)
            own = weight * sigma * np.prod(density @ likelihood.T, axis=1)
            left, right = stats.t.cdf(-rope, df, mu_0, sigma), stats.t.sf(rope, df, mu_0, sigma)
            total += [own @ left, own @ (1 - left - right), own @ right]
            mass += own.sum()
    return total / mass


def test_the_posterior_is_that_of_brute_force():
    differences = np.array([-0.03, 0.01, 0.03, 0.05, 0.08])[:, None] + noise(0.02, 5, seed=0)
    np.testing.assert_allclose(sampled(differences).means, on_a_grid(differences, 0.01), atol=0.025)


def test_a_clear_winner_is_found_though_one_data_set_does_not_vary():
    differences = 0.05 + noise(0.01, 5, seed=1)
    differences[2] = 0.04
    found = sampled(differences)
    assert found.shares.right > 0.98
    assert found.means.right > 0.9
    assert found.data_sets[2].right == 1.0


def test_models_that_differ_by_less_than_the_rope_are_practically_equal():
    found = sampled(np.array([-1, 0, 0, 1, 2])[:, None] * 1e-3 + noise(0.003, 5, seed=2))
    assert found.shares.rope > 0.95
    assert all(own.rope > 0.95 for own in found.data_sets)


def test_where_nothing_varies_all_is_certain():
    assert sampled(np.zeros((N, 4))).shares == (0.0, 1.0, 0.0)


def test_far_apart_each_data_set_has_its_correlated_t_test():
    # Shrinkage is weak where data sets differ much more than repetitions do.
    means = np.array([-0.4, -0.15, 0.015, 0.2, 0.5])
    differences = means[:, None] + noise(0.02, 40, seed=3)
    found = sampled(differences)
    for own, alone in zip(found.data_sets, differences, strict=True):
        np.testing.assert_allclose(own, correlated_t_test(alone, RHO), atol=0.04)
    # Under the flat prior of sigma there is one degree of freedom less.
    scale = 0.02 * np.sqrt(39 / 38 * (1 / 40 + RHO / (1 - RHO)))
    expected = stats.t(38, means, scale).ppf([[0.1], [0.5], [0.9]])
    np.testing.assert_allclose(np.quantile(found.mu, [0.1, 0.5, 0.9], axis=0), expected, atol=0.25 * scale)
    np.testing.assert_allclose(found.mu.std(axis=0), scale, rtol=0.15)


@pytest.mark.parametrize("mean", [-0.05, 0.0, 0.008, 0.012, 0.2])
@pytest.mark.parametrize("n", [5, 10])
def test_the_correlated_t_test_is_that_of_baycomp(mean, n):
    baycomp = pytest.importorskip("baycomp")
    differences = mean + noise(0.02, n, seed=5)[0]
    # Over as many folds as differences, baycomp's correlation is 1 / n.
    expected = baycomp.two_on_single(np.zeros(n), differences, rope=0.01)
    np.testing.assert_allclose(correlated_t_test(differences, 1 / n), expected, atol=1e-12)


@pytest.mark.parametrize(("value", "expected"), [(-0.02, (1, 0, 0)), (0.005, (0, 1, 0)), (0.02, (0, 0, 1))])
def test_equal_differences_leave_no_doubt(value, expected):
    assert correlated_t_test([value] * 3, RHO) == expected
    # Of numbers of any size rounding leaves no spread either.
    large = 1e9 * value * np.array([1.0, 1.0 + 1e-15, 1.0 - 1e-15])
    assert correlated_t_test(large, RHO, rope=1e7) == expected


@pytest.mark.parametrize(
    ("differences", "rho", "rope", "message"),
    [
        ([], 0.4, 0.01, "one data set or more"),
        ([[0.1, 0.2], [0.1]], 0.4, 0.01, "two differences or more"),
        ([[0.1, np.nan]], 0.4, 0.01, "finite"),
        ([[0.1, 0.2]], 1.0, 0.01, "rho = 1.0"),
        ([[0.1, 0.2]], 0.4, 0.0, "rope = 0.0"),
    ],
)
def test_what_cannot_be_tested_is_refused(differences, rho, rope, message):
    with pytest.raises(ChoiceGPError, match=message):
        hierarchical_test(differences, rho, rope)
