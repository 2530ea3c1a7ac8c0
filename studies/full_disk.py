"""Whether answers survive a disk that is really full, and a file system that is really read-only (Linux, as root).

A small file system is mounted in memory. A study on it, in an SQLite file and in a tablespace of PostgreSQL, is
answered until the disk is full; the same is then sent three times more, another process reads the study, the file
system is enlarged, and all is sent again. Then an SQLite file whose file system becomes read-only, and a study that is
to be created on a full disk.

    python studies/full_disk.py
"""

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import psycopg

from choicegp import Store, StoreError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "elicitation"))

from servers import binaries, postgres

OBJECTS = pd.DataFrame({"price": range(8)}, index=[f"object {i}" for i in range(8)])
READ = "import sys; from choicegp import Store; print(len(Store.open(sys.argv[1]).answers()))"
MOST = 20_000  # answers by which the disk should be full


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a file system of this size."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def remounted(folder: Path, option: str) -> None:
    """Change an option of a mounted file system."""
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def refused(work: Callable[[], object]) -> str:
    """Return the message with which something is refused."""
    try:
        work()
    except StoreError as error:
        return str(error)
    raise AssertionError("it was not refused")


def fill(place: str, folder: Path, larger: str) -> None:
    """Answer until the disk is full, and on; check that nothing is lost or doubled."""
    with Store.open(place, OBJECTS, timeout=0.5) as store:
        store.join("Anna")
        reason, keys, n, message = os.urandom(2000).hex(), [], 0, ""
        while not message and n < MOST:
            keys.append(f"question {len(keys)}")
            try:
                store.ask("Anna", OBJECTS.index[:4], reason=reason, key=keys[-1])
                store.answer(keys[-1], OBJECTS.index[:1])
                n += 1
            except StoreError as error:
                message = str(error)
        print(f"  {n} answers, then: {message}")

        def send_again() -> bool:
            store.ask("Anna", OBJECTS.index[:4], reason=reason, key=keys[-1])
            return store.answer(keys[-1], OBJECTS.index[:1]).repeated

        for _ in range(3):
            refused(send_again)
        read = subprocess.run([sys.executable, "-c", READ, place], check=True, capture_output=True, text=True).stdout
        assert len(store.answers()) == int(read) == n, "what was acknowledged can be read, and nothing else"
        remounted(folder, f"size={larger}")
        assert [send_again() for _ in range(2)] == [False, True]
        assert len(store.answers()) == n + 1
        print(f"  with space again: {n + 1} answers, none lost, none doubled")


def full_sqlite() -> None:
    """Fill the disk of an SQLite file."""
    print("SQLite")
    with small_disk("1m") as folder:
        fill(str(folder / "study.db"), folder, "2m")


def full_postgres() -> None:
    """Fill the disk of a tablespace of PostgreSQL."""
    print("PostgreSQL")
    with postgres() as url, small_disk("16m") as folder:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
            server.execute("CREATE DATABASE small TABLESPACE small")
            fill(url.replace("/postgres?", "/small?"), folder, "32m")
            server.execute("DROP DATABASE small WITH (FORCE)")
            server.execute("DROP TABLESPACE small")


def read_only() -> None:
    """Answer while the file system may only be read."""
    with small_disk("1m") as folder:
        store = Store.open(folder / "study.db", OBJECTS)
        store.join("Anna")
        question = store.ask("Anna", OBJECTS.index[:4])
        store.close()  # a file system with open files cannot become read-only; the store opens it again when needed
        remounted(folder, "ro")
        print("read-only:", refused(lambda: store.answer(question.key, question.ids[:1])))
        print("read-only, opened:", refused(lambda: Store.open(folder / "study.db")))
        remounted(folder, "rw")
        assert not store.answer(question.key, question.ids[:1]).repeated
        assert len(store.answers()) == 1
        store.close()


def no_room() -> None:
    """Create a study where there is no room for one."""
    with small_disk("1m") as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(b"x" * (2**20 - 8192))
        print("created on a full disk:", refused(lambda: Store.open(folder / "study.db", OBJECTS)))
        ballast.unlink()
        with Store.open(folder / "study.db", OBJECTS) as store:
            assert [event.kind for event in store.events()] == ["opened"]


if __name__ == "__main__":
    full_sqlite()
    if binaries() is None:
        print("PostgreSQL: skipped, because initdb and postgres are missing; install the package postgresql")
    else:
        full_postgres()
    read_only()
    no_room()
