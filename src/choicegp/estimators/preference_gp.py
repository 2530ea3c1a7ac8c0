"""Gaussian processes for preferences between two objects: the systems that the paper compares with."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from choicegp.checks import flag_option, number_option, whole_number
from choicegp.compute.devices import computing
from choicegp.compute.progress import Clock, progress_report
from choicegp.compute.threads import linear_algebra_for
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_size
from choicegp.data.preferences import CONFLICTS, Preferences, preferences
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.fitting.options import hyperpriors_option
from choicegp.fitting.record import FitResult, Utilities, scaling
from choicegp.inference.descent import Descent
from choicegp.inference.driver import Watch
from choicegp.inference.laplace import Margins
from choicegp.inference.pair_process import PairProcess, PairTask, evidence, learned, margin_moments, utility_moments
from choicegp.model.kernels import Kernel, kernel_named
from choicegp.model.pair_kernels import ObjectPairs
from choicegp.model.prior import HyperPriors, UtilityPrior
from choicegp.prediction.pairs import beating_probabilities, copeland_winners
from choicegp.reading.encoding import FeatureEncoding

if TYPE_CHECKING:
    import os

_MOST = 3000  # latent values; matrices of this order are factorised some hundred times


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
            task = PairTask(self._kind, points, margins, options["hyperpriors"], n)
            if options["learn_hyperparameters"]:
                descent, prior = learned(
                    task, prior, Watch(clock, report), n_restarts=options["n_restarts"], max_iter=options["max_iter"],
                    tol=options["tol"],
                )  # fmt: skip
            else:
                descent = Descent(np.zeros(0), (), "converged", "the hyperparameters were given")
            end, _ = evidence(prior, points, margins, np.zeros(n), self._kind)
        kept = points if margins.first is not None else tuple(ObjectPairs(*points).features)
        found_process = PairProcess(prior.kernels, kept, end.dual, end.gain)
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
        return beating_probabilities(lambda *pair: margin_moments(self.process_, *pair, self._kind), first, second)

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
        Ten iterations that gain less than this many nats end the fit; so does an evidence that no log
        hyperparameter changes by more than this many nats per unit.
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
            mean, variance = (np.asarray(part) for part in utility_moments(self.process_, scaled))
        return Utilities(mean[:, None], np.sqrt(variance)[:, None])

    def _posed(self, X: np.ndarray, found: Preferences) -> tuple[tuple[np.ndarray, ...], Margins]:
        objects, winners, losers = _among_objects(X, found)
        padding = padded_size(len(winners), 3) - len(winners)
        first, second = (np.pad(rows, (0, padding)) for rows in (winners, losers))
        return (objects,), Margins(np.pad(found.weights, (0, padding)), first, second)  # type: ignore[arg-type]


class _OnPairs(PairwiseGP):
    _answers = 1.0  # about each pair

    def _posed(self, X: np.ndarray, found: Preferences) -> tuple[tuple[np.ndarray, ...], Margins]:
        objects, winners, losers = _among_objects(X, found)
        padding = padded_size(len(winners), 4) - len(winners)
        left, right = (np.pad(rows, (0, padding), mode="edge") for rows in (winners, losers))
        weight = self._answers * np.pad(found.weights, (0, padding))
        return (objects, left, right), Margins(weight)  # type: ignore[arg-type]


def _among_objects(X: np.ndarray, found: Preferences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct objects that were compared, padded by copies of the first, and winners and losers as rows."""
    rows = np.concatenate([found.winners, found.losers])
    objects, place = np.unique(X[rows], axis=0, return_inverse=True)
    winners, losers = np.split(place.ravel().astype(np.int32), 2)
    padding = padded_size(len(objects), 4) - len(objects)
    return np.concatenate([objects, np.repeat(objects[:1], padding, axis=0)]), winners, losers


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
