"""Answers that come later: people are learned without fitting anyone else again."""

from dataclasses import replace

import numpy as np

from choicegp.compute.devices import linear_algebra_for
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import Fitted
from choicegp.fitting.respondents import PLUG_IN_PEOPLE, gathered, infer_study, numbered_respondents, posterior_of
from choicegp.inference.driver import Learning, Task, Watch
from choicegp.inference.respondents.course import InferredStudy, StudyInference
from choicegp.inference.respondents.posterior import CrowdSites, StudyPosterior
from choicegp.inference.respondents.steps import Population
from choicegp.inference.respondents.study import Known, Study, studied
from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects

_STEPS, _STARTS = 60, 3


def adapted(fitted: Fitted, data: ChoiceData, options: FitOptions, clock: Clock) -> Fitted:
    """Learn further answers of people, known or new, without fitting anyone else again.

    The hyperparameters stay.  What the population is known to be is combined with what these people say about it: of
    a person who answered before, with all her answers instead of the earlier ones.
    """
    before = fitted.study
    assert before is not None
    data = _with_own_ids(data, fitted.data)
    if before.covariates is not None and data.covariates is None:
        data = replace(data, covariates=fitted.data.covariates)  # enough where everyone is known
    asked = set(numbered_respondents(data)[1])
    again = np.array([respondent in asked for respondent in np.asarray(fitted.data.respondents, dtype=object)])
    whole = ChoiceData.concat([fitted.data, data])
    theirs = ChoiceData.concat([fitted.data.take(np.flatnonzero(again)), data]) if again.any() else data
    codes = dict(fitted.codes)
    numbers = np.array([codes.setdefault(i, len(codes)) for i in theirs.object_ids])
    people, ids = numbered_respondents(theirs)
    X = (theirs.X - fitted.centre) / fitted.scale
    coding = before.covariates
    of_people = None if coding is None else coding.coded(theirs.covariates, ids)
    objects, answers = gathered(
        theirs, X, numbers, people, options.errors, effects=fitted.has_effects, of_people=of_people
    )
    known = known_without(before, ids)
    d = before.prior.n_utilities
    study = studied(objects, before.points, answers, len(ids), d, roomy=True)._replace(known=known)
    found = _learned(before, study, options.tol, options.random_state, clock, _STARTS)
    posterior = _joined(before, posterior_of(found, study, ids, coding))
    note = f"{len(ids)} respondents were learned later, by adapt: {found.status} ({found.message})"
    later = fitted._replace(posterior=posterior.population(), codes=codes, data=whole, study=posterior)
    return later._replace(result=later.result._replace(intervals=PLUG_IN_PEOPLE)).noted(note)


def _with_own_ids(data: ChoiceData, known: ChoiceData) -> ChoiceData:
    """Give rows that are numbered, and not named, new numbers where a row of that number has other features.

    Row 0 of another table is the same object only with the same features.
    """
    ids = data.object_ids.tolist()
    if ids != list(range(len(ids))):
        return data
    same = {(i, row.tobytes()) for i, row in zip(known.object_ids.tolist(), known.X, strict=True)}
    taken = set(known.object_ids.tolist())
    free = len(ids) + max((i for i in taken if isinstance(i, int)), default=0) + 1
    renamed = [
        free + i if i in taken and (i, row.tobytes()) not in same else i for i, row in zip(ids, data.X, strict=True)
    ]
    return replace(data, object_ids=np.array(renamed))


def _learned(
    before: StudyPosterior, study: Study, tol: float, seed: int, clock: Clock, n_restarts: int = 0
) -> InferredStudy:
    """Learn what people say, given what is known about the population; the hyperparameters stay."""
    assert study.known is not None
    learning = Learning(None, learn_lapse=False, learn_prior=False)
    lapse = 0.0 if before.lapse is None else float(before.lapse)
    task = Task(
        before.prior.population, None, learning, Watch(clock), 1, _STEPS, tol, lapse, seed,  # type: ignore[arg-type]
    )  # fmt: skip
    with linear_algebra_for(len(before.mean)):
        start = before.prior, population_of(study.known)
        return infer_study(StudyInference(task, study, start, alone=before.prior.alone, n_restarts=n_restarts))


