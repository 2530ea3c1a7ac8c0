import copy
import dataclasses
import pickle
import time

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing, resample

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.encoding import FeatureEncoding

X = np.array([[0.0, 3.0], [1.0, 2.0], [2.0, 1.0], [0.0, 0.0]])


def test_from_sets_known_answer():
    data = ChoiceData.from_sets(X, [[2, 0, 1], [3]], [[1, 2], [3]])
    assert [s.tolist() for s in data.shown] == [[2, 0, 1], [3]]
    # In the order of the shown objects, whatever the order of the answer.
    assert [c.tolist() for c in data.chosen] == [[2, 1], [3]]
    assert data.object_ids.tolist() == [0, 1, 2, 3]
    assert data.set_ids.tolist() == [0, 1]
    assert data.feature_names == ("x0", "x1")
    assert data.has_choices
    assert data.skipped == ()
    assert repr(data) == "ChoiceData(2 sets, 4 objects, 2 features, choices)"


def test_from_pairs():
    data = ChoiceData.from_pairs(X, np.array([[0, 3], [2, 1]]))
    assert [s.tolist() for s in data.shown] == [[0, 3], [2, 1]]
    assert [c.tolist() for c in data.chosen] == [[0], [2]]
    named = ChoiceData.from_pairs(
        X, [("d", "a")], by="id", object_ids=list("abcd"), set_ids=["first"], respondents=["ann"]
    )
    assert named.chosen[0].tolist() == [3]
    assert named.set_ids.tolist() == ["first"]
    frame = pd.DataFrame({"winner": ["d"], "loser": ["a"]})
    assert ChoiceData.from_pairs(X, frame, by="id", object_ids=list("abcd")).chosen[0].tolist() == [3]


@pytest.mark.parametrize("pairs", [[[0, 1, 2]], [[0]], [[0, 1], [2]], np.zeros((2, 3), dtype=int)])
def test_pairs_have_two_columns(pairs):
    with pytest.raises(ChoiceGPError, match=r"pairs must have two columns, winner and loser; row \d has \d"):
        ChoiceData.from_pairs(X, pairs)


@pytest.mark.parametrize("pairs", [None, 3, "01", [0, 1], {"a": 1}, [], [[0.0, 1.0]]])
def test_what_is_no_pairs(pairs):
    with pytest.raises(ChoiceGPError, match=r"pairs|no sets|row number"):
        ChoiceData.from_pairs(X, pairs)


def test_an_object_cannot_beat_itself():
    with pytest.raises(ChoiceDataError, match="shown twice"):
        ChoiceData.from_pairs(X, [[1, 1]])
    with pytest.warns(UserWarning, match="1 of 2 sets"):
        assert len(ChoiceData.from_pairs(X, [[1, 1], [0, 1]], on_error="skip")) == 1


def test_from_utilities_known_answer():
    data = ChoiceData.from_utilities(X, X, [[0, 1, 2, 3], [3, 1], [3]])
    assert [c.tolist() for c in data.chosen] == [[0, 1, 2], [1], [3]]
    tied = ChoiceData.from_utilities(X, [[1, 0], [1, 1], [0, 0], [2, 2]], [[0, 1, 2]], ties="strict")
    assert tied.chosen[0].tolist() == [0, 1]
    weak = ChoiceData.from_utilities(X, [[1, 0], [1, 1], [0, 0], [2, 2]], [[0, 1, 2]])
    assert weak.chosen[0].tolist() == [1]


def test_from_utilities_with_ids_and_skipping():
    frame = pd.DataFrame({"a": [0.0, np.nan, 2.0]}, index=list("pqr"))
    with pytest.warns(UserWarning, match="2 of 3 sets and 1 of 3 objects"):
        data = ChoiceData.from_utilities(
            frame, [[0.0], [1.0], [2.0]], [["p", "r"], ["q", "p"], ["p", "z"]], by="id", on_error="skip",
            respondents=["ann", "bo", "cy"],
        )  # fmt: skip
    assert data.object_ids[data.chosen[0]].tolist() == ["r"]
    assert data.respondents.tolist() == ["ann"]


