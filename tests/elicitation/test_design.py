"""The next set: what each design proposes, for any size and rule, and every error message."""

import itertools

import equinox as eqx
import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceGP, ChoiceGPError, datasets, next_set, next_set_between, next_sets
from choicegp.compute.devices import computing
from choicegp.elicitation import design
from choicegp.elicitation.between import shares
from choicegp.elicitation.design import HOW
from choicegp.elicitation.information import expected_answers
from choicegp.elicitation.pool import chebyshev, front_objects, pool_of, spread_out

PLENTY = 60.0  # seconds


@pytest.mark.parametrize("how", HOW)
def test_a_seed_gives_one_proposal_of_known_objects(how, ignorant, catalogue):
    model, table = ignorant(), catalogue(12)
    first, again = (next_set(model, table, 3, how=how, seconds=PLENTY, random_state=1) for _ in range(2))
    assert first.shown == again.shown
    assert first.value == again.value or np.isnan(first.value)
    assert first.how == how
    assert len(set(first.shown)) == 3
    assert set(first.shown) <= set(table.index)
    other = {next_set(model, table, 3, how="random", random_state=seed).shown for seed in range(5)}
    assert len(other) == 5


@pytest.mark.parametrize("how", HOW)
def test_what_was_shown_is_not_shown_again(how, ignorant, catalogue):
    model, table, shown = ignorant(), catalogue(4), set()
    for _ in itertools.combinations(range(4), 3):
        one = frozenset(next_set(model, table, 3, how=how, avoid=shown, seconds=PLENTY, random_state=0).shown)
        assert one not in shown
        shown.add(one)
    with pytest.raises(ChoiceGPError, match="all sets of 3 of these 4 objects were shown already"):
        next_set(model, table, 3, how=how, avoid=shown, seconds=PLENTY, random_state=0)


@pytest.mark.parametrize("how", HOW)
def test_a_batch_does_not_repeat_itself(how, ignorant, catalogue):
    found = next_sets(ignorant(), catalogue(12), 3, 3, how=how, seconds=PLENTY, random_state=0)
    assert len({frozenset(one.shown) for one in found}) == 3


def test_a_batch_spreads_its_questions(ignorant, catalogue):
    found = next_sets(ignorant(), catalogue(12), 3, 3, seconds=PLENTY, random_state=0)
    assert len({label for one in found for label in one.shown}) >= 7


def test_information_is_part_of_the_entropy(ignorant, catalogue):
    model, table = ignorant(), catalogue(30)
    best = next_set(model, table, 3, seconds=PLENTY, random_state=0)
    assert 0.0 < best.value <= np.log(7)
    assert "bits about the utilities" in best.reason
    far = next_set(model, table, 3, how="uncertain", seconds=PLENTY, random_state=0)
    assert best.value < far.value <= np.log(7)


def test_the_proposed_set_says_more_than_random_ones(ignorant, catalogue):
    model, table = ignorant(), catalogue(30)
    best = next_set(model, table, 3, seconds=PLENTY, random_state=0)
    rng = np.random.default_rng(0)
    sets = np.array([rng.choice(30, 3, replace=False) for _ in range(16)])
    with computing():
        others = expected_answers(model.fitted_, model.fitted_.objects(table), sets, 0.02).information
    assert best.value > others.max()


def test_objects_that_are_equal_are_not_shown_together(ignorant, catalogue):
    """Their order says nothing, and is all that the answer would say."""
    table = catalogue(6)
    twice = pd.concat([table, table.set_axis([f"copy of {name}" for name in table.index])])
    shown = next_set(ignorant(variance=25.0), twice, 3, seconds=PLENTY, random_state=0).shown
    assert len({name.removeprefix("copy of ") for name in shown}) == 3


def test_without_a_model_the_objects_are_far_from_each_other():
    laptops = datasets.laptops()
    shown: set[frozenset] = set()
    for _ in range(3):
        first = next_set(None, laptops, how="information", avoid=shown, random_state=0)
        assert first.how == "space-filling"
        assert first.value > 0
        shown.add(frozenset(first.shown))
    assert len(frozenset.union(*shown)) == 12
    assert next_set(None, laptops, how="random", random_state=0).how == "random"


