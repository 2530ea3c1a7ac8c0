"""How the answers of several people are related: chosen by cross-validation over the sets of each person."""

from typing import NamedTuple

import numpy as np

from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.fit import fit_posterior
from choicegp.fitting.options import FitOptions
from choicegp.fitting.respondents import numbered_respondents
from choicegp.prediction.kinds import choice_predictor

CANDIDATES = ("pooled", "individual", "hierarchical")
_FOLDS = 2


class PeopleChoice(NamedTuple):
    """Which way of relating people was chosen, and why.

    Attributes
    ----------
    chosen : str
    scores : dict
        Mean log probability of the answers to sets that were held out, by name.
    reason : str
    """

    chosen: str
    scores: dict[str, float]
    reason: str


def choose_people(data: ChoiceData, options: FitOptions, clock: Clock) -> PeopleChoice:
    """Hold out a part of each person's sets in turn, and compare what predicts them best.

    The simplest of the candidates within one paired standard error of the best is chosen, in the order pooled,
    hierarchical, individual.  The caller sets precision and device.
    """
    people, ids = numbered_respondents(data)
    if len(ids) < 2:
        return PeopleChoice("pooled", {}, "there is one respondent")
    options.decided(data)  # what does not work for all candidates is refused before any of them is fitted
    rng = np.random.default_rng([options.random_state, 23])
    order = rng.permutation(len(data))
    order = order[np.argsort(people[order], kind="stable")]
    fold = np.empty(len(data), int)
    fold[order] = (np.arange(len(data)) - np.searchsorted(people[order], people[order])) % _FOLDS
    logs = {name: np.full(len(data), np.nan) for name in CANDIDATES}
    for number in range(_FOLDS):
        held_out = np.flatnonzero(fold == number)
        train, test = data.take(np.flatnonzero(fold != number)), data.take(held_out)
        if not len(test) or not len(train):
            raise ChoiceGPError("respondents='auto' needs several sets of each person: use 'hierarchical'")
        for name in CANDIDATES:
            if clock.is_up:
                return PeopleChoice("hierarchical", {}, f"people were not compared: {clock.had_passed}")
            own = options.with_threshold_as_in(data)._replace(respondents=name, intervals=False)
            fitted = fit_posterior(train, own, clock=clock)
            logs[name][held_out] = choice_predictor(fitted, test).log_probabilities(normalized=False)
    weights = np.ones(len(data)) if data.weights is None else np.asarray(data.weights, float)
    if not all(np.all(np.isfinite(values)) for values in logs.values()):
        return PeopleChoice("hierarchical", {}, "some held-out answers have no probability: people were not compared")
    scores = {name: float(np.average(values, weights=weights)) for name, values in logs.items()}
    best = max(scores, key=lambda name: scores[name])
    for name in ("pooled", "hierarchical", "individual"):
        # The sets of one person are not independent: her sum is one observation.
        of_people = np.bincount(people, weights * (logs[best] - logs[name]))
        error = float(np.std(of_people) * np.sqrt(len(of_people)) / np.sum(weights))
        if scores[best] - scores[name] <= error:
            break
    listed = ", ".join(f"{other} {scores[other]:.3f}" for other in CANDIDATES)
    reason = (
        f"log probability of held-out answers: {listed}; {name!r} is the simplest within one standard error of the best"
    )
    return PeopleChoice(name, scores, reason)
