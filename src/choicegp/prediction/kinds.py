"""Predictions for data of several kinds: each set's answer is predicted by its own question."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import split_sets
from choicegp.errors import TrustWarning
from choicegp.fitting.record import Fitted
from choicegp.inference.respondents.posterior import NEW, StudyPosterior
from choicegp.model.prior import Objects
from choicegp.prediction.best import BestObjectPredictor
from choicegp.prediction.choices import ChoicePredictor

Predictor = ChoicePredictor | BestObjectPredictor


def choice_predictor(fitted: Fitted, data: ChoiceData, objects: Objects | None = None) -> "Predictor | MixedPredictor":
    """Predict what is kept, and of sets of other kinds which object is marked; for ``objects`` see the predictors."""
    if fitted.study is not None:
        return _of_people(fitted, fitted.study, data, objects)
    return _of_kinds(ChoicePredictor.of, fitted, data, objects)


def best_predictor(fitted: Fitted, data: ChoiceData, objects: Objects | None = None) -> "Predictor | MixedPredictor":
    """Predict the best object of each set, and of sets of the kind "worst" the worst one."""
    return _of_kinds(BestObjectPredictor.of, fitted, data, objects)


def _of_people(
    fitted: Fitted, study: StudyPosterior, data: ChoiceData, objects: Objects | None
) -> "Predictor | MixedPredictor":
    """Predict the answers of each person; one who is not known, or not named, is a new one of the population."""
    objects = fitted.objects(data) if objects is None else objects
    if data.respondents is None:
        data = replace(data, covariates=None)
    numbers = np.full(len(data), NEW) if data.respondents is None else study.numbers(data.respondents)
    places = study.places_of(numbers)
    if data.respondents is not None and np.any(numbers == NEW):
        named = set(np.asarray(data.respondents, dtype=object).tolist())
        unknown = len(named - set(study.ids))
        warnings.warn(
            f"{unknown} of the {len(named)} respondents that these sets name are not known to the model: they are "
            "predicted as new people",
            TrustWarning,
            stacklevel=2,
        )
    kinds = np.full(len(data), "keep") if data.kinds is None else data.kinds
    parts: list[tuple[np.ndarray, Predictor]] = []
    for crowd in np.unique(places[:, 0]).tolist():
        mine = places[:, 0] == crowd
        known, own = np.unique(np.maximum(places[mine, 1], 0), return_inverse=True)
        covariates = None
        if crowd == NEW and study.covariates is not None and data.covariates is not None:
            # New people are distinguished by their covariates alone.
            own, strangers = pd.factorize(np.asarray(data.respondents, dtype=object)[mine])
            covariates = study.covariates.coded(data.covariates, strangers.tolist())
        of_crowd = study.of_crowd if study.draws is None else study.drawn_crowd
        posterior = jax.tree.map(jnp.asarray, of_crowd(crowd, known, covariates))
        person = np.zeros(len(data), int)
        person[mine] = own.ravel()
        for kind in ("keep", "best", "worst"):
            sets = np.flatnonzero(mine & (kinds == kind))
            if len(sets):
                predictor = ChoicePredictor if kind == "keep" else BestObjectPredictor
                errors = fitted.errors.of_kind(kind)
                parts.append((sets, predictor(posterior, objects, data.take(sets), errors, person[sets])))
    return MixedPredictor(data, tuple(parts))


def _of_kinds(
    make: Callable[..., Predictor], fitted: Fitted, data: ChoiceData, objects: Objects | None
) -> "Predictor | MixedPredictor":
    if data.kinds is None or np.all(data.kinds == "keep"):
        return make(fitted, data, objects)
    objects = fitted.objects(data) if objects is None else objects
    parts: list[tuple[np.ndarray, Predictor]] = []
    for kind in ("keep", "best", "worst"):
        sets = np.flatnonzero(data.kinds == kind)
        if len(sets):
            own = fitted._replace(errors=fitted.errors.of_kind(kind))
            of = make if kind == "keep" else BestObjectPredictor.of
            parts.append((sets, of(own, data.take(sets), objects)))
    return MixedPredictor(data, tuple(parts))


class MixedPredictor(NamedTuple):
    """Predictors of the sets of each kind, with the numbers of these sets.

    Attributes
    ----------
    data : ChoiceData
    parts : tuple of (int array, predictor)
    """

    data: ChoiceData
    parts: tuple[tuple[np.ndarray, Predictor], ...]

    def probabilities(self) -> list[np.ndarray]:
        """P(object is chosen), one array per set aligned with ``data.shown``."""
        return self._lists(lambda predictor: predictor.probabilities())

    def choices(self) -> list[np.ndarray]:
        """Most probable choice from each set, as row numbers of ``data.X``."""
        return self._lists(lambda predictor: predictor.choices())

    def of_shown(self) -> tuple[np.ndarray, np.ndarray]:
        """P(object is chosen) and whether the most probable choice has it, aligned with ``data.flat_shown``."""
        n = len(self.data.flat_shown)
        probability, chosen = np.empty(n), np.empty(n, bool)
        places = split_sets(np.arange(n), self.data.offsets)
        for sets, predictor in self.parts:
            own = np.concatenate([places[k] for k in sets])
            probability[own], chosen[own] = predictor.of_shown()
        return probability, chosen

    def none(self) -> np.ndarray:
        """P(nothing is kept) of each set (m,)."""
        return self._numbers(lambda predictor: predictor.none())

    def log_probabilities(self, *, normalized: bool) -> np.ndarray:
        """Log P(C(A) | A, training data) of the data's own choices (m,)."""
        return self._numbers(lambda predictor: predictor.log_probabilities(normalized=normalized))

    def _numbers(self, function: Callable[[Predictor], np.ndarray]) -> np.ndarray:
        result = np.empty(len(self.data))
        for sets, predictor in self.parts:
            result[sets] = function(predictor)
        return result

    def _lists(self, function: Callable[[Predictor], list[np.ndarray]]) -> list[np.ndarray]:
        result: list[np.ndarray] = [np.empty(0)] * len(self.data)
        for sets, predictor in self.parts:
            for k, own in zip(sets.tolist(), function(predictor), strict=True):
                result[k] = own
        return result
