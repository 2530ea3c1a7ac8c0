"""When a database fails: one clear error, and nothing lost or half-written."""

import os
import resource
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from choicegp import Store, StoreError

from .servers import CuttingProxy

NOBODY = 65534


@pytest.fixture
def file(tmp_path) -> str:
    return str(tmp_path / "study.db")


def with_question(place: str, pens) -> tuple[Store, str]:
    """Return a study with one answer and one open question, and the key of this."""
    store = Store.open(place, pens, timeout=0.2)
    store.join("Anna")
    store.answer(store.ask("Anna", ["pen", "ink"]).key, ["pen"])
    return store, store.ask("Anna", ["cap", "nib"]).key


def still_whole(store: Store, key: str) -> None:
    """Check that nothing was recorded by what failed, and that the same answer counts when all is well again."""
    assert len(store.answers()) == 1
    assert not store.answer(key, ["cap"]).repeated
    assert store.answer(key, ["cap"]).repeated
    assert len(store.answers()) == 2
    store.close()


def test_how_sqlite_is_used(file, pens):
    store, _ = with_question(file, pens)
    with store._database.engine.connect() as connection:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "secure_delete")
        found = [connection.execute(sa.text(f"PRAGMA {name}")).scalar() for name in names]
    assert found == ["wal", 2, 1, 200, 1]
    statements = []
    sa.event.listen(store._database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    store.join("Bert")
    assert statements[0] == "BEGIN IMMEDIATE"
    statements.clear()
    store.answers()
    assert statements[0] == "BEGIN"


def test_a_locked_file(file, pens):
    store, key = with_question(file, pens)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    expected = "study.db is in use by another program, which held it for more than 0.2 seconds; close it there, and try"
    with pytest.raises(StoreError, match=f"{expected} again. Nothing was recorded$"):
        store.answer(key, ["cap"])
    assert len(store.answers()) == 1, "others may read"
    other.rollback()
    other.close()
    still_whole(store, key)


def test_a_full_disk(file, pens):
    store, key = with_question(file, pens)

    @sa.event.listens_for(store._database.engine, "begin")
    def fill(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count=1")  # no page more than there are

    def join_until_the_last_page_is_full() -> None:
        for _ in range(200):
            store.join()

    with pytest.raises(
        StoreError, match=r"study.db cannot grow: the disk is full; free some space, and try again\. No"
    ):
        join_until_the_last_page_is_full()
    n = len(store.participants())
    sa.event.remove(store._database.engine, "begin", fill)
    store._database.engine.dispose()
    assert len(store.participants()) == n
    assert [event.kind for event in store.events()].count("joined") == n, "a participant and her event, or neither"
    still_whole(store, key)


def test_a_study_that_cannot_be_written_leaves_no_file(tmp_path, pens):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreError, match=r"new\.db cannot .* Nothing was changed"):
            Store.open(tmp_path / "new.db", pens)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_files_that_may_not_grow(file, pens):
    """The write itself fails, as on a full disk: nothing is recorded, then or later, until it succeeds."""
    store, key = with_question(file, pens)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(f"{file}-wal"), hard))
    try:
        for _ in range(2):
            with pytest.raises(
                StoreError, match=r"study.db cannot be read or written: the disk reports .* Nothing was"
            ):
                store.answer(key, ["cap"])
        assert len(store.answers()) == 1, "what was recorded can be read"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    still_whole(store, key)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Return a folder that others may read, for a test without root's rights, to whom no file is read-only."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_read_only_file(unprivileged, pens):
    file = unprivileged / "study.db"
    store, key = with_question(str(file), pens)
    store.close()
    for path in unprivileged.iterdir():
        path.chmod(0o444)
    unprivileged.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(
            StoreError, match=r"study.db cannot be (written: the file or its folder is read-only|opened)"
        ):
            Store.open(str(file))
    finally:
        if root:
            os.seteuid(0)
        unprivileged.chmod(0o755)
        file.chmod(0o644)
    still_whole(Store.open(str(file)), key)


