"""Chains over the utilities of people and hyperparameters, where the answer is known: without answers, the prior."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.inference.respondents.chain import StudyChainModel, Walk, drawn, log_joint, moved, turned
from choicegp.inference.respondents.sampling import hyperparameters, sampled_of
from choicegp.inference.respondents.study import StudyAnswers, studied
from choicegp.inference.respondents.whitening import Coordinates
from choicegp.inference.sites import Sites
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior

HYPERPRIORS = HyperPriors(lengthscale=(0.0, 0.3), variance=(0.5, 0.3), ratio=(-1.0, 0.3))


@pytest.fixture(scope="module")
def silent():
    """Return what is sampled of two people whose answers have no weight, with sites that are wrong."""
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
    sampled = sampled_of(study._replace(crowds=crowds), tuple(sites), None)
    return StudyChainModel(hyperparameters(prior, sampled, HYPERPRIORS), sampled)


def test_without_answers_a_chain_visits_the_prior(silent):
    rng, k = np.random.default_rng(1), silent.approximation.n_learned
    people = tuple(np.zeros((len(group.rows), group.rows.shape[1])) for group in silent.sampled.groups)
    walk = Walk(Coordinates(np.zeros(4), people), np.zeros(k))
    root, found, chances = np.eye(k), [], []
    for number in range(400):
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
    np.testing.assert_allclose(mean, [0.0, 0.5, -1.0, 0.0, 0.0, 0.0, 0.0], atol=0.3)
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
