"""What a worker does, with real fits of a tiny catalogue."""

from types import SimpleNamespace

import pandas as pd
import pytest

from choicegp import ChoiceGP
from choicegp.apps.server.learning import LEAST_AHEAD, Learner, LearningTask
from choicegp.apps.server.population import LEAST_PEOPLE, pooled, separate
from choicegp.apps.server.results import Setup, learned_of, learned_people_of, packed_result
from choicegp.apps.server.standing import standing

TABLE = pd.DataFrame({"price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "kind": list("aabbab")}, index=list("uvwxyz"))
SHOWN = (("u", "v"), ("w", "x"), ("u", "z"), ("y", "v"), ("v", "w"), ("x", "y"), ("z", "w"), ("u", "x"))
CHOSEN = (("u",), ("w",), ("u",), ("v",), ("v",), ("x",), ("w",), ("u",))
WORDS = {
    "en": {"axis": "How much", "labels": {"price": "Price"}},
    "de": {"axis": "Wie wichtig", "labels": {"price": "Preis"}},
}
SETUP = Setup(("price", "kind"), None, 15, 2, 1, "information", True, WORDS)
ASKED = frozenset(map(frozenset, SHOWN))


@pytest.fixture(scope="module")
def learner():
    return Learner(SETUP, TABLE)


def test_first_sets_differ_between_people(learner):
    one, other = learner.first_sets(2, 3)
    assert len(one) == 3
    assert [sets.shown for sets in one] != [sets.shown for sets in other]
    assert {len(sets.shown) for sets in one} == {2}


def test_the_next_sets_are_new_and_say_why(learner):
    found = learner.next_sets(LearningTask(1, SHOWN, CHOSEN, ASKED), 0)
    assert len({frozenset(one.shown) for one in found} - ASKED) == LEAST_AHEAD
    assert "bits about the utilities" in found[0].reason
    assert found[0].model == "8 answers"
    assert learner.known() == {1}
    learner.forget([1])
    assert (learner.known(), learner._refitter.current(1)) == (set(), None)


@pytest.mark.parametrize(("n_since", "n_left", "expected"), [(0, 9, 3), (4, 9, 6), (20, 30, 12), (4, 2, 2), (4, 0, 1)])
def test_as_many_sets_as_are_needed_until_her_next_turn(n_since, n_left, expected):
    table = pd.DataFrame({"x": range(12)}, index=[f"o{i}" for i in range(12)])
    setup = SETUP._replace(columns=("x",), design="random", sets=8 + n_left)
    shown = tuple((f"o{i}", f"o{i + 1}") for i in range(8))
    task = LearningTask(1, shown, shown, frozenset(map(frozenset, shown)))
    assert len(Learner(setup, table).next_sets(task, n_since)) == expected


def test_what_the_answers_say(learner):
    found = learner.explain(LearningTask(1, SHOWN, CHOSEN, language="de"))
    assert found.n_answers == 8
    assert found.matter[0] == "price"
    assert [(one.column, one.direction) for one in found.drivers[0]][:1] == [("price", "falls")]
    assert found.shortlist[0][0] == "u"
    assert set(found.pictures) == {"matters", "effects", "objects"}
    assert found.model[:2] == b"PK"
    assert learned_of(packed_result(found)) == found


@pytest.mark.parametrize("threshold", [True, False])
def test_the_model_knows_of_none_before_the_first(monkeypatch, threshold):
    tasks = []
    monkeypatch.setattr(Learner, "next_sets", lambda self, task, n_since: tasks.append(task))
    learner = Learner(SETUP._replace(threshold=threshold), TABLE)
    assert learner._refitter._template.threshold is threshold
    learner.warm_up(4 + threshold)  # which is one more object of a model
    assert [len(one) for one in tasks[0].shown] == [2, 2]
    assert (() in tasks[0].chosen) is threshold


def answered(chosen):
    return standing([])._replace(shown=SHOWN, chosen=chosen)


def test_people_who_differ(learner, monkeypatch):
    """Half of the people want what is cheap, the others the contrary."""
    from choicegp.apps.server import population
    from choicegp.estimators import n_utilities

    def select(data, max_utilities, **options):
        ChoiceGP(2, **options)
        assert (len(data), max_utilities) == (48, 3)
        return SimpleNamespace(n_utilities=2, reason="it is better")

    contrary = tuple(tuple(set(shown) - set(chosen)) for shown, chosen in zip(SHOWN, CHOSEN, strict=True))
    people = {f"p{i}": answered(CHOSEN if i % 2 else contrary) for i in range(LEAST_PEOPLE)}
    monkeypatch.setattr(n_utilities, "select_n_utilities", select)
    monkeypatch.setattr(population, "_SEGMENTS", (2,))
    options = population._options
    monkeypatch.setattr(population, "_options", lambda one: options(one) | {"n_restarts": 1, "max_iter": 12})
    found = separate(learner, people)
    assert found[:4] == (48, 6, 2, "it is better")
    assert [one.name for one in found.shares][-1] == "none"
    assert len(found.shares) == len(TABLE) + 1
    assert {one.people for one in found.segments} == {("p0", "p2", "p4"), ("p1", "p3", "p5")}
    assert "Price" in " ".join(one.words for one in found.segments), "as the cards call it"
    assert set(found.pictures) == {"shares", "segments"}
    assert learned_people_of(packed_result(found)) == found


def test_everyone_as_one_person(learner):
    found = pooled(learner, {"p0": answered(CHOSEN), "p1": answered(CHOSEN)})
    assert found.n_answers == 16
    assert found.drivers[0][0][:2] == ("price", "falls")
