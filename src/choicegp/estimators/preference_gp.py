"""Gaussian processes for preferences between two objects: the systems that the paper compares with."""

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from choicegp.data.choices import ChoiceData
from choicegp.data.encoding import FeatureEncoding
from choicegp.data.preferences import CONFLICTS, Preferences, preferences
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.estimators.fitting import (
    flag_option,
    hyperpriors_option,
    number_option,
    rescaled,
    scaling,
    whole_number,
)
from choicegp.estimators.result import FitResult, Utilities
from choicegp.estimators.runtime import computing, linear_algebra_for, progress_report
from choicegp.inference.descent import Descent, Watch, descend
from choicegp.inference.fit import Clock
from choicegp.inference.laplace import Laplace, Margins, laplace
from choicegp.inference.problem import padded_size
from choicegp.inference.programs import program
from choicegp.model import pair_kernels
from choicegp.model.hyperpriors import HyperPriors, log_density
from choicegp.model.kernels import Kernel, kernel_named
from choicegp.model.pair_kernels import PairFeatures
from choicegp.model.prior import UtilityPrior
from choicegp.prediction.pairwise import beating_probabilities, copeland_winners

if TYPE_CHECKING:
    import os

_MOST = 3000  # latent values; matrices of this order are factorised some hundred times
_BOUNDS = (-8.0, 14.0)  # of log hyperparameters
_LENGTHSCALES = (1.0, 0.4, 2.5)  # of the starts in turn, times the square root of the number of features
_FIRST_VARIANCE = 7.0
_PAIR_COVARIANCE = {
    "utility": pair_kernels.preference,
    "intransitive": pair_kernels.intransitive,
    "concatenated": pair_kernels.odd,
}
_TRIAL = 6  # iterations before the starts are compared


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


