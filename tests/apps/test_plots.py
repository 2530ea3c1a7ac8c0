"""Plots: what is drawn are the model's numbers, no pyplot state is touched, and wrong requests are clear."""

import subprocess
import sys
from functools import cached_property
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError
from choicegp.apps import plots
from choicegp.data.pareto import undominated
from choicegp.estimators.result import FitResult, Utilities
from choicegp.inference.posterior import Posterior
from choicegp.model.kernels import kernel_named
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.prediction.effects import model_effects

Z95 = 1.959963984540054


class Model:
    """What the plots need of a fitted model, without a fit: a posterior of effects, and made-up utilities."""

    def __init__(self, data, n_utilities=2):
        self.data_, self.encoding_, self.n_utilities_ = data, data.encoding, n_utilities
        self.centre_, scale = data.X.mean(axis=0), data.X.std(axis=0)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        self.elbo_ = -12.5
        trace = np.array([-9.0, -20.0, -14.0, -12.0])
        self.fit_result_ = FitResult("converged", "a block gained 0.01 nats", 4, 1.0, trace)

    def utilities(self, X):
        X = X.with_encoding(self.encoding_).X if isinstance(X, ChoiceData) else self.encoding_.encode(X)
        scaled = (X - self.centre_) / self.scale_
        waves = np.random.default_rng(1).normal(size=(X.shape[1], self.n_utilities_))
        return Utilities(3 * np.sin(scaled @ waves), 0.3 + 0.1 * np.cos(scaled @ waves))

    @cached_property
    def posterior_(self):
        """A Gaussian posterior, of noisy values seen at the objects."""
        n, d = len(self.data_.X), self.n_utilities_
        prior = UtilityPrior.create(kernel_named("rbf"), self.data_.X.shape[1], d)
        objects = Objects((self.data_.X - self.centre_) / self.scale_, np.arange(n))
        with jax.enable_x64(True):
            K = np.asarray(prior.covariance(objects, objects)) + 1e-8 * np.eye(n)
        precision = np.array([4.0 * np.eye(n)] * d)
        covariance = np.linalg.inv(np.linalg.inv(K) + precision)
        seen = np.random.default_rng(2).normal(size=(d, n, 1))
        mean = covariance @ precision @ seen
        dual = np.linalg.solve(K, mean)[..., 0]
        gain = precision - precision @ covariance @ precision
        return Posterior(prior, objects, mean[..., 0], dual, gain)


def table(n_numeric=1, categories=("de", "uk", "us"), n=24, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"size_{j}": rng.normal(size=n) for j in range(n_numeric)})
    if categories:
        frame["keyboard"] = rng.choice(categories, size=n)
    return frame.set_axis([f"laptop {i}" for i in range(n)])


def choices(frame):
    # The last object is never shown.
    return ChoiceData.from_sets(frame, [[i, i + 1] for i in range(len(frame) - 2)])


@pytest.fixture(scope="module")
def line_model():
    return Model(choices(table(1, categories=())))


@pytest.fixture(scope="module")
def model():
    return Model(choices(table(2)))


@pytest.fixture(autouse=True)
def _no_pyplot_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def line(ax, label):
    [found] = [line for line in ax.lines if line.get_label() == label]
    return np.asarray(found.get_xdata(), dtype=float), np.asarray(found.get_ydata(), dtype=float)


def band(ax, i):
    """Return x, low and high of the i-th band."""
    corners = ax.collections[i].get_paths()[0].vertices
    x = np.unique(corners[:, 0])
    return x, *(np.array([f(corners[corners[:, 0] == value, 1]) for value in x]) for f in (np.min, np.max))


def bars(ax, label):
    """Return the points (n, 2) and the ends (n, 2) of the error bars of one label."""
    [found] = [c for c in ax.containers if c.get_label() == label]
    points, _, (segments, *_) = found
    return np.column_stack(points.get_data()), np.array(segments.get_segments())


def legend_texts(legend):
    return [text.get_text() for text in legend.get_texts()]


