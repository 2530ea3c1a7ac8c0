"""Plots of a fitted model: utilities, effects of features, objects, relevance, and how the fit went."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed
from choicegp.data.choices import ChoiceData
from choicegp.data.pareto import undominated
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.effects import Effects, FeatureEffect, model_effects
from choicegp.fitting.record import encoded_features
from choicegp.plotting.drawing import (
    draw_effect,
    draw_front,
    draw_ranking,
    near_the_front,
    new_panels,
    own_scales,
    short,
    utility_keys,
    utility_label,
    utility_style,
    wrapped,
)
from choicegp.plotting.names import object_names
from choicegp.plotting.style import BESIDE, COLOURS, UNIT, new_axes
from choicegp.reading.encoding import FeatureColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from choicegp.estimators.choice_gp import ChoiceGP

MOST_OBJECTS = 5000
MOST_PANELS = 12
_MOST_RANKED = 30
_N_GRID = 200
_INTERVAL = {"elinewidth": 1.0, "capsize": 2.0, "ecolor": "0.25"}
_Z95 = 1.959963984540054


def plot_utilities(model: "ChoiceGP", feature: str | None = None, *, ax: "Axes | None" = None) -> "Axes":
    """Draw every utility along one feature: posterior mean and 95% band, with a tick at each object shown.

    Parameters
    ----------
    model : ChoiceGP
        Fitted.
    feature : str, optional
        Which feature, when there are several: the others stay at their median (most common category).
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> plots.plot_utilities(model).get_xlabel()
    'x0'
    """
    _check_fitted(model)
    name = _feature(model, feature)
    table = _shown_objects(model)
    column = next(column for column in model.encoding_.columns if column.name == name)
    grid = _along(column, table[name])
    others = {other: [_typical(values)] * len(grid) for other, values in table.items()}
    # Encoded, because the rows of a table would be taken for objects with ids.
    found = model.utilities(model.encoding_.encode(pd.DataFrame(others | {name: list(grid)})))
    mean, margin = found.mean, _Z95 * found.sd
    low = mean - margin if found.lower is None else found.lower
    high = mean + margin if found.upper is None else found.upper
    ax = ax or new_axes(7.0, 4.0)
    draw_effect(ax, FeatureEffect(name, column.kind, grid, mean, low, high, table[name].to_numpy()))
    ax.set_ylabel(f"utility, relative to the shown objects' mean,\n{UNIT}", fontsize=9)
    rest = "\n(other features at their median or most common value)" if len(others) > 1 else ""
    ax.set_title(f"Utilities, with 95% intervals{rest}", fontsize=11)
    ax.legend(handles=utility_keys(mean.shape[1], {column.kind}), **BESIDE)
    return ax


def plot_effects(
    model: "ChoiceGP", features: Sequence[str] | None = None, *, effects: Effects | None = None, axes: Any = None
) -> NDArray[Any]:
    """Draw what each feature does to each utility, one panel per feature, with 95% bands.

    The effect of a feature at a value is the utility averaged over the training objects as that feature alone
    is set to the value, relative to its average. Two utilities of which one is much larger have a vertical scale each,
    the second on the right.

    Parameters
    ----------
    model : ChoiceGP
        Fitted.
    features : sequence of str, optional
        Which features, in which order; by default all, or the 12 most relevant.
    effects : Effects, optional
        From :func:`~choicegp.evaluation.effects.model_effects`, when it has been computed already.
    axes : sequence of Axes, optional
        One per feature.

    Returns
    -------
    array of Axes (n_features,)

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> [ax.get_xlabel() for ax in plots.plot_effects(model)]
    ['x0']
    """
    _check_fitted(model)
    effects = model_effects(model) if effects is None else effects
    chosen = _chosen_features(effects, features)
    n_utilities = len(effects.relevance.mean)
    if axes is None:
        panels = new_panels(len(chosen))
    else:
        panels = np.asarray(axes, dtype=object).ravel()
        if len(panels) != len(chosen):
            raise ChoiceGPError(f"there are {len(chosen)} features to draw but {len(panels)} axes")
    seconds = own_scales(panels, chosen, effects.features) if axes is None else None
    for k, (ax, effect) in enumerate(zip(panels, chosen, strict=True)):
        draw_effect(ax, effect, None if seconds is None else seconds[k])
        ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    keys = utility_keys(n_utilities, {effect.kind for effect in chosen})
    if axes is not None:
        panels[-1].legend(handles=keys, **BESIDE)
        return panels
    figure = panels[0].figure
    figure.legend(handles=keys, loc="outside lower center", ncols=6, frameon=False, fontsize=9, handlelength=2.6)
    left_out = len(effects.features) - len(chosen)
    note = f" ({len(chosen)} most relevant of {len(effects.features)} features)" if left_out and not features else ""
    figure.suptitle(f"Effect of each feature on the utilities, with 95% intervals{note}", fontsize=11)
    return panels


def plot_objects(
    model: "ChoiceGP",
    X: Any = None,
    *,
    data: ChoiceData | None = None,
    utilities: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw objects in the space of two utilities, and name those that no other dominates.

    A model with a threshold has it marked, with its 95% interval: an object below it in all utilities is rejected
    even where it is shown alone.

    Parameters
    ----------
    model : ChoiceGP
        Fitted; also a PreferenceGP or a ParetoEmbedding. With a single utility the best objects are listed by it.
    X : DataFrame of features or encoded array (n, c), optional
    data : ChoiceData, optional
        Instead of ``X``; by default the training data.
    utilities : (int, int)
        Which utilities (from 0) to draw. An object is marked when none is better in all of the model's
        utilities, whichever are drawn.
    names : sequence of str, optional
        What to call the objects; by default their ids or, where these are row numbers, what the objects are.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> [label.get_text() for label in plots.plot_objects(model).get_yticklabels()]  # the best on top
    ['x0 2', 'x0 1', 'x0 0']
    """
    _check_fitted(model)
    objects, ids = _objects_to_draw(model, X, data)
    labels = _labels(model, objects, ids, names)
    mean, sd = model.utilities(objects)[:2]
    d = mean.shape[1]
    threshold = _threshold(model)
    if d == 1:
        best = np.argsort(-mean[:, 0], kind="stable")[:_MOST_RANKED]
        ax = ax or new_axes(7.0, 1.4 + 0.2 * len(best))
        draw_ranking(ax, mean[best, 0], sd[best, 0], [short(labels[row]) for row in best], len(ids), threshold)
        return ax
    across, up = _two_utilities(utilities, d)
    ax = ax or new_axes(8.4, 5.2)
    # Objects equal in all features differ by rounding, and must not dominate each other by it.
    unit = 1e-9 * max(np.abs(mean).max(), 1e-300)
    mean = np.round(mean / unit) * unit
    front = undominated(mean)
    near = near_the_front(mean, sd, front)
    in_all = "both" if d == 2 else f"all {d}"
    shown = [across, up]
    placed = None if threshold is None else threshold[:, shown]
    ax.set(xlabel=utility_label(across, sd), ylabel=utility_label(up, sd))
    ax.set_title(f"Objects by their utilities; no other beats a marked one in {in_all}", fontsize=11)
    draw_front(ax, mean[:, shown], sd[:, shown], front, near, [short(i) for i in labels], placed, in_all)
    return ax


