"""What each feature does to each utility: partial dependence, its size and its direction.

The effect of a feature at a value is the utility averaged over objects as that feature alone is set to the
value, relative to its average over the feature's own values. An average is linear in the utilities, so its
posterior is Gaussian too, and the band around an effect is exact; where the posterior is one of draws, the band has
their mean and variance.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choicegp.checks import plain, seed, whole_number
from choicegp.compute.programs import program
from choicegp.errors import ChoiceGPError
from choicegp.inference.posterior import Draws, Posterior
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.reading.encoding import FeatureColumn, FeatureEncoding

Direction = Literal["rises", "falls", "non-monotone", "categorical", "unclear"]
# Encoded objects in groups (g, b, c) -> mean (d, g) and covariance (d, g, g) of each group's average utility.
GroupAverages = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]

N_GRID = 48
_FINE_GRID = 192  # of an only feature, for which nothing has to be averaged
_FEW_VALUES = 12  # a feature with at most this number of different values is looked at exactly there
_MOST_OBJECTS = 2000  # by which the values of a feature are weighted
_MOST_TOGETHER = 3000  # objects whose joint covariance is averaged
_Z95 = 1.959963984540054
_MONOTONE = 0.8  # rank correlation from which a feature is said to raise or lower a utility
_SAMPLES = 1000


class FeatureEffect(NamedTuple):
    """The effect of one feature on every utility.

    Attributes
    ----------
    name : str
    kind : {"numeric", "categorical"}
    grid : array (g,)
        Values of the feature, or its categories.
    mean, low, high : float array (g, d)
        Posterior mean of the effect at each value and its 95% band, per utility.
    values : array (n,)
        The feature of the objects themselves.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    grid: NDArray[Any]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    values: NDArray[Any]


class Relevance(NamedTuple):
    """Standard deviation over the objects of each feature's effect: posterior mean and 95% interval.

    It is in the units of the utilities (the error of a comparison has standard deviation 1), so that kernels,
    features and utilities can be compared. Being a size it is above 0 also where nothing was learned: there
    the interval begins near 0.

    Attributes
    ----------
    mean, low, high : float array (d, n_features)
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Effects(NamedTuple):
    """What each feature does to each utility.

    Attributes
    ----------
    features : tuple of FeatureEffect
    relevance : Relevance
    direction : str array (d, n_features)
        "rises" or "falls" where the utility does so with the feature (rank correlation of feature and mean
        effect over the objects beyond 0.8), "non-monotone", "categorical" for categories, and "unclear" where
        the band holds 0 at every value.
    best : object array (d, n_features)
        The value or category at which the mean effect is highest.
    """

    features: tuple[FeatureEffect, ...]
    relevance: Relevance
    direction: NDArray[np.str_]
    best: NDArray[np.object_]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(feature.name for feature in self.features)


class _Found(NamedTuple):
    """What is found out about one feature, per utility."""

    effect: FeatureEffect
    sizes: NDArray[np.float64]  # (3, d)
    directions: list[Direction]
    best: list[Any]


class _Values(NamedTuple):
    """Values at which a feature's effect is asked for, and how objects lie between them."""

    grid: NDArray[Any]  # (g,)
    encoded: NDArray[np.float64]  # (g, k)
    of_objects: NDArray[Any]  # (n,)
    weights: NDArray[np.float64]  # (n, g), rows sum to 1: an object's effect is interpolated


def model_effects(model: Any, *, n_background: int = 30, random_state: int | None = 0) -> Effects:
    """Return the effects of a fitted model's features, over the objects it was trained on.

    Parameters
    ----------
    model : ChoiceGP
    n_background, random_state : int
        As in :func:`feature_effects`.

    Examples
    --------
    >>> from choicegp import ChoiceGP, datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> model = ChoiceGP(n_utilities=2, intervals="none", n_restarts=1, max_iter=40).fit(data)
    >>> model_effects(model).relevance.mean.shape
    (2, 1)
    """
    if hasattr(model, "encoding_") and not hasattr(model, "posterior_"):
        raise ChoiceGPError(
            f"{type(model).__name__} has no posterior of utilities, from which effects of features are computed: "
            "pass a ChoiceGP or a BatchPreferenceGP"
        )
    if not hasattr(model, "posterior_"):
        raise ChoiceGPError("the model is not fitted yet: call fit(data) first")
    shown = model.data_.X[np.unique(model.data_.flat_shown)]
    averages = posterior_averages(model.posterior_, model.centre_, model.scale_)
    return feature_effects(averages, shown, model.encoding_, n_background=n_background, random_state=random_state)


