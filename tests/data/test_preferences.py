"""Choices reduced to preferences between two objects."""

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGPError
from choicegp.data.preferences import preferences

X = np.arange(4.0)[:, None]


@pytest.fixture
def data():
    return ChoiceData.from_sets(X, [[0, 1], [1, 2], [0, 2, 3], [3]], [[0], [1, 2], [2, 3], [3]], weights=[1, 2, 3, 1])


def told(found):
    return sorted(zip(found.winners.tolist(), found.losers.tolist(), found.weights.tolist(), strict=True))


def test_chosen_objects_are_preferred_to_rejected_ones(data):
    found = preferences(data)
    assert told(found) == [(0, 1, 1.0), (2, 0, 3.0), (3, 0, 3.0)]
    assert found.n_conflicts == 2


def test_a_coin_decides_conflicts_the_same_way_for_the_same_seed(data):
    found = [preferences(data, "random", random_state=seed) for seed in range(20)]
    assert all(len(each.winners) == 5 for each in found)
    winners = {
        int(each.winners[[{*pair} for pair in zip(each.winners, each.losers, strict=True)].index({1, 2})])
        for each in found
    }
    assert winners == {1, 2}, "both happen"
    assert told(found[3]) == told(preferences(data, "random", random_state=3))


def test_the_seed_of_the_coin_is_checked(data):
    many = ChoiceData.from_sets(X, [[0, 1]] * 100, [[0, 1]] * 100)
    first, second = (preferences(many, "random", random_state=None).winners for _ in range(2))
    assert not np.array_equal(first, second)
    with pytest.raises(ChoiceGPError, match="random_state must be a whole number of at least 0; got -1"):
        preferences(data, random_state=-1)


def test_the_majority_of_outputs_decides_conflicts(data):
    outputs = [[0, 0, 0], [1, 1, 0], [0, 0, 5], [0, 0, 5]]
    # 1 beats 2 in two of three outputs; 2 and 3 are equal, and say nothing.
    assert told(preferences(data, "majority", outputs)) == [(0, 1, 1.0), (1, 2, 2.0), (2, 0, 3.0), (3, 0, 3.0)]


def test_sets_of_one_object_alone_say_nothing():
    found = preferences(ChoiceData.from_sets(X, [[0], [1]], [[0], [1]]))
    assert len(found.winners) == 0
    assert found.n_conflicts == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all",), "conflicts must be 'drop', 'random' or 'majority', not 'all'"),
        (("majority",), "conflicts='majority' needs outputs="),
        (("majority", [[1.0]]), "outputs has 1 rows but there are 4 objects"),
        (("majority", [["a"]] * 4), "outputs must hold real numbers"),
        (("majority", [[np.nan]] * 4), "outputs holds a value that is not finite: nan"),
    ],
)
def test_bad_arguments(data, arguments, message):
    with pytest.raises(ChoiceGPError, match=message):
        preferences(data, *arguments)


def test_bad_data(data):
    with pytest.raises(ChoiceGPError, match="these have none"):
        preferences(ChoiceData.from_sets(X, [[0, 1]]))
    with pytest.raises(ChoiceGPError, match="a ChoiceData is needed; got list"):
        preferences([[0, 1]])


def test_the_worst_object_is_below_the_others_and_no_answer_says_nothing():
    kinds = ["best", "worst", "keep"]
    data = ChoiceData.from_sets(X, [[0, 1, 2], [1, 2, 3], [0, 3]], [[1], [2], []], kinds=kinds, empty="none")
    assert told(preferences(data)) == [(1, 0, 1.0), (1, 2, 1.0), (1, 2, 1.0), (3, 2, 1.0)]
