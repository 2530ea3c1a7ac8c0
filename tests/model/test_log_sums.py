"""Sums in logs and their derivatives against NumPy; and in the likelihood, whatever a compiler does with them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.model.likelihood import log_likelihood, pair_logs
from choicegp.model.log_sums import log_add_exp, log_sum_exp, shares


def terms(n=4, size=50):
    x = np.random.default_rng(0).normal(scale=3.0, size=(n, size))
    x[1, :10] = x[0, :10]  # ties
    x[-1, 15:25] = -np.inf
    return x


@jax.jit
def all_of(x):
    slope = jax.grad(lambda x: jnp.sum(log_sum_exp(x)))(x)
    curvature = jax.vmap(jax.hessian(log_sum_exp), in_axes=1, out_axes=2)(x)
    return log_sum_exp(x), shares(x), slope, curvature


def test_sums_and_their_derivatives():
    x = terms()
    value, share, slope, curvature = all_of(x)
    expected = np.exp(x) / np.exp(x).sum(axis=0)
    np.testing.assert_allclose(value, np.logaddexp.reduce(x), rtol=1e-14, atol=1e-14)
    for found in (share, slope):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-300)
    outer = expected[:, None] * expected[None, :]
    np.testing.assert_allclose(curvature, np.eye(len(x))[:, :, None] * expected - outer, atol=1e-14)


def test_two_terms_are_a_sum_of_two():
    x = terms(n=2)
    x[:, 20:30] = [[-np.inf], [1.0]]
    both = jax.jit(jax.vmap(jax.value_and_grad(log_add_exp, argnums=(0, 1))))
    bend = jax.jit(jax.vmap(jax.grad(jax.grad(log_add_exp))))
    value, slopes = both(*x)
    expected = np.exp(x) / np.exp(x).sum(axis=0)
    np.testing.assert_allclose(value, np.logaddexp(*x), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(slopes, expected, rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(bend(*x), expected[0] * expected[1], rtol=1e-12, atol=1e-300)


def test_nothing_to_add_is_minus_infinity_with_finite_slopes():
    nothing = jnp.full((3, 2), -jnp.inf)
    value, share, slope, _ = all_of(nothing)
    assert np.all(np.asarray(value) == -np.inf)
    assert np.isfinite([share, slope]).all()
    value, slopes = jax.value_and_grad(log_add_exp, argnums=(0, 1))(-jnp.inf, -jnp.inf)
    assert value == -np.inf
    assert slopes == (0.5, 0.5)


@pytest.mark.parametrize("options", [{"xla_backend_optimization_level": 0}, {}])
def test_pair_logs_are_finite_however_they_are_compiled(options):
    """As large as these logs are, two roundings of the same number differ by more than any exponential bears."""
    z = 1e6 * np.random.default_rng(0).normal(size=(2, 4000))
    found = jax.jit(pair_logs, compiler_options=options)(z.astype(np.float32))
    for single, exact in zip(found, pair_logs(z), strict=True):
        np.testing.assert_allclose(single, exact, rtol=1e-5)


@pytest.mark.parametrize("options", [{"xla_backend_optimization_level": 0}, {}])
def test_second_derivatives_are_finite_however_they_are_compiled(options):
    u = 4.0 * np.random.default_rng(0).normal(size=(1, 2, 60, 512))
    first = np.random.default_rng(0).random(60) < 0.5
    slope = jax.grad(lambda u: jnp.sum(log_likelihood(u, np.ones((2, 60), bool), np.stack([first, ~first]))))

    @partial(jax.jit, compiler_options=options)
    def derivatives(u):
        return jax.jvp(slope, (u,), (jnp.zeros_like(u).at[:, 1].set(1.0),))

    assert np.isfinite(derivatives(u)).all()
