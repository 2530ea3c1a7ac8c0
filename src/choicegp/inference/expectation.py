"""Expected log-likelihood of every set under its own Gaussian marginal, and the derivatives VI needs of it.

A set touches only its own a objects, and only through differences of utilities: (a - 1) d numbers, integrated
with a fixed Latin hypercube of its own.
"""

import statistics
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.inference.problem import Problem, SetBatch
from choicegp.model.derivatives import ExpectedDerivatives

_CHUNK = 50_000  # utility differences worked on at a time: temporaries of this size stay in a core's cache
_UNROLLED = 12  # largest small Cholesky factorisation that is written out
_LOOPED = 64  # largest that is a loop of rank-one updates over the whole batch; beyond, LAPACK one by one
_BITS = 30
_COLUMNS = 100_000  # numbers in the columns of roots that are multiplied at a time


class Marginals(NamedTuple):
    """Gaussian marginals of the utility differences to the first object of each set."""

    mean: Array  # (d, a - 1, m)
    # Lower Cholesky factors of the covariances, (d, a - 1, a - 1, m); of utilities that depend on each other, those of
    # all differences of a set together, (d (a - 1), d (a - 1), m).
    root: Array


class SharedCovariance(NamedTuple):
    """Covariances of utilities with a shared part, Cov(u_i, u_j) = H_i^T H_j + [i = j] W_i^T W_i, as these roots.

    The sets need few of the covariances, and to multiply out all of them would take a third of a step.
    """

    spread: Array  # (d, r, t) H, of what comes from the shared part
    own: Array  # (d, r, t) W, of a utility's own part

    def inside(self, rows: np.ndarray) -> np.ndarray:
        """Return the covariances (d, d, a, a, m) inside sets whose objects are ``rows`` (a, m), in NumPy."""
        spread, own = (np.swapaxes(np.asarray(root), 1, 2)[:, rows.T] for root in self)  # (d, m, a, r)
        found = np.einsum("imar,jmbr->ijabm", spread, spread, optimize=True)
        same = np.arange(len(own))
        found[same, same] += np.moveaxis(own @ np.swapaxes(own, 2, 3), 1, 3)
        return found

    def full(self, xp: Any = np) -> Array:
        """Return all covariances, (d, d, t, t)."""
        d, r, t = self.spread.shape
        flat = xp.moveaxis(self.spread, 0, 1).reshape(r, d * t)
        both = xp.swapaxes((flat.T @ flat).reshape(d, t, d, t), 1, 2)
        return both + xp.eye(d)[:, :, None, None] * (xp.swapaxes(self.own, 1, 2) @ self.own)[:, None]


