"""Objects outside the range of the training objects are counted and named."""

import numpy as np
import pandas as pd
import pytest

from choicegp.prediction.extrapolation import Outside, outside_training, together
from choicegp.reading.encoding import FeatureEncoding

TRAINED = pd.DataFrame({"price": [549.0, 799.0, 1499.0], "colour": ["red", "blue", "green"], "size": [1.0, 2.0, 3.0]})
ENCODING = FeatureEncoding.learn(TRAINED)


def outside(price=(700.0,), size=(2.0,), colour="red"):
    """Compare objects of these prices and sizes with the three above."""
    table = pd.DataFrame({"price": list(price), "colour": colour, "size": list(size) * (len(price) // len(size))})
    return outside_training(ENCODING.encode(table), ENCODING.encode(TRAINED), ENCODING)


def test_what_was_shown_is_inside():
    trained = ENCODING.encode(TRAINED)
    found = outside_training(trained, trained, ENCODING)
    assert found == Outside(0, 3, {})
    assert str(found) == ""


def test_a_tenth_of_the_range_is_tolerated_on_each_side():
    # The range is 950 wide.
    assert outside((455.0, 1593.0)).n_outside == 0
    assert outside((453.0,)).features["price"][:2] == (453.0, 453.0)
    assert outside((1595.0,)).features["price"][:2] == (1595.0, 1595.0)


def test_features_ranges_and_counts_are_named():
    found = outside((99999.0, 700.0, 99999.0, 9.0), (2.0, 7.0, 2.0, 2.0))
    assert (found.n_outside, found.n_objects) == (4, 4)
    assert str(found).startswith(
        "4 of 4 objects lie outside what was shown in training: price 9 to 99999 (shown 549 to 1499, 3 objects), "
        "size 7 (shown 1 to 3, 1 object). Predictions there rest on"
    )
    assert str(outside((99999.0, 700.0))).startswith(
        "1 of 2 objects lies outside what was shown in training: price 99999 (shown 549 to 1499, 1 object). "
    )


def test_categories_have_no_range():
    trained = TRAINED[TRAINED["colour"] != "green"]
    found = outside_training(ENCODING.encode(TRAINED[2:]), ENCODING.encode(trained), ENCODING)
    assert set(found.features) == {"price", "size"}


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_constant_feature_leaves_its_range_but_not_by_rounding(size):
    encoding, trained = FeatureEncoding.plain(1), np.full((3, 1), size)
    assert outside_training(trained * (1 + 1e-15), trained, encoding).n_outside == 0
    assert outside_training(trained * 1.001, trained, encoding).n_outside == 3


def test_huge_ranges_and_no_objects_at_all():
    encoding, trained = FeatureEncoding.plain(1), np.array([[-1e308], [1e308]])
    assert outside_training(np.array([[1.7e308]]), trained, encoding).n_outside == 0
    assert outside_training(np.zeros((2, 1)), np.zeros((0, 1)), encoding) == Outside(0, 2, {})
    assert outside_training(np.zeros((0, 1)), trained, encoding) == Outside(0, 0, {})


def test_many_features_are_not_all_listed():
    encoding = FeatureEncoding.plain(14)
    text = str(outside_training(np.full((1, 14), 9.0), np.zeros((2, 14)), encoding))
    assert "x9 9 (shown 0 to 0, 1 object), and 4 more features. Predictions" in text
    assert "x10" not in text


def test_groups_are_added_up():
    parts = outside((99999.0, 700.0)), outside((9.0,), (7.0,)), outside()
    assert together(parts) == outside((99999.0, 700.0, 9.0, 700.0), (2.0, 2.0, 7.0, 2.0))
    assert together([]) == Outside(0, 0, {})
