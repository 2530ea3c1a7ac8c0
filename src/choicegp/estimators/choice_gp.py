"""ChoiceGP: learn a choice function from choices, and predict others."""

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.encoding import FeatureEncoding
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.estimators.fitting import FitOptions, Fitted, fit_posterior
from choicegp.estimators.result import Diagnosis, FitResult, Utilities
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
    from xarray import DataTree

    from choicegp.selection.loo import LooResult


class ChoiceGP(Estimator):
    """Choice functions with Gaussian processes (Benavoli, Azzimonti and Piga, UAI 2023).

    There are ``n_utilities`` hidden utilities, each a Gaussian process over the features; of a set, the
    objects that no other dominates in all utilities are chosen, with probit errors.

    Parameters
    ----------
    n_utilities : int or "auto"
        Number of hidden utilities; "auto": chosen by `select_n_utilities` (at most 5).
    inference : {"auto", "dense", "sparse", "joint", "paper", "paper-converged", "mcmc"}
        "dense": block sites by natural gradient, exact for up to a few thousand shown objects; "sparse": the same at
        inducing points and by mini-batches, for any number of objects and sets; "auto": "dense" for up to 1500
        different objects, else "sparse" (``fit_result_.notes`` says so); "paper": the authors' own approximation,
        5000 Adam steps; "paper-converged": the same family with a good optimiser; "joint": "dense", and then
        correlations between utilities, whose intervals have the right width (small problems); "mcmc": draws from the
        exact posterior, at the hyperparameters of a "dense" fit.
    kernel : str or Kernel
        "auto": "rbf", and with sparse inference waves in single features beside it; "rbf", "matern12", "matern32",
        "matern52", "linear", "periodic", "additive", or a composition of kernels from `choicegp.kernels`.
    object_effects : bool
        Whether each object id has, beside its features, an effect of its own.
    lapse : float or "learn"
        Probability that an answer is a random subset.
    standardize : bool
        Whether features are scaled to mean 0 and standard deviation 1 first.
    hyperpriors : HyperPriors or None
        Weak priors on log lengthscales and variances; None for none.
    learn_hyperparameters : bool
        Whether the kernel's parameters are learned; if not, they stay as ``kernel`` has them.
    n_restarts : int, optional
        Number of annealed starts; the best goes on. By default 3, or 6 for at most 100 shown objects.
    max_iter : int, optional
        Most steps; by default 300 ("dense"), 2000 ("sparse"), 5000 ("paper") or 1000 ("paper-converged"). With
        "joint", steps after the dense fit, by default 200; with "mcmc", draws of each of four chains, by default 1000.
    max_seconds : float, optional
        Time limit of the fit; what was reached by then is kept.
    tol : float
        The fit has converged when a few steps gain less than this many nats.
    n_inducing, batch_size : int, optional
        Of sparse inference: inducing points for each utility (by default 512 on a CPU, 1024 on an accelerator), and
        sets in a step (256, 512).
    learn_inducing : bool
        Whether sparse inference moves its inducing points; they stay well spread objects otherwise.
    device : {"auto", "cpu", "gpu"}
    n_jobs : int, optional
        Threads that run starts side by side; -1 for all cores.  By default all cores for up to 1000 shown objects,
        and one thread for more.  The result does not depend on it.
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    random_state : int
        Seed; the same seed gives the same result.

    Attributes
    ----------
    n_utilities_ : int
    selection_ : SelectionResult
        How the number was chosen, with ``n_utilities="auto"``.
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
        n_utilities: int | str = 2,
        *,
        inference: str = "auto",
        kernel: str | Kernel = "auto",
        object_effects: bool = False,
        lapse: float | str = 0.0,
        standardize: bool = True,
        hyperpriors: HyperPriors | None = HyperPriors(),  # noqa: B008 - immutable
        learn_hyperparameters: bool = True,
        n_restarts: int | None = None,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        tol: float = 0.02,
        n_inducing: int | None = None,
        batch_size: int | None = None,
        learn_inducing: bool = False,
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
        self.learn_hyperparameters = learn_hyperparameters
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.tol = tol
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.learn_inducing = learn_inducing
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
        self.__dict__.pop("selection_", None)
        if isinstance(self.n_utilities, str) and self.n_utilities == "auto":
            from choicegp.estimators.dimension import fit_auto

            return fit_auto(self, data, init)
        options = FitOptions.validated(self.get_params(deep=False))
        if init is not None:
            if not isinstance(init, ChoiceGP) or not init.__sklearn_is_fitted__():
                raise ChoiceGPError(f"init must be a ChoiceGP that is fitted already; got {init!r}")
            data = data.with_encoding(init.encoding_)
        with computing(self.device):
            fitted = fit_posterior(data, options, None if init is None else init._warm_state())
        return self._keep(fitted, data)

    def _keep(self, fitted: Fitted, data: ChoiceData) -> Self:
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

    def loo(self, method: str = "cavity", *, max_refits: int | None = None, random_state: int = 0) -> "LooResult":
        """Return how well each training set is predicted from all others, hyperparameters held.

        "cavity" takes the set's own site out of the posterior and, where that is not enough, fits without the set
        (at most ``max_refits`` times, by default 60); "psis" is the paper's Pareto-smoothed importance sampling.
        A warning names the number of sets on which the result cannot be trusted.
        """
        from choicegp.estimators.leave_one_out import leave_one_out

        self._check_fitted()
        result = leave_one_out(self, method, max_refits, random_state)
        if result.warning:
            warnings.warn(result.warning, UserWarning, stacklevel=2)
        return result

    def to_datatree(self, n_samples: int = 2000, random_state: int = 0) -> "DataTree":
        """Return samples of the utilities, the log-likelihood of each set, choices and features for ArviZ."""
        from choicegp.estimators.datatree import datatree

        self._check_fitted()
        return datatree(self, n_samples, random_state)

    def diagnose(self, n_draws: int = 2000, random_state: int = 0) -> Diagnosis:
        """Tell whether the Gaussian approximation can be trusted, by importance sampling.

        Draws of the posterior are weighted by the exact posterior density; the tail of the weights (its Pareto k)
        tells how well the approximation covers it.

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
        >>> ChoiceGP(n_utilities=1, max_iter=60).fit(data).diagnose().effective > 1000
        True
        """
        from choicegp.estimators.diagnosis import diagnose

        self._check_fitted()
        with computing(self.device):
            return diagnose(self, n_draws, random_state)

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
        if self.posterior_.prior.log_effect_variance is not None and ids == list(range(len(ids))):
            # Row numbers are no names: row 0 of another table is the same object only with the same features.
            trained = {i: row for row, i in enumerate(self.data_.object_ids)}
            ids = [
                object() if i in trained and not np.array_equal(row, self.data_.X[trained[i]]) else i
                for i, row in zip(ids, encoded, strict=True)
            ]
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