def test_wrong_utilities():
    with pytest.raises(ChoiceGPError, match="U has 2 rows but there are 4 objects"):
        ChoiceData.from_utilities(X, X[:2], [[0, 1]])
    with pytest.raises(ChoiceGPError, match="not finite"):
        ChoiceData.from_utilities(X, X * np.nan, [[0, 1]])
    with pytest.raises(ChoiceGPError, match="ties must be"):
        ChoiceData.from_utilities(X, X, [[0, 1]], ties="some")


@pytest.mark.parametrize("bad", [None, "abc", [1.0, 2.0], np.ones((2, 2, 2)), [[1j]], [["a"]], {"a": [1]}])
def test_wrong_tables(bad):
    with pytest.raises(ChoiceGPError, match="X"):
        ChoiceData.from_sets(bad, [[0]])


def test_empty_frames():
    with pytest.raises(ChoiceGPError, match="no rows"):
        ChoiceData.from_sets(pd.DataFrame({"a": []}), [[0]])
    with pytest.raises(ChoiceGPError, match="no feature"):
        ChoiceData.from_sets(pd.DataFrame(index=[0, 1]), [[0]])


def test_frames_are_encoded():
    frame = pd.DataFrame({"price": [3, 5, 4], "ink": ["red", "blue", "red"]}, index=["pen", "brush", "quill"])
    data = ChoiceData.from_sets(frame, [[0, 1]])
    assert data.X.tolist() == [[3, 1], [5, 0], [4, 1]]
    assert data.feature_names == ("price", "ink=red")
    same = ChoiceData.from_sets(data.X, [[0, 1]], encoding=data.encoding, object_ids=frame.index)
    assert same == data
    with pytest.raises(ChoiceGPError, match="1 columns instead of 2: 'price', 'ink=red'"):
        ChoiceData.from_sets(data.X[:, :1], [[0]], encoding=data.encoding)
    with pytest.raises(ChoiceDataError, match="'ink' do not name one category"):
        ChoiceData.from_sets(data.X + 0.5, [[0]], encoding=data.encoding)


def test_with_encoding():
    train = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "M", "L"], "price": [1, 2, 3]}), [[0, 1]])
    frame = pd.DataFrame({"price": [5, 6], "size": ["L", "S"]}, index=["p", "q"])
    new = ChoiceData.from_sets(frame, [[0, 1]], [[1]])
    assert new.feature_names == ("price", "size=S")
    recoded = new.with_encoding(train.encoding)
    assert recoded.feature_names == ("size=L", "size=M", "size=S", "price")
    assert recoded.X.tolist() == [[1, 0, 0, 5], [0, 0, 1, 6]]
    assert recoded.encoding == train.encoding
    assert recoded.chosen[0].tolist() == [1]
    assert new.X.shape == (2, 2)
    assert recoded.with_encoding(new.encoding) == new
    assert not recoded.X.flags.writeable


def test_with_encoding_that_does_not_fit():
    train = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "M"]}), [[0, 1]])
    unknown = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "XL"]}, index=["p", "q"]), [[0, 1]])
    with pytest.raises(ChoiceDataError, match=r"object 'q': feature 'size' has the unknown category 'XL'.*'M', 'S'"):
        unknown.with_encoding(train.encoding)
    with pytest.raises(ChoiceGPError, match="'size' missing; 'price' not known"):
        ChoiceData.from_sets(pd.DataFrame({"price": [1]}), [[0]]).with_encoding(train.encoding)
    with pytest.raises(ChoiceGPError, match="no names"):
        ChoiceData.from_sets([[1.0]], [[0]]).with_encoding(train.encoding)
    with pytest.raises(ChoiceGPError, match="2 features instead of 3"):
        ChoiceData.from_sets(X, [[0]]).with_encoding(FeatureEncoding.plain(3))
    with pytest.raises(ChoiceGPError, match="must be a FeatureEncoding"):
        train.with_encoding(None)


