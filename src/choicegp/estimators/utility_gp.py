"""What estimators with Gaussian processes as utilities have in common, once they are fitted."""

import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from choicegp.compute.devices import computing
from choicegp.compute.programs import program
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.evaluation import metrics
from choicegp.fitting.record import FitResult, Fitted, Utilities, object_ids
from choicegp.inference.posterior import Posterior
from choicegp.model.error_models import ErrorModel
from choicegp.model.prior import Objects
from choicegp.prediction.utilities import joint_samples, recommended
from choicegp.reading.encoding import FeatureEncoding

if TYPE_CHECKING:
    import os

    import pandas as pd
    from xarray import DataTree

    from choicegp.data.folder import ChoiceFolder
    from choicegp.selection.loo import LooResult


class Predictor(Protocol):
    """What predicts the sets of a ChoiceData."""

    def choices(self) -> list[np.ndarray]:
        """Return the most probable choice from each set, as rows of the data's table."""

    def probabilities(self) -> list[np.ndarray]:
        """Return P(object is chosen), one array per set."""

    def of_shown(self) -> tuple[np.ndarray, np.ndarray]:
        """Return P(object is chosen) and whether it is predicted to be, for all shown objects, set after set."""

    def log_probabilities(self, *, normalized: bool) -> np.ndarray:
        """Return the log probability of each set's choice."""


class UtilityGP(Estimator):
    """Base of the estimators whose utilities are Gaussian processes."""

    _format: ClassVar[str]  # of model files
    device: str
    n_jobs: int | None
    progress: bool | str

    @abstractmethod
    def _posterior_predictor(self, objects: Objects, data: ChoiceData) -> Predictor:
        """Return what predicts the sets of data whose objects the posterior sees as ``objects``."""

    fitted_: Fitted

    def _keep(self, fitted: Fitted) -> Self:
        self.fitted_ = fitted
        return self

    @property
    def posterior_(self) -> Posterior:
        """The posterior of the utilities."""
        return self.fitted_.posterior

    @property
    def elbo_(self) -> float:
        """Evidence lower bound, scored on fresh points, without hyperpriors."""
        return self.fitted_.elbo

    @property
    def fit_result_(self) -> FitResult:
        """How the fit went."""
        return self.fitted_.result

    @property
    def n_utilities_(self) -> int:
        """Number of utilities."""
        return self.fitted_.n_utilities

    @property
    def data_(self) -> ChoiceData:
        """The training data."""
        return self.fitted_.data

    @property
    def encoding_(self) -> FeatureEncoding:
        """How features become numbers."""
        return self.fitted_.encoding

    @property
    def centre_(self) -> np.ndarray:
        """What is subtracted from features."""
        return self.fitted_.centre

    @property
    def scale_(self) -> np.ndarray:
        """By what features are divided."""
        return self.fitted_.scale

    @property
    def errors_(self) -> ErrorModel:
        """How likely choices are, given utilities."""
        return self.fitted_.errors

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
        from choicegp.estimators.prediction_files import prediction_table

        with computing(self.device):
            return prediction_table(data, self._predictor(data))

    def predict_file(self, source: "ChoiceData | ChoiceFolder", path: "str | os.PathLike[str]") -> None:
        """Write the table of `predict_frame` to a Parquet file, whole or not at all, a few sets at a time.

        Parameters
        ----------
        source : ChoiceData or ChoiceFolder
            It needs no choices, and of a folder there may be any number of sets.
        path : str or path
            Ends in ``.parquet``. An existing file is replaced, in one step and only when the new one is complete.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
        >>> path = f"{tempfile.mkdtemp()}/predictions.parquet"
        >>> ChoiceGP(n_utilities=1, max_iter=60).fit(data).predict_file(data, path)
        >>> pd.read_parquet(path)["chosen"].tolist()
        [1, 0, 1, 0, 1, 0]
        """
        from choicegp.estimators.prediction_files import write_predictions

        self._check_fitted()
        write_predictions(self, source, path)

    def score(self, data: ChoiceData, y: None = None) -> float:
        """Return the fraction of sets that are predicted exactly."""
        return metrics.exact_accuracy(data, self.predict(data))

    def utilities(self, X: Any) -> Utilities:
        """Return posterior mean and standard deviation of every utility, each (n, d), at any objects.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c), or ChoiceData
        """
        self._check_fitted()
        with computing(self.device):
            objects = self.fitted_.objects(X)
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
            return joint_samples(self.posterior_, self.fitted_.objects(X), n_samples, random_state)

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
            rows, probability = recommended(self.posterior_, self.fitted_.objects(X), means, n, random_state)
        ids = pd.Index([object_ids(X)[row] for row in rows], name="object")
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

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the model to one file, in a documented format that holds no code."""
        from choicegp.estimators.files import save_model

        self._check_fitted()
        save_model(self, path)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> Self:
        """Read a model written by `save`; it predicts bit for bit the same."""
        from choicegp.estimators.files import load_model

        return load_model(cls, path)

    def _check_fitted(self) -> None:
        if not hasattr(self, "fitted_"):
            raise ChoiceGPError(f"this {type(self).__name__} is not fitted yet: call fit(data) first")

    def _predictor(self, data: ChoiceData) -> Predictor:
        self._check_fitted()
        if not isinstance(data, ChoiceData):
            raise ChoiceGPError(f"a ChoiceData is needed; got {type(data).__name__}")
        data_encoded = data.with_encoding(self.encoding_)
        return self._posterior_predictor(self.fitted_.objects(data_encoded), data_encoded)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")


_mean_and_variance = program(Posterior.mean_and_variance_at)


def _chunks(n: int, size: int = 2048) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)] or [slice(0, 0)]
