"""Preferences that no single utility explains, and free answers to the same pairs."""

from collections.abc import Sequence
from itertools import combinations_with_replacement
from numbers import Real
from typing import NamedTuple

import numpy as np

from choicegp.checks import brief, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.datasets.simulated import all_pairs, feature_table, random_generator, rbf
from choicegp.errors import ChoiceGPError


class InconsistentPreferences(NamedTuple):
    """The same pairs answered twice: with one forced winner, and with every object that is not dominated.

    ``forced_train`` and ``pareto_train`` hold the same pairs in the same order; so do the ``_test`` ones.

    Attributes
    ----------
    forced_train, forced_test : ChoiceData
        One winner in every pair, found by the utility of the two objects' hidden classes.
    pareto_train, pareto_test : ChoiceData
        The winner alone where it is better in all the utilities, otherwise both objects.
    U : ndarray of shape (t, L * (L + 1) / 2)
        The true utilities, one column per row of ``class_pairs``.
    classes : ndarray of shape (t,)
        The hidden class of every object, 0 to L - 1.
    class_pairs : ndarray of shape (L * (L + 1) / 2, 2)
        The unordered pairs of classes.

    Examples
    --------
    >>> from choicegp import datasets
    >>> pairs = datasets.inconsistent_preferences(n_objects=10)
    >>> pairs.class_pairs.tolist(), len(pairs.forced_train) == len(pairs.pareto_train)
    ([[0, 0], [0, 1], [1, 1]], True)
    """

    forced_train: ChoiceData
    forced_test: ChoiceData
    pareto_train: ChoiceData
    pareto_test: ChoiceData
    U: np.ndarray
    classes: np.ndarray
    class_pairs: np.ndarray

    def __repr__(self) -> str:
        return brief(self)


def inconsistent_preferences(
    n_objects: int = 50,
    n_features: int = 5,
    n_classes: int = 2,
    sparsity: float = 0.5,
    lengthscale: float | Sequence[float] | None = None,
    random_state: int | None = 0,
) -> InconsistentPreferences:
    """Simulate preferences that no single utility explains (Chau et al., Section 4.1).

    Every object has a hidden class and every unordered pair of classes a utility of its own,
    ``u(x) = sum_j alpha_j k(x, x_j)`` with standard normal alpha and an RBF kernel k. A forced answer
    compares two objects by the utility of their two classes, which may run in circles; a Pareto answer
    rejects an object only where the other is better in all the utilities. One class gives one utility
    (and the two kinds of answers agree), two classes give three.

    Parameters
    ----------
    n_objects, n_features : int
        The features are standard normal.
    n_classes : int
        The number of hidden classes, L.
    sparsity : float
        The fraction of all pairs of objects that is left out of training, between 0 and 1:
        at 0.4, a random 60% of the pairs are for training and 40% are held out.
    lengthscale : float or sequence of float, optional
        The kernel's, one or one per feature; by default the square root of `n_features`.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    InconsistentPreferences

    Examples
    --------
    >>> simulated = inconsistent_preferences(n_objects=10, sparsity=0.4)
    >>> len(simulated.pareto_train), len(simulated.pareto_test), simulated.U.shape
    (27, 18, (10, 3))
    """
    n_objects = whole_number("n_objects", n_objects, 3)
    n_features = whole_number("n_features", n_features, 1)
    n_classes = whole_number("n_classes", n_classes, 1)
    rng = random_generator(random_state)
    X = rng.standard_normal((n_objects, n_features))
    classes = rng.integers(n_classes, size=n_objects)
    class_pairs = np.array(list(combinations_with_replacement(range(n_classes), 2)))
    kernel = rbf(X, np.sqrt(n_features) if lengthscale is None else lengthscale)
    U = kernel @ rng.standard_normal((n_objects, len(class_pairs)))

    pairs = all_pairs(n_objects)
    winners = _forced_winners(U, classes, class_pairs, pairs)
    train, test = _hold_out(rng, len(pairs), sparsity)
    table = feature_table(X)
    forced = ChoiceData.from_sets(table, pairs, winners[:, None])
    # "strict" is the paper's own rule here: chosen alone when better in all the utilities.
    pareto = ChoiceData.from_utilities(table, U, pairs, ties="strict")
    return InconsistentPreferences(
        forced.take(train), forced.take(test), pareto.take(train), pareto.take(test), U, classes, class_pairs
    )


def _forced_winners(U: np.ndarray, classes: np.ndarray, class_pairs: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    column = {tuple(pair): k for k, pair in enumerate(class_pairs.tolist())}
    asked = np.sort(classes[pairs], axis=1)
    columns = np.array([column[tuple(pair)] for pair in asked.tolist()])
    first_wins = U[pairs[:, 0], columns] > U[pairs[:, 1], columns]
    return np.where(first_wins, pairs[:, 0], pairs[:, 1])


def _hold_out(rng: np.random.Generator, n_pairs: int, sparsity: float) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(sparsity, Real) or isinstance(sparsity, bool) or not 0 < sparsity < 1:
        raise ChoiceGPError(
            f"sparsity must be the fraction of the pairs left out of training, between 0 and 1, not {sparsity!r}"
        )
    n_test = min(max(round(sparsity * n_pairs), 1), n_pairs - 1)
    order = rng.permutation(n_pairs)
    return np.sort(order[n_test:]), np.sort(order[:n_test])
