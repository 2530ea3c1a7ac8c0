"""Metrics: answers worked out by hand, a slow version to agree with, and properties."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import choicegp.metrics as facade
from choicegp import ChoiceData, ChoiceGPError
from choicegp.evaluation import metrics

X = np.arange(5.0)[:, None]
# Three sets: two of five objects rightly rejected, one set without a rejected object.
DATA = ChoiceData.from_sets(X, [[0, 1], [1, 2, 3, 4], [4, 0]], [[0], [2, 3], [0, 4]])
PREDICTED = [[0], [2, 1], [4]]


def test_exact_accuracy_by_hand():
    assert metrics.exact_accuracy(DATA, PREDICTED) == pytest.approx(1 / 3)


def test_object_accuracy_by_hand():
    # 2 of 2, then 2 and 4 of four, then 4 of two.
    assert metrics.object_accuracy(DATA, PREDICTED) == pytest.approx(5 / 8)


def test_pooled_rates_by_hand():
    tpr, tnr = metrics.rates(DATA, PREDICTED)
    assert tpr == pytest.approx(3 / 5)
    assert tnr == pytest.approx(2 / 3)
    assert metrics.a_mean(DATA, PREDICTED) == pytest.approx((3 / 5 + 2 / 3) / 2)


def test_rates_per_set_leave_out_sets_where_they_are_not_defined():
    tpr, tnr = metrics.rates(DATA, PREDICTED, average="set")
    assert tpr == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert tnr == pytest.approx((1 + 1 / 2) / 2)
    assert metrics.a_mean(DATA, PREDICTED, average="set") == pytest.approx((2 / 3 + 3 / 4) / 2)


def test_f1_by_hand():
    # Precision and recall: 1 and 1; 1/2 and 1/2; 1 and 1/2.
    assert metrics.f1(DATA, PREDICTED) == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)


def test_f1_of_an_empty_prediction_is_zero():
    assert metrics.f1(DATA, [[], [], []]) == 0.0


def test_log_score_by_hand():
    assert metrics.log_score([math.log(0.5), 0.0]) == pytest.approx(math.log(0.5) / 2)
    assert metrics.log_score(np.array([-1.0, -np.inf])) == -np.inf
    assert metrics.log_score([1e-9]) == pytest.approx(0.0, abs=1e-8)  # rounding


def test_guessing_log_score_by_hand():
    expected = -(math.log(3) + math.log(15) + math.log(3)) / 3
    assert metrics.guessing_log_score(DATA) == pytest.approx(expected)
    assert metrics.guessing_log_score(ChoiceData.from_sets(X, [[3]])) == 0.0
    many = ChoiceData.from_sets(np.arange(2000.0)[:, None], [range(2000)])
    assert metrics.guessing_log_score(many) == pytest.approx(-2000 * math.log(2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "log_probabilities is empty"),
        ([-1.0, 0.5], "at most 0; at position 1 stands 0.5"),
        ([np.nan], "at position 0 stands nan"),
        ([[-1.0]], r"one number per set.*shape \(1, 1\)"),
        (-1.0, "one number per set"),
        (["-1"], "one number per set"),
        (None, "one number per set.*this is None"),
    ],
)
def test_log_score_refuses(values, message):
    with pytest.raises(ChoiceGPError, match=message):
        metrics.log_score(values)


def test_everything_chosen_is_what_was_shown():
    predicted = metrics.everything_chosen(DATA)
    assert [rows.tolist() for rows in predicted] == [[0, 1], [1, 2, 3, 4], [4, 0]]
    assert metrics.rates(DATA, predicted) == (1.0, 0.0)
    assert metrics.a_mean(DATA, predicted) == 0.5


def test_everything_chosen_needs_no_choices():
    assert metrics.everything_chosen(ChoiceData.from_sets(X, [[1, 0]]))[0].tolist() == [1, 0]


def test_where_nothing_was_rejected_the_true_negative_rate_is_none():
    data = ChoiceData.from_sets(X, [[0, 1], [2, 3]], [[0, 1], [2, 3]])
    for average in ("pooled", "set"):
        assert metrics.rates(data, [[0], [2, 3]], average) == (0.75, None)
        assert metrics.a_mean(data, [[0], [2, 3]], average) == 0.75


@pytest.mark.parametrize("average", ["sets", "macro", None, 1])
def test_an_unknown_average_is_refused(average):
    with pytest.raises(ChoiceGPError, match="average must be 'pooled' or 'set'"):
        metrics.a_mean(DATA, PREDICTED, average)


@pytest.mark.parametrize(
    "metric", [metrics.exact_accuracy, metrics.object_accuracy, metrics.rates, metrics.a_mean, metrics.f1]
)
def test_a_prediction_that_does_not_fit_is_refused(metric):
    with pytest.raises(ChoiceGPError, match="predicted has 1 sets but the data have 3"):
        metric(DATA, [[0]])


class TestSummary:
    def test_has_the_model_beside_the_baseline(self):
        table = metrics.summary(DATA, PREDICTED)
        assert list(table.index) == ["model", "everything chosen", "random answer"]
        for name, predicted in (("model", PREDICTED), ("everything chosen", DATA.shown)):
            row = table.loc[name]
            assert row["exact_accuracy"] == metrics.exact_accuracy(DATA, predicted)
            assert row["object_accuracy"] == metrics.object_accuracy(DATA, predicted)
            assert row["a_mean"] == metrics.a_mean(DATA, predicted)
            assert row["a_mean_set"] == metrics.a_mean(DATA, predicted, average="set")
            assert (row["tpr"], row["tnr"]) == metrics.rates(DATA, predicted)
            assert row["f1"] == metrics.f1(DATA, predicted)
        assert "log_score" not in table

    def test_takes_log_probabilities(self):
        table = metrics.summary(DATA, PREDICTED, log_prob=[-1.0, -2.0, 0.0])
        assert table.loc["model", "log_score"] == -1.0
        assert table.loc["everything chosen", "log_score"] is pd.NA
        assert table.loc["random answer", "log_score"] == metrics.guessing_log_score(DATA)

    def test_random_answers_are_averaged_over_all_parts(self):
        data = ChoiceData.from_sets(X, [[0, 1, 2], [1, 2]], [[0, 2], [1]])
        parts = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
        every = [(first, second) for first in parts for second in ([1], [2], [1, 2])]
        row = metrics.summary(data, [[0], [1]]).loc["random answer"]
        assert row["exact_accuracy"] == pytest.approx(np.mean([metrics.exact_accuracy(data, one) for one in every]))
        assert row["object_accuracy"] == pytest.approx(np.mean([metrics.object_accuracy(data, one) for one in every]))
        for average in ("pooled", "set"):
            mean = np.mean([metrics.a_mean(data, one, average=average) for one in every])
            assert row["a_mean" if average == "pooled" else "a_mean_set"] == pytest.approx(mean)

    def test_takes_probabilities(self):
        data = ChoiceData.from_sets(X, [[0, 1]], [[0]])
        table = metrics.summary(data, [[0]], probabilities=[[0.8, 0.4]])
        assert table.loc["model", "brier"] == pytest.approx((0.2**2 + 0.4**2) / 2)
        assert table.loc["everything chosen", "brier"] == 0.5
        assert table.loc["model", "calibration_error"] == pytest.approx((0.2 + 0.4) / 2)

    def test_an_empty_answer_that_is_foreseen_is_right(self):
        data = ChoiceData.from_sets(X, [[0, 1], [0, 1]], [[], [0]], empty="none")
        assert metrics.f1(data, [[], [0]]) == 1.0
        assert metrics.f1(data, [[1], [0]]) == 0.5
        assert metrics.summary(data, [[], [0]]).loc["random answer", "exact_accuracy"] == pytest.approx(1 / 6)

    def test_shows_no_nan(self):
        data = ChoiceData.from_sets(X, [[0, 1]], [[0, 1]])
        table = metrics.summary(data, [[0]])
        assert table["tnr"].isna().all()
        assert "nan" not in str(table).lower()
        assert table.loc["model", "a_mean"] == 0.5

    def test_wants_as_many_log_probabilities_as_sets(self):
        with pytest.raises(ChoiceGPError, match="log_prob has 2 numbers for 3 sets"):
            metrics.summary(DATA, PREDICTED, log_prob=[-1.0, -2.0])


@st.composite
def predictions(draw):
    """Draw sets of different sizes, what was chosen and what is predicted, as sets of rows."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    shown = [draw(st.permutations(range(5)))[:size] for size in sizes]
    chosen = [draw(st.sets(st.sampled_from(rows), min_size=1)) for rows in shown]
    predicted = [draw(st.sets(st.sampled_from(rows))) for rows in shown]
    return shown, chosen, predicted


