"""Utilities with a shared part, u_i = f_0 + f_i, against the algebra of all parts of all objects in one matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from choicegp.inference.coordinates import whiten
from choicegp.inference.dense import N_POINTS, evidence_gradient, target_sites
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.posterior import (
    FIRST_JITTER,
    N_GAUSSIAN,
    Factor,
    _gaussian_duals,
    conclude,
    factorise,
    factorise_on_host,
    gains,
)
from choicegp.inference.sites import Sites, zero_sites
from choicegp.inference.starts import moments_at, recovered_sites
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior

from .conftest import FIXED, T, conditioned, covariance_of, fitted, scored

UTILITIES = [2, 3]


def different(prior, step=0.3):
    """Give every part hyperparameters of its own."""
    return jax.tree.map(lambda leaf: leaf + step * np.arange(len(leaf)).reshape(-1, *[1] * (leaf.ndim - 1)), prior)


def make_sites(d, seed=1):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, T, T))
    return Sites(jnp.asarray(root @ np.swapaxes(root, 1, 2) / T), jnp.asarray(rng.normal(size=(d, T))))


class Whole:
    """Prior times sites over all parts of all objects together: (p t) x (p t) matrices and their inverses."""

    def __init__(self, factor, sites):
        root = np.asarray(factor.root)
        d, self.t = np.shape(sites.linear)
        self.p = len(root)
        self.K = self.blocks(root @ np.swapaxes(root, 1, 2))
        # Utilities are sums of parts: u = A f.
        own = np.eye(d) if self.p == d else np.column_stack([np.ones(d), np.eye(d)])
        self.to_utilities = np.kron(own, np.eye(self.t))
        self.precision = self.blocks(np.asarray(sites.precision))
        self.linear = np.ravel(sites.linear)
        inside = self.to_utilities.T @ self.precision @ self.to_utilities
        self.S = np.linalg.inv(np.linalg.inv(self.K) + inside)
        self.m = self.S @ self.to_utilities.T @ self.linear
        self.log_det_ratio = np.linalg.slogdet(np.eye(len(self.K)) + self.K @ inside)[1]

    def blocks(self, matrices):
        n = len(matrices) * self.t
        out = np.zeros((n, n))
        for i, matrix in enumerate(matrices):
            out[i * self.t : (i + 1) * self.t, i * self.t : (i + 1) * self.t] = matrix
        return out

    def by_part(self, matrix):
        """From (n t, n t) to (n, n, t, t)."""
        n = len(matrix) // self.t
        return np.swapaxes(matrix.reshape(n, self.t, n, self.t), 1, 2)

    @property
    def dual(self):
        return np.linalg.solve(self.K, self.m).reshape(self.p, self.t)

    @property
    def kl(self):
        inverse = np.linalg.inv(self.K)
        fit = self.m @ inverse @ self.m + np.trace(inverse @ self.S) - len(self.K)
        return 0.5 * (fit + self.log_det_ratio)

    @property
    def log_evidence(self):
        return 0.5 * self.linear @ self.to_utilities @ self.m - 0.5 * self.log_det_ratio


@pytest.fixture(scope="module", params=UTILITIES)
def d(request):
    return request.param


@pytest.fixture(scope="module")
def prior(d):
    return different(UtilityPrior.create(RBF(0.7, 2.0), 2, d, 0.2, shared=True))


@pytest.fixture(scope="module")
def factor(prior, problem):
    return factorise_on_host(np.asarray(covariance_of(prior, problem)))


@pytest.fixture(scope="module")
def sites(d):
    return make_sites(d)


@pytest.fixture(scope="module")
def moments(factor, sites):
    return conditioned(factor, sites)


@pytest.fixture(scope="module")
def whole(factor, sites):
    return Whole(factor, sites)


@pytest.fixture(scope="module")
def posterior(prior, problem, factor, sites, d):
    return conclude(prior, problem, factor, sites, quasi_normals(problem, d, 16, seed=3), None).posterior


def test_condition_is_the_algebra_of_all_parts_together(moments, whole, d):
    mean = (whole.to_utilities @ whole.m).reshape(d, T)
    covariance = whole.by_part(whole.to_utilities @ whole.S @ whole.to_utilities.T)
    full = np.asarray(moments.covariance.full(jnp))
    assert full.shape == (d, d, T, T)
    assert np.abs(covariance[0, 1]).max() > 0.05, "utilities with a shared part depend on each other"
    np.testing.assert_allclose(moments.mean, mean, atol=1e-8)
    np.testing.assert_allclose(full, covariance, atol=1e-8)
    rows = np.array([[0, 2], [3, 1], [1, 4]])
    inside = np.moveaxis(covariance[:, :, rows[:, None], rows[None, :]], (2, 3), (2, 3))
    np.testing.assert_allclose(moments.covariance.inside(rows), inside, atol=1e-8)
    np.testing.assert_allclose(moments.dual, whole.dual, atol=1e-7)
    np.testing.assert_allclose(moments.kl, whole.kl, rtol=1e-8)


def test_the_halves_are_those_of_the_shared_part_and_of_the_others_given_it(moments, whole):
    half = np.asarray(moments.half)
    squares = np.swapaxes(half, 1, 2) @ half
    np.testing.assert_allclose(squares[0], whole.by_part(whole.S)[0, 0], atol=1e-8)
    for i in range(1, whole.p):
        own = np.linalg.inv(np.linalg.inv(whole.by_part(whole.K)[i, i]) + whole.by_part(whole.precision)[i - 1, i - 1])
        np.testing.assert_allclose(squares[i], own, atol=1e-8)


def test_gains_are_what_the_choices_take_off_every_part(moments, sites, whole):
    inverse = np.linalg.inv(whole.K)
    taken = whole.by_part(inverse - inverse @ whole.S @ inverse)
    found = np.asarray(gains(moments, sites))
    assert found.shape == (whole.p, T, T)
    for i in range(whole.p):
        np.testing.assert_allclose(found[i], taken[i, i], atol=1e-6)


def test_sites_that_say_nothing_leave_a_prior_with_a_shared_part(factor, prior, problem, d):
    moments = conditioned(factor, zero_sites(d, T))
    K = np.asarray(covariance_of(prior, problem))
    np.testing.assert_array_equal(moments.mean, 0.0)
    np.testing.assert_allclose(moments.kl, 0.0, atol=1e-10)
    for i in range(d):
        for j in range(d):
            np.testing.assert_allclose(moments.covariance.full(jnp)[i, j], K[0] + (i == j) * K[1 + i], atol=1e-7)


def test_a_shared_part_of_no_size_changes_nothing(factor, sites, d):
    tiny = Factor(np.concatenate([1e-7 * factor.root[:1], factor.root[1:]]), *factor[1:])
    alone, beside = conditioned(Factor(*(part[1:] for part in factor)), sites), conditioned(tiny, sites)
    np.testing.assert_allclose(beside.mean, alone.mean, atol=1e-9)
    np.testing.assert_allclose(np.sum(beside.kl), np.sum(alone.kl), rtol=1e-9)
    for i in range(d):
        np.testing.assert_allclose(beside.covariance.full(jnp)[i, i], alone.covariance[i], atol=1e-9)
    np.testing.assert_allclose(beside.dual[1:], alone.dual, atol=1e-9)


@jax.jit
def log_evidence(prior, problem, sites):
    covariance = covariance_of(prior, problem)
    return whiten(factorise(covariance, jnp.full(len(covariance), FIRST_JITTER)).root, sites).log_evidence


def test_log_evidence_is_that_of_all_parts_together(factor, sites, whole):
    np.testing.assert_allclose(whiten(jnp.asarray(factor.root), sites).log_evidence, whole.log_evidence, rtol=1e-9)
    alone = Whole(Factor(*(part[1:] for part in factor)), sites)
    np.testing.assert_allclose(whiten(jnp.asarray(factor.root[1:]), sites).log_evidence, alone.log_evidence, rtol=1e-9)
    assert abs(alone.log_evidence - whole.log_evidence) > 0.1


def test_the_evidence_gradient_is_that_of_the_log_evidence(prior, problem, sites, moments):
    slopes, step = [], 1e-4
    flat, restore = ravel_pytree(prior)
    for j in range(len(flat)):
        up, down = (log_evidence(restore(flat.at[j].add(sign * step)), problem, sites) for sign in (1, -1))
        slopes.append((up - down) / (2 * step))
    gradient = jax.jit(evidence_gradient)(prior, problem, moments, sites)
    wanted = restore(jnp.array(slopes))
    for found, exact in zip(jax.tree.leaves(gradient), jax.tree.leaves(wanted), strict=True):
        # Of the shared part and of every own part.
        assert np.abs(exact).reshape(len(exact), -1).max(axis=1).min() > 0.005
        np.testing.assert_allclose(found, exact, atol=1e-5)


def test_gaussian_draws_have_the_moments_of_all_parts(factor, sites, moments, whole):
    standard = np.random.default_rng(0).normal(size=(40_000, whole.p, T))
    dual = np.asarray(jax.jit(_gaussian_duals)(factor, sites, moments, standard))
    root = np.asarray(factor.root)
    drawn = np.einsum("pij,spj->spi", root @ np.swapaxes(root, 1, 2), dual).reshape(len(dual), -1)
    sd = np.sqrt(np.diagonal(whole.S))
    # Five standard errors of 40,000 draws; a covariance has at most sqrt(2) times the standard error of a mean.
    np.testing.assert_allclose((drawn.mean(axis=0) - whole.m) / sd, 0.0, atol=0.025)
    np.testing.assert_allclose((np.cov(drawn.T) - whole.S) / np.outer(sd, sd), 0.0, atol=0.036)


def test_a_posterior_with_a_shared_part_predicts_by_its_draws(posterior, moments, d):
    assert posterior.draws.dual.shape == (1, N_GAUSSIAN, d + 1, T)
    mean, variance = posterior.mean_and_variance_at(posterior.objects)
    # Pairs of opposite signs have the posterior's mean; variances are those of 256 pairs, of standard error 9 %.
    np.testing.assert_allclose(mean, moments.mean, atol=1e-6)
    np.testing.assert_allclose(posterior.mean_at(posterior.objects), moments.mean, atol=1e-6)
    exact = np.array([np.diagonal(moments.covariance.full(jnp)[i, i]) for i in range(d)])
    np.testing.assert_allclose(variance / exact, 1.0, atol=0.4)
    assert np.mean(np.asarray(variance) / exact) == pytest.approx(1.0, abs=0.08)
    far = Objects(np.full((1, 2), 1e3), np.array([100]))
    np.testing.assert_allclose(posterior.mean_and_variance_at(far)[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(
        posterior.mean_and_variance_at(far)[1], posterior.prior.total(posterior.prior.variance(far)), rtol=1e-9
    )


def test_moments_at_the_shown_objects_are_those_of_the_fit(posterior, moments):
    mean, covariance = moments_at(posterior, posterior.objects)
    # Prediction leaves out the jitter of the fit, 1e-9 of the variance.
    np.testing.assert_allclose(mean, moments.mean, atol=1e-6)
    np.testing.assert_allclose(covariance, moments.covariance.full(jnp), atol=1e-6)


def test_moments_at_other_objects_are_those_of_all_parts_together(posterior, prior, problem, factor, sites, d):
    X = np.random.default_rng(2).normal(size=(4, 2))
    # The first is known, with an effect of its own; the others are new.
    new = Objects(np.vstack([problem.objects.X[:1], X]), np.append(problem.objects.codes[:1], 100 + np.arange(4)))
    whole = Whole(factor, sites)
    cross = np.asarray(prior.covariance(problem.objects, new))
    K = np.asarray(prior.covariance(new, new))
    n = len(new.X)
    inverse = np.linalg.inv(whole.K)
    tall = np.zeros((whole.p * n, whole.p * T))
    own = np.zeros((whole.p * n, whole.p * n))
    for i in range(whole.p):
        tall[i * n : (i + 1) * n, i * T : (i + 1) * T] = cross[i].T
        own[i * n : (i + 1) * n, i * n : (i + 1) * n] = K[i]
    sums = np.kron(np.column_stack([np.ones(d), np.eye(d)]), np.eye(n))
    exact = sums @ (own - tall @ (inverse - inverse @ whole.S @ inverse) @ tall.T) @ sums.T
    mean, covariance = moments_at(posterior, new)
    np.testing.assert_allclose(np.ravel(mean), sums @ tall @ inverse @ whole.m, atol=1e-6)
    np.testing.assert_allclose(covariance, np.swapaxes(exact.reshape(d, n, d, n), 1, 2), atol=1e-6)


def test_recovered_sites_are_those_that_made_the_posterior(posterior, problem, sites):
    found = recovered_sites(posterior, problem)
    np.testing.assert_allclose(found.precision, sites.precision, atol=1e-4)
    np.testing.assert_allclose(found.linear, sites.linear, atol=1e-4)


@pytest.fixture(scope="module")
def shared_fit(problem):
    prior = UtilityPrior.create(RBF(1.5, 2.7), 2, 2, shared=True)
    return fitted(problem, FIXED, prior=prior, tol=1e-2)


def test_a_fit_with_a_shared_part_reaches_its_fixed_point(shared_fit, problem):
    assert shared_fit.status == "converged"
    own_points = quasi_normals(problem, 2, N_POINTS, seed=0)
    K = np.asarray(covariance_of(shared_fit.prior, problem))
    sites, targets = shared_fit.sites, jax.jit(target_sites)
    # Whole steps swing around the fixed point by 0.003 nats; half steps go there.
    for _ in range(60):
        moments = conditioned(shared_fit.factor, sites)
        _, wanted, forces, _ = targets(moments.mean, moments.covariance, problem, own_points, 1.0, None)
        sites = jax.tree.map(lambda old, new: 0.5 * (old + new), sites, wanted)
    np.testing.assert_allclose(moments.dual[1:], forces, atol=1e-6)
    np.testing.assert_allclose(sites.precision, wanted.precision, atol=1e-6)
    # The choices of all utilities pull at the shared part, those of one at its own.
    np.testing.assert_allclose(moments.dual[0], np.sum(forces, axis=0), atol=1e-6)
    parts = np.einsum("pij,pj->pi", K, moments.dual)
    np.testing.assert_allclose(parts[:1] + parts[1:], moments.mean, atol=1e-6)
    settled = conclude(shared_fit.prior, problem, shared_fit.factor, sites, own_points, None).bound
    fits_own = conclude(shared_fit.prior, problem, shared_fit.factor, shared_fit.sites, own_points, None).bound
    assert settled - 0.02 < fits_own


def test_a_warm_start_with_a_shared_part_begins_where_the_fit_ended(shared_fit, problem):
    place = moments_at(shared_fit.posterior, problem.objects)
    again = fitted(problem, FIXED, prior=shared_fit.prior, warm=place)
    assert again.status == "converged"
    assert again.n_iter <= 12
    assert scored(again, problem).bound == pytest.approx(scored(shared_fit, problem).bound, abs=0.05)
