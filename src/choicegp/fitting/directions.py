"""Features with which all utilities may only rise or fall: what a user asks for, and whether the answers agree."""

from typing import Any

import equinox as eqx
import numpy as np

from choicegp.checks import listed
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted, scaling
from choicegp.inference.starts import FIRST_VARIANCE, covariance_at, recovered_sites
from choicegp.model.kernels import Kernel
from choicegp.model.monotone import Monotone, signs_of
from choicegp.model.prior import STEP, UtilityPrior

Directions = tuple[tuple[str, int], ...]
"""Names of features, each with 1 where utilities rise with it and -1 where they fall."""
_CLEAR = 3.0  # standard deviations by which answers speak against a direction
_MOST_NUMBERS = 1000  # utilities of objects, of which one covariance is made


def directions_option(value: Any) -> Directions:
    """Check the option ``monotone``: names of features with 1 or -1."""
    if value is None:
        return ()
    pairs = value.items() if isinstance(value, dict) else None
    if pairs is None or not all(isinstance(name, str) and sign in (1, -1) for name, sign in pairs):
        raise ChoiceGPError(
            'monotone must name features with 1 (utilities rise) or -1 (they fall), such as {"price": -1}; '
            f"got {value!r}"
        )
    return tuple((name, int(sign)) for name, sign in pairs)


def directed(kernel: Kernel, directions: Directions, data: ChoiceData, standardize: bool) -> Kernel:
    """Return the kernel in which these features have parts of their own; the kernel itself where there are none."""
    if not directions or isinstance(kernel, Monotone):
        return kernel
    encoding = data.encoding
    numeric = [column.name for column in encoding.columns if column.kind == "numeric"]
    unknown = [name for name, _ in directions if name not in numeric]
    if unknown:
        raise ChoiceGPError(
            f"monotone names {listed(unknown)}, which no numeric feature is called; the numeric features are "
            f"{listed(numeric)}"
        )
    signs = np.zeros(len(encoding.feature_names))
    for name, sign in directions:
        signs[list(encoding.feature_names).index(name)] = sign
    centre, scale = scaling(data, standardize)
    shown = (data.X[np.unique(data.flat_shown)] - centre) / scale
    return Monotone(kernel, signs, shown.min(axis=0), shown.max(axis=0))


def contradictions(fitted: Fitted) -> tuple[str, ...]:
    """Say which directions the answers speak against: what utilities would do without having been told.

    The ordered pairs have sites of their own, which are taken away.  Where a direction holds a feature back, the fit
    has found that it hardly matters: its parts get the variances with which a fit begins, where theirs are smaller.
    """
    signs = signs_of(fitted.posterior.prior.kernels)
    if signs is None or not fitted.posterior.has_sites:
        return ()
    problem, posterior = fitted.training_problem(), fitted.posterior
    n, d = problem.n_objects, posterior.n_utilities
    if n * d > _MOST_NUMBERS:
        return ()
    steps = np.flatnonzero(problem.objects.codes[:n] == STEP)
    sites = recovered_sites(posterior, problem)
    precision, linear = np.array(sites.precision)[:, :n, :n], np.array(sites.linear)[:, :n]
    precision[:, steps], precision[:, :, steps], linear[:, steps] = 0.0, 0.0, 0.0
    parts = np.asarray(covariance_at(_open(posterior.prior), problem))[:, :n, :n]
    shared = parts[0] if posterior.prior.shared else np.zeros((n, n))
    prior = _together(parts[-d:], shared)
    whole = np.zeros((d, n, d, n))
    whole[np.arange(d), :, np.arange(d)] = precision
    whole = whole.reshape(d * n, d * n)
    # (K^-1 + Λ)^-1 = K (I + Λ K)^-1
    covariance = np.linalg.solve((np.eye(d * n) + whole @ prior).T, prior.T).T
    mean = covariance @ linear.ravel()
    return tuple(
        f"the answers speak against monotone: without it, utility {i + 1} would "
        f"{'fall' if signs[j] > 0 else 'rise'} with {fitted.encoding.feature_names[j]}, by {away:.1f} standard "
        "deviations over its range"
        for j, ends in zip(np.flatnonzero(signs), _ends(steps, int(np.sum(signs != 0))), strict=True)
        for i in range(d)
        if (away := _away(mean, covariance, i * n + ends, signs[j])) > _CLEAR
    )


def _open(prior: UtilityPrior) -> UtilityPrior:
    """Return the prior in which features with a direction matter as they do where a fit begins, or more."""
    wide = np.maximum(prior.kernels.log_variance, np.log(FIRST_VARIANCE))
    return eqx.tree_at(lambda one: one.kernels.log_variance, prior, wide)


def _together(own: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Return the prior covariance (d n, d n) of utilities with parts of their own (d, n, n) and a shared one (n, n)."""
    d, n, _ = own.shape
    whole = np.broadcast_to(shared[:, None], (d, n, d, n)).copy()
    whole[np.arange(d), :, np.arange(d)] += own
    return whole.reshape(d * n, d * n)


def _ends(steps: np.ndarray, n_features: int) -> np.ndarray:
    """Return the first and the last object on the way along each feature, (k, 2)."""
    return steps.reshape(n_features, -1)[:, [0, -1]]


def _away(mean: np.ndarray, covariance: np.ndarray, ends: np.ndarray, sign: float) -> float:
    """Return by how many standard deviations a utility changes against the sign."""
    low, high = ends
    variance = covariance[low, low] + covariance[high, high] - 2.0 * covariance[low, high]
    return float(sign * (mean[low] - mean[high]) / np.sqrt(max(variance, 1e-12)))
