"""How computations run: precision, device and progress."""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator

import jax

from choicegp.errors import ChoiceGPError

Report = Callable[[str, int, float], None]


SMALL = 1000
"""Matrices up to this order are factorised by one thread: waiting for a second one costs more than it helps,
and on a busy machine ten times more (measured at order 184 on two cores)."""


@contextlib.contextmanager
def linear_algebra_for(order: int) -> Iterator[None]:
    """Choose the number of threads of the BLAS library for matrices of that order."""
    if order > SMALL:
        yield
        return
    import scipy.linalg  # noqa: F401  JAX calls its LAPACK, which only a loaded library can be told about
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def n_threads(n_jobs: int | None, order: int) -> int:
    """Return how many pieces of work run side by side on matrices of that order.

    -1 asks for all cores that this process may use; so does None where the matrices are small, and each piece has
    one core. The pieces of larger problems share the cores, and the memory, better one by one.
    """
    if n_jobs is None and order > SMALL:
        return 1
    if n_jobs is not None and n_jobs != -1:
        return n_jobs
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextlib.contextmanager
def computing(device: str = "auto") -> Iterator[None]:
    """Run JAX in float64 on the chosen device, whatever the rest of the program has set."""
    if device not in ("auto", "cpu", "gpu"):
        raise ChoiceGPError(f"device must be 'auto', 'cpu' or 'gpu'; got {device!r}")
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


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_watched(progress: bool | str) -> bool:
    """Whether progress is to be shown: True, False, or "auto", on a terminal only."""
    if progress not in (True, False, "auto"):
        raise ChoiceGPError(f"progress must be True, False or 'auto'; got {progress!r}")
    return progress is True or (progress == "auto" and on_terminal())


@contextlib.contextmanager
def progress_report(progress: bool | str, max_iter: int) -> Iterator[Report | None]:
    """Yield a function that shows phase, step, ELBO and remaining time; None when nobody looks.

    ``progress`` is True, False, or "auto": on a terminal only.
    """
    if not is_watched(progress):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("step {task.completed}"),
        TextColumn("ELBO {task.fields[bound]}"), TimeElapsedColumn(), TextColumn("at most"),
        TimeRemainingColumn(),
    )  # fmt: skip
    # On a terminal the bar goes when it is done; in a log its last state is all there is to see.
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal()) as bar:
        task = bar.add_task("compiling", total=max_iter, bound="...")

        def report(phase: str, step: int, bound: float) -> None:
            bar.update(task, description=phase, completed=step, bound=f"{bound:.1f}" if math.isfinite(bound) else "...")

        yield report


@contextlib.contextmanager
def count_report(progress: bool | str, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many more are done, and shows how many are and how long the rest will take.

    ``progress`` is True, False, or "auto": on a terminal only.
    """
    if not is_watched(progress):
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(), TextColumn("{task.completed} of {task.total} {task.description}"), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