def _labels(model: "ChoiceGP", objects: Any, ids: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return object_names(ids, encoded_features(objects, model.encoding_), model.encoding_)
    if len(names) != len(ids):
        raise ChoiceGPError(f"names must be one for each of the {len(ids)} objects; got {len(names)}")
    return [str(name) for name in names]


def plot_relevance(model: "ChoiceGP", *, effects: Effects | None = None, ax: "Axes | None" = None) -> "Axes":
    """Draw how much each feature matters to each utility, with 95% intervals; the most relevant on top.

    Relevance is the standard deviation of the feature's effect over the training objects.

    Parameters
    ----------
    model : ChoiceGP
        Fitted.
    effects : Effects, optional
        From :func:`~choicegp.evaluation.effects.model_effects`, when it has been computed already.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> [label.get_text() for label in plots.plot_relevance(model).get_yticklabels()]
    ['x0']
    """
    _check_fitted(model)
    effects = model_effects(model) if effects is None else effects
    mean, low, high = effects.relevance
    n_utilities, n_features = mean.shape
    order = np.argsort(-mean.max(axis=0), kind="stable")
    ax = ax or new_axes(7.4, 1.3 + n_features * (0.16 + 0.14 * n_utilities))
    height = 0.8 / n_utilities
    for i in range(n_utilities):
        where = np.arange(n_features) + (i - (n_utilities - 1) / 2) * height
        size = mean[i, order]
        interval = np.maximum([size - low[i, order], high[i, order] - size], 0.0)
        style = {name: utility_style(i)[name] for name in ("color", "label")}
        ax.barh(where, size, 0.9 * height, xerr=interval, alpha=0.85, error_kw=_INTERVAL, **style)
    ax.set_yticks(np.arange(n_features), [wrapped(effects.names[j], 22) for j in order])
    ax.set_ylim(n_features - 0.5, -0.5)
    ax.set_xlim(left=0.0)
    ax.set_xlabel(f"standard deviation of the feature's effect, with 95% interval,\n{UNIT}")
    ax.set_title("How much each feature matters", fontsize=11)
    ax.legend(**BESIDE)
    return ax


def plot_elbo(model: "ChoiceGP", *, ax: "Axes | None" = None) -> "Axes":
    """Draw the evidence lower bound (ELBO) over the steps of the fit.

    While the fit anneals, the likelihood counts only in part and the bound belongs to an easier problem: those steps
    (``fit_result_.n_annealing``) are left out.

    Parameters
    ----------
    model : ChoiceGP
        Fitted.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP, plots
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
    >>> plots.plot_elbo(model).get_ylabel()
    'evidence lower bound (nats)'
    """
    _check_fitted(model)
    if not hasattr(model, "elbo_"):
        raise ChoiceGPError(
            f"{type(model).__name__} has no evidence lower bound to draw: pass a ChoiceGP or a BatchPreferenceGP"
        )
    result = model.fit_result_
    trace = np.asarray(result.elbo_trace, dtype=float)
    ax = ax or new_axes(7.4, 3.6)
    # A fit that was stopped while it annealed has nothing else to show.
    begun = int(getattr(result, "n_annealing", 0))
    begun = begun if begun < len(trace) else 0
    trace, steps = trace[begun:], np.arange(begun + 1, len(trace) + 1)
    before = f"\n(without {begun} steps of annealing)" if begun else ""
    marker = "." if len(trace) < 100 else ""
    words = f"The bound at each step{before}."
    ax.plot(steps, trace, color=COLOURS[0], linewidth=1.5, marker=marker, label=words)
    final = f"The bound at the end, on fresh\nsample points: {model.elbo_:.1f}."
    ax.axhline(model.elbo_, color=COLOURS[1], linestyle="--", linewidth=1.0, label=final)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="step", ylabel="evidence lower bound (nats)")
    ax.set_title(f"The fit {result.status}: {wrapped(result.message, 60)}", fontsize=11)
    ax.legend(**BESIDE)
    return ax


