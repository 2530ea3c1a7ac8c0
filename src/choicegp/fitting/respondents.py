"""The fit of many people together: from choice data that name their respondents to one record."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from choicegp.compute.progress import Clock, progress_report
from choicegp.compute.threads import linear_algebra_for
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import FitResult, Fitted, drawn_seed_note, excess_note, notes_on, scaling
from choicegp.inference.driver import NOTHING, Keeper, Learning, Task, Watch, run
from choicegp.inference.problem import distinct_objects
from choicegp.inference.respondents.course import InferredStudy, StudyInference
from choicegp.inference.respondents.posterior import CrowdSites, StudyPosterior
from choicegp.inference.respondents.steps import Population
from choicegp.inference.respondents.study import Answers, Known, Study, spread_points, studied
from choicegp.inference.sites import Sites
from choicegp.model.error_models import ErrorModel
from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior

MOST_POINTS = 160  # at which the population's utilities are represented
_FIRST_PEOPLE = 24  # fitted from annealed starts, where there are clearly more
_STARTS = 10  # of four, the best one was missed (28 nats of 461) on one of two seeds
_PERSON_STARTS, _MANY_PEOPLE = 3, 200  # random starts of each person; of many people one
_AGAINST_EFFECTS = 5.0  # nats of the bound by which a fit without object effects must be better
_ADAPTING_STEPS = 60
_WORDS = (
    "Gaussian utilities of each person and of the population, at the most probable hyperparameters: intervals are too "
    "narrow"
)


def fit_study(
    data: ChoiceData, options: FitOptions, first_prior: Any, clock: Clock, keeper: Keeper = NOTHING
) -> Fitted:
    """Fit all people together; the caller sets precision and device.

    ``first_prior`` makes the population's prior at which a fit starts from options and the number of features;
    ``keeper`` keeps the states of the fit.
    """
    people, ids = numbered_respondents(data)
    centre, scale = scaling(data, options.standardize)
    codes: dict[Any, int] = {}
    numbers = np.array([codes.setdefault(i, len(codes)) for i in data.object_ids])
    X = (data.X - centre) / scale
    tried = [options.object_effects] if options.object_effects is not None else [False, True]
    found: dict[bool, tuple[InferredStudy, Study]] = {}
    with progress_report(options.progress, options.method.n_steps) as report:
        for effects in tried:
            objects, answers = _gathered(data, X, numbers, people, options.errors, effects=bool(effects))
            if effects and len(tried) > 1 and len(objects.X) > MOST_POINTS:
                break  # the points could not hold an effect for each object
            prior = first_prior(options.as_in(bool(effects)), X.shape[1])
            if options.errors.has_threshold:
                size = np.mean(np.asarray(prior.variance(objects)), axis=1)
                prior = UtilityPrior(prior.kernels, prior.log_effect_variance, prior.shared, np.log(size))
            hyperpriors = options.hyperpriors_for(X.shape[1])
            learning = Learning(hyperpriors, options.learn_lapse, options.learn_hyperparameters)
            watch = Watch(clock, report, keeper.part("effects" if effects else "plain"))
            task = Task(
                prior, None, learning, watch, options.n_restarts or _STARTS,  # type: ignore[arg-type]
                options.method.n_steps, options.tol, options.lapse, options.random_state,
            )  # fmt: skip
            alone = options.respondents == "individual"
            found[bool(effects)] = _inferred(task, objects, answers, len(ids), alone=alone)
    effects = max(found, key=lambda effects: found[effects][0].elbo + (_AGAINST_EFFECTS if effects else 0.0))
    best, study = found[effects]
    posterior = _posterior(best, study, ids)
    population = posterior.population()
    notes = notes_on(data, np.asarray(study.objects.X), np.asarray(population.mean))
    notes += excess_note(data, options.errors, options.n_utilities)
    if study.n_sets < len(data):
        notes = (*notes, f"{len(data) - study.n_sets} sets of one object say nothing")
    if options.drawn_seed:
        notes = (*notes, drawn_seed_note(options.random_state))
    result = FitResult(
        best.status, best.message, len(best.trace), clock.seconds, best.trace, notes, best.n_annealing, _WORDS,
        out_of_time=best.status == "stopped" and clock.is_up,
    )  # fmt: skip
    return Fitted(population, best.elbo, result, centre, scale, codes, options.errors, data, posterior)


def numbered_respondents(data: ChoiceData) -> tuple[np.ndarray, tuple]:
    """Return the number of the person of each set, and the people in the order of their numbers."""
    if data.respondents is None:
        raise ChoiceGPError(
            "the data do not say who answered: give respondents to ChoiceData.from_sets, or respondent= to from_long "
            "(choicegp fit --respondent COLUMN), or use respondents='pooled'"
        )
    numbers, ids = pd.factorize(np.asarray(data.respondents, dtype=object))
    return numbers, tuple(ids.tolist())


def _gathered(
    data: ChoiceData, X: np.ndarray, codes: np.ndarray, people: np.ndarray, errors: ErrorModel, *, effects: bool
) -> tuple[Objects, Answers]:
    kept, local = distinct_objects(data, X, codes, effects=effects)
    own, own_codes = X[kept], codes[kept]
    if errors.has_threshold:
        own, own_codes = np.concatenate([own, own[:1]]), np.append(own_codes, THRESHOLD)
    objects = Objects(np.ascontiguousarray(own), own_codes)
    return objects, Answers(data, local, people, len(kept), errors)


def _inferred(
    task: Task, objects: Objects, answers: Answers, n_people: int, *, alone: bool
) -> tuple[InferredStudy, Study]:
    """Fit some people from annealed starts, then everyone from there."""
    # Of people who have nothing in common there is no population to represent.
    points = spread_points(objects, 1 if alone else MOST_POINTS, task.seed)
    p, d = task.prior.n_parts, task.prior.n_utilities
    study = studied(objects, points, answers, n_people, p, d)
    if not study.n_sets:
        raise ChoiceGPError("no set has two objects or more: there is nothing to learn from")
    before = None
    with linear_algebra_for(p * len(points.X)):
        if n_people > 1.5 * _FIRST_PEOPLE and not alone:
            some = np.random.default_rng([task.seed, 19]).permutation(n_people)[:_FIRST_PEOPLE]
            own = task._replace(watch=task.watch.part("first people", task.prior.kernels))
            first = _infer(StudyInference(own, studied(objects, points, _of(answers, some), len(some), p, d)))
            before = first.prior, first.population
        n_restarts = _PERSON_STARTS if n_people <= _MANY_PEOPLE else 1
        task = task._replace(watch=task.watch.part("all people", task.prior.kernels))
        return _infer(StudyInference(task, study, before, alone=alone, n_restarts=n_restarts)), study


def _infer(inference: StudyInference) -> InferredStudy:
    found: InferredStudy = inference.conclude(*run(inference, inference.task.watch.keeper))
    if found.status == "failed" or not np.isfinite(found.elbo):
        raise ChoiceGPError(f"the fit failed: {found.message}. Try standardize=True, or another kernel")
    return found


def _of(answers: Answers, people: np.ndarray) -> Answers:
    """Keep the answers of some people, who are numbered anew."""
    sets = np.flatnonzero(np.isin(answers.people, people))
    number = np.full(int(answers.people.max()) + 1, -1)
    number[people] = np.arange(len(people))
    return answers._replace(data=answers.data.take(sets), people=number[answers.people[sets]])


def adapted(fitted: Fitted, data: ChoiceData, options: FitOptions, clock: Clock) -> Fitted:
    """Learn further answers of people, known or new, without fitting anyone else again.

    The hyperparameters stay.  What the population is known to be is combined with what these people say about it: of
    a person who answered before, with all her answers instead of the earlier ones.
    """
    before = fitted.study
    assert before is not None
    data = _with_own_ids(data, fitted.data)
    asked = set(numbered_respondents(data)[1])
    again = np.array([respondent in asked for respondent in np.asarray(fitted.data.respondents, dtype=object)])
    whole = ChoiceData.concat([fitted.data, data])
    theirs = ChoiceData.concat([fitted.data.take(np.flatnonzero(again)), data]) if again.any() else data
    codes = dict(fitted.codes)
    numbers = np.array([codes.setdefault(i, len(codes)) for i in theirs.object_ids])
    people, ids = numbered_respondents(theirs)
    X = (theirs.X - fitted.centre) / fitted.scale
    objects, answers = _gathered(theirs, X, numbers, people, options.errors, effects=fitted.has_effects)
    known = known_without(before, ids)
    p, d = before.prior.n_parts, before.prior.n_utilities
    study = studied(objects, before.points, answers, len(ids), p, d, roomy=True)._replace(known=known)
    found = _learned(before, study, options.tol, options.random_state, clock)
    posterior = _joined(before, _posterior(found, study, ids))
    note = f"{len(ids)} respondents were learned later, by adapt: {found.status} ({found.message})"
    later = fitted._replace(posterior=posterior.population(), codes=codes, data=whole, study=posterior)
    return later.noted(note)


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


def _learned(before: StudyPosterior, study: Study, tol: float, seed: int, clock: Clock) -> InferredStudy:
    """Learn what people say, given what is known about the population; the hyperparameters stay."""
    assert study.known is not None
    learning = Learning(None, learn_lapse=False, learn_prior=False)
    lapse = 0.0 if before.lapse is None else float(before.lapse)
    task = Task(
        before.prior.population, None, learning, Watch(clock), 1, _ADAPTING_STEPS, tol, lapse, seed,  # type: ignore[arg-type]
    )  # fmt: skip
    with linear_algebra_for(len(before.mean)):
        start = before.prior, population_of(study.known)
        return _infer(StudyInference(task, study, start, alone=before.prior.alone))


def learned_by(fitted: Fitted, data: ChoiceData, known: Known, left_out: int) -> StudyPosterior:
    """Return what is known about one person by all of her sets but one, and by what others say."""
    before = fitted.study
    assert before is not None
    numbers = np.array([fitted.codes[i] for i in data.object_ids])
    people, ids = numbered_respondents(data)
    X = (data.X - fitted.centre) / fitted.scale
    objects, answers = _gathered(data, X, numbers, people, fitted.errors, effects=fitted.has_effects)
    study = studied(objects, before.points, answers, 1, before.prior.n_parts, before.prior.n_utilities)
    # Weighted with zero, not taken away: the shapes, and so the programs, stay.
    crowds = tuple(
        crowd._replace(sets=tuple(
            batch._replace(weight=np.where(batch.sets == left_out, 0.0, batch.weight)) for batch in crowd.sets
        ))
        for crowd in study.crowds
    )  # fmt: skip
    study = study._replace(known=known, crowds=crowds)
    return _posterior(_learned(before, study, 0.02, 0, Clock(None)), study, ids)


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


def _posterior(found: InferredStudy, study: Study, ids: tuple) -> StudyPosterior:
    crowds = []
    for crowd, sites in zip(study.crowds, found.sites, strict=True):
        people = crowd.people.ravel()
        known = people >= 0
        flat = jax.tree.map(lambda leaf, known=known: np.asarray(leaf).reshape(-1, *leaf.shape[2:])[known], sites)
        crowds.append(CrowdSites(people[known], crowd.rows.reshape(len(people), -1)[known], Sites(*flat)))
    return StudyPosterior(
        found.prior, study.points, found.population.mean, found.population.root, study.objects, tuple(crowds), ids,  # type: ignore[arg-type]
        found.lapse,
    )  # fmt: skip