def test_objects_that_fill_the_space():
    X = np.array([[0.0], [1.0], [10.0], [5.0]])
    rows, gap = spread_out(X, 2, np.array([0]), np.random.default_rng(0))
    assert rows.tolist() == [2, 3]
    assert gap == pytest.approx(5.0 / X.std())


def test_equal_objects_fill_no_space(catalogue):
    table = pd.DataFrame({"price": np.ones(5)}, index=list("abcde"))
    first = next_set(None, table, 4, random_state=0)
    assert (len(set(first.shown)), first.value) == (4, 0.0)


@pytest.mark.parametrize("errors", ["discernibility with a threshold", "best-in-one"])
def test_other_rules_are_asked_about(errors, ignorant, catalogue):
    found = next_set(ignorant(errors=errors), catalogue(12), 2, seconds=PLENTY, random_state=0)
    most = np.log(4 if "threshold" in errors else 3)
    assert 0.0 < found.value <= most


def test_the_smallest_and_the_largest_size(ignorant, catalogue):
    assert len(next_set(ignorant(), catalogue(8), 6, seconds=PLENTY, random_state=0).shown) == 6


def test_targets_are_asked_about(ignorant, catalogue):
    """Nothing is as informative about the answer to a set as an answer about its own objects."""
    table = catalogue(9)
    far = pd.concat([table, table.add(100.0).set_axis([f"far {name}" for name in table.index])])
    targets = [frozenset(one) for one in itertools.combinations(table.index, 2)]
    shown = next_set(
        ignorant(), far, 2, how="predictive", targets=targets[:8], seconds=PLENTY, random_state=0
    ).shown  # fmt: skip
    assert not any(name.startswith("far") for name in shown)


def test_the_best_of_many_is_chosen_by_other_draws(ignorant, catalogue, monkeypatch):
    model, table = ignorant(), catalogue(40)
    numbers, found = {}, []
    draw, search, value = design.drawn_at, design.searched, design.about_targets

    def drawn_at(fitted, objects, request, n_draws):
        drawn = draw(fitted, objects, request, n_draws)
        numbers[id(drawn)] = n_draws
        return drawn

    def searched(request, pool, valued):
        found.append((pool, search(request, pool, valued)))
        return found[-1][1]

    def about_targets(drawn, sets, targets):
        again = numbers[id(drawn)] == design._N_DRAWS_AGAIN
        return np.where(np.arange(len(sets)) == 5, 0.25, 0.125) if again else value(drawn, sets, targets)

    for function in (drawn_at, searched, about_targets):
        monkeypatch.setattr(design, function.__name__, function)
    chosen = next_set(model, table, 3, how="predictive", seconds=PLENTY, random_state=0)
    [(pool, tried)] = found
    assert list(numbers.values()) == [design._N_DRAWS, design._N_DRAWS_AGAIN]
    assert set(chosen.shown) == set(table.index[pool.rows[tried.sets[5]]])
    assert chosen.value == 0.25
    assert "bits about the answer to another set" in chosen.reason


def test_the_best_objects_are_on_the_front():
    u = np.array([[0.0, 3.0], [3.0, 0.0], [1.0, 1.0], [0.0, 0.0]])  # the third is not on the convex hull
    assert front_objects(u, 200, np.random.default_rng(0)).tolist() == [0, 1, 2]
    assert chebyshev(np.ones((3, 2)), 4, np.random.default_rng(0)).tolist() == np.zeros((4, 3)).tolist()


def test_a_pool_holds_no_object_twice(ignorant, catalogue):
    fitted, table = ignorant().fitted_, catalogue(400)
    pool = pool_of(fitted, table, np.random.default_rng(0), also=[3, 4, 399])
    assert len(np.unique(pool.rows)) == len(pool.rows) == 128 + 64
    assert {3, 4, 399} <= set(pool.rows.tolist())
    assert np.allclose(pool.objects.X, table.to_numpy()[pool.rows])


