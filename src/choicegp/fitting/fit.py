"""From choice data and options to a record of the fit: the only place where a problem is posed."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from choicegp.compute.devices import ahead, check_memory, linear_algebra_for, n_threads, on_the_cpu
from choicegp.compute.programs import present_device
from choicegp.compute.progress import Clock, progress_report
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.fitting.directions import contradiction, held_back
from choicegp.fitting.methods import MCMC, Auto, Dense, Sparse
from choicegp.fitting.options import AUTO_DENSE, FitOptions
from choicegp.fitting.record import PLUG_IN, FitResult, Fitted, drawn_seed_note, excess_note, notes_on, posed, scaling
from choicegp.inference.dense import DenseInference
from choicegp.inference.driver import CONCLUSION, NOTHING, Inferred, Keeper, Learning, Task, Watch, infer, score_points
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import Problem
from choicegp.inference.reduced_course import MANY, SOME, ReducedInference, enough_objects
from choicegp.inference.starts import (
    FIRST_VARIANCE,
    Start,
    moments_at,
    neighbouring_starts,
    recovered_sites,
    rescaled,
    with_threshold,
)
from choicegp.model.monotone import with_knots_over, without_shared_steps
from choicegp.model.prior import STEP, UtilityPrior

MOST_DENSE = 6000  # shown objects; d matrices of this order and their products are held in memory
# Measured with two utilities and 300 to 1500 objects: what a fit takes for compiling, and the matrices of this order
# that it holds for each part of the utilities (priors, their roots, posteriors and products).
_COMPILING, _MATRICES = 2**28, 14
_FIRST_EFFECT = 0.3
_AGAINST_EFFECTS = 5.0  # nats of the bound by which a fit without object effects must be better
_WITH_EFFECTS, _MIXED = 4.0, 6.0  # conclusions in whose time effects are tried, and intervals mixed, at the least


def fit_posterior(
    data: ChoiceData | ChoiceFolder, options: FitOptions, warm: Fitted | None = None,
    neighbour: Posterior | None = None, keeper: Keeper = NOTHING, clock: Clock | None = None,
) -> Fitted:  # fmt: skip
    """Fit the model; the caller sets precision and device.

    Where the options leave it open, the fit decides whether objects have effects of their own.  ``warm`` is an earlier
    fit to start from, and ``neighbour`` the posterior of a model of the same data with one utility less or one more;
    ``keeper`` keeps the states of the fit; ``clock`` belongs to a search of which the fit is a part.
    """
    clock = clock or Clock(options.max_seconds)
    if not data.has_choices:
        raise ChoiceGPError("fit needs data with choices: these have none")
    if warm is not None:
        options = options.as_in(warm.has_effects)
        if options.threshold is None and warm.errors.has_threshold:
            options = options._replace(threshold=True)
    decided = options.decided(data)
    found = _fit_as_decided(data, decided, clock, warm, neighbour, keeper)
    if isinstance(options.method, Auto) and options.method.grow and isinstance(decided.method, Dense):
        return found.noted("inducing points were not grown, because dense inference has none")
    return found


def _fit_as_decided(
    data: ChoiceData | ChoiceFolder, options: FitOptions, clock: Clock, warm: Fitted | None,
    neighbour: Posterior | None, keeper: Keeper,
) -> Fitted:  # fmt: skip
    if options.respondents != "pooled":
        return _fit_people(data, options, clock, warm is not None or neighbour is not None, keeper)
    if warm is not None:
        _check_warm(options, warm)
    with _intervals_prepared(data, options, clock):
        if options.object_effects is None:
            plain = _fit(data, options.plain, clock, warm, neighbour, keeper.part("plain"))
            return completed(plain, options, clock, keeper)
        return _fit(data, options, clock, warm, neighbour, keeper)


def _intervals_prepared(
    data: ChoiceData | ChoiceFolder, options: FitOptions, clock: Clock
) -> contextlib.AbstractContextManager[None]:
    """Compile what samples the utilities while the fits before are made, where there is a second core.

    With a time limit, it is not known whether anything will be sampled.
    """
    if not options.intervals or clock.limit is not None or options.directions or not isinstance(data, ChoiceData):
        return contextlib.nullcontext()
    return ahead(_programs_of_intervals(data, options), n_threads(options.n_jobs, len(np.unique(data.flat_shown))))


def _programs_of_intervals(data: ChoiceData, options: FitOptions) -> Iterator[Callable[[], None]]:
    from choicegp.inference.intervals import MOST_SAMPLED, programs_of_intervals

    if options.n_utilities * len(np.unique(data.flat_shown)) > MOST_SAMPLED:
        return
    # Objects mostly have effects in the end.
    options = options.as_in(True)
    problem = posed(data, *scaling(data, options.standardize), {}, effects=bool(options.object_effects),
                    errors=options.errors)  # fmt: skip
    prior = _complete(_first_prior(options, problem.objects.X.shape[1]), problem, options)
    yield from programs_of_intervals(_task(problem, prior, options, Watch(Clock(None))))


def _fit_people(
    data: ChoiceData | ChoiceFolder, options: FitOptions, clock: Clock, begun: bool, keeper: Keeper
) -> Fitted:
    # What only studies need takes time to import.
    from choicegp.fitting.respondents import fit_study

    assert isinstance(data, ChoiceData)
    if begun:
        raise ChoiceGPError(
            f"init= does not work with respondents={options.respondents!r}: leave it out. New answers of people, known "
            "or new, are learned by adapt(data)"
        )
    return fit_study(data, options, _first_prior, clock, keeper)


def completed(plain: Fitted, options: FitOptions, clock: Clock, keeper: Keeper = NOTHING) -> Fitted:
    """Add to a fit without object effects and intervals what the options leave open or ask for.

    Features never say everything about an object: it has an effect of its own unless the evidence is clearly against.
    """
    if not plain.posterior.has_sites or plain.posterior.is_sparse:
        return plain
    many = len(np.unique(plain.data.flat_shown)) > AUTO_DENSE
    if many or _is_up_for(_WITH_EFFECTS, clock):
        # Objects equal in features are one without effects, and each its own with them.
        found = _rest(plain, options.as_in(False), clock, keeper)
        return found if many else found.noted(f"object effects were not tried: {clock.had_passed}")
    own = options.as_in(True)._replace(intervals=False, method=options.dense)
    effects = _fit(plain.data, own, clock, plain, keeper=keeper.part("effects"))
    cut = effects.result.out_of_time
    # A fit that the time limit ended has had no chance to be better.
    with_effects = effects.elbo > plain.elbo - (0.0 if cut else _AGAINST_EFFECTS)
    chosen, other = (effects, plain) if with_effects else (plain, effects)
    found = _rest(chosen, options.as_in(with_effects), clock, keeper)
    if cut and not with_effects:
        found = found.noted(f"object effects were left out after few steps: {clock.had_passed}")
    return found._replace(result=found.result._replace(seconds=found.result.seconds + other.result.seconds))


def _rest(fitted: Fitted, options: FitOptions, clock: Clock, keeper: Keeper) -> Fitted:
    """Do what is left once a dense fit knows whether objects have effects: its intervals, or another inference."""
    if isinstance(options.method, Dense):
        return add_intervals(fitted, options, clock, keeper) if options.intervals else fitted
    found = _fit(fitted.data, options, clock, fitted, keeper=keeper.part("rest"))
    return found._replace(result=found.result._replace(seconds=found.result.seconds + fitted.result.seconds))


def _fit(
    data: ChoiceData | ChoiceFolder, options: FitOptions, clock: Clock, warm: Fitted | None = None,
    neighbour: Posterior | None = None, keeper: Keeper = NOTHING,
) -> Fitted:  # fmt: skip
    """Fit the model, with object effects or without."""
    clock = clock.part()
    centre, scale = scaling(data, options.standardize) if warm is None else (warm.centre, warm.scale)
    if isinstance(options.method, Sparse) or isinstance(data, ChoiceFolder):
        codes: dict[Any, int] = {}
        with progress_report(options.progress, options.method.n_steps) as report:
            found, X, means = _fit_sparse(data, centre, scale, options, Watch(clock, report, keeper))
        notes, words = notes_on(data, X, means), PLUG_IN
    else:
        codes = {} if warm is None else dict(warm.codes)
        problem = posed(
            data, centre, scale, codes, effects=bool(options.object_effects), errors=options.errors,
            directions=options.kernel.directions() if options.directions else None,
        )  # fmt: skip
        found, words = _fit_at_objects(problem, options, Watch(clock, keeper=keeper), warm, neighbour)
        notes = notes_on(data, *_of_objects(problem, found.posterior), problem)
        notes += excess_note(data, options.errors, options.n_utilities) + _pooled_note(data)
    if options.drawn_seed:
        notes = (*notes, drawn_seed_note(options.random_state))
    result = FitResult(
        found.status, found.message, found.n_iter, clock.seconds, found.trace, (*found.notes, *notes),
        found.n_annealing, words, out_of_time=found.out_of_time,
    )  # fmt: skip
    kept = data.sample if isinstance(data, ChoiceFolder) else data
    fitted = Fitted(found.posterior, found.elbo, result, centre, scale, codes, options.errors, kept)
    names = held_back(fitted) if options.directions and not clock.is_up else []
    if not names:
        return fitted
    free = options._replace(intervals=False, method=options.dense, directions=())
    bound = _fit(data, free, clock, keeper=keeper.part("free")).elbo
    return fitted._replace(result=result._replace(notes=(*result.notes, *contradiction(fitted, names, bound))))


def _of_objects(problem: Problem, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Return features (t, c) and means (d, t) without the steps of features with a direction, which nobody saw."""
    mean = np.asarray(posterior.mean)
    is_object = np.asarray(problem.objects.codes) != STEP
    return np.asarray(problem.objects.X)[is_object], mean[:, is_object[: mean.shape[1]]]


