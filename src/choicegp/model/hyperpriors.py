"""Weak log-normal priors on the hyperparameters.

Noise-free choices would send the error scale to zero, that is the kernels' variances (in units of the error
scale) to infinity.  A normal density on the logarithm of every hyperparameter, wide enough to be overruled by
a few choices, prevents that.  It guides the fit and is no part of the reported ELBO.  The variance's is very wide:
with N(1, 2²) choices without errors were predicted worse than with none (log score of new sets -0.28 against
-0.27 on SinCos, -0.081 against -0.061 on Vehicle's pairs; four data sets each).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from choicegp.model.prior import UtilityPrior


class HyperPriors(NamedTuple):
    """Mean and standard deviation of the logarithm of each kind of hyperparameter.

    Lengthscales and periods refer to standardised features, variances to utilities in units of the error scale, warps
    to the weights of the logarithms in the learned scales of features: little weight, unless choices ask for it.

    Examples
    --------
    >>> HyperPriors(lengthscale=(0.0, 1.0)).variance
    (5.0, 5.0)
    """

    lengthscale: tuple[float, float] = (0.0, 3.0)
    variance: tuple[float, float] = (5.0, 5.0)
    period: tuple[float, float] = (0.0, 2.0)
    effect_variance: tuple[float, float] = (-1.0, 2.0)
    warp: tuple[float, float] = (-2.3, 2.0)


def log_density(prior: UtilityPrior, hyperpriors: HyperPriors) -> Array:
    """Return the log density of the hyperparameters of ``prior``, up to a constant."""
    total = jnp.zeros(())
    for path, leaf in jax.tree_util.tree_leaves_with_path(prior):
        if not is_learned(path):
            continue
        mean, sd = getattr(hyperpriors, _kind(path))
        total -= 0.5 * jnp.sum(((leaf - mean) / sd) ** 2)
    return total


def is_learned(path: tuple[Any, ...]) -> bool:
    """Tell a hyperparameter, whose logarithm is kept, from what a kernel knows about the features."""
    return path[-1].name.startswith("log_")


def _kind(path: tuple[Any, ...]) -> str:
    return path[-1].name.removeprefix("log_")
