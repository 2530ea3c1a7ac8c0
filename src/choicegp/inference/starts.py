"""Where a fit starts from: smooth random utilities of several lengthscales, annealed in two ways; or given places."""

from typing import NamedTuple

import jax
import numpy as np

from choicegp.compute.programs import program
from choicegp.inference.posterior import prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.model.prior import UtilityPrior

# Weights of the likelihood while annealing, of the starts in turn.  From a very small weight all starts fall into
# one path, the right one or not; the second schedule keeps more of their differences.
ANNEALING = (np.repeat([0.05, 0.1, 0.2, 0.4, 0.7, 1.0], 3), np.repeat([0.2, 0.3, 0.45, 0.6, 0.8, 1.0], 3))
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
    covariance = np.asarray(covariance_at(prior, problem))
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
