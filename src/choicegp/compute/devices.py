"""What computations run on: a device, its memory, and threads; or several devices, on this machine or on several.

A fit asks how much memory it may take before it starts, because a process that takes too much is killed unheard.  Only
Linux says what a process may have; elsewhere nothing is refused.

On several devices the sets or the people of a step are divided among them; everything else (inducing points,
hyperparameters) is on all of them, and JAX adds up what each finds in its part.  With `jax.distributed` the devices may
belong to several machines: every machine runs the same program on the same data, and its devices take their part of
every step.
"""

import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from choicegp.errors import ChoiceGPError

SMALL = 1000
"""Matrices up to this order leave a core to every piece of work that runs in parallel."""
_ALONE = 2500  # the order up to which one thread factorises: a second one saves an eighth of the time of a fit at most,
# and on a busy machine waiting for it takes several times as long (measured at orders 184 and 1024 on two cores)
_ROOM_TO_START = 2**30  # address space that JAX takes at its first program, whose threads each reserve a part of it
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_LIMIT_AND_USE = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_GIVES_WAY = ("inactive_file", "active_file", "slab_reclaimable")
_LIMITED = (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData"))
_SETTINGS_OF_THREADS = (
    "enable_x64", "default_device", "default_matmul_precision", "numpy_dtype_promotion", "numpy_rank_promotion",
    "debug_nans", "debug_infs",
)  # fmt: skip


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


@contextlib.contextmanager
def on_the_cpu() -> Iterator[None]:
    """Leave the accelerator, unless it was asked for: for work of many small steps, each of which needs the one before.

    To begin an operation takes an accelerator longer than a CPU takes for the whole of it, where the arrays are small.
    """
    with contextlib.ExitStack() as stack:
        # Where there is no accelerator, naming the device would make every program another one.
        if jax.config.jax_default_device is None and jax.default_backend() != "cpu":  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError):  # JAX may have been told to use nothing else
                stack.enter_context(jax.default_device(jax.local_devices(backend="cpu")[0]))
        yield