class TestUtilities:
    def test_lines_and_bands_are_the_posterior(self, line_model):
        ax = plots.plot_utilities(line_model)
        for i in range(2):
            x, y = line(ax, f"utility {i + 1}")
            mean, sd = line_model.utilities(x[:, None])
            assert y == pytest.approx(mean[:, i])
            grid, low, high = band(ax, i)
            assert grid == pytest.approx(x)
            assert low == pytest.approx(mean[:, i] - Z95 * sd[:, i])
            assert high == pytest.approx(mean[:, i] + Z95 * sd[:, i])

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
        mean, sd = model.utilities(frame)
        assert points[:, 1] == pytest.approx(mean[:, 0])
        assert ends[:, 1, 1] == pytest.approx(mean[:, 0] + Z95 * sd[:, 0])
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

    def test_the_legend_is_below_and_names_every_utility(self, model):
        figure = plots.plot_effects(model)[0].figure
        assert legend_texts(figure.legends[0]) == ["utility 1", "utility 2", "objects shown"]

    def test_of_many_features_the_most_relevant_are_drawn(self):
        many = Model(choices(table(14, categories=())), n_utilities=1)
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


class TestObjects:
    def test_points_are_posterior_means_and_the_front_is_marked(self, model):
        ax = plots.plot_objects(model)
        mean, sd = model.utilities(model.data_)
        front = undominated(mean)
        rest, marked = (
            next(c for c in ax.collections if str(c.get_label()).startswith(name))
            for name in ("dominated", "undominated")
        )
        assert np.asarray(rest.get_offsets()) == pytest.approx(mean[~front])
        assert np.asarray(marked.get_offsets()) == pytest.approx(mean[front])
        [across, up] = [c.get_segments() for c in ax.containers[0][2]]
        assert np.array(across)[:, 1, 0] == pytest.approx(mean[:, 0] + sd[:, 0])
        assert np.array(up)[:, 0, 1] == pytest.approx(mean[:, 1] - sd[:, 1])

    def test_the_undominated_are_named_at_their_points(self, model):
        ax = plots.plot_objects(model)
        mean = model.utilities(model.data_).mean
        front = np.flatnonzero(undominated(mean))
        named = {text.get_text(): text.xy for text in ax.texts}
        assert set(named) == {f"laptop {row}" for row in front}
        for row in front:
            assert named[f"laptop {row}"] == pytest.approx(mean[row])

    def test_names_do_not_overlap(self, model):
        ax = plots.plot_objects(model)
        ax.figure.draw_without_rendering()
        found = [text.get_window_extent() for text in ax.texts]
        assert len(found) > 1
        # Sizes of letters are estimated: a hair is allowed.
        inner = [box.padded(-1.5) for box in found]
        assert not any(a.overlaps(b) for i, a in enumerate(inner) for b in inner[i + 1 :])

    def test_new_objects_keep_their_ids(self, model):
        frame = table(2, n=6, seed=3).set_axis(list("abcdef"))
        ax = plots.plot_objects(model, frame)
        front = undominated(model.utilities(frame).mean)
        assert {text.get_text() for text in ax.texts} == set(np.array(list("abcdef"))[front])
        data = choices(frame)
        assert {text.get_text() for text in plots.plot_objects(model, data=data).texts} == set(
            np.array(list("abcdef"))[front]
        )

    def test_arrays_are_named_by_row(self, model):
        ax = plots.plot_objects(model, model.data_.X)
        front = np.flatnonzero(undominated(model.utilities(model.data_.X).mean))
        assert {text.get_text() for text in ax.texts} == set(map(str, front))

    def test_other_utilities_but_the_front_of_all(self):
        three = Model(choices(table(2)), n_utilities=3)
        ax = plots.plot_objects(three, utilities=(2, 0))
        mean = three.utilities(three.data_).mean
        marked = next(c for c in ax.collections if str(c.get_label()).startswith("undominated"))
        assert np.asarray(marked.get_offsets()) == pytest.approx(mean[undominated(mean)][:, [2, 0]])
        assert ax.get_xlabel().startswith("utility 3")
        assert "in all 3" in ax.get_title()

    def test_objects_at_one_point_share_a_name(self, model):
        frame = table(2, n=1).loc[["laptop 0"] * 5].set_axis(list("abcde"))
        ax = plots.plot_objects(model, frame)
        assert [text.get_text() for text in ax.texts] == ["a (+4)"]
        assert "undominated" in legend_texts(ax.get_legend())

    def test_a_long_front_is_named_in_part(self):
        frame = table(1, categories=(), n=400)
        many = Model(choices(frame.iloc[:30]))

        def utilities(X):
            angle = np.linspace(0, np.pi / 2, 400)
            return Utilities(np.column_stack([np.sin(angle), np.cos(angle)]), np.full((400, 2), 0.1))

        many.utilities = utilities
        ax = plots.plot_objects(many, frame)
        assert 8 <= len(ax.texts) <= 15
        assert f"({len(ax.texts)} of 400 named)" in " ".join(legend_texts(ax.get_legend()))

    def test_with_one_utility_the_best_are_listed(self):
        single = Model(choices(table(2, n=40)), n_utilities=1)
        ax = plots.plot_objects(single)
        mean, sd = single.utilities(single.data_)
        best = np.argsort(-mean[:, 0])[:30]
        points, ends = bars(ax, "standard deviation")
        assert points[:, 0] == pytest.approx(mean[best, 0])
        assert ends[:, 1, 0] == pytest.approx(mean[best, 0] + sd[best, 0])
        assert [label.get_text() for label in ax.get_yticklabels()] == [f"laptop {row}" for row in best]
        assert ax.get_title() == "The best 30 of 40 objects"

    @pytest.mark.parametrize("utilities", [(0, 0), (0, 2), (-1, 0), (0,), 1, "01", (0.0, 1.0)])
    def test_wrong_utilities_are_refused(self, model, utilities):
        with pytest.raises(ChoiceGPError, match="two different numbers from 0 to 1"):
            plots.plot_objects(model, utilities=utilities)

    def test_both_kinds_of_objects_are_refused(self, model):
        with pytest.raises(ChoiceGPError, match="not as both"):
            plots.plot_objects(model, model.data_.X, data=model.data_)
        with pytest.raises(ChoiceGPError, match="data must be a ChoiceData, not a DataFrame"):
            plots.plot_objects(model, data=table())
        with pytest.raises(ChoiceGPError, match="at most 5000 objects are drawn; got 5001"):
            plots.plot_objects(model, np.zeros((5001, 5)))


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
        x, y = line(ax, "at each step")
        assert x.tolist() == [1, 2, 3, 4]
        assert y.tolist() == [-9, -20, -14, -12]
        assert any(np.allclose(found.get_ydata(), -12.5) for found in ax.lines)
        assert not any("annealing" in text for text in legend_texts(ax.get_legend()))
        assert ax.get_title() == "The fit converged: a block gained 0.01 nats"

    def test_marks_annealing_where_it_is_known(self, line_model):
        result = SimpleNamespace(**line_model.fit_result_._asdict() | {"n_annealing": 2})
        told = SimpleNamespace(**vars(line_model) | {"fit_result_": result})
        ax = plots.plot_elbo(told)
        [shade] = ax.patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (0.5, 2.5)
        assert any("annealing" in text for text in legend_texts(ax.get_legend()))


