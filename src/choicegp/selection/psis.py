"""Leave-one-out by Pareto-smoothed importance sampling, the paper's own (eq:bloo2), with ArviZ's smoothing.

Samples of the posterior are weighted by 1 / p(C_k | A_k, u), as if set k had not been seen.  On a sharp posterior
few samples carry all the weight, and the Pareto k of the weights says so.

Where a posterior has draws of its own (of a shared part, or of intervals, with their hyperparameters), these are the
samples, each once.  That weights and averages share their samples is how importance sampling works, and no fault: the
average of p under weights 1 / p is the harmonic mean of p.  Draws of chains depend on each other, so that k and the
errors are as large as with fewer independent samples.
"""

import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.problem import Problem
from choicegp.model.error_models import ErrorModel
from choicegp.selection.loo import LooResult, PsisDiagnostics, loo_result

N_SAMPLES = 2000
_BLOCK = 2_000_000  # numbers worked on at a time
_FEWEST_IN_TAIL = 5  # weights to which ArviZ fits a tail


@program
def _log_likelihood(u: Array, present: Array, chosen: Array, lapse: Array | None, errors: ErrorModel) -> Array:
    return errors.log_likelihood(u, present[..., None], chosen[..., None], lapse)


def choice_log_likelihood(utilities: np.ndarray, problem: Problem, n_sets: int, lapse: Array | None) -> np.ndarray:
    """Return log p(C | A, u) of every set under every sample, (m, S); 0 for a set of one object.

    Parameters
    ----------
    utilities : ndarray (S, n, d)
        Samples at the problem's objects.
    problem : Problem
    n_sets : int
        Number of sets of the data, including sets of one object.
    lapse : Array or None
    """
    n_samples, _, d = utilities.shape
    result = np.zeros((n_sets, n_samples))
    by_utility = np.moveaxis(utilities, (0, 1, 2), (2, 1, 0))
    for batch in problem.batches:
        a, m = batch.rows.shape
        size = min(n_samples, max(1, _BLOCK // (d * a * a * m * batch.errors.n_nodes)))
        known = batch.sets >= 0
        for start in range(0, n_samples, size):
            # The last block is a full one too, which makes some samples twice, and no further program.
            part = slice(min(start, n_samples - size), min(start, n_samples - size) + size)
            u = np.ascontiguousarray(by_utility[:, batch.rows, part])
            values = np.asarray(_log_likelihood(u, batch.present, batch.chosen, lapse, batch.errors))
            result[batch.sets[known], part] = values[known]
    return result


def psis_loo(log_likelihoods: np.ndarray, weight: np.ndarray, notes: tuple[str, ...] = ()) -> LooResult:
    """Leave out one set after the other by importance weights.

    Parameters
    ----------
    log_likelihoods : ndarray (m, S)
    weight : ndarray (m,)
        Weights of the sets.
    notes : tuple of str
        Passed on to the result.
    """
    # Leaving a set out takes its whole weight out of the posterior.
    power = weight[:, None] * log_likelihoods
    n_samples = log_likelihoods.shape[1]
    uniform = np.log(np.full(n_samples, 1.0 / n_samples))
    log_weights, pareto_k = np.tile(uniform, (len(power), 1)), np.zeros(len(power))
    # A set of one object has the same likelihood under every sample: there is no tail to be smoothed.
    # Of a large weight's product rounding leaves more than of a small one's.
    varies = np.ptp(power, axis=1) > 1e-12 * np.maximum(np.abs(power).max(axis=1), 1.0)
    if varies.any():
        log_weights[varies], pareto_k[varies] = _smoothed(power[varies])
    # A tail too steep for numbers cannot be smoothed: the bare weights are what is left, and in doubt.
    broken = ~np.isfinite(log_weights).all(axis=1) | ~np.isfinite(pareto_k)
    log_weights[broken] = -power[broken] - _log_sum_exp(-power[broken])[:, None]
    pareto_k[broken] = np.inf
    inside = weight * _log_sum_exp(log_likelihoods + uniform)
    outside = weight * _log_sum_exp(log_likelihoods + log_weights)
    diagnostics = PsisDiagnostics(inside - outside, pareto_k)
    limit = min(1.0 - 1.0 / np.log10(n_samples), 0.7)
    doubtful = np.flatnonzero(pareto_k > limit)
    why = f"their importance weights have a Pareto k above {limit:.2g}; method='cavity' does not need weights"
    return loo_result(outside, diagnostics, doubtful, why, notes)


def _smoothed(power: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log weights of each set (m, S), and Pareto's k of their tails."""
    from arviz_stats.base import array_stats

    try:
        # ArviZ takes the log-likelihood itself and turns its sign: the weights are 1 / p.
        with np.errstate(all="ignore"):
            log_weights, pareto_k = array_stats.psislw(power, axis=-1)
        return log_weights, np.asarray(pareto_k)
    except ValueError:
        # ArviZ refuses all sets where the largest weights of one are equal: that one has no tail to be smoothed.
        if len(power) == 1:
            pareto_k = 0.0 if _largest_are_equal(-power[0]) else np.nan  # of another refusal nothing is known
            return -power - _log_sum_exp(-power)[:, None], np.array([pareto_k])
        parts = [_smoothed(power[[k]]) for k in range(len(power))]
        return tuple(np.concatenate(found) for found in zip(*parts, strict=True))  # type: ignore[return-value]  # of two


def _largest_are_equal(log_weights: np.ndarray) -> bool:
    """Say whether the weights of which ArviZ makes the tail are all the same, and enough to say so."""
    n = int(min(len(log_weights) / 5, 3.0 * np.sqrt(len(log_weights))))
    return n >= _FEWEST_IN_TAIL and bool(np.ptp(np.sort(log_weights)[-n:]) == 0.0)


def _log_sum_exp(values: np.ndarray) -> np.ndarray:
    top = values.max(axis=1)
    return top + np.log(np.exp(values - top[:, None]).sum(axis=1))
