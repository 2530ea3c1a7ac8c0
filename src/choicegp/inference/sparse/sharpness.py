"""How sure a sparse fit may be: judged on sets that are held out.

A few inducing points stand for all objects, and what they leave open counts as doubt about each object by itself, also
where the choices as a whole are far surer; a process of a network's outputs may be too sure or not sure enough.  The
steps of a fit cannot see this, for they look at the bound and at the sets that they learn from.  Held-out sets can.
Two numbers, the size s of all utilities in units of the errors and a factor r of their standard deviations, turn the
posterior N(m, S) of any utilities into N(s m, s² r² S); they are those with which the held-out choices are most
probable.  What is maximised is what predictions are: the mean over the posterior of the likelihood, divided by its sum
over all subsets of a set.

With q = s r this is the posterior of a prior q² K: its dual is s / q² times the former, and the gain, what the choices
take off the prior covariance, 1 / q² times.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import present_device, program
from choicegp.compute.progress import Clock
from choicegp.inference.expectation import Marginals, samples
from choicegp.inference.posterior import Draws, Posterior
from choicegp.inference.sparse.feed import Sets
from choicegp.model.error_models import ErrorModel
from choicegp.model.kernels import Kernel, Product, Sum
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.model.mapped import Mapped
from choicegp.model.prior import UtilityPrior
from choicegp.model.warped import Warped

_NUMBERS = 2.0**24  # subsets, sets and points of one judgement on a CPU: about half a second
_MORE = 16.0  # times as many on an accelerator
_IN_CACHE = 32_768  # subsets and sets worked on at a time on a CPU
_AT_ONCE = 1_000_000  # the same on an accelerator
N_POINTS = 64
_LOOKS = 30  # judgements at most
_FIRST_MOVE, _NEAR = 0.3, 0.02  # of the logarithms of size and spread
_WIDEST = 2.0  # logarithms of size and spread stay within
_LOWEST = -1e6


class Sharpness(NamedTuple):
    """Factors of the utilities, and of their standard deviations beside that."""

    size: float = 1.0
    spread: float = 1.0

    @property
    def in_words(self) -> str:
        """What a note says."""
        return f"held-out sets: utilities times {self.size:.2f}, their standard deviations times {self.spread:.2f} more"


class Held(NamedTuple):
    """Held-out sets of one size as a posterior sees them.

    Attributes
    ----------
    marginal : Marginals
        Of the utilities' differences to the first object of each set.
    sets : Sets
    normals : array (d, a - 1, m, S)
    """

    marginal: Marginals
    sets: Sets
    normals: np.ndarray


def can_be_judged(sizes: np.ndarray) -> bool:
    """Say whether all subsets of sets of these sizes are summed over, as predictions do."""
    return bool(np.all(sizes <= MAX_ENUMERATED))


def learned_sharpness(
    held: Sequence[Held],
    errors: ErrorModel,
    lapse: Any,
    clock: Clock = Clock(None),  # noqa: B008 - immutable
) -> Sharpness | None:
    """Return the factors with which the held-out choices are most probable, as far as there is time to look.

    None without time for any look, or where the choices are impossible as it is.
    """
    from scipy.optimize import minimize

    work = sum(2.0 ** len(one.sets.present) * one.normals.shape[2] * N_POINTS for one in held)
    every = max(1, round(work / (_NUMBERS * (1.0 if _on_cpu() else _MORE))))
    pieces = [piece for one in held for piece in _pieces(one, every)]

    def loss(logs: np.ndarray) -> float:
        if clock.is_up:
            return np.inf
        total = sum(float(piece.sets.weight @ _scores(piece, logs, errors, lapse)) for piece in pieces)
        return 0.5 * float(logs @ logs) - total if np.max(np.abs(logs)) <= _WIDEST else np.inf

    if not np.isfinite(loss(np.zeros(2))):
        return None
    first = np.array([[0.0, 0.0], [_FIRST_MOVE, 0.0], [0.0, -_FIRST_MOVE]])
    options: Any = {"maxfev": _LOOKS, "initial_simplex": first, "xatol": _NEAR, "fatol": 0.1}
    found = minimize(loss, first[0], method="Nelder-Mead", options=options)
    return Sharpness(*np.exp(found.x).tolist()) if np.isfinite(found.fun) else None


def predictive_scores(held: Sequence[Held], sharpness: Sharpness, errors: ErrorModel, lapse: Any) -> np.ndarray:
    """Return the log probability of the choice from each held-out set; what fills up chunks is left out."""
    logs, found = np.log(np.array(sharpness)), [np.zeros(0)]
    for one in held:
        found += [_scores(piece, logs, errors, lapse)[piece.sets.weight > 0] for piece in _pieces(one)]
    return np.concatenate(found)


def _scores(piece: Held, logs: np.ndarray, errors: ErrorModel, lapse: Any) -> np.ndarray:
    dtype = piece.normals.dtype
    rate = None if lapse is None else np.asarray(lapse, dtype)
    return np.asarray(_log_probabilities(piece, np.asarray(logs, dtype), rate, errors), float)


def _on_cpu() -> bool:
    return present_device().platform == "cpu"


def _pieces(held: Held, every: int = 1) -> list[Held]:
    """Cut some of the sets into pieces of one width, hence one program; what fills up the last one has no weight."""
    taken = np.arange(0, held.normals.shape[2], every)
    width = min(len(taken), max(1, (_IN_CACHE if _on_cpu() else _AT_ONCE) >> len(held.sets.present)))
    X, present, chosen, weight = held.sets
    found = []
    for start in range(0, len(taken), width):
        numbers = np.arange(start, start + width)
        places = taken[np.minimum(numbers, len(taken) - 1)]
        counted = np.where(numbers < len(taken), weight[places], 0.0)
        marginal = jax.tree.map(lambda part, some=places: jnp.asarray(np.asarray(part)[..., some]), held.marginal)
        sets = Sets(X[:0, :0], present[:, places], chosen[:, places], counted)
        found.append(Held(marginal, sets, jnp.asarray(held.normals[:, :, places])))  # type: ignore[arg-type]
    return found


@program
def _log_probabilities(held: Held, logs: Array, lapse: Array | None, errors: ErrorModel) -> Array:
    """Return the log of the mean normalised probability of each set's choice (m,)."""
    size, spread = jnp.exp(logs[0]), jnp.exp(logs[1])
    marginal = Marginals(size * held.marginal.mean, size * spread * held.marginal.root)
    present, chosen = jnp.asarray(held.sets.present), jnp.asarray(held.sets.chosen)
    a, m = present.shape
    subset = jnp.sum(jnp.where(chosen & present, 1 << jnp.arange(a)[:, None], 0), axis=0)

    def add(total: Array, normals: Array) -> tuple[Array, None]:
        u = jnp.where(
            present, samples(marginal, normals[..., None])[..., 0], _LOWEST
        )  # absent objects are beaten by all
        table = errors.answers(u)
        return total + table[subset, jnp.arange(m)] / jnp.sum(table, axis=0), None

    total, _ = jax.lax.scan(add, jnp.zeros(m, held.normals.dtype), jnp.moveaxis(jnp.asarray(held.normals), -1, 0))
    found = total / N_POINTS
    if lapse is not None:
        found = (1.0 - lapse) * found + lapse / (2.0 ** jnp.sum(present, axis=0) - 1.0)
    return jnp.log(jnp.maximum(found, jnp.finfo(found.dtype).tiny))