def feature_effects(
    averages: GroupAverages,
    X: NDArray[np.float64],
    encoding: FeatureEncoding,
    *,
    n_background: int = 30,
    random_state: int | None = 0,
) -> Effects:
    """Return the effects of all features.

    Parameters
    ----------
    averages : callable
        Takes encoded objects in groups (g, b, c) and returns the posterior mean (d, g) and covariance
        (d, g, g) of the utilities averaged over each group, as :func:`posterior_averages` does.
    X : float array (n, c)
        Encoded objects.
    encoding : FeatureEncoding
    n_background : int
        The other features are averaged over this many of the objects, drawn at random.
    random_state : int
    """
    n_background = whole_number("n_background", n_background, 1)
    rng = np.random.default_rng(seed(random_state))
    X = np.asarray(X, dtype=np.float64)
    X = X[np.sort(rng.permutation(len(X))[:_MOST_OBJECTS])]
    shuffled = rng.permutation(len(X))
    alone = len(encoding.columns) == 1
    found = []
    for column, place in column_places(encoding):
        values = _values_of(column, X[:, place], _FINE_GRID if alone else N_GRID)
        # Fewer for a feature of very many categories: the groups are looked at together.
        n_averaged = 1 if alone else max(1, min(n_background, _MOST_TOGETHER // len(values.grid)))
        background = X[shuffled[:n_averaged]]
        groups = np.repeat(background[None], len(values.grid), axis=0)
        groups[:, :, place] = values.encoded[:, None, :]
        found.append(_one_effect(column, values, *averages(groups), rng))
    low, middle, high = np.moveaxis(np.array([one.sizes for one in found]), (1, 2, 0), (0, 1, 2))
    return Effects(
        tuple(one.effect for one in found),
        Relevance(middle, low, high),
        np.array([one.directions for one in found]).T,
        np.array([one.best for one in found], dtype=object).T,
    )


def posterior_averages(posterior: Posterior, centre: NDArray[np.float64], scale: NDArray[np.float64]) -> GroupAverages:
    """Return the function that gives the posterior of averages of utilities over groups of objects.

    Parameters
    ----------
    posterior : Posterior
    centre, scale : float array (c,)
        How encoded features were scaled before the fit.
    """

    def averages(X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        n_groups = len(X)
        # Few different shapes: each is compiled once.
        padded = np.concatenate([X, np.repeat(X[-1:], -n_groups % N_GRID, axis=0)])
        with jax.enable_x64(True):
            mean, covariance = _average_moments(posterior, (padded - centre) / scale)
        return np.asarray(mean)[:, :n_groups], np.asarray(covariance)[:, :n_groups, :n_groups]

    return averages


def column_places(encoding: FeatureEncoding) -> Iterator[tuple[FeatureColumn, slice]]:
    """Yield each column of the objects' table and where its features are among the encoded ones."""
    start = 0
    for column in encoding.columns:
        stop = start + len(column.feature_names)
        yield column, slice(start, stop)
        start = stop


@program
def _average_moments(posterior: Posterior, X: Array) -> tuple[Array, Array]:
    g, b, c = X.shape
    # Codes that no known object has, the same in every group: object effects are common to all groups and
    # drop out of effects, which are differences.
    objects = Objects(X.reshape(g * b, c), jnp.tile(-1 - jnp.arange(b), g))

    def averaged(prior: UtilityPrior, gain: Array) -> tuple[Array, Array]:
        cross = prior.covariance(posterior.objects, objects)
        cross = cross.reshape(*cross.shape[:2], g, b).mean(axis=3)
        own = prior.covariance(objects, objects).reshape(-1, g, b, g, b).mean(axis=(2, 4))
        return cross, own - jnp.swapaxes(cross, 1, 2) @ (gain @ cross)

    if posterior.draws is None:
        cross, left = averaged(posterior.prior, posterior.gain)
        return jnp.einsum("dtg,dt->dg", cross, posterior.dual), left

    def of_setting(draws: Draws) -> tuple[Array, Array]:
        cross, left = averaged(draws.prior, draws.inverse)
        drawn = jax.vmap(draws.prior.total)(jnp.einsum("ptg,spt->spg", cross, draws.dual))
        square = jnp.einsum("sdg,sdh->dgh", drawn, drawn) / len(drawn)
        return jnp.mean(drawn, axis=0), draws.prior.total(left) + square

    mean, square = (jnp.mean(part, axis=0) for part in jax.lax.map(of_setting, posterior.draws))
    return mean, square - mean[:, :, None] * mean[:, None, :]


def _values_of(column: FeatureColumn, part: NDArray[np.float64], n_grid: int) -> _Values:
    if column.kind == "categorical":
        k = len(column.categories)
        codes = part[:, 0].astype(int) if k == 2 else part.argmax(axis=1)
        encoded = np.eye(k)[:, 1:] if k == 2 else np.eye(k)
        categories = np.empty(k, dtype=object)
        categories[:] = column.categories
        return _Values(categories, encoded, categories[codes], np.eye(k)[codes])
    x = part[:, 0]
    grid = np.unique(x)
    if len(grid) > _FEW_VALUES:
        grid = np.linspace(grid[0], grid[-1], n_grid)
    encoded = np.zeros((len(grid), part.shape[1]))  # a second feature marks missing numbers: these here are known
    encoded[:, 0] = grid
    return _Values(grid, encoded, x, _interpolation(x, grid))


def _interpolation(x: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (n, g) that interpolate linearly between the values of the grid."""
    weights = np.zeros((len(x), len(grid)))
    rows = np.arange(len(x))
    if len(grid) == 1:
        weights[:, 0] = 1.0
        return weights
    left = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
    share = (x - grid[left]) / (grid[left + 1] - grid[left])
    weights[rows, left], weights[rows, left + 1] = 1.0 - share, share
    return weights


def _one_effect(
    column: FeatureColumn,
    values: _Values,
    level: NDArray[np.float64],
    together: NDArray[np.float64],
    rng: np.random.Generator,
) -> _Found:
    """Turn mean (d, g) and covariance (d, g, g) of average utilities into the effect of a feature."""
    rounding = 1e-9 * (np.abs(level).max() + np.sqrt(np.abs(together).max()))
    mean, covariance = _centred(level, together, values.weights)
    spread = _Z95 * np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0))
    low, high = (mean - spread).T, (mean + spread).T
    effect = FeatureEffect(column.name, column.kind, values.grid, mean.T, low, high, values.of_objects)
    return _Found(
        effect,
        _sizes(mean, covariance, values.weights, rng),
        [_direction(effect, i, values.weights, rounding) for i in range(len(mean))],
        [plain(values.grid[i]) for i in mean.argmax(axis=1)],
    )


def _centred(
    mean: NDArray[np.float64], covariance: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Moments relative to the average over the objects."""
    centring = np.eye(weights.shape[1]) - weights.mean(axis=0)
    return mean @ centring.T, centring @ covariance @ centring.T


def _sizes(
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
    weights: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Low end, mean and high end (3, d) of the standard deviation of an effect over the objects."""
    overlap = weights.T @ weights / len(weights)
    values, vectors = np.linalg.eigh(covariance)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    draws = rng.standard_normal((len(mean), mean.shape[1], _SAMPLES))
    samples = mean[:, :, None] + roots @ draws
    sizes = np.sqrt(np.maximum(np.einsum("dgs,gh,dhs->ds", samples, overlap, samples, optimize=True), 0.0))
    low, high = np.quantile(sizes, [0.025, 0.975], axis=1)
    return np.array([low, sizes.mean(axis=1), high])


def _direction(effect: FeatureEffect, utility: int, weights: NDArray[np.float64], rounding: float) -> Direction:
    low, mean, high = effect.low[:, utility], effect.mean[:, utility], effect.high[:, utility]
    if np.all((low <= rounding) & (high >= -rounding)):
        return "unclear"
    if effect.kind == "categorical":
        return "categorical"
    from scipy.stats import spearmanr

    correlation = spearmanr(effect.values, weights @ mean).statistic
    if abs(correlation) < _MONOTONE:
        return "non-monotone"
    return "rises" if correlation > 0 else "falls"
