"""Posing a problem: no object, choice or weight is lost between ragged data and padded batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicegp import ChoiceData
from choicegp.data.packing import padded_size
from choicegp.inference.problem import pose

N_OBJECTS = 30


def ragged(n_sets=60, largest=12, seed=0, weights=False):
    """Choices from sets of 1 to `largest` objects, all distinct in their features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_OBJECTS, 2))
    shown = [rng.choice(N_OBJECTS, size=rng.integers(1, largest + 1), replace=False) for _ in range(n_sets)]
    chosen = [rng.choice(one, size=rng.integers(1, len(one) + 1), replace=False) for one in shown]
    return ChoiceData.from_sets(X, shown, chosen, weights=rng.uniform(0.5, 2.0, n_sets) if weights else None)


def sets_of(problem):
    """Map the number of each set in the data to what the problem holds of it: features of chosen, of rejected."""
    found = {}
    for batch in problem.batches:
        for column, number in enumerate(batch.sets):
            if number >= 0:
                present, chosen = batch.present[:, column], batch.chosen[:, column]
                rows = batch.rows[:, column]
                assert number not in found
                found[int(number)] = (rows[chosen], rows[present & ~chosen])
    return found


@pytest.fixture(scope="module")
def data():
    return ragged(weights=True)


@pytest.fixture(scope="module")
def problem(data):
    return pose(data, data.X, np.arange(N_OBJECTS), effects=False)


def test_every_set_keeps_its_objects_and_its_choice(data, problem):
    found = sets_of(problem)
    informative = [k for k in range(len(data)) if len(data.shown[k]) > 1]
    assert sorted(found) == informative
    for k in informative:
        chosen, rejected = (problem.objects.X[rows] for rows in found[k])
        kept = data.X[data.chosen[k]]
        other = data.X[np.setdiff1d(data.shown[k], data.chosen[k])]
        np.testing.assert_array_equal(np.sort(chosen, axis=0), np.sort(kept, axis=0))
        np.testing.assert_array_equal(np.sort(rejected, axis=0), np.sort(other, axis=0))


def test_chosen_come_first_then_rejected_then_padding(problem):
    for batch in problem.batches:
        # 2 = chosen, 1 = rejected, 0 = padding: never rises down a column.
        rank = batch.chosen.astype(int) + batch.present
        assert np.all(np.diff(rank, axis=0) <= 0)
        assert not np.any(batch.chosen & ~batch.present)


def test_sets_of_one_object_are_left_out(data, problem):
    single = sum(len(one) == 1 for one in data.shown)
    assert single > 0
    assert problem.n_sets == len(data) - single


def test_only_sets_of_one_object_leave_no_batch():
    data = ChoiceData.from_sets([[0.0], [1.0]], [[0], [1]], [[0], [1]])
    problem = pose(data, data.X, np.arange(2), effects=False)
    assert problem.batches == ()
    assert problem.n_sets == 0
    assert problem.n_objects == 2


def test_padding_has_no_weight_and_repeats_an_object_of_its_set(problem):
    for batch in problem.batches:
        padding = batch.sets < 0
        assert np.all(batch.weight[padding] == 0.0)
        assert not np.any(batch.present[:, padding])
        repeated = np.where(batch.present, batch.rows[:1], batch.rows)
        np.testing.assert_array_equal(repeated, np.broadcast_to(batch.rows[:1], repeated.shape))


def test_weights_follow_their_sets(data, problem):
    for batch in problem.batches:
        real = batch.sets >= 0
        np.testing.assert_array_equal(batch.weight[real], data.weights[batch.sets[real]])


def test_without_weights_every_set_counts_one():
    data = ragged(n_sets=10, seed=3)
    for batch in pose(data, data.X, np.arange(N_OBJECTS), effects=False).batches:
        np.testing.assert_array_equal(batch.weight, 1.0 * (batch.sets >= 0))


