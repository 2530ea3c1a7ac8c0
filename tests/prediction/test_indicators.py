"""Elasticities, worth and diversion: against differences and utilities that are known, and against another program."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.prediction.assortments import usual_assortments
from choicegp.prediction.indicators import _nearest_roots, _worth_row

from .known_market import PRODUCTS, keep_by_definition, known_model, two_goals

THREE = PRODUCTS.loc[["A", "B", "C"]]
FEW = {"n_draws": 3}


@pytest.fixture
def people(monkeypatch):
    """Return a model of three people."""
    return known_model(monkeypatch, partial(two_goals, n_people=3), n_people=3)


def linear_utility(table, rng, n_draws, slope=0.005):
    """One utility: a unit of speed is worth 100 of the price, in every draw."""
    u = (-slope * table["price"] + 100 * slope * table["speed"]).to_numpy()
    return np.repeat(u[None, None, :, None], n_draws, axis=0)


def kept(table):
    """Shares (S, n) of the same draws, by the definition of the likelihood."""
    return np.array([keep_by_definition(u) for u in two_goals(table, np.random.default_rng(0), 3, n_people=3)])


def test_elasticities_are_derivatives_of_the_true_shares(people):
    found = people.elasticities("price", THREE, **FEW)
    for row in found.itertuples():
        h = 1e-5
        more, less = THREE.copy(), THREE.copy()
        more.loc[row.changed, "price"] *= 1 + h
        less.loc[row.changed, "price"] *= 1 - h
        place = THREE.index.get_loc(row.object)
        true = (np.log(kept(more)) - np.log(kept(less)))[:, place] / (2 * h)
        assert row.kept == pytest.approx(true.mean(), rel=0.02, abs=2e-4)
        assert row.kept_lower <= row.kept <= row.kept_upper
        assert row.kind == ("own" if row.changed == row.object else "cross")
    own = found[found["kind"] == "own"]
    assert len(found) == 9
    assert np.all(own["kept"] < 0)


def test_a_feature_without_effect_has_no_elasticity(monkeypatch):
    model = known_model(monkeypatch, linear_utility, products=PRODUCTS.assign(weight=[1.0, 2.0, 3.0, 4.0]))
    found = model.elasticities("weight", **FEW)
    assert np.all(found[["kept", "kept_lower", "kept_upper", "taken", "taken_lower", "taken_upper"]] == 0.0)


def test_worth_is_the_ratio_of_two_slopes(monkeypatch):
    model = known_model(monkeypatch, linear_utility)
    found = model.worth("speed", change=1.5, assortment=["A", "B", "C"], **FEW)
    np.testing.assert_allclose(found["worth"], 150.0, rtol=0.02)
    np.testing.assert_allclose(found["worth_lower"], found["worth_upper"])
    assert np.all(found["no_price"] == 0.0)
    assert found["in_words"].str.fullmatch(r"price may change by 1\S+ \(95% interval 1\S+ to 1\S+\)").all()


def test_worth_leaves_the_share_as_it_was(people):
    found = people.worth("speed", change=0.2, assortment=THREE, n_draws=2, people=["r1"]).set_index("object")
    for name in ("A", "B"):
        row = found.loc[name]
        # Two draws: the ends of the interval name both.
        spread = (row["worth_upper"] - row["worth_lower"]) / 0.95
        draws = row["worth"] + np.array([-0.5, 0.5]) * spread
        before = two_goals(THREE, np.random.default_rng(0), 2, n_people=3)[:, [1]]
        place = THREE.index.get_loc(name)
        changes = []
        for order in (draws, draws[::-1]):
            gaps = []
            for s, price in enumerate(order):
                table = THREE.copy()
                table.loc[name, ["price", "speed"]] += [price, 0.2]
                after = two_goals(table, np.random.default_rng(0), 2, n_people=3)[s, [1]]
                gaps.append(keep_by_definition(after)[place] - keep_by_definition(before[s])[place])
            changes.append(np.abs(gaps).max())
        assert min(changes) < 2e-3


def test_a_price_beyond_the_shown_range_is_no_price(monkeypatch):
    model = known_model(monkeypatch, partial(linear_utility, slope=0.001))
    found = model.worth("speed", change=50.0, **FEW)
    assert found["worth"].isna().all()
    assert np.all(found["no_price"] == 1.0)
    words = "no such price: in 100% of the draws no price from 500 to 1200 leaves P(kept) as it was"
    assert found["in_words"][0] == words


def test_a_category_has_a_worth(monkeypatch):
    def utility(table, rng, n_draws):
        return linear_utility(table.assign(speed=table["colour"] == "red"), rng, n_draws)

    found = known_model(monkeypatch, utility).worth("colour", change="red", **FEW).set_index("object")
    np.testing.assert_allclose(found["worth"], [0.0, 100.0, 0.0, np.nan], atol=1.0)


def test_roots_are_the_nearest_and_flat_values_have_none():
    grid = np.linspace(0.0, 4.0, 5)
    values = np.array([[-1.0, 1.0, 1.0, -1.0, -1.0], [1.0, 1.0, 2.0, 1.0, 1.0], np.zeros(5)])
    assert _nearest_roots(grid, values, 3.0).tolist()[:1] == [2.5]
    assert _nearest_roots(grid, values, 0.0).tolist()[:1] == [0.5]
    assert np.all(np.isnan(_nearest_roots(grid, values, 1.0)[1:]))


def test_draws_without_a_price_are_counted():
    row = _worth_row(np.array([1.0, 2.0, 3.0, np.nan]), "price", 0.0, 9.0)
    assert np.isnan(row["worth"])
    assert row["no_price"] == 0.25
    assert row["in_words"].startswith("no such price: in 25% of the draws no price from 0 to 9 leaves P(kept)")
    row = _worth_row(np.append(np.linspace(1.0, 3.0, 99), np.nan), "price", 0.0, 9.0)
    assert (row["worth"], row["no_price"]) == (2.0, 0.01)
    assert row["in_words"].startswith("in 1% of the draws no price")


@pytest.mark.parametrize("errors", [DISCERNIBILITY, DISCERNIBILITY.with_threshold()], ids=lambda errors: errors.name)
def test_everybody_goes_somewhere_when_an_object_is_withdrawn(monkeypatch, errors):
    model = known_model(monkeypatch, partial(two_goals, n_people=3), n_people=3, errors=errors)
    found = model.diversion("B", THREE, **FEW)
    assert found["object"].tolist() == ["A", "C", *(["none"] if errors.has_threshold else [])]
    assert found["diverted"].sum() == pytest.approx(1.0)
    assert found["instead"].sum() == pytest.approx(1.0)
    change = model.what_if(THREE, {"B": None}, **FEW).set_index("object")
    gained = change["taken_difference"].drop("B") / change["taken_before"]["B"]
    np.testing.assert_allclose(found["diverted"], gained[found["object"]], atol=0.05)  # a mean of ratios


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.elasticities("colour"), "'colour' has categories, no numbers; numeric features: 'price', 'speed'"),
        (lambda m: m.elasticities("cost"), "no feature 'cost'"),
        (lambda m: m.elasticities("price", step=2), "step must be a number between"),
        (lambda m: m.elasticities("speed", PRODUCTS.assign(speed=0.0)), "is 0 for 'A', 'B', 'C', 'D'"),
        (lambda m: m.worth("price"), "is worth itself"),
        (lambda m: m.worth("speed", "colour"), "'colour' has categories"),
        (lambda m: m.worth("speed", change="much"), "change must be a number"),
        (lambda m: m.worth("colour"), "change must be one of 'blue', 'red'"),
        (lambda m: m.worth("speed", assortment=["A"]), "always kept"),
        (lambda m: m.diversion("Z"), "no object 'Z'"),
        (lambda m: m.diversion("A", ["A"]), "no object beside 'A'"),
        (lambda m: m.diversion("A", pd.concat([PRODUCTS] * 3).set_axis(list("ABCDEFGHIJKL"))), "at most 10"),
    ],
)  # fmt: skip
def test_bad_questions_are_answered_clearly(people, call, message):
    with pytest.raises(ChoiceGPError, match=message):
        call(people)


MANY = pd.concat([PRODUCTS, PRODUCTS, PRODUCTS.assign(price=PRODUCTS["price"] + 50)]).set_axis(list("ABCDEFGHIJKL"))
SHOWN = [["A", "B", "C"], ["I", "B", "L"], ["D", "B", "A"], *[[i, j] for i, j in zip("EFGHJK", "FGHEKJ", strict=True)]]


@pytest.fixture
def many(monkeypatch):
    """Return a model of three people who have seen small sets of twelve objects."""
    return known_model(monkeypatch, partial(two_goals, n_people=3), n_people=3, products=MANY, shown=SHOWN)


def test_elasticities_are_of_shares_averaged_over_the_training_sets(many):
    found = many.elasticities("price", **FEW).set_index(["changed", "object"])
    h = 1e-5
    shares = {}
    for sign in (h, -h):
        changed = MANY.copy()
        changed.loc["B", "price"] *= 1 + sign
        both = [kept(changed.loc[names])[:, names.index("A")] for names in SHOWN if {"A", "B"} <= set(names)]
        assert len(both) == 2
        shares[sign] = np.log(np.mean(both, axis=0))
    true = np.mean(shares[h] - shares[-h]) / (2 * h)
    assert found.loc[("B", "A"), "kept"] == pytest.approx(true, rel=0.02, abs=2e-4)
    assert ("A", "L") not in found.index
    assert set(found.index.get_level_values("changed")) == set(MANY.index)


def test_worth_and_diversion_are_of_the_training_sets_too(many):
    worth = many.worth("speed", change=0.2, **FEW)
    assert sorted(worth["object"]) == sorted(MANY.index)
    alone = many.worth("speed", change=0.2, assortment=["I", "B", "L"], **FEW).set_index("object")["worth"]
    assert 0.0 < alone["I"] == pytest.approx(worth.set_index("object").loc["I", "worth"])  # I is in no other set
    diversion = many.diversion("B", **FEW)
    assert diversion["object"].tolist() == ["A", "C", "I", "L", "D"]
    assert diversion["diverted"].sum() == pytest.approx(1.0)
    assert diversion["instead"].sum() == pytest.approx(1.0)
    with pytest.raises(ChoiceGPError, match="the training data have no object 'Z': pass assortment="):
        many.diversion("Z")


def test_a_set_of_one_object_says_nothing_about_where_people_go(monkeypatch):
    """With a threshold such a set is a question, but nothing else is offered in it."""
    people = partial(two_goals, n_people=3)
    fitted = known_model(monkeypatch, people, n_people=3, products=MANY, shown=[*SHOWN, ["B"]]).fitted_
    with_threshold = fitted._replace(errors=DISCERNIBILITY.with_threshold())
    assert sorted(map(len, usual_assortments(with_threshold, None, "B").rows)) == [3, 3, 3]
    assert 1 in map(len, usual_assortments(with_threshold, None).rows)


def test_large_training_sets_are_no_assortments(monkeypatch):
    model = known_model(monkeypatch, linear_utility, products=MANY)
    with pytest.raises(ChoiceGPError, match="no set of the training data has 2 to 10 objects: pass assortment="):
        model.elasticities("price")


def test_worth_agrees_with_the_willingness_to_pay_of_a_logit():
    from xlogit import MultinomialLogit

    rng = np.random.default_rng(0)
    n_objects, n_sets, size = 20, 500, 3
    objects = pd.DataFrame({"price": rng.uniform(1, 9, n_objects), "speed": rng.uniform(0, 5, n_objects)})
    shown = np.array([rng.choice(n_objects, size, replace=False) for _ in range(n_sets)])
    true = (-0.6 * objects["price"] + 0.9 * objects["speed"]).to_numpy()
    chosen = shown[np.arange(n_sets), np.argmax(true[shown] + rng.gumbel(size=shown.shape), axis=1)]
    logit = MultinomialLogit()
    logit.fit(
        objects.to_numpy()[shown.ravel()], (shown == chosen[:, None]).ravel(), varnames=["price", "speed"],
        ids=np.repeat(np.arange(n_sets), size), alts=np.tile(np.arange(size), n_sets), verbose=0,
    )  # fmt: skip
    willing = -logit.coeff_[1] / logit.coeff_[0]
    data = ChoiceData.from_sets(objects, shown, chosen[:, None])
    model = ChoiceGP(1, kernel="linear", intervals="none", object_effects=False, n_restarts=1, max_iter=40).fit(data)
    middle = objects.index[np.argsort(np.abs(objects["price"] - 5.0))[:3]]
    found = model.worth("speed", assortment=list(middle), n_draws=100)
    np.testing.assert_allclose(found["worth"], willing, rtol=0.05)
