"""Adam, and the bounds between which log hyperparameters move.

Written out, because importing optax takes 0.17 s, a good part of a second fit of a small problem.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LOG_BOUNDS = (-8.0, 14.0)
"""Smallest and largest log hyperparameter, of every inference."""


class Adam(NamedTuple):
    """Running averages of gradients (any pytree) and of their squares, and how many gradients they hold."""

    n_seen: Any
    first: Any
    second: Any

    @classmethod
    def begin(cls, like: Any) -> "Adam":
        """Start with nothing, for gradients of these shapes."""
        # NumPy's zeros: every operation of JAX outside a program is compiled by itself.
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
        return cls(np.zeros((), np.int32), zeros, zeros)

    def direction(
        self, gradient: Any, decay: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ) -> tuple[Any, "Adam"]:
        """Return the step of unit rate that this gradient asks for."""
        count = self.n_seen + 1

        def averaged(rate: float, old: Any, new: Any) -> Any:
            return jax.tree.map(lambda old, new: rate * old + (1.0 - rate) * new, old, new)

        first = averaged(decay[0], self.first, gradient)
        second = averaged(decay[1], self.second, jax.tree.map(jnp.square, gradient))

        def one(first: Any, second: Any) -> Any:
            short, long = ((1.0 - rate**count).astype(first.dtype) for rate in decay)
            return first / short / (jnp.sqrt(second / long) + epsilon)

        return jax.tree.map(one, first, second), Adam(count, first, second)