def test_a_file_that_becomes_read_only(unprivileged, pens):
    file = unprivileged / "study.db"
    store, key = with_question(str(file), pens)
    sa.event.listen(store._database.engine, "begin", lambda c: c.exec_driver_sql("PRAGMA query_only=ON"))
    with pytest.raises(
        StoreError, match=r"study.db cannot be written: the file or its folder is read-only; change its"
    ):
        store.answer(key, ["cap"])
    store.close()
    still_whole(Store.open(str(file)), key)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("x" * 300 + ".db", "cannot open xxx.*: File name too long", id="a long name"),
        ("missing/study.db", "cannot open .*study.db: there is no folder .*missing"),
        (".", "is a folder; name a file in it"),
        ("mysql://host/study", "databases of the kind mysql are not known; name a file or a postgresql:// URL"),
        ("postgresql://host:port/study", "this is not a URL of a database"),
    ],
)
def test_places_that_are_none(name, message, pens, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for objects in (pens, None):
        with pytest.raises(StoreError, match=message):
            Store.open(name, objects)


@pytest.mark.parametrize(
    "change",
    [
        "chosen = NULL WHERE kind = 'answered'",
        "step = NULL WHERE kind = 'answered'",
        "step = 2 WHERE kind = 'answered'",
        "kind = 'undone' WHERE kind = 'answered'",
        "participant = 77",
    ],
)
def test_damage_that_would_lose_answers_is_named(file, pens, change):
    store, _ = with_question(file, pens)
    store.close()
    other = sqlite3.connect(file)
    other.execute(f"UPDATE choicegp_events SET {change}")
    other.commit()
    other.close()
    with Store.open(file) as store, pytest.raises(StoreError, match=r"study\.db is damaged; restore it from a copy"):
        store.data()


def test_a_participant_who_is_deleted_while_answers_are_read(file, pens, monkeypatch):
    """Answers and names are read in one state of the database: with her, or without her."""
    store, _ = with_question(file, pens)
    store.join("Bert")
    store.tell("Bert", ["pen", "nib"], ["nib"])
    other, read = Store.open(file), store._log.events

    def deleting(*given, **options):
        found = read(*given, **options)
        monkeypatch.setattr(store._log, "events", read)
        other.delete_participant("Bert")
        return found

    monkeypatch.setattr(store._log, "events", deleting)
    assert store.data().respondents.tolist() == ["Anna", "Bert"]
    assert store.data().respondents.tolist() == ["Anna"]
    other.close()
    store.close()


def test_files_that_are_no_studies(file, pens):
    Path(file).write_text("price\n3\n" * 1000)
    with pytest.raises(StoreError, match=r"study.db is not a database; name another file"):
        Store.open(file, pens)
    Path(file).unlink()
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE songs (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match=r"study.db is a database of another program; name another file"):
        Store.open(file, pens)


# PostgreSQL


def test_a_connection_cut_between_commit_and_reply_is_retried(postgres_url, pens):
    proxy = CuttingProxy(postgres_url)
    try:
        store, key = with_question(proxy.url, pens)
        proxy.armed = True
        recorded = store.answer(key, ["cap"])
        assert proxy.cuts == 1
        assert recorded.repeated, "the first attempt was committed, and the second found it"
        assert [event.kind for event in store.events("Anna")].count("answered") == 2
        for work in (
            lambda: store.join("Bert"),
            lambda: store.ask("Anna", ["pen", "nib"]),
            lambda: store.undo("Anna"),
            lambda: store.finish("Anna"),
            lambda: store.set_state("paused"),
            lambda: store.delete_participant("Bert"),
        ):
            before, cuts = len(store.events()), proxy.cuts
            proxy.armed = True
            work()
            assert proxy.cuts == cuts + 1
            assert 0 <= len(store.events()) - before <= 3
        kinds = [event.kind for event in store.events()]
        assert [kinds.count(kind) for kind in ("undone", "finished", "paused", "deleted")] == [1, 1, 1, 1]
        store.close()
    finally:
        proxy.close()


def test_a_lost_connection_is_opened_again(postgres_url, pens):
    store, key = with_question(postgres_url, pens)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    still_whole(store, key)


def test_a_server_that_is_gone(postgres_url, pens):
    proxy = CuttingProxy(postgres_url)
    store, key = with_question(proxy.url, pens)
    proxy.close()
    store._database.engine.dispose()
    with pytest.raises(
        StoreError, match=r"cannot be reached .*; check the URL and the server, and try again\. What is sent again"
    ):
        store.answer(key, ["cap"])
    still_whole(Store.open(postgres_url), key)


def test_a_locked_participant(postgres_url, pens):
    store, key = with_question(postgres_url, pens)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT * FROM choicegp_participants FOR UPDATE")
        with pytest.raises(StoreError, match=r"is in use by another program, which held it for more than 0.2 seconds"):
            store.answer(key, ["cap"])
    still_whole(store, key)


def test_a_read_only_server(postgres_url, pens):
    store, key = with_question(postgres_url, pens)
    store.close()
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store = Store.open(postgres_url)
        with pytest.raises(
            StoreError, match="cannot be written: the server or the user is read-only; use one that may"
        ):
            store.answer(key, ["cap"])
        other.execute("SET default_transaction_read_only = off")
        other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    store.close()
    still_whole(Store.open(postgres_url), key)


def test_a_database_that_does_not_exist(postgres_url, pens):
    with pytest.raises(StoreError, match=r"cannot be reached .*absent.* does not exist") as raised:
        Store.open(postgres_url.replace("study@", "study:secret@").replace("@/study", "@/absent"), pens)
    assert "secret" not in str(raised.value)


def test_a_missing_driver_is_named(monkeypatch, pens):
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'choicegp\[postgres\]'"):
        Store.open("postgresql://study@/study", pens)