def _pooled_note(data: ChoiceData) -> tuple[str, ...]:
    """Say that several people were fitted as if they were one."""
    n_people = 0 if data.respondents is None else len(set(np.asarray(data.respondents).tolist()))
    if n_people < 2:
        return ()
    return (
        f"the answers of {n_people} respondents were pooled as if one person had given them; "
        "respondents='hierarchical' (choicegp fit --people hierarchical) tells them apart",
    )


def _fit_sparse(
    data: ChoiceData | ChoiceFolder, centre: np.ndarray, scale: np.ndarray, options: FitOptions, watch: Watch
) -> tuple[Inferred, np.ndarray, np.ndarray]:
    # What only sparse fits need takes time to import.
    from choicegp.fitting.sparse import fit_sparse

    return fit_sparse(data, centre, scale, options, watch)


def _check_warm(options: FitOptions, warm: Fitted) -> None:
    if not options.method.begins_dense:
        raise ChoiceGPError("init= works with inference='dense' or 'mcmc' only")
    if not warm.posterior.has_sites:
        raise ChoiceGPError("init has draws from an earlier version, from which no fit can start: fit it again")
    if warm.n_utilities != options.n_utilities:
        raise ChoiceGPError(f"init has {warm.n_utilities} utilities, this model {options.n_utilities}: they must agree")
    # The hyperparameters are those of init: another kernel here would be passed over in silence.
    own: Any = jax.tree.structure(options.kernel)
    if jax.tree.structure(warm.posterior.prior.kernels) != own:
        raise ChoiceGPError("init and this model must have the same kernel")
    if warm.posterior.prior.shared != options.has_shared_part:
        raise ChoiceGPError("init and this model must agree about shared_part")
    if warm.has_effects != options.object_effects:
        raise ChoiceGPError("init and this model must agree about object_effects")
    if warm.posterior.prior.kernels.directions() != options.kernel.directions():
        raise ChoiceGPError("init and this model must agree about monotone")
    if warm.errors != options.errors:
        raise ChoiceGPError(
            "init and this model must agree about rule and threshold; where only the new sets have empty answers, "
            "fit without init"
        )