def with_settings_of_this_thread(work: Callable) -> Callable:
    """Carry float64, the device and the like over to another thread: JAX keeps these settings per thread."""
    settings = {name: getattr(jax.config, f"jax_{name}") for name in _SETTINGS_OF_THREADS}

    def wrapped(*args: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for name, value in settings.items():
                stack.enter_context(getattr(jax, name)(value))
            stack.enter_context(jax.transfer_guard("allow"))
            return work(*args)

    return wrapped


def in_threads(
    work: Callable[[Any], Any], over: Sequence[Any], n_jobs: int, stop: Callable[[], None] | None = None
) -> list[Any]:
    """Return the results of ``work`` for each item, in order, from that many threads.

    All threads are waited for, after an error or an interrupt too; ``stop`` is called then, to end long work early.

    Examples
    --------
    >>> in_threads(abs, [-1, 2], 2)
    [1, 2]
    """
    if n_jobs == 1 or len(over) == 1:
        return [work(one) for one in over]
    with ThreadPoolExecutor(n_jobs) as pool:
        try:
            return list(pool.map(with_settings_of_this_thread(work), over))
        except BaseException:
            if stop is not None:
                stop()
            raise


@contextlib.contextmanager
def ahead(pieces: Iterable[Callable[[], object]], n_jobs: int) -> Iterator[None]:
    """Have another thread do pieces of work, one after the other, before somebody needs what they leave.

    Where only one thread is wanted, nothing is done ahead.  After a piece that fails there are no more: it fails again
    where it is needed.  At the end no further piece is begun, and the one that was begun is waited for; an error or an
    interrupt does not wait for it, because there may be a checkpoint to write.
    """
    is_over = threading.Event()

    def work() -> None:
        with contextlib.suppress(Exception):
            for piece in pieces:
                if is_over.is_set():
                    return
                piece()

    if n_jobs == 1:
        yield
        return
    context = contextvars.copy_context()  # what JAX does not keep there, the settings of this thread bring along
    thread = threading.Thread(target=context.run, args=(with_settings_of_this_thread(work),))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
    thread.join()


@contextlib.contextmanager
def linear_algebra_for(order: int) -> Iterator[None]:
    """Choose the number of threads of the BLAS library for matrices of that order."""
    if order > _ALONE:
        yield
        return
    import scipy.linalg  # noqa: F401  JAX calls its LAPACK, which only a loaded library can be told about
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def n_threads(n_jobs: int | None, order: int) -> int:
    """Return how many pieces of work run in parallel on matrices of that order.

    -1 asks for all cores that this process may use; so does None where the matrices are small, and each piece has
    one core. The pieces of larger problems share the cores, and the memory, better one by one.
    """
    if n_jobs is None and order > SMALL:
        return 1
    if n_jobs is not None and n_jobs != -1:
        return n_jobs
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def free_memory() -> int | None:
    """Return how many bytes this process can still take; None where the system does not say.

    Examples
    --------
    >>> free = free_memory()
    >>> free is None or free > 0
    True
    """
    return min((*_of_the_machine(), *_of_groups(), *_of_limits().values()), default=None)


def check_memory(needed: float, what: str, advice: str) -> None:
    """Refuse work that needs more bytes than are free."""
    free = free_memory()
    if free is not None and needed > free:
        raise ChoiceGPError(f"{what} needs at least {_size(needed)} of memory, and {_size(free)} are free: {advice}")


@functools.cache  # what is refused is asked again; once started, JAX has what it reserves
def check_room_to_start() -> None:
    """Refuse to start JAX where the limit of address space would end the process in the middle of it."""
    room = _of_limits().get("RLIMIT_AS")
    if room is not None and room < _ROOM_TO_START:
        raise ChoiceGPError(
            f"the limit of address space leaves {_size(room)}, and JAX reserves {_size(_ROOM_TO_START)} when it starts"
            ": raise the limit (ulimit -v), or limit the memory of a container instead"
        )


def _of_the_machine() -> Iterator[int]:
    """Yield what the machine has left; one that can swap is slow then, and kills nothing."""
    swap = sum(_kilobytes(_PROC / "meminfo", "SwapFree"))
    yield from (memory + swap for memory in _kilobytes(_PROC / "meminfo", "MemAvailable"))


def _of_groups() -> Iterator[int]:
    """Yield what each control group of this process, in both versions of their file system, leaves to it."""
    for folder in _groups():
        for limit, used in _LIMIT_AND_USE:
            try:
                # "max" stands for no limit, as does a number beyond any memory.
                left = int((folder / limit).read_text()) - int((folder / used).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            # Files that were read, and what the system keeps of their names, count as used, and give way when memory is
            # needed.  In version 1 "total_" means: together with the groups below, as the use does.
            given_back = (int(stat.get(f"total_{name}", stat.get(name, 0))) for name in _GIVES_WAY)
            yield max(left + sum(given_back), 0)


def _groups() -> Iterator[Path]:
    """Yield the folders of the groups: a container sees its own as the root, other processes find theirs below."""
    yield from (_GROUPS, _GROUPS / "memory")
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return
    for _, controllers, place in (line.split(":", 2) for line in lines):
        if controllers in ("", "memory"):
            yield _GROUPS / controllers / place.strip("/")


def _of_limits() -> dict[str, int]:
    """Return what each limit of this process leaves."""
    try:
        import resource
    except ImportError:  # Windows
        return {}
    left = {}
    for name, used in _LIMITED:
        limit, _ = resource.getrlimit(getattr(resource, name))
        if limit != resource.RLIM_INFINITY:
            for taken in _kilobytes(_PROC / "self" / "status", used):
                left[name] = max(limit - taken, 0)
    return left


def _kilobytes(file: Path, name: str) -> Iterator[int]:
    """Yield the bytes that a line such as ``MemAvailable: 1024 kB`` states."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return
    yield from (1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"


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
