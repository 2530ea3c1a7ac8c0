"""The algebra of many people against brute force: all people and objects in one Gaussian."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.inference.respondents import steps, study
from choicegp.inference.respondents.blocks import (
    JITTER,
    inform,
    inside,
    person_moments,
    places_in,
    population_at,
    population_part,
    tabled,
    whitening_roots,
)
from choicegp.inference.respondents.study import StudyAnswers, spread_points, studied
from choicegp.inference.sites import Sites
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF
from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior

PEOPLE, N = 3, 5


def study_prior(d=2, *, threshold=False):
    prior = UtilityPrior.create(RBF(), 2, d, 0.3, shared=d > 1)
    parts = prior.n_parts
    sizes = np.linspace(0.2, 0.8, parts) if threshold else None
    prior = UtilityPrior(prior.kernels, prior.log_effect_variance, prior.shared, sizes)
    return StudyPrior(prior, np.linspace(-1.0, 0.5, parts), None if sizes is None else sizes - 0.4)


def some_objects(n=7, *, threshold=False):
    rng = np.random.default_rng(0)
    codes = np.arange(n)
    if threshold:
        codes[-1] = THRESHOLD
    return Objects(rng.normal(size=(n, 2)), codes)


def some_sites(d, rng):
    root = rng.normal(size=(PEOPLE, d, N, 2))
    precision = root @ np.swapaxes(root, 2, 3)  # singular
    return Sites(precision, rng.normal(size=(PEOPLE, d, N)))


def whole_covariance(prior, objects, rows):
    """Return Cov of all utilities of all people, (R d n, R d n), part by part: what is common, and one's own."""
    d, everyone = prior.n_utilities, Objects(objects.X[rows.ravel()], objects.codes[rows.ravel()])
    covariances = jax.jit(
        lambda: (prior.population.covariance(everyone, everyone), prior.own_covariance(everyone, everyone))
    )
    common, own = map(np.asarray, covariances())
    same = np.kron(np.eye(len(rows)), np.ones((N, N)))
    parts = (common + own * same).reshape(-1, len(rows), N, len(rows), N)
    whole = np.zeros((len(rows), d, N, len(rows), d, N))
    for i in range(d):
        whole[:, i, :, :, i] += parts[i + prior.population.shared]
        if prior.population.shared:
            for j in range(d):
                whole[:, i, :, :, j] += parts[0]
    return whole.reshape(len(rows) * d * N, -1)


def combined(covariance, sites):
    """Return mean, covariance and log evidence of a Gaussian prior with sites, all inverted."""
    d = sites.precision.shape[1]
    precision = np.zeros((PEOPLE, d, N, PEOPLE, d, N))
    for r in range(PEOPLE):
        for i in range(d):
            precision[r, i, :, r, i] = sites.precision[r, i]
    precision = precision.reshape(len(covariance), -1)
    linear = np.asarray(sites.linear).ravel()
    after = np.linalg.inv(np.linalg.inv(covariance + 1e-11 * np.eye(len(covariance))) + precision)
    mean = after @ linear
    _, log_det = np.linalg.slogdet(np.eye(len(covariance)) + covariance @ precision)
    return mean, after, 0.5 * (linear @ mean - log_det)


@pytest.mark.parametrize(("d", "threshold"), [(1, False), (2, False), (2, True)])
def test_people_are_what_one_large_gaussian_says(d, threshold):
    rng = np.random.default_rng(1)
    prior, objects = study_prior(d, threshold=threshold), some_objects(threshold=threshold)
    rows = np.array([[0, 1, 2, 3, 6], [2, 3, 4, 5, 6], [0, 2, 4, 5, 6]])
    sites = some_sites(d, rng)
    places = places_in(rows, d, len(objects.X))

    @jax.jit
    def informed(prior, objects, sites):
        table = tabled(prior, whitening_roots(prior.population, objects), objects, objects)
        information = inform(inside(table.own, places), sites)
        return table, information, population_part(table, places, information)

    table, information, (precision, linear) = informed(prior, objects, sites)
    after = np.linalg.inv(np.eye(len(precision)) + np.asarray(precision))
    mean, root = after @ np.asarray(linear), np.linalg.cholesky(after).T

    @jax.jit
    def combined_with(table, information, sites, mean, root):
        common = population_at(table, mean, root)
        return person_moments(
            inside(table.own, places), sites, information, common.mean[places], inside(common.covariance, places)
        )

    moments, _ = jax.tree.map(np.asarray, combined_with(table, information, sites, mean, root))
    expected_mean, expected, log_evidence = combined(whole_covariance(prior, objects, rows), sites)
    np.testing.assert_allclose(np.asarray(moments.mean).ravel(), expected_mean, atol=200 * JITTER)
    of_people = expected.reshape(PEOPLE, d * N, PEOPLE, d * N)
    for r in range(PEOPLE):
        found = np.asarray(moments.covariance[r]).reshape(d * N, d * N)
        np.testing.assert_allclose(found, of_people[r, :, r], atol=200 * JITTER)
    _, log_det = np.linalg.slogdet(after)
    information = jax.tree.map(np.asarray, information)
    evidence = 0.5 * np.sum(information.fitted - information.log_det) + 0.5 * (mean @ np.asarray(linear) + log_det)
    assert evidence == pytest.approx(log_evidence, abs=1e-3)


