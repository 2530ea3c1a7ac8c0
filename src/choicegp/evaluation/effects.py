"""What each feature does to each utility: partial dependence, its size and its direction.

The effect of a feature at a value is the utility averaged over objects as that feature alone is set to the
value, relative to its average over the feature's own values. An average is linear in the utilities, so its
posterior is Gaussian too, and the band around an effect is exact. Where the posterior consists of draws, the band is
between their quantiles: draws differ in the scale of a utility, which no choice tells well, and a few large ones would
carry a symmetric band across zero although all draws agree about the direction.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from choicegp.checks import brief, counted, plain, seed, whole_number
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.averages import FEW_VALUES, N_GRID, Averages, GroupAverages, posterior_averages
from choicegp.reading.encoding import FeatureColumn, FeatureEncoding

if TYPE_CHECKING:
    import pandas as pd

Direction = Literal["rises", "falls", "non-monotone", "categorical", "unclear"]

_FINE_GRID = 192  # of an only feature, for which nothing has to be averaged
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
        Posterior mean of the effect at each value and its 95% band, per utility; of draws, their quantiles.
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

    def __repr__(self) -> str:
        return brief(self)


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
    shares : Relevance
        Relevance of each feature as a share of the sum over features, draw by draw.
    """

    features: tuple[FeatureEffect, ...]
    relevance: Relevance
    direction: NDArray[np.str_]
    best: NDArray[np.object_]
    shares: Relevance

    def __repr__(self) -> str:
        n_utilities, n_features = self.direction.shape
        utilities = counted(n_utilities, "utility", many="utilities")
        return f"Effects({counted(n_features, 'feature')} on {utilities})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(feature.name for feature in self.features)

    def frame(self) -> "pd.DataFrame":
        """Return one row for each utility (from 1), feature and value, with the effect and its 95% band."""
        import pandas as pd

        parts = [
            pd.DataFrame({
                "utility": i + 1, "feature": one.name, "value": pd.Series(one.grid, dtype=object),
                "effect": one.mean[:, i], "lower": one.low[:, i], "upper": one.high[:, i],
            })
            for i in range(len(self.direction)) for one in self.features
        ]  # fmt: skip
        return pd.concat(parts, ignore_index=True)


class _Found(NamedTuple):
    """What is found out about one feature, per utility."""

    effect: FeatureEffect
    sizes: NDArray[np.float64]  # (d, n) in samples
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
        (d, g, g) of the utilities averaged over each group, or `Averages` as :func:`posterior_averages` does.
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
        found.append(_one_effect(column, values, Averages(*averages(groups)), rng))
    sizes = np.array([one.sizes for one in found])
    return Effects(
        tuple(one.effect for one in found),
        _interval(sizes),
        np.array([one.directions for one in found]).T,
        np.array([one.best for one in found], dtype=object).T,
        _interval(sizes / np.maximum(sizes.sum(axis=0), 1e-300)),
    )


def _interval(samples: NDArray[np.float64]) -> Relevance:
    low, high = np.quantile(samples, [0.025, 0.975], axis=2)
    return Relevance(samples.mean(axis=2).T, low.T, high.T)


def column_places(encoding: FeatureEncoding) -> Iterator[tuple[FeatureColumn, slice]]:
    """Yield each column of the objects' table and where its features are among the encoded ones."""
    start = 0
    for column in encoding.columns:
        stop = start + len(column.feature_names)
        yield column, slice(start, stop)
        start = stop


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
    if len(grid) > FEW_VALUES:  # fewer are looked at exactly
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


def _one_effect(column: FeatureColumn, values: _Values, averages: Averages, rng: np.random.Generator) -> _Found:
    """Turn the average utilities at the values of a feature into its effect."""
    rounding = 1e-9 * (np.abs(averages.mean).max() + np.sqrt(np.abs(averages.covariance).max()))
    centred = _centred(averages, values.weights)
    samples = _samples(centred, rng)
    if centred.draws is None:
        spread = _Z95 * np.sqrt(np.maximum(np.diagonal(centred.covariance, axis1=1, axis2=2), 0.0))
        low, high = centred.mean - spread, centred.mean + spread
    else:
        low, high = np.quantile(samples, [0.025, 0.975], axis=2)
    mean = centred.mean
    effect = FeatureEffect(column.name, column.kind, values.grid, mean.T, low.T, high.T, values.of_objects)
    return _Found(
        effect,
        _sizes(samples, values.weights),
        [_direction(effect, i, values.weights, rounding) for i in range(len(mean))],
        [plain(values.grid[i]) for i in mean.argmax(axis=1)],
    )


def _centred(averages: Averages, weights: NDArray[np.float64]) -> Averages:
    """Take averages relative to their mean over the objects."""
    centring = np.eye(weights.shape[1]) - weights.mean(axis=0)
    mean, covariance, draws = averages
    draws = None if draws is None else draws @ centring.T
    return Averages(mean @ centring.T, centring @ covariance @ centring.T, draws)


def _samples(averages: Averages, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw joint samples (d, g, n): as many as there are draws, each with what is unknown given it."""
    mean, covariance, draws = averages
    values, vectors = np.linalg.eigh(covariance)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    around = mean[:, :, None] if draws is None else np.moveaxis(draws, 0, 2)
    n = _SAMPLES if draws is None else len(draws)
    return around + roots @ rng.standard_normal((*mean.shape, n))


def _sizes(samples: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation (d, n) of an effect over the objects, in every sample."""
    overlap = weights.T @ weights / len(weights)
    return np.sqrt(np.maximum(np.einsum("dgs,gh,dhs->ds", samples, overlap, samples, optimize=True), 0.0))


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
