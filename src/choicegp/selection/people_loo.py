"""Leave-one-out for many people: without one set of a person, or without all that she has said.

What a person says about the population is taken out of it first.  Without one set, the rest of her answers is learned
again, given what everyone else has said; without all of them, she is a new person.  The hyperparameters stay.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from choicegp.checks import brief
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.adapting import known_without, learned_by, population_of
from choicegp.fitting.record import Fitted
from choicegp.inference.respondents.posterior import StudyPosterior
from choicegp.prediction.kinds import choice_predictor


class PeopleDiagnostics(NamedTuple):
    """What leaving out changed, arrays of length m in the order of the sets.

    Attributes
    ----------
    gap : array (m,)
        Log score with the set among the data minus log score without it.
    """

    gap: np.ndarray

    @property
    def n_refits(self) -> int:
        """Number of sets, or of people, of which each was left out by learning again without it."""
        return len(self.gap)

    def __repr__(self) -> str:
        return brief(self)


def people_scores(fitted: Fitted, by: str, clock: Clock) -> tuple[np.ndarray, PeopleDiagnostics]:
    """Return the log score of each set without it, or without its person; the caller sets precision and device."""
    assert fitted.study is not None
    # What is left out is taken out of the Gaussian posterior: draws have no sites.
    study, data = fitted.study._replace(draws=None), fitted.data
    fitted = fitted._replace(study=study)
    result = np.zeros(len(data))
    for respondent, sets in _sets_of_people(study, data):
        if clock.is_up:
            raise ChoiceGPError(f"leave-one-out was not finished: {clock.had_passed}. Allow more time")
        mine = data.take(sets)
        others = known_without(study, (respondent,))
        if by == "respondent":
            mean, root, _ = population_of(others)
            alone = study._replace(mean=np.asarray(mean), root=np.asarray(root), crowds=(), ids=())
            # Her covariates stay known, where there are some.
            asked = mine if study.covariates is not None else replace(mine, respondents=None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that she is not known
                result[sets] = _log_scores(fitted._replace(study=alone), asked)
            continue
        for place, number in enumerate(sets.tolist()):
            without = learned_by(fitted, mine, others, left_out=place)
            result[number] = _log_scores(fitted._replace(study=without), data.take([number]))[0]
    weights = np.ones(len(data)) if data.weights is None else np.asarray(data.weights)
    inside = _log_scores(fitted, data)
    return weights * result, PeopleDiagnostics(weights * (inside - result))


def _sets_of_people(study: StudyPosterior, data: ChoiceData) -> Iterator[tuple[object, np.ndarray]]:
    numbers = study.numbers(np.asarray(data.respondents, dtype=object))
    for number, respondent in enumerate(study.ids):
        yield respondent, np.flatnonzero(numbers == number)


def _log_scores(fitted: Fitted, data: ChoiceData) -> np.ndarray:
    return choice_predictor(fitted, data).log_probabilities(normalized=False)