def test_points_that_are_few_leave_each_person_her_whole_variance():
    prior, objects = study_prior(2), some_objects()
    rows = np.array([[0, 1, 2, 3, 4]])
    own = Objects(objects.X[rows[0]], objects.codes[rows[0]])
    points = spread_points(objects, 3, 0)
    table = jax.jit(lambda: tabled(prior, whitening_roots(prior.population, points), points, own))()
    total = np.asarray(table.own) + np.asarray(table.lead) @ np.asarray(table.lead).T
    np.testing.assert_allclose(total, whole_covariance(prior, objects, rows), atol=1e-9)


@pytest.fixture(scope="module", params=[(2, 200), (64, 7)])
def small_study(request):
    """Return three people in chunks of two, the last of which is padded, or each with a table of her own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "_MOST_AT_ONCE", request.param[0])
        patch.setattr(study, "_TABLE", request.param[1])
        return _small_study()


def _small_study():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(8, 2))
    shown = [rng.choice(8, 3, replace=False) for _ in range(9)]
    data = ChoiceData.from_sets(X, shown, [rows[:1] for rows in shown], respondents=np.repeat([0, 1, 2], 3))
    objects = Objects(X, np.arange(8))
    answers = StudyAnswers(data, data.flat_shown, np.repeat([0, 1, 2], 3), -1, DISCERNIBILITY)
    return studied(objects, spread_points(objects, 5, 0), answers, 3, 2)


def test_every_set_is_where_its_person_is(small_study):
    found = {}
    for crowd in small_study.crowds:
        people, rows = crowd.people.ravel(), crowd.rows.reshape(-1, crowd.rows.shape[2])
        looked_up = np.take_along_axis(crowd.table[:, None], crowd.places, axis=2)
        np.testing.assert_array_equal(looked_up, crowd.rows)
        for batch in crowd.sets:
            per_chunk = crowd.people.shape[1]
            for chunk in range(len(batch.rows)):
                s = batch.rows.shape[2] // per_chunk
                for column in np.flatnonzero(batch.sets[chunk] >= 0):
                    place = chunk * per_chunk + column // s
                    own = rows[place][batch.rows[chunk, :, column][batch.present[chunk, :, column]]]
                    found[int(batch.sets[chunk, column])] = (int(people[place]), set(own.tolist()))
    rng = np.random.default_rng(2)
    rng.normal(size=(8, 2))
    assert found == {k: (k // 3, set(rng.choice(8, 3, replace=False).tolist())) for k in range(9)}


def test_the_slope_of_the_evidence_is_its_gradient(small_study):
    prior = study_prior(2)
    rng = np.random.default_rng(3)
    blank = steps.blank_sites(small_study, 2, rng.normal(size=15))
    sites = steps.StudySites(
        tuple(Sites(own.precision + 0.3 * np.eye(own.precision.shape[-1]), rng.normal(size=own.linear.shape))
              for own in blank.people),
        blank.population,
    )  # fmt: skip
    slope = jax.jit(jax.value_and_grad(steps.evidence, has_aux=True))
    (_, population), expected = slope(prior, small_study, sites)
    normals = steps.normals_of(small_study, 2, 4, 0)
    found = jax.jit(steps.pass_over_people)(prior, small_study, sites, population, normals, 1.0, None).gradient
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
