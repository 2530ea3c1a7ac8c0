"""From choice data and options to a posterior."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from choicegp.checks import flag_option, jobs_option, number_option, whole_number
from choicegp.compute.progress import Clock, Report, progress_report
from choicegp.compute.threads import linear_algebra_for, n_threads
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.data.scaling import FeatureScaling
from choicegp.errors import ChoiceGPError
from choicegp.fitting.coinciding import alike_notes
from choicegp.fitting.neighbours import grown_starts, moments_at, shrunk_starts
from choicegp.fitting.record import FitResult, Fitted
from choicegp.inference.dense import Settings, fit_dense
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.fit import Fit
from choicegp.inference.posterior import FIRST_JITTER, Posterior, conclude, prepare_to_conclude
from choicegp.inference.problem import Problem, pose
from choicegp.inference.sparse.plan import Keeper
from choicegp.inference.starts import Start, rescaled
from choicegp.model.error_models import DISCERNIBILITY, ErrorModel
from choicegp.model.kernels import Kernel, kernel_named
from choicegp.model.prior import HyperPriors, UtilityPrior

_STEPS = {"dense": 300, "sparse": 2000, "paper": 5000, "paper-converged": 1000, "joint": 200, "mcmc": 1000}
_BY_DENSE = ("dense", "joint", "mcmc")  # what begins with, or is, a dense fit
MOST_DENSE = 6000  # shown objects; d matrices of this order and their products are held in memory
AUTO_DENSE = 1500
"""Shown objects up to which "auto" means dense inference: then it takes about as long as a sparse one."""
_SCORE_POINTS = 1024
_FIRST_VARIANCE = float(np.exp(2.0))  # of a utility in units of the error scale
_FIRST_EFFECT = 0.3
_STARTS, MORE_STARTS, _FEW_OBJECTS = 3, 9, 160  # where a start costs little, more are tried
# From three utilities on there are many more optima: on 200 sets of ten of 100 objects, nine starts of dense inference
# ended up to 42 nats below the best of six seeds, sixteen at most 11, and took a fifth more time.
_MOST_STARTS = 16
_FIRST_LAPSE = 0.05


class FitOptions(NamedTuple):
    """The validated options of a fit."""

    n_utilities: int
    inference: str
    kernel: Kernel
    any_kernel: bool
    object_effects: bool
    lapse: float
    learn_lapse: bool
    standardize: bool
    hyperpriors: HyperPriors | None
    learn_hyperparameters: bool
    n_restarts: int | None
    max_iter: int | None
    max_seconds: float | None
    tol: float
    n_inducing: int | None
    batch_size: int | None
    learn_inducing: bool
    n_jobs: int | None
    progress: bool | str
    random_state: int
    errors: ErrorModel = DISCERNIBILITY

    @classmethod
    def validated(cls, params: dict[str, Any]) -> "FitOptions":
        """Check every option and fill in what depends on others; the first wrong one is a clear error."""
        inference = _inference(params["inference"])
        n_utilities = params["n_utilities"]
        lapse = params["lapse"]
        learn = isinstance(lapse, str) and lapse == "learn"
        rate = _FIRST_LAPSE if learn else number_option("lapse", lapse, 0.0, 1.0)
        if rate >= 1.0:
            raise ChoiceGPError("lapse must be below 1: at 1 the choices say nothing")
        sizes = {name: params[name] for name in ("n_inducing", "batch_size")}
        for name, value in sizes.items():
            if value is not None and inference not in ("auto", "sparse"):
                raise ChoiceGPError(f"{name} belongs to inference='sparse': leave it at None")
            sizes[name] = None if value is None else whole_number(name, value, 1)
        if flag_option("learn_inducing", params["learn_inducing"]) and inference not in ("auto", "sparse"):
            raise ChoiceGPError("learn_inducing belongs to inference='sparse': leave it at False")
        max_iter, kernel = params["max_iter"], params["kernel"]
        any_kernel = isinstance(kernel, str) and kernel == "auto"
        limit, restarts = params["max_seconds"], params["n_restarts"]
        return cls(
            n_utilities=whole_number("n_utilities", n_utilities, 1),
            inference=inference,
            kernel=kernel_named("rbf" if any_kernel else kernel),
            any_kernel=any_kernel,
            object_effects=flag_option("object_effects", params["object_effects"]),
            lapse=rate,
            learn_lapse=learn,
            standardize=flag_option("standardize", params["standardize"]),
            hyperpriors=hyperpriors_option(params["hyperpriors"]),
            learn_hyperparameters=flag_option("learn_hyperparameters", params["learn_hyperparameters"]),
            n_restarts=None if restarts is None else whole_number("n_restarts", restarts, 1),
            max_iter=None if max_iter is None else whole_number("max_iter", max_iter, 1),
            max_seconds=None if limit is None else number_option("max_seconds", limit, 0.0, np.inf),
            tol=number_option("tol", params["tol"], 0.0, np.inf),
            learn_inducing=bool(params["learn_inducing"]),
            **sizes,
            n_jobs=jobs_option(params["n_jobs"]),
            progress=params["progress"],
            random_state=whole_number("random_state", params["random_state"], 0),
        )

    def decided(self, data: ChoiceData | ChoiceFolder) -> "FitOptions":
        """Fill in what depends on the data: the inference, and with it the number of steps."""
        inference = self.inference
        if isinstance(data, ChoiceFolder):
            if inference not in ("auto", "sparse"):
                raise ChoiceGPError(
                    f"a ChoiceFolder is fitted by inference='sparse', not {inference!r}: leave it at 'auto', "
                    "or fit a sample of the sets (folder.sample)"
                )
            inference = "sparse"
        elif inference == "auto":
            small = self.object_effects or _n_different(data) <= AUTO_DENSE
            inference = "dense" if small else "sparse"
        max_iter = _STEPS[inference] if self.max_iter is None else self.max_iter
        return self._replace(inference=inference, max_iter=max_iter)

    @property
    def n_steps(self) -> int:
        """Most steps, once the inference is decided."""
        assert self.max_iter is not None
        return self.max_iter


def _n_different(data: ChoiceData) -> int:
    """Count the shown objects that differ in their features, as far as it takes to choose the inference."""
    shown = np.unique(data.flat_shown)
    return len(shown) if len(shown) <= AUTO_DENSE else len(np.unique(data.X[shown], axis=0))


def _inference(value: Any) -> str:
    if not isinstance(value, str) or value not in ("auto", *_STEPS):
        raise ChoiceGPError(f"inference must be one of auto, {', '.join(_STEPS)}; got {value!r}")
    return value


def hyperpriors_option(value: Any) -> HyperPriors | None:
    """Check hyperpriors: pairs of a mean and a standard deviation."""
    if value is None:
        return None
    if not isinstance(value, HyperPriors):
        raise ChoiceGPError(f"hyperpriors must be a HyperPriors or None; got {value!r}")
    pairs: dict[str, tuple[float, float]] = {}
    for name, pair in value._asdict().items():
        try:
            mean, sd = (float(number) for number in pair)
        except (TypeError, ValueError):
            mean, sd = np.nan, np.nan
        if not (np.isfinite(mean) and 0.0 < sd < np.inf):
            raise ChoiceGPError(f"hyperpriors: {name} must be a mean and a standard deviation above 0; got {pair!r}")
        pairs[name] = (mean, sd)
    return HyperPriors(**pairs)


def fit_posterior(
    data: ChoiceData | ChoiceFolder, options: FitOptions, warm: Fitted | None, neighbour: Posterior | None = None,
    checkpoint: Callable[[str], Keeper] | None = None,
) -> Fitted:  # fmt: skip
    """Fit the model; the caller sets precision and device.

    ``warm`` is an earlier fit to start from,
    ``neighbour`` is the posterior of a model of the same data with one utility less or one more, to start from;
    ``checkpoint`` makes what keeps the state of a sparse fit, given a text that says to which fit it belongs.
    """
    if not data.has_choices:
        raise ChoiceGPError("fit needs data with choices: these have none")
    clock = Clock(options.max_seconds)
    options = options.decided(data)
    if options.inference == "sparse" or isinstance(data, ChoiceFolder):
        return _fit_sparse(data, options, warm, clock, checkpoint)
    if checkpoint is not None:
        raise ChoiceGPError(f"checkpoint= works with inference='sparse'; this fit is {options.inference!r}")
    centre, scale = scaling(data, options.standardize) if warm is None else (warm.centre, warm.scale)
    codes = {} if warm is None else dict(warm.codes)
    numbers = np.array([codes.setdefault(i, len(codes)) for i in data.object_ids])
    problem = pose(data, (data.X - centre) / scale, numbers, effects=options.object_effects, errors=options.errors)
    if problem.n_objects > MOST_DENSE:
        raise ChoiceGPError(
            f"{problem.n_objects} different objects were shown; inference={options.inference!r} works with at most "
            f"{MOST_DENSE}: use inference='sparse', or fit a sample of the sets (data.take or data.split)"
        )
    if options.n_restarts is None:
        options = options._replace(n_restarts=_n_starts(problem.n_objects, options))
    prior = _starting_prior(options, data.X.shape[1]) if warm is None else warm.posterior.prior
    _check_warm(options, warm)
    points = quasi_normals(problem, options.n_utilities, _SCORE_POINTS, options.random_state + 2**20)
    has_lapse = options.learn_lapse or options.lapse > 0
    prepare_to_conclude(options.n_utilities, problem, points, options.lapse if has_lapse else None)
    with linear_algebra_for(len(problem.valid)), progress_report(options.progress, options.n_steps) as report:
        fit = _infer(prior, problem, options, clock, warm, neighbour, report)
        posterior, elbo = conclude(fit.prior, problem, fit.factor, fit.sites, points, fit.lapse)
        status, message = fit.status, fit.message
        if options.inference == "mcmc" and status != "failed":
            posterior, status, message = _sampled(posterior, problem, options, clock, report)
        if options.inference == "joint" and status != "failed":
            posterior, elbo, status, message = _joined(fit, posterior, problem, options, clock, report)
    notes = (*_notes(fit, data, problem), *alike_notes(np.asarray(posterior.mean)))
    result = FitResult(status, message, fit.n_iter, clock.seconds, fit.trace, notes, fit.n_annealing)
    if fit.status == "failed" or not np.isfinite(elbo):
        raise ChoiceGPError(
            f"the fit failed: {fit.message}. Try standardize=True, another kernel, or hyperpriors=HyperPriors()"
        )
    return Fitted(posterior, elbo, result, centre, scale, codes, options.errors, data)


def _n_starts(n_objects: int, options: FitOptions) -> int:
    if n_objects > _FEW_OBJECTS:
        return _STARTS
    return _MOST_STARTS if options.n_utilities >= 3 and options.inference in _BY_DENSE else MORE_STARTS


def _fit_sparse(
    data: ChoiceData | ChoiceFolder, options: FitOptions, warm: Fitted | None, clock: Clock, checkpoint: Any
) -> Fitted:
    from choicegp.fitting.sparse_fit import fit_large

    _check_warm(options, warm)
    centre, scale = scaling(data, options.standardize)
    with progress_report(options.progress, options.n_steps) as report:
        fit = fit_large(data, centre, scale, options, clock, report, checkpoint)
    result = FitResult(fit.status, fit.message, fit.n_iter, clock.seconds, fit.trace, fit.notes, fit.n_annealing)
    kept = data.sample if isinstance(data, ChoiceFolder) else data
    return Fitted(fit.posterior, fit.elbo, result, centre, scale, {}, options.errors, kept)


def scaling(data: ChoiceData | ChoiceFolder, standardize: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the shown objects' features; a constant feature is left unscaled."""
    if not standardize:
        n_features = len(data.encoding.feature_names)
        return np.zeros(n_features), np.ones(n_features)
    shown = data.moments if isinstance(data, ChoiceFolder) else FeatureScaling.of(data.X[np.unique(data.flat_shown)])
    return shown.mean, shown.scale


