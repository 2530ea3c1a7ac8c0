"""Good places to start from where the posterior has many modes, found by small populations of utilities.

A population is drawn from the prior.  The weight of the exact likelihood rises from nothing to one, each time so far
that half of the population counts; utilities that explain the answers badly are replaced by copies of those that
explain them well, and all move by Hamiltonian steps (sequential Monte Carlo; Del Moral, Doucet and Jasra 2006).  A
gradient of the likelihood at one place costs a small part of a step of a dense fit, which needs expectations.  What is
left of a population is near one mode, another one for another population.
"""

from itertools import permutations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.coordinates import log_likelihood
from choicegp.inference.posterior import factorise_on_host
from choicegp.inference.problem import Problem
from choicegp.inference.starts import covariance_at
from choicegp.model.prior import UtilityPrior

N_MEMBERS = 32
_N_MOVES, _N_LEAPS = 2, 8
_FIRST_LEAP, _JITTER = 0.1, 0.3  # of the length of a leap, the second of its logarithm
_ACCEPTED, _LEARNING = 0.7, 0.6  # the acceptance that leaps aim at, and how fast their length follows
_KEPT = 0.5  # share of the members that count after a rise of the weight
_HALVINGS = 80
_USUAL_RISES, _MOST_RISES = 22, 100
_MOST_PERMUTED = 6  # utilities
_SECONDS_OF_A_PAIR = 2e-8  # of a gradient of the likelihood, for each pair of objects of a set and each utility


class Survivors(NamedTuple):
    """What is left of a population.

    Attributes
    ----------
    utilities : ndarray (d, t)
        Means over the members that descend from the most frequent member.
    log_evidence : float
        Estimate of the log probability of the answers at these hyperparameters; a mode that was missed is missing, and
        where no member explains the answers at all it is minus infinity.
    n_rises : int
    """

    utilities: np.ndarray
    log_evidence: float
    n_rises: int


