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
from choicegp.inference.dense import LOG_BOUNDS
from choicegp.inference.descent import Descent, descend
from choicegp.inference.driver import Verdict, Watch, run
from choicegp.inference.laplace import Laplace, Margins, laplace
from choicegp.inference.starts import rescaled
from choicegp.model import pair_kernels
from choicegp.model.kernels import Kernel
from choicegp.model.pair_kernels import ObjectPairs, PairFeatures
from choicegp.model.prior import HyperPriors, UtilityPrior, log_density

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
    """What a fitted model predicts from."""

    kernels: Kernel  # every parameter has a leading axis of length 1
    # features of the objects (one array), or of the left and right objects of the pairs (two), padded
    points: tuple[Any, ...]
    dual: Any  # (n,)
    gain: Any  # (n, n)


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
    """Return the covariance of the process at its points, and the covariance of the even part where there is one."""
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


class PairInference:
    """Maximise the evidence, with the hyperpriors, by L-BFGS from several lengthscales; its state is a `Descent`.

    After a few iterations the best start continues, until ten iterations gain less than ``tol`` nats or no slope is
    steeper than that.
    """

    def __init__(
        self, task: PairTask, prior: UtilityPrior, watch: Watch, n_restarts: int, max_iter: int, tol: float
    ) -> None:
        self.task, self.prior, self.watch = task, prior, watch
        self.n_restarts, self.max_iter, self.tol = n_restarts, max_iter, tol
        self._restore: Any
        start, self._restore = ravel_pytree(rescaled(prior, 1.0, 1.0))
        self._bounds = [LOG_BOUNDS] * len(start)
        self._mode = np.zeros(task.n)  # of the last hyperparameters, where Newton's method starts for the next

    def _loss(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        here, task = self._restore(x), self.task
        found, gradient = evidence(here, task.points, task.margins, self._mode, task.kind)
        value, slope = float(found.evidence), np.asarray(ravel_pytree(gradient)[0])
        if np.isfinite(value):
            self._mode = np.asarray(found.f)
        if task.hyperpriors is not None:
            density, pull = _hyperprior(here, task.hyperpriors)
            value, slope = value + float(density), slope + np.asarray(pull)
        return -value, -slope

    def begin(self) -> Descent:
        """Return the best of the starts after a few iterations."""
        far, most = np.sqrt(self.task.points[0].shape[1]), min(_TRIAL[self.task.kind], self.max_iter)
        trials: list[Descent] = []
        while len(trials) < self.n_restarts and not (trials and self.watch.is_up):
            factor = _LENGTHSCALES[len(trials) % len(_LENGTHSCALES)] * far
            start = Descent(np.asarray(ravel_pytree(rescaled(self.prior, factor, _FIRST_VARIANCE))[0]))
            self._mode = np.zeros(self.task.n)
            phase = f"start {len(trials) + 1} of {self.n_restarts}"
            trials.append(descend(self.watch, phase, self._loss, start, most, self.tol, self._bounds))
        return min(trials, key=lambda run: min(run.losses, default=np.inf))

    def step(self, now: Descent) -> Descent:
        """Descend to the end."""
        return descend(self.watch, "fit", self._loss, now, self.max_iter, self.tol, self._bounds, flat=self.tol)

    def verdict(self, now: Descent) -> Verdict | None:
        """Stop after one descent, or when the time is up."""
        return Verdict(now.status, now.message) if now.n_runs > 1 or self.watch.is_up else None

    def conclude(self, now: Descent, verdict: Verdict) -> tuple[Descent, UtilityPrior]:
        """Return the descent, and the prior with its learned hyperparameters."""
        if not now.losses:
            raise ChoiceGPError("the fit failed: no finite evidence was found. Try standardize=True or another kernel")
        return now, self._restore(now.x)


def learned(
    task: PairTask, prior: UtilityPrior, watch: Watch, *, n_restarts: int, max_iter: int, tol: float
) -> tuple[Descent, UtilityPrior]:
    """Learn the hyperparameters."""
    inference = PairInference(task, prior, watch, n_restarts, max_iter, tol)
    return inference.conclude(*run(inference))


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