def test_no_time_gives_a_set_all_the_same(ignorant, catalogue):
    found = next_set(ignorant(), catalogue(30), 3, seconds=0.0, random_state=0)
    assert len(set(found.shown)) == 3
    assert "within the time limit" in found.reason or "no time" in found.reason


def test_a_set_between_models_is_where_they_differ(ignorant, catalogue):
    models = {1: ignorant(1), 2: ignorant(2)}
    found = next_set_between(models, catalogue(12), 2, weights=[1.0, 1.0], seconds=PLENTY, random_state=0)
    assert found.how == "n_utilities"
    assert 0.0 < found.value <= np.log(2)
    sure = next_set_between(models, catalogue(12), 2, weights=[1.0, 0.0], seconds=PLENTY, random_state=0)
    assert sure.value == pytest.approx(0.0, abs=1e-9)


def test_models_are_weighed_by_leave_one_out():
    class Judged:
        def __init__(self, elpd):
            self.elpd = elpd

        def loo(self):
            return self

    assert shares([Judged(-10.0), Judged(-10.0 + np.log(3.0))], None) == pytest.approx([0.25, 0.75])


def test_a_design_expects_that_people_err_at_least_one_time_in_fifty(ignorant, catalogue):
    model, table = ignorant(), catalogue(12)
    none, little, much = (
        next_set(model, table, 3, lapse=lapse, seconds=PLENTY, random_state=0) for lapse in (0.0, 0.02, 0.3)
    )
    assert none == little
    assert much.value < little.value
    learned = eqx.tree_at(lambda one: one.lapse, model.posterior_, np.float32(0.3), is_leaf=lambda leaf: leaf is None)
    erring = ChoiceGP(2)._keep(model.fitted_._replace(posterior=learned))
    found = next_set(erring, table, 3, seconds=PLENTY, random_state=0)
    assert found.value == pytest.approx(much.value, abs=1e-6), "the model's own rate is the larger one"


def test_errors_say_what_is_wrong(ignorant, catalogue):
    model, table = ignorant(), catalogue(6)

    def refused(message, *args, **kwargs):
        with pytest.raises(ChoiceGPError, match=message):
            next_set(*args, **kwargs)

    refused("fitted ChoiceGP, or None before there is one; got a str", "model", table)
    refused("not fitted yet", ChoiceGP(), table)
    refused("objects must be a DataFrame", model, table.to_numpy())
    refused("label of its own.*'o0'", model, pd.concat([table, table]))
    refused("size must be a whole number of at least 2", model, table, 1)
    refused("size must be between 2 and 6 objects; got 7", model, table, 7)
    refused("2 objects, fewer than the 4 to show", model, table.iloc[:2])
    refused("how must be 'random', 'space-filling'", model, table, how="best guess")
    refused("seconds must be a number", model, table, seconds=-1)
    refused("lapse must be a number between 0 and 1", model, table, lapse=2)
    refused("this model is of one: leave it out", model, table, respondent="Ada")
    refused("targets are for how='predictive'", model, table, targets=[["o0", "o1"]])
    refused("lacks: 'o9'", model, table, how="predictive", targets=[["o0", "o9"]])
    refused("sets of one size", model, table, how="predictive", targets=[["o0", "o1"], ["o0", "o1", "o2"]])
    refused("sets of one size", model, table, how="predictive", targets=[])
    refused("avoid must be a collection of sets", model, table, avoid=3)
    with pytest.raises(ChoiceGPError, match="n must be a whole number of at least 1"):
        next_sets(model, table, 0)
    for models, weights, message in (
        ([model], None, "two models or more"),
        ([model, model], [1.0], "one number of at least 0 for each of the 2 models"),
        ([model, ignorant(errors="discernibility with a threshold")], [1, 1], "all have a threshold"),
    ):
        with pytest.raises(ChoiceGPError, match=message):
            next_set_between(models, table, weights=weights)
