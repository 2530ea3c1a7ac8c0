"""Sites: the Gaussian factor by which each set's likelihood is replaced.

The optimal Gaussian posterior has precision K^-1 + sum_k E_k P_k E_k^T with one a x a block P_k per set and
utility, and natural parameter sum_k E_k eta_k.  Only the global sums are kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.inference.problem import Problem, SetBatch
from choicegp.model.derivatives import ExpectedDerivatives

_MOST_NEIGHBOURS = 8  # an eighth of the objects: with more neighbours, a plain product of matrices is faster
_WHOLE = 400  # order up to which a product of matrices is made at once
_CACHED = 64  # rows that are multiplied at a time
_AT_ONCE = 8  # neighbours whose products are added at a time: a sum that is written once for all of them


class Sites(NamedTuple):
    """The sum of all sites.

    Attributes
    ----------
    precision : Array (d, t, t)
    linear : Array (d, t)

    Examples
    --------
    >>> import numpy as np
    >>> from choicegp.inferences import Sites
    >>> Sites(np.zeros((2, 5, 5)), np.zeros((2, 5))).linear.shape
    (2, 5)
    """

    precision: Array
    linear: Array


def zero_sites(n_utilities: int, n_objects: int) -> Sites:
    """Return sites that say nothing."""
    return Sites(jnp.zeros((n_utilities, n_objects, n_objects)), jnp.zeros((n_utilities, n_objects)))


class Neighbours(NamedTuple):
    """Which objects are shown together: where the sum of the sites' precisions is not zero.

    ``columns`` (t, w) are the neighbours of every object, itself included, and a matrix is its values there.  Where
    most objects meet most others, all are neighbours, and the values are the matrix itself.
    """

    columns: np.ndarray
    places: tuple[np.ndarray, ...]  # (a, a, m) for each batch: where the blocks of its sets are among t w values

    def values(self, precision: Sequence[Array]) -> Array:
        """Add up the precisions (d, a, a, m) of the sets of each batch: (d, t, w)."""
        t, w = self.columns.shape
        total = jnp.zeros((len(precision[0]), t * w))
        for places, own in zip(self.places, precision, strict=True):
            total = total.at[:, places].add(own)
        return total.reshape(-1, t, w)

    def of_matrices(self, matrices: np.ndarray) -> np.ndarray:
        """Return the values (d, t, w) of matrices (d, t, t) that are zero elsewhere."""
        t, w = self.columns.shape
        # What fills up a row of neighbours, which are in order, is a zero after the first.
        counts = (self.columns > 0) | (np.arange(w) == 0)
        return matrices[:, np.arange(t)[:, None], self.columns] * counts

    def matrices(self, values: np.ndarray) -> np.ndarray:
        """Return the matrices (d, t, t) that have these values (d, t, w)."""
        t = len(self.columns)
        found = np.zeros((len(values), t, t))
        np.add.at(found, (slice(None), np.arange(t)[:, None], np.asarray(self.columns)), values)  # type: ignore[arg-type]
        return found

    def product(self, rows: Array, values: Array) -> Array:
        """Multiply rows (n, t) by the symmetric matrix that has these values (t, w)."""
        t, w = self.columns.shape
        if w == t:
            return rows @ values
        n = len(rows)
        some = (values.T.reshape(-1, _AT_ONCE, t, 1), jnp.asarray(self.columns).T.reshape(-1, _AT_ONCE, t))

        def of_part(part: Array) -> Array:
            table = part.T

            def add(total: Array, some: tuple[Array, Array]) -> tuple[Array, None]:
                return sum((own * table[columns] for own, columns in zip(*some, strict=True)), total), None

            return jax.lax.scan(add, jnp.zeros_like(table), some)[0].T

        if n <= _CACHED:
            return of_part(rows)
        # A part at a time stays in a core's cache.
        parts = jnp.pad(rows, ((0, -n % _CACHED), (0, 0))).reshape(-1, _CACHED, t)
        return jax.lax.map(of_part, parts).reshape(-1, t)[:n]

    def of_vector(self, values: Array, vector: Array) -> Array:
        """Multiply the matrix that has these values (t, w) by a vector (t,)."""
        return jnp.sum(values * vector[jnp.asarray(self.columns)], axis=1)


def neighbours(problem: Problem) -> Neighbours:
    """Find the objects that are shown together."""
    t, pairs = len(problem.valid), []
    for batch in problem.batches:
        rows, present = np.asarray(batch.rows, np.int64), np.asarray(batch.present)
        both = present[:, None] & present[None, :]
        # What is not there has no precision, wherever that is put.
        pairs.append(np.where(both, rows[:, None] * t + rows[None, :], (rows * (t + 1))[:, None]))
    found = np.unique(np.concatenate([own.ravel() for own in pairs] + [np.arange(t) * (t + 1)]))
    first = np.searchsorted(found, np.arange(t) * t)
    width = int(np.max(np.diff(np.append(first, len(found)))))
    if width > t // _MOST_NEIGHBOURS:
        return Neighbours(
            np.broadcast_to(np.arange(t, dtype=np.int32), (t, t)), tuple(own.astype(np.int32) for own in pairs)
        )
    width = -(-width // _AT_ONCE) * _AT_ONCE
    place = np.arange(len(found)) - first[found // t] + found // t * width
    columns = np.zeros(t * width, np.int32)
    columns[place] = found % t
    return Neighbours(
        columns.reshape(t, width), tuple(place[np.searchsorted(found, own)].astype(np.int32) for own in pairs)
    )


def turned(matrix: Array) -> Array:
    """Return the transpose, by rows: on a CPU, products that read the matrix by columns instead take twice as long."""
    return jax.lax.optimization_barrier(matrix.T)


def gram(matrix: Array) -> Array:
    """Return A^T A; of a large matrix the half that is different from the rest."""
    return _gram_of_rows(turned(matrix))


def _gram_of_rows(rows: Array) -> Array:
    n = len(rows)
    if n <= _WHOLE:
        return rows @ rows.T
    first, second = rows[: n // 2], rows[n // 2 :]
    return _symmetric(_gram_of_rows(first), second @ first.T, _gram_of_rows(second))


def seen_through(root: Array, precision: Array) -> Array:
    """Return L^T Λ L, L lower triangular and Λ symmetric.

    Of large matrices, nothing is multiplied that is zero or that symmetry gives.
    """
    n = len(root)
    if n <= _WHOLE:
        return turned(root) @ (precision @ root)
    half, by_rows = n // 2, turned(root)
    left = precision @ root[:, :half]
    rest = seen_through(root[half:, half:], precision[half:, half:])
    return _symmetric(by_rows[:half] @ left, by_rows[half:, half:] @ left[half:], rest)


def _symmetric(first: Array, below: Array, second: Array) -> Array:
    return jnp.concatenate([jnp.concatenate([first, below.T], 1), jnp.concatenate([below, second], 1)])


def psd_part(curvature: Array) -> Array:
    """Project (d, a, a, m) onto positive semi-definite matrices.

    The curvature only acts on differences, so the projection is made in the (a - 1)-dimensional space of
    vectors that sum to zero; in one and two dimensions it has a closed form.
    """
    a = curvature.shape[1]
    if a == 1:
        return curvature
    contrast = np.linalg.qr(np.column_stack([np.ones(a), np.eye(a)[:, 1:]]))[0][:, 1:].astype(curvature.dtype)
    inner = jnp.einsum("oi,dopm,pj->dmij", contrast, curvature, contrast)
    if a == 2:
        clipped = jnp.maximum(inner, 0.0)
    elif a == 3:
        clipped = _psd_part_2x2(inner)
    else:
        values, vectors = jnp.linalg.eigh(inner)
        clipped = (vectors * jnp.maximum(values, 0.0)[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)
    return jnp.einsum("oi,dmij,pj->dopm", contrast, clipped, contrast)


def _psd_part_2x2(inner: Array) -> Array:
    x, y, z = inner[..., 0, 0], inner[..., 1, 1], inner[..., 0, 1]
    middle, apart = 0.5 * (x + y), 0.5 * (x - y)
    # The slope of hypot at zero is NaN in some versions of JAX: there the radius is zero, and so is its slope.
    is_round = (apart == 0.0) & (z == 0.0)
    radius = jnp.where(is_round, 0.0, jnp.hypot(jnp.where(is_round, 1.0, apart), z))
    low, high = middle - radius, middle + radius
    # Only a matrix with eigenvalues of both signs needs their directions, and its radius is larger than |middle|: the
    # projector onto the direction of the larger one has entries of at most about 1, however small the matrix is.
    mixed = (low < 0.0) & (high > 0.0)
    twice = jnp.where(mixed, 2.0 * radius, 1.0)
    projector = (inner - low[..., None, None] * jnp.eye(2, dtype=inner.dtype)) / twice[..., None, None]
    definite = jnp.where((high <= 0.0)[..., None, None], 0.0, inner)
    return jnp.where(mixed[..., None, None], high[..., None, None] * projector, definite)


def add_up(
    batch: SetBatch, weight: Array, expected: ExpectedDerivatives, mean: Array, total: Sites, forces: Array
) -> tuple[Sites, Array]:
    """Add a batch's sites to the sums.

    A site has precision P+ (clipped) and linear part g + P+ m: with the clipped P+ in both places,
    K^-1 m = sum g holds at the fixed point whatever was clipped.

    Returns
    -------
    Sites, Array (d, t)
        The sums, and the sum of the gradients g alone.
    """
    rows = batch.rows
    precision = weight * psd_part(expected.curvature)
    gradient = weight * expected.gradient
    linear = gradient + jnp.einsum("dopm,dpm->dom", precision, mean[:, rows])
    return (
        Sites(
            total.precision.at[:, rows[:, None], rows[None, :]].add(precision),
            total.linear.at[:, rows].add(linear),
        ),
        forces.at[:, rows].add(gradient),
    )
