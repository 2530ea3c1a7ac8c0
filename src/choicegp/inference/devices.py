"""Several devices, on this machine or on several: the sets of a step are divided among them.

Everything else (inducing points, hyperparameters) is on all of them, and JAX adds up what each finds in its sets.
With `jax.distributed` the devices may be those of several machines: every machine runs the same program on the same
data, and its devices take their part of every step.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


class Spread:
    """Lays arrays over devices along their axis of sets."""

    def __init__(self, devices: list[Any]) -> None:
        self._mesh = Mesh(np.array(devices), ("sets",))
        self._everywhere = jax.jit(lambda arrays: arrays, out_shardings=NamedSharding(self._mesh, PartitionSpec()))

    def __len__(self) -> int:
        """Return the number of devices."""
        return self._mesh.size

    def over(self, array: np.ndarray, axis: int) -> jax.Array:
        """Divide an array evenly along an axis; every machine holds the same array and keeps its part."""
        place = NamedSharding(self._mesh, PartitionSpec(*[None] * axis, "sets"))
        return jax.make_array_from_callback(array.shape, place, lambda index: array[index])

    def whole(self, tree: Any) -> Any:
        """Bring arrays that programs have left somewhere to all devices."""
        return self._everywhere(tree)
