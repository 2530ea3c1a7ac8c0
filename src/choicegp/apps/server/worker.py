"""A worker: a process that takes what is wanted from the queue of a study, and leaves there what it worked out."""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from choicegp.apps.server.heap import share_one_heap
from choicegp.apps.server.results import Prepared, packed, packed_result, prepared_of, setup_of
from choicegp.apps.server.standing import standing
from choicegp.apps.terminal import FIXABLE, ending_of, say_on_stderr, say_traceback_on_request
from choicegp.elicitation.events import Event
from choicegp.elicitation.queue import EVERYONE, LEASE, MOST_TRIES, Job, Queue, Result
from choicegp.elicitation.store import Store
from choicegp.errors import ChoiceGPError, NotPossible, StoreError

if TYPE_CHECKING:
    from choicegp.apps.server.learning import Learner, LearningTask

LOG = logging.getLogger("choicegp.server")

QUICK, SLOW = ("first", "next", "explain"), ("everyone", "people")
"""Kinds of jobs: those for which participants wait, and those that take minutes, for which there is another process."""
N_NEWCOMERS, N_FIRST = 64, 12
"""Sets for newcomers, shown before there is a model and whenever a fit is late: for how many people, and how many."""
_LIMIT = 600.0  # seconds of one job
_PAUSE = 0.2  # seconds between two looks at an empty queue
_AWAY = 2.0  # seconds to wait for a database that cannot be reached
_NICE = 10


class Worker:
    """Works out what is wanted, one job after the other.

    What takes time runs in a thread of low priority.  The database is written by one of normal priority: who waits for
    the processor inside a transaction keeps every page waiting that writes to the same file.

    Parameters
    ----------
    store : Store
    name : str
        No other worker has the same.
    kinds : tuple of str
        What it works on.
    """

    def __init__(self, store: Store, name: str, kinds: tuple[str, ...] = QUICK + SLOW) -> None:
        self._store, self._queue, self._name, self._kinds = store, Queue(store), name, kinds
        self._setup: Result | None = None
        self._learner: Learner | None = None
        self._shapes: list[int] = []
        self._calm = ThreadPoolExecutor(1, initializer=_at_low_priority)

    def step(self) -> bool:
        """Do one job, or something useful while there is none; return whether there was anything to do."""
        if not self._calm.submit(self._prepared).result():
            return False
        self._forget()
        job = self._queue.claim(self._name, self._kinds)
        if job is None:
            return self._calm.submit(self._warm_up).result()
        content = None
        with self._claimed(job):
            if job.tries <= MOST_TRIES:
                try:
                    job, content = self._calm.submit(self._done, job).result()
                except Exception as error:
                    # A participant who is gone is no reason to wait for the database.
                    if isinstance(error, StoreError) and not isinstance(error, NotPossible):
                        raise
                    # The message could hold an answer: the log has the kind alone.
                    LOG.warning("the model could not do %r: %s", job.kind, type(error).__name__)
        self._queue.finish(job, self._name, content)
        return True

    def _prepared(self) -> bool:
        """Read how the study is set up; return whether that is known."""
        found = self._queue.result("setup")
        if found is None or found.content is None:
            return False
        if self._setup is None or found.content != self._setup.content:
            from choicegp.apps.server.cards import learned_from
            from choicegp.apps.server.learning import Learner

            setup = setup_of(found.content)
            table = learned_from(self._store.objects, setup.columns, setup.decimal)
            self._learner, self._setup = Learner(setup, table), found
            if self._learner.fits and "next" in self._kinds:
                seen = min(len(table), setup.sets * setup.set_size)
                self._shapes = _shapes(seen + bool(setup.threshold))  # a threshold is one object more
        return True

    def _forget(self) -> None:
        """Forget who was deleted, wherever that was."""
        assert self._learner is not None
        if known := self._learner.known():
            self._learner.forget(self._queue.deleted(known))

    def _warm_up(self) -> bool:
        """Compile programs before somebody waits for them, the smallest first."""
        if not self._shapes:
            return False
        assert self._learner is not None
        self._learner.warm_up(self._shapes.pop(0))
        return True

    @contextlib.contextmanager
    def _claimed(self, job: Job) -> Iterator[None]:
        """Renew a claim while the job is done; whoever takes too long ends, and is replaced."""
        ended = threading.Event()
        end = time.monotonic() + _LIMIT

        def renew() -> None:
            while not ended.wait(LEASE / 3):
                if time.monotonic() > end:
                    os._exit(1)
                with contextlib.suppress(StoreError):
                    self._queue.renew(job, self._name)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _done(self, job: Job) -> tuple[Job, bytes | None]:
        """Do a job; return it with the version of the answers that were learned from, and what was found."""
        learner, setup = self._learner, self._setup
        assert learner is not None
        assert setup is not None
        if job.kind == "first":
            return job._replace(version=setup.version), packed(learner.first_sets(N_NEWCOMERS, N_FIRST))
        if job.participant == EVERYONE:
            return self._of_everyone(job)
        task, version = self._task(job.participant)
        job = job._replace(version=version)
        if job.kind == "explain":
            return job, packed_result(learner.explain(task))
        before = self._queue.result("next", job.participant)
        n_before = 0 if before is None or before.content is None else prepared_of(before.content).n_answers
        sets = learner.next_sets(task, len(task.shown) - n_before)
        return job, packed(Prepared(len(task.shown), tuple(sets)))

    def _task(self, number: int) -> "tuple[LearningTask, int]":
        from choicegp.apps.server.learning import LearningTask

        person = self._store.participant(number)
        now = standing(self._store.events(person))
        return LearningTask(number, now.shown, now.chosen, now.asked, person.panel.get("language")), now.version

    def _of_everyone(self, job: Job) -> tuple[Job, bytes]:
        from choicegp.apps.server.population import pooled, separate

        assert self._learner is not None
        version = self._queue.version()
        events: dict[int | None, list[Event]] = {}
        for event in self._store.events(of_questions=True):
            events.setdefault(event.participant, []).append(event)
        people = {one.label: standing(events.get(one.id, [])) for one in self._store.participants()}
        answered = {name: now for name, now in people.items() if now.shown}
        if not answered:
            raise ChoiceGPError("there are no answers")
        job = job._replace(version=version)
        if job.kind == "everyone":
            return job, packed_result(pooled(self._learner, answered))
        return job, packed_result(separate(self._learner, answered))


