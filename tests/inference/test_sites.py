"""Sites: the projection onto positive semi-definite matrices, and the sums over sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.inference import sites
from choicegp.inference.problem import SetBatch
from choicegp.inference.sites import Sites, add_up, psd_part, zero_sites
from choicegp.model.derivatives import ExpectedDerivatives

project = jax.jit(psd_part)


def curvatures(a, n_sets, n_utilities=2, seed=0, definite=False):
    """Random symmetric matrices (d, a, a, m) that act on differences only: rows sum to zero."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_utilities, n_sets, a, a))
    matrix = root @ np.swapaxes(root, -1, -2) if definite else root + np.swapaxes(root, -1, -2)
    centring = np.eye(a) - 1.0 / a
    return np.moveaxis(centring @ matrix @ centring, 1, -1)


def clipped_by_numpy(matrix):
    values, vectors = np.linalg.eigh(np.moveaxis(matrix, -1, 1))
    return np.moveaxis((vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2), 1, -1)


@pytest.mark.parametrize("a", [2, 3, 5])
def test_psd_part_is_numpys_eigenvalue_clipping(a):
    matrix = curvatures(a, 40)
    result = np.asarray(project(matrix))
    np.testing.assert_allclose(result, clipped_by_numpy(matrix), atol=1e-12)
    np.testing.assert_allclose(result.sum(axis=1), 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(np.moveaxis(result, -1, 1)).min() > -1e-12
    # The random matrices are indefinite: there was something to clip.
    assert np.abs(result - matrix).max() > 0.1


@pytest.mark.parametrize("a", [2, 3, 5])
def test_psd_part_leaves_a_positive_semi_definite_matrix_as_it_is(a):
    matrix = curvatures(a, 40, definite=True)
    np.testing.assert_allclose(project(matrix), matrix, atol=1e-12 * np.abs(matrix).max())


@pytest.mark.parametrize("a", [2, 3, 5])
def test_psd_part_of_a_negative_definite_matrix_is_zero(a):
    np.testing.assert_allclose(project(-curvatures(a, 40, definite=True)), 0.0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-100, 1e-12, 1e12])
def test_psd_part_of_three_objects_is_finite_where_eigenvalues_meet(scale):
    # A multiple of the centring matrix has two equal eigenvalues: the closed form divides by their distance.
    matrix = scale * np.stack([np.eye(3) - 1 / 3, -np.eye(3) + 1 / 3], axis=-1)[None]
    result = np.asarray(project(matrix))
    np.testing.assert_allclose(result[..., 0], matrix[..., 0], rtol=1e-12, atol=1e-15 * scale)
    np.testing.assert_allclose(result[..., 1], 0.0, atol=1e-15 * scale)


@pytest.mark.parametrize("a", [2, 3, 4])
@pytest.mark.parametrize("eigenvalues", [(1, 1), (-1, -1), (1, -1), (1, 0), (-1, 0)])
def test_psd_part_near_degenerate_over_many_orders(a, eigenvalues):
    """Equal, opposite and vanishing eigenvalues, each up to a random perturbation, in matrices of any size."""
    rng = np.random.default_rng(a)
    scale, noise = (grid.ravel() for grid in np.meshgrid(10.0 ** np.arange(-12, 13), 10.0 ** np.arange(-18, 1)))
    values = np.resize(eigenvalues, a - 1).astype(float)
    basis = np.linalg.qr(np.column_stack([np.ones(a), rng.normal(size=(a, a - 1))]))[0][:, 1:]
    other = curvatures(a, len(scale), 1, seed=a)[0]
    matrix = scale * (((basis * values) @ basis.T)[..., None] + noise * other)
    for one in (matrix[None], scale * noise * other[None]):
        result, size = np.asarray(project(one)), np.abs(one).max(axis=(0, 1, 2))
        assert np.isfinite(result).all()
        np.testing.assert_allclose(result / size, clipped_by_numpy(one) / size, atol=1e-13)


slope = jax.jit(jax.grad(lambda matrix: jnp.sum(psd_part(matrix)[0, 0])))


@pytest.mark.parametrize("scale", [0.0, 1e-100, 1e-12, 1.0, 1e12, 1e100])
def test_psd_part_of_three_objects_has_finite_slopes_where_eigenvalues_meet(scale):
    centring = np.eye(3) - 1 / 3
    turned = np.linalg.qr(np.column_stack([np.ones(3), np.eye(3)[:, 1:]]))[0][:, 1:]
    for eigenvalues in ([1, 1], [-1, -1], [1, -1], [1, 0], [0, -1]):
        for matrix in (turned @ np.diag(eigenvalues) @ turned.T, eigenvalues[0] * centring):
            assert np.isfinite(slope(scale * matrix[None, ..., None])).all()


