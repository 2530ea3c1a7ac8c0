"""Objects from test problems of multi-criteria optimisation: DTLZ, ZDT and the vehicle model.

DTLZ and ZDT come from pymoo, an optional dependency (``pip install "choicegp[problems]"``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from choicegp.checks import whole_number
from choicegp.data.choices import ChoiceData
from choicegp.datasets.published import ObjectTable
from choicegp.datasets.simulated import SyntheticChoices, feature_table, random_generator
from choicegp.errors import ChoiceGPError

# ZDT5 is missing on purpose: its variables are strings of bits.
PROBLEMS = (*(f"dtlz{i}" for i in range(1, 8)), "zdt1", "zdt2", "zdt3", "zdt4", "zdt6")


def benchmark_problem(
    name: str,
    n_objects: int = 1000,
    n_variables: int | None = None,
    n_objectives: int | None = None,
    random_state: int | None = 0,
) -> ObjectTable:
    """Sample objects of a DTLZ or ZDT problem, uniformly in the problem's box.

    All objectives are minimised, so ``U`` holds minus their values. The box is [0, 1] for every variable,
    but [-5, 5] for all except the first of ZDT4.

    Parameters
    ----------
    name : str
        "dtlz1" to "dtlz7", "zdt1" to "zdt4" or "zdt6".
    n_objects : int
    n_variables : int, optional
        The number of features, at least the number of objectives; 6 by default, or more if there are more objectives.
    n_objectives : int, optional
        5 by default for DTLZ; ZDT problems have 2.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    ObjectTable
        ``X`` (n_objects, n_variables), ``U`` (n_objects, n_objectives).

    Notes
    -----
    With the usual exponent of 100, some objectives of DTLZ4 are so near to zero that they underflow:
    rare exact ties are a property of that problem.

    Examples
    --------
    >>> table = benchmark_problem("dtlz2", n_objects=20)
    >>> table.X.shape, table.U.shape
    ((20, 6), (20, 5))
    """
    name, n_variables, n_objectives = _problem_size(name, n_variables, n_objectives)
    n_objects = whole_number("n_objects", n_objects, 1)
    rng = random_generator(random_state)
    with _without_compile_hint():
        problem = _pymoo_problem(name, n_variables, n_objectives)
        X = rng.uniform(problem.xl, problem.xu, size=(n_objects, n_variables))
        F = problem.evaluate(X, return_values_of=["F"])
    names = tuple(f"f{i}" for i in range(1, n_objectives + 1))
    return ObjectTable(name, feature_table(X), -np.asarray(F, dtype=float), names)


def _pymoo_problem(name: str, n_variables: int, n_objectives: int) -> Any:
    sizes = {"n_var": n_variables} | ({"n_obj": n_objectives} if name.startswith("dtlz") else {})
    return _import_get_problem()(name, **sizes)


def evaluated_in_unit_box(name: str, X: np.ndarray, n_objectives: int) -> np.ndarray:
    """Return the objectives (t, d) of a DTLZ or ZDT problem at places (t, c), parts of the variables' ranges."""
    with _without_compile_hint():
        problem = _pymoo_problem(name, X.shape[1], n_objectives)
        at = problem.xl + X * (problem.xu - problem.xl)
        return np.asarray(problem.evaluate(at, return_values_of=["F"]), dtype=float)


def benchmark_choices(
    name: str,
    n_sets: int = 40960,
    set_size: int = 10,
    n_variables: int | None = None,
    n_objectives: int | None = None,
    random_state: int | None = 0,
) -> SyntheticChoices:
    """Simulate choices among the objects of a DTLZ or ZDT problem, by default at the paper's size.

    Every set has objects of its own, ``n_sets * set_size`` in all, so that a split by set never tests on
    objects that were trained on.

    Parameters
    ----------
    name, n_variables, n_objectives, random_state
        As in `benchmark_problem`.
    n_sets, set_size : int

    Returns
    -------
    SyntheticChoices

    Examples
    --------
    >>> simulated = benchmark_choices("zdt1", n_sets=100)
    >>> simulated.data.X.shape, simulated.U.shape
    ((1000, 6), (1000, 2))
    """
    n_sets = whole_number("n_sets", n_sets, 1)
    set_size = whole_number("set_size", set_size, 2)
    table = benchmark_problem(name, n_sets * set_size, n_variables, n_objectives, random_state)
    shown = np.arange(n_sets * set_size).reshape(n_sets, set_size)
    return SyntheticChoices(ChoiceData.from_utilities(table.X, table.U, shown), table.U, table.name)


