"""Kernels of a network's outputs."""

import jax
import numpy as np

from choicegp.kernels import RBF, Linear, Mapped
from choicegp.model.mapped import Network

from .conftest import diagonal, gram


def network() -> Network:
    return Network.create(3, 8, 2, np.random.default_rng(0))


def test_covariances_are_those_of_features_and_outputs():
    X = np.random.default_rng(1).normal(size=(6, 3))
    inner = RBF([1.0, 2.0, 3.0, 0.5, 0.7]) + Linear([0.1, 0.2, 0.3, 0.4, 0.5])
    kernel = Mapped(inner, network()).for_features(3)
    beside = np.concatenate([X, np.asarray(network()(X))], axis=1)
    np.testing.assert_allclose(gram(kernel, X, X[:4]), gram(inner, beside, beside[:4]), rtol=1e-6)
    np.testing.assert_allclose(diagonal(kernel, X), np.diag(gram(kernel, X, X)), rtol=1e-6)


def test_the_network_is_not_learned_and_the_kernel_is():
    X = np.random.default_rng(1).normal(size=(6, 3))
    kernel = Mapped(RBF(), network()).for_features(3)
    slope = jax.jit(jax.grad(lambda kernel: kernel.gram(X, X)[0, 1]))(kernel)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(slope.network))
    assert np.all(np.asarray(slope.kernel.log_lengthscale) != 0.0)


def test_standardized_outputs_have_unit_size_and_are_the_same_up_to_scale():
    X = np.random.default_rng(2).normal(size=(50, 3))
    unit, sizes = network().standardized(X)
    outputs, before = np.asarray(unit(X)), np.asarray(network()(X))
    np.testing.assert_allclose(outputs.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(outputs.std(axis=0), 1.0, rtol=1e-6)
    np.testing.assert_allclose(outputs * sizes, before - before.mean(axis=0), atol=1e-5)