def _fit_at_objects(
    problem: Problem, options: FitOptions, watch: Watch, warm: Fitted | None, neighbour: Posterior | None
) -> tuple[Inferred, str]:
    """Infer the utilities at all shown objects; also say in words what made the intervals."""
    if problem.n_objects > MOST_DENSE:
        raise ChoiceGPError(
            f"{problem.n_objects} different objects were shown; inference={options.inference!r} works with at most "
            f"{MOST_DENSE}: use inference='sparse', or fit a sample of the sets (data.take or data.split)"
        )
    method, n = options.method, len(problem.valid)
    _check_memory(n, options)
    n_features = problem.objects.X.shape[1]
    prior = _first_prior(options, n_features) if warm is None else warm.posterior.prior
    if warm is not None and prior.kernels.directions():
        prior = with_knots_over(prior, np.asarray(problem.objects.X)[problem.valid])
    prior = _complete(prior, problem, options)
    points = score_points(problem, options.n_utilities, options.random_state)
    with linear_algebra_for(n), progress_report(options.progress, method.n_shown) as report:
        task = _task(problem, prior, options, watch._replace(listener=report).part("shown", prior.kernels))
        task = task._replace(points=points)
        before = None
        if method.begins_dense:
            first = task._replace(watch=task.watch.part("dense", prior.kernels))
            first = first if isinstance(method, Dense) else first._replace(max_iter=Dense().max_iter)
            place = None if warm is None else moments_at(warm.posterior, problem.objects)
            grown = () if neighbour is None else neighbouring_starts(neighbour, prior, problem)
            before = infer(_dense_inference(first, place, grown, options.n_jobs), first.watch)
        if before is not None and isinstance(method, Dense):
            if options.intervals and not _no_time_to_mix(before.posterior, watch.clock):
                return _with_intervals(task, before)
            notes = (_no_intervals(watch.clock),) if options.intervals else ()
            return before._replace(notes=(*before.notes, *notes)), PLUG_IN
        with on_the_cpu() if isinstance(method, MCMC) else contextlib.nullcontext():
            inference = method.inference(task, before)
            found = infer(inference, task.watch)
        mixed = ", mixed over settings of the hyperparameters" if getattr(inference, "redraws", False) else ""
        return found, PLUG_IN if before is None else f"draws{mixed}: {found.message}"


