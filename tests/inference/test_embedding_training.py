"""Training of an embedding: batches, steps, when it ends, and what is kept."""

import jax
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.compute.progress import Clock
from choicegp.inference import embedding_training
from choicegp.inference.embedding_training import (
    PaddedSets,
    TrainingSettings,
    _batch_size,
    _batches,
    padded_sets,
    train_embedding,
)
from choicegp.model.embedding import Batch, Embedding, batch_loss, term_weights

loss_of = jax.jit(batch_loss)
SETTINGS = TrainingSettings(term_weights([5, 5, 0.1, 0.1]), 1e-2, 16, 30, 100, 0.2)


@pytest.fixture(scope="module")
def sets() -> PaddedSets:
    """Return 40 sets of two to four of 20 objects, whose features are their utilities."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    shown = [rng.choice(20, size=size, replace=False) for size in rng.integers(2, 5, size=40)]
    return padded_sets(ChoiceData.from_utilities(X, X, shown), X)


def trained(sets, seed=0, clock=None, report=None, **changes):
    rng = np.random.default_rng(seed)
    first = Embedding.create([sets.X.shape[1], 8, 2], rng)
    return train_embedding(first, sets, SETTINGS._replace(**changes), rng, clock or Clock(None), report)


def whole(sets, positions=slice(None)) -> Batch:
    rows = sets.rows[positions]
    return Batch(sets.X[rows], sets.present[positions], sets.chosen[positions], sets.weights[positions])


def same(one, other) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_sets_are_filled_up_to_one_width():
    X = np.arange(4.0)[:, None]
    data = ChoiceData.from_sets(X, [[3, 1], [2], [0, 2, 1]], [[1], [2], [0, 1]], weights=[1.0, 2.0, 4.0])
    sets = padded_sets(data, X)
    assert sets.rows.tolist() == [[3, 1, 0], [2, 0, 0], [0, 2, 1]]
    assert sets.present.astype(int).tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 1]]
    assert sets.chosen.astype(int).tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 1]]
    assert sets.weights.tolist() == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(("n", "size"), [(1, 8), (7, 2), (10, 3), (101, 10), (128, 128), (129, 128), (5, 1)])
def test_batches_hold_every_set_once(n, size):
    batches = _batches(np.arange(n), size)
    assert batches.shape[1] <= size
    assert sorted(batches[batches >= 0]) == list(range(n))
    assert (batches >= 0).any(axis=1).all(), "no batch is empty"


def test_large_sets_come_in_smaller_batches():
    assert _batch_size(128, 10) == 128
    assert _batch_size(128, 1000) == 2
    assert _batch_size(128, 100_000) == 1


def test_the_first_step_is_that_of_adam(sets):
    rng = np.random.default_rng(0)
    first = Embedding.create([2, 8, 2], rng)
    settings = SETTINGS._replace(batch_size=100, max_epochs=1, validation_size=0.0)
    once = train_embedding(first, sets, settings, rng, Clock(None)).embedding
    gradient = jax.jit(jax.grad(batch_loss))(first, whole(sets), settings.weights)
    for before, after, slope in zip(*map(jax.tree.leaves, (first, once, gradient)), strict=True):
        clear = np.abs(slope) > 1e-4
        assert clear.any()
        # The first step of Adam has the length of the rate, whatever the gradient's is.
        assert (after - before)[clear] == pytest.approx(-1e-2 * np.sign(slope)[clear], rel=1e-3)


def test_the_loss_falls_and_the_best_epoch_is_kept(sets):
    # A high rate, so that the last epoch is not the best.
    result = trained(sets, learning_rate=0.1, max_epochs=40)
    assert result.losses[-1] < 0.5 * result.losses[0]
    assert result.best_epoch == 1 + np.argmin(result.validation_losses) < 40
    judging = np.random.default_rng(0)
    Embedding.create([2, 8, 2], judging)
    validation = judging.permutation(40)[:8]
    kept = loss_of(result.embedding, whole(sets, validation), SETTINGS.weights)
    assert float(kept) == pytest.approx(result.validation_losses.min())


def test_without_validation_sets_the_training_sets_judge(sets):
    result = trained(sets, validation_size=0.0)
    kept = loss_of(result.embedding, whole(sets), SETTINGS.weights)
    assert float(kept) == pytest.approx(result.validation_losses.min())


def test_a_single_set_is_trained_on():
    X = np.array([[0.0], [1.0]])
    one = padded_sets(ChoiceData.from_sets(X, [[0, 1]], [[1]]), X)
    result = trained(one)
    assert result.validation_losses[-1] < result.losses[0]


def test_weights_of_sets_count():
    X = np.array([[0.0], [1.0]])
    pairs = ChoiceData.from_pairs(X, [[0, 1], [1, 0]], weights=[1.0, 9.0])
    U = trained(padded_sets(pairs, X), validation_size=0.0).embedding(X)
    assert (U[1] > U[0]).all()
    pairs = ChoiceData.from_pairs(X, [[0, 1], [1, 0]], weights=[9.0, 1.0])
    U = trained(padded_sets(pairs, X), validation_size=0.0).embedding(X)
    assert (U[1] < U[0]).all()


def test_it_ends_when_patience_does(sets):
    result = trained(sets, learning_rate=0.1, max_epochs=500, patience=7)
    assert (result.status, result.message) == ("converged", "the validation loss has not fallen for 7 epochs")
    assert len(result.losses) == len(result.validation_losses) < 500
    before, after = result.validation_losses[:-7].min(), result.validation_losses[-7:].min()
    assert after > before * (1 - 1e-3)


def test_it_stops_at_a_limit(sets):
    result = trained(sets, max_epochs=3)
    assert (result.status, len(result.losses)) == ("stopped", 3)
    assert "raise max_epochs" in result.message
    result = trained(sets, clock=Clock(0.0))
    assert (result.status, len(result.losses)) == ("stopped", 1)
    assert "raise max_seconds" in result.message


def test_the_seed_decides(sets):
    one, again, other = trained(sets), trained(sets), trained(sets, seed=1)
    assert same(one.embedding, again.embedding)
    assert np.array_equal(one.losses, again.losses)
    assert not np.array_equal(one.losses, other.losses)


def test_sets_are_shuffled_before_every_epoch(sets, monkeypatch):
    epoch, orders = embedding_training._epoch, []

    def watched(*args):
        orders.append(args[3])
        return epoch(*args)

    monkeypatch.setattr(embedding_training, "_epoch", watched)
    trained(sets, max_epochs=3)
    assert all(np.array_equal(np.sort(order, axis=None), np.sort(orders[0], axis=None)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[1], orders[2])


def test_a_loss_that_is_not_finite_ends_it(sets, monkeypatch):
    judge = embedding_training._judge
    calls = []

    def spoilt(*args):
        calls.append(1)
        return np.nan if len(calls) == 4 else judge(*args)

    monkeypatch.setattr(embedding_training, "_judge", spoilt)
    result = trained(sets)
    monkeypatch.undo()
    assert (result.status, result.message) == ("stopped", "the loss was no finite number in epoch 4")
    assert same(result.embedding, trained(sets, max_epochs=3).embedding)


def test_nothing_learned_is_a_failure(sets):
    result = trained(sets._replace(X=sets.X * 1e200))
    assert (result.status, result.best_epoch) == ("failed", 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.embedding))


def test_each_epoch_is_reported(sets):
    seen = []
    result = trained(sets, max_epochs=3, report=lambda *told: seen.append(told))
    assert [told[:2] for told in seen] == [("training", 1), ("training", 2), ("training", 3)]
    assert [told[2] for told in seen] == result.validation_losses.tolist()
