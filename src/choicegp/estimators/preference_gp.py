"""Gaussian processes for preferences between two objects: the systems that the paper compares with."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from choicegp.checks import seed
from choicegp.compute.devices import computing
from choicegp.data.choices import ChoiceData
from choicegp.data.preferences import preferences
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator, check_something_kept
from choicegp.fitting.pairwise import FittedPairs, PairOptions, fit_pairs
from choicegp.fitting.record import FitResult, Utilities
from choicegp.inference.pair_process import PairProcess, margin_moments, utility_moments
from choicegp.model.kernels import Kernel
from choicegp.model.prior import HyperPriors
from choicegp.prediction.pairs import beating_probabilities, copeland_winners


@dataclass(eq=False, repr=False)
class PairwiseGP(Estimator):
    """Base of the Gaussian processes for preferences between two objects."""

    _kind: ClassVar[str]  # which covariance, by name: part of the compiled program
    _without = "it models preferences between two objects, see predict_pair_proba"
    fitted_: FittedPairs = field(init=False)
    fit_result_: FitResult = field(init=False)
    kernel: str | Kernel = "rbf"
    _: KW_ONLY
    conflicts: str = "drop"
    standardize: bool = True
    hyperpriors: HyperPriors | None = HyperPriors()  # noqa: RUF009  immutable
    learn_hyperparameters: bool = True
    n_restarts: int = 2
    max_iter: int = 100
    max_seconds: float | None = None
    tol: float = 0.01
    device: str = "auto"
    progress: bool | str = "auto"
    random_state: int | None = 0

    def fit(self, data: ChoiceData, y: None = None, *, outputs: Any = None) -> Self:
        """Learn from preferences, or from choices reduced to preferences by the rule ``conflicts``.

        Parameters
        ----------
        data : ChoiceData
            With choices; see `choicegp.preferences` for how they are reduced.
        y : None
            Ignored; scikit-learn passes it.
        outputs : array (t, q), optional
            For ``conflicts="majority"``: what the rows of ``data.X`` are worth, larger is better.

        Returns
        -------
        PairwiseGP
            Itself.
        """
        options = PairOptions.validated(self.get_params(deep=False))
        if isinstance(data, ChoiceData):
            check_something_kept(data, type(self).__name__, of_pairs=True)
        with computing(self.device):
            return self._keep(fit_pairs(data, options, self._kind, outputs, type(self).__name__))

    @property
    def process_(self) -> PairProcess:
        """The Gaussian process from which preferences are predicted."""
        return self.fitted_.process

    @property
    def log_evidence_(self) -> float:
        """Log evidence of the preferences, by Laplace's approximation."""
        return self.fitted_.log_evidence

    def predict_pair_proba(self, X1: Any, X2: Any) -> np.ndarray:
        """Return P(first beats second) for each pair of rows, (n,).

        Parameters
        ----------
        X1, X2 : DataFrame of features, encoded array (n, c), or ChoiceData
        """
        self._check_fitted()
        first, second = self.fitted_.scaled(X1), self.fitted_.scaled(X2)
        if first.shape != second.shape:
            raise ChoiceGPError(f"as many first as second objects are needed; got {len(first)} and {len(second)}")
        with computing(self.device):
            found = self._beats(first, second)
        self._warn_outside(X1, X2)
        return found

    def _choices(self, data: ChoiceData) -> list[np.ndarray]:
        """Return the object that probably beats all others of each set, by Copeland's rule."""
        X = self.fitted_.scaled(data)
        with computing(self.device):
            return copeland_winners(data, lambda first, second: self._beats(X[first], X[second]))

    def _probabilities(self, data: ChoiceData) -> list[np.ndarray] | None:
        """Return P(object beats the other one); None where a set has more than two objects."""
        sizes, X = np.diff(data.offsets), self.fitted_.scaled(data)
        if np.any(sizes > 2):
            return None
        pairs = data.flat_shown[data.offsets[:-1][sizes == 2][:, None] + np.arange(2)]
        result = [np.ones(1)] * len(data)
        with computing(self.device):
            for k, p in zip(np.flatnonzero(sizes == 2), self._beats(X[pairs[:, 0]], X[pairs[:, 1]]), strict=True):
                result[k] = np.array([p, 1.0 - p])
        return result

    def log_prob(self, data: ChoiceData) -> np.ndarray:
        """Return the log probability of each set's choice.

        Parameters
        ----------
        data : ChoiceData
            With choices, of sets of at most two objects, one of them chosen.

        Returns
        -------
        ndarray (m,)
        """
        chosen = self._checked(data).flat_chosen
        if chosen is None:
            raise ChoiceGPError("log_prob needs data with choices: these have none")
        if np.any(np.add.reduceat(chosen, data.offsets[:-1], dtype=int) > 1):
            self._refuse("probability that two objects are chosen together")
        with np.errstate(divide="ignore"):
            return np.log(np.concatenate(self._known_probabilities(data))[chosen])

    def score(self, data: ChoiceData, y: None = None, *, outputs: Any = None) -> float:
        """Return the fraction of preferences (choices reduced by the rule ``conflicts``) that are predicted right.

        Parameters
        ----------
        data, y, outputs
            As in `fit`.

        Returns
        -------
        float
            From 0 to 1.
        """
        self._check_fitted()
        found = preferences(data, self.conflicts, outputs, seed(self.random_state))
        if len(found.winners) == 0:
            raise ChoiceGPError("these data hold no preference to compare a prediction with")
        X = self.fitted_.scaled(data)
        with computing(self.device):
            p = self._beats(X[found.winners], X[found.losers])
        return float(np.average(p > 0.5, weights=found.weights))

    def _beats(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """P(first beats second) from scaled features, row by row."""
        return beating_probabilities(lambda *pair: margin_moments(self.process_, *pair, self._kind), first, second)

    def _learned(self) -> str:
        return f"log evidence {self.log_evidence_:.1f}"


class PreferenceGP(PairwiseGP):
    """PGP: one utility, a Gaussian process over the features, and probit answers (Chu and Ghahramani 2005).

    It predicts the object that probably beats all others of a set.  Of more than two objects, those that beat the most
    others are taken (Copeland's rule); equals are all kept.

    Parameters
    ----------
    kernel : str or Kernel
        As in `ChoiceGP`.
    conflicts : {"drop", "random", "majority"}
        What is learned from two objects that were both chosen: nothing, the side of a coin, or that the one that is
        better in more of the ``outputs`` is preferred.
    standardize : bool
        Whether features are scaled to mean 0 and standard deviation 1 first.
    hyperpriors : HyperPriors or None
        Weak priors on log lengthscales and variances; None for none.
    learn_hyperparameters : bool
        Whether the kernel's parameters are learned, by the approximate evidence; if not, they stay as given.
    n_restarts : int
        Starts from different lengthscales.
    max_iter : int
        Maximum number of iterations of L-BFGS.
    max_seconds : float, optional
        Time limit of the fit; what was reached by then is kept.
    tol : float
        The fit has converged when ten iterations gain less than this many nats, or when no log hyperparameter changes
        the evidence by more than this many nats per unit.
    device : {"auto", "cpu", "gpu"}
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    random_state : int or None
        Seed of the coin of ``conflicts="random"``. None: a new one with every use.

    Attributes
    ----------
    log_evidence_ : float
        By Laplace's approximation.
    fit_result_ : FitResult
    process_ : PairProcess
    data_ : ChoiceData
        The training data.
    encoding_ : FeatureEncoding

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = PreferenceGP(max_iter=20).fit(data)
    >>> model.predict(data)[1]
    array([2])
    """

    _kind, _format = "utility", "choicegp-PreferenceGP"

    def _utilities(self, X: Any) -> Utilities:
        with computing(self.device):
            mean, variance = (np.asarray(part) for part in utility_moments(self.process_, self.fitted_.scaled(X)))
        return Utilities(mean[:, None], np.sqrt(variance)[:, None])


class GeneralPreferenceGP(PairwiseGP):
    """GPGP: a process on pairs that is skew-symmetric and may prefer in a circle (Chau et al. 2022).

    Its covariance is eq:kernprefintr of the paper.  Matrices have the order of the number of pairs, at most 3000.

    Parameters
    ----------
    kernel, conflicts, standardize, hyperpriors, learn_hyperparameters, n_restarts, max_iter, max_seconds, tol, \
    device, progress, random_state
        As in `PreferenceGP`.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> circle = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[0, 1], [1, 2], [2, 0]] * 3)
    >>> model = GeneralPreferenceGP(max_iter=20).fit(circle)
    >>> model.score(circle)
    1.0
    """

    _kind, _format = "intransitive", "choicegp-GeneralPreferenceGP"


class PairGP(PairwiseGP):
    """PairGP: a process on the features of both objects, every pair in both orders, outputs averaged.

    The process f has the kernel on the concatenated features, with the same lengthscales for both objects.  The
    prediction is (f(l, r) - f(r, l)) / 2, its odd part.  Learning from a pair in both orders leaves the even part at
    zero, so that matrices have the order of the number of pairs, not of twice that, without any approximation.

    Parameters
    ----------
    kernel, conflicts, standardize, hyperpriors, learn_hyperparameters, n_restarts, max_iter, max_seconds, tol, \
    device, progress, random_state
        As in `PreferenceGP`.

    Examples
    --------
    >>> from choicegp import ChoiceData, PairGP
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> PairGP(max_iter=20).fit(data).predict(data)[1]
    array([2])
    """

    _kind, _format = "concatenated", "choicegp-PairGP"
