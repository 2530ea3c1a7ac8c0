import numpy as np
import pytest

from choicegp.experiments.results import (
    MeanDifference,
    difference,
    is_better,
    is_equal,
    is_not_worse,
    markdown_table,
    mean_and_error,
    together,
)


def test_a_table_has_a_row_for_each_line_and_empty_cells():
    text = markdown_table(("a", "b"), [(1, None), ("x", 2.5)])
    assert text.splitlines() == ["| a | b |", "|---|---|", "| 1 |  |", "| x | 2.5 |"]


def test_a_table_without_rows_has_its_head():
    assert markdown_table(("a",), []).splitlines() == ["| a |", "|---|"]


def test_a_bar_in_a_cell_does_not_end_it():
    assert markdown_table(("a",), [("x | y",)]).splitlines()[-1] == "| x \\| y |"


# What is claimed of differences


def test_differences_are_taken_seed_by_seed():
    first = {0: 0.9, 1: 0.7, 2: 0.8, 9: 0.0}
    second = {2: 0.6, 1: 0.6, 0: 0.6, 8: 1.0}
    found = difference(first, second)
    gaps = np.array([0.3, 0.1, 0.2])
    assert found == pytest.approx((gaps.mean(), gaps.std(ddof=1) / np.sqrt(3), 3))
    assert str(found) == "+0.200 ± 0.058"


def test_few_repetitions_have_no_error():
    one, none = difference({0: 0.9}, {0: 0.8}), difference({0: 0.9}, {1: 0.8})
    assert str(one) == "+0.100"
    assert (one.n, none.n, str(none)) == (1, 0, "")
    assert np.isnan([one.se, none.mean]).all()
    assert one.sign == 0
    assert mean_and_error({}) == ""
    assert mean_and_error({3: 0.5}) == "0.500"
    assert mean_and_error({3: -0.5, 4: -0.7}) == "-0.600 ± 0.100"


@pytest.mark.parametrize(
    ("mean", "se", "better", "equal", "not_worse"),
    [
        (0.05, 0.01, "confirmed", "contradicted", "confirmed"),
        (0.05, 0.03, "not confirmed", "not confirmed", "confirmed"),
        (-0.05, 0.01, "contradicted", "contradicted", "contradicted"),
        (-0.05, 0.03, "not confirmed", "not confirmed", "not confirmed"),
        (0.008, 0.001, "confirmed", "confirmed", "confirmed"),
        (-0.008, 0.001, "contradicted", "confirmed", "confirmed"),
        (0.0, 0.006, "not confirmed", "not confirmed", "confirmed"),
    ],
)
def test_verdicts(mean, se, better, equal, not_worse):
    found = MeanDifference(mean, se, 20)
    assert (is_better(found), is_equal(found), is_not_worse(found)) == (better, equal, not_worse)
    few = found._replace(n=4)
    assert {is_better(few), is_equal(few), is_not_worse(few)} == {"too few runs"}


def test_a_claim_is_as_good_as_its_weakest_part():
    assert together(["confirmed", "confirmed"]) == "confirmed"
    assert together(["confirmed", "not confirmed"]) == "not confirmed"
    assert together(["not confirmed", "contradicted", "confirmed"]) == "contradicted"
    assert together(["contradicted", "too few runs"]) == "too few runs"
