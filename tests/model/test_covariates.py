"""The kernel of people who differ by their covariates."""

import numpy as np

from choicegp.model.covariates import OfPeople
from choicegp.model.kernels import RBF

from .conftest import diagonal, gram


def test_alike_people_share_more_and_everyone_shares_something():
    kernel = OfPeople(RBF(lengthscale=0.7, variance=2.0), 2, 2, ratio=3.0, lengthscale=0.5)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    of_objects = 2.0 * np.exp(-0.5 * np.sum((X[:, None, :2] - Y[None, :, :2]) ** 2, axis=2) / 0.49)
    of_people = np.exp(-0.5 * np.sum((X[:, None, 2:] - Y[None, :, 2:]) ** 2, axis=2) / 0.25)
    np.testing.assert_allclose(gram(kernel, X, Y), of_objects * (1.0 + 3.0 * of_people) / 4.0, rtol=1e-5)
    np.testing.assert_allclose(diagonal(kernel, X), np.full(3, 2.0), rtol=1e-6)


def test_an_average_person_has_no_covariates():
    kernel = OfPeople(RBF(), 1, 2)
    average = np.array([[0.3, 0.0, 0.0]])
    someone = np.array([[1.0, 0.5, -0.2]])
    np.testing.assert_array_equal(kernel.gram(average[:, :1], someone), kernel.gram(average, someone))
