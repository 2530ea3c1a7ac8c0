import json
import pickle

import numpy as np
import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.reading import defects as validation

X = np.arange(5.0).reshape(-1, 1)


def defects_of(*args, **kwargs):
    with pytest.raises(ChoiceDataError) as caught:
        ChoiceData.from_sets(*args, **kwargs)
    return caught.value.defects


def test_all_defects_of_all_sets():
    found = defects_of(
        X,
        shown=[[0, 1], [0, 1], [2, 2], [], [0, 9], [0, -1], [0, 1], [3, 4], [0, 1]],
        chosen=[[0], [2], [2], [], [0], [0], [], [3, 3], [7]],
        set_ids=list("abcdefghi"),
    )
    assert [(d.kind, d.set, d.object) for d in found] == [
        ("chosen-not-shown", "b", 2),
        ("duplicate-object", "c", 2),
        ("empty-set", "d", None),
        ("unknown-object", "e", 9),
        ("unknown-object", "f", -1),
        ("nothing-chosen", "g", None),
        ("duplicate-object", "h", 3),
        ("unknown-object", "i", 7),
    ]
    assert all(d.row is None for d in found)


def test_the_message_names_them_all():
    with pytest.raises(ChoiceDataError) as caught:
        ChoiceData.from_sets(X, [[0, 1]] * 30, [[3]] * 30)
    lines = str(caught.value).splitlines()
    assert lines[0] == "30 defects"
    assert lines[1] == "  set 0, object 3: the object is chosen but was not shown"
    assert lines[-1] == "  ... and 10 more"
    assert len(caught.value.defects) == 30
    assert pickle.loads(pickle.dumps(caught.value)).defects == caught.value.defects


def test_features_of_objects():
    frame = pd.DataFrame({"a": [1.0, np.nan, np.inf], "b": ["x", "y", None]}, index=["p", "q", "r"])
    found = defects_of(frame, [[0], [1, 2]])
    assert [(d.kind, d.object) for d in found] == [
        ("missing-feature", "q"),
        ("non-finite-feature", "r"),
        ("missing-feature", "r"),
    ]
    assert "'a'" in found[0].problem
    assert "'b'" in found[2].problem


def test_skipping_leaves_out_sets_and_objects():
    features = np.array([[0.0], [np.nan], [2.0], [3.0]])
    with pytest.warns(UserWarning, match="2 of 4 sets and 1 of 4 objects were left out") as caught:
        data = ChoiceData.from_sets(
            features,
            [[0, 2], [0, 1], [3, 2], [2]],
            [[0], [1], [3], [3]],
            on_error="skip",
            respondents=["ann", "bo", "cy", "dee"],
            weights=[1, 2, 3, 4],
        )
    assert len(caught) == 1
    assert str(caught[0].message).endswith("(2 defects); see data.skipped")
    assert caught[0].filename == __file__
    assert [(d.kind, d.set, d.object) for d in data.skipped] == [
        ("missing-feature", None, 1),
        ("chosen-not-shown", 3, 3),
    ]
    assert np.isfinite(data.X).all()
    assert data.object_ids.tolist() == [0, 2, 3]
    assert data.set_ids.tolist() == [0, 2]
    assert [data.object_ids[s].tolist() for s in data.shown] == [[0, 2], [3, 2]]
    assert [data.object_ids[c].tolist() for c in data.chosen] == [[0], [3]]
    assert data.respondents.tolist() == ["ann", "cy"]
    assert data.weights.tolist() == [1, 3]


def test_skipping_everything_raises():
    with pytest.raises(ChoiceDataError, match="no set is without defects"):
        ChoiceData.from_sets(X, [[0, 1]], [[]], on_error="skip")


def test_skipping_nothing_does_not_warn():
    assert ChoiceData.from_sets(X, [[0, 1]], [[0]], on_error="skip").skipped == ()


def test_one_defect_is_singular():
    with pytest.warns(UserWarning, match=r"^1 of 2 sets were left out \(1 defect\); see data.skipped$"):
        ChoiceData.from_sets(X, [[0, 1], [0]], [[0], []], on_error="skip")


def test_missing_ids():
    found = defects_of(X[:2], [["a", None], ["a", "b"]], [["a"], [np.nan]], by="id", object_ids=["a", "b"])
    assert [(d.kind, d.set) for d in found] == [("missing-id", 0), ("missing-id", 1)]
    found = defects_of(X[:2], [[0]], object_ids=["a", None])
    assert found == (Defect("missing-id", "the object at row 1 of X has no id"),)
    found = defects_of(X, [[0], [1]], respondents=["ann", None])
    assert [(d.kind, d.set) for d in found] == [("missing-id", 1)]