def _shapes(most: int) -> list[int]:
    """Return the numbers of objects for which fits have programs of their own, up to ``most``.

    Examples
    --------
    >>> _shapes(80)
    [64, 128]
    """
    from choicegp.data.packing import padded_generously, padded_size

    with padded_generously():
        return sorted({padded_size(n, 1) for n in range(1, max(most, 1) + 1)})


def work(place: str, name: str, kinds: tuple[str, ...], idle: float) -> None:
    """Work until the process that started this one is gone, or until there was nothing to do for ``idle`` seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    share_one_heap()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(place, name, kinds, idle)
    except Exception as error:
        code, message = ending_of(error)
        # The message of a defect could hold an answer, and so could its traceback.
        say_traceback_on_request(error)
        say_on_stderr(message if code == FIXABLE else f"internal error: {type(error).__name__}")
        sys.exit(code)


def _work(place: str, name: str, kinds: tuple[str, ...], idle: float) -> None:
    with Store.open(place) as store:
        worker, last = Worker(store, name, kinds), time.monotonic()
        while time.monotonic() - last < idle:
            try:
                if worker.step():
                    last = time.monotonic()
                else:
                    time.sleep(_PAUSE)
            except StoreError as error:
                LOG.warning("%s: a worker cannot use the database", type(error).__name__)
                time.sleep(_AWAY)


def _at_low_priority() -> None:
    """Let pages come first: Linux knows priorities of threads, and of those that this one starts."""
    # Elsewhere the number of a thread may be that of some other process.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _end_with_parent() -> None:
    """End when the page does, even if it was killed: a fit would otherwise run on for minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
