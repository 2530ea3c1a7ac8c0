"""Where a fit starts from.

Smooth random utilities of several lengthscales, annealed in two ways; or a fitted posterior, of the same number of
utilities, of one more or of one less.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from choicegp.compute.programs import program
from choicegp.inference.posterior import FIRST_JITTER, Posterior, factorise, half_covariance, prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.model.monotone import without_shared_steps
from choicegp.model.prior import Objects, UtilityPrior

# Weights of the likelihood while annealing, of the starts in turn.  From a very small weight all starts fall into
# one path, the right one or not; the second schedule keeps more of their differences.
ANNEALING = (np.repeat([0.05, 0.1, 0.2, 0.4, 0.7, 1.0], 3), np.repeat([0.2, 0.3, 0.45, 0.6, 0.8, 1.0], 3))
FIRST_VARIANCE = float(np.exp(2.0))
"""Of a utility in units of the error scale, about the size that real answers ask for."""
_FIRST_SIZE = 3.0  # of the utilities at a start: larger ones end in the best optimum more often than those of size 1
LENGTHSCALES = (0.5, 0.25, 1.0)  # of the starts in turn, times the kernel's own


class Start(NamedTuple):
    """A place to start from."""

    prior: UtilityPrior
    sites: Sites


_covariance_at = program(prior_covariance, seldom=True)


def covariance_at(prior: UtilityPrior, problem: Problem) -> jax.Array:
    """Return the prior covariance at a problem's objects, by a compiled program.

    Parameters
    ----------
    prior : UtilityPrior
    problem : Problem

    Returns
    -------
    Array (p, t, t)
        Of each part of the utilities; padding is independent of all else, with variance 1.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> from choicegp.inference.problem import pose
    >>> from choicegp.kernels import RBF
    >>> data = ChoiceData.from_pairs([[0.0], [1.0]], [[1, 0]])
    >>> problem = pose(data, data.X, np.arange(2), effects=False)
    >>> covariance_at(UtilityPrior.create(RBF(), 1, 3), problem).shape  # three utilities at two objects
    (3, 2, 2)
    """
    return _covariance_at(prior, problem._replace(batches=()))  # the same program, whatever the sets are


def random_start(prior: UtilityPrior, problem: Problem, rng: np.random.Generator) -> Sites:
    """Sites without precision whose posterior mean is a smooth random function of a certain size."""
    covariance = np.asarray(covariance_at(prior, problem))[int(prior.shared) :]
    draw = rng.normal(size=covariance.shape[:2]) * np.asarray(problem.valid)
    size = np.sqrt(np.mean(np.sum(covariance**2, axis=2)))
    return Sites(np.zeros(covariance.shape), _FIRST_SIZE * draw / size)  # type: ignore[arg-type]


def rescaled(prior: UtilityPrior, lengthscale: float, variance: float) -> UtilityPrior:
    """Multiply every lengthscale and every variance."""
    shift = {"log_lengthscale": np.log(lengthscale), "log_variance": np.log(variance)}
    return jax.tree_util.tree_map_with_path(lambda path, leaf: np.asarray(leaf) + shift.get(path[-1].name, 0.0), prior)


def with_threshold(prior: UtilityPrior, objects: Objects) -> UtilityPrior:
    """Add a threshold, whose utilities are at first about as large as the objects' own."""
    size = np.mean(np.asarray(prior.variance(objects)), axis=1)
    return UtilityPrior(prior.kernels, prior.log_effect_variance, prior.shared, np.log(size))


def scaled(prior: UtilityPrior, factor: float) -> UtilityPrior:
    """Multiply every lengthscale by ``factor``."""
    return rescaled(prior, factor, 1.0)


@partial(program, seldom=True)
def moments_at(posterior: Posterior, objects: Objects) -> tuple[jax.Array, jax.Array]:
    """Return the Gaussian posterior's means (d, n) and covariances at other objects, as `condition` gives them.

    With a shared part, what the choices take off the covariance between parts i and j is [i = j] Q_i - Q_i S_0 Q_j,
    Q_0 the sum of the others and S_0 the covariance of the shared part (see `choicegp.inference.posterior`).
    """
    prior = posterior.prior
    if not prior.shared:
        return posterior.mean_and_covariance_at(objects)
    if posterior.is_sparse:
        # Every part has inducing points of its own, at which the sites of the others are not known: draws are.
        return _moments_of_draws(posterior, objects)
    cross = prior.covariance(posterior.objects, objects)
    mean = prior.total(jnp.einsum("ptn,pt->pn", cross, posterior.dual))
    gain = posterior.gain
    total = jnp.sum(gain, axis=0)
    root = factorise(prior.covariance(posterior.objects, posterior.objects)[:1], jnp.full(1, FIRST_JITTER)).root[0]
    half, _ = half_covariance(root, total)
    whole = jnp.concatenate([total[None], gain])  # Q_0 and the others
    through = half @ whole @ cross  # W_0 Q_i k_i
    taken = jnp.einsum("itn,jtm->ijnm", through, through)
    own = prior.covariance(objects, objects) - jnp.swapaxes(cross, 1, 2) @ (whole @ cross)
    # Between the shared part and one's own, the sum of [i = j] Q_i over all i is Q_j itself.
    beside = jnp.swapaxes(cross[:1], 1, 2) @ (gain @ cross[1:])
    d = len(gain)
    covariance = taken[0, 0] + own[0] + taken[1:, 1:] + (taken[1:, :1] + taken[:1, 1:])
    covariance -= beside[None, :] + jnp.swapaxes(beside, 1, 2)[:, None]
    return mean, covariance.at[jnp.arange(d), jnp.arange(d)].add(own[1:])


