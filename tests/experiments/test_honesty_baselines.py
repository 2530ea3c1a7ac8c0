"""The answers beside the model: right by hand, normalised, and ready for data that say nothing."""

from itertools import combinations

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGPError
from choicegp.experiments.honesty_baselines import PredictedAnswers, constant_answers, logistic_answers, model_answers

X = np.array([[0.0], [1.0], [2.0], [3.0]])
TRAIN = ChoiceData.from_sets(X, [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]], [[2], [3], [2, 3], [3]])


def every_answer(rows):
    """Return the same set with each of its non-empty subsets as the answer."""
    subsets = [list(part) for n in range(1, len(rows) + 1) for part in combinations(rows, n)]
    return ChoiceData.from_sets(X, [rows] * len(subsets), subsets)


@pytest.mark.parametrize("answer", [constant_answers, logistic_answers])
def test_probabilities_are_normalised_and_agree_with_each_other(answer):
    test = every_answer([0, 1, 3])
    found = answer(TRAIN, test)
    p = np.exp(found.log_prob)
    assert p.sum() == pytest.approx(1)
    members = np.asarray(test.flat_chosen).reshape(-1, 3)
    np.testing.assert_allclose(members.T @ p, found.probabilities[0], rtol=1e-9)


def test_the_constant_answer_by_hand():
    test = ChoiceData.from_sets(X, [[0, 1, 2]] * 2, [[0], [0, 1, 2]])
    found = constant_answers(TRAIN, test)
    np.testing.assert_allclose(np.exp(found.log_prob), [3.5 / 5.5 / 3, 0.5 / 5.5])
    assert found.exact == pytest.approx(0.5 / 3), "one object by lot, and half of the sets have one"


def test_the_logistic_model_learns_the_feature():
    test = ChoiceData.from_sets(X, [[0, 1, 2], [1, 2, 3]], [[2], [3]])
    found = logistic_answers(TRAIN, test)
    assert found.exact == 1.0
    assert all(np.all(np.diff(p) > 0) for p in found.probabilities)
    assert found.log_prob.mean() > constant_answers(TRAIN, test).log_prob.mean()


def test_where_everything_is_chosen_there_is_nothing_to_learn():
    everything = ChoiceData.from_sets(X, [[0, 1], [2, 3]], [[0, 1], [2, 3]])
    found = logistic_answers(everything, everything)
    assert found.exact == 1.0
    assert np.all(np.isfinite(found.log_prob))


def test_values_are_named_and_impossible_answers_cost_much():
    test = ChoiceData.from_sets(X, [[0, 1]], [[1]])
    values = PredictedAnswers(np.log([0.5]), [np.array([1.0, 0.0])], 0.0).values(test, "new")
    assert values["new_score"] == pytest.approx(np.log(0.5))
    assert values["new_loss"] == pytest.approx(-np.log(1e-6))
    assert values["new_exact"] == 0.0


def test_a_model_that_cannot_enumerate_has_no_log_score():
    class Model:
        def log_prob(self, data, normalized):
            raise ChoiceGPError("too large")

        def predict_proba(self, data):
            return [np.array([0.5, 0.5])]

        def score(self, data):
            return 1.0

    test = ChoiceData.from_sets(X, [[0, 1]], [[1]])
    found = model_answers(Model(), test).values(test, "new")
    assert found == {"new_score": None, "new_loss": pytest.approx(np.log(2)), "new_exact": 1.0}
