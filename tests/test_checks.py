import numpy as np
import pytest

from choicegp.checks import as_table, counted, id_array, in_digits, number_array, unique_index
from choicegp.errors import ChoiceGPError


@pytest.mark.parametrize(
    "X",
    [None, "abc", 3, [1.0, 2.0], [[1.0], [1.0, 2.0]], np.ones((2, 2, 2)), np.array([["a"]]), {"a": 1},
     np.array([[1j]]), np.array([[1, None]], dtype=object), np.ones((0, 2)), np.ones((2, 0))],
)  # fmt: skip
def test_tables_that_are_none(X):
    with pytest.raises(ChoiceGPError, match="X"):
        as_table(X)


def test_masked_values_are_missing():
    X = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert np.isnan(as_table(X)).tolist() == [[False, True], [False, False]]


def test_id_array_copies():
    ids = np.array([1, 2])
    assert not np.shares_memory(id_array(ids, 2, "ids", "objects"), ids)


def test_ids_that_repeat_are_listed():
    assert unique_index(np.array(["a", "b"], dtype=object), "ids differ").tolist() == ["a", "b"]
    with pytest.raises(ChoiceGPError, match=r"^ids differ; these repeat: 1, 3$"):
        unique_index(np.array([1, 2, 1, 3, 3, 1]), "ids differ")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (None, "it is None"),
        (["a"], "it is a list of type <U1"),
        ([1j], "it is a list of type complex128"),
        ([[1.0], [1.0, 2.0]], "its rows differ in length"),
    ],
)
def test_what_holds_no_numbers(values, problem):
    with pytest.raises(ChoiceGPError) as caught:
        number_array("U", values, "; give numbers")
    assert str(caught.value) == f"U must hold real numbers, but {problem}; give numbers"


def test_number_arrays_are_new_and_of_floats():
    given = np.array([1.0, np.nan])
    assert not np.shares_memory(number_array("U", given), given)
    assert number_array("U", [True, 2]).tolist() == [1.0, 2.0]


def test_numbers_for_readers_are_no_powers_of_ten():
    values = (1.23456789, 125_000.0, -1_234_567.0, 0.00012, float("nan"))
    assert [in_digits(value) for value in values] == ["1.2346", "125000", "-1234567", "0.00012", "–"]
    assert in_digits(12_345.0, 4) == "12345"


def test_counted():
    assert [counted(n, "set") for n in (0, 1, 2)] == ["0 sets", "1 set", "2 sets"]
    assert counted(1200, "set", ",") == "1,200 sets"
    assert [counted(n, "utility", many="utilities") for n in (1, 2)] == ["1 utility", "2 utilities"]