def _complete(prior: UtilityPrior, problem: Problem, options: FitOptions) -> UtilityPrior:
    """Add the effects and the threshold that the options ask for to a prior that has none."""
    if options.object_effects and prior.log_effect_variance is None:
        effect = np.full(prior.n_parts, np.log(_FIRST_EFFECT))
        prior = UtilityPrior(prior.kernels, effect, prior.shared, prior.log_threshold_variance)
    if options.errors.has_threshold and prior.log_threshold_variance is None:
        prior = with_threshold(prior, problem.objects)
    return prior


def _task(problem: Problem, prior: UtilityPrior, options: FitOptions, watch: Watch) -> Task:
    n_features = problem.objects.X.shape[1]
    learning = Learning(options.hyperpriors_for(n_features), options.learn_lapse, options.learn_hyperparameters)
    return Task(
        prior, problem, learning, watch, options.n_starts(problem.n_objects), options.method.n_steps, options.tol,
        options.lapse, options.random_state, n_threads(options.n_jobs, len(problem.valid)),
    )  # fmt: skip


def _dense_inference(task: Task, place: tuple | None, grown: Sequence[Start], n_jobs: int | None) -> DenseInference:
    """Return how a dense fit is made: with many objects, or where few say all, its steps are made at some of them."""
    if place is None and task.prior.log_effect_variance is None and not task.prior.kernels.directions():
        if len(task.problem.valid) > MANY:
            return ReducedInference(task._replace(n_jobs=n_threads(n_jobs, MANY)), grown)
        if len(task.problem.valid) >= SOME and (n := enough_objects(task.prior, task.problem)) is not None:
            return ReducedInference(task, grown, n)
    return DenseInference(task, place, grown)