@settings(max_examples=60, deadline=None)
@given(predictions())
def test_metrics_agree_with_counting_set_by_set(case):
    shown, chosen, predicted = case
    data = ChoiceData.from_sets(X, shown, [sorted(kept) for kept in chosen])
    triples = list(zip(map(set, shown), chosen, predicted, strict=True))
    assert metrics.exact_accuracy(data, predicted) == pytest.approx(np.mean([c == p for _, c, p in triples]))
    right = sum(len((c & p) | ((s - c) & (s - p))) for s, c, p in triples)
    assert metrics.object_accuracy(data, predicted) == pytest.approx(right / sum(map(len, shown)))
    per_set = [2 * len(c & p) / (len(c) + len(p)) for _, c, p in triples]
    assert metrics.f1(data, predicted) == pytest.approx(np.mean(per_set))
    tpr = [len(c & p) / len(c) for _, c, p in triples]
    tnr = [len((s - c) - p) / len(s - c) for s, c, p in triples if s - c]
    found = metrics.rates(data, predicted, "set")
    assert found.tpr == pytest.approx(np.mean(tpr))
    assert found.tnr == (pytest.approx(np.mean(tnr)) if tnr else None)
    rejected = sum(len(s - c) for s, c, _ in triples)
    pooled = metrics.rates(data, predicted)
    assert pooled.tpr == pytest.approx(sum(len(c & p) for _, c, p in triples) / sum(len(c) for c in chosen))
    if rejected:
        assert pooled.tnr == pytest.approx(sum(len(s - c - p) for s, c, p in triples) / rejected)
    else:
        assert pooled.tnr is None


