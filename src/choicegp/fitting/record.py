"""What a fit and its questions return."""

from typing import NamedTuple

import numpy as np


class FitResult(NamedTuple):
    """How a fit went.

    Attributes
    ----------
    status : str
        "converged", "stopped" (at a limit of steps or time) or "failed".
    message : str
        Why, in words.
    n_iter : int
        Steps made by the start that went on.
    seconds : float
    elbo_trace : ndarray (n_iter,)
        Evidence lower bound at each step, on the fit's own sample points; while annealing, of the tempered
        likelihood.
    notes : tuple of str
        What was done on the way that a careful reader may want to know.
    n_annealing : int
        How many of the first steps were annealing.
    """

    status: str
    message: str
    n_iter: int
    seconds: float
    elbo_trace: np.ndarray
    notes: tuple[str, ...] = ()
    n_annealing: int = 0


class Diagnosis(NamedTuple):
    """Whether the Gaussian approximation can be trusted.

    Attributes
    ----------
    trusted : bool
    message : str
        What was found, in words.
    pareto_k : float
        Shape of the tail of the importance weights: below 0.5 good, below 0.7 usable.
    effective : float
        Effective number of draws after weighting.
    n_draws : int
    moved : float
        Mean absolute change of the probability of an observed choice when draws are weighted.
    """

    trusted: bool
    message: str
    pareto_k: float
    effective: float
    n_draws: int
    moved: float


class Utilities(NamedTuple):
    """Posterior of the utilities at some objects: ``mean`` and ``sd``, each (n, d)."""

    mean: np.ndarray
    sd: np.ndarray
