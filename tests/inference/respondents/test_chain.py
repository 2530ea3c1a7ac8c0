"""Chains over the utilities of people and hyperparameters, where the answer is known: without answers, the prior."""

import contextlib

import jax
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.compute.progress import Clock
from choicegp.inference.driver import Learning, Task, Watch
from choicegp.inference.respondents import sampling
from choicegp.inference.respondents.chain import StudyChainModel, Walk, drawn, log_joint, moved, turned
from choicegp.inference.respondents.course import InferredStudy
from choicegp.inference.respondents.sampling import (
    SampledState,
    StudySampling,
    hyperparameters,
    sampled_of,
    with_draws,
)
from choicegp.inference.respondents.steps import Population
from choicegp.inference.respondents.study import StudyAnswers, studied
from choicegp.inference.respondents.whitening import Coordinates
from choicegp.inference.sites import Sites
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior

HYPERPRIORS = HyperPriors(lengthscale=(0.0, 0.3), variance=(0.5, 0.3), ratio=(-1.0, 0.3))


@pytest.fixture(scope="module")
def unheard():
    """Return two people whose answers have no weight, and a fit whose sites are wrong."""
    rng = np.random.default_rng(0)
    objects = Objects(rng.normal(size=(4, 1)), np.arange(4))
    shown, people = [[0, 1, 2], [1, 2, 3], [0, 3, 1], [2, 1, 0]], np.array([0, 0, 1, 1])
    data = ChoiceData.from_sets(objects.X, shown, [rows[:1] for rows in shown], respondents=people)
    study = studied(objects, objects, StudyAnswers(data, data.flat_shown, people, -1, DISCERNIBILITY), 2, 1)
    crowds = tuple(
        crowd._replace(sets=tuple(batch._replace(weight=np.zeros_like(batch.weight)) for batch in crowd.sets))
        for crowd in study.crowds
    )
    sites = []
    for crowd in crowds:
        k, r, n = crowd.rows.shape
        root = rng.normal(size=(k, r, 1, n, n))
        sites.append(Sites(0.05 * root @ np.swapaxes(root, 3, 4), 0.3 * rng.normal(size=(k, r, 1, n))))
    prior = StudyPrior(UtilityPrior.create(RBF(variance=1.5), 1, 1), np.array([-1.0]))
    population = Population(np.zeros(4), np.eye(4), np.zeros(()))
    found = InferredStudy(prior, population, tuple(sites), None, 0.0, "converged", "", np.zeros(1))
    return study._replace(crowds=crowds), found


@pytest.fixture(scope="module")
def silent(unheard):
    """Return what is sampled of them."""
    study, found = unheard
    sampled = sampled_of(study, found.sites, None)
    return StudyChainModel(hyperparameters(found.prior, sampled, HYPERPRIORS), sampled)


def test_without_answers_a_chain_visits_the_prior(silent):
    rng, k = np.random.default_rng(1), silent.approximation.n_learned
    people = tuple(np.zeros((len(group.rows), group.rows.shape[1])) for group in silent.sampled.groups)
    walk = Walk(Coordinates(np.zeros(4), people), np.zeros(k))
    root, found, chances = np.eye(k), [], []
    for number in range(800):
        key = jax.random.key_data(jax.random.key(number))
        step = moved(walk, key, np.asarray(0.5), silent)
        walk, chance = turned(walk._replace(utilities=step.utilities), root, 0.5, rng, silent, HYPERPRIORS)
        prior, population, _ = jax.tree.map(np.asarray, drawn(walk, silent))
        logs = [np.ravel(prior.population.kernels.log_lengthscale), np.ravel(prior.population.kernels.log_variance)]
        found.append(np.concatenate([*logs, prior.log_ratio, population]))
        chances.append((float(step.accepted), chance))
    assert np.all(np.mean(chances, axis=0) > 0.7)
    found = np.array(found)
    mean, sd = found.mean(axis=0), found.std(axis=0)
    # Half a standard deviation of the hyperparameters, a quarter of one of the population's utilities.
    np.testing.assert_allclose(mean[:3], [0.0, 0.5, -1.0], atol=0.15)
    np.testing.assert_allclose(mean[3:], np.zeros(4), atol=0.25)
    np.testing.assert_allclose(sd, [0.3, 0.3, 0.3, 1.0, 1.0, 1.0, 1.0], rtol=0.35)


def test_the_slope_of_the_hyperparameters_is_that_of_the_density(silent):
    rng, k = np.random.default_rng(2), silent.approximation.n_learned
    people = tuple(rng.normal(size=(len(group.rows), group.rows.shape[1])) for group in silent.sampled.groups)
    walk = Walk(Coordinates(rng.normal(size=4), people), rng.normal(size=k))
    slope = np.asarray(log_joint(walk, silent, HYPERPRIORS)[1])
    for one in np.eye(k):
        ends = [
            float(log_joint(walk._replace(hyper=walk.hyper + h * one), silent, HYPERPRIORS)[0]) for h in (1e-5, -1e-5)
        ]
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope @ one, rel=1e-4, abs=1e-5)


class Limited(Clock):
    """A clock whose time is up after a few looks at it."""

    def __init__(self, n_looks):
        super().__init__(7.0)
        self.n_looks = n_looks

    @property
    def is_up(self):
        self.n_looks -= 1
        return self.n_looks < 0


def drawn_with(clock, unheard, hyperpriors=HYPERPRIORS):
    return with_draws(Task(None, None, Learning(hyperpriors), Watch(clock), 1, 1), *unheard)


@pytest.mark.parametrize(
    ("n_looks", "n_climbed"),
    # Nothing, not even the first slopes; after three steps; when all four are made, before chains are spread out.
    [(0, None), (4, 3), (5, 4)],
)
def test_nothing_begins_when_the_time_is_up(n_looks, n_climbed, unheard, monkeypatch):
    seen = []
    monkeypatch.setattr(sampling, "N_CLIMB", 4)
    monkeypatch.setattr(StudySampling, "begin", lambda self: seen.append(0) or SampledState(None, ()))
    monkeypatch.setattr(
        StudySampling, "_climbed", lambda self, state: seen.append(1) or state._replace(path=(*state.path, 0))
    )
    monkeypatch.setattr(StudySampling, "_spread_out", lambda self, state: pytest.fail("the time was up"))
    assert drawn_with(Limited(n_looks), unheard) == (None, "the time limit of 7 s")
    assert seen == ([] if n_climbed is None else [0, *[1] * n_climbed])


def test_what_is_sampled_is_said_and_each_step_reported(unheard, monkeypatch):
    seen = []

    @contextlib.contextmanager
    def report(progress, total):
        yield lambda phase, step, value: seen.append((phase, step, total))

    monkeypatch.setattr(sampling, "progress_report", report)
    for name, value in {"N_CLIMB": 2, "N_CHAINS": 2, "N_STEPS": 3, "N_WARM_UP": 1}.items():
        monkeypatch.setattr(sampling, name, value)
    draws, words = drawn_with(Clock(None), unheard)
    assert words.startswith("HMC over the utilities of all people and hyperparameters: 4 draws")
    assert len(draws.population) == 4
    climbing, sampled = [("climbing", k, 5) for k in range(3)], [("sampling", k, 5) for k in (3, 4, 5)]
    assert seen == climbing + sampled
    seen.clear()
    draws, words = drawn_with(Clock(None), unheard, None)
    assert words.startswith("HMC over the utilities of all people, at the hyperparameters of the fit: 4 draws")
    assert np.ptp(draws.prior.log_ratio) == 0.0, "hyperparameters are held"
    assert seen == [("sampling", k, 3) for k in range(4)]
