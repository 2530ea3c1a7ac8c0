"""The sparse fit: its inducing points, batches and kernels, and a network with which it is compared."""

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
from choicegp.inference.sparse.plan import Plan, kernel_starts, network_start
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
_CLEARLY = 2.0  # standard errors by which the held-out sets must be more probable with a network
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
        found = _with_network(found, inference, objects, plan, watch, shared=options.has_shared_part, on_cpu=on_cpu)
    compared = Objects(objects[:_COMPARED], np.zeros(len(objects[:_COMPARED]), int))
    return found, objects, np.asarray(_mean_at(found.posterior, compared))


def _with_network(
    found: Inferred, plain: SparseInference, objects: np.ndarray, plan: Plan, watch: Watch, *, shared: bool,
    on_cpu: bool,
) -> Inferred:  # fmt: skip
    """Fit a kernel of a network's outputs too, and return what scores higher on the held-out sets.

    What a network was trained on looks surer in its outputs than anything else: the fit sees other sets.
    """
    # A network takes time to import.
    from choicegp.inference.sparse.network import NetworkPlan, train_network

    few = len(plain.held_out) == 0 or len(plain.training) < _LEAST_FOR_NETWORK
    if few or watch.is_up or jax.process_count() > 1:
        return found
    mixed = np.random.default_rng([plan.seed, 10]).permutation(plain.training)
    n = round(_FOR_NETWORK * len(mixed))
    trained = train_network(
        plain.source, mixed[:n], plain.held_out, objects, plain.starts[0].prior.n_utilities,
        NetworkPlan(**_NETWORK[on_cpu]), plan.seed, watch.clock, plan.lapse, plain.reached,
    )  # fmt: skip
    if trained is None or trained.score < _PROMISING * plain.reached:
        return found
    start = network_start(trained, objects.shape[1], shared=shared)
    seeing = SparseInference(plain.source, objects, (start,), plan, watch, spread=plain.spread, only=np.sort(mixed[n:]))
    try:
        other = infer(seeing, watch.part("network", start.prior.kernels))
    except ChoiceGPError:  # the fit without a network stands
        return found
    chosen = other if _is_better(seeing, plain) else found
    return chosen._replace(notes=(*chosen.notes, _scores_in_words(seeing, plain)))


def _is_better(seeing: SparseInference, plain: SparseInference) -> bool:
    """Say whether a network is worth having: it also chose its own state by the held-out sets, and a tie is none."""
    if len(seeing.judged) != len(plain.judged) or len(plain.judged) < 2:
        return seeing.reached > plain.reached
    gain = seeing.judged - plain.judged
    return float(np.mean(gain)) > _CLEARLY * float(np.std(gain, ddof=1)) / np.sqrt(len(gain))


def _scores_in_words(seeing: SparseInference, plain: SparseInference) -> str:
    both = (float(np.mean(one.judged)) if len(one.judged) else one.reached for one in (seeing, plain))
    return "log score of the held-out sets {:.4f} with a network, {:.4f} without".format(*both)


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
