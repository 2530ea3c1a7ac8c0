"""What the tests of the model share."""

from collections.abc import Callable, Generator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.kernels import Kernel


@pytest.fixture(autouse=True)
def strict_promotion() -> Generator[None, None, None]:
    """Raise where JAX would give an array axes that nobody wrote, because a wrong shape may happen to fit."""
    with jax.numpy_rank_promotion("raise"):
        yield


@jax.jit  # one program, and not one for every operation
def gram(kernel: Kernel, X1: np.ndarray, X2: np.ndarray) -> jax.Array:
    return kernel.gram(X1, X2)


@jax.jit
def diagonal(kernel: Kernel, X: np.ndarray) -> jax.Array:
    return kernel.diagonal(X)


def mean_derivatives(log_likelihood: Callable, u: jax.Array) -> tuple[jax.Array, ...]:
    """Mean over samples of value, gradient and negative Hessian (its block per utility), by JAX."""

    def gradient_and_value(u):
        # Sets and samples do not touch each other: the gradient of the sum has the gradient of each.
        def total(u):
            value = log_likelihood(u)
            return jnp.sum(value), value

        return jax.grad(total, has_aux=True)(u)

    def moved(direction):
        return jax.jvp(gradient_and_value, (u,), (jnp.broadcast_to(direction[..., None, None], u.shape),), has_aux=True)

    d, a = u.shape[:2]
    directions = jnp.eye(d * a).reshape(-1, d, a)
    gradient, hessian, value = jax.vmap(moved, out_axes=(None, 0, None))(directions)
    parts = value, gradient, -jnp.einsum("ioip...->iop...", hessian.reshape(d, a, *u.shape))
    return tuple(jnp.mean(part, axis=-1) for part in parts)