def test_to_long_known_answer():
    data = ChoiceData.from_sets(
        pd.DataFrame({"price": [1.5, 2.5]}, index=["pen", "ink"]),
        [["ink", "pen"], ["ink"]], [["pen"], ["ink"]], by="id",
        set_ids=["s", "t"], respondents=["ann", "bo"], weights=[1.0, 2.0],
    )  # fmt: skip
    expected = {
        "choice_id": ["s", "s", "t"],
        "respondent": ["ann", "ann", "bo"],
        "alt_id": ["ink", "pen", "ink"],
        "choice": [0, 1, 1],
        "weight": [1.0, 1.0, 2.0],
        "price": [2.5, 1.5, 2.5],
    }
    assert data.to_long().to_dict("list") == expected
    assert list(data.to_long().columns) == list(expected)
    assert "kept" in data.to_long(chosen="kept").columns


def test_names_of_features_may_clash():
    data = ChoiceData.from_sets(pd.DataFrame({"choice": [1.0, 2.0]}), [[0, 1]], [[0]])
    with pytest.raises(ChoiceGPError, match="'choice' has the name of another column"):
        data.to_long()
    with pytest.raises(ChoiceGPError, match="cannot be both"):
        data.to_long(chosen="choice_id")
    with pytest.raises(ChoiceGPError, match="chosen must be the name"):
        data.to_long(chosen=["choice"])
    assert list(data.to_long(chosen="kept")) == ["choice_id", "alt_id", "kept", "choice"]


def read_back(frame_or_path, data):
    return ChoiceData.from_long(
        frame_or_path,
        chosen="choice" if data.has_choices else None,
        respondent=None if data.respondents is None else "respondent",
        weight=None if data.weights is None else "weight",
        encoding=data.encoding,
    )


@st.composite
def random_data(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    t, m = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    values = st.floats(allow_nan=False, allow_infinity=False)
    words = st.sampled_from(["x", "None", 'say "a, b"', "é", "c d", "NA"])
    frame = pd.DataFrame(
        {
            "p": draw(st.lists(values, min_size=t, max_size=t)),
            "q": draw(st.lists(words, min_size=t, max_size=t)),
            "r": pd.Categorical(draw(st.lists(st.sampled_from("LM"), min_size=t, max_size=t)), list("SML")),
        },
        index=draw(st.sampled_from([list(range(3, 3 + t)), [f"o{i}" for i in range(t)]])),
    )
    shown = [rng.permutation(t)[: rng.integers(1, t + 1)] for _ in range(m)]
    chosen = [s[: rng.integers(1, len(s) + 1)] for s in shown] if draw(st.booleans()) else None
    respondents = [f"r{i % 2}" for i in range(m)] if draw(st.booleans()) else None
    weights = rng.random(m) + 0.1 if draw(st.booleans()) else None
    return ChoiceData.from_sets(frame, shown, chosen, respondents=respondents, weights=weights)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random_data())
def test_round_trips(tmp_path, data):
    long = data.to_long()
    back = read_back(long, data)
    pd.testing.assert_frame_equal(back.to_long(), long)
    # Objects in the order of their first appearance: from now on nothing changes at all.
    assert read_back(back.to_long(), back) == back
    learned = ChoiceData.from_long(long, chosen="choice" if data.has_choices else None, features=["p", "q", "r"])
    assert learned.encoding == data.encoding
    for name in ("a.csv", "a.parquet"):
        data.write(tmp_path / name)
        assert read_back(tmp_path / name, data) == back


def test_write_to_a_wrong_place(tmp_path):
    data = ChoiceData.from_pairs(X, [[0, 1]])
    with pytest.raises(ChoiceGPError, match="suffix"):
        data.write(tmp_path / "a.xlsx")