def seconds_of_population(n_utilities: int, problem: Problem) -> float:
    """Return how long a population takes on one core: by a formula and not by a clock, so that fits can be repeated."""
    n_pairs = sum(len(batch.rows) * (len(batch.rows) - 1) // 2 * batch.rows.shape[1] for batch in problem.batches)
    n_gradients = N_MEMBERS * _USUAL_RISES * _N_MOVES * (_N_LEAPS + 1)
    return _SECONDS_OF_A_PAIR * n_utilities * n_pairs * n_gradients


def population(prior: UtilityPrior, problem: Problem, rng: np.random.Generator) -> Survivors:
    """Draw a population from the prior, and let the likelihood grow.

    Parameters
    ----------
    prior : UtilityPrior
        With the hyperparameters of a fit.
    problem : Problem
        Of answers without lapses.
    rng : Generator

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> from choicegp.inference.problem import pose
    >>> from choicegp.kernels import RBF
    >>> data = ChoiceData.from_pairs([[0.0], [1.0]], [[1, 0]] * 20)
    >>> problem = pose(data, data.X, np.arange(2), effects=False)
    >>> found = population(UtilityPrior.create(RBF(), 1, 1), problem, np.random.default_rng(0))
    >>> found.utilities.shape, found.utilities[0, 1] > found.utilities[0, 0]
    ((1, 2), np.True_)
    """
    covariance = np.asarray(covariance_at(prior, problem))
    root = np.asarray(factorise_on_host(covariance).root)
    places = rng.normal(size=(N_MEMBERS, *covariance.shape[:2]))
    seed, leap, weight, log_evidence = int(rng.integers(2**31)), _FIRST_LEAP, 0.0, 0.0
    forebears, key = np.arange(N_MEMBERS), jax.random.key_data(jax.random.key(seed))
    logs, utilities = map(np.asarray, _explained(places, root, prior, problem))
    logs, n = np.where(np.isfinite(logs), logs, -np.inf), 0
    if np.all(logs == -np.inf):
        log_evidence = -np.inf
    while weight < 1.0 and n < _MOST_RISES and np.isfinite(log_evidence):
        rise = _rise(logs, 1.0 - weight)
        shares = np.exp(rise * (logs - logs.max()))
        log_evidence += float(np.log(np.mean(shares)) + rise * logs.max())
        points = (np.arange(N_MEMBERS) + rng.random()) / N_MEMBERS
        taken = np.minimum(np.searchsorted(np.cumsum(shares) / shares.sum(), points), N_MEMBERS - 1)
        forebears, weight, n = forebears[taken], weight + rise, n + 1
        places, logs, utilities, accepted = map(
            np.asarray,
            _moved(places[taken], logs[taken], key, np.asarray(n), np.asarray(weight), np.asarray(leap), root, prior,
                   problem),
        )  # fmt: skip
        leap *= float(np.exp(_LEARNING * (np.mean(accepted) - _ACCEPTED)))
    own = utilities[forebears == np.bincount(forebears).argmax()]
    return Survivors(_mean_in_one_order(own), log_evidence, n)


def _rise(logs: np.ndarray, most: float) -> float:
    """Return how far the weight rises until only a share of the members counts."""

    def count(rise: float) -> float:
        shares = np.exp(rise * (logs - logs.max()))
        return float(np.sum(shares) ** 2 / np.sum(shares**2))

    low, high = 0.0, most
    if count(most) >= _KEPT * len(logs):
        return most
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if count(middle) > _KEPT * len(logs) else (low, middle)
    return high


def _mean_in_one_order(members: np.ndarray) -> np.ndarray:
    """Return the mean of utilities (n, d, t), each member in the order that is nearest to the first one's."""
    d = members.shape[1]
    orders = [list(order) for order in permutations(range(d))] if d <= _MOST_PERMUTED else [list(range(d))]
    gaps = np.array([np.sum((members[:, order] - members[0]) ** 2, axis=(1, 2)) for order in orders])
    return np.mean([one[orders[best]] for one, best in zip(members, gaps.argmin(axis=0), strict=True)], axis=0)


def _utilities(place: Array, root: Array, prior: UtilityPrior) -> Array:
    return prior.total(jnp.einsum("pij,pj->pi", root, place))


@program
def _explained(places: Array, root: Array, prior: UtilityPrior, problem: Problem) -> tuple[Array, Array]:
    """Return the log-likelihood (n,) and the utilities (n, d, t) of members."""
    utilities = jax.vmap(lambda place: _utilities(place, root, prior))(places)
    return jax.lax.map(lambda u: log_likelihood(u, problem, None), utilities), utilities


@program
def _moved(
    places: Array, logs: Array, key_data: Array, rise: Array, weight: Array, leap: Array, root: Array,
    prior: UtilityPrior, problem: Problem,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Move every member a few times, the likelihood raised to a weight; also return how often moves were taken."""
    slope = jax.value_and_grad(lambda place: log_likelihood(_utilities(place, root, prior), problem, None))

    def move(carry: tuple, key: Array) -> tuple[tuple, Array]:
        place, log = carry
        thrust, length, coin = jax.random.split(key, 3)
        e = leap * jnp.exp(_JITTER * jax.random.normal(length))

        def drift(i: Array, carry: tuple) -> tuple:
            q, r, _, force = carry
            r += 0.5 * e * (weight * force - q)
            q += e * r
            log, force = slope(q)
            return q, r + 0.5 * e * (weight * force - q), log, force

        r = jax.random.normal(thrust, place.shape)
        q, s, then, _ = jax.lax.fori_loop(0, _N_LEAPS, drift, (place, r, log, slope(place)[1]))
        gained = weight * (then - log) + 0.5 * jnp.sum(place**2 + r**2 - q**2 - s**2)
        chance = jnp.nan_to_num(jnp.minimum(1.0, jnp.exp(gained)))
        taken = jax.random.uniform(coin) < chance
        return (jnp.where(taken, q, place), jnp.where(taken, then, log)), chance

    def one(member: tuple) -> tuple[Array, Array, Array]:
        place, log, key = member
        (place, log), chances = jax.lax.scan(move, (place, log), jax.random.split(key, _N_MOVES))
        return place, log, jnp.mean(chances)

    keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key_data), rise), len(places))
    places, logs, chances = jax.lax.map(one, (places, logs, keys))
    return places, logs, jax.vmap(lambda place: _utilities(place, root, prior))(places), chances