def gram_of_differences(roots: Array, rows: Array, *, together: bool = False) -> Array:
    """Return D^T D (n, a - 1, a - 1, m), D the differences of columns of roots (n, r, t) to the first one of a set.

    The columns of a set are its objects, ``rows`` (a, m).  With ``together``, D has the differences of all roots, and
    the products are (n (a - 1), n (a - 1), m).  In chunks whose columns stay in a core's cache, and for small sets
    written as sums: a batch of small products of matrices takes several times as long.
    """
    n, r, _ = roots.shape
    a, m = rows.shape
    groups = (1, n * (a - 1)) if together else (n, a - 1)
    by_column, is_small = jnp.swapaxes(roots, 1, 2), groups[1] <= _UNROLLED
    size = min(m, max(1, _COLUMNS // (n * r * a))) if is_small else 1

    def of_chunk(columns: Array) -> Array:
        own = by_column[:, columns]  # (n, size, a, r)
        own = own[:, :, 1:] - own[:, :, :1]
        if together:
            own = jnp.moveaxis(own, 0, 1).reshape(1, size, -1, r)
        if is_small:
            return jnp.sum(own[:, :, :, None] * own[:, :, None], axis=-1)
        return jnp.stack([one @ one.T for one in own[:, 0]])[:, None]

    n_chunks = -(-m // size)
    chunks = jnp.pad(jnp.asarray(rows).T, ((0, n_chunks * size - m), (0, 0))).reshape(n_chunks, size, a)
    found = jnp.moveaxis(jax.lax.map(of_chunk, chunks), 0, 1)  # (n, chunks, size, a - 1, a - 1)
    found = jnp.moveaxis(found.reshape(groups[0], -1, groups[1], groups[1])[:, :m], 1, 3)
    return found[0] if together else found


def latin_normals(
    n_utilities: int, n_differences: int, n_sets: int, n_points: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw a Latin hypercube of normals, (d, a - 1, m, S), another one for every set.

    Every coordinate takes the same S quantiles, scaled to variance 1, in an order of its own.  With 16 points
    it integrates better than scrambled Sobol points (relative error of E[log p] on three problems: 0.043,
    0.030, 0.090 against 0.058, 0.095, 0.101); with 512 or more it is the worse by a factor of 2.
    """
    quantile = statistics.NormalDist().inv_cdf
    quantiles = np.array([quantile((i + 0.5) / n_points) for i in range(n_points)])
    spread = quantiles.std() if n_points > 1 else 1.0
    shape = (n_utilities, n_differences, n_sets, n_points)
    return rng.permuted(np.broadcast_to(quantiles / spread, shape), axis=-1)


def sobol_normals(n_utilities: int, n_differences: int, n_points: int, rng: np.random.Generator) -> np.ndarray:
    """Draw scrambled Sobol points mapped to normals, (d, a - 1, 1, S), centred to mean zero, for all sets."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    dimension = n_utilities * n_differences
    shape = (n_utilities, n_differences, 1, n_points)
    if dimension == 0:
        return np.zeros(shape)
    if dimension > qmc.Sobol.MAXDIM:
        normals = rng.normal(size=shape)
    else:
        points = qmc.Sobol(dimension, scramble=True, rng=rng, bits=_BITS).random(n_points)
        normals = ndtri(points.T + 0.5 / 2**_BITS).reshape(shape)
    return normals - normals.mean(axis=-1, keepdims=True)


def quasi_normals(problem: Problem, n_utilities: int, n_points: int, seed: int) -> tuple[np.ndarray, ...]:
    """Draw the points of every batch of a problem."""
    rng = np.random.default_rng(seed)
    return tuple(
        latin_normals(n_utilities, batch.rows.shape[0] - 1, batch.rows.shape[1], n_points, rng)
        for batch in problem.batches
    )


def small_cholesky(covariance: Array, scale: Array | None = None) -> Array:
    """Lower Cholesky factors of (d, n, n, m), a batch of small matrices along the last axis.

    Two near-identical objects have a difference of variance zero: a pivot lost in the rounding error of
    numbers of size ``scale`` (d, m), by default the matrix's own largest, has a column of zeros.  Dividing by
    the square root of such a pivot would turn rounding errors into anything.
    """
    n = covariance.shape[1]
    if n == 0:
        return covariance
    scale = jnp.max(jnp.abs(covariance), axis=(1, 2)) if scale is None else scale
    rounding = 1e3 * n * jnp.finfo(covariance.dtype).eps * scale
    if n > _LOOPED:
        tiny = jnp.finfo(covariance.dtype).tiny  # a matrix of zeros too has a factor
        matrices = jnp.moveaxis(covariance, -1, 1) + (rounding + tiny)[..., None, None] * jnp.eye(n)
        flat = matrices.reshape(-1, n, n)
        return jnp.moveaxis(jax.lax.map(jnp.linalg.cholesky, flat).reshape(matrices.shape), 1, -1)

    def eliminate(j: int | Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, factor = carry
        pivot = rest[:, j, j]
        kept = pivot > rounding
        column = rest[:, :, j] / jnp.sqrt(jnp.where(kept, pivot, 1.0))[:, None]
        column = jnp.where((jnp.arange(n) >= j)[:, None] & kept[:, None], column, 0.0)
        return rest - column[:, :, None] * column[:, None, :], factor.at[:, :, j].set(column)

    carry = (covariance, jnp.zeros_like(covariance))
    if n > _UNROLLED:
        return jax.lax.fori_loop(0, n, eliminate, carry)[1]
    for j in range(n):
        carry = eliminate(j, carry)
    return carry[1]


def marginals(mean: Array, covariance: Array | SharedCovariance, batch: SetBatch) -> Marginals:
    """Take each set's own marginal out of the joint Gaussian (d, t), (d, t, t) or (d, d, t, t)."""
    rows = jnp.asarray(batch.rows)
    if isinstance(covariance, SharedCovariance):
        (a, m), t = rows.shape, mean.shape[1]
        if a * a * m <= t * t:
            return from_roots(mean, covariance, rows)
        covariance = covariance.full(jnp)
    return of_differences(mean[:, rows], covariance[..., rows[:, None], rows[None, :]])


def from_roots(
    mean: Array, covariance: SharedCovariance, rows: Array, left: Array | None = None, left_over: Array | None = None
) -> Marginals:
    """Take the marginals of sets ``rows`` (a, m) out of means (d, t) and a covariance that is not multiplied out.

    ``left`` (d + 1, a - 1, a - 1, m) are covariances of differences to be added, of the shared part first, and
    ``left_over`` (d, t) the variances that go with them.
    """
    d = len(mean)
    own, variance = gram_of_differences(covariance.own, rows), jnp.sum(covariance.own**2, axis=1)
    together = gram_of_differences(covariance.spread, rows, together=True)
    variance += jnp.sum(covariance.spread**2, axis=1)
    if left is not None and left_over is not None:
        own, together, variance = own + left[1:], together + jnp.tile(left[0], (d, d, 1)), variance + left_over
    n = len(rows) - 1
    for i in range(d):
        block = slice(i * n, (i + 1) * n)
        together = together.at[block, block].add(own[i])
    # No covariance is larger than the largest variance.
    scale = jnp.max(variance[:, rows], axis=(0, 1))
    own_mean = mean[:, rows]
    return Marginals(own_mean[:, 1:] - own_mean[:, :1], small_cholesky(together[None], scale[None])[0])


def to_first(covariance: Array) -> Array:
    """Turn covariances (..., a, a, m) inside sets into covariances of the differences to the first object."""
    rest, first = slice(1, None), slice(None, 1)
    found = covariance[..., rest, rest, :] - covariance[..., rest, first, :]
    return found + covariance[..., first, first, :] - covariance[..., first, rest, :]


def of_differences(mean: Array, covariance: Array) -> Marginals:
    """Turn means (d, a, m) and covariances (d, a, a, m) or (d, d, a, a, m) inside sets into moments of differences."""
    scale = jnp.max(jnp.abs(covariance), axis=(-3, -2))
    moved, of_pairs = mean[:, 1:] - mean[:, :1], to_first(covariance)
    if covariance.ndim == 4:
        return Marginals(moved, small_cholesky(of_pairs, scale))
    d, n, m = moved.shape
    together = jnp.swapaxes(of_pairs, 1, 2).reshape(1, d * n, d * n, m)
    return Marginals(moved, small_cholesky(together, jnp.max(scale, axis=(0, 1))[None])[0])


def samples(marginal: Marginals, normals: Array) -> Array:
    """Turn standard normals into utilities (d, a, m, S), with the utility of each set's first object at zero."""
    if marginal.root.ndim == 3:
        d, n, m, s = normals.shape
        one = Marginals(marginal.mean.reshape(1, d * n, m), marginal.root[None])
        differences = samples(one, normals.reshape(1, d * n, m, s))[0, 1:].reshape(d, n, m, s)
        return jnp.pad(differences, ((0, 0), (1, 0), (0, 0), (0, 0)))
    n = normals.shape[1]
    if n <= _UNROLLED:
        moves = [marginal.root[:, :, j, :, None] * normals[:, j, None] for j in range(n)]
        differences = sum(moves, marginal.mean[..., None] + jnp.zeros_like(normals))
    else:
        differences = marginal.mean[..., None] + jnp.einsum("ijkm,ikms->ijms", marginal.root, normals)
    return jnp.pad(differences, ((0, 0), (1, 0), (0, 0), (0, 0)))


def expect(marginal: Marginals, batch: SetBatch, normals: Array, lapse: Array | None = None) -> ExpectedDerivatives:
    """Return E[log p], E[gradient] and -E[Hessian] of each set of a batch, unweighted."""
    d, n, m, n_points = normals.shape
    per_set = d * (n + 1) * n // 2 * n_points * batch.errors.n_nodes
    size = max(1, _CHUNK // per_set)

    def of_chunk(args: tuple) -> ExpectedDerivatives:
        part, present, chosen, draws = args
        return batch.errors.expected_derivatives(samples(part, draws), present, chosen, lapse)

    if m * per_set <= 4 * _CHUNK:
        return of_chunk((marginal, batch.present, batch.chosen, normals))
    n_chunks = -(-m // size)

    def split(array: Array, axis: int) -> Array:
        width = [(0, 0)] * array.ndim
        width[axis] = (0, n_chunks * size - m)
        shape = (*array.shape[:axis], n_chunks, size, *array.shape[axis + 1 :])
        return jnp.moveaxis(jnp.pad(array, width).reshape(shape), axis, 0)

    chunks = (
        Marginals(split(marginal.mean, 2), split(marginal.root, marginal.root.ndim - 1)),
        split(jnp.asarray(batch.present), 1),
        split(jnp.asarray(batch.chosen), 1),
        split(normals, 2),
    )
    out = jax.lax.map(of_chunk, chunks)
    # Bring the chunk axis back beside the sets' own, last, axis.
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., :m], out)


def expected_log_likelihood(marginal: Marginals, batch: SetBatch, normals: Array, lapse: Array | None = None) -> Array:
    """Return E[log p] of each set of a batch (m,), unweighted."""
    present, chosen = jnp.asarray(batch.present), jnp.asarray(batch.chosen)

    def of_block(draws: Array) -> Array:
        return jnp.mean(batch.errors.sampled(samples(marginal, draws), present, chosen, lapse), axis=-1)

    d, n, m, n_points = normals.shape
    size = min(n_points, max(1, 4 * _CHUNK // (d * (n + 1) * n // 2 * m * batch.errors.n_nodes)))
    while n_points % size:
        size -= 1
    blocks = jnp.moveaxis(normals.reshape(d, n, m, n_points // size, size), 3, 0)
    return jnp.mean(jax.lax.map(of_block, blocks), axis=0)
