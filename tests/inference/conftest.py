"""What the tests of dense inference share: problems of one shape (twelve objects, eight sets of three, two utilities),
so that one program is compiled for them."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.compute.progress import Clock
from choicegp.inference.dense import DenseInference
from choicegp.inference.driver import Learning, Task, Watch, run
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.posterior import conclude, condition, prior_covariance
from choicegp.inference.problem import pose
from choicegp.model.kernels import RBF
from choicegp.model.prior import HyperPriors, UtilityPrior

T, M, A, D = 12, 8, 3, 2
LEARN = Learning(HyperPriors())
FIXED = Learning(None, learn_prior=False)
conditioned = jax.jit(condition)
covariance_of = jax.jit(prior_covariance)


def make_prior(lengthscale=1.5, variance=2.7, n_utilities=D, n_features=2):
    return UtilityPrior.create(RBF(lengthscale, variance), n_features, n_utilities)


def make_data(X=None, seed=0):
    """Every object is shown in two sets of three; the choices follow two smooth utilities."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(T, 2))
    U = 2 * np.column_stack([np.sin(drawn[:, 0]) + 0.5 * drawn[:, 1], np.cos(drawn[:, 1]) - 0.3 * drawn[:, 0]])
    shown = [one for _ in range(2) for one in rng.permutation(T).reshape(M // 2, A)]
    data = ChoiceData.from_utilities(drawn, U, shown)
    return data if X is None else ChoiceData.from_sets(X, data.shown, data.chosen)


def posed(data):
    return pose(data, data.X, np.arange(len(data.X)), effects=False)


def fitted(problem, learning=LEARN, prior=None, *, warm=None, clock=None, report=None, **options):
    watch = Watch(clock or Clock(None), report)
    task = Task(prior or make_prior(), problem, learning, watch, **{"n_starts": 1, "max_iter": 150} | options)
    inference = DenseInference(task, warm)
    return inference.conclude(*run(inference))


def scored(fit, problem, seed=77, n_points=1024):
    points = quasi_normals(problem, fit.prior.n_utilities, n_points, seed)
    return conclude(fit.prior, problem, fit.factor, fit.sites, points, fit.posterior.lapse)


def assert_usable(fit, problem):
    """Assert that a fit and what is predicted from it are numbers, and that the posterior is a distribution."""
    assert fit.status in ("converged", "stopped"), fit.message
    result = scored(fit, problem)
    assert np.isfinite(result.bound)
    for leaf in jax.tree.leaves((fit.prior, fit.factor, fit.sites, result.posterior)):
        assert np.all(np.isfinite(leaf))
    mean, covariance = result.posterior.mean_and_covariance_at(result.posterior.objects)
    assert np.all(np.isfinite(mean))
    prior_variance = np.asarray(fit.prior.variance(result.posterior.objects))
    smallest = np.linalg.eigvalsh(np.asarray(covariance)).min(axis=1)
    assert np.all(smallest > -1e-6 * prior_variance.max(axis=1))
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    assert np.all(variance <= prior_variance * (1 + 1e-6))


@pytest.fixture(scope="package")
def problem():
    problem = posed(make_data())
    assert [batch.rows.shape for batch in problem.batches] == [(A, M)]
    assert len(problem.valid) == T
    return problem


@pytest.fixture(scope="package")
def learned(problem):
    return fitted(problem)


@pytest.fixture(scope="package")
def converged(problem):
    """A fit with the hyperparameters held, taken as far as it goes."""
    return fitted(problem, FIXED, tol=1e-9)