def test_missing_object_id_makes_no_false_duplicate():
    found = defects_of(X[:3], [[0, 2], [1, 0]], object_ids=["a", None, "b"])
    assert [d.kind for d in found] == ["missing-id"]


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_bad_weights(weight):
    found = defects_of(X, [[0], [1]], weights=[1.0, weight])
    assert [(d.kind, d.set) for d in found] == [("bad-weight", 1)]
    assert str(weight) in found[0].problem


def test_sets_up_to_the_limit():
    many = np.arange(validation.MAX_SET_SIZE + 1.0).reshape(-1, 1)
    rows = np.arange(len(many))
    assert len(ChoiceData.from_sets(many, [rows[1:]], [[1]])) == 1
    found = defects_of(many, [rows, [0]], [[0], [0]])
    assert [(d.kind, d.set) for d in found] == [("too-large-set", 0)]
    assert "more than the limit of 10000; split it" in found[0].problem


def test_equal_ids_in_one_set_are_one_object():
    found = defects_of(X[:2], [[0, 1]], object_ids=["pen", "pen"])
    assert [(d.kind, d.object) for d in found] == [("duplicate-object", "pen")]
    assert len(ChoiceData.from_sets(X[:2], [[0], [1]], object_ids=["pen", "pen"])) == 2


def test_the_real_dirt_is_named(data_folder):
    objects = pd.read_csv(data_folder / "ellipses_objects.csv").set_index("object_id")
    choices = json.loads((data_folder / "ellipses_choices.json").read_text())
    found = defects_of(objects, choices["shown"], choices["chosen"], by="id")
    assert [(d.kind, d.set, d.object) for d in found] == [
        ("chosen-not-shown", 79, 29),
        ("chosen-not-shown", 82, 20),
    ]
    with pytest.warns(UserWarning, match=r"2 of 160 sets were left out \(2 defects\); see data.skipped"):
        data = ChoiceData.from_sets(objects, choices["shown"], choices["chosen"], by="id", on_error="skip")
    assert len(data) == 158
    assert data.skipped == found
    assert 79 not in data.set_ids
    assert 82 not in data.set_ids
    assert data.feature_names == ("a", "b", "rotation", "ecc_sq", "perimeter")
    for k in (0, 78, 79, 157):
        record = data.set_ids[k]
        assert data.object_ids[data.shown[k]].tolist() == choices["shown"][record]
        assert set(data.object_ids[data.chosen[k]]) == set(choices["chosen"][record])


def naive_defects(shown, chosen, t):
    found = []
    for k, (a, c) in enumerate(zip(shown, chosen, strict=True)):
        kinds = ["unknown-object" for i in [*a, *c] if not 0 <= i < t]
        known = [i for i in a if 0 <= i < t]
        kept = [i for i in c if 0 <= i < t]
        kinds += ["duplicate-object" for n, i in enumerate(known) if i in known[:n]]
        kinds += ["duplicate-object" for n, i in enumerate(kept) if i in kept[:n]]
        kinds += ["chosen-not-shown" for i in kept if i not in a]
        if not a:
            kinds.append("empty-set")
        if not c and a and "unknown-object" not in kinds:
            kinds.append("nothing-chosen")
        found += [(k, kind) for kind in kinds]
    return sorted(found)


@pytest.mark.parametrize("seed", range(5))
def test_vectorised_equals_naive(seed):
    rng = np.random.default_rng(seed)
    shown = [rng.integers(-1, 7, size=rng.integers(0, 5)).tolist() for _ in range(200)]
    chosen = [rng.permutation(s)[: rng.integers(0, 3)].tolist() + [3] * (rng.random() < 0.1) for s in shown]
    found = defects_of(np.ones((6, 1)), shown, chosen)
    assert sorted((d.set, d.kind) for d in found) == naive_defects(shown, chosen, 6)
    bad = {d.set for d in found}
    with pytest.warns(UserWarning, match="left out"):
        data = ChoiceData.from_sets(np.ones((6, 1)), shown, chosen, on_error="skip")
    assert data.set_ids.tolist() == [k for k in range(200) if k not in bad]
    for k, s, c in zip(data.set_ids, data.shown, data.chosen, strict=True):
        assert s.tolist() == shown[k]
        assert set(c.tolist()) == set(chosen[k])


def test_unknown_on_error():
    long = pd.DataFrame({"choice_id": [1, 1], "alt_id": [1, 2], "choice": [1, 0], "b": [1, 2]})
    wide = pd.DataFrame({"b_a": [1], "choice_a": [1]})
    for make in (
        lambda: ChoiceData.from_utilities(X, X, [[0]], on_error="warn"),
        lambda: ChoiceData.from_long(long, on_error="warn"),
        lambda: ChoiceData.from_wide(wide, alternatives=["a"], features=["b"], on_error=None),
    ):
        with pytest.raises(ChoiceGPError, match="on_error must be"):
            make()
