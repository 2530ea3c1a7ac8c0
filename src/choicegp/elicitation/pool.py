"""The few objects of a catalogue among which the next set is sought.

Half of a pool are random objects; a quarter are drawn from the objects whose utilities are least known, and a quarter
lie near the front of the predicted utilities, each the best under a weighting of its own.  A catalogue may be large:
no more than 16,384 of its objects are predicted, and the spread of no more than 1,024; for one person of a model of
many people, both are of 512.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from choicegp.compute.programs import program
from choicegp.data.packing import FeatureScaling
from choicegp.fitting.record import Fitted
from choicegp.inference.posterior import Posterior
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.prediction.people import utilities_of_people

POOL = 128
_MOST_MEANS, _MOST_SPREADS = 16_384, 1024
_MOST_OF_PERSON, _DRAWS_OF_PERSON = 512, 64  # in models of many people: objects that are predicted, and draws
_CHUNK = 1024
_FILLED = 64
_SETTINGS, _DRAWS = 4, 16  # of the hyperparameters, and of the utilities at each, by which spread is judged


class Pool(NamedTuple):
    """Some objects of a catalogue.

    Attributes
    ----------
    rows : int array (n,)
        Rows of the catalogue.
    objects : Objects
        The same, as a model sees them.
    n_random : int
        How many of the first ones were drawn at random, evenly from all objects.
    """

    rows: np.ndarray
    objects: Objects
    n_random: int


def pool_of(
    fitted: Fitted, catalogue: pd.DataFrame, rng: np.random.Generator, *, n: int = POOL, also: Any = (),
    person: int | None = None,
) -> Pool:  # fmt: skip
    """Choose ``n`` objects of a catalogue, and the rows ``also`` beside them, which come last.

    ``person`` is the number of who is asked in a model of many people.
    """
    also = np.asarray(also, dtype=int)
    if len(catalogue) <= n:
        rows = np.arange(len(catalogue))
        return Pool(rows, fitted.objects(catalogue), len(rows))
    screened = rng.permutation(len(catalogue))[: _MOST_MEANS if person is None else _MOST_OF_PERSON]
    objects = fitted.objects(catalogue.iloc[screened])
    means, spread = _predicted(fitted, objects, person)
    front = front_objects(means, n // 4, rng)
    unsure = rng.permutation(np.argsort(-spread, kind="stable")[: max(n, len(spread) // 4)])[: n // 4]
    # The first ones are random: the screened rows are in random order.
    chosen = pd.unique(np.concatenate([np.arange(n // 2), front, unsure, np.arange(n // 2, 2 * n)]))[:n]
    rows, more = screened[chosen], also[~np.isin(also, screened[chosen])]
    # Filled up, so that few programs are compiled.
    rest = screened[~np.isin(screened, np.concatenate([rows, more]))] if len(more) else more
    rows = np.concatenate([rows, more, rest[: -len(more) % _FILLED]])
    return Pool(rows, fitted.objects(catalogue.iloc[rows]), n // 2)


def _predicted(fitted: Fitted, objects: Objects, person: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the means (t, d) of utilities, and how little is known about the first objects."""
    if person is None:
        some = Objects(objects.X[:_MOST_SPREADS], objects.codes[:_MOST_SPREADS])
        return means_at(fitted.posterior, objects), spread_at(fitted.posterior, some)
    drawn = utilities_of_people(fitted, objects, _DRAWS_OF_PERSON, 0, np.array([person]))[:, 0]
    return drawn.mean(axis=0), drawn.std(axis=0).sum(axis=1)


