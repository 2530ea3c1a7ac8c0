"""A study at full speed for a long time: people arrive, answer, change their minds, leave and are deleted.

A real server on loopback with Alice's laptops and real fits by its workers.  As many clients as asked for play one
person after the other, without a pause: she joins, answers as many questions as she likes, skips some, takes some
answers back, and leaves, in a third of the cases before the last question.  At most ``--people`` people are kept: the
owner deletes the oldest ones, and nobody joins while she is behind.  All the while memory, open files and the files of
the study are measured.

At the end the log must equal what was acknowledged to the people who are left, nothing of the deleted ones may be in
it, and memory and files must not have grown: the mean of the last quarter of the time may exceed the mean of the second
quarter by a tenth at most.  The log keeps that somebody was deleted, and when: the database may grow by 300 bytes for
each deletion, and what is said of its size is about the rest.  ``--deleted`` begins with people who were deleted
before.

Run: ``python studies/soak_page.py --minutes 60`` and
``python studies/soak_page.py --minutes 1.5 --deleted 30000``
"""

import argparse
import asyncio
import random
import signal
import sqlite3
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
from load_page import KEY, Server

from choicegp import datasets
from choicegp.elicitation.store import Store

EVERY = 5.0  # seconds between two looks at memory and files
SAID = 60  # looks between two lines of output
PATIENCE = 600.0  # seconds for a reply: the machine may have other work
GROWTH = 0.1
NOTE = 300 / 2**20  # MiB that may be left of a person who was deleted


class Look(NamedTuple):
    """What was measured at one time."""

    memory: float  # MiB of the page's own process
    workers: float  # MiB of its workers
    handles: int  # open files of the page's process
    files: int  # files of the study
    size: float  # their MiB
    n_deleted: int