def learned_by(fitted: Fitted, data: ChoiceData, known: Known, left_out: int) -> StudyPosterior:
    """Return what is known about one person by all of her sets but one, and by what others say."""
    before = fitted.study
    assert before is not None
    numbers = np.array([fitted.codes[i] for i in data.object_ids])
    people, ids = numbered_respondents(data)
    X = (data.X - fitted.centre) / fitted.scale
    coding = before.covariates
    of_people = None if coding is None else coding.coded(data.covariates, ids)
    objects, answers = gathered(
        data, X, numbers, people, fitted.errors, effects=fitted.has_effects, of_people=of_people
    )
    study = studied(objects, before.points, answers, 1, before.prior.n_utilities)
    # Weighted with zero, not taken away: the shapes, and so the programs, stay.
    crowds = tuple(
        crowd._replace(sets=tuple(
            batch._replace(weight=np.where(batch.sets == left_out, 0.0, batch.weight)) for batch in crowd.sets
        ))
        for crowd in study.crowds
    )  # fmt: skip
    study = study._replace(known=known, crowds=crowds)
    return posterior_of(_learned(before, study, 0.02, 0, Clock(None)), study, ids, coding)


def known_without(study: StudyPosterior, ids: tuple) -> Known:
    """Return what all but some people say about the population, and its prior."""
    precision = np.linalg.inv(study.root.T @ study.root)
    precision = 0.5 * (precision + precision.T)
    linear = precision @ study.mean
    numbers = study.numbers(ids)
    for crowd in study.crowds:
        mine = np.flatnonzero(np.isin(crowd.people, numbers[numbers >= 0]))
        if len(mine):
            said = study.said_by(crowd, mine)
            precision, linear = precision - said[0], linear - said[1]
    return Known(precision, linear)


def population_of(known: Known) -> Population:
    """Return the posterior of the population that this makes."""
    factor = np.linalg.cholesky(known.precision)
    root = np.linalg.inv(factor)
    mean = root.T @ (root @ known.linear)
    return Population(mean, root, np.asarray(2.0 * np.log(np.diag(factor)).sum()))  # type: ignore[arg-type]


def _joined(before: StudyPosterior, after: StudyPosterior) -> StudyPosterior:
    """Put the people of a later study into an earlier one, in whose places they come if they were there."""
    earlier = set(before.ids)
    ids = (*before.ids, *(i for i in after.ids if i not in earlier))
    number = {respondent: i for i, respondent in enumerate(ids)}
    moved = np.array([number[i] for i in after.ids])
    crowds: list[CrowdSites] = []
    for crowd in before.crowds:
        kept = np.flatnonzero(~np.isin(crowd.people, moved))
        if len(kept):
            sites = Sites(crowd.sites.precision[kept], crowd.sites.linear[kept])
            crowds.append(CrowdSites(crowd.people[kept], crowd.rows[kept], sites))
    for own in after.crowds:
        crowds.append(CrowdSites(moved[own.people], own.rows + len(before.objects.X), own.sites))
    crowds = [_one_crowd(alike) for _, alike in _by_width(crowds)]
    X, codes = (np.concatenate(parts) for parts in zip(before.objects[:2], after.objects[:2], strict=True))
    return after._replace(objects=Objects(X, codes), crowds=tuple(crowds), ids=ids)


def _by_width(crowds: list[CrowdSites]) -> list[tuple[int, list[CrowdSites]]]:
    widths = sorted({crowd.rows.shape[1] for crowd in crowds})
    return [(width, [crowd for crowd in crowds if crowd.rows.shape[1] == width]) for width in widths]


def _one_crowd(crowds: list[CrowdSites]) -> CrowdSites:
    """Join crowds of people with equal numbers of objects."""
    people, rows = (np.concatenate([getattr(crowd, name) for crowd in crowds]) for name in ("people", "rows"))
    sites = Sites(*(np.concatenate([getattr(crowd.sites, name) for crowd in crowds]) for name in Sites._fields))  # type: ignore[arg-type]
    return CrowdSites(people, rows, sites)
