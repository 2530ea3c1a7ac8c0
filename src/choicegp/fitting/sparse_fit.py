"""Sparse fits: from many choices, in memory or in a folder, to a posterior."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from choicegp import __version__
from choicegp.compute.devices import Spread
from choicegp.compute.programs import present_device, program
from choicegp.compute.progress import Clock, Report
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.fitting.coinciding import alike_notes
from choicegp.inference.posterior import Posterior
from choicegp.inference.sparse.course import fit_sparse
from choicegp.inference.sparse.feed import InFolder, InMemory, Source
from choicegp.inference.sparse.plan import Keeper, Plan, SparseFit, Start
from choicegp.inference.sparse.step import Settings, posterior_of
from choicegp.inference.starts import rescaled
from choicegp.model.kernels import RBF, Additive, Kernel, Warped, kernel_named
from choicegp.model.prior import Objects, UtilityPrior

_WAVES = (1.0, 0.3, 0.1, 0.05)  # first lengthscales of waves in single features, in standard deviations
_SCALES = (1.0, 0.5, 0.25)  # of a user's own kernel's lengthscales
_FIRST_VARIANCE = float(np.exp(2.0))  # of a utility in units of the error scale
_FAINT = 0.01  # part of it that waves have at the smooth start
_MODULATION = 3.0  # lengthscale over which the size of waves varies, times that of the smooth part
_FIRST_WARP = 0.1  # weights of the logarithms in the features' scales: near the ends they are felt, elsewhere hardly
_ON_CPU, _ON_ACCELERATOR = 256, 1024
_BATCH_ON_CPU, _BATCH_ON_ACCELERATOR = 256, 512
_SAMPLE = 10_000  # objects among which inducing points are chosen
_COMPARED = 500  # objects by which it is told whether utilities are alike


class LargeFit(NamedTuple):
    """What a sparse fit gives an estimator."""

    posterior: Posterior
    elbo: float
    status: str
    message: str
    n_iter: int
    trace: np.ndarray
    notes: tuple[str, ...]
    n_annealing: int


def starts(kernel: Kernel | None, objects: np.ndarray, n_utilities: int, *, learn: bool) -> tuple[Start, ...]:
    """Return the kernels that are tried: a user's own in several scales, or smooth ones with waves.

    The sum of a smooth kernel and of waves in single features, whose size varies smoothly with all of them, finds fast
    waves that a smooth kernel alone takes for noise, and products such as f(x1) g(x2), which a plain additive kernel
    cannot express; learned scales of the features follow what changes fast near the ends of their ranges.
    """
    n_features = objects.shape[1]
    if not learn:
        own = kernel_named("rbf") if kernel is None else kernel
        return (Start("the given kernel", UtilityPrior.create(own, n_features, n_utilities)),)
    far = float(np.sqrt(n_features))  # distances grow with the number of features
    if kernel is not None:
        prior = rescaled(UtilityPrior.create(kernel, n_features, n_utilities), far, _FIRST_VARIANCE)
        return tuple(Start(f"lengthscales times {scale:g}", rescaled(prior, scale, 1.0)) for scale in _SCALES)

    ends = np.stack([objects.min(axis=0), objects.max(axis=0)])

    def with_waves(lengthscale: float, part: float) -> UtilityPrior:
        waves = Additive(lengthscale, part * _FIRST_VARIANCE)
        kernel = waves * RBF(_MODULATION * far) + RBF(far, _FIRST_VARIANCE)  # type: ignore[call-arg]
        return UtilityPrior.create(Warped(kernel, _FIRST_WARP, ends), n_features, n_utilities)

    smooth = Start("smooth", with_waves(_WAVES[0], _FAINT))
    waves = (Start(f"waves of lengthscale {scale:g}", with_waves(scale, 1.0)) for scale in _WAVES)
    return (smooth, *waves)


def fit_large(
    data: ChoiceData | ChoiceFolder, centre: np.ndarray, scale: np.ndarray, options: Any, clock: Clock,
    report: Report | None, checkpoint: Callable[[str], Keeper] | None,
) -> LargeFit:  # fmt: skip
    """Fit by sparse inference, on all devices of the kind that the caller has chosen."""
    _check_options(options, checkpoint)
    source: Source
    if isinstance(data, ChoiceFolder):
        source, sample = InFolder(data, centre, scale), data.sample
    else:
        source, sample = InMemory(data, centre, scale), data
    rng = np.random.default_rng([options.random_state, 6])
    some = np.sort(rng.permutation(np.unique(sample.flat_shown))[:_SAMPLE])
    objects = (sample.X[some] - centre) / scale
    platform = present_device().platform
    on_cpu, devices = platform == "cpu", jax.devices(platform)
    has_lapse = options.learn_lapse or options.lapse > 0
    settings = Settings(
        options.hyperpriors, options.learn_hyperparameters, options.learn_inducing, options.learn_lapse,
        jitter=1e-6 if on_cpu else 1e-5,
    )  # fmt: skip
    plan = Plan(
        n_inducing=options.n_inducing or (_ON_CPU if on_cpu else _ON_ACCELERATOR),
        batch_size=options.batch_size or (_BATCH_ON_CPU if on_cpu else _BATCH_ON_ACCELERATOR),
        max_iter=options.n_steps, tol=options.tol, settings=settings,
        lapse=options.lapse if has_lapse else None, dtype=np.float64 if on_cpu else np.float32,
        seed=options.random_state,
    )  # fmt: skip
    own = None if options.any_kernel else options.kernel
    kernels = starts(own, objects, options.n_utilities, learn=options.learn_hyperparameters)
    kernels = kernels[: options.n_restarts]
    keeper = None
    if checkpoint is not None:
        parameters = [np.asarray(leaf).tolist() for start in kernels for leaf in jax.tree.leaves(start.prior)]
        what = (__version__, plan, len(devices), kernels[0].prior, parameters, source.digest)
        keeper = checkpoint(repr(what))
    spread = Spread(devices) if len(devices) > 1 else None
    fit: SparseFit = fit_sparse(source, objects, kernels, plan, clock, report=report, keeper=keeper, spread=spread)
    if fit.status == "failed" or not np.isfinite(fit.bound):
        raise ChoiceGPError(f"the fit failed: {fit.message}. Try standardize=True or another kernel")
    if keeper is not None:
        keeper.remove()
    posterior = posterior_of(fit.state, fit.solved)
    notes = _notes(fit, posterior, data, objects)
    return LargeFit(posterior, fit.bound, fit.status, fit.message, fit.n_iter, fit.trace, notes, fit.n_annealing)


def _check_options(options: Any, checkpoint: Any) -> None:
    if options.object_effects:
        raise ChoiceGPError(
            "object_effects work with dense inference only: leave them out, or fit fewer objects with inference='dense'"
        )
    if jax.process_count() > 1 and (checkpoint is not None or options.max_seconds is not None):
        raise ChoiceGPError(
            "several machines would stop or go on at different steps: leave out max_seconds and checkpoint"
        )


def _notes(
    fit: SparseFit, posterior: Posterior, data: ChoiceData | ChoiceFolder, objects: np.ndarray
) -> tuple[str, ...]:
    n_points = fit.state.points.shape[1]
    notes = [f"sparse inference with {n_points} inducing points for each utility; start: {fit.start}"]
    if isinstance(data, ChoiceFolder):
        notes.append(f"{len(data)} sets in {len(data.files)} files; data_ is a sample of {len(data.sample)} of them")
    constant = np.ptp(objects, axis=0) == 0
    if constant.any():
        names = ", ".join(np.asarray(data.encoding.feature_names)[constant])
        notes.append(f"these features are the same for all shown objects and say nothing: {names}")
    some = Objects(objects[:_COMPARED], np.zeros(len(objects[:_COMPARED]), int))
    return (*notes, *alike_notes(np.asarray(_mean_at(posterior, some))))


_mean_at = program(Posterior.mean_at)
