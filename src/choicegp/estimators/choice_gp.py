"""ChoiceGP: learn a choice function from choices, and predict others."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.encoding import FeatureEncoding
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.estimators.fitting import FitOptions, fit_posterior
from choicegp.estimators.result import FitResult, Utilities
from choicegp.estimators.runtime import computing
from choicegp.inference.posterior import Posterior
from choicegp.inference.programs import program
from choicegp.model.hyperpriors import HyperPriors
from choicegp.model.kernels import Kernel
from choicegp.model.prior import Objects
from choicegp.prediction import metrics
from choicegp.prediction.choices import ChoicePredictor
from choicegp.prediction.utilities import dominance_probabilities, joint_samples, recommended

if TYPE_CHECKING:
    import os

    import pandas as pd


class ChoiceGP(Estimator):
    """Choice functions with Gaussian processes (Benavoli, Azzimonti and Piga, UAI 2023).

    There are ``n_utilities`` hidden utilities, each a Gaussian process over the features; of a set, the
    objects that no other dominates in all utilities are chosen, with probit errors.

    Parameters
    ----------
    n_utilities : int
        Number of hidden utilities.
    inference : {"auto", "dense", "paper", "paper-converged"}
        "dense": block sites by natural gradient, exact for up to a few thousand shown objects; "paper": the
        authors' own approximation, 5000 Adam steps; "paper-converged": the same family with a good optimiser.
    kernel : str or Kernel
        "rbf", "matern12", "matern32", "matern52", "linear", "periodic", "additive", or a composition of
        kernels from `choicegp.kernels`.
    object_effects : bool
        Whether each object id has, beside its features, an effect of its own.
    lapse : float or "learn"
        Probability that an answer is a random subset.
    standardize : bool
        Whether features are scaled to mean 0 and standard deviation 1 first.
    hyperpriors : HyperPriors or None
        Weak priors on log lengthscales and variances; None for none.
    n_restarts : int
        Number of annealed starts; the best goes on.
    max_iter : int, optional
        Most steps; by default 300 ("dense"), 5000 ("paper") or 1000 ("paper-converged").
    max_seconds : float, optional
        Time limit of the fit; what was reached by then is kept.
    tol : float
        The fit has converged when a few steps gain less than this many nats.
    n_inducing, batch_size : None
        Belong to sparse inference, which is not built yet.
    device : {"auto", "cpu", "gpu"}
    n_jobs : int, optional
        Threads that run starts side by side; by default one, -1 for all cores.
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    random_state : int
        Seed; the same seed gives the same result.

    Attributes
    ----------
    n_utilities_ : int
    elbo_ : float
        Evidence lower bound, scored on fresh points, without hyperpriors.
    fit_result_ : FitResult
        Status, message, number of steps, seconds and the trace of the bound.
    posterior_ : Posterior
    data_ : ChoiceData
        The training data.
    encoding_ : FeatureEncoding

    Examples
    --------
    >>> from choicegp import ChoiceGP, datasets
    >>> data = datasets.sincos(n_objects=40, n_sets=30).data
    >>> train, test = data.split(0.3, random_state=0)
    >>> model = ChoiceGP(n_utilities=2, n_restarts=1, max_iter=40).fit(train)
    >>> len(model.predict(test)) == len(test)
    True
    """

    def __init__(
        self,
        n_utilities: int = 2,
        *,
        inference: str = "auto",
        kernel: str | Kernel = "rbf",
        object_effects: bool = False,
        lapse: float | str = 0.0,
        standardize: bool = True,
        hyperpriors: HyperPriors | None = HyperPriors(),  # noqa: B008 - immutable
        n_restarts: int = 3,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        tol: float = 0.02,
        n_inducing: int | None = None,
        batch_size: int | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        progress: bool | str = "auto",
        random_state: int = 0,
    ) -> None:
        self.n_utilities = n_utilities
        self.inference = inference
        self.kernel = kernel
        self.object_effects = object_effects
        self.lapse = lapse
        self.standardize = standardize
        self.hyperpriors = hyperpriors
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.tol = tol
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.device = device
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

    def fit(self, data: ChoiceData, y: None = None, *, init: "ChoiceGP | None" = None) -> Self:
        """Learn utilities and hyperparameters from choices.

        Parameters
        ----------
        data : ChoiceData
            With choices.
        y : None
            Ignored; scikit-learn passes it.
        init : ChoiceGP, optional
            An earlier model to start from, when sets have arrived since: no annealing, few steps.

        Returns
        -------
        ChoiceGP
            Itself.
        """
        if not isinstance(data, ChoiceData):
            raise ChoiceGPError(
                f"fit takes a ChoiceData; got {type(data).__name__}. Make one with ChoiceData.from_long"
            )
        options = FitOptions.validated(self.get_params(deep=False))
        if init is not None:
            if not isinstance(init, ChoiceGP) or not init.__sklearn_is_fitted__():
                raise ChoiceGPError(f"init must be a ChoiceGP that is fitted already; got {init!r}")
            data = data.with_encoding(init.encoding_)
        with computing(self.device):
            fitted = fit_posterior(data, options, None if init is None else init._warm_state())
        self.posterior_: Posterior = fitted.posterior
        self.elbo_ = fitted.elbo
        self.fit_result_: FitResult = fitted.result
        self.centre_, self.scale_ = fitted.centre, fitted.scale
        self.known_ids_: dict[Any, int] = fitted.codes
        self.n_utilities_ = fitted.posterior.n_utilities
        self.data_ = data
        self.encoding_: FeatureEncoding = data.encoding
        return self

    def predict(self, data: ChoiceData) -> list[np.ndarray]:
        """Return the most probable choice from each set, as rows of ``data.X``; data needs no choices."""
        with computing(self.device):
            return self._predictor(data).choices()

    def predict_proba(self, data: ChoiceData) -> list[np.ndarray]:
        """Return P(object is chosen) for all shown objects, one array per set aligned with ``data.shown``."""
        with computing(self.device):
            return self._predictor(data).probabilities()

    def predict_frame(self, data: ChoiceData) -> "pd.DataFrame":
        """Return predictions as a long table with the columns set, object, probability and chosen."""
        import pandas as pd

        probability = np.concatenate(self.predict_proba(data))
        predicted = self.predict(data)
        set_number = np.repeat(np.arange(len(data)), np.diff(data.offsets))
        picked = np.repeat(np.arange(len(data)), [len(rows) for rows in predicted])
        n = len(data.X)
        chosen = np.isin(set_number * n + data.flat_shown, picked * n + np.concatenate(predicted))
        return pd.DataFrame(
            {
                "set": np.asarray(data.set_ids)[set_number],
                "object": np.asarray(data.object_ids)[data.flat_shown],
                "probability": probability,
                "chosen": chosen.astype(int),
            }
        )

    def log_prob(self, data: ChoiceData, normalized: bool = False) -> np.ndarray:
        """Return log P(C(A) | A, training data) of each set's choice (eq:infer), (m,).

        The paper's likelihood does not sum to one over the subsets of a set of more than two objects; with
        ``normalized=True`` it is divided by that sum, for sets of at most ten objects.
        """
        with computing(self.device):
            return self._predictor(data).log_probabilities(normalized=normalized)

    def score(self, data: ChoiceData, y: None = None) -> float:
        """Return the fraction of sets that are predicted exactly."""
        return metrics.exact_accuracy(data, self.predict(data))

    def utilities(self, X: Any) -> Utilities:
        """Return posterior mean and standard deviation of every utility, each (n, d), at any objects.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c), or ChoiceData
        """
        with computing(self.device):
            objects = self._objects(X)
            parts = [
                _mean_and_variance(self.posterior_, Objects(objects.X[part], objects.codes[part]))
                for part in _chunks(len(objects.X))
            ]
        mean = np.concatenate([np.asarray(m).T for m, _ in parts])
        return Utilities(mean, np.sqrt(np.concatenate([np.asarray(v).T for _, v in parts])))

    def sample_utilities(self, X: Any, n_samples: int, random_state: int = 0) -> np.ndarray:
        """Return joint posterior samples of the utilities, (S, n, d)."""
        self._check_fitted()
        with computing(self.device):
            return joint_samples(self.posterior_, self._objects(X), n_samples, random_state)

    def dominance_proba(self, X1: Any, X2: Any) -> np.ndarray:
        """Return P(first dominates), P(second dominates), P(incomparable) for each pair of rows, (n, 3)."""
        self._check_fitted()
        # One table of ids for both: two objects that training did not see must not share an effect.
        known = dict(self.known_ids_)
        with computing(self.device):
            return dominance_probabilities(self.posterior_, self._objects(X1, known), self._objects(X2, known))

    def recommend(self, X: Any, n: int = 10, random_state: int = 0) -> "pd.DataFrame":
        """Return the ``n`` objects of X most probably undominated in X, with their probabilities.

        Returns
        -------
        DataFrame
            Indexed by object id: probability, and the posterior mean of each utility.
        """
        import pandas as pd

        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ChoiceGPError(f"n must be a positive whole number; got {n!r}")
        means = self.utilities(X)
        with computing(self.device):
            rows, probability = recommended(self.posterior_, self._objects(X), means, n, random_state)
        ids = pd.Index([self._ids(X)[row] for row in rows], name="object")
        table = pd.DataFrame({"probability": probability}, index=ids)
        for i in range(self.n_utilities_):
            table[f"utility {i + 1}"] = means.mean[rows, i]
        return table

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the model to one file, in a documented format that holds no code."""
        from choicegp.estimators.files import save_model

        self._check_fitted()
        save_model(self, path)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> "ChoiceGP":
        """Read a model written by `save`; it predicts bit for bit the same."""
        from choicegp.estimators.files import load_model

        return load_model(cls, path)

    def _check_fitted(self) -> None:
        if not hasattr(self, "posterior_"):
            raise ChoiceGPError("this ChoiceGP is not fitted yet: call fit(data) first")

    def _predictor(self, data: ChoiceData) -> ChoicePredictor:
        self._check_fitted()
        if not isinstance(data, ChoiceData):
            raise ChoiceGPError(f"a ChoiceData is needed; got {type(data).__name__}")
        data_encoded = data.with_encoding(self.encoding_)
        return ChoicePredictor(self.posterior_, self._objects(data_encoded), data_encoded)

    def _ids(self, X: Any) -> list[Any]:
        if isinstance(X, ChoiceData):
            return list(X.object_ids)
        return list(X.index) if hasattr(X, "index") and hasattr(X, "columns") else list(range(len(X)))

    def _objects(self, X: Any, known: dict[Any, int] | None = None) -> Objects:
        """Encode and scale objects as the training data were; ids not seen in training get new codes.

        ``known`` holds the codes of ids, and new ones are added to it.  A row of an array is always new.
        """
        self._check_fitted()
        if isinstance(X, ChoiceData):
            encoded, ids = X.with_encoding(self.encoding_).X, list(X.object_ids)
        else:
            encoded = self.encoding_.encode(X)
            ids = self._ids(X) if hasattr(X, "columns") else [object() for _ in encoded]
        known = dict(self.known_ids_) if known is None else known
        codes = [known.setdefault(i, len(known)) for i in ids]
        return Objects((encoded - self.centre_) / self.scale_, np.array(codes))  # type: ignore[arg-type]

    def _warm_state(self) -> Any:
        from choicegp.estimators.fitting import WarmStart

        return WarmStart(self.posterior_, self.centre_, self.scale_, self.known_ids_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")


_mean_and_variance = program(Posterior.mean_and_variance_at)


def _chunks(n: int, size: int = 2048) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)] or [slice(0, 0)]