class Soak:
    """What the clients did, and what was acknowledged to them."""

    def __init__(self, server: Server, folder: Path, given: argparse.Namespace) -> None:
        self.server, self.folder, self.given = server, folder, given
        self.end = time.monotonic() + 60.0 * given.minutes
        self.present: deque[str] = deque()  # tokens of the people who have left and are not deleted
        self.answers: dict[str, dict[str, tuple[int, ...]]] = {}  # by token and key
        self.deleted: list[str] = []
        self.n_joined = self.n_answered = self.n_undone = self.n_skipped = self.n_busy = self.n_again = 0
        self.seconds: list[float] = []
        self.looks: list[Look] = []

    async def send(self, client: httpx.AsyncClient, url: str, data: dict) -> httpx.Response:
        """Post, wait a little where the page asks for patience, and send once more where a connection was closed."""
        while True:
            begun = time.perf_counter()
            try:
                reply = await client.post(url, data=data)
            except httpx.TransportError:  # an idle connection, just when it was to be used: a browser does the same
                assert self.server.process.poll() is None, "the server has ended"
                self.n_again += 1
                await asyncio.sleep(0.1)
                continue
            if reply.status_code != 429:
                assert reply.status_code < 400, f"{reply.status_code} {url}"
                self.seconds.append(time.perf_counter() - begun)
                return reply
            self.n_busy += 1
            await asyncio.sleep(0.2)

    async def client(self, number: int) -> None:
        """Play one person after the other."""
        rng = random.Random(number)
        # Every client has an address of its own: new people from one address are limited.
        transport = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{number + 2}")
        headers = {"Origin": self.server.url}
        while time.monotonic() < self.end:
            if len(self.present) > self.given.people:
                await asyncio.sleep(0.1)
                continue
            async with httpx.AsyncClient(
                headers=headers, timeout=PATIENCE, follow_redirects=True, transport=transport
            ) as client:
                await self.person(client, rng)
            transport = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{number + 2}")

    async def person(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        """Join, answer, and leave."""
        form = {"language": "en", "form": f"{rng.getrandbits(128):032x}"}
        page = await self.send(client, self.server.join, form)
        own = str(page.url).partition("?")[0]
        token, self.n_joined = own.rsplit("/", 1)[1], self.n_joined + 1
        mine = self.answers[token] = {}
        last = self.given.answers if rng.random() < 2 / 3 else rng.randrange(self.given.answers)
        n_done = 0
        while n_done < last:
            found = KEY.search(page.text)
            assert found is not None, page.text[:2000]
            key, what = found[1], rng.random()
            if what < 0.05:
                page = await self.send(client, f"{own}/answer", {"key": key, "action": "skip"})
                self.n_skipped, n_done = self.n_skipped + 1, n_done + 1
                continue
            ticked = tuple(sorted(rng.sample(range(4), rng.randint(1, 4))))
            data = {"key": key, "action": "keep", "chosen": [str(one) for one in ticked]}
            page = await self.send(client, f"{own}/answer", data)
            mine[key] = ticked
            self.n_answered, n_done = self.n_answered + 1, n_done + 1
            if what > 0.95 and n_done < last:
                page = await self.send(client, f"{own}/undo", {"key": key})
                del mine[key]
                self.n_undone, n_done = self.n_undone + 1, n_done - 1
        self.present.append(token)

    async def owner(self, store: Store) -> None:
        """Delete the oldest people, as their study's owner."""
        async with httpx.AsyncClient(
            headers={"Origin": self.server.url}, timeout=PATIENCE, follow_redirects=True
        ) as client:
            (await client.get(self.server.owner)).raise_for_status()
            while time.monotonic() < self.end:
                await asyncio.sleep(0.2)
                while len(self.present) > self.given.people:
                    token = self.present.popleft()
                    who = store.by_token(token)
                    assert who is not None
                    await self.send(client, f"{self.server.url}/owner/people/{who.id}/delete", {"sure": "yes"})
                    self.deleted.append(token)

    async def watch(self) -> None:
        """Measure."""
        while time.monotonic() < self.end:
            await asyncio.sleep(EVERY)
            process = Path(f"/proc/{self.server.process.pid}")
            files = [file.stat() for file in self.folder.iterdir() if file.exists()]
            self.looks.append(
                Look(
                    self.server.memory(), self.server.memory_of_workers(), len(list((process / "fd").iterdir())),
                    len(files), sum(file.st_size for file in files) / 2**20, len(self.deleted),
                )
            )  # fmt: skip
            if len(self.looks) % SAID == 0:
                now = self.looks[-1]
                print(
                    f"{self.n_answered} answers, {self.n_joined} people; page {now.memory:.0f} MiB, workers "
                    f"{now.workers:.0f} MiB, {now.handles} open files, {now.size:.1f} MiB in {now.files} files",
                    flush=True,
                )

    async def run(self, store: Store) -> None:
        """Let everyone in until the time is up."""
        clients = [self.client(number) for number in range(self.given.clients)]
        await asyncio.gather(*clients, self.owner(store), self.watch())


def print_looks(looks: list[Look]) -> bool:
    """Print the mean of each quarter of the time; return whether nothing has grown."""
    flat = True
    measured: dict[str, list[float]] = {
        "memory of the page, MiB": [look.memory for look in looks],
        "memory of its workers, MiB": [look.workers for look in looks],
        "open files": [look.handles for look in looks],
        "files of the study": [look.files for look in looks],
        "their size less notes of deletions, MiB": [look.size - NOTE * look.n_deleted for look in looks],
        "their size, MiB": [look.size for look in looks],
    }
    for name, values in measured.items():
        quarters = [float(np.mean(part)) for part in np.array_split(values, 4)]
        grown = name != "their size, MiB" and quarters[3] > (1.0 + GROWTH) * quarters[1]
        flat &= not grown
        shown = ", ".join(f"{mean:.1f}" for mean in quarters)
        print(f"{name}, mean of each quarter of the time: {shown}{'  GROWN' if grown else ''}")
    return flat


def add_deleted(file: Path, n: int) -> None:
    """Put people into the log who joined and were deleted before."""
    at, first = "2026-01-01T00:00:00.000000+00:00", 1_000_000
    numbers = [(number,) for number in range(first, first + n)]
    with sqlite3.connect(file) as connection:
        connection.executemany(
            f"INSERT INTO choicegp_participants (id, state, joined, panel) VALUES (?, 'deleted', '{at}', '{{}}')",
            numbers,
        )
        connection.executemany(
            f"INSERT INTO choicegp_events (at, kind, participant) VALUES ('{at}', 'deleted', ?)", numbers
        )
    connection.close()


def main() -> None:
    """Run, compare with the log, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8, help="number of people at the same time")
    parser.add_argument("--people", type=int, default=60, help="number of people who are not deleted")
    parser.add_argument("--answers", type=int, default=10, help="number of questions of a person")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--deleted", type=int, default=0, help="number of people who were deleted before")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        folder, objects = Path(name), Path(other) / "laptops.csv"
        datasets.laptops().reset_index().to_csv(objects, index=False)
        server = Server(folder, given.answers, given.workers, objects)
        add_deleted(folder / "study.sqlite", given.deleted)
        soak = Soak(server, folder, given)
        try:
            with Store.open(folder / "study.sqlite") as store:
                asyncio.run(soak.run(store))
            server.process.send_signal(signal.SIGINT)
            code = server.process.wait(PATIENCE)
        finally:
            server.process.kill()
        with Store.open(folder / "study.sqlite") as store:
            stored = {
                answer.question.key: {answer.question.ids.index(label) for label in answer.chosen}
                for answer in store.answers()
            }
            n_people, known = len(store.participants()), [token for token in soak.deleted if store.by_token(token)]
    deleted = set(soak.deleted)
    kept = [own for token, own in soak.answers.items() if token not in deleted]
    left = {key: set(ticked) for own in kept for key, ticked in own.items()}
    lost = [key for key, ticked in left.items() if stored.get(key) != ticked]
    p50, p95, worst = np.percentile(soak.seconds, [50, 95, 100])
    print(
        f"{soak.n_joined} people, {len(deleted)} of them deleted, {soak.n_answered} answers, {soak.n_undone} taken "
        f"back, {soak.n_skipped} questions skipped in {given.minutes:g} minutes; {soak.n_busy} requests asked to wait, "
        f"{soak.n_again} sent again"
    )
    print(f"a request: median {p50:.3f} s, 95th percentile {p95:.3f} s, worst {worst:.3f} s")
    print(f"acknowledged and lost or changed: {len(lost)}; stored and never acknowledged: {len(stored) - len(left)}")
    print(f"people in the log: {n_people} of {len(kept)} who are left; deleted and found: {len(known)}")
    flat = print_looks(soak.looks)
    if lost or known or len(stored) != len(left) or n_people != len(kept) or code or not flat:
        raise SystemExit(f"failed (exit code of the server: {code})")


if __name__ == "__main__":
    main()
