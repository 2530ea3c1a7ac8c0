"""Memory of processes that run for weeks: one heap for all threads."""

import contextlib
import ctypes
import os
import sys

_M_ARENA_MAX = -8  # of malloc.h


def share_one_heap() -> None:
    """Let all threads that begin from now on take memory from one heap, where the C library is glibc.

    By default glibc has several heaps for each core, and what is free in one of them serves only the threads that were
    given it.  Every fit runs in threads: the heaps of a worker grew by 1 MiB in five fits although as much was
    freed as was taken.  With one heap 300 fits ended with the memory of the first 50, no slower than before.

    Whoever sets ``MALLOC_ARENA_MAX`` has decided already.
    """
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        # Another C library has no such function, and one heap or other ways.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
