"""log Φ and its derivatives against SciPy in float64, and against asymptotics where SciPy has none."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from choicegp.model.probit import hazard, log_probit, log_probit_and_hazard, probit_and_hazard

TAIL = np.logspace(-8, 6, 400)
# 0, where the tails change places, and -8, where the second derivative changes its formula, are joints.
JOINTS = [-9.0, -8.0001, -8.0, -7.9999, -1.0, -1e-9, 0.0, 1e-9, 2.0]
POINTS = np.concatenate([-TAIL[::-1], JOINTS, TAIL, np.linspace(-40.0, 40.0, 4001)])
# Smaller values are lost among the denormal numbers.
SMALLEST = {np.float64: 1e-300, np.float32: 1e-36}


@jax.jit
def everything(z):
    """Everything at once: one compilation for each dtype."""
    one = [log_probit]
    for _ in range(3):
        one.append(jax.grad(one[-1]))
    derivatives = [jax.vmap(function)(z) for function in one]
    return (
        *derivatives,
        hazard(z),
        hazard(-z),
        log_probit(-z),
        log_probit_and_hazard(z),
        probit_and_hazard(z),
    )


NAMES = ("value", "first", "second", "third", "hazard", "hazard_below", "below", "logs", "plain")


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["float64", "float32"])
def at(request):
    """Every function at all points, which are those that the dtype holds."""
    z = POINTS.astype(request.param)
    results = dict(zip(NAMES, everything(jnp.asarray(z)), strict=True))
    return SimpleNamespace(dtype=request.param, z=z.astype(np.float64), **results)


def true_hazard(z):
    left, right = np.minimum(z, 0.0), np.maximum(z, 0.0)
    below = np.sqrt(2 / np.pi) / special.erfcx(-left / np.sqrt(2))
    above = np.exp(-0.5 * right**2) / np.sqrt(2 * np.pi) / special.ndtr(right)
    return np.where(z < 0, below, above)


def true_second_derivative(z):
    """-h (z + h); below -30, where that cancels, its asymptotic series in 1/z²."""
    far = z < -30.0
    t = 1.0 / np.where(far, z, -30.0) ** 2
    series = 1 - t + 6 * t**2 - 50 * t**3 + 518 * t**4 - 6354 * t**5
    h = true_hazard(z)
    return -np.where(far, series, h * (z + h))


def test_nothing_changes_the_dtype(at):
    arrays = jax.tree.leaves([getattr(at, name) for name in NAMES])
    assert {array.dtype for array in arrays} == {np.dtype(at.dtype)}


def test_log_probit_is_scipys(at):
    rtol = {np.float64: 4e-13, np.float32: 6e-6}[at.dtype]
    np.testing.assert_allclose(at.value, special.log_ndtr(at.z), rtol=rtol, atol=SMALLEST[at.dtype])
    body = np.abs(at.z) < 5
    rtol = {np.float64: 5e-14, np.float32: 2e-6}[at.dtype]
    np.testing.assert_allclose(at.value[body], special.log_ndtr(at.z)[body], rtol=rtol)


def test_its_derivative_is_the_hazard(at):
    rtol = {np.float64: 2e-13, np.float32: 6e-6}[at.dtype]
    np.testing.assert_allclose(at.first, true_hazard(at.z), rtol=rtol, atol=SMALLEST[at.dtype])
    np.testing.assert_array_equal(at.first, at.hazard)


def test_its_second_derivative(at):
    atol = {np.float64: 3e-12, np.float32: 2e-5}[at.dtype]
    np.testing.assert_allclose(at.second, true_second_derivative(at.z), rtol=0, atol=atol)
    assert np.all((np.asarray(at.second) <= 0) & (np.asarray(at.second) >= -1))


def test_its_third_derivative_is_finite(at):
    assert np.all(np.isfinite(at.third))


def test_asymptotics_far_to_the_left(at):
    (place,) = np.flatnonzero(at.z == -1e6)
    rtol = 4 * float(jnp.finfo(at.dtype).eps)
    expected = -0.5e12 - np.log(1e6) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(at.value[place], expected, rtol=rtol)
    np.testing.assert_allclose(at.first[place], 1e6 + 1e-6, rtol=rtol)
    np.testing.assert_allclose(at.second[place], -1 + 1e-12, rtol=rtol)


def test_everything_is_flat_far_to_the_right(at):
    far = at.z > 100
    assert np.any(far)
    for values in (at.value, at.first, at.second, at.third):
        assert np.all(np.asarray(values)[far] == 0)


def test_derivatives_agree_with_finite_differences_across_the_joints():
    step = 1e-4
    joints = np.isin(POINTS, JOINTS)
    down, here, up = (everything(jnp.asarray(POINTS + shift)) for shift in (-step, 0.0, step))
    for order in range(2):
        difference = (up[order] - down[order]) / (2 * step)
        np.testing.assert_allclose(here[order + 1][joints], difference[joints], atol=1e-7)


def test_the_two_bundles_agree_with_the_single_functions(at):
    eps = float(jnp.finfo(at.dtype).eps)
    close = {"rtol": 40 * eps, "atol": SMALLEST[at.dtype]}
    log_above, log_below, h, h_below = at.logs
    above, below, h_plain, h_below_plain = at.plain
    np.testing.assert_allclose(log_above, at.value, **close)
    np.testing.assert_allclose(log_below, at.below, **close)
    for value in (h, h_plain):
        np.testing.assert_allclose(value, at.hazard, **close)
    for value in (h_below, h_below_plain):
        np.testing.assert_allclose(value, at.hazard_below, **close)
    # exp(-z²/2) loses z²/2 units in the last place.
    close["rtol"] = {np.float64: 4e-13, np.float32: 6e-6}[at.dtype]
    np.testing.assert_allclose(above, special.ndtr(at.z), **close)
    np.testing.assert_allclose(below, special.ndtr(-at.z), **close)
    np.testing.assert_allclose(above + below, 1.0, rtol=2 * eps)


def test_one_number_is_enough():
    assert float(log_probit(0.0)) == pytest.approx(np.log(0.5), rel=1e-14)
    assert float(hazard(0.0)) == pytest.approx(np.sqrt(2 / np.pi), rel=1e-14)
