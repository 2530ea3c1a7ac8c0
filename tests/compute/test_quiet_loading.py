"""What is written to standard error while a program is loaded: all of it is passed on, but for the loader's lines."""

import os
import subprocess
import sys
import threading

import pytest

from choicegp.compute.programs import without_loader_messages

OF_THE_LOADER = (
    b"E1116 13:27:45.646279    4451 cpu_aot_loader.cc:220] Loading XLA:CPU AOT result. Target machine feature +x is "
    b"not  supported on the host machine. Machine type used for XLA:CPU compilation doesn't match the machine type for "
    b"execution. Compile machine features: [+64bit] vs host machine features: [avx].\n"
    b"W1116 13:27:45.644191    4460 pjrt_executable.cc:642] Assume version compatibility. PjRt-IFRT does not track.\n"
)


def test_only_the_loaders_lines_are_left_out(capfd):
    with without_loader_messages():
        os.write(
            2, b"before\n" + OF_THE_LOADER + b"50%" + OF_THE_LOADER + b"\r60%\n\nE1116 1:2:3.4 5 other.cc:1] real\n"
        )
        os.write(2, b"no end")
    assert capfd.readouterr().err == "before\n50%\r60%\n\nE1116 1:2:3.4 5 other.cc:1] real\nno end"


def test_lines_are_passed_on_when_loading_fails(capfd):
    def load():
        with without_loader_messages():
            os.write(2, b"why\n" + OF_THE_LOADER)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        load()
    assert capfd.readouterr().err == "why\n"
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"


def test_threads_take_turns(capfd):
    def load(number):
        for _ in range(50):
            with without_loader_messages():
                os.write(2, b"%d\n" % number + OF_THE_LOADER)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(capfd.readouterr().err.split()) == sorted("0123" * 50)


def test_no_descriptor_is_left_open():
    before = os.listdir("/dev/fd")
    with without_loader_messages():
        pass
    assert os.listdir("/dev/fd") == before


CLOSED = """
import os
from choicegp.compute.programs import without_loader_messages
os.close(2)
with without_loader_messages():
    print("loaded")
try:
    os.fstat(2)
except OSError:
    print("still closed")
"""


def test_standard_error_may_be_closed_or_a_pipe_that_nobody_reads():
    closed = subprocess.run([sys.executable, "-c", CLOSED], stdout=subprocess.PIPE, text=True, timeout=60)
    assert closed.stdout.split("\n")[:2] == ["loaded", "still closed"]
    script = CLOSED.replace("os.close(2)", "").replace('print("loaded")', 'os.write(2, b"x"); print("loaded")')
    read, write = os.pipe()
    os.close(read)
    unread = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=write, text=True, timeout=60)
    os.close(write)
    assert (unread.returncode, unread.stdout) == (0, "loaded\n")
