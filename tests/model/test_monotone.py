"""The kernel of features with a direction, and how a direction is asked for."""

import jax
import numpy as np
from scipy.stats import norm

from choicegp.model.kernels import RBF
from choicegp.model.monotone import NOISE, Monotone, Ordered

from .conftest import diagonal, gram


def test_a_directed_feature_has_steps_of_its_own_beside_the_others():
    kernel = Monotone(RBF(lengthscale=0.7, variance=2.0), [0.0, -1.0], [-9.0, 0.0], [9e6, 8.0], variance=16.0)
    kernel = kernel.for_features(2)
    rng = np.random.default_rng(0)
    # Steps have a length and a size of one: their covariance is that of a random walk, and of lines at both ends.
    X, Y = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    X[:, 1], Y[:, 1] = [-0.5, 2.0, 3.5], [3.0, 3.25, 9.0, 1.0]
    walk = [[-0.5, -0.5, -0.5, -0.5], [2.0, 2.0, 2.0, 1.0], [3.0, 3.125, 3.5, 1.0]]
    expected = 2.0 * np.exp(-0.5 * (X[:, :1] - Y[:, 0]) ** 2 / 0.49) + np.array(walk)
    np.testing.assert_allclose(gram(kernel, X, Y), expected, rtol=1e-5)
    np.testing.assert_allclose(diagonal(kernel, X), np.diag(gram(kernel, X, X)), rtol=1e-5)


def test_signs_have_no_slope():
    kernel = Monotone(RBF(), [1.0, 0.0], [-1.0, -1.0], [1.0, 1.0]).for_features(2)
    X = np.random.default_rng(1).normal(size=(3, 2))
    slope = jax.jit(jax.grad(lambda kernel: kernel.gram(X, X).sum()))(kernel)
    fixed = (slope.others, slope.columns, slope.signs, slope.low, slope.high, slope.is_there)
    assert not any(np.any(part) for part in fixed)
    assert slope.log_variance[0] > 0.0
    assert kernel.directions() == {0: 1.0}
    assert RBF().directions() == {}


def test_all_features_may_have_a_direction():
    kernel = Monotone(RBF(), [1.0, -1.0], [0.0, 0.0], [8.0, 8.0], variance=16.0).for_features(2)
    X = np.array([[1.0, 3.0], [2.0, 5.0]])
    np.testing.assert_allclose(
        gram(kernel, X, X), [[1.0 + 1.0 + 3.0, 1.0 + 1.0 + 3.0], [5.0, 1.0 + 2.0 + 5.0]], rtol=1e-5
    )


def test_expected_derivatives_of_an_order_agree_with_finite_differences():
    errors, rng = Ordered(), np.random.default_rng(2)
    u = 0.2 * rng.normal(size=(2, 2, 1, 6))
    masks = np.ones((2, 1), bool), np.array([[True], [False]])
    derivatives = jax.jit(errors.expected_derivatives)

    def value(shift: np.ndarray) -> float:
        return float(derivatives(u + shift[:, :, None, None], *masks).value[0])

    found = derivatives(u, *masks)
    assert np.isclose(float(found.value[0]), norm.logcdf((u[:, 0] - u[:, 1]) / NOISE).sum(axis=0).mean())
    assert np.allclose(errors.log_likelihood(u, *masks).mean(), found.value)
    step = 1e-3
    for i, j in np.ndindex(2, 2):
        up = np.zeros((2, 2))
        up[i, j] = step
        assert np.isclose((value(up) - value(-up)) / (2 * step), found.gradient[i, j, 0], rtol=1e-3)
        bend = (value(up) - 2.0 * value(np.zeros((2, 2))) + value(-up)) / step**2
        assert np.isclose(-bend, found.curvature[i, j, j, 0], rtol=1e-2, atol=1e-3)
    assert np.allclose(found.curvature[:, 0, 1], -found.curvature[:, 0, 0])
