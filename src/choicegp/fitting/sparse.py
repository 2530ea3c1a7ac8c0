"""The sparse fit: its inducing points, batches and kernels, and a network with which it is compared."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from choicegp.compute.devices import Spread
from choicegp.compute.programs import present_device, program
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.fitting.methods import Sparse
from choicegp.fitting.options import FitOptions
from choicegp.inference.driver import NOTHING, Inferred, Watch, infer
from choicegp.inference.posterior import Posterior
from choicegp.inference.sparse.course import SparseInference
from choicegp.inference.sparse.feed import InFolder, InMemory, Source
from choicegp.inference.sparse.plan import KernelStart, Plan, kernel_starts, network_start
from choicegp.inference.sparse.step import SparseSettings
from choicegp.inference.starts import with_threshold
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.prior import Objects

_INDUCING = {True: 256, False: 1024}  # on a CPU, on an accelerator
_BATCH = {True: 256, False: 512}
_NETWORK: dict[bool, dict[str, Any]] = {
    True: {"width": 64, "batch_size": 256, "n_steps": 3000, "rates": (5e-3,)}, False: {}
}  # fmt: skip
_LEAST_FOR_NETWORK = 4000  # training sets
_FOR_NETWORK = 0.8  # of the training sets; the others, which it has not seen, say how far its outputs can be trusted
_PROMISING = 1.25  # times the log loss of the fit without a network that a network's own may have
_CLEARLY = 2.0  # standard errors by which a later attempt must make the held-out choices more probable
_MOST_INDUCING = 4096  # to which a fit grows
_SAMPLE = 10_000  # objects among which inducing points are chosen
_COMPARED = 500  # objects at which utilities are compared


def fit_sparse(
    data: ChoiceData | ChoiceFolder, centre: np.ndarray, scale: np.ndarray, options: FitOptions, watch: Watch
) -> tuple[Inferred, np.ndarray, np.ndarray]:
    """Fit on all devices of the kind that the caller has chosen; also some objects, and their utilities."""
    sample = data.sample if isinstance(data, ChoiceFolder) else data
    _check_sparse(options, watch, sample)
    errors = options.errors
    kind_of_source = InFolder if isinstance(data, ChoiceFolder) else InMemory
    source: Source = kind_of_source(data, centre, scale, errors.has_threshold)  # type: ignore[arg-type]
    rng = np.random.default_rng([options.random_state, 6])
    some = np.sort(rng.permutation(np.unique(sample.flat_shown))[:_SAMPLE])
    objects = (sample.X[some] - centre) / scale
    platform = present_device().platform
    on_cpu, devices = platform == "cpu", jax.devices(platform)
    method = options.method
    assert isinstance(method, Sparse)
    settings = SparseSettings(
        options.hyperpriors_for(objects.shape[1]), options.learn_hyperparameters, method.learn_inducing,
        options.learn_lapse, 1e-6 if on_cpu else 1e-5, errors,
    )  # fmt: skip
    plan = Plan(
        n_inducing=method.n_inducing or _INDUCING[on_cpu], batch_size=method.batch_size or _BATCH[on_cpu],
        max_iter=method.max_iter, tol=options.tol, settings=settings, lapse=options.first_lapse,
        dtype=np.float64 if on_cpu else np.float32, seed=options.random_state,
    )  # fmt: skip
    own = None if options.any_kernel else options.kernel
    kernels = kernel_starts(
        own, objects, options.n_utilities, learn=options.learn_hyperparameters, shared=options.has_shared_part
    )[: options.n_restarts]
    if errors.has_threshold:
        shown = Objects(objects, np.zeros(len(objects), int))
        kernels = tuple(start._replace(prior=with_threshold(start.prior, shown)) for start in kernels)
    spread = Spread(devices) if len(devices) > 1 else None
    inference = SparseInference(source, objects, kernels, plan, watch, spread=spread)
    found = infer(inference, watch.part("sparse", kernels[0].prior.kernels))
    # A network is trained on choices without a threshold.
    if own is None and method.network and options.learn_hyperparameters and errors == DISCERNIBILITY:
        found, inference = _with_network(
            found, inference, objects, plan, watch, shared=options.has_shared_part, on_cpu=on_cpu
        )
    if method.grow:
        found = _with_more_points(found, inference, objects, plan, watch)
    compared = Objects(objects[:_COMPARED], np.zeros(len(objects[:_COMPARED]), int))
    return found, objects, np.asarray(_mean_at(found.posterior, compared))


def _with_network(
    found: Inferred, plain: SparseInference, objects: np.ndarray, plan: Plan, watch: Watch, *, shared: bool,
    on_cpu: bool,
) -> tuple[Inferred, SparseInference]:  # fmt: skip
    """Fit a kernel of a network's outputs too, and return it where the held-out sets are clearly better off with it.

    What a network was trained on looks surer in its outputs than anything else: the fit sees other sets.
    """
    # A network takes time to import.
    from choicegp.inference.sparse.network import NetworkPlan, train_network

    few = len(plain.held_out) == 0 or len(plain.training) < _LEAST_FOR_NETWORK
    if few or watch.is_up or jax.process_count() > 1:
        return found, plain
    mixed = np.random.default_rng([plan.seed, 10]).permutation(plain.training)
    n = round(_FOR_NETWORK * len(mixed))
    trained = train_network(
        plain.source, mixed[:n], plain.held_out, objects, plain.starts[0].prior.n_utilities,
        NetworkPlan(**_NETWORK[on_cpu]), plan.seed, watch.clock, plan.lapse, plain.reached,
    )  # fmt: skip
    if trained is None or trained.score < _PROMISING * plain.reached:
        return found, plain
    start = network_start(trained, objects.shape[1], shared=shared)
    seeing = SparseInference(plain.source, objects, (start,), plan, watch, spread=plain.spread, only=np.sort(mixed[n:]))
    try:
        other = infer(seeing, watch.part("network", start.prior.kernels))
    except ChoiceGPError:  # the fit without a network stands
        return found, plain
    chosen, its = (other, seeing) if _is_better(seeing, plain) else (found, plain)
    words = _compared("with a network", seeing, "without", plain)
    return chosen._replace(notes=(*chosen.notes, words)), its


def _with_more_points(
    found: Inferred, before: SparseInference, objects: np.ndarray, plan: Plan, watch: Watch
) -> Inferred:
    """Fit with twice as many inducing points, from where the fit is, while the held-out sets are clearly better off."""
    most = min(_MOST_INDUCING, len(np.unique(objects, axis=0)))
    why = _why_not_grown(before, most, watch)
    if why is not None:
        return found._replace(notes=(*found.notes, f"inducing points were not grown, because {why}"))
    while before.points.shape[1] < most and not watch.is_up:
        n = min(2 * before.points.shape[1], most)
        start = KernelStart(
            f"a fit at {before.points.shape[1]} inducing points", found.posterior.prior, _utilities_of(found.posterior)
        )
        more = SparseInference(
            before.source, objects, (start,), plan._replace(n_inducing=n), watch, spread=before.spread,
            only=before.training,
        )  # fmt: skip
        try:
            other = infer(more, watch.part(f"{n} points", start.prior.kernels))
        except ChoiceGPError:  # the fit at fewer points stands
            return found
        words = _compared(f"with {n} inducing points", more, f"with {before.points.shape[1]}", before)
        if not _is_better(more, before):
            return found._replace(notes=(*found.notes, words))
        found, before = other._replace(notes=(*other.notes, *found.notes[2:], words)), more
    return found


def _why_not_grown(before: SparseInference, most: int, watch: Watch) -> str | None:
    """Say why a fit does not get more inducing points; None where it may."""
    if not len(before.held_out):
        return "no sets were held out, which takes 1000 training sets and more than there are in a step"
    if watch.is_up:
        return watch.clock.had_passed
    if not len(before.judged):
        return (
            "held-out sets do not judge sets of more than ten objects, thresholds, fixed hyperparameters and kernels "
            "of one's own"
        )
    if before.points.shape[1] >= most:
        return f"there were {before.points.shape[1]} already, and there can be {most}"
    return None


def _utilities_of(posterior: Posterior) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that gives each utility at the points of its own part."""

    def at(points: np.ndarray) -> np.ndarray:
        own = points[len(points) - posterior.n_utilities :]
        codes = np.zeros(points.shape[1], int)
        return np.stack([np.asarray(_mean_at(posterior, Objects(some, codes)))[i] for i, some in enumerate(own)])

    return at


