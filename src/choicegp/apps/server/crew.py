"""Workers in processes of their own: spawned, replaced when they die, and ended together."""

import logging
import math
import multiprocessing
import os
import secrets
import socket
import threading
from multiprocessing.connection import wait
from typing import Any

from choicegp.apps.server.worker import QUICK, SLOW, work
from choicegp.elicitation.queue import Queue
from choicegp.elicitation.store import Store
from choicegp.errors import StoreError

LOG = logging.getLogger("choicegp.server")

_PATIENCE = 1.0  # seconds before a process is replaced: one that dies at once must not keep the machine busy
_IDLE = 60.0  # seconds after which a process ends that has nothing to do


class Crew:
    """Processes that work for the queue of one study.

    JAX and fork do not mix, and a fit must never hold up a page: workers are spawned, and run at a low priority.

    Beside those on whom participants wait, there is one more process while something is wanted that takes minutes.

    Parameters
    ----------
    place : str
        The database, as for `Store.open`.
    n : int
        Number of processes.
    """

    def __init__(self, place: str, n: int) -> None:
        self._place = place
        own = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._names, self._slow = [f"{own}-{i}" for i in range(n)], f"{own}-slow"
        self._context = multiprocessing.get_context("spawn")
        self._ended = threading.Event()
        self._processes: dict[str, Any] = {}
        for name in self._names:
            self._begin(name)
        self._thread = threading.Thread(target=self._watch, name="choicegp-crew", daemon=True)
        if n:
            self._thread.start()

    def _begin(self, name: str) -> None:
        how = (SLOW, _IDLE) if name == self._slow else (QUICK, math.inf)
        process = self._context.Process(target=work, args=(self._place, name, *how), daemon=True)
        process.start()
        self._processes[name] = process

    def _watch(self) -> None:
        """Replace who dies, and see to what takes minutes."""
        while not self._ended.is_set():
            try:
                with Store.open(self._place) as store:
                    self._watch_for(Queue(store))
            except StoreError as error:
                LOG.warning("%s: the database cannot be watched", type(error).__name__)
                self._ended.wait(_PATIENCE)

    def _watch_for(self, queue: Queue) -> None:
        while not self._ended.is_set():
            wait([one.sentinel for one in self._processes.values()], timeout=_PATIENCE)
            for name, process in list(self._processes.items()):
                if process.is_alive() or self._ended.is_set():
                    continue
                del self._processes[name]
                # Others need not wait until its claims are over.
                queue.release(name)
                if process.exitcode != 0:
                    LOG.warning("a worker ended (%s)", process.exitcode)
                    self._ended.wait(_PATIENCE)
            missing = [name for name in self._names if name not in self._processes]
            if self._slow not in self._processes and queue.waits(SLOW):
                missing.append(self._slow)
            for name in missing:
                if not self._ended.is_set():
                    self._begin(name)

    def join(self) -> None:
        """Wait until the crew is closed."""
        self._ended.wait()

    def close(self) -> None:
        """End all processes at once, and give back what they had begun."""
        self._ended.set()
        if not self._names:
            return
        self._thread.join()
        for process in self._processes.values():
            process.kill()
            process.join()
        try:
            with Store.open(self._place) as store:
                for name in self._processes:
                    Queue(store).release(name)
        except StoreError as error:
            LOG.warning("%s: the claims of workers were not given back", type(error).__name__)
