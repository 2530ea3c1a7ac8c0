"""Answer questions in real processes that are killed at any moment; used by the tests and by a study.

Processes are forked from one that has imported everything: a new one is there within milliseconds.
"""

import os
import random
import signal
import sys
import time

import pandas as pd

from choicegp.elicitation.store import Store

OBJECTS = pd.DataFrame({"price": range(8)}, index=[f"object {i}" for i in range(8)])


def answer_for_ever(place: str, seed: int, report: int) -> None:
    """Ask and answer; before an answer is sent and after it was acknowledged, say so."""
    rng = random.Random(seed)
    store = Store.open(place)
    while True:
        question = store.ask("Anna", rng.sample(OBJECTS.index.tolist(), 4))
        chosen = [one for one in question.ids if rng.random() < 0.5]
        line = f"{question.key}\t{'|'.join(chosen)}\n"
        os.write(report, b"sent\t" + line.encode())
        store.answer(question.key, chosen)
        os.write(report, b"done\t" + line.encode())


def killed(place: str, seed: int, longest: float) -> tuple[dict[str, str], dict[str, str]]:
    """Kill one process at a random moment; return what it had sent, and what of it was acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            answer_for_ever(place, seed, writing)
        finally:
            os._exit(1)
    os.close(writing)
    text = b""
    with os.fdopen(reading, "rb") as pipe:
        first = os.read(pipe.fileno(), 65536)
        time.sleep(random.Random(-seed - 1).uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        text = first + pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the process ended by itself: {status}"
    lines = [line.split("\t") for line in text.decode().splitlines()]
    sent = {key: chosen for word, key, chosen in lines if word == "sent"}
    return sent, {key: chosen for word, key, chosen in lines if word == "done"}


def check(place: str, sent: dict[str, str], done: dict[str, str]) -> int:
    """Compare the log with what was acknowledged; return the number of answers."""
    with Store.open(place) as store:
        events = [event for event in store.events() if event.kind == "answered"]
        recorded = {event.question: "|".join(event.chosen) for event in events}
        assert len(recorded) == len(events), "an answer was doubled"
        lost = {key: chosen for key, chosen in done.items() if recorded.get(key) != chosen}
        assert not lost, f"acknowledged answers were lost: {lost}"
        unknown = {key for key, chosen in recorded.items() if sent.get(key) != chosen}
        assert not unknown, f"answers that nobody sent: {unknown}"
        assert len(store.answers()) == len(events)
    return len(events)


def kill_often(place: str, times: int, longest: float = 0.03, seconds: float = 600.0) -> str:
    """Kill a process that answers, again and again, and check the log after each kill; return what was seen."""
    with Store.open(place, OBJECTS) as store:
        store.found_or_joined("Anna")
    sent: dict[str, str] = {}
    done: dict[str, str] = {}
    between, again, kills, end = 0, 0, 0, time.monotonic() + seconds
    while kills < times and time.monotonic() < end:
        kills += 1
        more_sent, more_done = killed(place, kills, longest)
        sent, done = sent | more_sent, done | more_done
        check(place, sent, done)
        for key in more_sent.keys() - more_done.keys():  # the client does not know, and sends it again: counts once
            between += 1
            with Store.open(place) as store:
                again += store.answer(key, [one for one in sent[key].split("|") if one]).repeated
            done[key] = sent[key]
    n = check(place, sent, done)
    return f"{kills} kills, {n} answers, {between} killed before the reply, of which {again} were recorded already"


if __name__ == "__main__":
    print(kill_often(sys.argv[1], int(sys.argv[2])))
