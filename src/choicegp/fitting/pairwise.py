"""Fits of Gaussian processes to preferences between two objects."""

from typing import Any, NamedTuple

import jax
import numpy as np

from choicegp.checks import flag_option, number_option, seed, whole_number
from choicegp.compute.devices import linear_algebra_for
from choicegp.compute.progress import Clock, progress_report
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_size
from choicegp.data.preferences import CONFLICTS, Preferences, preferences
from choicegp.errors import ChoiceGPError
from choicegp.fitting.options import hyperpriors_option
from choicegp.fitting.record import FitResult, drawn_seed_note, encoded_features, scaling
from choicegp.inference.descent import Descent, Watch
from choicegp.inference.laplace import Margins
from choicegp.inference.pair_process import PairProcess, PairTask, evidence, learned
from choicegp.model.kernels import Kernel
from choicegp.model.pair_kernels import ObjectPairs
from choicegp.model.prior import HyperPriors, UtilityPrior, kernel_named
from choicegp.reading.encoding import FeatureEncoding

_MOST = 3000  # latent values; matrices of this order are factorised some hundred times
_ANSWERS = {"intransitive": 1.0, "concatenated": 2.0}  # about each pair, of the processes on pairs


class PairOptions(NamedTuple):
    """The validated options of a fit to preferences."""

    kernel: Kernel
    conflicts: str
    standardize: bool
    hyperpriors: HyperPriors | None
    learn_hyperparameters: bool
    n_restarts: int
    max_iter: int
    max_seconds: float | None
    tol: float
    progress: bool | str
    random_state: int
    drawn_seed: bool

    @classmethod
    def validated(cls, params: dict[str, Any]) -> "PairOptions":
        """Check every option; the first wrong one is a clear error."""
        limit = params["max_seconds"]
        if params["conflicts"] not in CONFLICTS:
            raise ChoiceGPError(f"conflicts must be one of {', '.join(CONFLICTS)}; got {params['conflicts']!r}")
        return cls(
            kernel=kernel_named(params["kernel"]),
            conflicts=params["conflicts"],
            standardize=flag_option("standardize", params["standardize"]),
            hyperpriors=hyperpriors_option(params["hyperpriors"]),
            learn_hyperparameters=flag_option("learn_hyperparameters", params["learn_hyperparameters"]),
            n_restarts=whole_number("n_restarts", params["n_restarts"], 1),
            max_iter=whole_number("max_iter", params["max_iter"], 1),
            max_seconds=None if limit is None else number_option("max_seconds", limit, 0.0, np.inf),
            tol=number_option("tol", params["tol"], 0.0, np.inf),
            progress=params["progress"],
            random_state=seed(params["random_state"]),
            drawn_seed=params["random_state"] is None,
        )


class FittedPairs(NamedTuple):
    """All that a fit to preferences has learned.

    Attributes
    ----------
    process : PairProcess
    log_evidence : float
        Laplace's approximation.
    result : FitResult
    centre, scale : ndarray (c,)
        How features were scaled.
    encoding : FeatureEncoding
    data : ChoiceData or None
        The training data; None for a model from a file that does not hold them.
    """

    process: PairProcess
    log_evidence: float
    result: FitResult
    centre: np.ndarray
    scale: np.ndarray
    encoding: FeatureEncoding
    data: ChoiceData | None

    def scaled(self, X: Any) -> np.ndarray:
        """Encode and scale objects as the training data were."""
        return (encoded_features(X, self.encoding) - self.centre) / self.scale


def fit_pairs(data: ChoiceData, options: PairOptions, kind: str, outputs: Any, name: str) -> FittedPairs:
    """Fit a process of a kind to choices reduced to preferences; the caller sets precision and device.

    Parameters
    ----------
    data : ChoiceData
    options : PairOptions
    kind : {"utility", "intransitive", "concatenated"}
    outputs : array (t, q) or None
        For ``conflicts="majority"``: what the rows of ``data.X`` are worth.
    name : str
        Of the model, for messages.
    """
    found = preferences(data, options.conflicts, outputs, options.random_state)
    if len(found.winners) == 0:
        raise ChoiceGPError(
            f"no preference is left: all {found.n_conflicts} pairs of objects were both chosen, and "
            f"conflicts={options.conflicts!r} decides none of them"
        )
    clock = Clock(options.max_seconds)
    centre, scale = scaling(data, options.standardize)
    points, margins = _posed((data.X - centre) / scale, found, kind)
    n = len(margins.weight if margins.first is None else points[0])
    if n > _MOST:
        what = "pairs" if margins.first is None else "objects"
        raise ChoiceGPError(
            f"{n} {what} are more than the {_MOST} that {name} can factorise: fit a sample of the "
            "sets (data.take or data.split)" + (", or use PreferenceGP" if margins.first is None else "")
        )
    prior = UtilityPrior.create(options.kernel, data.X.shape[1], 1)
    task = PairTask(kind, points, margins, options.hyperpriors, n)
    with linear_algebra_for(n), progress_report(options.progress, options.max_iter) as report:
        if options.learn_hyperparameters:
            descent, prior = learned(
                task, prior, Watch(clock, report), n_restarts=options.n_restarts, max_iter=options.max_iter,
                tol=options.tol,
            )  # fmt: skip
        else:
            descent = Descent(np.zeros(0), (), "converged", "the hyperparameters were given")
        end, _ = evidence(prior, points, margins, np.zeros(n), kind)
    if not np.isfinite(end.evidence):
        raise ChoiceGPError("the fit failed: the evidence is not finite. Try standardize=True or another kernel")
    kept = points if margins.first is not None else tuple(ObjectPairs(*points).features)
    process = jax.tree.map(np.asarray, PairProcess(prior.kernels, kept, end.dual, end.gain))
    notes = (f"{found.n_conflicts} pairs in conflict: {options.conflicts}",) if found.n_conflicts else ()
    if options.drawn_seed:
        notes = (*notes, drawn_seed_note(options.random_state))
    trace = -np.asarray(descent.losses)
    result = FitResult(descent.status, descent.message, len(trace), clock.seconds, trace, notes)
    return FittedPairs(process, float(end.evidence), result, centre, scale, data.encoding, data)


def _posed(X: np.ndarray, found: Preferences, kind: str) -> tuple[tuple[np.ndarray, ...], Margins]:
    """Return the points of the process and what was answered about it."""
    rows = np.concatenate([found.winners, found.losers])
    # The distinct objects that were compared, padded by copies of the first.
    objects, place = np.unique(X[rows], axis=0, return_inverse=True)
    objects = np.concatenate([objects, np.repeat(objects[:1], padded_size(len(objects), 4) - len(objects), axis=0)])
    winners, losers = np.split(place.ravel().astype(np.int32), 2)
    padding = padded_size(len(winners), 3 if kind == "utility" else 4) - len(winners)
    weights = np.pad(found.weights, (0, padding))
    if kind == "utility":
        first, second = (np.pad(rows, (0, padding)) for rows in (winners, losers))
        return (objects,), Margins(weights, first, second)  # type: ignore[arg-type]
    left, right = (np.pad(rows, (0, padding), mode="edge") for rows in (winners, losers))
    return (objects, left, right), Margins(_ANSWERS[kind] * weights)  # type: ignore[arg-type]
