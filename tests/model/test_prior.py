"""The prior of the utilities: a Gaussian process each and perhaps a shared one, with and without object effects."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.kernels import RBF, Linear, Warped
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior, log_density

QUICK = {"xla_backend_optimization_level": 0}


def objects(X, codes):
    return Objects(jnp.asarray(X, dtype=float), jnp.asarray(codes))


@partial(jax.jit, compiler_options=QUICK)
def covariance(prior, first, second):
    return prior.covariance(first, second)


@partial(jax.jit, compiler_options=QUICK)
def gram(kernel, X1, X2):
    return kernel.gram(X1, X2)


FEATURES = np.random.default_rng(0).normal(size=(5, 2))
SOME = objects(FEATURES, [0, 1, 2, 3, 4])
# Object 1 again, an unseen object with the features of object 0, and one that is new in everything.
OTHERS = objects([FEATURES[1], FEATURES[0], [9.0, 9.0]], [1, 10, 11])


def two_utilities(effects):
    """Return a prior whose utilities differ: the second is three times as rough, and twice as variable."""
    smooth, rough = RBF([1.5, 1.5]), RBF([0.5, 0.5], 2.0)
    kernels = jax.tree.map(lambda first, second: np.stack([first, second]), smooth, rough)
    return UtilityPrior(kernels, None if effects is None else np.log([effects, 3 * effects]))


def test_every_utility_has_a_copy_of_the_kernel():
    kernel = RBF(1.5, 0.7) + Linear([1.0, 2.0])
    prior = UtilityPrior.create(kernel, n_features=2, n_utilities=3)
    assert prior.n_utilities == 3
    assert prior.log_effect_variance is None
    assert prior.kernels.first.log_lengthscale.shape == (3, 2)
    assert prior.kernels.first.log_variance.shape == (3,)
    matrices = covariance(prior, SOME, OTHERS)
    assert matrices.shape == (3, 5, 3)
    for matrix in matrices:
        np.testing.assert_allclose(matrix, gram(kernel, SOME.X, OTHERS.X), rtol=1e-13)


def test_a_kernel_that_does_not_fit_the_features_is_refused():
    with pytest.raises(ChoiceGPError, match="3 values of lengthscale, the data have 2 features"):
        UtilityPrior.create(RBF([1.0, 2.0, 3.0]), 2, 1)


def test_every_utility_has_its_own_kernel():
    first, second = covariance(two_utilities(None), SOME, OTHERS)
    np.testing.assert_allclose(first, gram(RBF(1.5), SOME.X, OTHERS.X), rtol=1e-13)
    np.testing.assert_allclose(second, gram(RBF(0.5, 2.0), SOME.X, OTHERS.X), rtol=1e-13)


def test_an_object_effect_belongs_to_an_id_and_never_to_features():
    with_effects, without = two_utilities(0.4), two_utilities(None)
    difference = covariance(with_effects, SOME, OTHERS) - covariance(without, SOME, OTHERS)
    expected = np.zeros((2, 5, 3))
    expected[:, 1, 0] = [0.4, 1.2]  # the same id; the column of the twin of object 0 stays empty
    np.testing.assert_allclose(difference, expected, atol=1e-14)


def test_rows_of_one_id_share_its_effect():
    prior = UtilityPrior.create(RBF(), 1, 1, 0.5)
    twice = objects([[0.0], [3.0], [0.0]], [7, 7, 8])
    difference = covariance(prior, twice, twice)[0] - gram(RBF(), twice.X, twice.X)
    np.testing.assert_allclose(difference, [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.5]], atol=1e-14)


def test_unseen_objects_get_the_variance_of_an_effect_alone():
    prior = two_utilities(0.4)
    new = objects([[0.0, 0.0], [9.0, 9.0]], [10, 11])
    np.testing.assert_allclose(prior.variance(new), [[1.4, 1.4], [3.2, 3.2]], rtol=1e-13)
    without = covariance(two_utilities(None), SOME, new)
    np.testing.assert_allclose(covariance(prior, SOME, new), without, rtol=1e-13)


@pytest.mark.parametrize("effects", [None, 0.4])
@pytest.mark.parametrize("kernel", [RBF(1.5, 0.7), RBF() + Linear(2.0)])
def test_variance_is_the_diagonal_of_the_covariance(kernel, effects):
    prior = UtilityPrior.create(kernel, 2, 2, effects)
    variance = prior.variance(SOME)
    assert variance.shape == (2, 5)
    diagonal = np.diagonal(covariance(prior, SOME, SOME), axis1=1, axis2=2)
    np.testing.assert_allclose(variance, diagonal, rtol=1e-13)


def test_the_covariance_with_effects_is_positive_definite():
    twins = objects(np.repeat(FEATURES, 2, axis=0), np.arange(10))
    with_effects = covariance(UtilityPrior.create(RBF(), 2, 1, 0.3), twins, twins)[0]
    without = covariance(UtilityPrior.create(RBF(), 2, 1), twins, twins)[0]
    assert np.linalg.eigvalsh(with_effects)[0] == pytest.approx(0.3, abs=1e-10)
    assert np.linalg.eigvalsh(without)[0] == pytest.approx(0.0, abs=1e-10)


def test_a_prior_can_be_differentiated():
    prior = jax.tree.map(jnp.asarray, two_utilities(0.4))
    slope = jax.grad(lambda prior: jnp.sum(prior.variance(SOME)))(prior)
    # Five objects, and the derivative of a variance by its logarithm is the variance.
    np.testing.assert_allclose(slope.log_effect_variance, [2.0, 6.0], rtol=1e-12)
    np.testing.assert_allclose(slope.kernels.log_variance, [5.0, 10.0], rtol=1e-12)
    np.testing.assert_allclose(slope.kernels.log_lengthscale, 0.0, atol=1e-14)


def test_a_shared_part_comes_first_and_is_added_to_all():
    prior = UtilityPrior.create(RBF(1.5, 0.7), 2, 3, 0.4, shared=True)
    assert (prior.n_parts, prior.n_utilities) == (4, 3)
    assert prior.kernels.log_variance.shape == prior.log_effect_variance.shape == (4,)
    assert covariance(prior, SOME, OTHERS).shape == (4, 5, 3)
    parts = jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(prior.total(parts), [[2.0, 4.0], [4.0, 6.0], [6.0, 8.0]])


def test_without_a_shared_part_the_parts_are_the_utilities():
    prior = UtilityPrior.create(RBF(1.5, 0.7), 2, 3)
    assert (prior.n_parts, prior.n_utilities) == (3, 3)
    parts = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(prior.total(parts), parts)


def test_whether_a_part_is_shared_is_no_number():
    prior = UtilityPrior.create(RBF(), 2, 2, shared=True)
    assert jax.tree.map(np.asarray, prior).shared
    other = UtilityPrior(prior.kernels, prior.log_effect_variance)
    assert other.n_utilities == 3
    assert jax.tree.structure(other) != jax.tree.structure(prior)


def test_lengthscales_are_expected_to_grow_with_the_number_of_features():
    one, many = HyperPriors(), HyperPriors().for_features(9)
    assert (one.lengthscale, one.variance) == ((0.5, 1.2), (3.0, 3.0))
    assert many.lengthscale == (pytest.approx(0.5 + np.log(3.0)), 1.2)
    assert many._replace(lengthscale=one.lengthscale) == one


@pytest.mark.parametrize("shared", [False, True])
def test_log_density_is_that_of_normal_logarithms(shared):
    hyperpriors = HyperPriors((0.1, 0.9), (1.5, 2.5), (0.0, 2.0), (-1.0, 3.0), (-2.0, 1.5))
    ends = np.array([[-50.0, -3.0], [40.0, 3.0]])
    prior = UtilityPrior.create(Warped(RBF(1.5, 0.7), 0.2, ends), 2, 2, 0.4, shared=shared)
    n = 2 + shared

    def square(value, mean, sd):
        return -0.5 * ((np.log(value) - mean) / sd) ** 2

    wanted = 2 * n * square(1.5, 0.1, 0.9) + n * square(0.7, 1.5, 2.5) + n * square(0.4, -1.0, 3.0)
    wanted += 4 * n * square(0.2, -2.0, 1.5)  # and nothing for the ends, which are not learned
    assert float(log_density(prior, hyperpriors)) == pytest.approx(wanted, rel=1e-12)