def sharpened(posterior: Posterior, sharpness: Sharpness) -> Posterior:
    """Return the posterior whose utilities have these factors."""
    s, r = sharpness
    q2 = (s * r) ** 2
    draws = posterior.draws
    if draws is not None:
        centre = np.mean(draws.dual, axis=(0, 1))
        dual = (s * centre + s * r * (draws.dual - centre)) / q2
        draws = Draws(_amplified(draws.prior, q2), dual, draws.inverse / q2)
    return Posterior(
        _amplified(posterior.prior, q2), posterior.objects, s * posterior.mean, s / q2 * posterior.dual,
        posterior.gain / q2, posterior.lapse, draws,
    )  # fmt: skip


def _amplified(prior: UtilityPrior, factor: float) -> UtilityPrior:
    """Multiply all covariances of a prior."""

    def more(log_variance: Any) -> Any:
        return None if log_variance is None else np.asarray(log_variance) + np.log(factor)

    effect, threshold = more(prior.log_effect_variance), more(prior.log_threshold_variance)
    return UtilityPrior(_louder(prior.kernels, factor), effect, prior.shared, threshold)


def _louder(kernel: Kernel, factor: float) -> Kernel:
    """Multiply the covariances of a kernel."""
    if isinstance(kernel, Sum):
        return Sum(_louder(kernel.first, factor), _louder(kernel.second, factor))
    if isinstance(kernel, Product):
        return Product(_louder(kernel.first, factor), kernel.second)
    if isinstance(kernel, Warped | Mapped):
        return eqx.tree_at(lambda one: one.kernel, kernel, _louder(kernel.kernel, factor))
    simple: Any = kernel
    return eqx.tree_at(lambda one: one.log_variance, simple, np.asarray(simple.log_variance) + np.log(factor))


def can_be_sharpened(kernel: Kernel) -> bool:
    """Say whether it is known how to multiply a kernel's covariances; of a kernel of one's own it is not."""
    if isinstance(kernel, Sum):
        return can_be_sharpened(kernel.first) and can_be_sharpened(kernel.second)
    if isinstance(kernel, Product):
        return can_be_sharpened(kernel.first)
    if isinstance(kernel, Warped | Mapped):
        return can_be_sharpened(kernel.kernel)
    return type(kernel).__module__.startswith("choicegp.") and hasattr(kernel, "log_variance")
