"""Answers that come later: people are learned without fitting anyone else again."""

from dataclasses import replace

import numpy as np

from choicegp.compute.devices import linear_algebra_for
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_size
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import Fitted
from choicegp.fitting.respondents import PLUG_IN_PEOPLE, gathered, infer_study, numbered_respondents, posterior_of
from choicegp.inference.driver import Learning, Task, Watch
from choicegp.inference.respondents.course import InferredStudy, StudyInference
from choicegp.inference.respondents.posterior import CrowdSites, StudyPosterior, population_elsewhere
from choicegp.inference.respondents.steps import Population
from choicegp.inference.respondents.study import Known, Study, StudyAnswers, studied
from choicegp.inference.sites import Sites
from choicegp.model.prior import THRESHOLD, Objects, with_room

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
    study = _posed(before, known, objects, answers, len(ids))
    found = _learned(before, study, options.tol, options.random_state, clock, _STARTS)
    posterior = _joined(before, _concluded(before, known, posterior_of(found, study, ids, coding)))
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


def _posed(before: StudyPosterior, known: Known, objects: Objects, answers: StudyAnswers, n_people: int) -> Study:
    """Pose what is to be learned of some people, given what is known about the population.

    What the population is like elsewhere than at the objects that they saw does not matter.  Objects are filled up with
    others to a power of two, so that other answers need no other programs.
    """
    # People who are alone have no population at objects that others saw: copies, which nobody is shown, fill them up.
    objects = with_room(objects)[0] if before.prior.alone else _filled(objects, before.points)
    few = len(objects.X) < len(before.points.X)
    points, known = (objects, known_at(before, known, objects)) if few else (before.points, known)
    study = studied(objects, points, answers, n_people, before.prior.n_utilities, roomy=True)
    return study._replace(known=known)


def _filled(objects: Objects, others: Objects) -> Objects:
    """Fill up objects with others, to a power of two where there are enough."""
    seen = {row.tobytes() for row in np.asarray(objects.X)}
    codes = np.asarray(others.codes)
    new = [k for k, row in enumerate(np.asarray(others.X)) if row.tobytes() not in seen]
    free = np.array([k for k in new if codes[k] != THRESHOLD and codes[k] not in objects.codes], int)
    more = free[: padded_size(len(objects.X), 0) - len(objects.X)]
    return Objects(np.concatenate([objects.X, others.X[more]]), np.concatenate([objects.codes, codes[more]]))


def known_at(study: StudyPosterior, known: Known, objects: Objects) -> Known:
    """Return what is known about the population's utilities at some objects, in the coordinates of these objects."""
    given = study.prior, study.points, objects, *population_of(known)[:2]
    mean, covariance = (np.asarray(part) for part in population_elsewhere(*given))
    precision = np.linalg.inv(covariance)
    precision = 0.5 * (precision + precision.T)
    return Known(precision, precision @ mean)


def _concluded(before: StudyPosterior, known: Known, after: StudyPosterior) -> StudyPosterior:
    """Bring the population up to date at the points of the fit: with what these people have been found to say."""
    after, precision, linear = after._replace(points=before.points), *known
    for crowd in after.crowds:
        said = after.said_by(crowd, np.arange(len(crowd.people)))
        precision, linear = precision + said[0], linear + said[1]
    mean, root, _ = population_of(Known(precision, linear))
    return after._replace(mean=np.asarray(mean), root=np.asarray(root))


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
    with linear_algebra_for(len(study.known.linear)):
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
    study = _posed(before, known, objects, answers, 1)
    # Weighted with zero, not taken away: the shapes, and so the programs, stay.
    crowds = tuple(
        crowd._replace(sets=tuple(
            batch._replace(weight=np.where(batch.sets == left_out, 0.0, batch.weight)) for batch in crowd.sets
        ))
        for crowd in study.crowds
    )  # fmt: skip
    study = study._replace(crowds=crowds)
    # What the population is like at other objects than hers is not asked.
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
    objects, places = _together(
        before.objects, after.objects, np.concatenate([own.rows.ravel() for own in after.crowds])
    )
    for own in after.crowds:
        crowds.append(CrowdSites(moved[own.people], places[own.rows], own.sites))
    crowds = [_one_crowd(alike) for _, alike in _by_width(crowds)]
    return after._replace(objects=objects, crowds=tuple(crowds), ids=ids)


def _together(before: Objects, after: Objects, rows: np.ndarray) -> tuple[Objects, np.ndarray]:
    """Add some rows of other objects, each once; return all objects, and the places of the others among them."""

    def names(objects: Objects) -> list[tuple[int, bytes]]:
        each = zip(np.asarray(objects.codes).tolist(), np.asarray(objects.X), strict=True)
        return [(code, b"" if code == THRESHOLD else row.tobytes()) for code, row in each]

    place, others = {name: k for k, name in enumerate(names(before))}, names(after)
    new = [row for row in np.unique(rows).tolist() if others[row] not in place]
    place |= {others[row]: len(before.X) + k for k, row in enumerate(new)}
    whole = Objects(np.concatenate([before.X, after.X[new]]), np.concatenate([before.codes, after.codes[new]]))
    return whole, np.array([place.get(name, -1) for name in others])


def _by_width(crowds: list[CrowdSites]) -> list[tuple[int, list[CrowdSites]]]:
    widths = sorted({crowd.rows.shape[1] for crowd in crowds})
    return [(width, [crowd for crowd in crowds if crowd.rows.shape[1] == width]) for width in widths]


def _one_crowd(crowds: list[CrowdSites]) -> CrowdSites:
    """Join crowds of people with equal numbers of objects."""
    people, rows = (np.concatenate([getattr(crowd, name) for crowd in crowds]) for name in ("people", "rows"))
    sites = Sites(*(np.concatenate([getattr(crowd.sites, name) for crowd in crowds]) for name in Sites._fields))  # type: ignore[arg-type]
    return CrowdSites(people, rows, sites)