def every_plot(model):
    feature = model.encoding_.columns[0].name
    yield plots.plot_utilities(model, feature)
    effects = model_effects(model)
    yield plots.plot_effects(model, effects=effects)[0]
    yield plots.plot_objects(model)
    yield plots.plot_relevance(model, effects=effects)
    yield plots.plot_elbo(model)


@pytest.mark.parametrize(("n_numeric", "n_utilities"), [(1, 1), (12, 5), (0, 2)])
def test_every_plot_can_be_saved_without_a_display(tmp_path, n_numeric, n_utilities):
    drawn = Model(choices(table(n_numeric, ("de", "uk") if n_numeric != 12 else ())), n_utilities)
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


def test_a_constant_feature_is_drawn_as_a_point():
    frame = table(1, categories=())
    frame["size_0"] = 2.0
    ax = plots.plot_utilities(Model(choices(frame)))
    assert line(ax, "utility 1")[0].tolist() == [2.0]


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, choicegp.apps.plots; print('matplotlib' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "False", ended.stderr


def test_a_real_model_can_be_drawn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    data = ChoiceData.from_utilities(X, X, [rng.permutation(12)[:3] for _ in range(12)])
    fitted = ChoiceGP(2, n_restarts=1, max_iter=30, progress=False).fit(data)
    for ax in every_plot(fitted):
        assert ax.has_data()
    points, _ = line(plots.plot_utilities(fitted, "x0"), "utility 1")
    assert (points[0], points[-1]) == (
        data.X[np.unique(data.flat_shown), 0].min(),
        data.X[np.unique(data.flat_shown), 0].max(),
    )
