"""The course of a fit of many people: what a person's utilities are called where she starts does not matter."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceGP, datasets
from choicegp.inference.respondents.course import StudyInference

OPTIONS = {"respondents": "hierarchical", "object_effects": False, "intervals": "none", "n_restarts": 1}


def test_what_a_persons_utilities_are_called_where_she_starts_changes_nothing(monkeypatch):
    data = datasets.many_people(6, 10, 0.3, 1, n_objects=12).data
    number = np.arange(len(data)) % 10
    train, test = (data.take(np.flatnonzero(part)) for part in (number < 8, number >= 8))
    expected = ChoiceGP(2, progress=False, **OPTIONS).fit(train)
    begin, moved = StudyInference.begin, []

    def exchanged(self):
        """Begin as ever, but exchange the utilities of the third person."""
        course = begin(self)

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
