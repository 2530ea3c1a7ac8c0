"""What a sparse fit is given (its plan, the kernels it starts from, its inducing points) and knows on its way."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np

from choicegp.inference.sparse.feed import Source
from choicegp.inference.sparse.network import TrainedNetwork
from choicegp.inference.sparse.step import SparseSettings, SparseState
from choicegp.inference.sparse.stopping import LastGain
from choicegp.inference.starts import FIRST_VARIANCE, rescaled
from choicegp.model.kernels import RBF, Kernel, Linear
from choicegp.model.mapped import Mapped
from choicegp.model.prior import UtilityPrior, kernel_named
from choicegp.model.warped import Warped
from choicegp.model.waves import Additive

_LEAST_HELD_OUT = 1000  # sets from which on some are held out
_MOST_HELD_OUT = 2048
_WAVES = (1.0, 0.3, 0.1, 0.05)  # first lengthscales of waves in single features, in standard deviations
_SCALES = (1.0, 0.5, 0.25)  # of a user's own kernel's lengthscales
_FAINT = 0.01  # part of the first variance that waves have at the smooth start
_MODULATION = 3.0  # lengthscale over which the size of waves varies, times that of the smooth part
_BENDS = 2.0  # lengthscale of what a network's outputs, of unit size, leave over
_BESIDE = 0.01  # first variance of the other utilities' outputs, as a part of their own size
_FAINTEST = -6.0  # first log variance of a trend in the plain features
_FIRST_WARP = 0.1  # weights of the logarithms in the features' scales: near the ends they are felt, elsewhere hardly


class KernelStart(NamedTuple):
    """A kernel to start from, what it is called, and what says what the utilities are at first, if anything does.

    ``utilities`` is a function of the inducing points (p, M, c), and returns each utility at the points of its own
    part, (d, M).
    """

    name: str
    prior: UtilityPrior
    utilities: Callable[[np.ndarray], np.ndarray] | None = None


def kernel_starts(
    kernel: Kernel | None, objects: np.ndarray, n_utilities: int, *, learn: bool, shared: bool = False
) -> tuple[KernelStart, ...]:
    """Return the kernels that are tried: a user's own in several scales, or smooth ones with waves.

    The sum of a smooth kernel and of waves in single features, whose size varies smoothly with all of them, finds fast
    waves that a smooth kernel alone takes for noise, and products such as f(x1) g(x2), which a plain additive kernel
    cannot express; learned scales of the features follow what changes fast near the ends of their ranges.
    """
    n_features = objects.shape[1]
    if not learn:
        own = kernel_named("rbf") if kernel is None else kernel
        return (KernelStart("the given kernel", UtilityPrior.create(own, n_features, n_utilities, shared=shared)),)
    far = float(np.sqrt(n_features))  # distances grow with the number of features
    if kernel is not None:
        prior = rescaled(UtilityPrior.create(kernel, n_features, n_utilities, shared=shared), far, FIRST_VARIANCE)
        return tuple(KernelStart(f"lengthscales times {scale:g}", rescaled(prior, scale, 1.0)) for scale in _SCALES)

    ends = np.stack([objects.min(axis=0), objects.max(axis=0)])

    def with_waves(lengthscale: float, part: float) -> UtilityPrior:
        waves = Additive(lengthscale, part * FIRST_VARIANCE)
        kernel = waves * RBF(_MODULATION * far) + RBF(far, FIRST_VARIANCE)
        return UtilityPrior.create(Warped(kernel, _FIRST_WARP, ends), n_features, n_utilities, shared=shared)

    smooth = KernelStart("smooth", with_waves(_WAVES[0], _FAINT))
    waves = (KernelStart(f"waves of lengthscale {scale:g}", with_waves(scale, 1.0)) for scale in _WAVES)
    return (smooth, *waves)


def network_start(trained: TrainedNetwork, n_features: int, *, shared: bool = False) -> KernelStart:
    """Return the kernel of a network's outputs: each utility follows its own output, and bends with all of them."""
    d = len(trained.sizes)
    lengthscales = np.append(np.full(n_features, np.sqrt(n_features)), np.full(d, _BENDS))
    kernel = Mapped(RBF(lengthscales, FIRST_VARIANCE) + Linear(), trained.network)
    prior = UtilityPrior.create(kernel, n_features, d, shared=shared)
    p = prior.n_parts
    linear = np.full((p, n_features + d), _FAINTEST)
    linear[:, n_features:] = 2.0 * np.log(trained.sizes) + np.log(_BESIDE)
    linear[np.arange(p - d, p), np.arange(n_features, n_features + d)] = 2.0 * np.log(trained.sizes)
    prior = eqx.tree_at(lambda prior: prior.kernels.kernel.second.log_variance, prior, linear)
    return KernelStart("a network", prior, trained.first_utilities)


class SparseCourse(NamedTuple):
    """What is known so far."""

    trial: int  # number of the start that is tried; the number of starts once the best of them continues
    step: int  # steps made from the present start
    state: SparseState
    best: SparseState  # the best start, and later the best state, by score
    best_score: float
    best_trial: int
    best_step: int
    scores: np.ndarray  # of the checks since the best start continued
    progress: LastGain  # of the best start, and since it continued
    # Step after which the steps become smaller whatever is gained, and in how many; (-1, 0) before that is known
    cooling: tuple[int, int]
    ridge: float  # see `Pace`
    bounds: np.ndarray  # of the steps of the start that continues
    broken: bool = False  # whether the last block found no finite step; ``state`` is then the last good one


class Plan(NamedTuple):
    """How to fit."""

    n_inducing: int
    batch_size: int
    max_iter: int
    # Nothing is gained any more when the score rises by less than this part of itself and than its standard error (with
    # all sets in every step, the bound by a hundredth of that part).
    tol: float
    settings: SparseSettings
    lapse: float | None
    dtype: type
    seed: int


def held_out_and_training(source: Source, batch_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide the sets that say something; few sets, or sets that are all in each step, are all for training."""
    sets = np.flatnonzero(source.sizes > 1)
    many = len(sets) >= _LEAST_HELD_OUT and len(sets) > batch_size
    n = min(_MOST_HELD_OUT, len(sets) // 20) if many else 0
    mixed = np.random.default_rng([seed, 1]).permutation(len(sets))
    return np.sort(sets[mixed[:n]]), np.sort(sets[mixed[n:]])


def inducing_points(
    objects: np.ndarray, n_parts: int, n_inducing: int, seed: int, *, threshold: bool = False
) -> np.ndarray:
    """Choose well spread objects, others for each part, (p, M, c); all of them where they are few.

    With a threshold, the last of the points stands for it, and its features say nothing.
    """
    distinct = np.unique(objects, axis=0)
    n = min(max(1, n_inducing - threshold), len(distinct))
    rngs = (np.random.default_rng([seed, 7, i]) for i in range(n_parts))
    points = np.stack([distinct if n == len(distinct) else distinct[far_apart(distinct, n, rng)] for rng in rngs])
    return np.concatenate([points, points[:, :1]], axis=1) if threshold else points


def far_apart(objects: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows by k-means++: each with probability in proportion to its squared distance from those drawn before."""
    rows = np.empty(n, int)
    rows[0] = rng.integers(len(objects))
    nearest = np.full(len(objects), np.inf)
    for i in range(1, n):
        nearest = np.minimum(nearest, np.sum((objects - objects[rows[i - 1]]) ** 2, axis=1))
        total = np.cumsum(nearest)
        rows[i] = min(np.searchsorted(total, rng.random() * total[-1], side="right"), len(objects) - 1)
    return rows