def _moments_of_draws(posterior: Posterior, objects: Objects) -> tuple[jax.Array, jax.Array]:
    assert posterior.draws is not None
    draws, prior = jax.tree.map(lambda leaf: leaf[0], posterior.draws), posterior.prior
    cross = prior.covariance(posterior.objects, objects)
    u = jax.vmap(prior.total)(jnp.einsum("ptn,spt->spn", cross, draws.dual))
    left = prior.covariance(objects, objects) - jnp.swapaxes(cross, 1, 2) @ (draws.inverse @ cross)
    mean = jnp.mean(u, axis=0)
    covariance = jnp.einsum("sin,sjm->ijnm", u - mean, u - mean) / len(u) + left[0]
    d = len(mean)
    return mean, covariance.at[jnp.arange(d), jnp.arange(d)].add(left[1:])


def grown_starts(posterior: Posterior, fresh: UtilityPrior, problem: Problem) -> list[Start]:
    """Add a copy of each utility in turn, and a utility that is zero everywhere.

    A copy changes little of what dominates what: from there the larger model begins about where the smaller one ended.
    A utility of zero decides every comparison by a coin, so from there it begins worse (a sure choice of one object
    of two falls from log p = -0.0014 to -0.694); but this is the start that copies nothing and can learn anything.
    ``posterior`` is of the smaller model, fitted to the same problem; ``fresh`` is where the hyperparameters of a
    utility start that knows nothing.
    """
    precision, linear = recovered_sites(posterior, problem)
    smaller = _with_shared(posterior.prior) if fresh.shared else posterior.prior

    def start(prior: UtilityPrior, i: int, say: float) -> Start:
        """Append utility ``i`` of a prior, with the sites of utility ``i`` or with none."""
        place = i + prior.shared
        extended = jax.tree.map(
            lambda own, more: np.concatenate([np.asarray(own), np.asarray(more)[place : place + 1]]), smaller, prior
        )
        more = Sites(say * precision[i : i + 1], say * linear[i : i + 1])
        return Start(extended, jax.tree.map(lambda *parts: np.concatenate(parts), Sites(precision, linear), more))

    return [*(start(smaller, i, 1.0) for i in range(posterior.n_utilities)), start(fresh, 0, 0.0)]


def _with_shared(prior: UtilityPrior) -> UtilityPrior:
    """Give the only utility of a prior a shared part, half of its variance; others are returned as they are."""
    if prior.shared:
        return prior
    doubled = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), rescaled(prior, 1.0, 0.5))
    effect, threshold = (
        None if log_variance is None else log_variance - np.log(2.0)
        for log_variance in (doubled.log_effect_variance, doubled.log_threshold_variance)
    )
    prior = UtilityPrior(doubled.kernels, effect, shared=True, log_threshold_variance=threshold)
    return without_shared_steps(prior) if prior.kernels.directions() else prior


def _without_shared(prior: UtilityPrior) -> UtilityPrior:
    """Give the only utility the larger of its two parts."""
    sizes = np.sum([np.exp(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(prior.kernels)
                    if path[-1].name == "log_variance" and np.ndim(leaf) == 1], axis=0)  # fmt: skip
    place = int(np.argmax(sizes)) if np.size(sizes) == 2 else 1
    kept = jax.tree.map(lambda leaf: np.asarray(leaf)[place : place + 1], prior)
    return UtilityPrior(kept.kernels, kept.log_effect_variance, False, kept.log_threshold_variance)


def neighbouring_starts(posterior: Posterior, fresh: UtilityPrior, problem: Problem) -> list[Start]:
    """Return starts from a posterior of one utility less or one more; for ``fresh`` see `grown_starts`."""
    if posterior.n_utilities < fresh.n_utilities:
        return grown_starts(posterior, fresh, problem)
    return shrunk_starts(posterior, problem)


def shrunk_starts(posterior: Posterior, problem: Problem) -> list[Start]:
    """Leave out each utility in turn: one that a larger model was given too many may have kept others apart."""
    sites = recovered_sites(posterior, problem)

    def start(i: int) -> Start:
        prior = jax.tree.map(lambda leaf: np.delete(leaf, i + posterior.prior.shared, axis=0), posterior.prior)
        if posterior.prior.shared and posterior.n_utilities == 2:
            prior = _without_shared(prior)
        return Start(prior, jax.tree.map(lambda leaf: np.delete(leaf, i, axis=0), sites))

    return [start(i) for i in range(posterior.n_utilities)]


def recovered_sites(posterior: Posterior, problem: Problem) -> Sites:
    """Return the sites that make this posterior of the prior: Λ = G (I - K G)^-1 and η = K^-1 m + Λ m.

    G = (K + Λ^-1)^-1, with the covariance K of a utility's own part, is what a posterior keeps; padding has no sites.
    """
    n, t, d = problem.n_objects, len(problem.valid), posterior.n_utilities
    covariance = np.asarray(covariance_at(posterior.prior, problem))[-d:, :n, :n]
    gain, mean = np.asarray(posterior.gain), np.asarray(posterior.mean)
    # Solved from the right: Λ (I - K G) = G, and both Λ and G are symmetric.
    precision = np.linalg.solve(np.eye(n) - np.swapaxes(covariance @ gain, 1, 2), gain)
    precision = 0.5 * (precision + np.swapaxes(precision, 1, 2))
    linear = np.asarray(posterior.dual)[-d:] + (precision @ mean[..., None])[..., 0]
    more = (0, t - n)
    return Sites(np.pad(precision, ((0, 0), more, more)), np.pad(linear, ((0, 0), more)))  # type: ignore[arg-type]
