"""Mini-batches: every set once in each pass, whatever the sizes, and nothing but the seed and the step decides."""

import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.inference.sparse.feed import BatchShare, Feed, InMemory, all_of, shares


@pytest.fixture(scope="module")
def ragged() -> ChoiceData:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    shown = [rng.permutation(40)[: 2 + k % 4] for k in range(30)]
    weights = rng.uniform(0.5, 2.0, 30)
    return ChoiceData.from_utilities(X, X[:, :2], shown, weights=weights)


@pytest.fixture(scope="module")
def source(ragged: ChoiceData) -> InMemory:
    return InMemory(ragged, np.zeros(3), np.ones(3))


def test_a_set_is_read_with_its_chosen_objects_first_and_padding_last(ragged, source):
    sets = np.array([3, 0])  # of five and of two objects
    read = source.read(sets, 6)
    for column, number in enumerate(sets):
        a, kept = len(ragged.shown[number]), ragged.chosen[number]
        assert read.present[:, column].tolist() == [True] * a + [False] * (6 - a)
        assert read.chosen[:, column].tolist() == [True] * len(kept) + [False] * (6 - len(kept))
        rows = {tuple(row) for row in read.X[: len(kept), column]}
        assert rows == {tuple(row) for row in ragged.X[kept]}
        rest = {tuple(row) for row in read.X[len(kept) : a, column]}
        assert rest == {tuple(row) for row in ragged.X[np.setdiff1d(ragged.shown[number], kept)]}
        assert tuple(read.X[a, column]) in rows | rest  # padding brings no new object
    assert read.weight == pytest.approx(ragged.weights[sets])


def test_features_are_scaled(ragged):
    scaled = InMemory(ragged, np.full(3, 1.0), np.full(3, 2.0)).read(np.arange(4), 6)
    plain = InMemory(ragged, np.zeros(3), np.ones(3)).read(np.arange(4), 6)
    assert pytest.approx((plain.X - 1.0) / 2.0) == scaled.X


def test_every_pass_takes_each_set_once(ragged, source):
    everything = np.arange(30)
    part = BatchShare(6, everything, 4)
    (groups,) = Feed(source, (part,), 1, np.float64).steps(range(15))  # two passes
    scale = 30 / 4
    taken = [int(np.argmin(abs(ragged.weights - w / scale))) for w in groups.weight.ravel()]
    assert sorted(taken[:30]) == sorted(taken[30:]) == everything.tolist()
    assert taken[:30] != taken[30:]


def test_a_step_depends_on_seed_and_number_alone(source):
    parts = shares(source.sizes, np.arange(30), 8)
    whole = Feed(source, parts, 5, np.float64).steps(range(12))
    later = Feed(source, parts, 5, np.float64).steps(range(7, 9))
    for one, other in zip(whole, later, strict=True):
        assert np.array_equal(one.X[7:9], other.X)
        assert np.array_equal(one.chosen[7:9], other.chosen)
    other_seed = Feed(source, parts, 6, np.float64).steps(range(12))
    assert not np.array_equal(whole[0].X, other_seed[0].X)


def test_the_weights_of_a_step_stand_for_all_sets(ragged, source):
    parts = shares(source.sizes, np.arange(30), 10)
    assert sum(len(part.sets) for part in parts) == 30
    n_steps = 30 * 8  # whole passes of every shape
    groups = Feed(source, parts, 0, np.float64).steps(range(n_steps))
    mean = sum(float(sets.weight.sum()) for sets in groups) / n_steps
    assert mean == pytest.approx(float(ragged.weights.sum()), rel=0.02)


def test_with_all_sets_in_a_step_each_keeps_its_place_and_its_weight(ragged, source):
    parts = shares(source.sizes, np.arange(30), 30, multiple=4)
    groups = Feed(source, parts, 0, np.float64).steps(range(3))
    for part, sets in zip(parts, groups, strict=True):
        assert part.n_taken % 4 == 0
        assert np.array_equal(sets.X[0], sets.X[2])
        assert sets.weight[0].sum() == pytest.approx(ragged.weights[part.sets].sum())


def test_chunks_hold_every_set_once(ragged, source):
    chunks = list(all_of(source, np.arange(30), lambda size: 7, np.float32))
    assert sum(float(sets.weight.sum()) for sets in chunks) == pytest.approx(float(ragged.weights.sum()), rel=1e-6)
    assert all(sets.X.dtype == np.float32 for sets in chunks)
    assert all(sets.X.shape[1] <= 7 for sets in chunks)
