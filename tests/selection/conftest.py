"""What the tests of selection share: a posterior at given hyperparameters."""

from typing import NamedTuple

import numpy as np

from choicegp import ChoiceData
from choicegp.compute.progress import Clock
from choicegp.datasets.simulated import gp_utilities
from choicegp.inference import dense
from choicegp.inference.driver import Learning, Task, Watch, infer
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import Problem, pose
from choicegp.inference.starts import moments_at
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior

FIXED = Learning(None, learn_prior=False)


class Case(NamedTuple):
    """Choices, and the posterior of given hyperparameters."""

    data: ChoiceData
    objects: Objects
    problem: Problem
    posterior: Posterior


def posed(data: ChoiceData) -> Problem:
    return pose(data, data.X, np.arange(len(data.X)), effects=False)


def fit_fixed(data: ChoiceData, prior: UtilityPrior, warm: Posterior | None = None, lapse: float = 0.0) -> Posterior:
    """Fit with the hyperparameters of ``prior``, annealed or from an earlier posterior, on many points."""
    problem = posed(data)
    start = None if warm is None else moments_at(warm, problem.objects)
    few, dense.N_POINTS = dense.N_POINTS, 64
    try:
        steps = 200 if warm is None else 60
        task = Task(prior, problem, FIXED, Watch(Clock(None)), 1, steps, tol=2e-3, lapse=lapse, seed=5)
        return infer(dense.DenseInference(task, start)).posterior
    finally:
        dense.N_POINTS = few


def often_shown(n_objects: int, n_sets: int, size: int, n_utilities: int) -> ChoiceData:
    """Draw choices in which every object is shown twice at least: without a set the shapes stay the same."""
    for seed in range(1000):
        data = gp_utilities(n_objects, 2, n_utilities, n_sets, size, random_state=seed).data
        if np.bincount(data.flat_shown, minlength=n_objects).min() >= 2:
            return data
    raise AssertionError("no such data")


def make_case(size: int, n_utilities: int, n_objects: int, n_sets: int, *, shared: bool = False) -> Case:
    data = often_shown(n_objects, n_sets, size, n_utilities)
    prior = UtilityPrior.create(RBF(1.0, 8.0), 2, n_utilities, shared=shared)
    posterior = fit_fixed(data, prior)
    return Case(data, Objects(data.X, np.arange(n_objects)), posed(data), posterior)
