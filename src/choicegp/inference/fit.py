"""What every inference returns, and what it looks at while it runs: the clock, and who wants to know."""

from typing import NamedTuple

import numpy as np
from jax import Array

from choicegp.inference.posterior import Factor
from choicegp.inference.sites import Sites
from choicegp.model.prior import UtilityPrior


class Fit(NamedTuple):
    """A finished inference.

    Attributes
    ----------
    prior, factor, sites, lapse
        What defines the posterior.
    status : str
        "converged", "stopped" (at a limit) or "failed".
    message : str
        Why, in words.
    n_iter : int
        Steps of the start that went on, annealing included.
    trace : ndarray (n_iter,)
        ELBO at the beginning of each step, on the fit's own few points; the likelihood's weight is below 1
        while annealing.
    n_annealing : int
        How many of the first steps were annealing.
    """

    prior: UtilityPrior
    factor: Factor
    sites: Sites
    lapse: Array | None
    status: str
    message: str
    n_iter: int
    trace: np.ndarray
    n_annealing: int = 0
