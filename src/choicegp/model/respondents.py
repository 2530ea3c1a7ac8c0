"""The prior of a study: what all people have in common, and what is each person's own.

The utilities of person r are u_{r,i}(x) = m_i(x) + delta_{r,i}(x).  The population's m has the prior of one person
(`choicegp.model.prior.UtilityPrior`, with its shared part); delta has the same covariance times a ratio, which is
learned for each part, and is independent between people.  A ratio of zero means that all people are the same, a large
one that a person's answers say nothing about others.  A threshold has a variance of its own between people: how much
people keep differs more, or less, than what they like.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior
from choicegp.model.shapes import AnyArray

FIRST_RATIOS = (0.5, 4.0)
"""Smallest and largest variance between people, in units of the population's, at which a fit starts."""


class StudyPrior(eqx.Module):
    """Prior of the utilities of a person who was drawn from a population.

    Attributes
    ----------
    population : UtilityPrior
        Of what all people have in common.
    log_ratio : Array (p,)
        Log of the variance between people, in units of the population's own, for each part.
    log_own_threshold_variance : Array (p,) or None
        Log of the variance of the threshold between people; None where there is none.
    alone : bool
        Whether people have nothing in common but the hyperparameters; the population's utilities are zero then.
    """

    population: UtilityPrior
    log_ratio: Float[AnyArray, " p"]
    log_own_threshold_variance: Float[AnyArray, " p"] | None = None
    alone: bool = eqx.field(static=True, default=False)

    @classmethod
    def around(cls, population: UtilityPrior, *, ratio: float = 1.0, alone: bool = False) -> "StudyPrior":
        """Give all parts of a population's prior the same ratio."""
        first, threshold = np.log(ratio), population.log_threshold_variance
        return cls(
            population,
            np.full(population.n_parts, first),
            None if threshold is None else np.asarray(threshold) + first,
            alone,
        )

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return self.population.n_parts

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return self.population.n_utilities

    def covariance(self, first: Objects, second: Objects) -> Float[Array, "p n1 n2"]:
        """Return the covariances (p, n1, n2) of a person's parts, the population's among them."""
        own = self.own_covariance(first, second)
        return own if self.alone else own + self.population.covariance(first, second)

    @partial(jax.jit, inline=True)
    def own_covariance(self, first: Objects, second: Objects) -> Float[Array, "p n1 n2"]:
        """Return the covariances (p, n1, n2) of a person's own parts between two groups of objects."""
        covariance = jnp.exp(self.log_ratio)[:, None, None] * self.population.covariance(first, second)
        if self.log_own_threshold_variance is None:
            return covariance
        both = (first.codes == THRESHOLD)[:, None] & (second.codes == THRESHOLD)[None, :]
        return jnp.where(both[None], jnp.exp(self.log_own_threshold_variance)[:, None, None], covariance)
