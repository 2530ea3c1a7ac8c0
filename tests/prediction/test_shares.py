"""Shares of assortments: sums, orders, changes, all rules, and answers to bad questions."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGPError, ExtrapolationWarning
from choicegp.data.pareto import undominated
from choicegp.model.error_models import DISCERNIBILITY, BestInOne
from choicegp.prediction.taking import answered

from .known_market import PRODUCTS, answers_by_definition, known_model, two_goals

ERRORS = [DISCERNIBILITY, DISCERNIBILITY.with_threshold(), BestInOne(), BestInOne(threshold=True)]


@pytest.fixture
def model(monkeypatch):
    return known_model(monkeypatch, two_goals, errors=DISCERNIBILITY.with_threshold())


def drawn_shares(u, errors, take="equal", lapse=None):
    """Shares of one person with utilities (n, d)."""
    found = answered(np.asarray(u, float)[None, None], errors, lapse, take)
    return found.keep[0, 0], found.take[0, 0], found.none[0, 0]


def test_too_large_an_assortment_is_refused_before_anything_is_drawn(model, monkeypatch):
    """Joint draws of 5,000 objects take more than a minute."""
    monkeypatch.setattr("choicegp.prediction.shares.utilities_of_people", lambda *_: pytest.fail("it draws"))
    many = PRODUCTS.iloc[np.zeros(200, int)].set_axis([f"o{i}" for i in range(200)])
    with pytest.raises(ChoiceGPError, match="at most 199 objects; this one has 200"):
        model.shares({"all": many})


@pytest.mark.parametrize("errors", ERRORS, ids=lambda errors: errors.name)
@pytest.mark.parametrize("take", ["equal", "best"])
def test_everybody_takes_one_kept_object_or_none(errors, take):
    u = np.random.default_rng(0).normal(size=(4, 2))
    keep, taken, none = drawn_shares(u, errors, take, 0.2)
    assert taken.sum() + none == pytest.approx(1.0, abs=1e-9)
    assert np.all(taken <= keep + 1e-12)
    assert (none > 0) == errors.has_threshold
    if not errors.has_threshold:
        assert none == 0.0


@pytest.mark.parametrize("take", ["equal", "best"])
def test_shares_are_sums_over_all_answers(take):
    u = np.random.default_rng(1).normal(size=(3, 2))
    keep, taken = np.zeros(3), np.zeros(3)
    for inside, p in answers_by_definition(u):
        for o in inside:
            keep[o] += p
            best = np.mean([o == max(inside, key=lambda v, i=i: u[v, i]) for i in range(2)])
            taken[o] += p * (1 / len(inside) if take == "equal" else best)
    found = drawn_shares(u, DISCERNIBILITY, take)
    np.testing.assert_allclose(found[0], keep, atol=1e-8)
    np.testing.assert_allclose(found[1], taken, atol=1e-8)


@pytest.mark.parametrize("take", ["equal", "best"])
def test_equal_objects_have_equal_shares(take):
    keep, taken, _ = drawn_shares([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], DISCERNIBILITY, take)
    np.testing.assert_allclose(keep[[0, 2]], keep[3])
    np.testing.assert_allclose(taken[[0, 2]], taken[3])


@pytest.mark.parametrize("errors", [DISCERNIBILITY.with_threshold(), BestInOne()], ids=lambda errors: errors.name)
def test_answers_of_large_assortments_are_drawn(errors):
    u = 40.0 * np.random.default_rng(2).normal(size=(13, 2))
    keep, taken, none = drawn_shares(u, errors, "best", 0.1)
    assert taken.sum() + none == pytest.approx(1.0)
    clear = undominated(u)[: len(keep)]
    if errors.has_threshold:  # of clear utilities the front is kept
        np.testing.assert_allclose(keep, 0.9 * clear + 0.05, atol=0.1)


def test_an_object_alone_is_kept():
    assert [part.tolist() for part in drawn_shares([[0.3, 1.0]], DISCERNIBILITY)] == [[1.0], [1.0], 0.0]


def test_the_frame_has_every_object_with_its_intervals(model):
    found = model.shares({"today": PRODUCTS, "small": ["B", "A"]}, n_draws=50)
    assert found["set"].tolist() == ["today"] * 5 + ["small"] * 3
    assert found["object"].tolist() == ["A", "B", "C", "D", "none", "B", "A", "none"]
    assert found.columns[2:].tolist() == ["kept", "kept_lower", "kept_upper", "taken", "taken_lower", "taken_upper"]
    for name in ("kept", "taken"):
        assert np.all((found[f"{name}_lower"] <= found[name]) & (found[name] <= found[f"{name}_upper"]))
    np.testing.assert_allclose(found.groupby("set")["taken"].sum(), 1.0)


def test_the_order_of_objects_has_no_influence(model):
    first = model.shares({"all": PRODUCTS}, n_draws=20).set_index("object")
    second = model.shares({"all": PRODUCTS[::-1]}, n_draws=20).set_index("object")
    pd.testing.assert_frame_equal(first, second.loc[first.index])


def test_choice_data_and_dicts_give_the_same(model):
    data = ChoiceData.from_sets(PRODUCTS, [["A", "C"], ["B", "C", "D"]], by="id", set_ids=["x", "y"])
    named = {"x": ["A", "C"], "y": PRODUCTS.loc[["B", "C", "D"]]}
    pd.testing.assert_frame_equal(model.shares(data, n_draws=20), model.shares(named, n_draws=20))


def test_few_objects_at_a_time_give_shares_of_all_assortments(model, monkeypatch):
    monkeypatch.setattr("choicegp.prediction.shares._MOST_TOGETHER", 4)
    monkeypatch.setattr("choicegp.prediction.shares._NUMBERS", 100)
    found = model.shares({"x": ["A", "C"], "y": ["B", "C", "D"], "z": ["A", "B"]}, n_draws=31)
    assert found["set"].unique().tolist() == ["x", "y", "z"]
    np.testing.assert_allclose(found.groupby("set")["taken"].sum(), 1.0)


def test_shares_are_means_over_people(monkeypatch):
    model = known_model(monkeypatch, partial(two_goals, n_people=3), n_people=3)
    each = [model.shares({"all": PRODUCTS}, n_draws=20, people=[f"r{i}"])["kept"] for i in range(3)]
    np.testing.assert_allclose(model.shares({"all": PRODUCTS}, n_draws=20)["kept"], np.mean(each, axis=0))


def test_no_change_makes_no_difference(model):
    found = model.what_if(["A", "B", "C"], {"B": {"price": 700}}, n_draws=20)
    assert found["object"].tolist() == ["A", "B", "C", "none"]
    for name in ("kept", "taken"):
        assert np.all(found[[f"{name}_difference{end}" for end in ("", "_lower", "_upper")]] == 0.0)


def test_a_change_is_the_difference_of_two_assortments(model):
    found = model.what_if(PRODUCTS, {"D": {"price": 600, "colour": "red"}, "C": {"speed": 1.5}}, n_draws=20)
    after = PRODUCTS.copy()
    after.loc["D", ["price", "colour"]] = [600.0, "red"]
    after.loc["C", "speed"] = 1.5
    shares = model.shares({"before": PRODUCTS, "after": after}, n_draws=20).set_index(["set", "object"])
    for name in ("kept", "taken"):
        np.testing.assert_allclose(found[f"{name}_before"], shares.loc["before", name])
        np.testing.assert_allclose(found[f"{name}_after"], shares.loc["after", name])
        difference = found[f"{name}_difference"]
        np.testing.assert_allclose(difference, found[f"{name}_after"] - found[f"{name}_before"], atol=1e-12)
    assert found["kept_difference"][3] > 0


def test_a_withdrawn_object_is_not_taken(model):
    found = model.what_if(PRODUCTS, {"D": None}, n_draws=20).set_index("object")
    assert found.loc["D", "taken_after"] == 0.0
    left = model.shares({"left": ["A", "B", "C"]}, n_draws=20).set_index("object")
    np.testing.assert_allclose(found.drop(index="D")["taken_after"], left["taken"])


def test_objects_outside_the_training_range_are_named(model):
    with pytest.warns(ExtrapolationWarning, match="price 5000"):
        model.what_if(PRODUCTS, {"A": {"price": 5000}}, n_draws=20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.shares(PRODUCTS), r"dict from the name.*DataFrame.*\{'today': objects\}"),
        (lambda m: m.shares({}), "there is no assortment"),
        (lambda m: m.shares({"x": "A"}), "list of ids"),
        (lambda m: m.shares({"x": []}), "'x' has no object"),
        (lambda m: m.shares({"x": ["A", "Z"]}), "no object 'Z'.*DataFrame"),
        (lambda m: m.shares({"x": ["A", "A"]}), "twice: 'A'"),
        (lambda m: m.shares({"x": PRODUCTS[["price"]]}), "'speed', 'colour' missing"),
        (lambda m: m.shares({"x": ["A"]}, take="all"), "take must be 'equal' or 'best'"),
        (lambda m: m.shares({"x": ["A"]}, n_draws=1), "n_draws must be a whole number of at least 2"),
        (lambda m: m.shares({"x": ["A"]}, people="new"), "pools the answers"),
        (lambda m: m.what_if(["A"], None), "changes must be a dict"),
        (lambda m: m.what_if(["A"], {"B": {}}), "no object 'B'; it has 'A'"),
        (lambda m: m.what_if(["A"], {"A": 3}), "must be a dict of features"),
        (lambda m: m.what_if(["A"], {"A": None}), "nothing is left"),
        (lambda m: m.what_if(["A"], {"A": {"cost": 3}}), "no feature 'cost'; the features are 'price'"),
        (lambda m: m.what_if({"x": ["A"], "y": ["B"]}, {}), "one assortment is needed; got 2"),
    ],
)  # fmt: skip
def test_bad_questions_are_answered_clearly(model, call, message):
    with pytest.raises(ChoiceGPError, match=message):
        call(model)


@pytest.mark.parametrize(("people", "message"), [("old", "'new' or a list"), ([], "'new' or a list")])
def test_people_are_respondents_or_new(monkeypatch, people, message):
    model = known_model(monkeypatch, two_goals, n_people=1)
    with pytest.raises(ChoiceGPError, match=message):
        model.shares({"all": PRODUCTS}, people=people)
