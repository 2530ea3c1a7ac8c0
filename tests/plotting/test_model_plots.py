"""Plots: what is drawn are the model's numbers, no pyplot state is touched, and wrong requests are clear."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, ParetoEmbedding, plots
from choicegp.evaluation.effects import model_effects

from .conftest import Model, bars, choices, laptop_table, legend_texts

pytestmark = pytest.mark.usefixtures("no_pyplot_figures")


@pytest.fixture(scope="module")
def network():
    data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    return ParetoEmbedding(1, n_layers=1, n_units=4, max_epochs=2, progress=False).fit(data)


Z95 = 1.959963984540054


def line(ax, label):
    [found] = [line for line in ax.lines if line.get_label() == label]
    return np.asarray(found.get_xdata(), dtype=float), np.asarray(found.get_ydata(), dtype=float)


def band(ax, i):
    """Return x, low and high of the i-th band."""
    corners = ax.collections[i].get_paths()[0].vertices
    x = np.unique(corners[:, 0])
    return x, *(np.array([f(corners[corners[:, 0] == value, 1]) for value in x]) for f in (np.min, np.max))


class TestUtilities:
    def test_lines_and_bands_are_the_posterior(self, line_model):
        ax = plots.plot_utilities(line_model)
        for i in range(2):
            x, y = line(ax, f"utility {i + 1}")
            found = line_model.utilities(x[:, None])
            assert y == pytest.approx(found.mean[:, i])
            grid, low, high = band(ax, i)
            assert grid == pytest.approx(x)
            assert low == pytest.approx(found.lower[:, i])
            assert high == pytest.approx(found.upper[:, i])

    def test_a_model_without_ends_of_intervals_has_bands_by_its_standard_deviations(self, line_model, monkeypatch):
        with_ends = line_model.utilities
        monkeypatch.setattr(line_model, "utilities", lambda X: with_ends(X)._replace(lower=None, upper=None))
        ax = plots.plot_utilities(line_model)
        x, _ = line(ax, "utility 1")
        mean, sd, _, _ = with_ends(x[:, None])
        _, low, high = band(ax, 0)
        assert low == pytest.approx(mean[:, 0] - Z95 * sd[:, 0])
        assert high == pytest.approx(mean[:, 0] + Z95 * sd[:, 0])

    def test_the_range_and_the_ticks_are_those_of_the_shown_objects(self, line_model):
        ax = plots.plot_utilities(line_model)
        shown = line_model.data_.X[:-1, 0]
        x, _ = line(ax, "utility 1")
        assert (x[0], x[-1]) == (shown.min(), shown.max())
        assert line(ax, "objects shown")[0].tolist() == sorted(shown)

    def test_the_other_features_stay_typical(self, model):
        ax = plots.plot_utilities(model, "size_1")
        x, y = line(ax, "utility 2")
        shown = model.encoding_.decode(model.data_.X[:-1])
        frame = pd.DataFrame({"size_1": x})
        frame["size_0"] = shown["size_0"].median()
        frame["keyboard"] = shown["keyboard"].mode()[0]
        assert y == pytest.approx(model.utilities(frame).mean[:, 1])
        assert "median" in ax.get_title()

    def test_categories_are_points_with_bars(self, model):
        ax = plots.plot_utilities(model, "keyboard")
        points, ends = bars(ax, "utility 1")
        shown = model.encoding_.decode(model.data_.X[:-1])
        frame = pd.DataFrame({"keyboard": ["de", "uk", "us"]})
        frame["size_0"], frame["size_1"] = shown["size_0"].median(), shown["size_1"].median()
        found = model.utilities(frame)
        assert points[:, 1] == pytest.approx(found.mean[:, 0])
        assert ends[:, 0, 1] == pytest.approx(found.lower[:, 0])
        assert ends[:, 1, 1] == pytest.approx(found.upper[:, 0])
        assert [label.get_text() for label in ax.get_xticklabels()] == ["de", "uk", "us"]

    def test_several_features_need_a_name(self, model):
        with pytest.raises(ChoiceGPError, match=r"3 features.*'size_0'.*feature=.*plot_effects"):
            plots.plot_utilities(model)

    def test_an_unknown_feature_is_refused(self, model):
        with pytest.raises(ChoiceGPError, match="no feature 'price'; the features are 'size_0'"):
            plots.plot_utilities(model, "price")


class TestEffects:
    def test_panels_show_the_effects(self, model):
        effects = model_effects(model)
        axes = plots.plot_effects(model)
        assert [ax.get_xlabel() for ax in axes] == list(effects.names)
        for ax, effect in zip(axes[:2], effects.features[:2], strict=True):
            for i in range(2):
                x, y = line(ax, f"utility {i + 1}")
                assert x == pytest.approx(effect.grid)
                assert y == pytest.approx(effect.mean[:, i])
                _, low, high = band(ax, i)
                assert low == pytest.approx(effect.low[:, i])
                assert high == pytest.approx(effect.high[:, i])
        for i in range(2):
            points, ends = bars(axes[2], f"utility {i + 1}")
            assert points[:, 1] == pytest.approx(effects.features[2].mean[:, i])
            assert ends[:, 0, 1] == pytest.approx(effects.features[2].low[:, i])
            assert ends[:, 1, 1] == pytest.approx(effects.features[2].high[:, i])

    def test_some_features_in_another_order(self, model):
        axes = plots.plot_effects(model, ["keyboard", "size_0"])
        assert [ax.get_xlabel() for ax in axes] == ["keyboard", "size_0"]

    def test_given_effects_are_not_computed_again(self, model):
        effects = model_effects(model)
        doubled = effects._replace(features=tuple(f._replace(mean=2 * f.mean) for f in effects.features))
        ax = plots.plot_effects(model, ["size_0"], effects=doubled)[0]
        assert line(ax, "utility 1")[1] == pytest.approx(2 * effects.features[0].mean[:, 0])

    def test_a_utility_much_smaller_than_the_other_has_a_scale_of_its_own(self, model):
        effects = model_effects(model)
        small = np.array([0.05, 1.0])
        features = tuple(
            f._replace(mean=f.mean * small, low=f.low * small, high=f.high * small) for f in effects.features
        )
        axes = plots.plot_effects(model, effects=effects._replace(features=features))
        assert len(axes) == 3
        left, right = axes[0], axes[0].figure.axes[3]
        assert line(left, "utility 1")[1] == pytest.approx(features[0].mean[:, 0])
        assert line(right, "utility 2")[1] == pytest.approx(features[0].mean[:, 1])
        one, other = np.array(left.get_ylim()), np.array(right.get_ylim())
        assert one[0] / one[1] == pytest.approx(other[0] / other[1])  # zero is at the same height
        assert left.get_ylabel().startswith("effect on utility 1")

    def test_panels_are_equally_far_apart_where_the_last_row_is_not_full(self):
        many = Model(choices(laptop_table(7, categories=())), n_utilities=2)
        effects = model_effects(many)
        small = np.array([0.05, 1.0])
        features = tuple(
            f._replace(mean=f.mean * small, low=f.low * small, high=f.high * small) for f in effects.features
        )
        axes = plots.plot_effects(many, effects=effects._replace(features=features))
        figure = axes[0].figure
        figure.draw_without_rendering()
        lefts = [ax.get_position().x0 for ax in axes]
        assert np.diff(lefts[:4]) == pytest.approx(np.full(3, lefts[1] - lefts[0]), rel=0.02)
        assert lefts[4:] == pytest.approx(lefts[:3], rel=0.02)
        beside = figure.axes[-1]
        assert beside.get_ylabel().startswith("effect on utility 2")  # beside the last panel of the last row

    def test_the_legend_is_below_and_names_every_utility(self, model):
        figure = plots.plot_effects(model)[0].figure
        assert legend_texts(figure.legends[0]) == ["utility 1", "utility 2", "objects shown"]

    def test_of_many_features_the_most_relevant_are_drawn(self):
        many = Model(choices(laptop_table(14, categories=())), n_utilities=1)
        effects = model_effects(many)
        axes = plots.plot_effects(many, effects=effects)
        best = np.argsort(-effects.relevance.mean[0])[:12]
        assert {ax.get_xlabel() for ax in axes} == {effects.names[j] for j in best}
        assert "12 most relevant of 14" in axes[0].figure.get_suptitle()

    def test_draws_on_given_axes(self, model):
        axes = Figure().subplots(1, 3)
        assert plots.plot_effects(model, axes=axes).tolist() == axes.tolist()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"features": ["price"]}, "no feature 'price'"),
            ({"features": []}, "there is no feature"),
            ({"axes": [1]}, "3 features to draw but 1 axes"),
        ],
    )
    def test_refuses(self, model, options, message):
        with pytest.raises(ChoiceGPError, match=message):
            plots.plot_effects(model, **options)


class TestRelevance:
    def test_bars_are_the_relevance_with_the_most_relevant_on_top(self, model):
        effects = model_effects(model)
        ax = plots.plot_relevance(model)
        mean, low, high = effects.relevance
        order = np.argsort(-mean.max(axis=0))
        assert [label.get_text() for label in ax.get_yticklabels()] == [effects.names[j] for j in order]
        assert ax.yaxis_inverted()
        for i in range(2):
            drawn = [c for c in ax.containers if c.get_label() == f"utility {i + 1}"][-1]
            assert [bar.get_width() for bar in drawn.patches] == pytest.approx(mean[i, order])
            ends = np.array(drawn.errorbar[2][0].get_segments())[:, :, 0]
            assert ends[:, 0] == pytest.approx(low[i, order])
            assert ends[:, 1] == pytest.approx(high[i, order])

    def test_given_effects_are_not_computed_again(self, model):
        effects = model_effects(model)
        larger = effects._replace(relevance=effects.relevance._replace(mean=effects.relevance.mean + 3))
        widths = [patch.get_width() for patch in plots.plot_relevance(model, effects=larger).patches]
        assert min(widths) > 3


class TestElbo:
    def test_draws_the_trace_and_the_final_bound(self, model):
        ax = plots.plot_elbo(model)
        x, y = line(ax, "The bound at each step.")
        assert x.tolist() == [1, 2, 3, 4]
        assert y.tolist() == [-9, -20, -14, -12]
        assert any(np.allclose(found.get_ydata(), -12.5) for found in ax.lines)
        assert ax.get_title() == "The fit converged: a block gained 0.01 nats"

    @pytest.mark.parametrize(("n_annealing", "steps"), [(2, [3, 4]), (4, [1, 2, 3, 4])])
    def test_annealing_is_left_out_unless_there_is_nothing_else(self, line_model, n_annealing, steps):
        result = SimpleNamespace(**line_model.fit_result_._asdict() | {"n_annealing": n_annealing})
        ax = plots.plot_elbo(SimpleNamespace(**vars(line_model) | {"fit_result_": result}))
        words = legend_texts(ax.get_legend())[0]
        assert ("without 2 steps of annealing" in words) == (n_annealing == 2)
        assert line(ax, words)[0].tolist() == steps


class TestDrivers:
    def test_bars_are_shares_of_the_relevance_with_words_beside_them(self, model):
        effects = model_effects(model)
        grid = plots.plot_drivers(model, effects=effects)
        assert len(grid) == 2
        for i, ax in enumerate(grid):
            mean = effects.shares.mean[i]
            assert mean.sum() == pytest.approx(1.0)
            order = np.argsort(-mean)
            assert [bar.get_width() for bar in ax.patches] == pytest.approx(100 * mean[order])
            assert [label.get_text() for label in ax.get_yticklabels()] == [effects.names[j] for j in order]
            assert len(ax.texts) == len(order)
        assert "better in both utilities" in grid[0].figure.get_suptitle()

    def test_directions_are_said_in_words(self, model):
        effects = model_effects(model)
        directions = np.array([["rises", "falls", "categorical"], ["non-monotone", "unclear", "unclear"]])
        best = np.array([[1.0, 0.0, "uk"], [0.25, 0.0, "de"]], dtype=object)
        shares = effects.shares._replace(mean=np.array([[0.5, 0.3, 0.2]] * 2))
        first, second = plots.plot_drivers(
            model, effects=effects._replace(direction=directions, best=best, shares=shares)
        )
        assert [text.get_text() for text in first.texts] == ["more is better", "less is better", "best is uk"]
        assert second.texts[0].get_text() == "best around 0.25"
        assert first.get_title(loc="left") == "utility 1: high size_0, low size_1"
        assert second.get_title(loc="left") == "utility 2: size_0 around 0.25"


def every_plot(model):
    feature = model.encoding_.columns[0].name
    yield plots.plot_utilities(model, feature)
    effects = model_effects(model)
    yield plots.plot_effects(model, effects=effects)[0]
    yield plots.plot_objects(model)
    yield plots.plot_drivers(model, effects=effects)[0]
    yield plots.plot_relevance(model, effects=effects)
    yield plots.plot_elbo(model)


@pytest.mark.parametrize(("n_numeric", "n_utilities"), [(1, 1), (12, 5), (0, 2)])
def test_every_plot_can_be_saved_without_a_display(tmp_path, n_numeric, n_utilities):
    drawn = Model(choices(laptop_table(n_numeric, ("de", "uk") if n_numeric != 12 else ())), n_utilities)
    for i, ax in enumerate(every_plot(drawn)):
        ax.figure.savefig(tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").stat().st_size > 5000
        assert 120 <= ax.figure.dpi <= 150


@pytest.mark.parametrize("plot", [plots.plot_objects, plots.plot_relevance, plots.plot_elbo, plots.plot_utilities])
def test_given_axes_are_drawn_on_and_returned(line_model, plot):
    ax = Figure().subplots()
    assert plot(line_model, ax=ax) is ax
    assert ax.has_data()


@pytest.mark.parametrize(
    "plot",
    [
        plots.plot_utilities,
        plots.plot_effects,
        plots.plot_objects,
        plots.plot_relevance,
        plots.plot_elbo,
    ],
)
def test_a_model_that_is_not_fitted_is_refused(plot):
    with pytest.raises(ChoiceGPError, match="not fitted yet"):
        plot(ChoiceGP())


@pytest.mark.parametrize(
    ("plot", "lacks"),
    [
        (plots.plot_elbo, "has no evidence lower bound to draw: pass a ChoiceGP"),
        (plots.plot_effects, "has no posterior of utilities"),
        (plots.plot_relevance, "has no posterior of utilities"),
        (plots.plot_calibration, "has no probabilities"),
    ],
)
def test_a_model_without_what_is_drawn_is_refused(plot, lacks, network):
    data = [network.data_] if plot is plots.plot_calibration else []
    with pytest.raises(ChoiceGPError, match=f"ParetoEmbedding {lacks}"):
        plot(network, *data)


def test_a_constant_feature_is_drawn_as_a_point():
    frame = laptop_table(1, categories=())
    frame["size_0"] = 2.0
    ax = plots.plot_utilities(Model(choices(frame)))
    assert line(ax, "utility 1")[0].tolist() == [2.0]


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, choicegp.plots; print('matplotlib' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "False", ended.stderr


def test_a_real_model_can_be_drawn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    data = ChoiceData.from_utilities(X, X, [rng.permutation(12)[:3] for _ in range(12)])
    fitted = ChoiceGP(2, intervals="none", n_restarts=1, max_iter=30, progress=False).fit(data)
    for ax in every_plot(fitted):
        assert ax.has_data()
    points, _ = line(plots.plot_utilities(fitted, "x0"), "utility 1")
    assert (points[0], points[-1]) == (
        data.X[np.unique(data.flat_shown), 0].min(),
        data.X[np.unique(data.flat_shown), 0].max(),
    )
    # The same effects as numbers.
    frame = fitted.effects()
    assert frame.columns.tolist() == ["utility", "feature", "value", "effect", "lower", "upper"]
    assert set(zip(frame["utility"], frame["feature"], strict=True)) == {(i, x) for i in (1, 2) for x in ("x0", "x1")}
    assert np.all((frame["lower"] <= frame["effect"]) & (frame["effect"] <= frame["upper"]))