def test_large_data_are_fast():
    rng = np.random.default_rng(0)
    m, a, t = 20_000, 10, 5000
    shown = (rng.integers(0, t, (m, 1)) + np.arange(a) * 499) % t
    objects = rng.random((t, 6))
    start = time.process_time()
    data = ChoiceData.from_utilities(objects, objects[:, :2], shown)
    long = data.to_long()
    again = ChoiceData.from_long(long)
    again.take(rng.permutation(m)).describe()
    seconds = time.process_time() - start
    assert len(long) == m * a
    # About 0.4 s; a loop over rows would take minutes.
    assert seconds < 5
    naive = [long.alt_id[k * a : (k + 1) * a].tolist() for k in range(50)]
    assert [again.object_ids[s].tolist() for s in again.shown[:50]] == naive


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.random((12, 2))
    shown = [rng.permutation(12)[: rng.integers(1, 6)] for _ in range(20)]
    return ChoiceData.from_utilities(
        X, X, shown, respondents=np.repeat(["ann", "bo", "cy", "dee"], 5), weights=np.arange(1.0, 21.0)
    )


def naive_take(data, rows):
    return ChoiceData.from_sets(
        data.X,
        [data.shown[k] for k in rows],
        [data.chosen[k] for k in rows],
        respondents=[data.respondents[k] for k in rows],
        weights=[data.weights[k] for k in rows],
        set_ids=[data.set_ids[k] for k in rows],
    )


@pytest.mark.parametrize("rows", [[3], [5, 1, 19], list(range(20)), list(range(19, -1, -1))])
def test_take_equals_naive(data, rows):
    assert data.take(rows) == naive_take(data, rows)
    assert data[rows] == data.take(rows)


def test_all_ways_to_index(data):
    assert data[2] == data.take([2])
    assert data[-1] == data.take([19])
    assert data[2:8:3] == data.take([2, 5])
    assert data[data.weights > 18] == data.take([18, 19])
    assert data[[1, 2], ...] == data.take([1, 2])
    assert [len(one) for one in data] == [1] * 20
    assert list(data)[7] == data[7]
    with pytest.raises(ChoiceGPError, match="no set at position 20"):
        data[20]
    with pytest.raises(ChoiceGPError, match="no sets"):
        data[[]]


def test_sets_may_be_drawn_twice(data):
    twice = data.take([4, 4])
    assert twice.set_ids.tolist() == [4, 4]
    with pytest.raises(ChoiceGPError, match="ids of their own; these repeat: 4"):
        twice.to_long()


def test_split(data):
    train, test = data.split(0.25, random_state=3)
    assert (len(train), len(test)) == (15, 5)
    assert sorted([*train.set_ids, *test.set_ids]) == list(range(20))
    assert train.X is data.X
    assert data.split(0.25, random_state=3)[1] == test
    train, test = data.split(1, by="respondent")
    assert len(test) == 5
    assert len(set(test.respondents)) == 1
    assert test.respondents[0] not in train.respondents


def test_without_choices_and_attributes():
    data = ChoiceData.from_sets(np.ones((3, 1)), [[0, 1], [2]])
    part = data.take([1])
    assert (part.chosen, part.flat_chosen, part.respondents, part.weights) == (None, None, None, None)
    assert not part.has_choices
    assert repr(part) == "ChoiceData(1 set, 3 objects, 1 feature, no choices)"


def test_flat_arrays(data):
    assert data.shape == (20,) == (len(data),)
    assert data.offsets[0] == 0
    assert data.offsets[-1] == len(data.flat_shown) == len(data.flat_chosen)
    for k in range(20):
        part = slice(data.offsets[k], data.offsets[k + 1])
        assert (data.flat_shown[part] == data.shown[k]).all()
        assert (data.flat_shown[part][data.flat_chosen[part]] == data.chosen[k]).all()
    assert data.flat_shown.dtype == data.offsets.dtype == np.int64
    assert data.flat_chosen.dtype == bool


