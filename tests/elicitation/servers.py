"""A PostgreSQL server of its own for tests and studies, and a proxy that cuts its connections."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

USERS = ("postgres", "nobody")  # who runs the server where root does the tests: it refuses to run as root
SECONDS = 30


def binaries() -> Path | None:
    """Return the folder of initdb and postgres, or None where they are missing."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).parent if named else None


def _user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    import pwd

    for name in USERS:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)}")


@contextlib.contextmanager
def postgres(*, durable: bool = False) -> Iterator[str]:
    """Run a server that listens on a socket in a temporary folder, and yield the URL of its first database."""
    folder, user = binaries(), _user()
    assert folder is not None
    # Not in pytest's own folder: the name of a socket has about 100 letters at most.
    with tempfile.TemporaryDirectory(prefix="choicegp-pg-", dir="/tmp") as place:
        if user:
            os.chown(place, user["user"], user["group"])
        data = Path(place, "data")
        new = [folder / "initdb", "-D", data, "-A", "trust", "-U", "study", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(new, check=True, capture_output=True, timeout=SECONDS, cwd=place, **user)
        sync = [] if durable else ["-c", "fsync=off"]
        command = [folder / "postgres", "-D", data, "-k", place, "-c", "listen_addresses=", *sync]
        with Path(place, "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=place, **user)
        try:
            url = f"postgresql://study@/postgres?host={place}"
            _wait(url, server, Path(place, "log"))
            yield url
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nobody needs its files any more
            server.wait(SECONDS)


def _wait(url: str, server: subprocess.Popen, log: Path) -> None:
    import psycopg

    end = time.monotonic() + SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}") from None
            time.sleep(0.05)


def new_database(url: str, name: str) -> str:
    """Create a database on the server and return its URL."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.replace("/postgres?", f"/{name}?")


class CuttingProxy:
    """Forwards connections to a server; when told to, it drops one after a COMMIT was done and before its reply."""

    def __init__(self, url: str) -> None:
        self.armed = False
        self.cuts = 0
        self._target = url.partition("?host=")[2] + "/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.partition("?")[0].replace("@/", f"@127.0.0.1:{self._listener.getsockname()[1]}/")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                threading.Thread(target=self._forward, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                # The server's reply to COMMIT begins with the tag C, a length and the same word.
                if not to_server and self.armed and b"COMMIT\0" in data:
                    self.armed = False
                    self.cuts += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # else the thread would accept one more
        self._listener.close()
