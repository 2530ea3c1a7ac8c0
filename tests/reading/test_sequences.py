import numpy as np
import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.sequences import flatten

X = np.arange(4.0).reshape(-1, 1)


@pytest.mark.parametrize(
    "shown",
    [
        [[0, 1], [2, 3]],
        ((0, 1), (2, 3)),
        np.array([[0, 1], [2, 3]]),
        np.array([[0, 1], [2, 3]], dtype=np.uint8),
        [np.array([0, 1]), np.array([2, 3])],
        [np.array([0, 1], dtype=np.int8), [2, 3]],
        [range(2), range(2, 4)],
        [pd.Series([0, 1]), pd.Index([2, 3])],
        pd.Series([[0, 1], [2, 3]]),
        pd.DataFrame([[0, 1], [2, 3]]),
        np.array([[0, 1], [2, 3]], dtype=object),
    ],
)
def test_all_kinds_of_sequences(shown):
    data = ChoiceData.from_sets(X, shown)
    assert [s.tolist() for s in data.shown] == [[0, 1], [2, 3]]


def test_ragged_arrays():
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.array([0, 1, 2]), np.array([3])]
    assert [s.tolist() for s in ChoiceData.from_sets(X, ragged).shown] == [[0, 1, 2], [3]]


def test_chosen_may_be_python_sets():
    assert ChoiceData.from_sets(X, [[3, 1, 2]], [{1, 3}]).chosen[0].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (3, "must be a list with one sequence of objects per set, not an int"),
        (None, "not None"),
        ("01", "not a str"),
        ({0: [1]}, "not a dict"),
        ((k for k in [[0, 1]]), "not a generator"),
        (np.array(3), "not a"),
        (np.zeros((2, 2, 2), dtype=int), "not a"),
        ([], "no sets"),
        (np.zeros((0, 2), dtype=int), "no sets"),
        ([0, 1], r"shown\[0\] must be a list of objects, not an int"),
        ([[0], None], r"shown\[1\] must be a list of objects, not None"),
        ([[0], "12"], r"shown\[1\] must be a list of objects, not a str"),
        ([[0], {"a": 1}], r"shown\[1\] must be a list of objects, not a dict"),
        ([{0, 1}], r"shown\[0\] .* not a set \(its order is not fixed"),
        ([[0], [0.0, 1.0]], r"instead of a row number of X"),
        ([[0], [1.5]], r"instead of a row number of X"),
        (np.array([[0.0, 1.0]]), r"holds 0.0 \(a float\) instead of a row number"),
        ([[0, 1], [2, "a"]], r"shown\[1\] holds 'a' \(a str\)"),
        ([[0, None]], r"shown\[0\] holds"),
        ([[True, False, True, False]], r"holds True \(a bool\)"),
        ([[0, 1j]], "instead of a row number of X"),
        ([[[0, 1], [2, 3]]], "sequences inside|row number"),
        ([[[0], [1, 2]]], "sequences inside|row number"),
        ([np.zeros((2, 2), dtype=int)], r"shown\[0\] must have one dimension"),
    ],
)
def test_wrong_types(shown, message):
    with pytest.raises(ChoiceGPError, match=message):
        ChoiceData.from_sets(X, shown)


def test_wrong_types_of_chosen():
    with pytest.raises(ChoiceGPError, match=r"chosen\[0\] must be a list of objects, not an int"):
        ChoiceData.from_sets(X, [[0, 1]], [0])
    with pytest.raises(ChoiceGPError, match="shown has 1 sets but chosen has 2"):
        ChoiceData.from_sets(X, [[0, 1]], [[0], [1]])


def test_ids_of_different_types_stay_apart():
    flat = flatten([[1, "1"], [2]], "shown")
    assert flat.labels.tolist() == [1, "1", 2]
    mixed = flatten([np.array([1]), np.array(["a"])], "shown")
    assert mixed.labels.tolist() == [1, "a"]


@pytest.mark.parametrize("ids", [["p", "q", "r", "s"], np.array(["p", "q", "r", "s"]), pd.Index(list("pqrs"))])
def test_text_ids(ids):
    data = ChoiceData.from_sets(X, [["p", "s"]], [["s"]], by="id", object_ids=ids)
    assert data.object_ids.dtype == object
    assert all(type(value) is str for value in data.object_ids)
    assert data.chosen[0].tolist() == [3]


def test_ids_of_a_frame():
    frame = pd.DataFrame({"price": [3.0, 4.0]}, index=[20, 10])
    data = ChoiceData.from_sets(frame, np.array([[10, 20]]), by="id")
    assert data.shown[0].tolist() == [1, 0]
    assert data.object_ids.tolist() == [20, 10]
    # By row the index is only a name.
    assert ChoiceData.from_sets(frame, [[0]]).shown[0].tolist() == [0]


def test_tuples_can_be_ids():
    ids = [("a", 1), ("a", 2)]
    data = ChoiceData.from_sets(X[:2], [[("a", 2)]], by="id", object_ids=ids)
    assert data.shown[0].tolist() == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"object_ids": ["a"] * 4, "by": "id"}, "id of its own; these repeat: 'a'"),
        ({"object_ids": ["a"]}, "object_ids has 1 ids but there are 4 objects"),
        ({"object_ids": "abcd"}, "object_ids must be a sequence"),
        ({"object_ids": 4}, "object_ids must be a sequence"),
        ({"respondents": ["ann"]}, "respondents has 1 ids but there are 2 sets"),
        ({"set_ids": [1, 1]}, "every set needs an id of its own; these repeat: 1"),
        ({"set_ids": [1, None]}, "set_ids has no id at position 1"),
        ({"weights": [1.0]}, "weights has 1 numbers but there are 2 sets"),
        ({"weights": ["a", "b"]}, "weights must (be a sequence of|hold real) numbers"),
        ({"weights": 1.0}, "weights must (be a sequence of|hold real) numbers"),
        ({"weights": [[1.0], [1.0, 2.0]]}, "weights must (be a sequence of|hold real) numbers"),
        ({"by": "name"}, "by must be 'row' or 'id'"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip'"),
        ({"encoding": "x"}, "encoding must be a FeatureEncoding, not a str"),
    ],
)
def test_wrong_options(options, message):
    shown = [["a", "b"], ["c"]] if options.get("by") == "id" else [[0, 1], [2]]
    with pytest.raises(ChoiceGPError, match=message):
        ChoiceData.from_sets(X, shown, **options)


def test_index_of_several_levels():
    frame = pd.DataFrame({"a": [1.0]}, index=pd.MultiIndex.from_tuples([(1, 2)]))
    with pytest.raises(ChoiceGPError, match="several levels"):
        ChoiceData.from_sets(frame, [[0]])


def test_ids_that_cannot_be():
    with pytest.raises(ChoiceGPError, match=r"cannot be ids|sequences inside"):
        ChoiceData.from_sets(X, [[[0], [1, 2]]], by="id")
    with pytest.raises(ChoiceDataError, match="an example of an id is 0"):
        ChoiceData.from_sets(X, [["0", "1"]], by="id")