def _starting_prior(options: FitOptions, n_features: int) -> UtilityPrior:
    kernel = options.kernel
    effect = _FIRST_EFFECT if options.object_effects else None
    prior = UtilityPrior.create(kernel, n_features, options.n_utilities, effect)
    if not options.learn_hyperparameters:
        return prior
    if options.inference in _BY_DENSE:
        # Distances grow with the number of features; the hyperprior's mean is a sensible first variance.
        return rescaled(prior, np.sqrt(n_features), _FIRST_VARIANCE)
    return rescaled(prior, np.sqrt(n_features), 1.0)


def _check_warm(options: FitOptions, warm: Fitted | None) -> None:
    if warm is None:
        return
    if options.inference not in _BY_DENSE:
        raise ChoiceGPError("init= works with inference='dense', 'joint' or 'mcmc' only")
    if warm.posterior.n_utilities != options.n_utilities:
        raise ChoiceGPError(
            f"init has {warm.posterior.n_utilities} utilities, this model {options.n_utilities}: they must agree"
        )
    # The hyperparameters are those of init: another kernel here would be passed over in silence.
    own: Any = jax.tree.structure(options.kernel)
    if jax.tree.structure(warm.posterior.prior.kernels) != own:
        raise ChoiceGPError("init and this model must have the same kernel")
    if (warm.posterior.prior.log_effect_variance is not None) != options.object_effects:
        raise ChoiceGPError("init and this model must agree about object_effects")


