"""Choices that are simulated from known utilities.

Every generator is repeatable: the same ``random_state`` gives the same objects, sets and answers.  None draws a new
seed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import brief, seed, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError

SetSize = int | tuple[int, int]

# Added to a kernel's diagonal so that its Cholesky factor exists: a standard deviation of 1e-4 against 1.
_JITTER = 1e-8


class SyntheticChoices(NamedTuple):
    """Simulated choices and the utilities that made them.

    Attributes
    ----------
    data : ChoiceData
    U : ndarray of shape (t, d)
        The true utilities of every row of ``data.X``; higher is better.
    name : str

    Examples
    --------
    >>> from choicegp import datasets
    >>> data, U, name = datasets.sincos(n_objects=8, n_sets=5)
    >>> len(data), U.shape, name
    (5, (8, 2), 'sincos')
    """

    data: ChoiceData
    U: np.ndarray
    name: str

    def __repr__(self) -> str:
        return brief(self)


def random_generator(random_state: int | None, stream: int = 0) -> np.random.Generator:
    """Return the generator of one stream of `random_state`; streams of one seed are independent."""
    number = seed(random_state)
    # A seed and [seed, 0] give the same numbers, hence no list for the first stream.
    return np.random.default_rng([number, stream] if stream else number)


def draw_sets(rng: np.random.Generator, n_objects: int, n_sets: int, set_size: SetSize) -> list[np.ndarray]:
    """Draw sets as `random_sets` does, from a generator that is already under way."""
    n_objects = whole_number("n_objects", n_objects, 2)
    n_sets = whole_number("n_sets", n_sets, 1)
    low, high = _size_range(set_size, n_objects)
    sizes = rng.integers(low, high, size=n_sets, endpoint=True)
    return [rng.choice(n_objects, size=size, replace=False) for size in sizes]


def _size_range(set_size: SetSize, n_objects: int) -> tuple[int, int]:
    if isinstance(set_size, Sequence) and not isinstance(set_size, str):
        if len(set_size) != 2:
            raise ChoiceGPError(f"set_size must be a number or (smallest, largest), not {set_size!r}")
        low = whole_number("the smallest set_size", set_size[0], 2)
        high = whole_number("the largest set_size", set_size[1], low)
    else:
        low = high = whole_number("set_size", set_size, 2)
    if high > n_objects:
        raise ChoiceGPError(
            f"set_size {high} is more than the {n_objects} objects there are, and none can repeat in a set: "
            "ask for smaller sets or more objects"
        )
    return low, high


def random_sets(n_objects: int, n_sets: int, set_size: SetSize = 3, random_state: int | None = 0) -> list[np.ndarray]:
    """Draw sets of objects at random.

    Parameters
    ----------
    n_objects : int
        Objects are row numbers 0 to ``n_objects - 1``.
    n_sets : int
        Sets are drawn independently, so the same set may come twice.
    set_size : int or (int, int)
        Objects in a set, at least 2; (smallest, largest) draws each set's size uniformly.
        An object never repeats inside a set.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    list of ndarray
        The row numbers of each set, in random order.

    Examples
    --------
    >>> [len(rows) for rows in random_sets(10, 4, 3)]
    [3, 3, 3, 3]
    """
    return draw_sets(random_generator(random_state), n_objects, n_sets, set_size)


def all_pairs(n_objects: int) -> np.ndarray:
    """List every unordered pair of objects, each once.

    Parameters
    ----------
    n_objects : int

    Returns
    -------
    int ndarray (n_objects * (n_objects - 1) / 2, 2)
        Row numbers, the smaller one first.

    Examples
    --------
    >>> all_pairs(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    rows = np.triu_indices(whole_number("n_objects", n_objects, 2), k=1)
    return np.column_stack(rows)


def _one_feature(X: object) -> np.ndarray:
    x = np.asarray(X, dtype=float)
    if x.ndim == 2 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 1:
        raise ChoiceGPError(f"these objects have one feature: give shape (t,) or (t, 1), not {x.shape}")
    return x


def sincos_utilities(X: object) -> np.ndarray:
    """Return the utilities of the paper's Example 1, u(x) = [cos 2x, -sin 2x].

    Parameters
    ----------
    X : array_like (t,) or (t, 1)

    Returns
    -------
    ndarray (t, 2)

    Examples
    --------
    >>> sincos_utilities([0.0, 0.5]).round(2).tolist()
    [[1.0, -0.0], [0.54, -0.84]]
    """
    x = _one_feature(X)
    return np.column_stack([np.cos(2 * x), -np.sin(2 * x)])


def sincos(
    n_objects: int = 200, n_sets: int = 150, set_size: SetSize = 3, random_state: int | None = 0
) -> SyntheticChoices:
    """Simulate the paper's Example 1: one feature, uniform in [-4.5, 4.5], and two utilities.

    Parameters
    ----------
    n_objects, n_sets : int
    set_size : int or (int, int)
        As in `random_sets`.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    SyntheticChoices

    Examples
    --------
    >>> simulated = sincos(n_sets=50, set_size=5)
    >>> len(simulated.data), simulated.U.shape
    (50, (200, 2))
    """
    rng = random_generator(random_state)
    x = rng.uniform(-4.5, 4.5, size=whole_number("n_objects", n_objects, 2))
    U = sincos_utilities(x)
    shown = draw_sets(rng, n_objects, n_sets, set_size)
    return SyntheticChoices(ChoiceData.from_utilities(pd.DataFrame({"x": x}), U, shown), U, "sincos")


def counterexample_utility(X: object) -> np.ndarray:
    """Return the utility u(x) = cos 5x + exp(-x^2 / 8) of the paper's appendix.

    Parameters
    ----------
    X : array_like (t,) or (t, 1)

    Returns
    -------
    ndarray (t, 1)

    Examples
    --------
    >>> counterexample_utility([0.0]).tolist()
    [[2.0]]
    """
    x = _one_feature(X)
    return (np.cos(5 * x) + np.exp(-(x**2) / 8))[:, None]


def counterexample(n_objects: int = 150, n_pairs: int = 500, random_state: int | None = 0) -> SyntheticChoices:
    """Simulate the pairs on which ChoiceNN with two utilities fails: one feature, uniform in [-2.6, 2.6].

    There is one true utility, `counterexample_utility`. Pairs are drawn independently and may repeat.

    Parameters
    ----------
    n_objects, n_pairs : int
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    SyntheticChoices

    Examples
    --------
    >>> simulated = counterexample()
    >>> len(simulated.data), simulated.U.shape
    (500, (150, 1))
    """
    rng = random_generator(random_state)
    x = rng.uniform(-2.6, 2.6, size=whole_number("n_objects", n_objects, 2))
    U = counterexample_utility(x)
    shown = draw_sets(rng, n_objects, whole_number("n_pairs", n_pairs, 1), 2)
    return SyntheticChoices(ChoiceData.from_utilities(pd.DataFrame({"x": x}), U, shown), U, "counterexample")


def rbf(X: np.ndarray, lengthscale: float | Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the covariances (t, t) of an RBF kernel with variance 1."""
    scale = np.asarray(lengthscale, dtype=float)
    if scale.shape not in ((), (X.shape[1],)) or not np.all(np.isfinite(scale) & (scale > 0)):
        raise ChoiceGPError(
            f"lengthscale must be a positive number, or one for each of the {X.shape[1]} features, not {lengthscale!r}"
        )
    Z = X / scale
    squares = (Z**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * Z @ Z.T
    return np.exp(-np.maximum(distances, 0) / 2)


def feature_table(X: np.ndarray) -> pd.DataFrame:
    """Name the columns of `X` x1, x2 and so on."""
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(1, X.shape[1] + 1)])


def gp_utilities(
    n_objects: int = 100,
    n_features: int = 2,
    n_utilities: int = 2,
    n_sets: int = 100,
    set_size: SetSize = 3,
    lengthscale: float | Sequence[float] = 1.0,
    random_state: int | None = 0,
) -> SyntheticChoices:
    """Simulate choices from the model's own prior: each utility is a draw from a Gaussian process.

    The kernel is the RBF with variance 1. Answers carry no noise.

    Parameters
    ----------
    n_objects, n_features, n_utilities, n_sets : int
        The features are standard normal.
    set_size : int or (int, int)
        As in `random_sets`.
    lengthscale : float or sequence of float
        One, or one per feature; it means the same before and after standardising.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    SyntheticChoices

    Examples
    --------
    >>> simulated = gp_utilities(n_objects=30, n_utilities=3, n_sets=40)
    >>> len(simulated.data), simulated.U.shape
    (40, (30, 3))
    """
    rng = random_generator(random_state)
    shape = (whole_number("n_objects", n_objects, 2), whole_number("n_features", n_features, 1))
    X = rng.standard_normal(shape)
    factor = np.linalg.cholesky(rbf(X, lengthscale) + _JITTER * np.eye(n_objects))
    U = factor @ rng.standard_normal((n_objects, whole_number("n_utilities", n_utilities, 1)))
    shown = draw_sets(rng, n_objects, n_sets, set_size)
    return SyntheticChoices(ChoiceData.from_utilities(feature_table(X), U, shown), U, "gp")
