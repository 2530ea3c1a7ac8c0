"""Expectations under a set's own marginal, against plain Monte Carlo, automatic differentiation and theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.inference import expectation
from choicegp.inference.expectation import (
    Marginals,
    expect,
    expected_log_likelihood,
    latin_normals,
    marginals,
    of_differences,
    quasi_normals,
    samples,
    small_cholesky,
    sobol_normals,
)
from choicegp.inference.problem import Problem, SetBatch
from choicegp.model.likelihood import log_likelihood
from choicegp.model.prior import Objects

D, A, M = 2, 3, 9
N_CHOSEN = [1, 2, 3] * 3
N_POINTS = 1024
factor = jax.jit(small_cholesky)
expected = jax.jit(expect)


def random_covariances(n, n_sets, n_utilities=D, seed=0, rank=None):
    """Covariances (d, n, n, m) of rank `rank`, full by default."""
    root = np.random.default_rng(seed).normal(size=(n_utilities, n_sets, n, rank or 2 * n))
    return np.moveaxis(root @ np.swapaxes(root, -1, -2), 1, -1)


def product(root):
    """L L^T along the batch axis."""
    root = np.asarray(root)
    return np.einsum("djkm,dlkm->djlm", root, root)


def make_batch(rows, n_chosen, n_present):
    """Make a batch whose sets have so many chosen and so many objects."""
    order = np.arange(len(rows))[:, None]
    chosen, present = order < np.asarray(n_chosen), order < np.asarray(n_present)
    return SetBatch(np.asarray(rows), present, chosen, np.ones(rows.shape[1]), np.arange(rows.shape[1]))


@pytest.fixture(scope="module")
def joint():
    """A joint Gaussian of two utilities over eight objects: mean (d, t), covariance (d, t, t)."""
    rng = np.random.default_rng(0)
    covariance = np.moveaxis(random_covariances(8, 1, seed=1), -1, 1)[:, 0] / 8
    return rng.normal(size=(D, 8)), covariance


@pytest.fixture(scope="module")
def batch():
    """Nine sets of three objects, of which one, two or all were chosen."""
    rows = np.stack([np.random.default_rng(k).choice(8, A, replace=False) for k in range(M)], axis=1)
    return make_batch(rows, N_CHOSEN, [A] * M)


@pytest.fixture(scope="module")
def marginal(joint, batch):
    return jax.jit(marginals)(*joint, batch)


@pytest.fixture(scope="module")
def normals():
    return latin_normals(D, A - 1, M, N_POINTS, np.random.default_rng(0))


@pytest.fixture(scope="module")
def result(marginal, batch, normals):
    return expected(marginal, batch, normals)


@pytest.mark.parametrize("n", [1, 3, 13, 70])
def test_small_cholesky_is_numpys(n):
    matrices = random_covariances(n, 4)
    root = np.asarray(factor(matrices))
    wanted = np.moveaxis(np.linalg.cholesky(np.moveaxis(matrices, -1, 1)), 1, -1)
    # Beyond 64 rows a jitter of 1e-11 of the largest entry is added.
    np.testing.assert_allclose(root, wanted, atol=1e-9 if n < 64 else 1e-7)
    assert not np.any(np.triu(np.moveaxis(root, -1, 1), 1))


@pytest.mark.parametrize("n", [1, 3, 13, 70])
def test_small_cholesky_of_singular_matrices_is_finite_and_a_root(n):
    singular = random_covariances(n, 4, rank=max(1, n // 2))
    singular[..., 0] = 0.0
    singular[:, -1, :, 1] = singular[:, 0, :, 1]  # two equal objects
    singular[:, :, -1, 1] = singular[:, :, 0, 1]
    root = np.asarray(factor(singular))
    assert np.all(np.isfinite(root))
    np.testing.assert_allclose(product(root), singular, atol=1e-9 * max(1.0, np.abs(singular).max()))


@pytest.mark.parametrize("variance", [1.0, 1e4, 1e12])
def test_rounding_errors_between_near_identical_objects_stay_small(variance):
    # Differences of variance zero, computed from numbers of size `variance`: only rounding errors are left.
    n = 6
    errors = np.random.default_rng(0).normal(size=(D, n, n, 50)) * variance * 1e-15
    noise = variance + 0.5 * (errors + np.swapaxes(errors, 1, 2))
    result = jax.jit(of_differences)(np.zeros((D, n, 50)), noise)
    assert np.abs(product(result.root)).max() < 1e-10 * variance


def test_small_cholesky_of_no_rows():
    assert small_cholesky(jnp.zeros((D, 0, 0, M))).shape == (D, 0, 0, M)


def test_marginals_are_those_of_differences_to_the_first_object(joint, batch, marginal):
    mean, covariance = joint
    for k in range(M):
        rows = batch.rows[:, k]
        contrast = np.column_stack([-np.ones(A - 1), np.eye(A - 1)])
        np.testing.assert_allclose(marginal.mean[..., k], mean[:, rows] @ contrast.T, atol=1e-12)
        block = contrast @ covariance[:, rows][:, :, rows] @ contrast.T
        np.testing.assert_allclose(product(marginal.root)[..., k], block, atol=1e-10)


def test_samples_have_the_moments_of_the_joint_gaussian(joint, batch, marginal, normals):
    u = np.asarray(jax.jit(samples)(marginal, normals))
    assert not np.any(u[:, 0])
    np.testing.assert_allclose(u[:, 1:].mean(axis=-1), marginal.mean, atol=1e-12)
    centred = u[:, 1:] - np.asarray(marginal.mean)[..., None]
    spread = np.einsum("djms,dkms->djkm", centred, centred) / normals.shape[-1]
    np.testing.assert_allclose(spread, product(marginal.root), rtol=0.1, atol=0.1)


@pytest.fixture(scope="module", params=[(2, A), (3, 6)], ids=["written out", "looped"])
def dependent(request):
    """Means (d, a, m) and covariances (d, d, a, a, m) of utilities that depend on each other."""
    d, a = request.param
    flat = random_covariances(d * a, 4, 1)[0] / (2 * d * a)
    covariance = np.swapaxes(flat.reshape(d, a, d, a, 4), 1, 2)
    return np.random.default_rng(4).normal(size=(d, a, 4)), covariance


def test_differences_of_dependent_utilities_have_one_root_for_all(dependent):
    mean, covariance = dependent
    d, a, m = mean.shape
    found = jax.jit(of_differences)(mean, covariance)
    np.testing.assert_allclose(found.mean, mean[:, 1:] - mean[:, :1], atol=1e-12)
    assert found.root.shape == (d * (a - 1), d * (a - 1), m)
    contrast = np.kron(np.eye(d), np.column_stack([-np.ones(a - 1), np.eye(a - 1)]))
    for k in range(m):
        whole = np.swapaxes(covariance[..., k], 1, 2).reshape(d * a, d * a)
        root = np.asarray(found.root[..., k])
        np.testing.assert_allclose(root @ root.T, contrast @ whole @ contrast.T, atol=1e-9)
        assert not np.any(np.triu(root, 1))


def test_samples_of_dependent_utilities_have_the_covariance_between_utilities_too(dependent):
    mean, covariance = dependent
    d, a, m = mean.shape
    marginal = jax.jit(of_differences)(mean, covariance)
    # All unit vectors and their opposites: mean and covariance of such points are exact.
    n = d * (a - 1)
    units = np.sqrt(n) * np.concatenate([np.eye(n), -np.eye(n)], axis=1)
    normals = np.broadcast_to(units.reshape(d, a - 1, 1, 2 * n), (d, a - 1, m, 2 * n))
    u = np.asarray(jax.jit(samples)(marginal, normals))
    assert u.shape == (d, a, m, 2 * n)
    assert not np.any(u[:, 0])
    np.testing.assert_allclose(u.mean(axis=-1), mean - mean[:, :1], atol=1e-12)
    centred = u - u.mean(axis=-1, keepdims=True)
    spread = np.einsum("ioms,jpms->ijopm", centred, centred) / (2 * n)
    exact = covariance - covariance[:, :, :1] - covariance[:, :, :, :1] + covariance[:, :, :1, :1]
    np.testing.assert_allclose(spread, exact, atol=1e-9)
    assert np.abs(exact[0, 1]).max() > 0.05


def test_independent_utilities_given_as_dependent_ones_have_the_same_expectations(joint, batch, normals, result):
    mean, covariance = joint
    blocks = np.zeros((D, D, *covariance.shape[1:]))
    blocks[np.arange(D), np.arange(D)] = covariance
    found = expected(jax.jit(marginals)(mean, blocks, batch), batch, normals)
    for one, same in zip(jax.tree.leaves(found), jax.tree.leaves(result), strict=True):
        np.testing.assert_allclose(one, same, atol=1e-9)


def test_chunks_change_nothing_for_dependent_utilities(batch, normals, monkeypatch):
    root = np.random.default_rng(5).normal(size=(D * 8, 2 * D * 8)) / 8
    covariance = np.swapaxes((root @ root.T).reshape(D, 8, D, 8), 1, 2)
    marginal = jax.jit(marginals)(np.zeros((D, 8)), covariance, batch)
    whole = jax.jit(expect)(marginal, batch, normals)
    monkeypatch.setattr(expectation, "_CHUNK", 2 * D * A * (A - 1) // 2 * N_POINTS)
    parts = jax.jit(lambda *given: expect(*given))(marginal, batch, normals)
    for one, same in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, same, atol=1e-12)


def test_samples_of_large_sets_use_the_same_formula(normals):
    rng = np.random.default_rng(0)
    n = expectation._UNROLLED + 1
    root, mean = np.tril(rng.normal(size=(1, n, n)))[..., None], rng.normal(size=(1, n, 1))
    draws = rng.normal(size=(1, n, 1, 7))
    u = np.asarray(samples(Marginals(jnp.asarray(mean), jnp.asarray(root)), jnp.asarray(draws)))
    np.testing.assert_allclose(u[0, 1:, 0], mean[0] + root[0, :, :, 0] @ draws[0, :, 0], atol=1e-12)


@pytest.fixture(scope="module")
def two_batches(batch):
    pairs = make_batch(np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), [1, 2, 1, 1], [2] * 4)
    objects = Objects(np.zeros((8, 1)), np.arange(8))
    return Problem(objects, np.ones(8, bool), (pairs, batch))


def test_quasi_normals_are_centred_and_standard(two_batches):
    draws = quasi_normals(two_batches, D, 256, seed=0)
    assert [part.shape for part in draws] == [(D, 1, 4, 256), (D, 2, M, 256)]
    for part in draws:
        np.testing.assert_allclose(part.mean(axis=-1), 0.0, atol=1e-14)
        np.testing.assert_allclose(part.std(axis=-1), 1.0, atol=0.1)


def test_quasi_normals_repeat_and_differ_between_sets_and_seeds(two_batches):
    draws, again = (quasi_normals(two_batches, D, 16, seed=0) for _ in range(2))
    other = quasi_normals(two_batches, D, 16, seed=1)
    for part, same, different in zip(draws, again, other, strict=True):
        np.testing.assert_array_equal(part, same)
        assert np.abs(part - different).max() > 0.1
        for k in range(1, part.shape[2]):
            assert np.abs(part[:, :, 0] - part[:, :, k]).max() > 0.1


def test_sixteen_points_fall_into_sixteen_equal_shares():
    # What makes a Latin hypercube better than a random sample: in each coordinate it has the normal's own quantiles.
    from scipy.special import ndtr

    draws = latin_normals(D, 2, 3, 16, np.random.default_rng(0))
    np.testing.assert_allclose(draws.std(axis=-1), 1.0, rtol=1e-12)
    for row in draws.reshape(-1, 16):
        assert np.array_equal(np.sort((16 * ndtr(row)).astype(int)), np.arange(16))
    assert np.array_equal(latin_normals(1, 1, 2, 1, np.random.default_rng(0)), np.zeros((1, 1, 2, 1)))


def test_sobol_points_fill_the_square_evenly():
    from scipy.special import ndtr

    draws = sobol_normals(1, 2, 256, np.random.default_rng(0))
    counts, _, _ = np.histogram2d(*ndtr(draws[0, :, 0]), bins=4, range=[[0, 1], [0, 1]])
    assert np.abs(counts - 16).max() <= 2, "centring may move a point or two into the next cell"


def test_more_dimensions_than_sobol_has_are_random_and_centred():
    draws = sobol_normals(1, 21_202, 4, np.random.default_rng(0))
    assert draws.shape == (1, 21_202, 1, 4)
    np.testing.assert_allclose(draws.mean(axis=-1), 0.0, atol=1e-14)
    assert sobol_normals(2, 0, 8, np.random.default_rng(0)).shape == (2, 0, 1, 8)
    assert latin_normals(2, 0, 3, 8, np.random.default_rng(0)).shape == (2, 0, 3, 8)


@jax.jit
@jax.jit
def log_p(u, batch):
    return log_likelihood(u, batch.present[..., None], batch.chosen[..., None])


def by_differences(u, batch, step=1e-3):
    """Return log p (m, S) of every sample (d, a, m, S), its gradient and negative Hessian, by finite differences."""

    def moved(*moves):
        shift = np.zeros((D, A, 1, 1))
        for utility, o, sign in moves:
            shift[utility, o] += sign * step
        return np.asarray(log_p(u + shift, batch))

    gradient = np.zeros(u.shape)
    curvature = np.zeros((D, A, *u.shape[1:]))
    for i, o in np.ndindex(D, A):
        gradient[i, o] = (moved((i, o, 1)) - moved((i, o, -1))) / (2 * step)
        for v in range(o, A):
            same = moved((i, o, 1), (i, v, 1)) + moved((i, o, -1), (i, v, -1))
            opposite = moved((i, o, 1), (i, v, -1)) + moved((i, o, -1), (i, v, 1))
            curvature[i, o, v] = curvature[i, v, o] = (opposite - same) / (4 * step**2)
    return moved(), gradient, curvature


def test_expect_is_the_average_over_independent_draws(joint, batch, result):
    mean, covariance = joint
    root = np.linalg.cholesky(covariance)
    draws = np.random.default_rng(5).normal(size=(D, 8, N_POINTS))
    u = (mean[:, :, None] + root @ draws)[:, batch.rows]  # (d, a, m, S)
    plain = by_differences(u, batch)
    for mine, values in zip((result.value, result.gradient, result.curvature), plain, strict=True):
        error = np.std(values, axis=-1) / np.sqrt(values.shape[-1])
        # Five standard errors of the draws; as many Sobol points add next to nothing.
        assert np.all(np.abs(mine - np.mean(values, axis=-1)) < 5 * error + 1e-4)


def test_expect_is_the_average_of_derivatives_over_its_own_points(marginal, batch, normals, result):
    plain = by_differences(np.asarray(jax.jit(samples)(marginal, normals)), batch)
    for one, values in zip((result.value, result.gradient, result.curvature), plain, strict=True):
        np.testing.assert_allclose(one, np.mean(values, axis=-1), atol=2e-6)


def test_expected_log_likelihood_is_the_value_of_expect(marginal, batch, normals, result, monkeypatch):
    whole = jax.jit(expected_log_likelihood)(marginal, batch, normals)
    np.testing.assert_allclose(whole, result.value, rtol=1e-9)
    monkeypatch.setattr(expectation, "_CHUNK", 1000)
    in_blocks = jax.jit(lambda *args: expected_log_likelihood(*args))(marginal, batch, normals)
    np.testing.assert_allclose(in_blocks, result.value, rtol=1e-9)


def test_chunks_change_nothing(marginal, batch, normals, result, monkeypatch):
    # Chunks of two sets, of which there are nine: the last chunk is padded.
    monkeypatch.setattr(expectation, "_CHUNK", 2 * D * A * (A - 1) // 2 * N_POINTS)
    in_chunks = jax.jit(lambda *args: expect(*args))(marginal, batch, normals)
    for one, other in zip(result, in_chunks, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_a_padded_set_and_a_padded_object_change_nothing(joint, batch, normals, result):
    rows = np.vstack([batch.rows, batch.rows[:1]])
    rows = np.column_stack([rows, np.zeros(A + 1, int)])
    padded = make_batch(rows, [*N_CHOSEN, 0], [A] * M + [0])
    draws = np.random.default_rng(0).normal(size=(D, A, M + 1, N_POINTS))
    draws[:, : A - 1, :M] = normals
    wide = expected(jax.jit(marginals)(*joint, padded), padded, draws)
    np.testing.assert_allclose(wide.value[:M], result.value, rtol=1e-12)
    np.testing.assert_allclose(wide.gradient[:, :A, :M], result.gradient, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(wide.curvature[:, :A, :A, :M], result.curvature, rtol=1e-11, atol=1e-13)
    assert not np.any(np.asarray(wide.gradient)[:, A:])
    assert not np.any(np.asarray(wide.curvature)[:, A:])
    for part in (wide.value[M:], wide.gradient[..., M:], wide.curvature[..., M:]):
        assert not np.any(part)


def test_prices_theorem_the_curvature_is_minus_twice_the_derivative_in_the_covariance(joint, batch):
    # Central differences of E[log p] along random symmetric directions of each utility's covariance, three sets
    # at once.  On the same points the two differ by the integration error, at most 5e-3 with 2^15 points.
    n_points, step = 2**15, 1e-3
    mean, covariance = joint
    rng = np.random.default_rng(3)
    draws = sobol_normals(D, A - 1, n_points, rng)
    draws = np.broadcast_to(draws, (D, A - 1, 3, n_points))
    batch = make_batch(batch.rows[:, :3], [1, 2, 3], [A] * 3)
    means = mean[:, batch.rows]
    blocks = covariance[:, batch.rows[:, None], batch.rows[None, :]]
    value = jax.jit(lambda *args: expected_log_likelihood(of_differences(*args), batch, draws))
    curvature = np.asarray(expected(of_differences(means, blocks), batch, draws).curvature)
    for utility in range(D):
        for _ in range(3):
            direction = rng.normal(size=(A, A))
            direction = direction + direction.T
            moved = np.zeros(blocks.shape)
            moved[utility] = direction[:, :, None]
            slope = (value(means, blocks + step * moved) - value(means, blocks - step * moved)) / (2 * step)
            theory = -0.5 * np.einsum("opm,op->m", curvature[utility], direction)
            np.testing.assert_allclose(slope, theory, atol=0.01)
            assert np.abs(theory).max() > 0.1
