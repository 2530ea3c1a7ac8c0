import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.attention import attention, inattentive

X = np.arange(4.0)[:, None]


def answers(chosen, people, shown=(0, 1, 2)):
    return ChoiceData.from_sets(X, [list(shown)] * len(chosen), chosen, respondents=people)


def test_three_kinds_of_people_are_found():
    rng = np.random.default_rng(0)
    random = [[i for i in range(3) if code >> i & 1] for code in rng.integers(1, 8, 12).tolist()]
    data = answers([[2]] * 12 + random + [[0, 1, 2]] * 12, ["ann"] * 12 + ["bob"] * 12 + ["cleo"] * 12)
    # A model that expects object 2 alone.
    expected = np.array([len(rows) == 1 and rows[0] == 2 for rows in data.chosen])
    found = attention(data, np.log(np.where(expected, 0.88, 0.02)), False)
    assert found[["attentive", "random", "everything"]].to_numpy().argmax(axis=1).tolist() == [0, 1, 2]
    np.testing.assert_allclose(found[["attentive", "random", "everything"]].sum(axis=1), 1.0)
    assert found["sets"].tolist() == [12, 12, 12]
    assert inattentive(found) == (
        "1 of 3 people seem to tick at random: bob. 1 of 3 people seem to tick everything: cleo."
    )


def test_one_slip_does_not_condemn():
    data = answers([[2]] * 11 + [[0]], ["ann"] * 12)
    found = attention(data, np.log([0.9] * 11 + [1e-12]), False)
    assert found.loc["ann", "attentive"] > 0.99
    assert inattentive(found) == "All 1 people seem to answer with care."


def test_sets_of_one_say_nothing():
    data = ChoiceData.from_sets(X, [[0]] * 20, [[0]] * 20, respondents=["ann"] * 20)
    found = attention(data, np.zeros(20), False)
    np.testing.assert_allclose(found.loc["ann", ["attentive", "random", "everything"]], [0.9, 0.05, 0.05])
    assert found.loc["ann", "score"] == 0.0


def test_respondents_are_needed():
    with pytest.raises(ChoiceGPError, match="needs choices and respondents"):
        attention(ChoiceData.from_sets(X, [[0, 1]], [[0]]), np.zeros(1), False)
