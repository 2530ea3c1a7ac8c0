"""Several devices, on this machine or on several: the sets or the people of a step are divided among them.

Everything else (inducing points, hyperparameters) is on all of them, and JAX adds up what each finds in its part.
With `jax.distributed` the devices may belong to several machines: every machine runs the same program on the same
data, and its devices take their part of every step.
"""

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from choicegp.compute.memory import check_room_to_start
from choicegp.errors import ChoiceGPError


class Spread:
    """Lays arrays over devices along their axis of sets or people."""

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


@functools.cache
def _first_process() -> int:
    """Return the process in which JAX was started: a fork has a copy of its memory, and none of its threads."""
    return os.getpid()


@contextlib.contextmanager
def computing(device: str = "auto") -> Iterator[None]:
    """Run JAX in float64 on the chosen device, whatever the rest of the program has set."""
    if device not in ("auto", "cpu", "gpu"):
        raise ChoiceGPError(f"device must be 'auto', 'cpu' or 'gpu'; got {device!r}")
    check_room_to_start()
    if _first_process() != os.getpid():
        raise ChoiceGPError(
            "this process was forked from one in which JAX had started, and would wait for ever: start processes with "
            "multiprocessing.get_context('spawn'), or with joblib"
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        # A program may be strict with its own arrays, or look for its own infinities.
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        stack.enter_context(jax.debug_nans(False))
        stack.enter_context(jax.debug_infs(False))
        stack.enter_context(jax.transfer_guard("allow"))
        if device != "auto":
            try:
                chosen = jax.local_devices(backend=device)[0]
            except RuntimeError:
                raise ChoiceGPError(f"no {device} device was found: use device='auto' or device='cpu'") from None
            stack.enter_context(jax.default_device(chosen))
        yield
