"""What all estimators have in common: scikit-learn's conventions, what they have learned, files.

scikit-learn asks for methods, not for ancestry, so its base class is not inherited: importing it takes longer
than a fit of a hundred sets, and a program that never uses scikit-learn need not pay for it.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError, ExtrapolationWarning
from choicegp.fitting.record import Utilities, encoded_features
from choicegp.prediction.extrapolation import Outside, outside_training, together

if TYPE_CHECKING:
    import os

    import pandas as pd

    from choicegp.reading.encoding import FeatureEncoding


class Estimator:
    """Base of everything that is fitted; ``fitted_`` is the record of what was learned."""

    _format: ClassVar[str]  # of model files
    _without: ClassVar[str]  # what the model is, for the error when it is asked for what it does not have
    standardize: bool
    max_seconds: float | None
    device: str
    progress: bool | str
    random_state: int | None
    fitted_: Any

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Return the parameters of ``__init__`` and their default values."""
        signature = inspect.signature(cls.__init__)
        return {name: parameter.default for name, parameter in signature.parameters.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; none has parameters of its own, so ``deep`` changes nothing."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Parameters
        ----------
        **params
            New values of parameters of the constructor.

        Returns
        -------
        Estimator
            Itself.
        """
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ChoiceGPError(f"{type(self).__name__} has no parameter {name!r}: it has {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = []
        for name, default in self._defaults().items():
            value = getattr(self, name)
            if value is not default and repr(value) != repr(default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __str__(self) -> str:
        if not self.__sklearn_is_fitted__():
            return f"{self!r}, not fitted"
        result, data = self.fit_result_, self.fitted_.data
        of = "" if data is None else f" to {len(data)} sets of {len(np.unique(data.flat_shown))} objects"
        return f"{self!r}\nFitted{of} in {result.seconds:.1f} s: {self._learned()}; {result.status} ({result.message})."

    def _learned(self) -> str:
        """Say in a few words what was learned."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        """Return what kind of estimator this is for scikit-learn: no classifier, no regressor, needs no ``y``."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Name the attribute that was asked for, not ``fitted_``, of which it would be a part."""
            if name.endswith("_") and not name.startswith("_") and "fitted_" not in vars(self):
                problem = f"this {type(self).__name__} is not fitted yet and has no attribute {name!r}"
                raise AttributeError(f"{problem}: call fit(data) first", name=name, obj=self)
            return object.__getattribute__(self, name)  # raises what the first try raised

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise ChoiceGPError(f"this {type(self).__name__} is not fitted yet: call fit(data) first")

    def _checked(self, data: Any) -> ChoiceData:
        """Refuse to predict before the fit, and what is no choice data."""
        self._check_fitted()
        if not isinstance(data, ChoiceData):
            raise ChoiceGPError(f"a ChoiceData is needed; got {type(data).__name__}")
        return data

    def _outside(self, X: Any, only_shown: bool = False) -> Outside:
        """Find the objects, of choice data perhaps only the shown ones, outside the range of the training objects."""
        encoded, data = encoded_features(X, self.encoding_), self.fitted_.data
        if only_shown:
            encoded = encoded[np.unique(X.flat_shown)]
        if data is None:  # a file without its training data: the range is not known
            return Outside(0, len(encoded), {})
        return outside_training(encoded, data.X[np.unique(data.flat_shown)], self.encoding_)

    @contextmanager
    def _asked(self, data: Any) -> Iterator[ChoiceData]:
        """Check data whose sets are predicted, and warn at the end of shown objects outside the range in training."""
        message = str(self._outside(self._checked(data), only_shown=True))
        yield data
        if message:
            warnings.warn(message, ExtrapolationWarning, stacklevel=4)

    def _warn_outside(self, *given: Any) -> None:
        """Warn of objects outside the range of the training objects; called once by every public method."""
        if message := str(together(self._outside(X) for X in given)):
            warnings.warn(message, ExtrapolationWarning, stacklevel=3)

    def _keep(self, fitted: Any) -> Self:
        self.fitted_ = fitted
        return self

    @classmethod
    def _with_options(cls, params: dict[str, Any]) -> Callable[[Any], Self]:
        """Return what makes a model with these options of what it has learned."""
        return cls(**params)._keep

    @property
    def fit_result_(self) -> Any:
        """How the fit went."""
        return self.fitted_.result

    @property
    def data_(self) -> ChoiceData:
        """The training data."""
        data: ChoiceData | None = self.fitted_.data
        if data is None:
            raise ChoiceGPError("the file of this model does not hold its training data: fit the model again")
        return data

    @property
    def encoding_(self) -> "FeatureEncoding":
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

    def predict(self, data: ChoiceData) -> list[np.ndarray]:
        """Return the choice that is predicted from each set, as rows of ``data.X``; data needs no choices.

        People err when they answer; what is most probable takes that into account, unlike `recommend`.
        """
        with self._asked(data):
            return self._choices(data)

    def _choices(self, data: ChoiceData) -> list[np.ndarray]:
        """Predict without a word about objects outside the training range."""
        raise NotImplementedError

    def predict_frame(self, data: ChoiceData) -> "pd.DataFrame":
        """Return predictions as a long table with the columns set, object, probability and chosen.

        Parameters
        ----------
        data : ChoiceData
            It needs no choices.

        Returns
        -------
        DataFrame
            One row per set and shown object; a model without probabilities for these sets leaves that column out.
        """
        with self._asked(data):
            chosen = [np.isin(shown, rows) for shown, rows in zip(data.shown, self._choices(data), strict=True)]
            probability = self._probabilities(data)
        return prediction_table(
            data, np.concatenate(chosen), None if probability is None else np.concatenate(probability)
        )

    def _probabilities(self, data: ChoiceData) -> list[np.ndarray] | None:
        """Return P(object is chosen) for each set, or None where the model has no such thing."""
        return None

    def predict_proba(self, data: ChoiceData) -> list[np.ndarray]:
        """Return P(object is chosen) for all shown objects, one array per set aligned with ``data.shown``.

        The errors that people make when they answer are part of it.  A model without probabilities
        for these sets raises a `ChoiceGPError`.
        """
        with self._asked(data):
            return self._known_probabilities(data)

    def _known_probabilities(self, data: ChoiceData) -> list[np.ndarray]:
        found = self._probabilities(data)
        return self._refuse("probabilities of these choices") if found is None else found

    def log_prob(self, data: ChoiceData) -> np.ndarray:
        """Return the log probability of each set's choice, (m,).

        A model without probabilities raises a `ChoiceGPError`.
        """
        return self._refuse("probabilities of choices")

    def utilities(self, X: Any) -> Utilities:
        """Return mean, standard deviation and 95% interval of every utility, each (n, d), at any objects.

        Choices do not say where a utility is zero: `ChoiceGP` and `BatchPreferenceGP` give values relative to the mean
        of the objects shown in training.  Other models have no intervals, and a network does not say how sure it is:
        its standard deviations are NaN.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c), or ChoiceData
        """
        self._check_fitted()
        found = self._utilities(X)
        self._warn_outside(X)
        return found

    def _utilities(self, X: Any) -> Utilities:
        """Return the utilities without a word about objects outside the training range."""
        return self._refuse("utilities")

    def score(self, data: ChoiceData, y: None = None) -> float:
        """Return the fraction of sets that are predicted exactly.

        Parameters
        ----------
        data : ChoiceData
            With choices.
        y : None
            Ignored; scikit-learn passes it.

        Returns
        -------
        float
            From 0 to 1.
        """
        from choicegp.evaluation.metrics import exact_accuracy

        return exact_accuracy(data, self._choices(self._checked(data)))

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the model to one file, in a documented format that holds no code.

        Parameters
        ----------
        path : path
            The file, by custom with the suffix .cgp; it is written whole or not at all.
        """
        from choicegp.storage.models import save_model

        self._check_fitted()
        save_model(path, self._format, self.get_params(deep=False), self.fitted_)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> Self:
        """Read a model written by `save`; it predicts bit for bit the same.

        Parameters
        ----------
        path : path

        Returns
        -------
        Estimator
            Fitted.
        """
        from choicegp.storage.models import load_model

        return load_model(path, lambda _, params: cls._with_options(params), cls._format)

    def _refuse(self, what: str) -> Any:
        self._check_fitted()
        raise ChoiceGPError(f"{type(self).__name__} has no {what}: {self._without}")


def prediction_table(data: ChoiceData, chosen: np.ndarray, probability: np.ndarray | None) -> "pd.DataFrame":
    """Return predictions for all shown objects as a long table: set, object, probability if there is any, chosen."""
    import pandas as pd

    columns = {
        "set": np.repeat(data.set_ids, np.diff(data.offsets)),
        "object": data.object_ids[data.flat_shown],
        "probability": probability,
        "chosen": chosen.astype(int),
    }
    return pd.DataFrame({name: column for name, column in columns.items() if column is not None})


def check_training_data(data: Any, function: str) -> None:
    """Check that a function was given choices to learn from."""
    if not isinstance(data, ChoiceData):
        raise ChoiceGPError(
            f"{function} takes a ChoiceData; got {type(data).__name__}. Make one with ChoiceData.from_long"
        )
    if not data.has_choices:
        raise ChoiceGPError(f"{function} needs data with choices: these have none")


def check_something_kept(data: ChoiceData, model: str, *, of_pairs: bool = False) -> None:
    """Refuse empty answers, and questions for one object, which only models ``of_pairs`` and `ChoiceGP` know."""
    if not of_pairs and data.kinds is not None and np.any(data.kinds != "keep"):
        raise ChoiceGPError(
            f"{model} learns from sets of the kind 'keep' only: leave the others out with data.take, or use ChoiceGP"
        )
    if data.flat_chosen is None or len(data) == 0:
        return
    empty = np.flatnonzero(np.add.reduceat(data.flat_chosen, data.offsets[:-1], dtype=int) == 0)
    if len(empty):
        raise ChoiceGPError(
            f"nothing was kept of set {data.set_ids[empty[:1]].tolist()[0]!r}: {model} has no threshold. Leave such "
            "sets out (empty='skip'), or use ChoiceGP"
        )