def _infer(
    prior: UtilityPrior, problem: Problem, options: FitOptions, clock: Clock, warm: Fitted | None,
    neighbour: Posterior | None, report: Report | None,
) -> Fit:  # fmt: skip
    lapse, n_starts = options.lapse, options.n_restarts or _STARTS
    if options.inference in _BY_DENSE:
        start = None if warm is None else moments_at(warm.posterior, problem.objects)
        settings = Settings(options.hyperpriors, options.learn_lapse, options.learn_hyperparameters)
        steps = options.n_steps if options.inference == "dense" else _STEPS["dense"]  # of the fit before
        grown = [] if neighbour is None else _neighbouring(neighbour, prior, problem)
        return fit_dense(
            prior, problem, seed=options.random_state, n_starts=n_starts, max_iter=steps,
            tol=options.tol, clock=clock, settings=settings, lapse=lapse, warm=start, grown=grown, report=report,
            n_jobs=n_threads(options.n_jobs, len(problem.valid)),
        )  # fmt: skip
    from choicegp.inference.paper import fit_paper, fit_paper_converged

    if options.learn_lapse:
        raise ChoiceGPError("lapse='learn' works with inference='dense', 'joint' or 'mcmc' only")
    if options.inference == "paper":
        return fit_paper(
            prior, problem, seed=options.random_state, n_starts=n_starts, max_iter=options.n_steps,
            clock=clock, lapse=lapse, learn_prior=options.learn_hyperparameters, report=report,
        )  # fmt: skip
    return fit_paper_converged(
        prior, problem, seed=options.random_state, n_starts=n_starts, max_iter=options.n_steps,
        tol=options.tol, clock=clock, lapse=lapse, learn_prior=options.learn_hyperparameters, report=report,
    )  # fmt: skip