def _problem_size(name: str, n_variables: int | None, n_objectives: int | None) -> tuple[str, int, int]:
    known = name.lower() if isinstance(name, str) else None
    if known not in PROBLEMS:
        raise ChoiceGPError(f"no benchmark problem is called {name!r}; there are {', '.join(PROBLEMS)}")
    if known.startswith("zdt"):
        n_objectives = 2 if n_objectives is None else n_objectives
        if n_objectives != 2:
            raise ChoiceGPError(f"{known} has 2 objectives, not {n_objectives!r}; take a dtlz problem for more")
    else:
        n_objectives = whole_number("n_objectives", 5 if n_objectives is None else n_objectives, 2)
    n_variables = max(6, n_objectives) if n_variables is None else n_variables
    return known, whole_number(f"n_variables of {known}", n_variables, n_objectives), n_objectives


def _import_get_problem() -> Callable[..., Any]:
    try:
        from pymoo.problems import get_problem
    except ImportError as error:
        raise ImportError(
            'the DTLZ and ZDT problems come from pymoo, which could not be imported: pip install "choicegp[problems]"'
        ) from error
    return get_problem


@contextmanager
def _without_compile_hint() -> Iterator[None]:
    """Keep pymoo from printing advice on its compiled modules, which play no part here."""
    from pymoo.config import Config

    before = Config.warnings["not_compiled"]
    Config.warnings["not_compiled"] = False
    try:
        yield
    finally:
        Config.warnings["not_compiled"] = before


def vehicle(n_objects: int = 50, random_state: int | None = 0) -> ObjectTable:
    """Sample the vehicle crashworthiness model of Yang et al.: five thicknesses, three outputs.

    The features are a Latin hypercube over [1, 3]^5. Mass, acceleration and intrusion are all minimised,
    so ``U`` holds minus their values.

    Parameters
    ----------
    n_objects : int
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    ObjectTable
        ``X`` (n_objects, 5), ``U`` (n_objects, 3).

    Examples
    --------
    >>> table = vehicle()
    >>> table.U.shape, table.output_names
    ((50, 3), ('mass', 'acceleration', 'intrusion'))
    """
    from scipy.stats import qmc

    sampler = qmc.LatinHypercube(5, rng=random_generator(random_state))
    X = 1 + 2 * sampler.random(whole_number("n_objects", n_objects, 1))
    return ObjectTable("vehicle", feature_table(X), -vehicle_outputs(X), ("mass", "acceleration", "intrusion"))


def vehicle_outputs(X: object) -> np.ndarray:
    """Return mass, acceleration and intrusion of designs of a vehicle.

    Parameters
    ----------
    X : array_like (t, 5)
        Five thicknesses, from 1 to 3.

    Returns
    -------
    ndarray (t, 3)
        Of each, less is better.

    Examples
    --------
    >>> vehicle_outputs([[1, 1, 1, 1, 1]]).round(4).tolist()
    [[1661.7078, 8.3046, 0.0708]]
    """
    thickness = np.asarray(X, dtype=float)
    if thickness.ndim != 2 or thickness.shape[1] != 5:
        raise ChoiceGPError(f"the vehicle model has five features: give shape (t, 5), not {thickness.shape}")
    x1, x2, x3, x4, x5 = thickness.T
    mass = 1640.2823 + 2.3573285 * x1 + 2.3220035 * x2 + 4.5688768 * x3 + 7.7213633 * x4 + 4.4559504 * x5
    acceleration = (
        6.5856 + 1.15 * x1 - 1.0427 * x2 + 0.9738 * x3 + 0.8364 * x4 - 0.3695 * x1 * x4 + 0.0861 * x1 * x5
    ) + (0.3628 * x2 * x4 - 0.1106 * x1**2 - 0.3437 * x3**2 + 0.1764 * x4**2)
    intrusion = (-0.0551 + 0.0181 * x1 + 0.1024 * x2 + 0.0421 * x3 - 0.0073 * x1 * x2 + 0.024 * x2 * x3) + (
        -0.0118 * x2 * x4 - 0.0204 * x3 * x4 - 0.008 * x3 * x5 - 0.0241 * x2**2 + 0.0109 * x4**2
    )
    return np.column_stack([mass, acceleration, intrusion])
