"""Whether the Gaussian posterior can be trusted, by importance sampling: no chain, no second fit.

Draws of the Gaussian are weighted by the exact posterior density over the density of the Gaussian.  The tail of the
weights has a shape k (Vehtari et al., Pareto smoothed importance sampling): below 0.5 the Gaussian covers the
posterior, above 0.7 it misses parts of it and the weights say little else.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.checks import seed, whole_number
from choicegp.compute.programs import program
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import PLUG_IN, Fitted
from choicegp.inference.coordinates import log_choices, log_posterior, whiten
from choicegp.inference.posterior import Posterior, factorise_on_host
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.inference.starts import covariance_at, recovered_sites

_GOOD, _USABLE = 0.5, 0.7  # Pareto k
_FEWEST = 100  # draws: a tail cannot be judged on fewer
_SMALL_MOVE = 0.02  # of a probability: about twice the mean error of a predicted one against long chains


class Diagnosis(NamedTuple):
    """Whether the Gaussian approximation can be trusted.

    Attributes
    ----------
    trusted : bool
    message : str
        What was found, and what to do, in words.
    pareto_k : float
        Shape of the tail of the importance weights: below 0.5 good, below 0.7 usable.
    effective : float
        Effective number of draws after weighting.
    n_draws : int
    moved : float
        Mean absolute change of the probability of an observed choice when draws are weighted.

    Examples
    --------
    As `ChoiceGP.diagnose` returns it:

    >>> Diagnosis(True, "the Gaussian covers the posterior well", 0.31, 1200.0, 2000, 0.004)
    Diagnosis(trusted: the Gaussian covers the posterior well)
    """

    trusted: bool
    message: str
    pareto_k: float
    effective: float
    n_draws: int
    moved: float

    def __repr__(self) -> str:
        return f"Diagnosis({'trusted' if self.trusted else 'not trusted'}: {self.message})"

    def __str__(self) -> str:
        return self.message


def diagnose(fitted: Fitted, n_draws: int, random_state: int | None) -> Diagnosis:
    """Weight draws of the posterior and say what the weights mean."""
    n_draws = whole_number("n_draws", n_draws, _FEWEST)
    if fitted.posterior.is_sparse:
        raise ChoiceGPError(
            "diagnose needs inference='dense': a sparse posterior has no draws at all objects. Fit some of the sets "
            "(data.take) with inference='dense' and diagnose that model, or judge this one by sets that were held out"
        )
    if fitted.study is not None:
        raise ChoiceGPError(
            "diagnose is for models of one person. Hold sets out (data.split), and judge a model of many people by them"
        )
    if not fitted.posterior.has_sites:
        raise ChoiceGPError(
            "this posterior consists of draws, which have no weights: diagnose a model with inference='dense'; "
            "for draws, fit_result_.message reports R-hat"
        )
    k, effective, moved = importance(
        fitted.posterior, fitted.training_problem(), n_draws=n_draws, seed=seed(random_state)
    )
    # A heavy tail of weights that hardly differ otherwise does no harm: few draws are in it.
    trusted = k < _USABLE or effective > 0.5 * n_draws
    # A Gaussian with a shared part predicts by draws too, but by draws of its own.
    sampled = not (fitted.result.intervals or PLUG_IN).startswith("Gaussian")
    return Diagnosis(trusted, in_words(k, effective, n_draws, moved, trusted, sampled), k, effective, n_draws, moved)


def in_words(k: float, effective: float, n_draws: int, moved: float, trusted: bool, sampled: bool = False) -> str:
    """Say what the weights mean: after every finding one sentence of advice.

    A ``sampled`` model does not use the approximation for more than a start.
    """
    measured = f"Pareto k = {k:.2f}, {effective:.0f} of {n_draws} draws effective"
    if k < _GOOD:
        covers = f"the Gaussian approximation covers the posterior well ({measured}). Keep inference='dense'."
    elif trusted:
        covers = (
            f"the Gaussian approximation is usable ({measured}). Keep inference='dense' for probabilities, and compare "
            "intervals on which a decision depends with inference='mcmc'."
        )
    else:
        covers = (
            f"the Gaussian approximation misses parts of the posterior ({measured}). Fit again with inference='mcmc' "
            "before you use intervals."
        )
    other = "Whether the choices suit the model is another question: see model.check()."
    if sampled:
        return (
            f"{covers.partition('). ')[0]}). For this model it was only the start: its predictions and intervals come "
            "from chains of draws. model.intervals_ says whether these have mixed; if they have not, fit again with "
            f"inference='mcmc'. {other}"
        )
    moves = f"Weighting moves the probability of an observed choice by {moved:.3f} on average."
    if effective < _FEWEST:
        advice = f"Too few draws are effective to rely on this figure: pass n_draws={10 * n_draws}."
    elif moved < _SMALL_MOVE:
        advice = "This is small: probabilities by inference='dense' can be used."
    else:
        advice = "This is large: compare probabilities on which a decision depends with inference='mcmc'."
    return f"{covers} {moves} {advice} {other}"


def importance(posterior: Posterior, problem: Problem, *, n_draws: int, seed: int) -> tuple[float, float, float]:
    """Weight draws of the Gaussian posterior by the exact one.

    Returns
    -------
    pareto_k : float
        Shape of the weights' tail.
    effective : float
        Effective number of draws after weighting.
    moved : float
        Mean absolute change, by weighting, of the probability of each observed choice.
    """
    from arviz_stats.base import array_stats

    root = factorise_on_host(np.asarray(covariance_at(posterior.prior, problem))).root
    sites = recovered_sites(posterior, problem)
    draws = np.random.default_rng(seed).normal(size=(n_draws, *root.shape[:2]))
    lapse = None if posterior.lapse is None else np.asarray(posterior.lapse, float)
    logs, choices = (np.asarray(part) for part in _log_weights(draws, root, sites, problem, lapse))
    # ArviZ takes the log-likelihood of a set left out, whose weights are its inverse: hence the sign.
    smooth, k = array_stats.psislw(-logs)
    weights = np.exp(smooth - np.max(smooth))
    weights /= weights.sum()
    sets = np.concatenate([np.zeros(0), *(batch.weight * (batch.sets >= 0) for batch in problem.batches)]) > 0
    moved = np.abs(weights @ choices[:, sets] - choices[:, sets].mean(axis=0)).mean() if sets.any() else 0.0
    return (float(k), float(1.0 / np.sum(weights**2)), float(moved))


@program
def _log_weights(draws: Array, root: Array, sites: Sites, problem: Problem, lapse: Array | None) -> tuple[Array, Array]:
    """Return log weights (S,), up to a constant, and the probabilities of the observed choices (S, m)."""
    whitening = whiten(root, sites)

    def one(w: Array) -> tuple[Array, Array]:
        density = log_posterior(w, whitening, sites, problem, lapse)
        return density + 0.5 * jnp.sum(w**2), jnp.exp(log_choices(whitening.utilities(w), problem, lapse))

    return jax.lax.map(one, draws)