@settings(max_examples=40, deadline=None)
@given(predictions())
def test_the_right_prediction_scores_one_and_its_opposite_zero(case):
    shown, chosen, _ = case
    data = ChoiceData.from_sets(X, shown, [sorted(kept) for kept in chosen])
    opposite = [set(rows) - kept for rows, kept in zip(shown, chosen, strict=True)]
    for metric in (metrics.exact_accuracy, metrics.object_accuracy, metrics.a_mean, metrics.f1):
        assert metric(data, chosen) == 1.0
        assert metric(data, opposite) == 0.0


@settings(max_examples=40, deadline=None)
@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_the_sets_does_not_matter(case, random):
    shown, chosen, predicted = case
    data = ChoiceData.from_sets(X, shown, [sorted(kept) for kept in chosen])
    order = random.sample(range(len(shown)), len(shown))
    table = metrics.summary(data, predicted)
    again = metrics.summary(data.take(order), [predicted[k] for k in order])
    pd.testing.assert_frame_equal(table, again, atol=1e-12)


def test_the_facade_has_every_public_metric():
    defined = {
        name
        for name, value in vars(metrics).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == metrics.__name__
    }
    assert defined | {"calibration"} == set(facade.__all__)
    assert all(getattr(facade, name) is getattr(metrics, name) for name in defined)
