"""Made problems on which no kernel was tuned: rotated variables, random networks, MaF-like problems, products, ratios.

Most structure of DTLZ and ZDT lies along single variables, which kernels with one lengthscale per feature find easily.
These problems have theirs across variables, so that they say more about data that nobody designed.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from choicegp.checks import whole_number
from choicegp.data.choices import ChoiceData
from choicegp.datasets.problems import evaluated_in_unit_box
from choicegp.datasets.published import ObjectTable
from choicegp.datasets.simulated import SyntheticChoices, feature_table, random_generator
from choicegp.errors import ChoiceGPError


class _Made(NamedTuple):
    """How a problem is made: its sizes, and minus its objectives at variables in the unit box."""

    n_variables: int
    n_objectives: int
    utilities: Callable[[np.ndarray, np.random.Generator], np.ndarray]


def _rotated(problem: str, n_objectives: int, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Evaluate a pymoo problem at variables that are turned around the centre of the box, and folded back into it."""
    turn, _ = np.linalg.qr(rng.normal(size=(x.shape[1], x.shape[1])))
    turned = 0.5 + (x - 0.5) @ turn
    folded = 1.0 - np.abs(1.0 - np.mod(turned, 2.0))
    return -evaluated_in_unit_box(problem, folded, n_objectives)


def _network(
    layers: tuple[int, ...], size: float, bend: Callable[[np.ndarray], np.ndarray], x: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """Return the outputs of a network of random weights; ``size`` scales the weights of its first layer."""
    values = 2.0 * x - 1.0
    for number, width in enumerate(layers):
        weights = rng.normal(size=(values.shape[1], width)) / np.sqrt(values.shape[1])
        values = values @ (weights * (size if number == 0 else 1.5))
        if number < len(layers) - 1:
            values = bend(values + rng.normal(size=width))
    return values


def _simplex(x: np.ndarray) -> np.ndarray:
    """Place objects on a triangle by their first two variables."""
    return np.column_stack([x[:, 0] * x[:, 1], x[:, 0] * (1.0 - x[:, 1]), 1.0 - x[:, 0]])


def _sphere(x: np.ndarray) -> np.ndarray:
    """Place objects on an eighth of a sphere by their first two variables."""
    a, b = (0.5 * np.pi * x[:, i] for i in (0, 1))
    return np.column_stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])


def _inverted(x: np.ndarray, _: np.random.Generator) -> np.ndarray:
    """Return MaF1: the complement of a plane front."""
    far = np.sum((x[:, 2:] - 0.5) ** 2, axis=1, keepdims=True)
    return -(1.0 + far) * (1.0 - _simplex(x))


def _convex(x: np.ndarray, _: np.random.Generator) -> np.ndarray:
    """Return a convex front as of MaF3, with two waves in each variable."""
    away = x[:, 2:] - 0.5
    far = np.sum(away**2 + 0.05 * (1.0 - np.cos(4.0 * np.pi * away)), axis=1, keepdims=True)
    front = (1.0 + far) * _sphere(x)
    return -np.column_stack([front[:, :2] ** 4, front[:, 2] ** 2])


def _scaled(x: np.ndarray, _: np.random.Generator) -> np.ndarray:
    """Return a front of very different scales as of MaF5, on which most objects crowd in one corner."""
    far = np.sum((x[:, 2:] - 0.5) ** 2, axis=1, keepdims=True)
    return -((((1.0 + far) * _sphere(np.column_stack([x[:, :2] ** 8, x[:, 2:]]))) ** 4) * np.array([8.0, 4.0, 2.0]))


