"""The prior of the utilities: one Gaussian process each, with and without effects of the objects."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.model.kernels import RBF, Linear
from choicegp.model.prior import Objects, UtilityPrior

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
