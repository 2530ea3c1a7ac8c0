"""Laplace's approximation: its mode, evidence and derivatives against plain formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr

from choicegp.compute.devices import computing
from choicegp.inference.laplace import Margins, _gain, _margin_variance
from choicegp.inference.laplace import laplace as laplace_uncompiled
from choicegp.model import pair_kernels
from choicegp.model.kernels import RBF, Linear, Matern32
from choicegp.model.pair_kernels import ObjectPairs, PairFeatures

N = 7
# Uncompiled, its loop is traced and compiled again at every call.
laplace = jax.jit(laplace_uncompiled)


@pytest.fixture(params=["values", "differences"])
def case(request):
    """A covariance, margins and the matrix A with s = A f."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 2))
    K = 4.0 * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2))
    if request.param == "values":
        return K, Margins(rng.uniform(0.5, 2.0, N)), np.eye(N)
    first, second = np.triu_indices(N, 1)
    A = np.zeros((len(first), N))
    A[np.arange(len(first)), first], A[np.arange(len(first)), second] = 1.0, -1.0
    return K, Margins(rng.uniform(0.5, 2.0, len(first)), first, second), A


def plain_evidence(K, margins, A):
    """Mode by a general optimiser, evidence by its definition."""
    inverse = np.linalg.inv(K)

    def loss(f):
        return 0.5 * f @ inverse @ f - np.sum(margins.weight * log_ndtr(A @ f))

    f = minimize(loss, np.zeros(len(K)), method="BFGS", options={"gtol": 1e-10}).x
    s = A @ f
    h = np.exp(-0.5 * s * s - log_ndtr(s)) / np.sqrt(2 * np.pi)
    W = A.T @ np.diag(margins.weight * h * (s + h)) @ A
    return f, -loss(f) - 0.5 * np.linalg.slogdet(np.eye(len(K)) + W @ K)[1], W


def test_mode_evidence_and_gain_are_the_plain_ones(case):
    K, margins, _ = case
    f, evidence, W = plain_evidence(*case)
    with computing():
        found, _ = laplace(K, margins, np.zeros(N))
    np.testing.assert_allclose(K @ found.dual, f, atol=2e-5)
    np.testing.assert_allclose(found.evidence, evidence, rtol=1e-6)
    np.testing.assert_allclose(found.gain, W - W @ np.linalg.inv(np.linalg.inv(K) + W) @ W, atol=1e-5)


def test_the_slope_is_the_derivative_of_the_evidence(case):
    K, margins, _ = case
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(N, N))
    direction = turn @ turn.T / N

    with computing():

        def evidence(t):
            return float(laplace(K + t * direction, margins, np.zeros(N))[0].evidence)

        _, slopes = laplace(K, margins, np.zeros(N))
        numeric = (evidence(1e-4) - evidence(-1e-4)) / 2e-4
    assert np.sum(np.asarray(slopes.covariance) * direction) == pytest.approx(numeric, rel=1e-5)


def test_the_start_does_not_matter(case):
    K, margins, _ = case
    with computing():
        one, two = (
            laplace(K, margins, start)[0] for start in (np.zeros(N), np.random.default_rng(1).normal(size=N) * 50)
        )
    np.testing.assert_allclose(one.dual, two.dual, atol=1e-6)


def test_padding_and_a_singular_covariance_change_nothing():
    K = np.array([[2.0, 1.0], [1.0, 3.0]])
    with computing():
        plain, _ = laplace(K, Margins(np.ones(2)), np.zeros(2))
        wide = np.pad(K, ((0, 1), (0, 1)), mode="edge")  # the last point again, without an answer
        padded, _ = laplace(wide, Margins(np.array([1.0, 1.0, 0.0])), np.zeros(3))
    assert float(padded.evidence) == pytest.approx(float(plain.evidence), rel=1e-12)
    np.testing.assert_allclose(padded.dual, [*np.asarray(plain.dual), 0.0], atol=1e-9)


def test_extreme_margins_stay_finite():
    with computing():
        found, slopes = laplace(np.eye(3) * 1e8, Margins(np.ones(3)), np.zeros(3))
    assert np.isfinite(float(found.evidence))
    assert np.isfinite(np.asarray(slopes.covariance)).all()


def pairs_of(n, seed):
    rng = np.random.default_rng(seed)
    return PairFeatures(*(rng.normal(size=(n, 2)) for _ in range(2)))


