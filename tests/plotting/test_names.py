"""What objects are called in pictures."""

import pandas as pd
import pytest

from choicegp.plotting.names import are_row_numbers, object_names
from choicegp.reading.encoding import FeatureEncoding


def names_of(frame, ids=None, order=None):
    encoding = FeatureEncoding.learn(frame)
    return object_names(range(len(frame)) if ids is None else ids, encoding.encode(frame), encoding, order)


def test_the_most_telling_features_come_first():
    frame = pd.DataFrame({"cpu": [9000, 8000], "keyboard": ["uk", "de"], "weight (kg)": [1.25, 2.0]})
    assert names_of(frame, order=["weight (kg)", "keyboard"]) == ["1.25 kg, keyboard uk", "2 kg, keyboard de"]


def test_a_profile_is_short_but_says_something():
    frame = pd.DataFrame({"a" * 40: [1, 2], "b": [3, 4]})
    assert names_of(frame) == ["a" * 40 + " 1", "a" * 40 + " 2"]


def test_objects_that_are_all_the_same_have_their_features():
    assert names_of(pd.DataFrame({"x": [1.0, 1.0]})) == ["x 1", "x 1"]


@pytest.mark.parametrize(("ids", "expected"), [([0, 1], True), ([1, 2], False), (["0", "1"], False), ([0.5, 1], False)])
def test_ids_that_count_are_no_names(ids, expected):
    assert are_row_numbers(ids) is expected
