"""How many heaps a process has after threads took memory."""

import ctypes
import os
import subprocess
import sys

import pytest

from choicegp.apps.server import heap

SCRIPT = """
import ctypes, threading
from choicegp.apps.server.heap import share_one_heap
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
{before}
together = threading.Barrier(4)
def take():
    libc.malloc(ctypes.c_size_t(1000))
    together.wait()
threads = [threading.Thread(target=take) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
out = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


def heaps(before: str, variables: dict) -> int:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)], env=variables, capture_output=True, text=True, check=True
    )
    return ended.stdout.count("<heap nr=")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have heaps of other kinds")
def test_threads_share_one_heap_unless_the_user_has_decided():
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("the C library is not glibc")
    plain = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    assert heaps("", plain) > 1
    assert heaps("share_one_heap()", plain) == 1
    assert heaps("share_one_heap()", plain | {"MALLOC_ARENA_MAX": "2"}) == 2


def test_where_the_c_library_has_no_such_function_nothing_happens(monkeypatch):
    asked = []

    class Other:
        def __init__(self, name):
            asked.append(name)

    monkeypatch.setattr(heap.ctypes, "CDLL", Other)
    monkeypatch.setattr(heap.sys, "platform", "linux")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    heap.share_one_heap()
    assert asked == [None], "it was looked for in the library of the process, in vain"
