"""The network and its loss: brute force over ragged sets, known answers, padding and gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp import ChoiceGPError
from choicegp.model.embedding import Batch, Embedding, batch_loss, set_losses, set_terms, term_weights

EVEN = term_weights([1, 1, 1, 1])
# Compiled whole: operations that are run one by one are compiled one by one.
loss_of = jax.jit(batch_loss)
loss_and_gradient = jax.jit(jax.value_and_grad(batch_loss))
one_set = jax.jit(set_terms)


def ragged(rng, sizes, n_features=3, width=None, filling=0.0, dtype=np.float64) -> Batch:
    """Draw sets of these sizes with random choices; the empty places of the batch hold ``filling``."""
    width = max(sizes) if width is None else width
    X = np.full((len(sizes), width, n_features), filling, dtype)
    present, chosen = np.zeros((2, len(sizes), width), bool)
    for k, size in enumerate(sizes):
        X[k, :size] = rng.normal(size=(size, n_features))
        present[k, :size] = True
        chosen[k, :size] = rng.random(size) < 0.5
    return Batch(X, present, chosen, rng.uniform(0.5, 2.0, len(sizes)).astype(dtype))


def plain_terms(X, U, chosen) -> list[float]:
    """Compute the terms of one set object by object."""
    n, d = U.shape
    of_chosen = of_rejected = 0.0
    for o in range(n):
        others = [v for v in range(n) if v != o]
        if chosen[o]:
            of_chosen += sum(max(0.0, 1.0 + min(U[v, i] - U[o, i] for i in range(d))) for v in others)
        elif others:
            of_rejected += min(sum(max(0.0, 1.0 + U[o, i] - U[v, i]) for i in range(d)) for v in others)
    inside = [[np.linalg.norm(X[o] - X[v]) - np.linalg.norm(U[o] - U[v]) for v in range(n)] for o in range(n)]
    return [of_chosen, of_rejected, np.linalg.norm(inside), sum(np.linalg.norm(u) for u in U)]


def plain_network(embedding, X) -> np.ndarray:
    for layer, (matrix, shift) in enumerate(zip(embedding.matrices, embedding.shifts, strict=True)):
        X = X @ matrix + shift
        if layer < len(embedding.matrices) - 1:
            X = np.where(X > 0, X, np.expm1(X))
    return X


# The network


@pytest.mark.parametrize("sizes", [[3, 2], [3, 5, 2], [1, 4, 4, 1]])
def test_the_network_is_a_chain_of_layers(sizes):
    rng = np.random.default_rng(0)
    embedding = Embedding.create(sizes, rng)
    embedding = Embedding(embedding.matrices, tuple(rng.normal(size=shift.shape) for shift in embedding.shifts))
    X = rng.normal(size=(2, 7, sizes[0]))
    assert embedding(X).shape == (2, 7, sizes[-1])
    assert np.asarray(embedding(X)) == pytest.approx(plain_network(embedding, X), abs=1e-12)


def test_the_network_has_the_precision_of_its_inputs():
    single = Embedding.create([3, 5, 2], np.random.default_rng(0), np.float32)
    batch = ragged(np.random.default_rng(1), [2, 3], dtype=np.float32)
    assert single(batch.X).dtype == np.float32
    assert loss_of(single, batch, EVEN.astype(np.float32)).dtype == np.float32
    double = Embedding.create([3, 5, 2], np.random.default_rng(0))
    assert double(batch.X.astype(float)).dtype == np.float64
    assert np.asarray(single(batch.X)) == pytest.approx(np.asarray(double(batch.X)), rel=1e-4)


def test_the_network_is_immutable_and_drawn_by_seed():
    one, same, other = (Embedding.create([3, 4, 2], np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(one.matrices[0], same.matrices[0])
    assert not np.array_equal(one.matrices[0], other.matrices[0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.shifts = ()


# The loss


@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_term_agrees_with_brute_force(d):
    rng = np.random.default_rng(d)
    sizes = rng.integers(1, 7, size=30).tolist()
    batch = ragged(rng, sizes)
    embedding = Embedding.create([3, 6, d], rng)
    U = plain_network(embedding, batch.X)
    expected = []
    for k, size in enumerate(sizes):
        here = slice(0, size)
        terms = plain_terms(batch.X[k, here], U[k, here], batch.chosen[k, here])
        found = one_set(batch.X[k], jnp.asarray(U[k]), batch.present[k], batch.chosen[k])
        assert np.asarray(found) == pytest.approx(terms, abs=1e-10)
        expected.append(terms)
    weights = term_weights([4, 3, 2, 1])
    losses = np.array(expected) @ weights
    assert np.asarray(jax.jit(set_losses)(embedding, batch, weights)) == pytest.approx(losses, abs=1e-10)
    mean = np.average(losses, weights=batch.weights)
    assert float(loss_of(embedding, batch, weights)) == pytest.approx(mean, abs=1e-10)


def terms_of(U, chosen) -> list[float]:
    U = np.array(U, float)
    return np.asarray(one_set(U, jnp.asarray(U), np.ones(len(U), bool), np.array(chosen, bool))).tolist()


def test_known_answers():
    # Both are best in one utility by more than the margin.
    assert terms_of([[0, 3], [3, 0]], [1, 1]) == [0.0, 0.0, 0.0, 6.0]
    # The chosen one is dominated by 1 at least: 1 + 1; the rejected one dominates by 2 and 1: 3 + 2.
    assert terms_of([[0, 0], [2, 1]], [1, 0])[:2] == [2.0, 5.0]
    # One object that dominates with margin is enough, however bad the others are.
    assert terms_of([[0, 0], [1, 1], [-9, -9]], [0, 1, 0])[:2] == [0.0, 0.0]
    # Of two equal objects, both chosen, neither keeps the margin.
    assert terms_of([[0, 0], [0, 0]], [1, 1]) == [2.0, 0.0, 0.0, 0.0]
    assert terms_of([[3, 4]], [1]) == [0.0, 0.0, 0.0, 5.0]
    squeezed = one_set(jnp.array([[0.0], [3.0]]), jnp.array([[0.0], [1.0]]), np.ones(2, bool), np.array([0, 1], bool))
    # The distance 3 - 1 stands twice in the matrix, which is not squared.
    assert float(squeezed[2]) == pytest.approx(2 * np.sqrt(2))


def test_a_set_that_counts_twice_is_the_set_shown_twice():
    rng = np.random.default_rng(4)
    batch = ragged(rng, [3, 4])
    embedding = Embedding.create([3, 4, 2], rng)
    heavy = batch._replace(weights=np.array([2.0, 1.0]))
    twice = Batch(*(np.asarray(part)[[0, 0, 1]] for part in batch))._replace(weights=np.ones(3))
    even = batch._replace(weights=np.ones(2))
    assert float(loss_of(embedding, heavy, EVEN)) == pytest.approx(float(loss_of(embedding, twice, EVEN)))
    assert float(loss_of(embedding, heavy, EVEN)) != pytest.approx(float(loss_of(embedding, even, EVEN)))


@pytest.mark.parametrize("filling", [0.0, 1e3, np.nan, np.inf])
def test_padding_changes_nothing(filling):
    sizes = [1, 2, 5, 3]
    tight = ragged(np.random.default_rng(5), sizes)
    wide = ragged(np.random.default_rng(5), sizes, width=9, filling=filling)
    wide = wide._replace(chosen=wide.chosen | ~wide.present)  # nothing is chosen where nothing is
    embedding = Embedding.create([3, 6, 2], np.random.default_rng(6))
    one = loss_and_gradient(embedding, tight, EVEN)
    other = loss_and_gradient(embedding, wide, EVEN)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), abs=1e-12)


def test_a_set_of_weight_zero_changes_nothing():
    batch = ragged(np.random.default_rng(7), [3, 3, 2])
    embedding = Embedding.create([3, 6, 2], np.random.default_rng(6))
    without = Batch(*(part[:2] for part in batch))
    muted = batch._replace(weights=batch.weights * [1, 1, 0])
    assert float(loss_of(embedding, muted, EVEN)) == pytest.approx(float(loss_of(embedding, without, EVEN)))


# Gradients


def test_the_gradient_agrees_with_finite_differences():
    rng = np.random.default_rng(8)
    batch = ragged(rng, [2, 4, 3])
    embedding = Embedding.create([3, 5, 2], rng)
    weights = term_weights([4, 3, 2, 1])
    _, gradient = loss_and_gradient(embedding, batch, weights)
    for _ in range(5):
        way = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), embedding)
        ahead, back = (jax.tree.map(lambda p, w: p + h * w, embedding, way) for h in (1e-6, -1e-6))  # noqa: B023
        slope = (loss_of(ahead, batch, weights) - loss_of(back, batch, weights)) / 2e-6
        expected = sum(jax.tree.leaves(jax.tree.map(lambda g, w: (g * w).sum(), gradient, way)))
        assert float(slope) == pytest.approx(float(expected), rel=1e-4)


HARD = {
    "equal objects": lambda b: b._replace(X=np.zeros_like(b.X)),
    "sets of one object": lambda b: b._replace(present=np.arange(4) < np.ones((3, 1))),
    "everything chosen": lambda b: b._replace(chosen=b.present),
    "nothing chosen": lambda b: b._replace(chosen=np.zeros_like(b.chosen)),
    "an empty set": lambda b: b._replace(present=b.present & (np.arange(3) > 0)[:, None]),
    "tiny features": lambda b: b._replace(X=b.X * 1e-170),
    "large features": lambda b: b._replace(X=b.X * 1e60),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("network", ["drawn", "zero", "saturated"])
def test_gradients_are_finite(case, network):
    rng = np.random.default_rng(9)
    batch = HARD[case](ragged(rng, [4, 2, 3]))
    factor = {"drawn": 1.0, "zero": 0.0, "saturated": -100.0}[network]
    embedding = jax.tree.map(lambda leaf: factor * leaf, Embedding.create([3, 5, 2], rng))
    loss, gradient = loss_and_gradient(embedding, batch, EVEN)
    assert np.isfinite(loss)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


# Weights


def test_weights_are_scaled_to_sum_to_one():
    assert term_weights((2, 1, 1, 0)).tolist() == [0.5, 0.25, 0.25, 0.0]
    assert term_weights([1e308] * 4).tolist() == [0.25] * 4
    assert term_weights(np.array([0, 0, 0, 1e-300])).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ((1, 1, 1), "four numbers, of the terms chosen, rejected, distances, size"),
        (0.25, "four numbers"),
        (None, "four numbers"),
        ("abcd", "four numbers"),
        ([[1], [1, 2], 1, 1], "four numbers"),
        ((1, 1, 1, None), "four numbers"),
        ((True, True, True, True), "four numbers"),
        ((1, 1, -0.1, 1), "not below 0"),
        ((1, 1, np.nan, 1), "finite"),
        ((1, 1, np.inf, 1), "finite"),
        ((0, 0, 0, 0), "not all be 0"),
    ],
)
def test_wrong_weights_are_named(weights, says):
    with pytest.raises(ChoiceGPError, match=says):
        term_weights(weights)
