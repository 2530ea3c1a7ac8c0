"""Columns that are read as features though they say something else, and ids of sets that people share."""

import warnings

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData
from choicegp.errors import ReadingWarning

N_SETS, A = 6, 4


def table(**more) -> pd.DataFrame:
    """Return six sets of four objects each, with a price that is a feature, and further columns."""
    rng = np.random.default_rng(0)
    sets = np.repeat(np.arange(N_SETS), A)
    names = np.concatenate([rng.choice(list("abcdefgh"), A, replace=False) for _ in range(N_SETS)])
    price = np.array([ord(name) % 7 for name in names])
    frame = pd.DataFrame({"choice_id": sets, "alt_id": names, "choice": np.tile([1, 1, 0, 0], N_SETS), "price": price})
    return frame.assign(**more)


def said(frame: pd.DataFrame, **options) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ChoiceData.from_long(frame, **options)
    return [str(one.message) for one in caught if issubclass(one.category, ReadingWarning)]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (np.arange(N_SETS * A) + 5, "its values number the rows"),
        (np.tile([2, 1, 4, 3], N_SETS), "its values number the objects of every set"),
        (np.tile([0, 1, 3, 2], N_SETS), "its values number the objects of every set"),
        (np.tile([0, 0, 1, 0], N_SETS), "it marks one object of every set: it seems to be an answer"),
        (np.repeat([31, 25, 31, 60, 44, 25], A), "all objects of a set share its value"),
        (np.repeat(["x", "y", "x", "z", "y", "z"], A), "all objects of a set share its value"),
    ],
)
def test_a_column_that_is_no_feature_is_named(column, problem):
    (one,) = said(table(extra=column))
    assert one.startswith(f"column 'extra' is read as a feature, but {problem}")
    assert one.endswith("; to leave it out, pass features=['price']")
    assert said(table(extra=column), features=["price", "extra"]) == []  # someone has named it
    assert said(table(extra=column).sample(frac=1.0, random_state=1)) == [one]  # in any order of rows


@pytest.mark.parametrize(
    "column",
    [
        np.arange(N_SETS * A) * 1.5,
        np.tile([2, 1, 4, 4], N_SETS),
        np.append(np.tile([0, 0, 1, 0], N_SETS)[:-1], 1),
        np.full(N_SETS * A, 3.0),
    ],
)
def test_other_columns_are_features(column):
    assert said(table(extra=column)) == []


def test_a_few_sets_say_nothing():
    assert said(table(extra=np.tile([1, 2, 3, 4], N_SETS)).iloc[: 4 * A]) == []


def test_ids_of_sets_that_people_share_are_found_by_the_order_of_the_rows():
    first = table().iloc[: 3 * A]
    other = first.assign(alt_id=["p", "q", "r", "s"] * 3, price=9)
    (one,) = said(pd.concat([first, other], ignore_index=True))
    assert one.startswith("the rows of 3 of 3 sets lie in several places of the table: if several people")
    assert one.endswith("pass set_id=['respondent', 'choice_id']")
    assert said(table().sample(frac=1.0, random_state=0)) == []
    people = pd.concat([first, other], ignore_index=True).assign(who="u")
    assert said(people, respondent="who") == []
