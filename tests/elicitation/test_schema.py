"""Databases of earlier and later versions."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from choicegp import Store, StoreError
from choicegp.elicitation import database, schema
from choicegp.elicitation.queue import Queue

KEPT = Path(__file__).parent / "data"
VERSIONS = Path(schema.__file__).parent / "migrations" / "versions"
NEXT = '''"""Version 3 of a program to come: participants have a language, and names may be longer."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("choicegp_participants") as table:
        table.add_column(sa.Column("language", sa.String(8), nullable=False, server_default="en"))
        table.alter_column("name", type_=sa.String(400))
'''


def at_version(place: str, version: str) -> database.Database:
    """Make a database as the program of an earlier version made it, with a study, answers and a skip."""
    opened = database.Database(place, 1.0)
    schema.migrate(opened.engine, place, to=version)
    rows = {
        "study": "1, '2026-01-01T00:00:00+00:00', 'open', 'x', '{}', "
        '\'{"index": null, "ids": ["pen", "ink"], "columns": [{"name": "x", "kind": "int64", "values": [1, 2]}]}\'',
        "participants": "1, 'hash', 'Anna', 'active', '2026-01-01T00:00:00+00:00', '{\"pid\": \"7\"}'",
    }
    with opened.engine.begin() as connection:
        for table, values in rows.items():
            connection.execute(sa.text(f"INSERT INTO choicegp_{table} VALUES ({values})".replace(":", r"\:")))
        for event in (
            {"kind": "asked", "question": "a", "step": 0, "shown": '["pen", "ink"]'},
            {"kind": "answered", "question": "a", "step": 1, "chosen": '["pen"]'},
            {"kind": "asked", "question": "b", "step": 0, "shown": '["ink", "pen"]', "design": "random"},
        ):
            given = event | {"at": "2026-01-01T00:00:00+00:00", "participant": 1}
            names, values = ", ".join(given), ", ".join(f":{name}" for name in given)
            if opened.engine.dialect.name != "sqlite":
                values = values.replace(":shown", "CAST(:shown AS json)").replace(":chosen", "CAST(:chosen AS json)")
            connection.execute(sa.text(f"INSERT INTO choicegp_events ({names}) VALUES ({values})"), given)
    return opened


def has_all_of_version_1(place: str) -> None:
    with Store.open(place) as store:
        [answer] = store.answers()
        assert (answer.question.ids, answer.chosen) == (("pen", "ink"), ("pen",))
        assert store.participant("Anna").panel == {"pid": "7"}
        assert store.answer("b", []).repeated is False
        assert len(store.data()) == 2


@pytest.mark.parametrize("version", ["0001", "0002"])
def test_a_database_of_an_earlier_version_is_read(place, version):
    at_version(place, version).close()
    has_all_of_version_1(place)


@pytest.mark.parametrize("version", [1, 2])
def test_a_study_that_an_earlier_program_wrote_is_read(version, tmp_path):
    """Read what the programs of these versions left in SQLite; the files hold the output of sqlite3's ``iterdump``."""
    place = tmp_path / "study.sqlite"
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.executescript((KEPT / f"study-v{version}.sql").read_text())
    with Store.open(place) as store:
        assert [(one.question.ids, one.chosen) for one in store.answers()] == [
            (("pen", "ink"), ("pen",)), (("cap", "pen"), ("cap",)),
        ]  # fmt: skip
        assert [(one.name, one.state) for one in store.participants()] == [("Anna", "active"), (None, "active")]
        assert store.participant("Anna").panel == {"pid": "7"}
        assert store.objects.loc["ink"].tolist() == [2.5, "blue"]
        assert store.settings["sets"] == 3
        assert [event.kind for event in store.events()].count("deleted") == 1
        again = store.open_question("Anna")
        assert (again.ids, again.design) == (("ink", "cap"), "random"), "an answer that was taken back is asked again"
        store.answer(again.key, ["cap"])
        assert len(store.data()) == 3
        queue = Queue(store)
        queue.want("next", 1, 20)
        job = queue.claim("a worker")
        assert (job.kind, job.participant) == (("next", 1) if version == 1 else ("explain", 2))
        assert version == 1 or queue.result("next", 1).content == b"found"


@pytest.fixture
def later(tmp_path, monkeypatch) -> Path:
    """Return a folder of migrations as a later version of the program has it."""
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    for module in VERSIONS.glob("v*.py"):
        (folder / "versions" / module.name).write_text(module.read_text())
    (folder / "versions" / "v0003.py").write_text(NEXT)
    return folder


def test_an_older_database_is_migrated_and_then_refused_by_the_older_program(place, later, monkeypatch):
    at_version(place, "0001").close()
    opened = database.Database(place, 1.0)
    schema.migrate(opened.engine, place, later)
    with opened.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT name, language FROM choicegp_participants")).all() == [("Anna", "en")]
        assert connection.execute(sa.text("SELECT count(*) FROM choicegp_events")).scalar() == 3
        if opened.engine.dialect.name == "sqlite":
            assert connection.execute(sa.text("PRAGMA foreign_keys")).scalar() == 1
    opened.close()
    with pytest.raises(StoreError, match=r"was written by a newer version of choicegp \(its schema is 0003.*; upgrade"):
        Store.open(place)


def test_a_migration_that_fails_changes_nothing(place, later):
    at_version(place, "0001").close()
    broken = later / "versions" / "v0003.py"
    broken.write_text(broken.read_text() + '    raise RuntimeError("half-way")\n')
    opened = database.Database(place, 1.0)
    with pytest.raises(RuntimeError, match="half-way"):
        schema.migrate(opened.engine, place, later)
    opened.close()
    has_all_of_version_1(place)


def test_the_tables_are_as_the_program_knows_them(place):
    """Compare what the migrations make with the metadata that queries are written with."""
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    opened = database.Database(place, 1.0)
    opened.migrate()
    with opened.engine.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), schema.METADATA) == []
    opened.close()