def _neighbouring(neighbour: Posterior, prior: UtilityPrior, problem: Problem) -> list[Start]:
    if neighbour.n_utilities < prior.n_utilities:
        return grown_starts(neighbour, prior, problem)
    return shrunk_starts(neighbour, problem)


def _sampled(
    posterior: Posterior, problem: Problem, options: FitOptions, clock: Clock, report: Report | None
) -> tuple[Posterior, str, str]:
    from choicegp.inference.mcmc import message_of, posterior_of, sample

    drawn = sample(posterior, problem, n_draws=options.n_steps, seed=options.random_state, clock=clock, report=report)
    return posterior_of(drawn, posterior), *message_of(drawn)


def _joined(
    fit: Fit, posterior: Posterior, problem: Problem, options: FitOptions, clock: Clock, report: Report | None
) -> tuple[Posterior, float, str, str]:
    from choicegp.inference.joint import fit_joint

    return fit_joint(
        fit, posterior, problem, seed=options.random_state, max_iter=options.n_steps, clock=clock, report=report,
    )  # fmt: skip


def _notes(fit: Fit, data: ChoiceData, problem: Problem) -> tuple[str, ...]:
    notes = []
    jitter = float(np.max(np.asarray(fit.factor.jitter)))
    if jitter > 10 * FIRST_JITTER:
        notes.append(f"the prior covariance needed a jitter of {jitter:.0e} of its variance (near-identical objects)")
    shown = len(np.unique(data.flat_shown))
    if shown > problem.n_objects:
        merged = shown - problem.n_objects
        notes.append(f"{merged} objects equal to another in all features were merged with it")
    constant = np.ptp(problem.objects.X, axis=0) == 0
    if constant.any():
        names = ", ".join(np.asarray(data.feature_names)[constant])
        notes.append(f"these features are the same for all shown objects and say nothing: {names}")
    if problem.n_sets < len(data):
        notes.append(f"{len(data) - problem.n_sets} sets of one object say nothing")
    return tuple(notes)
