"""The coordinates in which a study is sampled, against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from choicegp import ChoiceData
from choicegp.inference.respondents.blocks import inside, jittered_root, places_in, tabled, whitening_roots
from choicegp.inference.respondents.sampling import sampled_of
from choicegp.inference.respondents.study import StudyAnswers, studied
from choicegp.inference.respondents.whitening import (
    Coordinates,
    log_likelihood,
    log_posterior,
    whiten_study,
)
from choicegp.inference.sites import Sites
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior


@pytest.fixture(scope="module")
def tiny():
    """Return the prior of two utilities with a shared part, and two people with two sets each and random sites."""
    rng = np.random.default_rng(0)
    objects = Objects(rng.normal(size=(5, 1)), np.arange(5))
    shown = [[0, 1, 2], [1, 2, 3], [0, 3, 4], [4, 1, 0]]
    people = np.array([0, 0, 1, 1])
    data = ChoiceData.from_sets(objects.X, shown, [rows[:1] for rows in shown], respondents=people)
    study = studied(objects, objects, StudyAnswers(data, data.flat_shown, people, -1, DISCERNIBILITY), 2, 2)
    sites = []
    for crowd in study.crowds:
        k, r, n = crowd.rows.shape
        root = rng.normal(size=(k, r, 2, n, n))
        sites.append(Sites(0.3 * root @ np.swapaxes(root, 3, 4), rng.normal(size=(k, r, 2, n))))
    prior = UtilityPrior.create(RBF(variance=2.0), 1, 2, shared=True)
    return StudyPrior(prior, np.array([-0.5, 0.2, -1.0])), sampled_of(study, tuple(sites), None)


def test_the_log_posterior_is_prior_times_likelihood_in_other_coordinates(tiny):
    prior, sampled = tiny
    rng = np.random.default_rng(1)
    people = tuple(rng.normal(size=(len(group.rows), 2 * group.rows.shape[1])) for group in sampled.groups)
    w = Coordinates(rng.normal(size=15), people)

    @jax.jit
    def compared(prior, w):
        whitening = whiten_study(prior, sampled)
        table = tabled(prior, whitening_roots(prior.population, sampled.points), sampled.points, sampled.objects)
        flat, restore = ravel_pytree(w)
        jacobian = jax.jacfwd(lambda flat: ravel_pytree(whitening.parts(restore(flat), sampled))[0])(flat)
        v, own = whitening.parts(w, sampled)
        log_prior = -0.5 * v @ v
        for group, one in zip(sampled.groups, own, strict=True):
            root = jittered_root(inside(table.own, places_in(group.rows, 2, 5)))
            standard = jax.vmap(lambda root, one: solve_triangular(root, one, lower=True))(root, one)
            log_prior += -0.5 * jnp.sum(standard**2) - jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)))
        exact = log_likelihood(whitening.utilities(w, sampled), sampled) + log_prior
        return log_posterior(w, whitening, sampled), exact + jnp.linalg.slogdet(jacobian)[1]

    # At other hyperparameters than those at which the sites were made, too: log Z is part of it.
    for one in (prior, jax.tree.map(lambda leaf: leaf + 0.4, prior)):
        found, exact = compared(one, w)
        assert float(found) == pytest.approx(float(exact), abs=1e-6)
