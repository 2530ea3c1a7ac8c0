"""What estimators with Gaussian processes as utilities have in common, once they are fitted."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from choicegp.checks import counted, whole_number
from choicegp.compute.devices import computing
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError, ExtrapolationWarning, TrustWarning
from choicegp.estimators.base import Estimator, prediction_table
from choicegp.fitting.record import PLUG_IN, FitResult, Fitted, Utilities, object_ids
from choicegp.inference.posterior import Posterior
from choicegp.model.error_models import ErrorModel
from choicegp.model.kernels import Kernel
from choicegp.model.prior import THRESHOLD, HyperPriors, Objects
from choicegp.prediction.contrasts import contrasts
from choicegp.prediction.extrapolation import Outside, together
from choicegp.prediction.utilities import joint_samples, recommended

if TYPE_CHECKING:
    import os

    import pandas as pd
    from xarray import DataTree

    from choicegp.data.folder import ChoiceFolder
    from choicegp.prediction.kinds import MixedPredictor, Predictor
    from choicegp.selection.loo import LooResult


class UtilityGP(Estimator):
    """Base of the estimators whose utilities are Gaussian processes."""

    _predictor: "ClassVar[Callable[..., Predictor | MixedPredictor]]"
    kernel: str | Kernel
    hyperpriors: HyperPriors | None
    learn_hyperparameters: bool
    n_restarts: int | None
    max_iter: int | None
    tol: float
    n_jobs: int | None
    fitted_: Fitted
    fit_result_: FitResult

    @property
    def posterior_(self) -> Posterior:
        """The posterior of the utilities."""
        return self.fitted_.posterior

    @property
    def elbo_(self) -> float:
        """Evidence lower bound, scored on fresh points, without hyperpriors."""
        return self.fitted_.elbo

    @property
    def n_utilities_(self) -> int:
        """Number of utilities."""
        return self.fitted_.n_utilities

    @property
    def errors_(self) -> ErrorModel:
        """How likely choices are, given utilities."""
        return self.fitted_.errors

    def _choices(self, data: ChoiceData) -> list[np.ndarray]:
        """Return the most probable choice from each set."""
        with computing(self.device):
            return self._predictor(self.fitted_, data).choices()

    def _probabilities(self, data: ChoiceData) -> list[np.ndarray]:
        with computing(self.device):
            return self._predictor(self.fitted_, data).probabilities()

    def log_prob(self, data: ChoiceData, normalized: bool = False) -> np.ndarray:
        """Return log P(C(A) | A, training data) of each set's choice (eq:infer), (m,).

        With two utilities or more the paper's likelihood does not sum to one over the subsets of a set of more than two
        objects; with ``normalized=True`` it is divided by that sum, for sets of at most 16 objects; larger sets are an
        error.  From 11 objects on the sum is taken at 64 samples, with errors of about 0.005, and of up to 0.04 for
        improbable choices; a set of 16 objects takes about a tenth of a second.  With one utility the probabilities of
        single objects sum to one in either case.
        """
        self._checked(data)
        with computing(self.device):
            return self._predictor(self.fitted_, data).log_probabilities(normalized=normalized)

    def predict_frame(self, data: ChoiceData) -> "pd.DataFrame":
        """Return predictions as a long table with the columns set, object, probability and chosen.

        The probability that an object is chosen includes the errors that people make when they answer.
        """
        with self._asked(data):
            return self._table(data)

    def _table(self, data: ChoiceData, objects: Objects | None = None) -> "pd.DataFrame":
        with computing(self.device):
            probability, chosen = self._predictor(self.fitted_, data, objects).of_shown()
        return prediction_table(data, chosen, probability)

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
        from choicegp.storage.predictions import write_predictions

        self._check_fitted()
        found: list[Outside] = []
        write_predictions(
            path, source, self.fitted_, self._table, self.progress, lambda data: found.append(self._outside(data, True))
        )
        if message := str(together(found)):
            warnings.warn(message, ExtrapolationWarning, stacklevel=2)

    def _check_population(self) -> None:
        """Refuse questions about everyone where people have nothing in common."""
        study = self.fitted_.study
        if study is not None and study.prior.alone:
            raise ChoiceGPError(
                "with respondents='individual' there is no population whose utilities could be asked for: predict sets "
                "that name their respondent, or use respondents='hierarchical'"
            )

    def _utilities(self, X: Any) -> Utilities:
        self._check_population()
        with computing(self.device):
            return contrasts(self.posterior_, self.fitted_.objects(X), self._shown())

    def _shown(self) -> Objects | int:
        """Return the shown objects, or how many of the posterior's objects, the first ones, they are."""
        fitted = self.fitted_
        if fitted.study is not None:
            everything = fitted.study.objects
            seen = everything.codes != THRESHOLD
            # Without covariates of people: of an average person.
            return Objects(everything.X[seen, : len(fitted.centre)], everything.codes[seen])
        if not fitted.posterior.is_sparse:
            return fitted.n_shown
        rows = np.unique(fitted.data.flat_shown)
        return Objects((fitted.data.X[rows] - fitted.centre) / fitted.scale, np.zeros(len(rows), int))

    @property
    def intervals_(self) -> str:
        """What made the intervals, in words."""
        return self.fitted_.result.intervals or PLUG_IN

    def sample_utilities(self, X: Any, n_samples: int, random_state: int | None = 0) -> np.ndarray:
        """Return joint posterior samples of the utilities.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c) or ChoiceData
        n_samples : int
        random_state : int or None

        Returns
        -------
        ndarray (n_samples, n, d)
        """
        self._check_fitted()
        self._check_population()
        with computing(self.device):
            drawn = joint_samples(self.posterior_, self.fitted_.objects(X), n_samples, random_state)
        self._warn_outside(X)
        return drawn

    def recommend(self, X: Any, n: int = 10, random_state: int | None = 0) -> "pd.DataFrame":
        """Return the objects of a catalogue that are most probably undominated in it, with their probabilities.

        The probability that an object is undominated concerns the utilities alone.  It leaves out the errors that
        people make when they answer, which the probabilities of `predict_proba` and `predict_frame` include: the two
        differ for the same objects.  The order of the rows of X has no influence, except between equal objects.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c) or ChoiceData
        n : int
            Number of objects to return.
        random_state : int or None

        Returns
        -------
        DataFrame
            Indexed by object id: probability, and the posterior mean of each utility.
        """
        import pandas as pd

        n = whole_number("n", n, 1)
        self._check_fitted()
        means = self._utilities(X)
        with computing(self.device):
            objects, errors = self.fitted_.objects(X), self.fitted_.errors
            rows, probability = recommended(self.posterior_, objects, means, n, random_state, errors)
        self._warn_outside(X)
        ids = pd.Index([object_ids(X)[row] for row in rows], name="object")
        table = pd.DataFrame({"probability": probability}, index=ids)
        for i in range(self.n_utilities_):
            table[f"utility {i + 1}"] = means.mean[rows, i]
        return table

    def effects(self, n_background: int = 30, random_state: int | None = 0) -> "pd.DataFrame":
        """Return what each feature does to each utility, with 95% bands, over the objects shown in training.

        The effect of a feature at a value is the utility averaged over objects as that feature alone is set to the
        value, relative to its average.

        Parameters
        ----------
        n_background : int
            The other features are averaged over this many of the objects, drawn at random.
        random_state : int

        Returns
        -------
        DataFrame
            Columns utility (from 1), feature, value (a number, or a category), effect, lower and upper.
        """
        from choicegp.evaluation.effects import model_effects

        self._check_fitted()
        self._check_population()
        with computing(self.device):
            return model_effects(self, n_background=n_background, random_state=random_state).frame()

    def loo(
        self, method: str = "cavity", *, by: str = "set", max_refits: int | None = None, random_state: int | None = 0
    ) -> "LooResult":
        """Return how well each training set is predicted from all others, with the hyperparameters held fixed.

        A warning names the number of sets on which the result cannot be trusted.

        Parameters
        ----------
        method : {"cavity", "psis"}
            "cavity" takes the set's own site out of the posterior and, where that is not enough, fits without the set;
            "psis" is the paper's Pareto-smoothed importance sampling.
        by : {"set", "respondent"}
            Of a model of many people, the rest of a person's answers is learned again; "respondent" leaves out all of
            them, as if she were new.
        max_refits : int, optional
            Maximum number of fits without a set; by default 60.
        random_state : int or None

        Returns
        -------
        LooResult
        """
        from choicegp.selection.loo import leave_one_out

        self._check_fitted()
        with computing(self.device):
            result = leave_one_out(
                self.fitted_, method, by=by, max_refits=max_refits, random_state=random_state, n_jobs=self.n_jobs
            )
        if result.warning:
            warnings.warn(result.warning, TrustWarning, stacklevel=2)
        return result

    def to_datatree(self, n_samples: int | None = None, random_state: int | None = 0) -> "DataTree":
        """Return samples of the utilities, the log-likelihood of each set, choices and features for ArviZ.

        Parameters
        ----------
        n_samples : int, optional
            By default 2000; of a model with draws of its own, these draws, each once: more samples would hold copies of
            them, which ArviZ counts as independent.
        random_state : int or None

        Returns
        -------
        xarray.DataTree
        """
        from choicegp.storage.datatree import datatree

        self._check_fitted()
        if self.fitted_.study is not None:
            raise ChoiceGPError(
                "to_datatree knows one person: in a model of many people each set has utilities of its own. Use "
                "model.loo() for leave-one-out"
            )
        with computing(self.device):
            return datatree(self.fitted_, n_samples, random_state)

    def _learned(self) -> str:
        return f"{counted(self.n_utilities_, 'utility', many='utilities')}, ELBO {self.elbo_:.1f}"
