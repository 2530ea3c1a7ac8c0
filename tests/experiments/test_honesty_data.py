"""Simulated persons answer as the likelihood says, and every draw depends on its settings alone."""

import numpy as np
import pytest

from choicegp.experiments import honesty_data
from choicegp.experiments.honesty_data import (
    drawn_utilities,
    noisy_answers,
    simulated,
    subset_weights,
    table_split,
    with_a_lemon,
)
from choicegp.model.likelihood import subset_probabilities

SETTINGS = {
    "d": 2, "a": 3, "features": 2, "answers": "noisy", "objects": 8, "sets": 10, "related": 0.0, "seed": 0,
}  # fmt: skip


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_weights_of_subsets_are_the_likelihood(d, scale):
    u = scale * np.random.default_rng(d).normal(size=(5, d))
    expected = np.asarray(subset_probabilities(u.T))
    np.testing.assert_allclose(subset_weights(u) / subset_weights(u).sum(), expected / expected.sum(), atol=1e-8)


def test_large_sets_are_answered_by_the_same_law():
    u = np.random.default_rng(0).normal(size=(11, 2))
    weights = subset_weights(u)
    members = (np.arange(len(weights)) >> np.arange(11)[:, None]) & 1
    expected = members @ weights / weights.sum()
    data = noisy_answers(np.arange(11.0)[:, None], u, [np.arange(11)] * 2000, 0)
    share = np.mean(np.asarray(data.flat_chosen).reshape(2000, 11), axis=0)
    np.testing.assert_allclose(share, expected, atol=5 * 0.5 / np.sqrt(2000))


def test_simulated_data_have_their_parts_and_repeat():
    found = simulated(SETTINGS)
    assert [len(part) for part in found[:3]] == [10, honesty_data.N_TEST, honesty_data.N_TEST]
    assert found.known.flat_shown.max() < 8 <= found.new.flat_shown.min()
    assert found.U.shape == (8 + honesty_data.N_NEW, 2)
    again, other = simulated(SETTINGS), simulated(SETTINGS | {"seed": 1})
    assert all(np.array_equal(one, two) for one, two in zip(found.train.chosen, again.train.chosen, strict=True))
    assert not np.array_equal(found.U, other.U)


def test_without_errors_what_is_not_dominated_is_chosen():
    found = simulated(SETTINGS | {"answers": "noise-free"})
    for shown, chosen in zip(found.new.shown, found.new.chosen, strict=True):
        u = found.U[shown]
        beaten = np.any(np.all(u[:, None] > u[None], axis=2), axis=0)
        np.testing.assert_array_equal(shown[~beaten], chosen)


def test_related_utilities_are_alike():
    X = np.random.default_rng(0).normal(size=(300, 2))
    correlation = [
        np.corrcoef(drawn_utilities(np.random.default_rng(1), X, 2, related).T)[0, 1] for related in (0.0, 0.99)
    ]
    assert correlation[1] > 0.95 > correlation[0]


def test_the_lemon_is_below_all_and_often_shown():
    train, sets = with_a_lemon({"d": 2, "seed": 0})
    lemon = len(train.X) - 1
    with_lemon = [rows for rows in train.shown if lemon in rows]
    assert len(with_lemon) == honesty_data.N_LEMON_TRAIN / 2
    assert not any(lemon in rows for rows in train.chosen)
    assert {len(rows) for rows in sets} == {10}
    assert not any(lemon in rows for rows in sets)


@pytest.mark.parametrize(("table", "n_train", "n_new"), [("vehicle", 50, 30), ("edm", 20, 10), ("am", 33, 17)])
def test_tables_are_split_into_known_and_new_objects(table, n_train, n_new, request):
    folder = None if table == "vehicle" else str(request.getfixturevalue("data_folder"))
    settings = {"table": table, "d": 3, "a": 4, "objects": 50, "sets": 300, "test": 300, "seed": 0}
    found = table_split(settings, folder)
    old, known, new = (set(part.flat_shown.tolist()) for part in found[:3])
    assert (len(old), len(new)) == (n_train, n_new)
    assert known <= old
    assert not old & new