def _check_fitted(model: Any) -> None:
    if not hasattr(model, "encoding_"):
        raise ChoiceGPError("the model is not fitted yet: call fit(data) first")


def _shown_objects(model: "ChoiceGP") -> pd.DataFrame:
    return model.encoding_.decode(model.data_.X[np.unique(model.data_.flat_shown)])


def _feature(model: "ChoiceGP", feature: str | None) -> str:
    names = [column.name for column in model.encoding_.columns]
    if feature is None and len(names) == 1:
        return names[0]
    if feature is None:
        raise ChoiceGPError(
            f"the model has {len(names)} features, {listed(names)}: name one, as in feature={names[0]!r}, "
            "or see all of them with plot_effects"
        )
    if feature not in names:
        raise ChoiceGPError(f"there is no feature {feature!r}; the features are {listed(names)}")
    return feature


def _along(column: FeatureColumn, values: pd.Series) -> NDArray[Any]:
    if column.kind == "numeric":
        low, high = values.min(), values.max()
        return np.linspace(low, high, _N_GRID) if high > low else np.array([low])
    categories = np.empty(len(column.categories), dtype=object)
    categories[:] = column.categories
    return categories


def _typical(values: pd.Series) -> Any:
    return values.median() if pd.api.types.is_numeric_dtype(values.dtype) else values.mode().iloc[0]


def _chosen_features(effects: Effects, features: Sequence[str] | None) -> list[FeatureEffect]:
    if features is None:
        # The most relevant ones, in the order of the table.
        order = np.argsort(-effects.relevance.mean.max(axis=0), kind="stable")
        return [effects.features[j] for j in np.sort(order[:MOST_PANELS])]
    by_name = dict(zip(effects.names, effects.features, strict=True))
    wanted = [features] if isinstance(features, str) else list(features)
    unknown = [name for name in wanted if name not in by_name]
    if unknown or not wanted:
        raise ChoiceGPError(f"there is no feature {listed(unknown)}; the features are {listed(effects.names)}")
    return [by_name[name] for name in wanted]


def _threshold(model: Any) -> NDArray[np.float64] | None:
    """Return mean and ends of the interval of a model's threshold, (3, d), where it has one."""
    errors = getattr(model, "errors_", None)
    if errors is None or not errors.has_threshold:
        return None
    found = model.threshold_utilities()
    return np.array([found.mean, found.lower, found.upper])


def _two_utilities(utilities: Any, n_utilities: int) -> tuple[int, int]:
    numbers = tuple(utilities) if isinstance(utilities, Sequence | np.ndarray) else ()
    whole = all(isinstance(i, int | np.integer) and 0 <= i < n_utilities for i in numbers)
    if len(numbers) != 2 or not whole or numbers[0] == numbers[1]:
        raise ChoiceGPError(f"utilities must be two different numbers from 0 to {n_utilities - 1}; got {utilities!r}")
    return int(numbers[0]), int(numbers[1])


def _objects_to_draw(model: "ChoiceGP", X: Any, data: ChoiceData | None) -> tuple[Any, Sequence[Any]]:
    if X is not None and data is not None:
        raise ChoiceGPError("give the objects as X or as data, not as both")
    if data is not None and not isinstance(data, ChoiceData):
        raise ChoiceGPError(f"data must be a ChoiceData, not {kind_of(data)}")
    objects = X if X is not None else model.data_ if data is None else data
    if isinstance(objects, ChoiceData):
        ids: Sequence[Any] = list(objects.object_ids)
    else:
        ids = list(objects.index) if isinstance(objects, pd.DataFrame) else range(len(objects))
    if len(ids) > MOST_OBJECTS:
        raise ChoiceGPError(f"at most {MOST_OBJECTS} objects are drawn; got {len(ids)}: pass some of them as X")
    return objects, ids