def test_half_the_order_is_exact_for_pairs_in_both_orders():
    """PairGP: the odd part with doubled answers, and the even part's determinant, are the whole augmented problem."""
    kernel = RBF([0.7, 1.3], 3.0)
    with computing():
        pairs = pairs_of(6, 2)
        both = PairFeatures(*(np.concatenate([a, b]) for a, b in zip(pairs, pairs.swapped, strict=True)))
        twice = RBF([0.7, 1.3, 0.7, 1.3], 3.0)
        stacked = np.concatenate(both, axis=1)
        whole = np.asarray(jax.jit(lambda: twice.gram(stacked, stacked))())
        sign = np.repeat([1.0, -1.0], 6)  # in the other order the answer is the other one
        whole_found, _ = laplace(whole * np.outer(sign, sign), Margins(np.ones(12)), np.zeros(12))
        odd, even = (np.asarray(jax.jit(part)(kernel, pairs, pairs)) for part in (pair_kernels.odd, pair_kernels.even))
        found, slopes = laplace(odd, Margins(np.full(6, 2.0)), np.zeros(6), even)
        f = np.asarray(whole * np.outer(sign, sign) @ np.asarray(whole_found.dual)) * sign
        np.testing.assert_allclose(odd @ np.asarray(found.dual), (f[:6] - f[6:]) / 2, atol=1e-8)
        assert float(found.evidence) == pytest.approx(float(whole_found.evidence), rel=1e-10)

        def evidence(log_variance):
            factor = np.exp(log_variance)
            return float(laplace(odd * factor, Margins(np.full(6, 2.0)), np.zeros(6), even * factor)[0].evidence)

        numeric = (evidence(1e-4) - evidence(-1e-4)) / 2e-4
        total = np.sum(np.asarray(slopes.covariance) * odd) + np.sum(np.asarray(slopes.even) * even)
        assert float(total) == pytest.approx(numeric, rel=1e-5)


def test_the_preference_kernel_is_the_covariance_of_differences():
    with computing():
        kernel, first, second = RBF(1.2, 2.0), pairs_of(4, 0), pairs_of(5, 1)
        objects = np.concatenate([*first, *second])
        gram = np.asarray(jax.jit(lambda: kernel.gram(objects, objects))())
        contrast = np.zeros((9, 18))
        for row in range(4):
            contrast[row, row], contrast[row, 4 + row] = 1.0, -1.0
        for row in range(5):
            contrast[4 + row, 8 + row], contrast[4 + row, 13 + row] = 1.0, -1.0
        expected = (contrast @ gram @ contrast.T)[:4, 4:]
        np.testing.assert_allclose(jax.jit(pair_kernels.preference)(kernel, first, second), expected, atol=1e-12)


def among(kind):
    """The covariance between pairs of few objects, looked up and computed."""
    if kind == "intransitive":
        return pair_kernels.intransitive_among, lambda k, p: pair_kernels.intransitive(k, p.features, p.features)
    number = ("odd", "even").index(kind)
    computed = getattr(pair_kernels, kind)
    return lambda k, p: pair_kernels.odd_and_even_among(k, p)[number], lambda k, p: computed(k, p.features, p.features)


@pytest.mark.parametrize("kind", ["intransitive", "odd", "even"])
@pytest.mark.parametrize("kernel", [RBF([0.8, 1.4], 2.0), Matern32([0.8, 1.4], 2.0), Linear([0.5, 2.0])])
def test_looking_up_the_kernel_of_objects_is_the_kernel_of_pairs(kind, kernel):
    rng = np.random.default_rng(6)
    left, right = rng.integers(0, 5, size=(2, 12))
    weight = rng.normal(size=(12, 12))
    with computing():
        pairs = ObjectPairs(rng.normal(size=(5, 2)), left, right)

        @jax.jit
        def values_and_slopes(kernel):
            values, pull_back = jax.vjp(lambda k: [of(k, pairs) for of in among(kind)], kernel)
            apart = [pull_back([weight, jnp.zeros((12, 12))])[0], pull_back([jnp.zeros((12, 12)), weight])[0]]
            return values, apart

        (looked_up, computed), slopes = values_and_slopes(kernel)
    np.testing.assert_allclose(looked_up, computed, atol=1e-12)
    for found, expected in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_start_may_be_the_mode_of_another_covariance(case):
    K, margins, _ = case
    with computing():
        near = laplace(1.3 * K, margins, np.zeros(N))[0]
        one, two = (laplace(K, margins, start)[0] for start in (np.zeros(N), near.f))
        np.testing.assert_allclose(one.f, K @ one.dual, atol=1e-10)
    np.testing.assert_allclose(one.f, two.f, atol=1e-6)
    assert float(one.evidence) == pytest.approx(float(two.evidence), rel=1e-8)


def test_variances_need_no_product_of_matrices(case):
    K, margins, A = case
    curvature = np.geomspace(1e-3, 1.0, len(A))
    with computing():
        gain, _ = _gain(K, margins, curvature)
        found = _margin_variance(K, gain, margins, curvature)
        np.testing.assert_allclose(found, np.diag(A @ (K - K @ gain @ K) @ A.T), rtol=1e-9)
        faint = np.where(np.arange(len(A)) < 2, [[0.0], [1e-14]], curvature)
        for each in faint:
            gain, _ = _gain(K, margins, each)
            assert np.isfinite(np.asarray(_margin_variance(K, gain, margins, each))).all()


@pytest.mark.parametrize("covariance", [pair_kernels.preference, pair_kernels.intransitive, pair_kernels.odd])
def test_pair_kernels_are_skew_symmetric_and_positive(covariance):
    with computing():
        pairs = pairs_of(8, 4)
        kernel = RBF(0.9)
        compiled = jax.jit(covariance)
        own = np.asarray(compiled(kernel, pairs, pairs))
        np.testing.assert_allclose(compiled(kernel, pairs, pairs.swapped), -own, atol=1e-12)
        assert np.linalg.eigvalsh(own).min() > -1e-10
        gradient = jax.jit(jax.grad(lambda k: jnp.sum(covariance(k, pairs, pairs) ** 2)))(kernel)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(gradient))