def _is_better(later: SparseInference, before: SparseInference) -> bool:
    """Say whether a later attempt is worth having: a tie, in which the held-out sets cannot tell, is none.

    Neither is one that had no time to learn how sure it may be, where the one before had.
    """
    new, old = (later.judged, before.judged) if len(before.judged) else (later.parts, before.parts)
    if len(new) != len(old) or len(old) < 2:
        return False
    gain = new - old
    return float(np.mean(gain)) > _CLEARLY * float(np.std(gain, ddof=1)) / np.sqrt(len(gain))


def _compared(how: str, later: SparseInference, how_before: str, before: SparseInference) -> str:
    """Say what the held-out sets say about two attempts."""
    if len(before.judged) and not len(later.judged):
        return f"held-out sets: the fit {how} had no time to be judged, the fit {how_before} stands"
    if len(before.judged):
        what, scores = "log score", [float(np.mean(one.judged)) for one in (later, before)]
    else:
        what, scores = "expected log-likelihood", [one.reached for one in (later, before)]
    return f"{what} of the held-out sets {scores[0]:.4f} {how}, {scores[1]:.4f} {how_before}"


def _check_sparse(options: FitOptions, watch: Watch, sample: ChoiceData) -> None:
    if sample.kinds is not None:
        raise ChoiceGPError(
            "questions for the best or the worst object of a set work with dense inference only: fit fewer objects "
            "with inference='dense'"
        )
    if options.object_effects:
        raise ChoiceGPError(
            "object_effects work with dense inference only: leave them out, or fit fewer objects with inference='dense'"
        )
    if jax.process_count() > 1 and (watch.keeper is not NOTHING or options.max_seconds is not None):
        raise ChoiceGPError(
            "several machines would stop or continue at different steps: leave out max_seconds and checkpoint"
        )


_mean_at = program(Posterior.mean_at)
