"""Fits beside the page: the newest answers of each person are learned in turn, and the next sets are kept ready."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, Protocol

from choicegp.apps.server import learning
from choicegp.apps.server.learning import Learned, Proposal, Setup, Task
from choicegp.apps.server.process import ComputingProcess, Failed
from choicegp.elicitation.events import ObjectId

LOG = logging.getLogger("choicegp.server")

N_FIRST = 12  # sets for a newcomer: shown before there is a model, and whenever a fit is late
LEAST_ANSWERS = 3  # a model of fewer answers would say nothing
_N_NEWCOMERS = 16  # for how many people first sets are kept ready
_LIMIT = 180.0  # seconds of one call
_MOST_KEPT = 5000  # people whose next sets are remembered
_MOST_KNOWN = 200  # results, with their pictures
_PATIENCE = 0.2  # seconds after a failure
_RETRIED = 30.0  # seconds after which a failure is forgotten
_RENEWED = 60.0  # seconds for which a model of all people is kept, although there are new answers


class Thinker(Protocol):
    """What the page needs to know from the model; no call waits."""

    def next_set(self, person: int, asked: Collection[frozenset[ObjectId]]) -> Proposal | None:
        """Return a set that was prepared for this person, or None if there is none yet."""

    def learn(self, task: Task) -> None:
        """Learn new answers soon, and prepare the next sets."""

    def explained(self, task: Task) -> "Learned | Literal['failed'] | None":
        """Return what these answers say; None: not yet, and it will be worked out.

        What all people say together may be from earlier answers.
        """

    def forget(self, person: int) -> None:
        """Forget a person."""

    def close(self) -> None:
        """End."""


class _Known(NamedTuple):
    answers: Any
    learned: Learned | Literal["failed"]
    at: float


class Worker:
    """One computing process and what it found so far.

    Requests that are not begun yet are coalesced: of each person the newest answers count.  People are served in turn.

    Parameters
    ----------
    setup : Setup
    process : ComputingProcess, optional
    clock : callable
        Returns seconds.
    """

    def __init__(self, setup: Setup, process: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._process = process or ComputingProcess(learning.start, (setup,))
        self._wanted: OrderedDict[tuple[str, int | None], Task] = OrderedDict()
        self._ready: OrderedDict[int, list[Proposal]] = OrderedDict()
        self._spare: OrderedDict[int, list[Proposal]] = OrderedDict()
        self._known: OrderedDict[int | None, _Known] = OrderedDict()
        self._first: list[list[Proposal]] = []
        self._cold = setup.design not in ("random", "space-filling")
        self._n_first = 0
        self._gone: set[int | None] = set()
        self._lock = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="choicegp-worker", daemon=True)
        self._thread.start()

    def next_set(self, person: int, asked: Collection[frozenset[ObjectId]]) -> Proposal | None:
        """Return a set that was prepared for this person and not shown to her, or None."""
        with self._lock:
            if person not in self._spare and self._first:
                _keep(self._spare, person, self._first.pop())
                self._lock.notify()
            for ready in (self._ready.get(person, []), self._spare.get(person, [])):
                while ready:
                    found = ready.pop(0)
                    if frozenset(found.shown) not in asked:
                        return found
        return None

    def learn(self, task: Task) -> None:
        """Learn new answers soon."""
        if len(task.shown) >= LEAST_ANSWERS:
            self._want("learn", task)

    def explained(self, task: Task) -> "Learned | Literal['failed'] | None":
        """Return what these answers say, or None while it is not known."""
        known = self._known.get(task.person)
        if known is not None and known.learned == "failed" and self._clock() - known.at > _RETRIED:
            known = None
        if known is not None and known.answers == _identity(task):
            return known.learned
        if known is None or task.person is not None:
            self._want("explain", task)
            return None
        # Somebody answers all the time: waiting for a model of the newest answers would never end.
        if self._clock() - known.at > _RENEWED:
            self._want("explain", task)
        return known.learned

    def forget(self, person: int) -> None:
        """Forget a person, here and in the process."""
        with self._lock:
            for key in (("learn", person), ("explain", person), _EVERYONE):
                self._wanted.pop(key, None)
            self._ready.pop(person, None)
            self._spare.pop(person, None)
            self._known.pop(person, None)
            self._known.pop(None, None)
            self._gone.add(person)
        self._want("forget", Task(person, (), ()))

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._wanted)

    def close(self) -> None:
        """End the thread and the process."""
        with self._lock:
            self._ended = True
            self._lock.notify()
        self._process.close()
        self._thread.join(5.0)

    def _want(self, kind: str, task: Task) -> None:
        with self._lock:
            # In the place of the request before it: who answers quickly does not wait longer than others.
            self._wanted[kind, task.person] = task
            self._lock.notify()

    def _run(self) -> None:
        while (job := self._job()) is not None:
            kind, task, function, arguments = job
            try:
                result = self._process.call(function, arguments, _LIMIT)
            except Failed as error:
                if self._ended:
                    return
                LOG.warning("the model could not do %r: %s", kind, error)
                result = None
                time.sleep(_PATIENCE)
            with self._lock:
                self._take(kind, task, result)

    def _job(self) -> tuple[str, Task | None, Callable[..., Any], tuple[Any, ...]] | None:
        """Wait for something to do and return it; None at the end."""
        with self._lock:
            while not (self._ended or self._cold or self._wanted or len(self._first) < _N_NEWCOMERS):
                self._lock.wait()
            if self._ended:
                return None
            if len(self._first) < _N_NEWCOMERS // 2 or not (self._cold or self._wanted):
                self._n_first += _N_NEWCOMERS
                return "first", None, learning.first_sets, (_N_NEWCOMERS, N_FIRST, self._n_first)
            if self._cold:
                self._cold = False
                return "warm", None, learning.warm_up, ()
            # Who waits for a result comes before the next sets of others, and everyone together comes last.
            key = min(self._wanted, key=lambda one: (one == _EVERYONE, one[0] != "explain"))
            task = self._wanted.pop(key)
            function = _FUNCTIONS[key[0]]
            return key[0], task, function, (task.person if key[0] == "forget" else task,)

    def _take(self, kind: str, task: Task | None, result: Any) -> None:
        """Keep a result; None: there is none."""
        if kind == "first":
            # Without any, newcomers see random sets; it must not be tried for ever.
            self._first += result if result is not None else [[]] * _N_NEWCOMERS
        elif task is None or task.person in self._gone:
            return
        elif kind == "learn" and result is not None and task.person is not None:
            _keep(self._ready, task.person, result)
        elif kind == "explain":
            waiting = self._wanted.get((kind, task.person))
            if waiting is not None and _identity(waiting) == _identity(task):
                del self._wanted[kind, task.person]  # somebody asked again while it was worked out
            self._known[task.person] = _Known(_identity(task), result or "failed", self._clock())
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)


_EVERYONE = ("explain", None)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "learn": learning.next_sets_for, "explain": learning.explain, "forget": learning.forget,
}  # fmt: skip


def _keep(kept: OrderedDict[int, list[Proposal]], person: int, sets: list[Proposal]) -> None:
    kept[person] = list(sets)
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)


def _identity(task: Task) -> Any:
    return task.shown, task.chosen
