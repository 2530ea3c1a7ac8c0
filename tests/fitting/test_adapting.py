"""Answers that come later: what is known about the population, said at other objects than those of the fit."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, datasets, select_n_utilities
from choicegp.compute.devices import computing
from choicegp.fitting.adapting import _filled, _together, known_at, known_without, population_of
from choicegp.inference.respondents import steps
from choicegp.inference.respondents.blocks import leads, whitening_roots
from choicegp.inference.respondents.posterior import StudyPosterior
from choicegp.inference.respondents.study import Known
from choicegp.model.kernels import RBF, Linear
from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior
from choicegp.selection.search import Search
from choicegp.storage.checkpoints import Checkpoint

QUICK = {"object_effects": False, "intervals": "none", "n_restarts": 1, "max_iter": 30, "progress": False}


@pytest.fixture(scope="module")
def some() -> tuple[StudyPosterior, Known]:
    """Return a study of seven points, and something known about its population."""
    rng = np.random.default_rng(0)
    population = UtilityPrior.create(RBF(), 2, 2, None, shared=False)
    prior = StudyPrior(population, np.array([-1.0, 0.5]), None)
    points = Objects(rng.normal(size=(7, 2)), np.arange(7))
    root = rng.normal(size=(14, 14))
    known = Known(np.eye(14) + root @ root.T, rng.normal(size=14))
    return StudyPosterior(prior, points, np.zeros(14), np.eye(14), points, (), ()), known


def utilities(study: StudyPosterior, known: Known, points: Objects, objects: Objects) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (d t,) and covariance (d t, d t) of the population at objects, from what is known at points."""
    mean, root, _ = population_of(known)
    prior = study.prior.population
    lead = np.asarray(jax.jit(lambda: leads(study.prior, whitening_roots(prior, points), points, objects))())
    d, m, t = lead.shape
    through = np.zeros((d, t, d, m))
    for i in range(d):
        through[i, :, i] = lead[i].T
    through = through.reshape(d * t, d * m)
    return through @ np.asarray(mean), through @ root.T @ root @ through.T


@pytest.mark.parametrize("rows", [[0, 3, 6], list(range(7))])
def test_at_some_points_the_population_is_what_it_was(some, rows):
    study, known = some
    few = Objects(study.points.X[rows], study.points.codes[rows])
    with computing():
        found = utilities(study, known_at(study, known, few), few, few)
        expected = utilities(study, known, study.points, few)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(("kernel", "c"), [(Linear(), 3), (RBF(lengthscale=0.5), 1), (RBF(lengthscale=4.0), 1)])
def test_what_is_known_about_smooth_utilities_is_known_at_any_objects(kernel, c):
    """Their covariance is singular to rounding: nothing may follow from the jitter that it takes."""
    rng = np.random.default_rng(1)
    prior = StudyPrior(UtilityPrior.create(kernel, c, 2, None, shared=False), np.array([-1.0, 0.5]), None)
    points, few = (Objects(rng.normal(size=(n, c)), start + np.arange(n)) for n, start in ((40, 0), (16, 100)))
    study = StudyPosterior(prior, points, np.zeros(80), np.eye(80), points, (), ())
    with computing():
        precision, _ = known_at(study, Known(np.eye(80), np.zeros(80)), few)
        assert np.linalg.eigvalsh(precision).min() > 1.0 - 1e-6, "as much is known as a priori"
        assert np.all(np.isfinite(np.asarray(population_of(Known(precision, np.ones(32)))[0])))


def test_what_the_points_do_not_say_about_an_object_stays_unknown(some):
    study, known = some
    far = Objects(np.array([[50.0, 50.0], [0.1, 0.2]]), np.array([90, 91]))
    with computing():
        mean, covariance = utilities(study, known_at(study, known, far), far, far)
        near_mean, near = utilities(study, known, study.points, far)
        left = np.asarray(study.prior.population.covariance(far, far))
    np.testing.assert_allclose(mean, near_mean, atol=1e-4)
    np.testing.assert_allclose(np.diag(covariance)[[0, 2]], left[:, 0, 0], rtol=1e-4)  # the prior
    assert np.all(np.diag(covariance)[[1, 3]] > np.diag(near)[[1, 3]])
    assert np.all(np.diag(covariance)[[1, 3]] < left[:, 1, 1])


def test_objects_are_filled_up_with_others_that_are_not_there_yet():
    others = Objects(np.arange(14.0).reshape(7, 2), np.array([0, 1, 2, 3, 4, 5, THRESHOLD]))
    seen = Objects(others.X[[5, 1, 2, 2]], np.array([5, 1, 2, THRESHOLD]))
    assert len(_filled(seen, others).X) == 4
    more = _filled(Objects(np.append(seen.X, [[9.5, 9.5]], axis=0), np.append(seen.codes, 77)), others)
    assert more.codes.tolist() == [5, 1, 2, THRESHOLD, 77, 0, 3, 4]
    none_left = _filled(Objects(others.X, others.codes), others)
    assert none_left.codes.tolist() == others.codes.tolist()