class PairwiseGP(Estimator):
    """Base of the Gaussian processes for preferences between two objects."""

    _kind: str  # which covariance, by name: part of the compiled program

    def __init__(
        self,
        kernel: "str | Kernel" = "rbf",
        *,
        conflicts: str = "drop",
        standardize: bool = True,
        hyperpriors: HyperPriors | None = HyperPriors(),  # noqa: B008  immutable
        learn_hyperparameters: bool = True,
        n_restarts: int = 2,
        max_iter: int = 100,
        max_seconds: float | None = None,
        tol: float = 0.01,
        device: str = "auto",
        progress: bool | str = "auto",
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.conflicts = conflicts
        self.standardize = standardize
        self.hyperpriors = hyperpriors
        self.learn_hyperparameters = learn_hyperparameters
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.tol = tol
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def fit(self, data: ChoiceData, y: None = None, *, outputs: Any = None) -> Self:
        """Learn from preferences, or from choices reduced to preferences by the rule ``conflicts``.

        Parameters
        ----------
        data : ChoiceData
            With choices; see `choicegp.data.preferences.preferences` for how they are reduced.
        y : None
            Ignored; scikit-learn passes it.
        outputs : array (t, q), optional
            For ``conflicts="majority"``: what the rows of ``data.X`` are worth, larger is better.
        """
        options = self._validated()
        found = self._preferences(data, outputs)
        if len(found.winners) == 0:
            raise ChoiceGPError(
                f"no preference is left: all {found.n_conflicts} pairs of objects were both chosen, and "
                f"conflicts={self.conflicts!r} decides none of them"
            )
        clock = Clock(options["max_seconds"])
        centre, scale = scaling(data, options["standardize"])
        X = (data.X - centre) / scale
        points, margins = self._posed(X, found)
        n = len(margins.weight if margins.first is None else points[0])
        if n > _MOST:
            what = "pairs" if margins.first is None else "objects"
            raise ChoiceGPError(
                f"{n} {what} are more than the {_MOST} that {type(self).__name__} can factorise: fit a sample of the "
                "sets (data.take or data.split)" + (", or use PreferenceGP" if margins.first is None else "")
            )
        kernel = kernel_named(self.kernel)
        prior = UtilityPrior.create(kernel, data.X.shape[1], 1)
        with (
            computing(self.device),
            linear_algebra_for(n),
            progress_report(self.progress, options["max_iter"]) as report,
        ):
            task = _Task(self._kind, points, margins, options["hyperpriors"], n)
            if options["learn_hyperparameters"]:
                descent, prior = _learned(task, prior, options, Watch(clock, report))
            else:
                descent = Descent(np.zeros(0), (), "converged", "the hyperparameters were given")
            end, _ = _evidence(prior, points, margins, np.zeros(n), self._kind)
        found_process = PairProcess(prior.kernels, points, end.dual, end.gain)
        self.process_ = jax.tree.map(np.asarray, found_process)
        self.log_evidence_ = float(end.evidence)
        if not np.isfinite(self.log_evidence_):
            raise ChoiceGPError("the fit failed: the evidence is not finite. Try standardize=True or another kernel")
        notes = (f"{found.n_conflicts} pairs in conflict: {self.conflicts}",) if found.n_conflicts else ()
        trace = -np.asarray(descent.losses)
        self.fit_result_ = FitResult(descent.status, descent.message, len(trace), clock.seconds, trace, notes)
        self.centre_, self.scale_ = centre, scale
        self.encoding_: FeatureEncoding = data.encoding
        return self

    def predict_pair_proba(self, X1: Any, X2: Any) -> np.ndarray:
        """Return P(first beats second) for each pair of rows, (n,).

        Parameters
        ----------
        X1, X2 : DataFrame of features, encoded array (n, c), or ChoiceData
        """
        first, second = self._scaled(X1), self._scaled(X2)
        if first.shape != second.shape:
            raise ChoiceGPError(f"as many first as second objects are needed; got {len(first)} and {len(second)}")
        with computing(self.device):
            return self._beats(first, second)

    def predict(self, data: ChoiceData) -> list[np.ndarray]:
        """Return the object that probably beats all others of each set, as rows of ``data.X``.

        Of more than two objects, those that beat the most others are taken (Copeland's rule); equals are all kept.
        """
        self._check_fitted()
        if not isinstance(data, ChoiceData):
            raise ChoiceGPError(f"a ChoiceData is needed; got {type(data).__name__}")
        X = self._scaled(data)
        with computing(self.device):
            return copeland_winners(data, lambda first, second: self._beats(X[first], X[second]))

    def score(self, data: ChoiceData, y: None = None, *, outputs: Any = None) -> float:
        """Return the fraction of preferences (choices reduced by the rule ``conflicts``) that are predicted right."""
        self._check_fitted()
        found = self._preferences(data, outputs)
        if len(found.winners) == 0:
            raise ChoiceGPError("these data hold no preference to compare a prediction with")
        X = self._scaled(data)
        with computing(self.device):
            p = self._beats(X[found.winners], X[found.losers])
        return float(np.average(p > 0.5, weights=found.weights))

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the model to one file that holds no code."""
        from choicegp.estimators.pairwise_files import save_pairwise

        self._check_fitted()
        save_pairwise(self, path)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> Self:
        """Read a model written by `save`; it predicts bit for bit the same."""
        from choicegp.estimators.pairwise_files import load_pairwise

        return load_pairwise(cls, path)

    def _validated(self) -> dict[str, Any]:
        if self.conflicts not in CONFLICTS:
            raise ChoiceGPError(f"conflicts must be one of {', '.join(CONFLICTS)}; got {self.conflicts!r}")
        whole_number("random_state", self.random_state, 0)
        return {
            "standardize": flag_option("standardize", self.standardize),
            "hyperpriors": hyperpriors_option(self.hyperpriors),
            "learn_hyperparameters": flag_option("learn_hyperparameters", self.learn_hyperparameters),
            "n_restarts": whole_number("n_restarts", self.n_restarts, 1),
            "max_iter": whole_number("max_iter", self.max_iter, 1),
            "max_seconds": None
            if self.max_seconds is None
            else number_option("max_seconds", self.max_seconds, 0.0, np.inf),
            "tol": number_option("tol", self.tol, 0.0, np.inf),
        }

    def _preferences(self, data: ChoiceData, outputs: Any) -> Preferences:
        return preferences(data, self.conflicts, outputs, self.random_state)

    @abstractmethod
    def _posed(self, X: np.ndarray, found: Preferences) -> tuple[tuple[np.ndarray, ...], Margins]:
        """Return the points of the process and what was answered about it."""

    def _beats(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """P(first beats second) from scaled features, row by row."""
        return beating_probabilities(lambda *pair: _moments(self.process_, *pair, self._kind), first, second)

    def _scaled(self, X: Any) -> np.ndarray:
        self._check_fitted()
        encoded = X.with_encoding(self.encoding_).X if isinstance(X, ChoiceData) else self.encoding_.encode(X)
        return (encoded - self.centre_) / self.scale_

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise ChoiceGPError(f"this {type(self).__name__} is not fitted yet: call fit(data) first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "process_")


class PreferenceGP(PairwiseGP):
    """PGP: one utility, a Gaussian process over the features, and probit answers (Chu and Ghahramani 2005).

    Parameters
    ----------
    kernel : str or Kernel
        As in `ChoiceGP`.
    conflicts : {"drop", "random", "majority"}
        What two objects say that were both chosen.
    standardize : bool
        Whether features are scaled to mean 0 and standard deviation 1 first.
    hyperpriors : HyperPriors or None
        Weak priors on log lengthscales and variances; None for none.
    learn_hyperparameters : bool
        Whether the kernel's parameters are learned, by the approximate evidence; if not, they stay as given.
    n_restarts : int
        Starts from different lengthscales.
    max_iter : int
        Most iterations of L-BFGS.
    max_seconds : float, optional
    tol : float
        Ten iterations that gain less than this many nats end the fit.
    device : {"auto", "cpu", "gpu"}
    progress : bool or "auto"
    random_state : int
        Seed of the coin of ``conflicts="random"``.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = PreferenceGP(max_iter=20).fit(data)
    >>> model.predict(data)[1]
    array([2])
    """

    _kind = "utility"

    def utilities(self, X: Any) -> Utilities:
        """Return posterior mean and standard deviation of the utility, each (n, 1), at any objects."""
        scaled = self._scaled(X)
        with computing(self.device):
            mean, variance = (np.asarray(part) for part in _utility_moments(self.process_, scaled))
        return Utilities(mean[:, None], np.sqrt(variance)[:, None])

    def _posed(self, X: np.ndarray, found: Preferences) -> tuple[tuple[np.ndarray, ...], Margins]:
        rows = np.unique(np.concatenate([found.winners, found.losers]))
        objects, place = np.unique(X[rows], axis=0, return_inverse=True)
        place = place.ravel()
        n, m = padded_size(len(objects), 4), padded_size(len(found.winners), 3)
        local = np.zeros(len(X), np.int32)
        local[rows] = place
        first, second, weight = np.zeros(m, np.int32), np.zeros(m, np.int32), np.zeros(m)
        k = len(found.winners)
        first[:k], second[:k], weight[:k] = local[found.winners], local[found.losers], found.weights
        points = np.concatenate([objects, np.repeat(objects[:1], n - len(objects), axis=0)])
        return (points,), Margins(weight, first, second)  # type: ignore[arg-type]


class _OnPairs(PairwiseGP):
    _answers = 1.0  # about each pair

    def _posed(self, X: np.ndarray, found: Preferences) -> tuple[tuple[np.ndarray, ...], Margins]:
        k = len(found.winners)
        padding = padded_size(k, 4) - k
        left, right = (
            np.concatenate([X[rows], np.repeat(X[rows[:1]], padding, axis=0)]) for rows in (found.winners, found.losers)
        )
        weight = self._answers * np.concatenate([found.weights, np.zeros(padding)])
        return (left, right), Margins(weight)  # type: ignore[arg-type]


class GeneralPreferenceGP(_OnPairs):
    """GPGP: a process on pairs that is skew-symmetric, and may prefer in a circle (Chau et al. 2022).

    Its covariance is eq:kernprefintr of the paper.  Parameters are those of `PreferenceGP`; matrices have the order
    of the number of pairs, at most 3000.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> circle = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[0, 1], [1, 2], [2, 0]] * 3)
    >>> model = GeneralPreferenceGP(max_iter=20).fit(circle)
    >>> model.score(circle)
    1.0
    """

    _kind = "intransitive"


class PairGP(_OnPairs):
    """PairGP: a process on the features of both objects, every pair in both orders, outputs averaged.

    The process f has the kernel on the concatenated features, with the same lengthscales for both objects.  The
    prediction is (f(l, r) - f(r, l)) / 2, its odd part.  Learning from a pair in both orders leaves the even part at
    zero, so that matrices have the order of the number of pairs, not of twice that, without any approximation.
    Parameters are those of `PreferenceGP`.
    """

    _kind = "concatenated"
    _answers = 2.0


class _Task(NamedTuple):
    """What does not change during a fit."""

    kind: str
    points: tuple[np.ndarray, ...]
    margins: Margins
    hyperpriors: HyperPriors | None
    n: int


def _covariances(kind: str, kernel: Kernel, points: tuple) -> tuple[jax.Array, jax.Array | None]:
    """Return the covariance of the process at its points, and that of the even part where there is one."""
    if kind == "utility":
        return kernel.gram(points[0], points[0]), None
    pairs = PairFeatures(*points)
    if kind == "intransitive":
        return pair_kernels.intransitive(kernel, pairs, pairs), None
    return pair_kernels.odd(kernel, pairs, pairs), pair_kernels.even(kernel, pairs, pairs)


@partial(program, static="kind")
def _evidence(
    prior: UtilityPrior, points: tuple, margins: Margins, start: jax.Array, kind: str
) -> tuple[Laplace, UtilityPrior]:
    """Return the approximation, and the gradient of the evidence with respect to the hyperparameters."""

    def covariances(prior: UtilityPrior) -> tuple[jax.Array, jax.Array | None]:
        return _covariances(kind, jax.tree.map(lambda leaf: leaf[0], prior.kernels), points)

    (covariance, even), pull_back = jax.vjp(covariances, prior)
    found, slopes = laplace(covariance, margins, start, even)
    return found, pull_back((slopes.covariance, slopes.even))[0]


def _learned(task: _Task, prior: UtilityPrior, options: dict[str, Any], watch: Watch) -> tuple[Descent, UtilityPrior]:
    """Maximise the evidence, with the hyperpriors, from several starts."""
    n_features = task.points[0].shape[1]
    duals = [np.zeros(task.n)]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        here = restore(x)
        found, gradient = _evidence(here, task.points, task.margins, duals[-1], task.kind)
        if np.isfinite(float(found.evidence)):
            duals[-1] = np.asarray(found.dual)
        value, slope = float(found.evidence), np.asarray(ravel_pytree(gradient)[0])
        if task.hyperpriors is not None:
            density, pull = _hyperprior(here, task.hyperpriors)
            value, slope = value + float(density), slope + np.asarray(pull)
        return -value, -slope

    restore: Any = None
    trials = []
    for start in range(options["n_restarts"]):
        factor = _LENGTHSCALES[start % len(_LENGTHSCALES)] * np.sqrt(n_features)
        x, restore = ravel_pytree(rescaled(prior, factor, _FIRST_VARIANCE))
        duals[-1] = np.zeros(task.n)
        phase = f"start {start + 1} of {options['n_restarts']}"
        first = Descent(np.asarray(x))
        most = min(_TRIAL, options["max_iter"])
        trials.append(descend(watch, phase, loss, first, most, options["tol"], [_BOUNDS] * len(x)))
        if watch.clock.is_up:
            break
    best = min(trials, key=lambda run: min(run.losses, default=np.inf))
    if not watch.clock.is_up:
        best = descend(watch, "fit", loss, best, options["max_iter"], options["tol"], [_BOUNDS] * len(best.x))
    if not best.losses:
        raise ChoiceGPError("the fit failed: no finite evidence was found. Try standardize=True or another kernel")
    return best, restore(best.x)


@partial(program, static="hyperpriors")
def _hyperprior(prior: UtilityPrior, hyperpriors: HyperPriors) -> tuple[jax.Array, jax.Array]:
    value, gradient = jax.value_and_grad(log_density)(prior, hyperpriors)
    return value, ravel_pytree(gradient)[0]


@partial(program, static="kind")
def _moments(process: PairProcess, first: jax.Array, second: jax.Array, kind: str) -> tuple[jax.Array, jax.Array]:
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
def _utility_moments(process: PairProcess, X: jax.Array) -> tuple[jax.Array, jax.Array]:
    kernel = jax.tree.map(lambda leaf: leaf[0], process.kernels)
    cross = kernel.gram(X, process.points[0])
    variance = kernel.diagonal(X) - jnp.sum((cross @ process.gain) * cross, axis=1)
    return cross @ process.dual, jnp.maximum(variance, 0.0)
