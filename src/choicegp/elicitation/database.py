"""Connections to SQLite and PostgreSQL: how they are opened, and what to say when they fail."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from json import JSONDecodeError
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from choicegp.elicitation.events import DamagedRow
from choicegp.errors import StoreError, Unavailable
from choicegp.files import check_place

_Result = TypeVar("_Result")

MEMORY = ":memory:"
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
_SQLITE = "sqlite:///"


class Database:
    """An engine with its name for messages; every piece of work is one transaction.

    Parameters
    ----------
    place : str or path
        A file, ":memory:" or a URL of PostgreSQL.
    timeout : float
        How many seconds to wait for another program that writes.
    create : bool
        Whether a file is created where there is none.
    """

    def __init__(self, place: str | os.PathLike[str], timeout: float, create: bool = True) -> None:
        self.timeout = timeout
        self._made: Path | None = None
        text = os.fspath(place)
        if text.startswith(_POSTGRES):
            self.engine, self.where = _postgres(text, timeout)
        elif "://" in text and not text.startswith(_SQLITE):
            kind = text.partition("://")[0]
            raise StoreError(f"databases of the kind {kind} are not known; name a file or a postgresql:// URL")
        else:
            name = text.removeprefix(_SQLITE)
            if name not in ("", MEMORY):
                self._made = _made_file(name, create)
            self.engine, self.where = _sqlite(name, timeout)
        # All threads share the one connection of a database in memory.
        self._turn: Any = RLock() if self.where == MEMORY else nullcontext()
        # SQLite lets one write at a time and others look again and again, in no order: threads had better queue.
        self._writing: Any = RLock() if self.engine.dialect.name == "sqlite" else nullcontext()
        self._to_empty = False

    def write(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """Do ``work`` in one transaction, which is done entirely or not at all.

        When the connection is lost, the work is done once more. It may have been committed already, and then finds its
        own key.
        """
        with self._turn, self._writing, self._explained("Nothing was recorded"):
            try:
                with self.engine.begin() as connection:
                    found = work(connection, *arguments)
            except (OperationalError, InterfaceError) as error:
                if not lost(error):
                    raise
                self.engine.dispose()
                with self.engine.begin() as connection:
                    found = work(connection, *arguments)
        if self._to_empty:
            self.empty_journal()
        return found

    def read(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """Do ``work`` that only reads, all of it from one state of the database."""
        with self._turn, self._explained("Nothing was changed"):
            try:
                return self._read(work, *arguments)
            except (OperationalError, InterfaceError) as error:
                if not lost(error):
                    raise
                self.engine.dispose()
                return self._read(work, *arguments)

    def _read(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        with self.engine.connect().execution_options(read=True) as connection:
            return work(connection, *arguments)

    def migrate(self) -> None:
        """Bring the database to the version of this program."""
        from choicegp.elicitation.schema import migrate

        with self._turn, self._explained("Nothing was changed"):
            migrate(self.engine, self.where)

    @contextmanager
    def _explained(self, outcome: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:  # the second while a connection is set up
            if isinstance(error, DBAPIError) and lost(error):  # perhaps between the commit and its reply
                outcome = "What is sent again counts once"
            raise Unavailable(f"{self._problem(error)}. {outcome}") from error
        except (UnicodeDecodeError, JSONDecodeError, DamagedRow) as error:  # what no program of ours has written
            raise Unavailable(f"{self.where} {_SQLITE_PROBLEMS[11]}. {outcome}") from error

    def _problem(self, error: Exception) -> str:
        """Say in one sentence what happened, where, and what to do."""
        original = getattr(error, "orig", error)
        code = getattr(original, "sqlite_errorcode", None)
        state = getattr(original, "sqlstate", None) or ""
        known = _SQLITE_PROBLEMS.get(code & 0xFF) if code is not None else _postgres_problem(state)
        if known is not None:
            return f"{self.where} {known.format(seconds=self.timeout)}"
        reason = " ".join(str(original).split())
        if isinstance(error, DBAPIError) and lost(error):
            return f"{self.where} cannot be reached ({reason}); check the URL and the server, and try again"
        return f"{self.where} reports: {reason}"

    def empty_journal(self) -> None:
        """Remove what was deleted from the journal of an SQLite file, too.

        While another program reads the file that cannot be done, and nobody waits for it: it is tried again after every
        transaction that writes, until it succeeds.
        """
        if self.engine.dialect.name != "sqlite":
            return
        with self._turn, self._explained("The deletion was recorded"), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA busy_timeout=0")
            try:
                busy = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.OperationalError:  # another program writes
                busy = 1
            finally:
                driver.execute(f"PRAGMA busy_timeout={int(self.timeout * 1000)}")
        self._to_empty = bool(busy)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        with suppress(OSError):  # where nothing could be written, no empty file is left
            if self._made is not None and self._made.stat().st_size == 0:
                self._made.unlink()


_OURS = "choicegp_schema"  # the table that every study has, whatever its version
_SQLITE_PROBLEMS = {
    5: "is in use by another program, which held it for more than {seconds:g} seconds; close it there, and try again",
    6: "is in use by another program, which held it for more than {seconds:g} seconds; close it there, and try again",
    8: "cannot be written: the file or its folder is read-only; change its permissions, or name another file",
    10: "cannot be read or written: the disk reports an error; check the disk and its free space",
    11: "is damaged; restore it from a copy",
    13: "cannot grow: the disk is full; free some space, and try again",
    14: "cannot be opened; see that its folder exists and can be written",
    26: "is not a database; name another file",
}


def _postgres_problem(state: str) -> str | None:
    if state in ("53100", "53200"):
        return "cannot grow: the server has no space left; free some space there, and try again"
    if state == "25006":
        return "cannot be written: the server or the user is read-only; use one that may write"
    if state in ("55P03", "57014", "40P01"):
        return "is in use by another program, which held it for more than {seconds:g} seconds; try again"
    if state == "42501":
        return "refuses: the user has no right to do this; grant it, or use another user"
    return None


def lost(error: DBAPIError) -> bool:
    """Whether the connection was lost, so that the same work may succeed on a new one."""
    state = getattr(error.orig, "sqlstate", None) or ""
    gone = state[:2] == "08" or state in ("57P01", "57P02", "57P03")
    cut = type(error.orig).__module__.startswith("psycopg") and not state  # the server had no chance to say why
    return bool(error.connection_invalidated or gone or cut)


def _made_file(name: str, create: bool) -> Path | None:
    """Make a file where there is none, and return it; None where there was one."""
    try:
        check_place(name)
    except ValueError as error:
        raise StoreError(f"cannot open {name}: {str(error).partition(': ')[2] or error}") from error
    path = Path(name)
    if not create and not path.exists():
        raise StoreError(f"there is no file {name}")
    with suppress(OSError):  # where it cannot be made, SQLite says why
        # Answers are nobody else's business; the files beside it get the same rights from SQLite.
        path.touch(0o600, exist_ok=False)
        return path
    return None


def _sqlite(name: str, timeout: float) -> tuple[sa.Engine, str]:
    if name in ("", MEMORY):
        from sqlalchemy.pool import StaticPool

        engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        name = MEMORY
    else:
        url = sa.URL.create("sqlite", database=str(Path(name)))
        # A connection is given back at once, so few are needed; a thread may use one that another opened.
        engine = sa.create_engine(url, connect_args={"timeout": timeout, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # Python's own module must not begin transactions: `begin` does
        connection.execute(f"PRAGMA busy_timeout={int(timeout * 1000)}")
        # The file keeps its kind of journal: a file of another program is refused later, and stays as it is.
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        for setting in (
            *(["journal_mode=WAL"] if not tables or _OURS in tables else []),
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",
            "cache_size=-512",  # KiB, of the 5 connections each: a file that grows must not grow in memory, too
        ):
            connection.execute(f"PRAGMA {setting}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that writes takes its turn at once: one that began by reading could not.
        reads = connection.get_execution_options().get("read")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine, name


def _postgres(text: str, timeout: float) -> tuple[sa.Engine, str]:
    try:
        url = sa.make_url(text).set(drivername="postgresql+psycopg")
    except (SQLAlchemyError, ValueError) as error:
        raise StoreError(f"this is not a URL of a database: {error}") from error
    options = f"-c lock_timeout={int(timeout * 1000)} -c client_encoding=utf8"
    arguments = {"options": options, "connect_timeout": max(2, int(timeout))}
    try:
        engine = sa.create_engine(url, connect_args=arguments, pool_pre_ping=True)
    except ImportError as error:
        raise ImportError("PostgreSQL needs psycopg; run pip install 'choicegp[postgres]'") from error
    return engine, url.render_as_string(hide_password=True).replace("+psycopg", "")