def test_objects_that_are_there_keep_their_places():
    before = Objects(np.arange(8.0).reshape(4, 2), np.array([0, 1, 2, THRESHOLD]))
    after = Objects(np.array([[9.0, 9.0], [2.0, 3.0], [7.0, 7.0], [4.0, 5.0]]), np.array([5, 1, THRESHOLD, 6]))
    whole, places = _together(before, after, np.array([0, 1, 2, 1]))
    # The threshold is one object, whatever its features are; the same features with another name are another object.
    assert places.tolist() == [4, 1, 3, -1]
    np.testing.assert_array_equal(whole.X, [*before.X, [9.0, 9.0]])
    assert whole.codes.tolist() == [0, 1, 2, THRESHOLD, 5]


@pytest.fixture(scope="module")
def train() -> ChoiceData:
    data = datasets.many_people(6, 8, 0.5, 3, n_objects=12, set_size=3).data
    return data.take(np.flatnonzero(np.arange(len(data)) % 8 < 5))


@pytest.fixture(scope="module")
def model(train) -> ChoiceGP:
    return ChoiceGP(2, respondents="hierarchical", **QUICK).fit(train)


def test_a_model_from_a_file_adapts_as_the_model_itself(model, train, tmp_path):
    model.save(tmp_path / "study.cgp")
    read = ChoiceGP.load(tmp_path / "study.cgp")
    theirs = ChoiceData.from_sets(
        train.X, [[0, 1, 2], [3, 4, 5], [1, 4, 7]], [[0], [4, 5], [7]], respondents=["ann", "ann", "bo"]
    )
    one, other = model.adapt(theirs), read.adapt(theirs)
    assert one.respondents_ == other.respondents_ == (0, 1, 2, 3, 4, 5, "ann", "bo")
    assert len(other.fitted_.study.objects.X) == len(train.X), "every object is there once"
    for mine, read_again in zip(one.predict_proba(theirs), other.predict_proba(theirs), strict=True):
        np.testing.assert_allclose(mine, read_again, atol=1e-6)
    # The others are as they were, but for what is new about the population.
    moved = [
        np.max(np.abs(now - then))
        for now, then in zip(one.predict_proba(train), model.predict_proba(train), strict=True)
    ]
    assert 0.0 < max(moved) < 0.15


def test_somebody_who_is_taken_out_and_comes_back_is_the_same(model, train):
    study = model.fitted_.study
    with computing():
        without = known_without(study, (2,))
        with_her = known_without(study, ())
    assert np.all(np.linalg.eigvalsh(with_her.precision - without.precision) > -1e-6)
    again = model.adapt(train.take([0]))  # of person 0, with all that she has said before
    assert again.respondents_ == model.respondents_
    assert len(again.fitted_.study.places_of(np.arange(6))) == 6
    known = zip(model.predict_proba(train), again.predict_proba(train), strict=True)
    assert max(np.max(np.abs(one - other)) for one, other in known) < 0.25


def test_people_who_are_alone_are_left_out_set_by_set_too(train, monkeypatch):
    few = train.take(np.arange(10))
    monkeypatch.setattr(steps.run_block, "_executables", {})
    found = select_n_utilities(few, 1, respondents="individual", **QUICK)
    # One for the fit and one for whoever a set is taken from, whatever the number of objects that she saw.
    assert len(steps.run_block._executables) == 2
    inside = np.sum(found.model.log_prob(few))
    assert found.table["elpd"][1] < inside
    assert found.table["refits"][1] == len(few)


class Killed(Exception):
    pass


def test_a_killed_search_of_many_people_ends_as_it_would_have(train, tmp_path, monkeypatch):
    few, file, annealed = train.take(np.arange(10)), tmp_path / "search.checkpoint", Search._annealed
    whole = select_n_utilities(few, 2, respondents="hierarchical", **QUICK)

    def die(self, d):
        fitted = annealed(self, d)
        if d == 2:
            raise Killed
        return fitted

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", _written(Checkpoint.keep))
        patch.setattr(Search, "_annealed", die)
        with pytest.raises(Killed):
            select_n_utilities(few, 2, respondents="hierarchical", checkpoint=file, n_jobs=1, **QUICK)
    assert file.exists()
    resumed = select_n_utilities(few, 2, respondents="hierarchical", checkpoint=file, **QUICK)
    assert resumed.reason == whole.reason
    np.testing.assert_allclose(resumed.table["elpd"], whole.table["elpd"], atol=1e-6)
    assert not file.exists()


def _written(keep):
    def keep_and_write(self, name, known, **options):
        keep(self, name, known, **options)
        self.write()

    return keep_and_write


def test_auto_of_many_people_becomes_the_chosen_model(train):
    few = train.take(np.arange(10))
    model = ChoiceGP("auto", respondents="hierarchical", **QUICK | {"object_effects": "auto"})
    searched = {}
    from choicegp.estimators import n_utilities

    def search(data, **options):
        searched.update(options)
        return select_n_utilities(data, 1, **{k: v for k, v in options.items() if k != "max_utilities"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(n_utilities, "select_n_utilities", search)
        model.fit(few)
    assert searched["respondents"] == "hierarchical"
    assert model.n_utilities_ == 1
    assert model.respondents_ == (0, 1)
    assert model.fitted_.chosen.n_utilities == 1