def front_objects(utilities: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of the best objects (at most ``n``) of utilities (t, d), each under its own random weights.

    The weights are even on the simplex, and the worst weighted utility counts (Chebyshev), so that every object of the
    front can be the best, also where the front is not convex.

    Examples
    --------
    >>> front_objects(np.array([[0.0, 2.0], [2.0, 0.0], [0.0, 0.0]]), 20, np.random.default_rng(0)).tolist()
    [0, 1]
    """
    return np.unique(np.argmax(chebyshev(utilities, n, rng), axis=1))


def chebyshev(utilities: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the values (n, t) of objects with utilities (t, d) under ``n`` random weightings.

    An object's value is min_i y_i / w_i, of utilities y_i moved to the range from -1 (worst) to 0 (best) and with the
    weights turned over, w_i > 0: the object that falls short least, where it matters most.
    """
    span = np.ptp(utilities, axis=0)
    short = (utilities - utilities.max(axis=0)) / np.where(span > 0, span, 1.0)
    weights = rng.dirichlet(np.ones(utilities.shape[1]), size=n)
    # A little of the sum: of two objects with the same worst part, the one that is better elsewhere.
    return np.min(weights[:, None] * short, axis=2) + 1e-3 * weights @ short.T


def means_at(posterior: Posterior, objects: Objects) -> np.ndarray:
    """Return approximate posterior means (n, d): at one setting of the hyperparameters."""
    prior, dual = posterior.prior, posterior.dual
    if posterior.draws is not None and not posterior.has_sites:
        prior, dual = jax.tree.map(lambda leaf: leaf[0], (posterior.draws.prior, posterior.draws.dual.mean(axis=1)))
    parts = [np.asarray(_means(prior, posterior.objects, dual, part)).T for part in _chunks(objects)]
    return np.concatenate(parts)[: len(objects.codes)]


@program
def _means(prior: UtilityPrior, known: Objects, dual: Array, objects: Objects) -> Array:
    return prior.total(jnp.einsum("ptn,pt->pn", prior.covariance(known, objects), dual))


def spread_at(posterior: Posterior, objects: Objects) -> np.ndarray:
    """Return how little is known about objects, (n,): approximate standard deviations, added over the utilities."""
    draws = posterior.draws
    if draws is not None:
        step = max(1, len(draws.dual) // _SETTINGS)
        some = jax.tree.map(lambda leaf: np.asarray(leaf)[::step], draws)
        every = max(1, some.dual.shape[1] // _DRAWS)
        posterior = eqx.tree_at(lambda one: one.draws, posterior, some._replace(dual=some.dual[:, ::every]))
    parts = [np.asarray(_spreads(posterior, part)) for part in _chunks(objects)]
    return np.concatenate(parts)[: len(objects.codes)]


@program
def _spreads(posterior: Posterior, objects: Objects) -> Array:
    return jnp.sum(jnp.sqrt(posterior.mean_and_variance_at(objects)[1]), axis=0)


def _chunks(objects: Objects) -> list[Objects]:
    """Divide objects into parts of one size, the last filled up by its last object."""
    n = len(objects.codes)
    places = [np.minimum(np.arange(start, start + _CHUNK), n - 1) for start in range(0, n, _CHUNK)]
    return [Objects(objects.X[rows], objects.codes[rows]) for rows in places]


def spread_out(X: np.ndarray, n: int, shown: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return ``n`` rows of X (t, c) far from each other and from the rows ``shown``, and the smallest distance.

    Features are scaled to standard deviation 1.  The first row is random where nothing was shown.
    """
    scaled = X / FeatureScaling.of(X).scale
    nearest = np.full(len(X), np.inf)
    for row in shown:
        nearest = np.minimum(nearest, np.linalg.norm(scaled - scaled[row], axis=1))
    chosen: list[int] = []
    gap = np.inf
    for _ in range(n):
        # Among equally far ones a random one.
        best = rng.permutation(np.flatnonzero(nearest == nearest.max()))[0]
        gap = min(gap, float(nearest[best]))
        chosen.append(int(best))
        nearest = np.minimum(nearest, np.linalg.norm(scaled - scaled[best], axis=1))
        nearest[chosen] = -1.0
    return np.array(chosen), gap
