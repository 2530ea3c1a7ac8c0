"""What the computing process does, with real fits of a tiny catalogue."""

import pandas as pd
import pytest

from choicegp.apps.server import learning
from choicegp.apps.server.learning import Setup, Task

TABLE = pd.DataFrame({"price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "kind": list("aabbab")}, index=list("uvwxyz"))
SHOWN = (("u", "v"), ("w", "x"), ("u", "z"), ("y", "v"), ("v", "w"), ("x", "y"), ("z", "w"), ("u", "x"))
CHOSEN = (("u",), ("w",), ("u",), ("v",), ("v",), ("x",), ("w",), ("u",))


@pytest.fixture(scope="module", autouse=True)
def started():
    learning.start(Setup(TABLE, 2, "information", 1, True))
    yield
    learning._SETUP.clear()
    learning._REFITTERS.clear()


def test_first_sets_differ_between_people():
    one, other = learning.first_sets(2, 3, 0)
    assert len(one) == 3
    assert [sets.shown for sets in one] != [sets.shown for sets in other]
    assert {len(sets.shown) for sets in one} == {2}


def test_the_next_sets_are_new_and_say_why():
    asked = frozenset(map(frozenset, SHOWN))
    found = learning.next_sets_for(Task(1, SHOWN, CHOSEN, asked))
    assert len({frozenset(one.shown) for one in found} - asked) == learning.N_AHEAD
    assert "bits about the utilities" in found[0].reason
    assert found[0].model == "8 answers"


def test_what_the_answers_say():
    labels = (("price", "Preis"), ("kind", "Art"))
    found = learning.explain(Task(1, SHOWN, CHOSEN, labels=labels, axis="Wie wichtig"))
    assert found.n_answers == 8
    assert found.matter[0] == "price"
    assert [(one.column, one.direction) for one in found.drivers[0]][:1] == [("price", "falls")]
    assert found.shortlist[0][0] == "u"
    assert set(found.pictures) == {"matters", "effects", "objects"}
    assert found.model[:2] == b"PK"
    learning.forget(1)
    assert learning._REFITTERS[0].current(1) is None


@pytest.mark.parametrize("threshold", [True, False])
def test_the_model_knows_of_none_before_the_first(monkeypatch, threshold):
    tasks = []
    monkeypatch.setattr(learning, "_SETUP", [])
    monkeypatch.setattr(learning, "_REFITTERS", [])
    learning.start(Setup(TABLE, 2, "information", 1, threshold))
    assert learning._REFITTERS[0]._template.threshold is threshold
    monkeypatch.setattr(learning, "next_sets_for", tasks.append)
    learning.warm_up()
    assert (() in tasks[0].chosen) is threshold
