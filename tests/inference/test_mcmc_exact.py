"""The sampler against importance sampling from the prior, of utilities and hyperparameters together."""

from typing import NamedTuple

import numpy as np
import pytest
from arviz_stats.base import array_stats
from jax.flatten_util import ravel_pytree
from scipy.special import ndtr

from choicegp import ChoiceData
from choicegp.compute.progress import Clock
from choicegp.inference.driver import Task, Watch, run
from choicegp.inference.mcmc import N_CHAINS, MCMCInference
from choicegp.inference.posterior import FIRST_JITTER
from choicegp.model.kernels import RBF
from choicegp.model.likelihood import FLOOR
from choicegp.model.prior import HyperPriors, UtilityPrior

from .conftest import Learning, fitted, posed

X = np.array([[0.0], [0.5], [1.1], [1.9], [2.4]])
SINGLE = {(0, 1): (0,), (1, 2): (2,), (2, 3): (2,), (0, 4): (4,), (1, 4): (4,), (3, 4): (4,)}
BOTH = {(0, 2): (0, 2)}
HYPERPRIORS = HyperPriors(lengthscale=(0.0, 0.7), variance=(1.0, 1.0))
N_PRIOR = 200_000


class Exact(NamedTuple):
    """Draws from the prior, with weights."""

    utilities: np.ndarray  # (n, d, t)
    log_hyper: np.ndarray  # (n, 2 p): lengthscales, then variances, of the parts
    weight: np.ndarray  # (n,)


def from_the_prior(d, shared, choices):
    rng = np.random.default_rng(0)
    means, sds = zip(HYPERPRIORS.lengthscale, HYPERPRIORS.variance, strict=True)
    logs = np.array(means)[:, None] + np.array(sds)[:, None] * rng.normal(size=(N_PRIOR, 2, d + shared))
    lengthscale, variance = np.moveaxis(np.exp(logs), 1, 0)[..., None, None]
    K = variance * (np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + FIRST_JITTER * np.eye(5))
    parts = (np.linalg.cholesky(K) @ rng.normal(size=(N_PRIOR, d + shared, 5, 1)))[..., 0]
    u = parts[:, :1] + parts[:, 1:] if shared else parts
    log_p = np.zeros(N_PRIOR)
    for (i, j), chosen in choices.items():
        z = u[:, :, i] - u[:, :, j]
        first, second = ndtr(z).prod(axis=1), ndtr(-z).prod(axis=1)
        p = 1.0 - first - second if len(chosen) == 2 else first if chosen == (i,) else second
        log_p += np.log(np.maximum(p, 0.0) + FLOOR)
    weight = np.exp(log_p - log_p.max())
    return Exact(u, logs.reshape(N_PRIOR, -1), weight / weight.sum())


def features(utilities, log_hyper, d):
    """What is compared, (..., k): the same for every order of the utilities, which no choice tells."""
    differences = utilities[..., 1:] - utilities[..., :1]
    beats = [ndtr(utilities[..., i] - utilities[..., j]).prod(axis=-1) for i, j in ((0, 4), (3, 1), (2, 4))]
    kinds = log_hyper.reshape(*log_hyper.shape[:-1], 2, -1)
    own = kinds[..., -d:].mean(axis=-1)
    means = np.arctan(differences.mean(axis=-2) / 3.0)  # tails as heavy as these have no reliable averages
    spread = np.arctan(np.ptp(differences, axis=-2) / 3.0)
    first = kinds[..., 0]  # of the shared part, where there is one
    return np.concatenate([means, spread, np.stack(beats, axis=-1), own, first], axis=-1)


@pytest.mark.parametrize(
    ("d", "shared", "choices"), [(1, False, SINGLE), (2, False, SINGLE | BOTH), (2, True, SINGLE | BOTH)]
)
def test_means_are_those_of_importance_sampling(d, shared, choices):
    exact = from_the_prior(d, shared, choices)
    theirs = features(exact.utilities, exact.log_hyper, d)
    mean = exact.weight @ theirs
    sd = np.sqrt(exact.weight @ (theirs - mean) ** 2)
    n_effective = 1.0 / np.sum(exact.weight**2)
    assert n_effective > 400

    problem = posed(ChoiceData.from_sets(X, [*map(list, choices)], [*map(list, choices.values())]))
    learning = Learning(HYPERPRIORS)
    fit = fitted(problem, learning, prior=UtilityPrior.create(RBF(1.0, 3.0), 1, d, shared=shared))
    inference = MCMCInference(Task(fit.prior, problem, learning, Watch(Clock(None)), 1, 3000, n_jobs=2), fit, 300, 0.8)
    state, verdict = run(inference)
    fit_hyper = np.asarray(ravel_pytree(fit.prior)[0])
    assert verdict.status == "converged", verdict.message
    assert state.n_divergent < 0.02 * N_CHAINS * state.n_draws
    n, scale = problem.n_objects, np.asarray(inference.model.approximation.scale)
    u = np.array([[block.utilities[..., :n] for block in of_all] for of_all in state.blocks])
    log_hyper = np.array([[fit_hyper + block.hyper @ scale.T for block in of_all] for of_all in state.blocks])
    ours = features(u, log_hyper, d).mean(axis=2)  # of each block, (n, c, k)
    errors = np.array([
        np.hypot(
            one.std() / np.sqrt(min(array_stats.ess(one, chain_axis=1, draw_axis=0), one.size)),
            spread / np.sqrt(n_effective),
        )
        for one, spread in zip(np.moveaxis(ours, 2, 0), sd, strict=True)
        if spread > 0
    ])  # fmt: skip
    wrong = (ours.mean(axis=(0, 1)) - mean)[sd > 0]
    # Four standard errors, none of which is more than a third of a posterior standard deviation, most below a tenth.
    assert np.all(errors < sd[sd > 0] / 3)
    assert np.median(errors / sd[sd > 0]) < 0.1
    assert np.all(np.abs(wrong) < 4 * errors), (wrong / errors).round(1)