def test_nothing_can_be_changed(data):
    arrays = [data.X, data.flat_shown, data.offsets, data.flat_chosen, data.object_ids, data.set_ids]
    arrays += [data.respondents, data.weights, data.shown[0], data.chosen[0]]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
    for name in ("X", "shown", "anything"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(data, name, 1)
    assert isinstance(data.shown, tuple)


def test_what_came_in_stays_the_callers():
    X, weights, ids = np.ones((2, 1)), np.ones(1), np.array([5, 6])
    shown = np.array([[0, 1]])
    data = ChoiceData.from_sets(X, shown, shown[:, :1], weights=weights, object_ids=ids, respondents=ids[:1])
    for array in (X, weights, ids, shown):
        array[0] = 7
    assert data.X[0, 0] == 1
    assert data.weights[0] == 1
    assert data.object_ids[0] == 5
    assert data.shown[0].tolist() == [0, 1]


def test_copies_are_equal_and_read_only(data, tmp_path):
    data.shown  # noqa: B018
    joblib.dump(data, tmp_path / "data.joblib")
    copies = [pickle.loads(pickle.dumps(data)), joblib.load(tmp_path / "data.joblib"), copy.deepcopy(data)]
    copies.append(joblib.load(tmp_path / "data.joblib", mmap_mode="r"))
    for other in copies:
        assert other == data
        assert not other.X.flags.writeable
        assert not other.flat_shown.flags.writeable
        assert [s.tolist() for s in other.shown] == [s.tolist() for s in data.shown]
    assert joblib.hash(data) == joblib.hash(copies[0])


def test_equality(data):
    assert data == data.take(slice(None))
    assert data != data.take([0])
    assert data != 3
    X = np.ones((2, 1))
    base = {"shown": [[0, 1]], "chosen": [[0]], "object_ids": [5, 6], "set_ids": [1], "weights": [2.0]}
    base |= {"respondents": ["ann"]}
    other = {"shown": [[1, 0]], "chosen": [[1]], "object_ids": [6, 5], "set_ids": [2], "weights": [3.0]}
    other |= {"respondents": ["bo"]}
    one = ChoiceData.from_sets(X, **base)
    assert one == ChoiceData.from_sets(X, **base)
    assert one != ChoiceData.from_sets(2 * X, **base)
    for name in base:
        assert one != ChoiceData.from_sets(X, **(base | {name: other[name]})), name
    assert one != ChoiceData.from_sets(X, **(base | {"chosen": None}))
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_it_is_no_array(data):
    with pytest.raises(ChoiceGPError, match="not an array"):
        np.asarray(data)


class Counter(BaseEstimator):
    """Scores the share of the fitted sets that are also in the scored data, plus a parameter."""

    def __init__(self, extra=0.0):
        self.extra = extra

    def fit(self, data, y=None):
        assert isinstance(data, ChoiceData)
        self.seen_ = set(data.set_ids.tolist())
        return self

    def score(self, data, y=None):
        return float(np.mean([k in self.seen_ for k in data.set_ids])) + self.extra


def test_scikit_learn_cross_validation(data):
    assert cross_val_score(Counter(), data, cv=4).tolist() == [0.0] * 4
    groups = GroupKFold(4)
    assert cross_val_score(Counter(), data, groups=data.respondents, cv=groups).tolist() == [0.0] * 4
    search = GridSearchCV(Counter(), {"extra": [0.0, 1.0]}, cv=KFold(5, shuffle=True, random_state=0)).fit(data)
    assert search.best_params_ == {"extra": 1.0}
    assert search.best_estimator_.seen_ == set(range(20))


def test_scikit_learn_indexing(data):
    train, test = train_test_split(data, test_size=5, random_state=0)
    assert (len(train), len(test)) == (15, 5)
    assert not set(train.set_ids) & set(test.set_ids)
    assert _safe_indexing(data, np.array([3, 1])) == data.take([3, 1])
    assert _safe_indexing(data, slice(2, 4)) == data.take([2, 3])
    assert _safe_indexing(data, [True] + [False] * 19) == data.take([0])
    assert len(resample(data, random_state=0)) == 20
