"""The fit of many people together: from choice data that name their respondents to one record."""

from typing import Any

import jax
import numpy as np
import pandas as pd

from choicegp.checks import counted
from choicegp.compute.progress import Clock, progress_report
from choicegp.compute.threads import linear_algebra_for
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import FitResult, Fitted, drawn_seed_note, notes_on, scaling
from choicegp.inference.driver import Learning, Task, Watch, run
from choicegp.inference.problem import distinct_objects
from choicegp.inference.respondents.course import InferredStudy, StudyInference
from choicegp.inference.respondents.posterior import CrowdSites, StudyPosterior
from choicegp.inference.respondents.study import Answers, Study, spread_points, studied
from choicegp.inference.sites import Sites
from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior

MOST_POINTS = 160  # at which the population's utilities are represented
_FIRST_PEOPLE = 64  # fitted from annealed starts, where there are more
_STARTS = 4
_AGAINST_EFFECTS = 5.0  # nats of the bound by which a fit without object effects must be better
_WORDS = "Gaussian utilities of each person and of the population, at the most probable hyperparameters"


def fit_study(data: ChoiceData, options: FitOptions, first_prior: Any, clock: Clock) -> Fitted:
    """Fit all people together; the caller sets precision and device.

    ``first_prior`` makes the population's prior at which a fit starts from options and the number of features.
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
            objects, answers = _gathered(data, X, numbers, people, options, effects=bool(effects))
            if effects and len(tried) > 1 and len(objects.X) > MOST_POINTS:
                break  # the points could not hold an effect for each object
            prior = first_prior(options.as_in(bool(effects)), X.shape[1])
            if options.errors.has_threshold:
                size = np.mean(np.asarray(prior.variance(objects)), axis=1)
                prior = UtilityPrior(prior.kernels, prior.log_effect_variance, prior.shared, np.log(size))
            hyperpriors = options.hyperpriors_for(X.shape[1])
            learning = Learning(hyperpriors, options.learn_lapse, options.learn_hyperparameters)
            task = Task(
                prior, None, learning, Watch(clock, report), options.n_restarts or _STARTS,  # type: ignore[arg-type]
                options.method.n_steps, options.tol, options.lapse, options.random_state,
            )  # fmt: skip
            found[bool(effects)] = _inferred(task, objects, answers, len(ids))
    effects = max(found, key=lambda effects: found[effects][0].elbo + (_AGAINST_EFFECTS if effects else 0.0))
    best, study = found[effects]
    posterior = _posterior(best, study, ids)
    population = posterior.population(options.random_state)
    notes = notes_on(data, np.asarray(study.objects.X), np.asarray(population.mean))
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
    data: ChoiceData, X: np.ndarray, codes: np.ndarray, people: np.ndarray, options: FitOptions, *, effects: bool
) -> tuple[Objects, Answers]:
    kept, local = distinct_objects(data, X, codes, effects=effects)
    own, own_codes = X[kept], codes[kept]
    if options.errors.has_threshold:
        own, own_codes = np.concatenate([own, own[:1]]), np.append(own_codes, THRESHOLD)
    objects = Objects(np.ascontiguousarray(own), own_codes)
    return objects, Answers(data, local, people, len(kept), options.errors)


def _inferred(task: Task, objects: Objects, answers: Answers, n_people: int) -> tuple[InferredStudy, Study]:
    """Fit some people from annealed starts, then everyone from there."""
    points = spread_points(objects, MOST_POINTS, task.seed)
    p, d = task.prior.n_parts, task.prior.n_utilities
    study = studied(objects, points, answers, n_people, p, d)
    if not study.n_sets:
        raise ChoiceGPError("no set has two objects or more: there is nothing to learn from")
    before = None
    with linear_algebra_for(p * len(points.X)):
        if n_people > 2 * _FIRST_PEOPLE:
            some = np.random.default_rng([task.seed, 19]).permutation(n_people)[:_FIRST_PEOPLE]
            first = _infer(StudyInference(task, studied(objects, points, _of(answers, some), len(some), p, d)))
            before = first.prior, first.population
        return _infer(StudyInference(task, study, before)), study


def _infer(inference: StudyInference) -> InferredStudy:
    found: InferredStudy = inference.conclude(*run(inference))
    if found.status == "failed" or not np.isfinite(found.elbo):
        raise ChoiceGPError(f"the fit failed: {found.message}. Try standardize=True, or another kernel")
    return found


def _of(answers: Answers, people: np.ndarray) -> Answers:
    """Keep the answers of some people, who are numbered anew."""
    sets = np.flatnonzero(np.isin(answers.people, people))
    number = np.full(int(answers.people.max()) + 1, -1)
    number[people] = np.arange(len(people))
    return answers._replace(data=answers.data.take(sets), people=number[answers.people[sets]])


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


def people_in_words(n_people: int) -> str:
    """Say of how many people something is."""
    return counted(n_people, "respondent")