def test_psd_part_does_not_hide_what_is_no_number():
    for a in (2, 3):
        matrix = curvatures(a, 2)
        matrix[0, 0, 0, 0] = np.nan
        result = np.asarray(project(matrix))
        assert np.isnan(result[0, ..., 0]).any()
        assert np.isfinite(result[..., 1]).all()


def test_one_object_has_no_curvature():
    assert psd_part(jnp.zeros((2, 1, 1, 4))).shape == (2, 1, 1, 4)


@pytest.fixture(scope="module")
def batch_and_derivatives():
    """Five sets of three among six objects; one object is twice in a set, as merged rows may be."""
    rng = np.random.default_rng(1)
    rows = np.array([[0, 1, 2, 3, 5], [1, 4, 2, 0, 1], [2, 3, 0, 4, 0]])
    there = np.ones(rows.shape, bool)
    batch = SetBatch(rows, there, there, np.ones(5), np.arange(5))
    derivatives = ExpectedDerivatives(np.zeros(5), rng.normal(size=(2, 3, 5)), curvatures(3, 5, seed=2), np.zeros(5))
    weight = rng.uniform(0.5, 2.0, 5)
    return batch, weight, derivatives, rng.normal(size=(2, 6))


def test_add_up_is_the_sum_over_sets(batch_and_derivatives):
    batch, weight, expected, mean = batch_and_derivatives
    sites, forces = jax.jit(add_up)(batch, weight, expected, mean, zero_sites(2, 6), jnp.zeros((2, 6)))
    precision, linear, gradient = np.zeros((2, 6, 6)), np.zeros((2, 6)), np.zeros((2, 6))
    clipped = clipped_by_numpy(expected.curvature)
    for i in range(2):
        for k in range(5):
            block = weight[k] * clipped[i, :, :, k]
            g = weight[k] * expected.gradient[i, :, k]
            own = mean[i, batch.rows[:, k]]
            for o in range(3):
                gradient[i, batch.rows[o, k]] += g[o]
                linear[i, batch.rows[o, k]] += g[o] + block[o] @ own
                for v in range(3):
                    precision[i, batch.rows[o, k], batch.rows[v, k]] += block[o, v]
    np.testing.assert_allclose(sites.precision, precision, atol=1e-12)
    np.testing.assert_allclose(sites.linear, linear, atol=1e-12)
    np.testing.assert_allclose(forces, gradient, atol=1e-12)
    np.testing.assert_allclose(np.asarray(sites.precision).sum(axis=2), 0.0, atol=1e-12)


def test_add_up_adds_to_what_is_there(batch_and_derivatives):
    batch, weight, expected, mean = batch_and_derivatives
    adding = jax.jit(add_up)
    once, force = adding(batch, weight, expected, mean, zero_sites(2, 6), jnp.zeros((2, 6)))
    twice, forces = adding(batch, weight, expected, mean, once, force)
    np.testing.assert_allclose(twice.precision, 2 * once.precision, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(twice.linear, 2 * once.linear, rtol=1e-12)
    np.testing.assert_allclose(forces, 2 * force, rtol=1e-12)


def test_zero_sites_say_nothing():
    sites = zero_sites(2, 4)
    assert isinstance(sites, Sites)
    assert sites.precision.shape == (2, 4, 4)
    assert not np.any(sites.precision)
    assert not np.any(sites.linear)


@pytest.mark.parametrize("n", [1, 5, sites._WHOLE, sites._WHOLE + 1, 2 * sites._WHOLE + 3])
def test_products_by_halves_are_plain_products(n):
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, n))
    precision, root = matrix + matrix.T, np.tril(rng.normal(size=(n, n)))
    np.testing.assert_allclose(sites.turned(matrix), matrix.T)
    np.testing.assert_allclose(sites.gram(matrix), matrix.T @ matrix, atol=1e-10 * n)
    found = np.asarray(sites.seen_through(root, precision))
    np.testing.assert_allclose(found, root.T @ precision @ root, atol=1e-10 * n**1.5)


def test_products_by_halves_are_differentiated_and_mapped():
    rng = np.random.default_rng(0)
    n = sites._WHOLE + 2
    matrix, weight = rng.normal(size=(2, n, n)) / n
    slope = jax.grad(lambda a: jnp.sum(weight * sites.gram(a)))(matrix)
    np.testing.assert_allclose(slope, matrix @ (weight + weight.T), atol=1e-12)
    both = jax.vmap(sites.gram)(np.stack([matrix, weight]))
    np.testing.assert_allclose(both[1], weight.T @ weight, atol=1e-12)
