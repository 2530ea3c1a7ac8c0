"""The course of a fit of many people: what a person's utilities are called where she starts does not matter."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceGP, datasets
from choicegp.fitting import respondents as fitting
from choicegp.inference.respondents.course import StudyInference

OPTIONS = {"respondents": "hierarchical", "object_effects": False, "intervals": "none", "n_restarts": 1}


@pytest.fixture(scope="module")
def halves():
    data = datasets.many_people(6, 10, 0.3, 1, n_objects=12).data
    number = np.arange(len(data)) % 10
    return data.take(np.flatnonzero(number < 8)), data.take(np.flatnonzero(number >= 8))


@pytest.fixture(scope="module")
def expected(halves):
    return ChoiceGP(2, progress=False, **OPTIONS).fit(halves[0])


def test_people_start_anew_while_that_gains_much(halves, expected, monkeypatch):
    conclude, bounds = StudyInference.conclude, []

    def noted(self, *args):
        found = conclude(self, *args)
        bounds.append(found.elbo)
        return found

    monkeypatch.setattr(StudyInference, "conclude", noted)
    found = ChoiceGP(2, progress=False, **OPTIONS).fit(halves[0])
    assert found.elbo_ == expected.elbo_ == max(bounds)
    assert len(bounds) > 1
    gains = np.diff(bounds)
    assert np.all(gains[:-1] >= fitting._WORTH_A_ROUND)
    assert len(gains) == fitting._ROUNDS or gains[-1] < fitting._WORTH_A_ROUND
    result = found.fit_result_
    assert result.n_iter == len(result.elbo_trace) > result.n_annealing > 0


def test_what_a_persons_utilities_are_called_where_she_starts_changes_nothing(halves, monkeypatch):
    train, test = halves
    monkeypatch.setattr(fitting, "_WORTH_A_ROUND", -np.inf)  # all rounds, so that both fits come to their end
    expected = ChoiceGP(2, progress=False, **OPTIONS).fit(train)
    begin, moved = StudyInference.begin, []

    def exchanged(self):
        """Begin as ever, but exchange the utilities of the third person."""
        course = begin(self)
        if self.before is not None:
            return course  # she has started before

        def of_person(leaf):
            leaf = np.array(leaf)
            leaf[0, 2] = leaf[0, 2, ::-1].copy()
            moved.append(np.ptp(leaf[0, 2], axis=0).max())
            return leaf

        sites = course.state.sites
        sites = sites._replace(people=jax.tree.map(of_person, sites.people))
        return course._replace(state=course.state._replace(sites=sites))

    monkeypatch.setattr(StudyInference, "begin", exchanged)
    found = ChoiceGP(2, progress=False, **OPTIONS).fit(train)
    assert min(moved) > 0.5, "her utilities differ, so that it matters what they are called"
    assert found.elbo_ == pytest.approx(expected.elbo_, abs=0.05)
    for one, other in zip(found.predict_proba(test), expected.predict_proba(test), strict=True):
        np.testing.assert_allclose(one, other, atol=0.02)
