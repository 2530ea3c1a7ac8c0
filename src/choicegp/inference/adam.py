"""Adam on one vector of parameters.

Written out, because importing optax takes longer than a second fit of a small problem.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

_DECAY_FIRST, _DECAY_SECOND, _EPSILON = 0.8, 0.95, 1e-3


class Adam(NamedTuple):
    """Running averages of the gradient and of its square, and how many gradients they hold."""

    first: Array
    second: Array
    n_seen: Array

    @classmethod
    def begin(cls, n: int) -> "Adam":
        """Start with nothing."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(()))  # type: ignore[arg-type]

    def direction(self, gradient: Array) -> tuple[Array, "Adam"]:
        """Return the step of unit rate that this gradient asks for."""
        count = self.n_seen + 1.0
        first = _DECAY_FIRST * self.first + (1.0 - _DECAY_FIRST) * gradient
        second = _DECAY_SECOND * self.second + (1.0 - _DECAY_SECOND) * gradient**2
        size = jnp.sqrt(second / (1.0 - _DECAY_SECOND**count)) + _EPSILON
        return first / (1.0 - _DECAY_FIRST**count) / size, Adam(first, second, count)
