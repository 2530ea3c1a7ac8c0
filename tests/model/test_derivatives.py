"""Averaged derivatives against automatic differentiation of the likelihood, which is written in logs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.model.derivatives import expected_derivatives, sampled_log_likelihood
from choicegp.model.likelihood import log_likelihood

from .conftest import mean_derivatives

# These tests compile much and run little: no optimisation, and few shapes.
QUICK = {"xla_backend_optimization_level": 0}
N_SETS, N_SAMPLES = 12, 3
SIZE_OF_REFERENCE = {1: 5, 2: 20, 3: 6}  # by the number of utilities; smaller sets are padded

expected = jax.jit(expected_derivatives, compiler_options=QUICK)
sampled = jax.jit(sampled_log_likelihood, compiler_options=QUICK)
in_logs = jax.jit(log_likelihood, compiler_options=QUICK)


@partial(jax.jit, compiler_options=QUICK)
def reference(u, present, chosen, lapse):
    return mean_derivatives(lambda u: log_likelihood(u, present[..., None], chosen[..., None], lapse=lapse), u)


def some_sets(d, a, seed=0, single=False):
    """Return u (d, a, m, S) at several scales, and masks: the chosen (one, if ``single``) come first, padding last."""
    rng = np.random.default_rng(seed)
    scales = np.resize([0.0, 0.3, 1.0, 3.0, 8.0], N_SETS)
    u = rng.normal(size=(d, a, N_SETS, N_SAMPLES)) * scales[:, None]
    sizes = np.resize([a, a, max(1, a - 1), max(1, a - 2)], N_SETS)
    n_chosen = np.ones_like(sizes) if single else rng.integers(1, sizes + 1)
    rows = np.arange(a)[:, None]
    return u, rows < sizes, rows < n_chosen


def assert_right(result, u, present, chosen, lapse=0.0):
    d, a = u.shape[:2]
    more = SIZE_OF_REFERENCE[d] - a
    u = np.pad(u, [(0, 0), (0, more), (0, 0), (0, 0)])
    present, chosen = (np.pad(mask, [(0, more), (0, 0)]) for mask in (present, chosen))
    value, gradient, curvature = map(np.asarray, reference(u, present, chosen, lapse))
    np.testing.assert_allclose(result.value, value, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(result.gradient, gradient[:, :a], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(result.curvature, curvature[:, :a, :a], rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    ("d", "a"), [(2, 1), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (2, 20), (1, 2), (1, 4), (3, 2), (3, 6)]
)
def test_they_are_the_derivatives_of_the_likelihood(d, a):
    sets = some_sets(d, a, seed=10 * d + a)
    assert_right(expected(*sets), *sets)


@pytest.mark.parametrize("a", [2, 3, 4, 5])
def test_single_objects_with_one_utility(a):
    # The probabilities of single objects are divided by their sum, which has derivatives too.
    sets = some_sets(1, a, seed=a, single=True)
    assert_right(expected(*sets), *sets)


@pytest.mark.parametrize(("d", "a", "single"), [(1, 4, False), (1, 5, True), (2, 3, False), (3, 6, False)])
def test_lapses(d, a, single):
    sets = some_sets(d, a, seed=a, single=single)
    for lapse in (0.05, 0.9, 0.0):
        assert_right(expected(*sets, lapse=lapse), *sets, lapse=lapse)


@pytest.mark.parametrize(("d", "a"), [(1, 4), (4, 3)])
def test_the_floor_is_part_of_the_derivatives(d, a):
    # A large floor shows a derivative that forgets it; four utilities, as an automatic Hessian is slow there.
    u, present, chosen = some_sets(d, a, single=d == 1)

    def total(u):
        return jnp.sum(jnp.mean(log_likelihood(u, present, chosen, floor=0.01), axis=-1))

    result = jax.jit(partial(expected_derivatives, floor=0.01), compiler_options=QUICK)(u, present, chosen)
    gradient = jax.jit(jax.grad(total), compiler_options=QUICK)
    np.testing.assert_allclose(result.gradient, jnp.sum(gradient(jnp.asarray(u)), axis=-1), atol=1e-10)
    # The same push on one object in every sample moves the mean gradient by the curvature's column.
    step, push = 1e-5, np.zeros_like(u)
    push[0, 1] = 1.0
    change = jnp.sum(gradient(u + step * push) - gradient(u - step * push), axis=-1)[0] / (2 * step)
    np.testing.assert_allclose(-result.curvature[0, :, 1], change, atol=1e-7)


def test_a_program_for_large_sets_is_no_longer_than_for_small_ones():
    def lines(a):
        shapes = (jax.ShapeDtypeStruct((2, a, 3, 4), np.float64), *[jax.ShapeDtypeStruct((a, 3), bool)] * 2)
        return len(expected.lower(*shapes).as_text().splitlines())

    assert lines(100) <= lines(20)
    assert lines(95) < 1.5 * lines(20)  # another remainder of the loop


@pytest.mark.parametrize(("a", "options"), [(4, {}), (3, {"lapse": 0.1})])
def test_an_average_is_the_mean_of_its_samples(a, options):
    u, present, chosen = some_sets(2, a)
    together = expected(u, present, chosen, **options)
    # A sample repeated is a sample alone.
    alone = [
        expected(np.repeat(u[..., s : s + 1], N_SAMPLES, axis=-1), present, chosen, **options) for s in range(N_SAMPLES)
    ]
    for name in together._fields:
        mean = np.mean([getattr(one, name) for one in alone], axis=0)
        np.testing.assert_allclose(getattr(together, name), mean, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("d", "a", "options"), [(1, 5, {"lapse": 0.1}), (2, 6, {}), (3, 6, {"lapse": 0.1})])
def test_curvature_is_symmetric_and_blind_to_a_common_shift(d, a, options):
    result = expected(*some_sets(d, a, seed=3, single=d == 1), **options)
    curvature = np.asarray(result.curvature)
    np.testing.assert_allclose(curvature, np.swapaxes(curvature, 1, 2), atol=1e-12)
    np.testing.assert_allclose(curvature.sum(axis=2), 0.0, atol=1e-11)
    np.testing.assert_allclose(result.gradient.sum(axis=1), 0.0, atol=1e-11)


@pytest.mark.parametrize(("d", "a"), [(1, 5), (2, 6)])
@pytest.mark.parametrize("garbage", [1e30, np.inf, np.nan])
def test_padding_changes_nothing(garbage, d, a):
    u, present, chosen = some_sets(d, a, single=d == 1)
    clean = expected(np.where(present[..., None], u, 0.0), present, chosen)
    dirty = expected(np.where(present[..., None], u, garbage), present, chosen)
    for first, second in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(first, second)
    absent = ~present
    assert absent.any()
    assert np.all(np.asarray(dirty.gradient)[:, absent] == 0)
    assert np.all(np.swapaxes(np.asarray(dirty.curvature), 2, 3)[:, absent] == 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "a", "single"), [(1, 4, False), (1, 5, True), (3, 6, False)])
def test_extreme_differences_are_finite(d, a, single, dtype):
    rng = np.random.default_rng(0)
    u, present, chosen = some_sets(d, a, single=single)
    kinds = [
        np.zeros(u.shape),
        1e-12 * rng.normal(size=u.shape),
        1e6 * rng.normal(size=u.shape),
        rng.choice([0.0, 1e-12, 12.0, 1e6, -1e6], size=u.shape),
    ]
    for u in kinds:
        for options in ({}, {"lapse": 0.02}):
            result = expected(u.astype(dtype), present, chosen, **options)
            assert {array.dtype for array in result} == {np.dtype(dtype)}
            assert all(np.all(np.isfinite(array)) for array in result)
            assert np.max(np.abs(result.gradient)) < 100


def test_hundreds_of_objects_with_one_utility_have_a_sum_in_single_precision():
    # Equal utilities: each object has 1 / 200 after division, and 2^-199 before, which is 0 in float32.
    a = 200
    u, present = np.zeros((1, a, 1, 1), np.float32), np.ones((a, 1), bool)
    result = expected(u, present, np.arange(a)[:, None] < 1)
    np.testing.assert_allclose(result.value, -np.log(a), rtol=1e-4)
    assert all(np.all(np.isfinite(array)) for array in result)


@pytest.mark.parametrize(("d", "a"), [(1, 5), (3, 6)])
def test_single_precision_is_enough_for_a_step(d, a):
    u, present, chosen = some_sets(d, a, single=d == 1)
    exact, single = expected(u, present, chosen), expected(u.astype(np.float32), present, chosen)
    for first, second in zip(exact, single, strict=True):
        np.testing.assert_allclose(second, first, atol=1e-5 * np.max(np.abs(first)))


@pytest.mark.parametrize(
    ("d", "a", "lapse"), [(2, 1, None), (2, 2, 0.1), (2, 5, None), (1, 2, None), (1, 5, None), (1, 5, 0.1)]
)
def test_the_likelihood_of_samples_is_that_in_logs(d, a, lapse):
    u, present, chosen = some_sets(d, a, single=d == 1)
    found = sampled(u, present, chosen, lapse=lapse)
    expected_value = in_logs(u, present[..., None], chosen[..., None], lapse=lapse)
    np.testing.assert_allclose(found, expected_value, rtol=1e-9, atol=1e-9)