def _check_memory(n: int, options: FitOptions) -> None:
    """Refuse a fit that would be killed."""
    if present_device().platform == "cpu":
        n_parts = options.n_utilities + options.has_shared_part
        check_memory(
            _COMPILING + _MATRICES * n_parts * n**2 * 8, f"a fit at {n} objects with inference={options.inference!r}",
            "use inference='sparse', or fit a sample of the sets (data.take or data.split)",
        )  # fmt: skip


def _with_intervals(task: Task, before: Inferred) -> tuple[Inferred, str]:
    # A sampler takes time to import, which a fit without intervals need not wait for.
    from choicegp.inference.intervals import with_intervals

    return with_intervals(task, before)


def _is_up_for(n_conclusions: float, clock: Clock) -> bool:
    """Whether there is no time left for work that takes as long as some conclusions of the fit before it."""
    return clock.is_up_in(n_conclusions * clock.took.get(CONCLUSION, 0.0))


def _no_time_to_mix(posterior: Posterior, clock: Clock) -> bool:
    """Whether the time is up for intervals: chains look at the clock themselves, and mixing does not."""
    from choicegp.inference.intervals import MOST_SAMPLED

    is_sampled = np.size(posterior.mean) <= MOST_SAMPLED
    return _is_up_for(0.0 if is_sampled else _MIXED, clock)


def _no_intervals(clock: Clock) -> str:
    return f"intervals that allow for uncertain hyperparameters were not made: {clock.had_passed}"


def add_intervals(fitted: Fitted, options: FitOptions, clock: Clock, keeper: Keeper = NOTHING) -> Fitted:
    """Give a dense fit without intervals those that the options ask for; the caller sets precision and device."""
    if _no_time_to_mix(fitted.posterior, clock):
        return fitted.noted(_no_intervals(clock))
    # Draws are completed after the last step, which takes about as long as a conclusion.
    clock = clock.part().keeping(clock.took.get(CONCLUSION, 0.0))
    problem, posterior = fitted.training_problem(), fitted.posterior
    hyperpriors, n = options.hyperpriors_for(problem.objects.X.shape[1]), len(problem.valid)
    found = Inferred(
        posterior, fitted.elbo, *fitted.result[:3], fitted.result.elbo_trace, fitted.result.n_annealing,
        sites=recovered_sites(posterior, problem),
    )  # fmt: skip
    with linear_algebra_for(n), progress_report(options.progress, 0) as report:
        learning = Learning(hyperpriors, options.learn_lapse, options.learn_hyperparameters)
        task = Task(
            posterior.prior, problem, learning,
            Watch(clock, report, keeper.part("intervals", posterior.prior.kernels)), 1, 0,
            seed=options.random_state, n_jobs=n_threads(options.n_jobs, n),
        )  # fmt: skip
        found, words = _with_intervals(task, found)
    # Another fit than the first may have the best bound.
    result = fitted.result._replace(
        status=found.status, message=found.message, n_iter=found.n_iter, elbo_trace=found.trace,
        n_annealing=found.n_annealing, intervals=words, notes=(*fitted.result.notes, *found.notes),
        seconds=fitted.result.seconds + clock.seconds,
    )  # fmt: skip
    return fitted._replace(posterior=found.posterior, elbo=found.elbo, result=result)


def _first_prior(options: FitOptions, n_features: int) -> UtilityPrior:
    effect = _FIRST_EFFECT if options.object_effects else None
    prior = UtilityPrior.create(options.kernel, n_features, options.n_utilities, effect, shared=options.has_shared_part)
    prior = without_shared_steps(prior) if options.kernel.directions() else prior
    if not options.learn_hyperparameters:
        return prior
    # Distances grow with the number of features.
    return rescaled(prior, np.sqrt(n_features), FIRST_VARIANCE if options.method.begins_dense else 1.0)
