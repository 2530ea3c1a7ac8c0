"""What a threshold, another rule and mixed kinds of sets cost a step of dense inference, against the same sets without.

100 objects with two features, 150 sets of 4, two utilities, default options without intervals.  Each row is a real fit,
of which the last block of steps is made again; the blocks of all rows take turns, and the figures are medians of the
processor's time.  A threshold is one more object of every set, so sets of five objects stand beside it.

    python benchmarks/answers.py [--rounds 40] [--objects 100] [--sets 150]
"""

import argparse
import time
from collections.abc import Callable

import jax
import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.compute.devices import computing
from choicegp.experiments.results import markdown_table
from choicegp.inference.dense import DenseInference


def made(n_objects: int, n_sets: int) -> dict[str, tuple[ChoiceData, dict]]:
    """Return the data and the options of every row."""
    rng = np.random.default_rng(18)
    X = rng.standard_normal((n_objects, 2))
    U = 4.0 * np.column_stack([np.sin(X[:, 0]) + 0.3 * X[:, 1], np.cos(X[:, 1]) - 0.3 * X[:, 0]])
    fours, fives = ([rng.choice(n_objects, size, replace=False) for _ in range(n_sets)] for size in (4, 5))
    keep = datasets.noisy_choices(X, U, fours, 0)
    level = np.quantile(U, 0.6, axis=0)
    empty = datasets.noisy_choices(X, U, fours, 0, threshold=level)
    kinds = np.array(["keep", "keep", "best", "worst"], dtype=object)[np.arange(n_sets) % 4]
    return {
        "sets of four": (keep, {}),
        "with a threshold, none empty": (keep, {"threshold": True}),
        "with a threshold, some empty": (empty, {"threshold": True}),
        "the rule best-in-one": (keep, {"rule": "best-in-one"}),
        "half keep, a quarter best, a quarter worst": (datasets.noisy_choices(X, U, fours, 0, kinds=kinds), {}),
        "sets of five": (datasets.noisy_choices(X, U, fives, 0), {}),
    }


def last_block(data: ChoiceData, options: dict) -> tuple[Callable[[], object], int]:
    """Fit, and return what makes the last block of steps again, and the number of its steps."""
    blocks = []
    advance = DenseInference.advance

    def recorded(self: DenseInference, state, schedule):
        blocks.append((self, state, schedule))
        return advance(self, state, schedule)

    DenseInference.advance = recorded
    try:
        ChoiceGP(2, object_effects=False, intervals="none", progress=False, **options).fit(data)
    finally:
        DenseInference.advance = advance
    inference, state, schedule = blocks[-1]
    return lambda: jax.block_until_ready(advance(inference, state, schedule)), len(schedule[0])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--objects", type=int, default=100)
    parser.add_argument("--sets", type=int, default=150)
    args = parser.parse_args()
    blocks = {name: last_block(*row) for name, row in made(args.objects, args.sets).items()}
    seconds: dict[str, list[float]] = {name: [] for name in blocks}
    with computing():
        for _ in range(args.rounds):
            for name, (block, n_steps) in blocks.items():
                start = time.process_time()
                block()
                seconds[name].append((time.process_time() - start) / n_steps)
    median = {name: 1e3 * float(np.median(found)) for name, found in seconds.items()}
    first = median["sets of four"]
    rows = [(name, f"{ms:.2f}", f"{ms / first:.2f}") for name, ms in median.items()]
    print(markdown_table((f"{args.objects} objects, {args.sets} sets, d = 2", "ms a step", "times sets of four"), rows))


if __name__ == "__main__":
    main()