def _distances(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return minus the distances from three random points, as of MaF8."""
    places = rng.uniform(0.1, 0.9, size=(3, x.shape[1]))
    return -np.sqrt(np.sum((x[:, None] - places) ** 2, axis=2))


def _products(x: np.ndarray, _: np.random.Generator) -> np.ndarray:
    x1, x2, x3, x4, x5, x6 = (x - 0.5).T
    return np.column_stack([x1 * x2 + x3 * x4, x2 * x5 - x4 * x6 + x1, x3 * x5 * 2.0 + x6 * x1])


def _ratios(x: np.ndarray, _: np.random.Generator) -> np.ndarray:
    x1, x2, x3, x4, x5, x6 = x.T
    return np.column_stack([(x1 + x2) / (0.2 + x3 + x4), (x5 + x3 * x6) / (0.2 + x1 + 0.5 * x6)])


def _interactions(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return products and ratios of random sums of variables, of which some have a kink."""
    sums = (x - 0.5) @ (rng.normal(size=(x.shape[1], 6)) / np.sqrt(x.shape[1]))
    s1, s2, s3, s4, s5, s6 = (3.0 * sums).T
    return np.column_stack([s1 * s2 - np.abs(s3), s4 / (1.0 + s5**2) + s1, s6 * np.abs(s2) + np.sin(2.0 * s4)])


_PROBLEMS: dict[str, _Made] = {
    "rotated-dtlz2": _Made(6, 3, partial(_rotated, "dtlz2", 3)),
    "rotated-dtlz5": _Made(6, 3, partial(_rotated, "dtlz5", 3)),
    "rotated-dtlz7": _Made(7, 3, partial(_rotated, "dtlz7", 3)),
    "rotated-zdt1": _Made(6, 2, partial(_rotated, "zdt1", 2)),
    "rotated-zdt3": _Made(6, 2, partial(_rotated, "zdt3", 2)),
    "rotated-zdt6": _Made(6, 2, partial(_rotated, "zdt6", 2)),
    "network-smooth": _Made(6, 3, partial(_network, (32, 32, 3), 2.0, np.tanh)),
    "network-rough": _Made(8, 2, partial(_network, (64, 32, 2), 3.0, np.tanh)),
    "network-kinked": _Made(6, 3, partial(_network, (32, 32, 32, 3), 3.0, np.abs)),
    "maf-inverted": _Made(6, 3, _inverted),
    "maf-convex": _Made(6, 3, _convex),
    "maf-scaled": _Made(7, 3, _scaled),
    "maf-distances": _Made(8, 3, _distances),
    "products": _Made(6, 3, _products),
    "ratios": _Made(6, 2, _ratios),
    "interactions": _Made(8, 3, _interactions),
}
MADE_PROBLEMS = tuple(_PROBLEMS)


def sizes_of(name: str) -> tuple[int, int]:
    """Return how many variables and objectives a made problem has."""
    return _PROBLEMS[name].n_variables, _PROBLEMS[name].n_objectives


def made_problem(name: str, n_objects: int = 1000, random_state: int | None = 0) -> ObjectTable:
    """Sample objects of a made problem, uniformly in the unit box; it has six to eight variables.

    Parameters
    ----------
    name : str
        "rotated-dtlz2", "rotated-dtlz5", "rotated-dtlz7", "rotated-zdt1", "rotated-zdt3", "rotated-zdt6" (from pymoo,
        the variables turned by a random rotation); "network-smooth", "network-rough", "network-kinked" (utilities are
        the outputs of random networks); "maf-inverted", "maf-convex", "maf-scaled", "maf-distances" (like MaF1, 3, 5
        and 8); "products", "ratios", "interactions".
    n_objects : int
    random_state : int or None
        Seed of the objects. None: a new one. What is random about a problem itself is always the same.

    Returns
    -------
    ObjectTable
        ``X`` (n_objects, 6 to 8), ``U`` (n_objects, 2 or 3).

    Examples
    --------
    >>> table = made_problem("ratios", n_objects=20)
    >>> table.X.shape, table.U.shape
    ((20, 6), (20, 2))
    """
    if not isinstance(name, str) or name.lower() not in _PROBLEMS:
        raise ChoiceGPError(f"no made problem is called {name!r}; there are {', '.join(_PROBLEMS)}")
    name = name.lower()
    made = _PROBLEMS[name]
    X = random_generator(random_state).uniform(size=(whole_number("n_objects", n_objects, 1), made.n_variables))
    U = made.utilities(X, np.random.default_rng(zlib.crc32(name.encode())))
    return ObjectTable(name, feature_table(X), U, tuple(f"u{i}" for i in range(1, made.n_objectives + 1)))


def made_choices(
    name: str, n_sets: int = 40960, set_size: int = 10, random_state: int | None = 0
) -> SyntheticChoices:  # fmt: skip
    """Simulate choices among the objects of a made problem; every set has objects of its own.

    Parameters
    ----------
    name, random_state
        As in `made_problem`.
    n_sets, set_size : int

    Returns
    -------
    SyntheticChoices

    Examples
    --------
    >>> simulated = made_choices("products", n_sets=100)
    >>> simulated.data.X.shape, simulated.U.shape
    ((1000, 6), (1000, 3))
    """
    n_sets, set_size = whole_number("n_sets", n_sets, 1), whole_number("set_size", set_size, 2)
    table = made_problem(name, n_sets * set_size, random_state)
    shown = np.arange(n_sets * set_size).reshape(n_sets, set_size)
    return SyntheticChoices(ChoiceData.from_utilities(table.X, table.U, shown), table.U, table.name)
