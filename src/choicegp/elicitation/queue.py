"""A queue of things to work out, in the database of a study: any server asks, any worker answers, all see the result.

Of each kind and participant there is at most one job.  Asking again while it waits makes it newer and keeps its place;
asking again while somebody works on it puts it at the end once more.  A worker that dies stops renewing its claim, and
another takes the job over.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from choicegp.elicitation.log import time_of
from choicegp.elicitation.schema import EVENTS, JOBS, PARTICIPANTS, RESULTS

if TYPE_CHECKING:
    from choicegp.elicitation.store import Store

EVERYONE = 0
"""Stands for a participant where a job is about nobody alone."""
LEASE = 30.0
"""Seconds for which a claim holds unless it is renewed."""
MOST_TRIES = 2
_FREE: dict[str, None] = {"claimed": None, "worker": None}
_LEARNED_FROM = ("answered", "undone", "deleted")


class Job(NamedTuple):
    """Something to work out.

    Attributes
    ----------
    kind : str
    participant : int
    version : int
        Number of the last event that is to be learned from.
    tries : int
        How often it was claimed, this time included.
    """

    kind: str
    participant: int
    version: int
    tries: int


class Result(NamedTuple):
    """What was worked out; ``content`` is None where that failed."""

    version: int
    at: datetime
    content: bytes | None


class Queue:
    """The queue of a study.

    Parameters
    ----------
    store : Store
    clock : callable
        Returns the time in UTC.

    Examples
    --------
    >>> import pandas as pd
    >>> from choicegp.elicitation.store import Store
    >>> queue = Queue(Store.open(":memory:", pd.DataFrame({"price": [3, 5]})))
    >>> queue.want("next", 1, 7)
    >>> job = queue.claim("a worker")
    >>> queue.finish(job, "a worker", b"what was found")
    True
    >>> queue.result("next", 1).content
    b'what was found'
    """

    def __init__(self, store: "Store", clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database, self._clock = store._database, clock

    def want(self, kind: str, participant: int, version: int, delay: float = 0.0) -> None:
        """Ask for something; it is due in ``delay`` seconds, and what is due first is done first."""
        query = sa.select(JOBS.c.version).where(_this(JOBS, kind, participant))
        waiting = self._database.read(lambda connection: connection.execute(query).scalar())
        if waiting is None or waiting < version:  # a page that asks again and again only reads
            self._database.write(_want, kind, participant, version, self._text(delay))

    def claim(self, worker: str, kinds: Collection[str] | None = None) -> Job | None:
        """Take the next job (of some kinds), which is then this worker's for `LEASE` seconds; None: there is none."""
        # Looking costs little: a transaction that writes would keep others from writing, ten times in a second.
        if not self.waits(kinds):
            return None
        return self._database.write(_claim, worker, self._text(), _free(self._text(-LEASE), kinds))

    def waits(self, kinds: Collection[str] | None = None) -> bool:
        """Whether there is a job (of some kinds) on which nobody works."""
        query = _free(self._text(-LEASE), kinds)
        return self._database.read(lambda connection: connection.execute(query).first()) is not None

    def renew(self, job: Job, worker: str) -> None:
        """Keep a claim for as long again."""
        self._database.write(_renew, job, worker, self._text())

    def release(self, worker: str) -> None:
        """Give back what a worker has claimed that came to its end."""
        self._database.write(lambda connection: connection.execute(JOBS.update().where(JOBS.c.worker == worker), _FREE))

    def finish(self, job: Job, worker: str, content: bytes | None) -> bool:
        """Keep what was found (None: it failed); return whether the job was still wanted from this worker.

        The job's ``version`` is what was learned from, which may be more than what was asked for.
        """
        return self._database.write(_finish, job, worker, content, self._text())

    def keep(self, kind: str, content: bytes) -> int:
        """Keep something that all servers and workers need to know; return its version, which grows when it changes."""
        return self._database.write(_keep_if_new, kind, content, self._text())

    def result(self, kind: str, participant: int = EVERYONE) -> Result | None:
        """Return what was found last, or None."""
        return self._database.read(_result, kind, participant)

    def version(self) -> int:
        """Return the version of everyone's answers together: the number of the last event that changed them."""
        query = sa.select(sa.func.max(EVENTS.c.id)).where(EVENTS.c.kind.in_(_LEARNED_FROM))
        return self._database.read(lambda connection: connection.execute(query).scalar()) or 0

    def waiting(self) -> int:
        """Return how many jobs wait or are worked on."""
        query = sa.select(sa.func.count()).select_from(JOBS)
        return int(self._database.read(lambda connection: connection.execute(query).scalar_one()))

    def deleted(self, among: Collection[int]) -> set[int]:
        """Return who of these participants, by number, was deleted."""
        query = sa.select(PARTICIPANTS.c.id).where(PARTICIPANTS.c.state == "deleted", PARTICIPANTS.c.id.in_(among))
        return set(self._database.read(lambda connection: connection.execute(query).scalars().all()))

    def _text(self, seconds: float = 0.0) -> str:
        return (self._clock() + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def _this(table: sa.Table, kind: str, participant: int) -> Any:
    return sa.and_(table.c.kind == kind, table.c.participant == participant)


def _mine(job: Job, worker: str) -> Any:
    return sa.and_(_this(JOBS, job.kind, job.participant), JOBS.c.worker == worker)


def _upsert(connection: sa.Connection, table: sa.Table, values: dict[str, Any], changed: dict[str, Any]) -> None:
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(table).values(values)
    connection.execute(insert.on_conflict_do_update(index_elements=["kind", "participant"], set_=changed))


def _want(connection: sa.Connection, kind: str, participant: int, version: int, due: str) -> None:
    values = {"kind": kind, "participant": participant, "version": version, "due": due, "tries": 0}
    # Who waits keeps the place in the queue, however often she asks; who was late to ask makes nothing older.
    place = sa.case((JOBS.c.claimed.is_(None), JOBS.c.due), else_=due)
    newest = sa.case((JOBS.c.version > version, JOBS.c.version), else_=version)
    _upsert(connection, JOBS, values, {"version": newest, "due": place})


def _free(stale: str, kinds: Collection[str] | None) -> Any:
    free = sa.or_(JOBS.c.claimed.is_(None), JOBS.c.claimed < stale)
    query = sa.select(JOBS).where(free).order_by(JOBS.c.due).limit(1)
    return query if kinds is None else query.where(JOBS.c.kind.in_(kinds))


def _claim(connection: sa.Connection, worker: str, now: str, free: Any) -> Job | None:
    # SQLite knows no locks of rows: there, one transaction writes at a time.
    row = connection.execute(free.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    job = Job(row.kind, row.participant, row.version, row.tries + 1)
    values = {"claimed": now, "worker": worker, "tries": job.tries}
    connection.execute(JOBS.update().where(_this(JOBS, job.kind, job.participant)), values)
    return job


def _renew(connection: sa.Connection, job: Job, worker: str, now: str) -> None:
    connection.execute(JOBS.update().where(_mine(job, worker)), {"claimed": now})


def _finish(connection: sa.Connection, job: Job, worker: str, content: bytes | None, now: str) -> bool:
    row = connection.execute(sa.select(JOBS).where(_mine(job, worker)).with_for_update()).one_or_none()
    if row is None:  # the participant was deleted, or another worker took it over
        return False
    _keep(connection, job.kind, job.participant, job.version, content, now)
    if row.version <= job.version:
        connection.execute(JOBS.delete().where(_mine(job, worker)))
    else:
        connection.execute(JOBS.update().where(_mine(job, worker)), {**_FREE, "tries": 0})
    return True


def _keep(
    connection: sa.Connection, kind: str, participant: int, version: int, content: bytes | None, now: str
) -> None:
    found = {"version": version, "at": now, "content": content}
    _upsert(connection, RESULTS, {"kind": kind, "participant": participant, **found}, found)


def _keep_if_new(connection: sa.Connection, kind: str, content: bytes, now: str) -> int:
    before = _result(connection, kind, EVERYONE)
    if before is not None and before.content == content:
        return before.version
    version = 1 if before is None else before.version + 1
    _keep(connection, kind, EVERYONE, version, content, now)
    return version


def _result(connection: sa.Connection, kind: str, participant: int) -> Result | None:
    row = connection.execute(sa.select(RESULTS).where(_this(RESULTS, kind, participant))).one_or_none()
    return None if row is None else Result(row.version, time_of(row.at), row.content)
