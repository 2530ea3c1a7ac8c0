"""Choosing among sets, equality, copies, and what scikit-learn does with choice data."""

import copy
import dataclasses
import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing, resample

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError

X = np.array([[0.0, 3.0], [1.0, 2.0], [2.0, 1.0], [0.0, 0.0]])


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
