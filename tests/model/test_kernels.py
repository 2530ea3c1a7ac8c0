"""Kernels against their formulas written with NumPy, and what fitting needs of them."""

import copy
import dataclasses
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from choicegp.errors import ChoiceGPError
from choicegp.kernels import (
    RBF,
    Additive,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    Sum,
    Warped,
)
from choicegp.model.prior import is_learned, kernel_named

from .conftest import diagonal, gram

# One program per kind of kernel: all tests use the same number of points.
N_POINTS = 20
QUICK = {"xla_backend_optimization_level": 0}
SCALES, PERIODS, VARIANCES = np.array([0.5, 1.0, 3.0]), np.array([1.0, 2.0, 4.0]), np.array([0.3, 1.0, 2.0])


def distance(x, y):
    return np.sqrt(np.sum(((x - y) / SCALES) ** 2))


# Some points are outside these ranges.
ENDS, WEIGHTS = np.array([[-1.0, -0.5, -2.0], [1.5, 0.5, 2.0]]), np.array([[0.1, 0.5, 0.0625], [0.2, 0.3, 2.0]])


def warped(x):
    near = 1e-3 * (ENDS[1] - ENDS[0])
    from_ends = [np.log(1 + np.maximum(part, 0) / near) for part in (x - ENDS[0], ENDS[1] - x)]
    return x + WEIGHTS[0] * from_ends[0] - WEIGHTS[1] * from_ends[1]


FORMULAS = {
    "rbf": (RBF(SCALES, 1.7), lambda x, y: 1.7 * np.exp(-0.5 * distance(x, y) ** 2)),
    "matern12": (Matern12(SCALES, 1.7), lambda x, y: 1.7 * np.exp(-distance(x, y))),
    "matern32": (
        Matern32(SCALES, 1.7),
        lambda x, y: 1.7 * (1 + np.sqrt(3) * distance(x, y)) * np.exp(-np.sqrt(3) * distance(x, y)),
    ),
    "matern52": (
        Matern52(SCALES, 1.7),
        lambda x, y: (
            1.7 * (1 + np.sqrt(5) * distance(x, y) + 5 / 3 * distance(x, y) ** 2) * np.exp(-np.sqrt(5) * distance(x, y))
        ),
    ),
    "linear": (Linear(VARIANCES), lambda x, y: np.sum(VARIANCES * x * y)),
    "periodic": (
        Periodic(SCALES, PERIODS, 1.7),
        lambda x, y: 1.7 * np.exp(-2 * np.sum((np.sin(np.pi * (x - y) / PERIODS) / SCALES) ** 2)),
    ),
    "additive": (
        Additive(SCALES, VARIANCES),
        lambda x, y: np.sum(VARIANCES * np.exp(-0.5 * ((x - y) / SCALES) ** 2)),
    ),
    "sum": (
        RBF(SCALES) + Linear(VARIANCES),
        lambda x, y: np.exp(-0.5 * distance(x, y) ** 2) + np.sum(VARIANCES * x * y),
    ),
    "product": (
        RBF(SCALES) * Linear(VARIANCES),
        lambda x, y: np.exp(-0.5 * distance(x, y) ** 2) * np.sum(VARIANCES * x * y),
    ),
    "warped": (
        Warped(RBF(SCALES), WEIGHTS, ENDS),
        lambda x, y: np.exp(-0.5 * distance(warped(x), warped(y)) ** 2),
    ),
}
STATIONARY = ["rbf", "matern12", "matern32", "matern52", "periodic", "additive"]
every_kernel = pytest.mark.parametrize("name", FORMULAS)


def points(seed=0):
    return np.random.default_rng(seed).normal(size=(N_POINTS, 3))


def points_with_twins():
    """Return points of which the last five repeat the first ones."""
    X = points()
    X[-5:] = X[:5]
    return X


def by_formula(name, X1, X2):
    return np.array([[FORMULAS[name][1](x, y) for y in X2] for x in X1])


def in_single_precision(kernel):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), kernel)


@every_kernel
def test_gram_is_the_formula(name):
    X1, X2 = points(), points(seed=1)
    np.testing.assert_allclose(gram(FORMULAS[name][0], X1, X2), by_formula(name, X1, X2), rtol=1e-12, atol=1e-14)


@every_kernel
def test_gram_is_symmetric_and_positive_semidefinite(name):
    X = points_with_twins()
    matrix = np.asarray(gram(FORMULAS[name][0], X, X))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-13, atol=1e-15)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-13 * np.trace(matrix)


