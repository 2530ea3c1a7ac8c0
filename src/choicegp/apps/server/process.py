"""A process that computes, one call at a time: spawned, limited in time, and replaced when it dies."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Failed(Exception):
    """A call that had no result; the message holds the kind of the error and nothing of the data."""


class ComputingProcess:
    """A spawned process that runs functions, which must be importable.

    JAX and fork do not mix, and a fit must never hold up a page: fits run here, at a low priority.

    Parameters
    ----------
    start : callable, optional
        Called once in a new process, with ``arguments``.
    arguments : tuple

    Examples
    --------
    >>> process = ComputingProcess()
    >>> process.call(max, (2, 3), seconds=60)
    3
    >>> process.close()
    """

    def __init__(self, start: Callable[..., object] | None = None, arguments: tuple[Any, ...] = ()) -> None:
        self._start, self._arguments = start, arguments
        self._process: Any = None
        self._pipe: Connection | None = None
        self._lock = threading.RLock()
        self._closed = False
        self.n_started = 0

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
        """Run a function in the process and return its result, or raise `Failed`; called by one thread at a time."""
        with self._lock:
            if not self._closed and (self._process is None or not self._process.is_alive()):
                self._begin()
            if self._closed:
                self._end()
                raise Failed("the process was closed")
            assert self._pipe is not None
            try:
                self._pipe.send((function, arguments))
                if not self._pipe.poll(seconds):
                    self._end()
                    raise Failed(f"no result within {seconds:.0f} s")
                good, value = self._pipe.recv()
            except (EOFError, OSError) as error:
                self._end()
                raise Failed("the process ended") from error
        if not good:
            raise Failed(value)
        return value

    def _begin(self) -> None:
        self._end()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._start, self._arguments), daemon=True)
        process.start()
        self._process = process
        theirs.close()
        self.n_started += 1

    def close(self) -> None:
        """End the process at once, for good; a call that another thread waits for fails."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()  # the one who waits finds the end of the pipe and releases the lock
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


def _work(pipe: Connection, start: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    """Answer calls until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(10)
    if start is not None:
        start(*arguments)
    while True:
        try:
            function, given = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            reply = (True, function(*given))
        except Exception as error:
            reply = (False, type(error).__name__)
        with contextlib.suppress(OSError):
            pipe.send(reply)


def _end_with_parent() -> None:
    """End when the page does, even if it was killed: a fit would otherwise run on for minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
