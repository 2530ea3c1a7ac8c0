"""Agreement of a prediction with the choices: counts per set, and every prediction that cannot be scored."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceDataError, ChoiceGPError
from choicegp.evaluation.agreement import agreement

X = pd.DataFrame({"price": [1.0, 2.0, 3.0, 4.0]}, index=["pen", "ink", "brush", "knife"])
SHOWN = [["pen", "ink"], ["ink", "brush", "knife"]]


@pytest.fixture
def data():
    chosen = [["ink"], ["knife", "ink"]]
    return ChoiceData.from_sets(X, SHOWN, chosen, by="id", set_ids=["monday", "tuesday"])


def test_counts_by_hand(data):
    counts = agreement(data, [np.array([0, 1]), np.array([3])])
    assert counts.hits.tolist() == [1, 1]
    assert counts.chosen.tolist() == [1, 2]
    assert counts.rejections.tolist() == [0, 1]
    assert counts.rejected.tolist() == [1, 1]
    assert counts.predicted.tolist() == [2, 1]


def test_the_order_of_predicted_objects_does_not_matter(data):
    one, other = agreement(data, [[1], [1, 3]]), agreement(data, [[1], [3, 1]])
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert one.hits.tolist() == [1, 2]


@pytest.mark.parametrize(
    "predicted",
    [
        ([1], (3, 1)),
        (np.array([1]), np.array([1, 3], dtype=np.int32)),
        [pd.Series([1]), pd.Index([1, 3])],
        [{1}, {1, 3}],
        [[1], np.array([1, 3], dtype=np.uint8)],
    ],
    ids=["lists", "arrays", "pandas", "sets", "mixed"],
)
def test_any_sequence_will_do(data, predicted):
    assert agreement(data, predicted).hits.tolist() == [1, 2]


def test_nothing_may_be_predicted(data):
    counts = agreement(data, [np.array([]), []])
    assert counts.predicted.tolist() == [0, 0]
    assert counts.rejections.tolist() == [1, 1]


def test_every_object_outside_its_set_is_named(data):
    with pytest.raises(ChoiceDataError) as caught:
        agreement(data, [[1, 3], [0, 1]])
    assert [(d.kind, d.set, d.object) for d in caught.value.defects] == [
        ("predicted-not-shown", "monday", "knife"),
        ("predicted-not-shown", "tuesday", "pen"),
    ]
    assert "set 'monday', object 'knife': the object (row 3) is predicted to be chosen but is not" in str(caught.value)


def test_an_object_predicted_twice_is_named(data):
    with pytest.raises(ChoiceDataError, match=r"set 'tuesday', object 'ink': .* predicted twice"):
        agreement(data, [[1], [1, 3, 1]])


@pytest.mark.parametrize("row", [-1, 4, 1000])
def test_rows_outside_the_table_are_named(data, row):
    # Rows of a neighbouring set must not be hit by row numbers that run over.
    with pytest.raises(ChoiceDataError, match=rf"set 'tuesday': row {row} .* rows 0 to 3"):
        agreement(data, [[1], [row]])


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        ([[1]], "predicted has 1 sets but the data have 2"),
        ([[1], [1], [1]], "predicted has 3 sets but the data have 2"),
        ([["ink"], ["knife"]], r"predicted\[0\] holds 'ink' \(a str\) instead of a row number of data.X"),
        ([[1], [True, False]], r"predicted\[1\] holds True \(a bool\)"),
        ([[1.0], [2.0]], r"predicted\[0\] holds 1.0 \(a float\)"),
        ([[1], [10**30]], "predicted must hold row numbers of data.X"),
        ([1, 1], r"predicted\[0\] must be a list of objects, not an int"),
        ("ink", "predicted must be a list with one sequence of objects per set, not a str"),
        (None, "predicted must be a list"),
        ([[1], [[1, 3]]], r"predicted\[1\] holds \[1, 3\] \(a list\)"),
    ],
)
def test_what_is_no_prediction_is_refused(data, predicted, message):
    with pytest.raises(ChoiceGPError, match=message):
        agreement(data, predicted)


def test_data_without_choices_are_refused():
    data = ChoiceData.from_sets(X, SHOWN, by="id")
    with pytest.raises(ChoiceGPError, match="no choices to compare"):
        agreement(data, [[1], [1]])


def test_what_is_no_choice_data_is_refused():
    with pytest.raises(ChoiceGPError, match="data must be a ChoiceData, not a list"):
        agreement([[1]], [[1]])
