"""Workers in processes of their own: spawned, replaced when they die, and ended together."""

import logging
import multiprocessing
import os
import secrets
import socket
import threading
from multiprocessing.connection import wait
from typing import Any

from choicegp.apps.server.worker import work
from choicegp.elicitation.queue import Queue
from choicegp.elicitation.store import Store
from choicegp.errors import StoreError

LOG = logging.getLogger("choicegp.server")

_PATIENCE = 1.0  # seconds before a process is replaced: one that dies at once must not keep the machine busy


class Crew:
    """Processes that work for the queue of one study.

    JAX and fork do not mix, and a fit must never hold up a page: workers are spawned, and run at a low priority.

    Parameters
    ----------
    place : str
        The database, as for `Store.open`.
    n : int
    target : callable, optional
        What a process runs, with the place and its name.
    """

    def __init__(self, place: str, n: int, target: Any = work) -> None:
        self._place, self._target = place, target
        own = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._names = [f"{own}-{i}" for i in range(n)]
        self._context = multiprocessing.get_context("spawn")
        self._ended = threading.Event()
        self._processes = {name: self._begun(name) for name in self._names}
        self._thread = threading.Thread(target=self._watch, name="choicegp-crew", daemon=True)
        self._thread.start()

    def _begun(self, name: str) -> Any:
        process = self._context.Process(target=self._target, args=(self._place, name), daemon=True)
        process.start()
        return process

    def _watch(self) -> None:
        while self._processes and not self._ended.is_set():
            wait([one.sentinel for one in self._processes.values()], timeout=_PATIENCE)
            for name, process in list(self._processes.items()):
                if process.is_alive() or self._ended.is_set():
                    continue
                LOG.warning("a worker ended (%s) and is replaced", process.exitcode)
                self._release([name])
                if not self._ended.wait(_PATIENCE):
                    self._processes[name] = self._begun(name)

    def _release(self, names: list[str]) -> None:
        """Give back what these workers had begun, so that others need not wait until their claims are over."""
        try:
            with Store.open(self._place) as store:
                for name in names:
                    Queue(store).release(name)
        except StoreError as error:
            LOG.warning("%s: the claims of a worker were not given back", type(error).__name__)

    def join(self) -> None:
        """Wait until the crew is closed."""
        self._ended.wait()

    def close(self) -> None:
        """End all processes at once."""
        self._ended.set()
        self._thread.join()
        for process in self._processes.values():
            process.kill()
            process.join()
        if self._names:
            self._release(self._names)
