"""Simulated studies: many people who choose from sets, all in one way or each in her own."""

from typing import NamedTuple

import numpy as np

from choicegp.checks import brief, number_option, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.datasets.noisy import noisy_choices
from choicegp.datasets.simulated import random_generator

_LENGTHSCALE = 1.5


class PeopleData(NamedTuple):
    """A simulated study.

    Attributes
    ----------
    data : ChoiceData
        With respondents 0, 1, and so on.
    utilities : ndarray (n_people, t, d)
        The true utilities of each person at the objects, in units of the error scale.

    Examples
    --------
    >>> from choicegp import datasets
    >>> study = datasets.many_people(3, 2, n_objects=10)
    >>> len(study.data), study.utilities.shape
    (6, (3, 10, 2))
    """

    data: ChoiceData
    utilities: np.ndarray

    def __repr__(self) -> str:
        return brief(self)


def many_people(
    n_people: int,
    n_sets: int,
    between: float = 0.5,
    random_state: int | None = 0,
    *,
    n_objects: int = 100,
    n_features: int = 2,
    n_utilities: int = 2,
    set_size: int = 4,
    size: float = 5.0,
) -> PeopleData:
    """Simulate people whose utilities vary around what their population has in common.

    Parameters
    ----------
    n_people, n_sets : int
        Number of people, and of sets that each of them sees.
    between : float
        Share of the utilities' variance that is between people: 0 where all are the same, 1 where they have nothing in
        common.
    random_state : int or None
        Seed. None: a new one.
    n_objects, n_features, n_utilities, set_size : int
    size : float
        Standard deviation of a person's utilities, in units of the error scale.

    Returns
    -------
    PeopleData

    Examples
    --------
    >>> study = many_people(3, 2, between=0.0, n_objects=10)
    >>> study.data.respondents.tolist()
    [0, 0, 1, 1, 2, 2]
    >>> bool(np.allclose(study.utilities[0], study.utilities[2]))
    True
    """
    n_people, n_sets = whole_number("n_people", n_people, 1), whole_number("n_sets", n_sets, 1)
    between = number_option("between", between, 0.0, 1.0)
    rng = random_generator(random_state)
    X = rng.standard_normal((n_objects, n_features))
    distance = np.sum((X[:, None] - X[None]) ** 2, axis=2) / (n_features * _LENGTHSCALE**2)
    root = np.linalg.cholesky(np.exp(-distance) + 1e-8 * np.eye(n_objects))
    common = root @ rng.standard_normal((n_objects, n_utilities))
    own = np.einsum("st,rtd->rsd", root, rng.standard_normal((n_people, n_objects, n_utilities)))
    utilities = size * (np.sqrt(1.0 - between) * common + np.sqrt(between) * own)
    shown = [rng.choice(n_objects, set_size, replace=False) for _ in range(n_people * n_sets)]
    people = np.repeat(np.arange(n_people), n_sets)
    # Each person's objects are rows of their own while she answers.
    rows = [row + person * n_objects for row, person in zip(shown, people.tolist(), strict=True)]
    stacked = utilities.reshape(-1, n_utilities)
    answered = noisy_choices(np.zeros((len(stacked), 1)), stacked, rows, int(rng.integers(2**31)))
    chosen = [kept % n_objects for kept in answered.chosen or ()]
    return PeopleData(ChoiceData.from_sets(X, shown, chosen, respondents=people), utilities)
