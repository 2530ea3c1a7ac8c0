"""How many threads work on linear algebra, and how many pieces of work run in parallel."""

import contextlib
import os
from collections.abc import Iterator

SMALL = 1000
"""Matrices up to this order leave a core to every piece of work that runs in parallel."""
_ALONE = 2500  # the order up to which one thread factorises: a second one saves an eighth of the time of a fit at most,
# and on a busy machine waiting for it takes several times as long (measured at orders 184 and 1024 on two cores)


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
