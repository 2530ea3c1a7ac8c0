"""The three problems of the benchmark, each with test sets over known and over new objects."""

from typing import NamedTuple

import numpy as np

from choicegp import ChoiceData, datasets


class Problem(NamedTuple):
    """Training sets, test sets over the same objects and test sets over new ones; and the number of utilities."""

    train: ChoiceData
    known: ChoiceData
    new: ChoiceData
    n_utilities: int


def sincos() -> Problem:
    """Read the paper's Example 1: 150 sets of 3 of 200 objects with one feature."""
    files = datasets.load_sincos()
    return Problem(files.train, files.known, files.new, 2)


def pairs() -> Problem:
    """Make vehicle crashworthiness: 60 objects, 1000 of their 1770 pairs."""
    table = datasets.vehicle(60, random_state=0)
    order = np.random.default_rng(0).permutation(datasets.all_pairs(60))
    fresh = datasets.vehicle(60, random_state=1)
    others = np.random.default_rng(1).permutation(datasets.all_pairs(60))[:1000]
    return Problem(table.choices(order[:1000]), table.choices(order[1000:]), fresh.choices(others), 3)


def tens() -> Problem:
    """Make DTLZ1 with 5 variables and 3 objectives: 100 objects, 200 sets of 10."""
    table, fresh = (
        datasets.benchmark_problem("dtlz1", 100, n_variables=5, n_objectives=3, random_state=seed) for seed in (0, 1)
    )
    train, known, new = (
        datasets.random_sets(100, n, 10, random_state=seed) for n, seed in ((200, 0), (500, 1), (500, 2))
    )
    return Problem(table.choices(train), table.choices(known), fresh.choices(new), 3)


def scaled(n_objects: int, n_sets: int) -> Problem:
    """Draw two smooth utilities over three features: any number of objects and of sets of 3; every object is shown."""
    drawn = datasets.gp_utilities(
        n_objects, n_features=3, n_utilities=2, n_sets=n_sets, set_size=3, lengthscale=1.5, random_state=0
    )
    return Problem(drawn.data, drawn.data, drawn.data, 2)


PROBLEMS = {"sincos": sincos, "pairs": pairs, "tens": tens}
