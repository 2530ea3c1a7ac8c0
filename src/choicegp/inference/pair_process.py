"""Gaussian processes that answer "which of two is better", fitted by Laplace's approximation.

A process is named by its kind: "utility" (of objects; a pair's margin is a difference), "intransitive" (of pairs,
eq:kernprefintr) or "concatenated" (the odd part of a function of both objects' features).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from choicegp.compute.programs import program
from choicegp.errors import ChoiceGPError
from choicegp.inference.adam import LOG_BOUNDS
from choicegp.inference.descent import Descent, Watch, descend
from choicegp.inference.laplace import Laplace, Margins, laplace
from choicegp.inference.starts import rescaled
from choicegp.model import pair_kernels
from choicegp.model.hyperpriors import HyperPriors, log_density
from choicegp.model.kernels import Kernel
from choicegp.model.pair_kernels import ObjectPairs, PairFeatures
from choicegp.model.prior import UtilityPrior

_LENGTHSCALES = (1.0, 0.4, 2.5)  # of the starts in turn, times the square root of the number of features
_FIRST_VARIANCE = 7.0
_PAIR_COVARIANCE = {
    "utility": pair_kernels.preference,
    "intransitive": pair_kernels.intransitive,
    "concatenated": pair_kernels.odd,
}
# Iterations before the starts are compared.  After six the poorer of two optima led on Slump (by 0.9 nats in the end):
# a utility of objects, whose matrices are small, can afford more.
_TRIAL = {"utility": 40, "intransitive": 6, "concatenated": 6}


class PairProcess(NamedTuple):
    """What a fitted model predicts from.

    Attributes
    ----------
    kernels : Kernel
        Every parameter has a leading axis of length 1.
    points : tuple of array
        Features of the objects (one array), or of the left and right objects of the pairs (two), padded.
    dual : array (n,)
    gain : array (n, n)
    """

    kernels: Kernel
    points: tuple[Any, ...]
    dual: Any
    gain: Any


class PairTask(NamedTuple):
    """What does not change during a fit.

    ``points`` are the objects (one array); for a process on pairs, the objects and the left and right rows of the
    pairs (the three arrays of an `ObjectPairs`).
    """

    kind: str
    points: tuple[np.ndarray, ...]
    margins: Margins
    hyperpriors: HyperPriors | None
    n: int


def _covariances(kind: str, kernel: Kernel, points: tuple) -> tuple[jax.Array, jax.Array | None]:
    """Return the covariance of the process at its points, and that of the even part where there is one."""
    if kind == "utility":
        return kernel.gram(points[0], points[0]), None
    pairs = ObjectPairs(*points)
    if kind == "intransitive":
        return pair_kernels.intransitive_among(kernel, pairs), None
    return pair_kernels.odd_and_even_among(kernel, pairs)


@partial(program, static="kind")
def evidence(
    prior: UtilityPrior, points: tuple, margins: Margins, start: jax.Array, kind: str
) -> tuple[Laplace, UtilityPrior]:
    """Return the approximation, and the gradient of the evidence with respect to the hyperparameters."""

    def covariances(prior: UtilityPrior) -> tuple[jax.Array, jax.Array | None]:
        return _covariances(kind, jax.tree.map(lambda leaf: leaf[0], prior.kernels), points)

    (covariance, even), pull_back = jax.vjp(covariances, prior)
    found, slopes = laplace(covariance, margins, start, even)
    return found, pull_back((slopes.covariance, slopes.even))[0]


def learned(
    task: PairTask, prior: UtilityPrior, watch: Watch, *, n_restarts: int, max_iter: int, tol: float
) -> tuple[Descent, UtilityPrior]:
    """Maximise the evidence, with the hyperpriors, from several starts."""
    n_features = task.points[0].shape[1]
    mode = np.zeros(task.n)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal mode
        here = restore(x)
        found, gradient = evidence(here, task.points, task.margins, mode, task.kind)
        if np.isfinite(float(found.evidence)):
            mode = np.asarray(found.f)
        value, slope = float(found.evidence), np.asarray(ravel_pytree(gradient)[0])
        if task.hyperpriors is not None:
            density, pull = _hyperprior(here, task.hyperpriors)
            value, slope = value + float(density), slope + np.asarray(pull)
        return -value, -slope

    restore: Any = None
    trials = []
    for start in range(n_restarts):
        factor = _LENGTHSCALES[start % len(_LENGTHSCALES)] * np.sqrt(n_features)
        x, restore = ravel_pytree(rescaled(prior, factor, _FIRST_VARIANCE))
        mode = np.zeros(task.n)
        phase = f"start {start + 1} of {n_restarts}"
        first = Descent(np.asarray(x))
        most = min(_TRIAL[task.kind], max_iter)
        trials.append(descend(watch, phase, loss, first, most, tol, [LOG_BOUNDS] * len(x)))
        if watch.clock.is_up:
            break
    best = min(trials, key=lambda run: min(run.losses, default=np.inf))
    if not watch.clock.is_up:
        best = descend(watch, "fit", loss, best, max_iter, tol, [LOG_BOUNDS] * len(best.x), flat=tol)
    if not best.losses:
        raise ChoiceGPError("the fit failed: no finite evidence was found. Try standardize=True or another kernel")
    return best, restore(best.x)


@partial(program, static="hyperpriors")
def _hyperprior(prior: UtilityPrior, hyperpriors: HyperPriors) -> tuple[jax.Array, jax.Array]:
    value, gradient = jax.value_and_grad(log_density)(prior, hyperpriors)
    return value, ravel_pytree(gradient)[0]


@partial(program, static="kind")
def margin_moments(process: PairProcess, first: jax.Array, second: jax.Array, kind: str) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of the margins of new pairs."""
    kernel = jax.tree.map(lambda leaf: leaf[0], process.kernels)
    asked = PairFeatures(first, second)

    covariance = _PAIR_COVARIANCE[kind]

    def own(left: jax.Array, right: jax.Array) -> jax.Array:
        one = PairFeatures(left[None], right[None])
        return covariance(kernel, one, one)[0, 0]

    if kind == "utility":
        cross = kernel.gram(first, process.points[0]) - kernel.gram(second, process.points[0])
    else:
        cross = covariance(kernel, asked, PairFeatures(*process.points))
    variance = jax.vmap(own)(first, second) - jnp.sum((cross @ process.gain) * cross, axis=1)
    return cross @ process.dual, jnp.maximum(variance, 0.0)


@program
def utility_moments(process: PairProcess, X: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of the utility at objects."""
    kernel = jax.tree.map(lambda leaf: leaf[0], process.kernels)
    cross = kernel.gram(X, process.points[0])
    variance = kernel.diagonal(X) - jnp.sum((cross @ process.gain) * cross, axis=1)
    return cross @ process.dual, jnp.maximum(variance, 0.0)
