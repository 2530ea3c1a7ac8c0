"""Whether an answer is ever lost, and how long the next page takes, with many people at once.

A real server on loopback with Alice's laptops, real fits by its workers, and as many clients as asked for. In the
middle the server is killed and started again; who was answering sends the same answer again. At the end the log is
compared with what was acknowledged to the clients, and says how many questions a model has designed.

    python studies/load_page.py --people 50 --answers 30 --think 6 --workers 2
"""

import argparse
import asyncio
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

from choicegp import datasets
from choicegp.apps.server.thinking import LEAST_ANSWERS
from choicegp.elicitation.events import Event
from choicegp.elicitation.store import Store

KEY = re.compile(r'name="key" value="([^"]*)"')


class Server:
    """The command `choicegp serve` in a process of its own."""

    def __init__(self, folder: Path, answers: int, workers: int, objects: Path | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._command = [
            sys.executable, "-m", "choicegp.apps.cli", "serve", str(objects or folder / "laptops.csv"), "--db",
            str(folder / "study.sqlite"), "--port", str(self.port), "--sets", str(answers), "--workers",
            str(workers),
        ]  # fmt: skip
        self.join = self.owner = ""
        self.start()

    def start(self) -> None:
        """Start, and wait for the links."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.match(r"Participants: (\S+)", line):
                self.join = found[1]
            if found := re.match(r"Owner:\s+(http\S+)", line):
                self.owner = found[1]
            if line.startswith("Stop with"):
                return
        raise SystemExit("the server did not start")

    def kill(self) -> None:
        """Kill, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def memory(self) -> float:
        """Return the resident MiB of the page's own process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def memory_of_workers(self) -> float:
        """Return the resident MiB of all processes that the page has started."""
        total = 0
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
            except OSError:  # it has ended
                continue
            if re.search(rf"^PPid:\s+{self.process.pid}$", text, flags=re.M) and (
                found := re.search(r"VmRSS:\s+(\d+)", text)
            ):
                total += int(found[1])
        return total / 1024


class Watch:
    """What the clients saw."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.retried = 0
        self.acknowledged: dict[str, tuple[int, ...]] = {}
        self.n_answers: dict[int, int] = {}


async def patiently(watch: Watch, send: object) -> httpx.Response:
    """Send until there is a reply: the server may be away for a while."""
    while True:
        try:
            reply: httpx.Response = await send()  # type: ignore[operator]
            if reply.status_code < 500:
                return reply
        except httpx.TransportError:
            pass
        watch.retried += 1
        await asyncio.sleep(0.3)


async def person(number: int, server: Server, watch: Watch, answers: int, think: float) -> None:
    """Join and answer all questions, at a person's pace."""
    rng = random.Random(number)
    await asyncio.sleep(rng.uniform(0, think))
    headers = {"Origin": server.url}
    async with httpx.AsyncClient(headers=headers, timeout=30, follow_redirects=True) as client:
        form = {"language": "en", "form": f"the-form-of-a-load-test-{number:05}"}
        page = await patiently(watch, lambda: client.post(server.join, data=form))
        own = str(page.url)
        for n in range(answers):
            await asyncio.sleep(rng.expovariate(1 / think))
            found = KEY.search(page.text)
            assert found is not None, page.text[:2000]
            ticked = tuple(sorted(rng.sample(range(4), rng.randint(1, 4))))
            data = {"key": found[1], "action": "keep", "chosen": [str(one) for one in ticked]}
            before, begun = watch.retried, time.perf_counter()
            page = await patiently(watch, lambda data=data: client.post(f"{own}/answer", data=data))
            if KEY.search(page.text) is None and n < answers - 1:
                # The server died after it recorded the answer and before it asked the next question.
                page = await patiently(watch, lambda: client.post(f"{own}/next"))
            watch.acknowledged[found[1]] = ticked
            watch.n_answers[number] = n + 1
            if watch.retried == before:
                watch.seconds.append(time.perf_counter() - begun)


async def everyone(server: Server, people: int, answers: int, think: float, kill: bool) -> tuple[Watch, list[float]]:
    """Let everyone answer, watch the memory, and kill the server once."""
    watch, memory = Watch(), []
    tasks = [asyncio.create_task(person(i, server, watch, answers, think)) for i in range(people)]
    killed = not kill
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.5)
        if not killed and len(watch.acknowledged) > people * answers // 4:
            killed = True
            server.kill()
            begun = time.perf_counter()
            await asyncio.to_thread(server.start)
            print(f"killed after {len(watch.acknowledged)} answers; back after {time.perf_counter() - begun:.1f} s")
            memory.clear()
        elif killed and len(watch.acknowledged) > people * max(answers - 20, 0):
            memory.append(server.memory())
    for task in tasks:
        task.result()
    return watch, memory


def print_designs(asked: list[Event]) -> None:
    """Say which designs made the questions: all of them, and of each person the ones for which a model is possible."""
    designs = Counter(str(event.design) for event in asked)
    number: Counter[int | None] = Counter()
    later = []
    for event in asked:
        number[event.participant] += 1
        if number[event.participant] > LEAST_ANSWERS + 1:
            later.append(event.model is not None)
    print(f"designs of all questions: {dict(designs)}")
    print(f"designed by a model, of the questions after the first {LEAST_ANSWERS + 1}: {np.mean(later):.3f}")
    thirds = [f"{np.mean(part):.3f}" for part in np.array_split(later, 3)]
    print(f"the same in each third of the time: {', '.join(thirds)}")


def main() -> None:
    """Run, compare with the log, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--answers", type=int, default=30)
    parser.add_argument("--think", type=float, default=6.0, help="mean seconds between two answers of a person")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-kill", action="store_true", help="do not kill the server in the middle")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        datasets.laptops().reset_index().to_csv(folder / "laptops.csv", index=False)
        server = Server(folder, given.answers, given.workers)
        begun = time.perf_counter()
        watch, memory = asyncio.run(everyone(server, given.people, given.answers, given.think, not given.no_kill))
        seconds = time.perf_counter() - begun
        server.process.send_signal(signal.SIGINT)
        server.process.wait(30)
        with Store.open(folder / "study.sqlite") as store:
            given_answers = store.answers()
            asked = [event for event in store.events() if event.kind == "asked"]
    stored = {one.question.key: {one.question.ids.index(label) for label in one.chosen} for one in given_answers}
    lost = [key for key, ticked in watch.acknowledged.items() if stored.get(key) != set(ticked)]
    p50, p95, worst = np.percentile(watch.seconds, [50, 95, 100])
    unknown = len(stored) - len(watch.acknowledged)
    print(f"{len(stored)} answers of {given.people} people in {seconds:.0f} s; {watch.retried} requests sent again")
    print(f"acknowledged and lost or changed: {len(lost)}; stored and never acknowledged: {unknown}")
    print(f"next page: median {p50:.3f} s, 95th percentile {p95:.3f} s, worst {worst:.3f} s")
    print_designs(asked)
    if memory:
        quarters = [f"{np.mean(part):.1f}" for part in np.array_split(memory, 4)]
        print(f"memory over the last 20 answers, mean of each quarter: {', '.join(quarters)} MiB")
    if lost or len(stored) != given.people * given.answers or p95 > 1.0:
        raise SystemExit("failed")


if __name__ == "__main__":
    main()
