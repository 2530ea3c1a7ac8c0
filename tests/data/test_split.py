import numpy as np
import pandas as pd
import pytest

from choicegp.data.split import set_positions, split_positions
from choicegp.errors import ChoiceGPError


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (2, [2]),
        (-1, [4]),
        (np.int64(0), [0]),
        ([3, 0, 0], [3, 0, 0]),
        (np.array([-1, 1]), [4, 1]),
        (slice(None, None, 2), [0, 2, 4]),
        ([True, False, False, True, False], [0, 3]),
        (pd.Series([1, 2], index=[7, 8]), [1, 2]),
        (range(2), [0, 1]),
        (([2, 1], Ellipsis), [2, 1]),
        ((slice(3, None), Ellipsis), [3, 4]),
    ],
)
def test_keys(key, expected):
    assert set_positions(key, 5).tolist() == expected


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (5, "no set at position 5"),
        ([0, -6], "no set at position -6"),
        ([True, False], "mask has 2 entries"),
        ([], "no sets are selected"),
        (slice(5, None), "no sets are selected"),
        ([False] * 5, "no sets are selected"),
        ("a", "by position"),
        (None, "by position"),
        ((0, 1), "by position"),
        ({0: 1}, "by position"),
        (1.5, "whole numbers"),
        ([0.0], "whole numbers"),
        ([[0, 1]], "whole numbers"),
        ([[0], [1, 2]], "flat list"),
        (True, "whole numbers"),
        (slice("a", None), "sliced"),
    ],
)
def test_wrong_keys(key, message):
    with pytest.raises(ChoiceGPError, match=message):
        set_positions(key, 5)


@pytest.mark.parametrize(("test_size", "n_test"), [(0.2, 2), (0.01, 1), (0.99, 9), (3, 3), (np.float32(0.5), 5)])
def test_split_by_set(test_size, n_test):
    train, test = split_positions(10, None, test_size, "set", 4)
    assert len(test) == n_test
    assert sorted([*train, *test]) == list(range(10))
    assert (np.diff(train) > 0).all()
    again = split_positions(10, None, test_size, "set", 4)
    assert (again[0] == train).all()
    assert (again[1] == test).all()


def test_splits_differ_between_seeds():
    tests = {tuple(split_positions(50, None, 0.2, "set", seed)[1]) for seed in range(10)}
    assert len(tests) == 10


def test_split_by_respondent_keeps_persons_whole():
    respondents = np.array(["ann", "bo", "ann", "cy", "bo", "dee"], dtype=object)
    for seed in range(10):
        train, test = split_positions(6, respondents, 0.5, "respondent", seed)
        assert not set(respondents[train]) & set(respondents[test])
        assert len(set(respondents[test])) == 2


@pytest.mark.parametrize("test_size", [0, 10, -1, 0.0, 1.0, 1.5, float("nan"), "half", None, True])
def test_wrong_test_sizes(test_size):
    with pytest.raises(ChoiceGPError, match="test_size"):
        split_positions(10, None, test_size, "set", 0)


def test_splits_that_cannot_be():
    with pytest.raises(ChoiceGPError, match="no respondents"):
        split_positions(10, None, 0.5, "respondent", 0)
    with pytest.raises(ChoiceGPError, match="by must be"):
        split_positions(10, None, 0.5, "object", 0)
    with pytest.raises(ChoiceGPError, match="at least two sets"):
        split_positions(1, None, 0.5, "set", 0)
    with pytest.raises(ChoiceGPError, match="at least two respondents"):
        split_positions(3, np.array([1, 1, 1]), 0.5, "respondent", 0)
    with pytest.raises(ChoiceGPError, match="random_state"):
        split_positions(3, None, 0.5, "set", -1)


def test_without_a_seed_every_split_is_a_new_one():
    first, second = (split_positions(100, None, 0.5, "set", None) for _ in range(2))
    assert not np.array_equal(first[0], second[0])
    assert np.array_equal(np.sort(np.concatenate(first)), np.arange(100))
