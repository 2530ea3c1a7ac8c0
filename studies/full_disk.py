"""Whether answers survive a disk that is really full, and a file system that is really read-only (Linux, as root).

A file system of 1 MB is mounted in memory.  A study on it is answered until the disk is full; then the same answer is
sent three times, another process reads the study, the file system is enlarged, and the answer is sent once more.  Then
the same with a file system that becomes read-only, and with a study that is to be created on a full disk.

    python studies/full_disk.py
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from choicegp import Store, StoreError

OBJECTS = pd.DataFrame({"price": range(8)}, index=[f"object {i}" for i in range(8)])
READ = "import sys; from choicegp import Store; print(len(Store.open(sys.argv[1]).answers()))"


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a file system of 1 MB."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def remounted(folder: Path, option: str) -> None:
    """Change an option of a mounted file system."""
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def refused(work) -> str:
    """Return the message with which something is refused."""
    try:
        work()
    except StoreError as error:
        return str(error)
    raise AssertionError("it was not refused")


def full() -> None:
    """Answer until the disk is full, and on."""
    with small_disk() as folder, Store.open(folder / "study.db", OBJECTS, timeout=0.5) as store:
        store.join("Anna")
        n, message, question = 0, "", None
        while not message:
            try:
                question = store.ask("Anna", OBJECTS.index[:4], reason="until the disk is full")
                store.answer(question.key, question.shown[:1])
                n += 1
            except StoreError as error:
                message = str(error)
        print(f"{n} answers, then: {message}")
        assert question is not None
        for _ in range(3):
            assert refused(lambda: store.answer(question.key, question.shown[:1])) == message
        elsewhere = subprocess.run(
            [sys.executable, "-c", READ, folder / "study.db"], check=True, capture_output=True, text=True
        ).stdout
        assert len(store.answers()) == int(elsewhere) == n, "what was acknowledged can be read"
        remounted(folder, "size=2m")
        question = store.ask("Anna", OBJECTS.index[:4])
        assert [store.answer(question.key, question.shown[:1]).repeated for _ in range(2)] == [False, True]
        assert len(store.answers()) == n + 1
        print(f"with space again: {n + 1} answers, none lost, none doubled")


def read_only() -> None:
    """Answer while the file system may only be read."""
    with small_disk() as folder:
        store = Store.open(folder / "study.db", OBJECTS)
        store.join("Anna")
        question = store.ask("Anna", OBJECTS.index[:4])
        store.close()  # a file system with open files cannot become read-only; the store opens it again when needed
        remounted(folder, "ro")
        print("read-only:", refused(lambda: store.answer(question.key, question.shown[:1])))
        print("read-only, opened:", refused(lambda: Store.open(folder / "study.db")))
        remounted(folder, "rw")
        assert not store.answer(question.key, question.shown[:1]).repeated
        assert len(store.answers()) == 1
        store.close()


def no_room() -> None:
    """Create a study where there is no room for one."""
    with small_disk() as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(b"x" * (2**20 - 8192))
        print("created on a full disk:", refused(lambda: Store.open(folder / "study.db", OBJECTS)))
        ballast.unlink()
        with Store.open(folder / "study.db", OBJECTS) as store:
            assert [event.kind for event in store.events()] == ["opened"]


if __name__ == "__main__":
    full()
    read_only()
    no_room()
