"""Pareto embeddings: a network from features to utilities, and the loss that teaches it choices.

The objects of a set are mapped to utilities so that what was chosen is what no other object dominates (Pfannschmidt
and Hüllermeier, "Learning Choice Functions via Pareto-Embeddings", KI 2020).  Nothing here is random: the same
utilities always give the same choice.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from choicegp.errors import ChoiceGPError
from choicegp.model.shapes import AnyArray

TERMS = ("chosen", "rejected", "distances", "size")


class Embedding(eqx.Module):
    """A network of dense layers with ELU between them; immutable.

    Attributes
    ----------
    matrices : tuple of array (inputs, outputs)
    shifts : tuple of array (outputs,)

    Examples
    --------
    >>> embedding = Embedding.create([3, 8, 2], np.random.default_rng(0))
    >>> embedding(np.zeros((5, 3))).shape
    (5, 2)
    """

    matrices: tuple[Float[AnyArray, "_ _"], ...]
    shifts: tuple[Float[AnyArray, " _"], ...]

    @classmethod
    def create(cls, sizes: Sequence[int], rng: np.random.Generator, dtype: Any = np.float64) -> "Embedding":
        """Draw the first matrices: ``sizes`` are the numbers of features, of units in each layer, and of utilities."""
        matrices = [
            (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(dtype)
            for inputs, outputs in pairwise(sizes)
        ]
        shifts = [np.zeros(outputs, dtype) for outputs in sizes[1:]]
        return cls(tuple(matrices), tuple(shifts))

    def __call__(self, X: Float[AnyArray, "*batch c"]) -> Float[AnyArray, "*batch d"]:
        """Return the utilities of objects: (..., c) -> (..., d)."""
        own_axis = (*(1,) * (X.ndim - 1), -1)  # the last one
        *hidden, (matrix, shift) = zip(self.matrices, self.shifts, strict=True)
        for hidden_matrix, hidden_shift in hidden:
            X = jax.nn.elu(X @ hidden_matrix + hidden_shift.reshape(own_axis))
        return X @ matrix + shift.reshape(own_axis)


class Batch(NamedTuple):
    """Sets of different sizes, padded to the size of the largest.

    Attributes
    ----------
    X : array (b, a, c)
        Features; the values in the padding do not matter.
    present, chosen : bool array (b, a)
        Which places hold an object, and which of these were chosen.
    weights : array (b,)
        How much each set counts.
    """

    X: Float[AnyArray, "b a c"]
    present: Bool[AnyArray, "b a"]
    chosen: Bool[AnyArray, "b a"]
    weights: Float[AnyArray, " b"]


def term_weights(weights: Any) -> Float[np.ndarray, " 4"]:
    """Return the weights of the four terms scaled to sum to one, or say what is wrong with them.

    Examples
    --------
    >>> term_weights([2, 1, 1, 0])
    array([0.5 , 0.25, 0.25, 0.  ])
    """
    try:
        values = np.asarray(weights)
    except ValueError:
        values = np.asarray(None)
    if values.dtype.kind not in "iuf" or values.shape != (len(TERMS),):
        raise ChoiceGPError(f"weights must be four numbers, of the terms {', '.join(TERMS)}; got {weights!r}")
    values = values.astype(np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ChoiceGPError(f"weights must be finite and not below 0; got {weights!r}")
    if not values.any():
        raise ChoiceGPError("weights must not all be 0: nothing would be learned")
    values = values / values.max()  # a sum of large numbers would overflow
    return values / values.sum()


def set_terms(
    X: Float[AnyArray, "a c"], U: Float[AnyArray, "a d"], present: Bool[AnyArray, " a"], chosen: Bool[AnyArray, " a"]
) -> Float[Array, " 4"]:
    """Return the four terms of the loss of one set, (4,).

    Parameters
    ----------
    X : array (a, c)
    U : array (a, d)
        Utilities of the objects.
    present, chosen : bool array (a,)
    """
    other = present[:, None] & present[None, :] & ~np.eye(len(present), dtype=bool)
    ahead = U[None, :] - U[:, None]  # (o, v): by how much v is better than o
    dominated = jnp.maximum(1.0 + ahead.min(axis=-1), 0.0)
    of_chosen = jnp.where(chosen[:, None] & other, dominated, 0.0).sum()
    undominated = jnp.maximum(1.0 - ahead, 0.0).sum(axis=-1)
    nearest = jnp.where(other, undominated, jnp.inf).min(axis=1)
    rejected = present & ~chosen & other.any(axis=1)
    of_rejected = jnp.where(rejected, nearest, 0.0).sum()
    stretched = jnp.where(other, _distances(X) - _distances(U), 0.0)
    size = jnp.where(present, _norm(U), 0.0).sum()
    return jnp.stack([of_chosen, of_rejected, _norm(stretched.ravel()), size])


def set_losses(embedding: Embedding, batch: Batch, weights: Float[AnyArray, " 4"]) -> Float[Array, " b"]:
    """Return the weighted sum of the terms for each set of a batch, (b,)."""
    # A gradient of zero times what happens to stand in an empty place may be NaN.
    X = jnp.where(batch.present[:, :, None], batch.X, 0.0)
    terms = jax.vmap(set_terms)(X, embedding(X), batch.present, batch.chosen & batch.present)
    return terms @ weights


def batch_loss(embedding: Embedding, batch: Batch, weights: Float[AnyArray, " 4"]) -> Float[Array, ""]:
    """Return the weighted mean of the sets' losses.

    Parameters
    ----------
    embedding : Embedding
    batch : Batch
    weights : array (4,)
        Of the terms, as `term_weights` returns them.

    Examples
    --------
    >>> embedding = Embedding((np.eye(1),), (np.zeros(1),))
    >>> pair = Batch(np.array([[[0.0], [3.0]]]), np.ones((1, 2), bool), np.array([[False, True]]), np.ones(1))
    >>> float(batch_loss(embedding, pair, term_weights([1, 1, 1, 1])))
    0.75
    """
    return (batch.weights * set_losses(embedding, batch, weights)).sum() / batch.weights.sum()


def _distances(Z: Float[AnyArray, "n c"]) -> Float[Array, "n n"]:
    return _norm(Z[:, None] - Z[None, :])


def _norm(Z: Float[AnyArray, "*batch c"]) -> Float[Array, "*batch"]:
    """Euclidean norm along the last axis, with gradient 0 where it is 0."""
    square = (Z**2).sum(axis=-1)
    is_zero = square == 0.0
    return jnp.where(is_zero, 0.0, jnp.sqrt(jnp.where(is_zero, 1.0, square)))