@every_kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_diagonal_is_that_of_gram(name, dtype):
    X = jnp.asarray(20.0 * points(), dtype)
    kernel = FORMULAS[name][0] if dtype is np.float64 else in_single_precision(FORMULAS[name][0])
    own, matrix = diagonal(kernel, X), gram(kernel, X, X)
    assert own.shape == (N_POINTS,)
    assert own.dtype == matrix.dtype == dtype
    np.testing.assert_allclose(own, np.diag(matrix), rtol=4 * float(jnp.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_object_has_no_distance_from_itself(dtype):
    # Short lengthscales, many features: |x|² + |x|² - 2 x·x is rounded far from zero, and its root farther.
    X = jnp.asarray(np.random.default_rng(0).normal(size=(200, 12)), dtype)
    kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), Matern12(0.02).for_features(12))
    np.testing.assert_array_equal(np.diag(gram(kernel, X, X)), 1.0)


@pytest.mark.parametrize("name", STATIONARY)
def test_a_large_offset_of_the_features_changes_nothing(name):
    X1, X2, kernel = points(), points(seed=1), FORMULAS[name][0]
    # The features themselves are rounded to 1e-10 there.
    np.testing.assert_allclose(gram(kernel, X1 + 1e6, X2 + 1e6), by_formula(name, X1, X2), rtol=0, atol=1e-8)
    # In single precision whole numbers lose nothing there.
    X1, X2 = np.round(X1), np.round(X2)
    far = [jnp.asarray(X + 1e6, jnp.float32) for X in (X1, X2)]
    single = gram(in_single_precision(kernel), *far)
    np.testing.assert_allclose(single, by_formula(name, X1, X2), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", STATIONARY)
def test_near_duplicates_keep_their_accuracy(name):
    X = points()
    near = X + 1e-9 * points(seed=1)
    # A distance is a square root: rounding of 1e-16 in its square is 1e-8 in it.
    np.testing.assert_allclose(
        gram(FORMULAS[name][0], X, near),
        by_formula(name, X, near),
        rtol=0,
        atol=1e-6 if "12" in name else 1e-14,
    )


@partial(jax.jit, compiler_options=QUICK)
def weighted_sum(kernel, X, weights):
    """Weighted sum of the covariances, its gradients, and its slope along all parameters in forward mode."""

    def total(kernel, X):
        return jnp.sum(weights * kernel.gram(X, X))

    value, gradients = jax.value_and_grad(total, (0, 1))(kernel, X)
    _, slope = jax.jvp(lambda kernel: total(kernel, X), (kernel,), (jax.tree.map(jnp.ones_like, kernel),))
    return value, gradients, slope


@every_kernel
def test_gradients_are_right_and_finite_at_coincident_points(name):
    X, kernel = points_with_twins(), jax.tree.map(jnp.asarray, FORMULAS[name][0])
    X[5:7] = 0.0
    weights = np.random.default_rng(2).normal(size=(N_POINTS, N_POINTS))
    _, (slopes, by_features), along = weighted_sum(kernel, X, weights)
    assert np.all(np.isfinite(by_features))
    assert float(along) == pytest.approx(sum(float(jnp.sum(slope)) for slope in jax.tree.leaves(slopes)))
    step, (leaves, structure) = 1e-5, jax.tree.flatten(kernel)

    def moved(at, shift):
        changed = [leaf + shift * (place == at) for place, leaf in enumerate(leaves)]
        return float(weighted_sum(jax.tree.unflatten(structure, changed), X, weights)[0])

    for at, (path, slope) in enumerate(jax.tree_util.tree_leaves_with_path(slopes)):
        if not is_learned(path):
            np.testing.assert_array_equal(slope, 0.0)
            continue
        difference = (moved(at, step) - moved(at, -step)) / (2 * step)
        assert float(jnp.sum(slope)) == pytest.approx(difference, rel=1e-6, abs=1e-7)


def test_periodic_repeats():
    kernel = FORMULAS["periodic"][0]
    X = points()
    here = gram(kernel, X, X)
    for periods in (1.0, 7.0):
        np.testing.assert_allclose(gram(kernel, X, X + periods * PERIODS), here, rtol=1e-11)
    assert np.max(np.abs(gram(kernel, X, X + 0.5 * PERIODS) - here)) > 0.5


def test_warped_features_increase_also_outside_their_range_and_where_they_are_constant():
    X = np.linspace(-3.0, 3.0, N_POINTS)[:, None] * np.ones(3)
    kernel = Warped(RBF(SCALES), WEIGHTS, np.array([[-1.0, -0.5, 2.0], [1.5, 0.5, 2.0]]))
    assert np.all(np.diff(kernel.warped(X), axis=0) > 0)


# --- one value per feature -----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [RBF(2.0), Matern12(2.0), Matern32(2.0), Matern52(2.0), Periodic(2.0, 3.0)])
def test_one_lengthscale_is_spread_over_the_features(kernel):
    spread = kernel.for_features(3)
    np.testing.assert_allclose(np.exp(spread.log_lengthscale), [2.0, 2.0, 2.0])
    assert np.ndim(spread.log_variance) == 0
    if isinstance(kernel, Periodic):
        np.testing.assert_allclose(np.exp(spread.log_period), [3.0, 3.0, 3.0])
    X = points()
    np.testing.assert_allclose(gram(spread, X, X), gram(kernel, X, X), rtol=1e-13)
    assert spread.for_features(3) == spread


def test_one_variance_of_a_linear_kernel_is_each_features():
    spread = Linear(0.5).for_features(3)
    np.testing.assert_allclose(np.exp(spread.log_variance), [0.5, 0.5, 0.5])


def test_one_variance_of_an_additive_kernel_is_that_of_the_sum():
    spread = Additive(2.0, 0.6).for_features(3)
    np.testing.assert_allclose(np.exp(spread.log_variance), [0.2, 0.2, 0.2])
    np.testing.assert_allclose(np.exp(Additive(2.0, VARIANCES).for_features(3).log_variance), VARIANCES)
    X = jnp.asarray(points())
    for kernel in (spread, Additive(2.0, 0.6)):  # a kernel that was not spread means the same
        np.testing.assert_allclose(kernel.diagonal(X), 0.6, rtol=1e-14)
        np.testing.assert_allclose(np.diag(kernel.gram(X, X)), 0.6, rtol=1e-14)


def test_the_parts_of_a_kernel_are_spread_too():
    spread = (RBF(2.0) + Additive(3.0) * Linear()).for_features(2)
    np.testing.assert_allclose(np.exp(spread.first.log_lengthscale), [2.0, 2.0])
    np.testing.assert_allclose(np.exp(spread.second.first.log_lengthscale), [3.0, 3.0])
    np.testing.assert_allclose(np.exp(spread.second.second.log_variance), [1.0, 1.0])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF([1.0, 2.0]), "the kernel has 2 values of lengthscale, the data have 3 features"),
        (Linear([1.0, 2.0]), "the kernel has 2 values of variance, the data have 3 features"),
        (Periodic(1.0, [1.0, 2.0]), "the kernel has 2 values of period, the data have 3 features"),
        (Additive(1.0, [1.0] * 4), "the kernel has 4 values of variance, the data have 3 features"),
        (RBF() + RBF([1.0]), "the kernel has 1 values of lengthscale, the data have 3 features"),
    ],
)
def test_another_number_of_values_than_features(kernel, message):
    with pytest.raises(ChoiceGPError, match=message):
        kernel.for_features(3)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0], [[1.0]], [], "long", None, [[1.0], 2.0]])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (RBF, "lengthscale"),
        (Matern32, "lengthscale"),
        (Linear, "variance"),
        (Periodic, "period"),
        (Additive, "variance"),
    ],
)
def test_values_that_are_not_positive_numbers(make, name, value):
    with pytest.raises(ChoiceGPError, match=f"{name} must be a positive number, or one per feature; got"):
        make(**{name: value})