def test_only_shown_objects_enter_and_padding_copies_the_first():
    X = np.arange(200.0)[:, None]
    data = ChoiceData.from_sets(X, [[k, k + 1] for k in range(100, 180)], [[k] for k in range(100, 180)])
    problem = pose(data, X, np.arange(200), effects=False)
    assert problem.n_objects == 81
    np.testing.assert_array_equal(np.sort(problem.objects.X[problem.valid, 0]), np.arange(100.0, 181.0))
    assert len(problem.valid) == padded_size(81, 4) > 81
    np.testing.assert_array_equal(problem.objects.X[~problem.valid], np.full((3, 1), problem.objects.X[0]))


def test_equal_features_are_one_object_without_effects_and_apart_with_them():
    X = np.array([[0.0], [1.0], [0.0], [2.0]])
    data = ChoiceData.from_sets(X, [[0, 1], [2, 3], [0, 2]], [[0], [3], [0]])
    codes = np.array([7, 8, 9, 10])
    merged = pose(data, X, codes, effects=False)
    assert merged.n_objects == 3
    found = sets_of(merged)
    assert found[0][0] == found[1][1] == found[2][0] == found[2][1]
    apart = pose(data, X, codes, effects=True)
    assert apart.n_objects == 4
    found = sets_of(apart)
    assert found[0][0] != found[1][1]
    assert [apart.objects.codes[found[0][0]], apart.objects.codes[found[1][1]]] == [[7], [9]]


def test_with_effects_one_id_with_two_feature_rows_stays_two_objects_of_one_code():
    X = np.array([[0.0], [1.0], [2.0]])
    data = ChoiceData.from_sets(X, [[0, 1], [1, 2]], [[0], [2]])
    problem = pose(data, X, np.array([5, 6, 5]), effects=True)
    assert problem.n_objects == 3
    assert sorted(problem.objects.codes[problem.valid]) == [5, 5, 6]


def test_at_most_three_batch_shapes_and_rare_sizes_move_up():
    data = ragged(n_sets=300)
    problem = pose(data, data.X, np.arange(N_OBJECTS), effects=False)
    shapes = [batch.rows.shape[0] for batch in problem.batches]
    assert 1 <= len(shapes) <= 3
    assert max(shapes) == 12
    sizes = np.array([len(one) for one in data.shown])
    for batch in problem.batches:
        own = sizes[batch.sets[batch.sets >= 0]]
        assert np.all(own <= batch.rows.shape[0])


def test_frequent_sizes_keep_their_own_shape():
    # 50 pairs, 50 triples and 50 sets of five, and one set of four: it is the four that moves up to five.
    rng = np.random.default_rng(0)
    sizes = [2] * 50 + [3] * 50 + [5] * 50 + [4]
    shown = [rng.choice(20, size, replace=False) for size in sizes]
    data = ChoiceData.from_sets(rng.normal(size=(20, 1)), shown, [one[:1] for one in shown])
    problem = pose(data, data.X, np.arange(20), effects=False)
    assert [batch.rows.shape[0] for batch in problem.batches] == [2, 3, 5]
    assert [int((batch.sets >= 0).sum()) for batch in problem.batches] == [50, 50, 51]


@given(n=st.integers(0, 10**6), fineness=st.integers(0, 6))
@settings(max_examples=300, deadline=None)
def test_padded_size_is_close_above_repeats_itself_and_has_few_values(n, fineness):
    size = padded_size(n, fineness)
    assert n <= size <= n * (1 + 2.0**-fineness)
    assert padded_size(size, fineness) == size
    assert padded_size(n + 1, fineness) >= size


def test_padded_size_has_few_values_between_powers_of_two():
    assert len({padded_size(n, 3) for n in range(1025, 2049)}) == 8
    assert [padded_size(n, 4) for n in (1, 16, 31, 33, 100)] == [1, 16, 31, 34, 100]
