"""Where a fit starts from.

Smooth random utilities of several lengthscales, annealed in two ways; or a fitted posterior, of the same number of
utilities, of one more or of one less.
"""

from typing import NamedTuple

import jax
import numpy as np

from choicegp.compute.programs import program
from choicegp.inference.posterior import Posterior, prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects, UtilityPrior

# Weights of the likelihood while annealing, of the starts in turn.  From a very small weight all starts fall into
# one path, the right one or not; the second schedule keeps more of their differences.
ANNEALING = (np.repeat([0.05, 0.1, 0.2, 0.4, 0.7, 1.0], 3), np.repeat([0.2, 0.3, 0.45, 0.6, 0.8, 1.0], 3))
FIRST_VARIANCE = float(np.exp(2.0))
"""Of a utility in units of the error scale: the mean of the usual hyperprior is a sensible first variance."""
_FIRST_SIZE = 3.0  # of the utilities at a start: larger ones end in the best optimum more often than those of size 1
LENGTHSCALES = (0.5, 0.25, 1.0)  # of the starts in turn, times the kernel's own


class Start(NamedTuple):
    """A place to start from."""

    prior: UtilityPrior
    sites: Sites


covariance_at = program(prior_covariance)
"""Prior covariance at a problem's objects, compiled."""


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


def scaled(prior: UtilityPrior, factor: float) -> UtilityPrior:
    """Multiply every lengthscale by ``factor``."""
    return rescaled(prior, factor, 1.0)


@program
def moments_at(posterior: Posterior, objects: Objects) -> tuple[jax.Array, jax.Array]:
    """Return posterior means (d, n) and covariances (d, n, n)."""
    return posterior.mean_and_covariance_at(objects)


def grown_starts(posterior: Posterior, fresh: UtilityPrior, problem: Problem) -> list[Start]:
    """Add a copy of each utility in turn, and a utility that is zero everywhere.

    A copy changes little of what dominates what: from there the larger model begins about where the smaller one ended.
    A utility of zero decides every comparison by a coin, so from there it begins worse (a sure choice of one object
    of two falls from log p = -0.0014 to -0.694); but this is the start that copies nothing and can learn anything.
    ``posterior`` is of the smaller model, fitted to the same problem; ``fresh`` is where the hyperparameters of a
    utility start that knows nothing.
    """
    precision, linear = recovered_sites(posterior, problem)

    def start(prior: UtilityPrior, i: int, say: float) -> Start:
        """Append utility ``i`` of a prior, with the sites of utility ``i`` or with none."""
        extended = jax.tree.map(
            lambda own, more: np.concatenate([np.asarray(own), np.asarray(more)[i : i + 1]]), posterior.prior, prior
        )
        more = Sites(say * precision[i : i + 1], say * linear[i : i + 1])
        return Start(extended, jax.tree.map(lambda *parts: np.concatenate(parts), Sites(precision, linear), more))

    return [*(start(posterior.prior, i, 1.0) for i in range(posterior.n_utilities)), start(fresh, 0, 0.0)]


def neighbouring_starts(posterior: Posterior, fresh: UtilityPrior, problem: Problem) -> list[Start]:
    """Return starts from a posterior of one utility less or one more; for ``fresh`` see `grown_starts`."""
    if posterior.n_utilities < fresh.n_utilities:
        return grown_starts(posterior, fresh, problem)
    return shrunk_starts(posterior, problem)


def shrunk_starts(posterior: Posterior, problem: Problem) -> list[Start]:
    """Leave out each utility in turn: one that a larger model was given too many may have kept others apart."""
    sites = recovered_sites(posterior, problem)

    def start(i: int) -> Start:
        return Start(
            *(jax.tree.map(lambda leaf: np.delete(leaf, i, axis=0), part) for part in (posterior.prior, sites))
        )

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