@pytest.mark.parametrize("make", [RBF, Matern12, Periodic])
def test_a_kernel_of_the_distance_has_one_variance(make):
    with pytest.raises(ChoiceGPError, match="variance must be a positive number; got"):
        make(variance=[1.0, 2.0])


# --- kernels as objects --------------------------------------------------------------------------------


def test_sums_and_products_are_written_with_operators():
    first, second = RBF(2.0), Linear()
    assert first + second == Sum(first, second)
    assert first * second == Product(first, second)
    for other in (2.0, "rbf", None):
        with pytest.raises(TypeError):
            first + other
        with pytest.raises(TypeError):
            first * other


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rbf", RBF),
        ("matern12", Matern12),
        ("matern32", Matern32),
        ("matern52", Matern52),
        ("linear", Linear),
        ("periodic", Periodic),
        ("additive", Additive),
    ],
)
def test_kernels_have_names(name, kind):
    assert kernel_named(name) == kind()
    assert type(kernel_named(name)) is kind


def test_a_kernel_names_itself():
    kernel = RBF(2.0)
    assert kernel_named(kernel) is kernel


@pytest.mark.parametrize("name", ["gauss", "RBF", "", None, 3, RBF, ["rbf"]])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(ChoiceGPError, match=r"unknown kernel .*: use one of rbf, matern12, .*, additive or"):
        kernel_named(name)


@every_kernel
def test_kernels_survive_copies(name):
    kernel = FORMULAS[name][0]
    for copied in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert copied == kernel
        assert type(copied) is type(kernel)
    assert kernel != RBF(123.0)


def test_kernels_survive_a_clone_of_their_estimator():
    class Estimator(BaseEstimator):
        def __init__(self, kernel=None):
            self.kernel = kernel

    estimator = Estimator(kernel=RBF([1.0, 2.0]) + Linear())
    cloned = clone(estimator)
    assert cloned.kernel == estimator.kernel
    assert cloned.kernel is not estimator.kernel
    assert clone(cloned.set_params(kernel="rbf")).kernel == "rbf"


def test_kernels_are_immutable_and_hashable():
    kernel = RBF(2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.log_variance = 1.0
    assert {RBF(2.0): "same"}[kernel] == "same"
    assert hash(RBF(2.0) + Linear()) == hash(RBF(2.0) + Linear())


def test_a_kernel_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Kernel()
