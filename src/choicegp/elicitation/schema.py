"""Tables of the database, and how a database of an earlier version is migrated."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from choicegp.errors import StoreError

_VERSIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "choicegp_schema"
#: Of the lock that lets one process at a time migrate a PostgreSQL database.
_LOCK = 0x63_68_6F_69

METADATA = sa.MetaData()
_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Json = sa.JSON(none_as_null=True)

STUDY = sa.Table(
    "choicegp_study",
    METADATA,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_study"), primary_key=True, autoincrement=False),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("owner_hash", sa.String(64), nullable=False),
    sa.Column("settings", _Json, nullable=False),
    sa.Column("catalogue", _Json, nullable=False),
)

PARTICIPANTS = sa.Table(
    "choicegp_participants",
    METADATA,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("token_hash", sa.String(64), unique=True),
    sa.Column("name", sa.String(200), unique=True),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("joined", sa.String(40), nullable=False),
    sa.Column("panel", _Json, nullable=False),
    sqlite_autoincrement=True,  # an id is never given to a second person
)

EVENTS = sa.Table(
    "choicegp_events",
    METADATA,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("participant", _Id, sa.ForeignKey("choicegp_participants.id")),
    sa.Column("question", sa.String(100)),
    sa.Column("step", sa.SmallInteger),
    sa.Column("shown", _Json),
    sa.Column("chosen", _Json),
    sa.Column("again", sa.String(100)),
    sa.Column("design", sa.String(40)),
    sa.Column("value", sa.Float(53)),
    sa.Column("model", sa.String(100)),
    sa.Column("reason", sa.Text),
    # Whatever the program does, a question is asked, closed and undone at most once.
    sa.UniqueConstraint("question", "step", name="one_event_a_step"),
    sa.Index("choicegp_events_of_participant", "participant", "id"),
    sqlite_autoincrement=True,
)

#: What is to be worked out, at most one row for each kind and participant (0: for nobody alone).
JOBS = sa.Table(
    "choicegp_jobs",
    METADATA,
    sa.Column("kind", sa.String(10), primary_key=True),
    sa.Column("participant", _Id, primary_key=True, autoincrement=False),
    sa.Column("version", _Id, nullable=False),
    sa.Column("due", sa.String(40), nullable=False),
    sa.Column("claimed", sa.String(40)),
    sa.Column("worker", sa.String(100)),
    sa.Column("tries", sa.SmallInteger, nullable=False),
)

#: What was worked out last; without content where that failed.
RESULTS = sa.Table(
    "choicegp_results",
    METADATA,
    sa.Column("kind", sa.String(10), primary_key=True),
    sa.Column("participant", _Id, primary_key=True, autoincrement=False),
    sa.Column("version", _Id, nullable=False),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("content", sa.LargeBinary),
)


def migrate(engine: sa.Engine, where: str, versions: Path = _VERSIONS, to: str = "head") -> None:
    """Bring the database to the version that this program knows, in one transaction, or refuse a newer one."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(versions))
    known = [script.revision for script in scripts.walk_revisions()]

    def steps(revision: Any, _: Any) -> Any:
        return scripts._upgrade_revs(to, revision)

    with engine.connect().execution_options(read=True) as connection:
        if _version(connection, where, known) == known[0]:
            return
    options = {"version_table": VERSION_TABLE, "fn": steps, "transactional_ddl": True}
    with _alone(engine, where) as connection:
        _version(connection, where, known)  # another process may have been first
        context = MigrationContext.configure(connection, opts=options)
        with Operations.context(context):
            context.run_migrations()


@contextmanager
def _alone(engine: sa.Engine, where: str) -> Iterator[sa.Connection]:
    """Begin a transaction in which no other process migrates the same database."""
    with engine.connect() as connection:
        if connection.dialect.name != "sqlite":
            with connection.begin():
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
                yield connection
            return
        # Alembic rebuilds SQLite's tables and drops the old ones, whose rows must not count as deleted. The setting
        # cannot be changed inside a transaction.
        driver: Any = connection.connection.driver_connection
        driver.execute("PRAGMA foreign_keys=OFF")
        try:
            with connection.begin():
                yield connection
                if connection.execute(sa.text("PRAGMA foreign_key_check")).first() is not None:
                    raise StoreError(f"{where} is damaged: it has events of participants that are missing")
        finally:
            driver.execute("PRAGMA foreign_keys=ON")


def _version(connection: sa.Connection, where: str, known: list[str]) -> str | None:
    """Return the version of the database, None for a new one; refuse what this program does not know."""
    names = set(sa.inspect(connection).get_table_names())
    if VERSION_TABLE not in names:
        if names and connection.dialect.name == "sqlite":
            raise StoreError(f"{where} is a database of another program; name another file")
        return None
    found: str | None = connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if found is not None and found not in known:
        raise StoreError(
            f"{where} was written by a newer version of choicegp (its schema is {found}, and this version knows "
            f"{known[0]} and earlier); upgrade choicegp"
        )
    return found
