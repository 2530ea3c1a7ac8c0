"""Whether the memory of a worker of the page grows: thousands of refits of growing answers in one process.

Protocol.  Eight simulated people at a time answer ten questions about Alice's laptops at random, one to three answers
between two fits, and then leave; a worker's `Learner` fits them and designs their next sets as it does for the page.
Every fifty fits the memory of the process is printed.  At the end the mean of the last quarter of these looks may
exceed that of the second quarter by 5% at most.

Run: ``python studies/refits.py --seconds 400``; ``--heaps`` leaves the C library its several heaps.
"""

import argparse
import random
import re
import sys
import time
from pathlib import Path

import numpy as np

from choicegp import datasets
from choicegp.apps.server.heap import share_one_heap
from choicegp.apps.server.learning import Learner, LearningTask
from choicegp.apps.server.results import Setup
from choicegp.elicitation.events import ObjectId

SETS, SIZE, PEOPLE, EVERY = 10, 4, 8, 50
GROWTH = 0.05


def memory() -> float:
    """Return the resident MiB of this process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def main() -> int:
    """Fit until the time is up, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--heaps", action="store_true", help="do not let all threads share one heap")
    options = parser.parse_args()
    if not options.heaps:
        share_one_heap()
    objects = datasets.laptops()
    setup = Setup(
        tuple(map(str, objects.columns)), None, SETS, SIZE, 2, "information", False, {"en": {"axis": "", "labels": {}}}
    )
    learner, rng, labels = Learner(setup, objects), random.Random(0), objects.index.tolist()
    answers: dict[int, list[tuple[tuple[ObjectId, ...], tuple[ObjectId, ...]]]] = {}
    looks: list[float] = []
    n_people = n_fits = 0
    begun = time.monotonic()
    while time.monotonic() - begun < options.seconds:
        while len(answers) < PEOPLE:
            n_people += 1
            answers[n_people] = []
        person = rng.choice(list(answers))
        for _ in range(min(rng.randint(1, 3), SETS - len(answers[person]))):
            shown = tuple(rng.sample(labels, SIZE))
            answers[person].append((shown, tuple(rng.sample(shown, rng.randint(1, SIZE)))))
        if len(answers[person]) < 3:
            continue
        every_shown, every_chosen = zip(*answers[person], strict=True)
        learner.next_sets(LearningTask(person, every_shown, every_chosen, frozenset(map(frozenset, every_shown))), 3)
        n_fits += 1
        if len(answers[person]) == SETS:
            del answers[person]
            learner.forget([person])
        if n_fits % EVERY == 0:
            looks.append(memory())
            print(
                f"{n_fits} fits of {n_people} people, {time.monotonic() - begun:.0f} s: {looks[-1]:.1f} MiB", flush=True
            )
    quarters = [float(np.mean(part)) for part in np.array_split(looks, 4)]
    print(f"MiB, mean of each quarter: {', '.join(f'{mean:.1f}' for mean in quarters)}")
    return 0 if quarters[3] <= (1.0 + GROWTH) * quarters[1] else 1


if __name__ == "__main__":
    sys.exit(main())
