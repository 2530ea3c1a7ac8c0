"""The fit of many people together: from choice data that name their respondents to one record."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pandas as pd

from choicegp.compute.devices import Spread, linear_algebra_for, n_threads
from choicegp.compute.programs import present_device
from choicegp.compute.progress import Clock, progress_report
from choicegp.data.choices import ChoiceData
from choicegp.data.covariates import CovariateCoding
from choicegp.errors import ChoiceGPError
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import FitResult, Fitted, drawn_seed_note, excess_note, notes_on, scaling
from choicegp.inference.driver import NOTHING, Keeper, Learning, Task, Watch, run
from choicegp.inference.problem import distinct_objects
from choicegp.inference.respondents.course import InferredStudy, StudyInference
from choicegp.inference.respondents.posterior import CrowdSites, PeopleDraws, StudyPosterior
from choicegp.inference.respondents.study import Study, StudyAnswers, spread_points, studied
from choicegp.inference.sites import Sites
from choicegp.model.covariates import OfPeople
from choicegp.model.error_models import ErrorModel
from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior

MOST_POINTS = 160  # at which the population's utilities are represented
_FIRST_PEOPLE = 48  # fitted from annealed starts, where there are clearly more; from 24 the bound was 8 nats worse
_STARTS = 10  # of four, the best one was missed (28 nats of 461) on one of two seeds
_PERSON_STARTS, _MANY_PEOPLE = 3, 200  # random starts of each person; of many people one
_ROUNDS, _WORTH_A_ROUND = 12, 1.0  # how often people start anew at most, and the gain in nats after which they do again
_AGAINST_EFFECTS = 5.0  # nats of the bound by which a fit without object effects must be better
PLUG_IN_PEOPLE = (
    "Gaussian utilities of each person and of the population, at the most probable hyperparameters: intervals are too "
    "narrow"
)


class _Fit(NamedTuple):
    """A fit of all people: how it was asked for, what it learned from, and what it found."""

    task: Task
    study: Study
    found: InferredStudy


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
    coding = None if data.covariates is None else CovariateCoding.learn(data.covariates, ids)
    of_people = None if coding is None else coding.coded(data.covariates, ids)
    tried = [options.object_effects] if options.object_effects is not None else [False, True]
    fits: dict[bool, _Fit] = {}
    with progress_report(options.progress, options.method.n_steps) as report:
        for effects in tried:
            objects, answers = gathered(
                data, X, numbers, people, options.errors, effects=bool(effects), of_people=of_people
            )
            if effects and len(tried) > 1 and len(objects.X) > MOST_POINTS:
                break  # the points could not hold an effect for each object
            prior = first_prior(options.as_in(bool(effects)), X.shape[1])
            if of_people is not None:
                prior = _with_covariates(prior, X.shape[1], of_people.shape[1])
            if options.errors.has_threshold:
                size = np.mean(np.asarray(prior.variance(objects)), axis=1)
                prior = UtilityPrior(prior.kernels, prior.log_effect_variance, prior.shared, np.log(size))
            hyperpriors = options.hyperpriors_for(X.shape[1])
            learning = Learning(hyperpriors, options.learn_lapse, options.learn_hyperparameters)
            watch = Watch(clock, report, keeper.part("effects" if effects else "plain"))
            task = Task(
                prior, None, learning, watch, options.n_restarts or _STARTS,  # type: ignore[arg-type]
                options.method.n_steps, options.tol, options.lapse, options.random_state,
                n_threads(options.n_jobs, len(objects.X)),
            )  # fmt: skip
            alone = options.respondents == "individual"
            fits[bool(effects)] = _inferred(task, objects, answers, len(ids), alone=alone)
        effects = max(fits, key=lambda effects: fits[effects].found.elbo + (_AGAINST_EFFECTS if effects else 0.0))
    task, study, best = fits[effects]
    draws, words = _sampled(task, study, best, options.progress) if options.intervals else (None, PLUG_IN_PEOPLE)
    posterior = posterior_of(best, study, ids, coding)._replace(draws=draws)
    population = posterior.population()
    notes = notes_on(data, np.asarray(study.objects.X), np.asarray(population.mean))
    notes += excess_note(data, options.errors, options.n_utilities)
    if study.n_sets < len(data):
        notes = (*notes, f"{len(data) - study.n_sets} sets of one object say nothing")
    if options.drawn_seed:
        notes = (*notes, drawn_seed_note(options.random_state))
    result = FitResult(
        best.status, best.message, len(best.trace), clock.seconds, best.trace, notes, best.n_annealing, words,
        out_of_time=best.status == "stopped" and clock.is_up,
    )  # fmt: skip
    return Fitted(population, best.elbo, result, centre, scale, codes, options.errors, data, posterior)


def _with_covariates(prior: UtilityPrior, n_features: int, n_covariates: int) -> UtilityPrior:
    """Let people share more the more similar they are."""
    one = OfPeople(prior.kernels, n_features, n_covariates)
    fields = ("log_covariate_ratio", "log_covariate_lengthscale", "origin")
    parts = [np.stack([np.asarray(getattr(one, field))] * prior.n_parts) for field in fields]
    kernels = eqx.tree_at(lambda kernel: tuple(getattr(kernel, field) for field in fields), one, tuple(parts))
    return UtilityPrior(kernels, prior.log_effect_variance, prior.shared, prior.log_threshold_variance)


def _sampled(task: Task, study: Study, found: InferredStudy, progress: bool | str) -> tuple[PeopleDraws | None, str]:
    """Sample what was fitted; also say in words what makes the intervals."""
    # A sampler takes time to import, which a fit without intervals need not wait for.
    from choicegp.inference.respondents.sampling import with_draws

    with linear_algebra_for(len(found.population.mean)):
        draws, words = with_draws(task, study, found, progress)
    return draws, words if draws is not None else f"{PLUG_IN_PEOPLE} ({words})"


def numbered_respondents(data: ChoiceData) -> tuple[np.ndarray, tuple]:
    """Return the number of the person of each set, and the people in the order of their numbers."""
    if data.respondents is None:
        raise ChoiceGPError(
            "the data do not say who answered: give respondents to ChoiceData.from_sets, or respondent= to from_long "
            "(choicegp fit --respondent COLUMN), or use respondents='pooled'"
        )
    numbers, ids = pd.factorize(np.asarray(data.respondents, dtype=object))
    return numbers, tuple(ids.tolist())


def gathered(
    data: ChoiceData, X: np.ndarray, codes: np.ndarray, people: np.ndarray, errors: ErrorModel, *, effects: bool,
    of_people: np.ndarray | None = None,
) -> tuple[Objects, StudyAnswers]:  # fmt: skip
    """Return the objects of a study, and the answers at them.

    With covariates ``of_people`` (R, q), an object is a row of the table together with who sees it: each kind of person
    has objects of her own, whose last features are her covariates.
    """
    kept, local = distinct_objects(data, X, codes, effects=effects)
    at = local[data.flat_shown]
    own, own_codes = X[kept], codes[kept]
    if of_people is not None:
        kinds, kind_of_person = np.unique(of_people, axis=0, return_inverse=True)
        viewer = kind_of_person.ravel()[np.repeat(people, np.diff(data.offsets))]
        pairs, at = np.unique(np.column_stack([viewer, at]), axis=0, return_inverse=True)
        at = at.ravel()
        own, own_codes = np.column_stack([own[pairs[:, 1]], kinds[pairs[:, 0]]]), own_codes[pairs[:, 1]]
    n = len(own)
    if errors.has_threshold:
        own, own_codes = np.concatenate([own, own[:1]]), np.append(own_codes, THRESHOLD)
    return Objects(np.ascontiguousarray(own), own_codes), StudyAnswers(data, at, people, n, errors)


def _inferred(task: Task, objects: Objects, answers: StudyAnswers, n_people: int, *, alone: bool) -> _Fit:
    """Fit some people from annealed starts, then everyone from there."""
    # Of people who have nothing in common there is no population to represent.
    points = spread_points(objects, 1 if alone else MOST_POINTS, task.seed)
    p, d = task.prior.n_parts, task.prior.n_utilities
    devices = jax.devices(present_device().platform)
    spread = Spread(devices) if len(devices) > 1 else None
    study = studied(objects, points, answers, n_people, d, n_devices=len(devices))
    if not study.n_sets:
        raise ChoiceGPError("no set has two objects or more: there is nothing to learn from")
    before = None
    with linear_algebra_for(p * len(points.X)):
        if n_people > 1.5 * _FIRST_PEOPLE and not alone:
            some = np.random.default_rng([task.seed, 19]).permutation(n_people)[:_FIRST_PEOPLE]
            own = task._replace(watch=task.watch.part("first people", task.prior.kernels))
            few = studied(objects, points, _of(answers, some), len(some), d, n_devices=len(devices))
            first = infer_study(StudyInference(own, few, spread=spread))
            before = first.prior, first.population
        n_restarts = _PERSON_STARTS if n_people <= _MANY_PEOPLE else 1
        task = task._replace(watch=task.watch.part("all people", task.prior.kernels))
        inference = StudyInference(task, study, before, alone=alone, n_restarts=n_restarts, spread=spread)
        found = infer_study(inference)
        if not alone and n_people <= _MANY_PEOPLE:
            found = started_anew(inference, found)
        return _Fit(task, study, found)


def started_anew(inference: StudyInference, found: InferredStudy, rounds: int = _ROUNDS) -> InferredStudy:
    """Start each person anew, with the population and the hyperparameters that were found, while that gains much."""
    for number in range(rounds):
        task = inference.task
        if found.status != "converged" or task.watch.is_up:
            break
        task = task._replace(watch=task.watch.part(f"people again {number + 1}", task.prior.kernels))
        again = StudyInference(
            task, inference.study, found,
            alone=inference.alone, n_restarts=inference.n_restarts, spread=inference.spread, round_number=number + 1,
        )  # fmt: skip
        later: InferredStudy = again.conclude(*run(again, task.watch.keeper))
        gained = later.elbo - found.elbo
        if later.status != "failed" and gained > 0.0:
            found = later._replace(trace=np.concatenate([found.trace, later.trace]), n_annealing=found.n_annealing)
        if not gained >= _WORTH_A_ROUND:  # it may be no number
            break
    return found


def infer_study(inference: StudyInference) -> InferredStudy:
    """Run an inference to its end; one that failed is a clear error."""
    found: InferredStudy = inference.conclude(*run(inference, inference.task.watch.keeper))
    if found.status == "failed" or not np.isfinite(found.elbo):
        raise ChoiceGPError(f"the fit failed: {found.message}. Try standardize=True, or another kernel")
    return found


def _of(answers: StudyAnswers, people: np.ndarray) -> StudyAnswers:
    """Keep the answers of some people, who are numbered anew."""
    sets = np.flatnonzero(np.isin(answers.people, people))
    number = np.full(int(answers.people.max()) + 1, -1)
    number[people] = np.arange(len(people))
    mine = np.isin(np.repeat(answers.people, np.diff(answers.data.offsets)), people)
    return answers._replace(
        data=answers.data.take(sets), shown=answers.shown[mine], people=number[answers.people[sets]]
    )


def posterior_of(
    found: InferredStudy, study: Study, ids: tuple, covariates: CovariateCoding | None = None
) -> StudyPosterior:
    """Keep what was found about all people."""
    crowds = []
    for crowd, sites in zip(study.crowds, found.sites, strict=True):
        people = crowd.people.ravel()
        known = people >= 0
        flat = jax.tree.map(lambda leaf, known=known: np.asarray(leaf).reshape(-1, *leaf.shape[2:])[known], sites)
        crowds.append(CrowdSites(people[known], crowd.rows.reshape(len(people), -1)[known], Sites(*flat)))
    return StudyPosterior(
        found.prior, study.points, found.population.mean, found.population.root, study.objects, tuple(crowds), ids,  # type: ignore[arg-type]
        found.lapse, covariates=covariates,
    )  # fmt: skip
