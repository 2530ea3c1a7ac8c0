"""Effects of features: closed forms for linear utilities, brute force for others, and Gaussian posteriors."""

import jax
import numpy as np
import pandas as pd
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.evaluation.averages import N_GRID, Averages, posterior_averages
from choicegp.evaluation.effects import column_places, feature_effects, model_effects
from choicegp.inference.posterior import Posterior, draws_of
from choicegp.model.prior import Objects, UtilityPrior, kernel_named
from choicegp.reading.encoding import FeatureColumn, FeatureEncoding

Z95 = 1.959963984540054


def linear(mean, variance):
    """Averages of utilities that are linear in the features, with independent Gaussian weights (d, c)."""
    mean, variance = np.atleast_2d(mean), np.atleast_2d(variance)

    def averages(X):
        centre = X.mean(axis=1)
        return mean @ centre.T, np.einsum("gc,dc,hc->dgh", centre, variance, centre)

    return averages


def certain(*functions):
    """Averages of utilities that are known functions of the features."""

    def averages(X):
        mean = np.array([[function(group).mean() for group in X] for function in functions])
        return mean, np.zeros((len(functions), len(X), len(X)))

    return averages


def numeric(rng, n=60, c=2):
    return rng.normal(size=(n, c)), FeatureEncoding.plain(c)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class TestLinearUtilities:
    @pytest.fixture
    def setting(self, rng):
        X, encoding = numeric(rng)
        weights = np.array([[2.0, -1.0], [0.0, 0.5]])
        variance = np.array([[0.04, 0.01], [0.09, 0.0025]])
        return X, weights, variance, feature_effects(linear(weights, variance), X, encoding)

    def test_the_effect_is_the_slope_times_the_distance_from_the_average(self, setting):
        X, weights, _, effects = setting
        for j, effect in enumerate(effects.features):
            away = effect.grid - X[:, j].mean()
            assert effect.mean == pytest.approx(away[:, None] * weights[:, j])

    def test_the_band_is_that_of_the_slope(self, setting):
        X, _, variance, effects = setting
        for j, effect in enumerate(effects.features):
            half = Z95 * np.abs(effect.grid - X[:, j].mean())[:, None] * np.sqrt(variance[:, j])
            assert effect.high - effect.mean == pytest.approx(half, abs=1e-7)
            assert effect.mean - effect.low == pytest.approx(half, abs=1e-7)

    def test_relevance_is_the_absolute_slope_times_the_spread_of_the_feature(self, setting):
        X, weights, variance, effects = setting
        # Interpolated between the values of the grid, a line stays what it is.
        slopes = np.random.default_rng(1).normal(weights, np.sqrt(variance), size=(20000, 2, 2))
        sizes = np.abs(slopes) * X.std(axis=0)
        assert effects.relevance.mean == pytest.approx(sizes.mean(axis=0), rel=0.1)
        low, high = np.quantile(sizes, [0.025, 0.975], axis=0)
        assert effects.relevance.high == pytest.approx(high, rel=0.1)
        assert effects.relevance.low == pytest.approx(low, rel=0.2, abs=0.01)

    def test_directions(self, setting):
        assert setting[-1].direction.tolist() == [["rises", "falls"], ["unclear", "rises"]]

    def test_the_best_values_are_at_the_ends(self, setting):
        X, _, _, effects = setting
        assert effects.best[0].tolist() == [X[:, 0].max(), X[:, 1].min()]
        assert all(type(value) is float for value in effects.best.ravel())

    def test_names_and_shapes(self, setting):
        effects = setting[-1]
        assert effects.names == ("x0", "x1")
        assert effects.features[0].mean.shape == (N_GRID, 2)
        assert effects.relevance.mean.shape == effects.direction.shape == effects.best.shape == (2, 2)


def test_without_uncertainty_relevance_is_exact(rng):
    X, encoding = numeric(rng)
    effects = feature_effects(linear([[2.0, 0.0]], [[0.0, 0.0]]), X, encoding)
    for bound in effects.relevance:
        assert bound == pytest.approx(np.array([[2.0 * X[:, 0].std(), 0.0]]))
    assert effects.direction.tolist() == [["rises", "unclear"]]


def test_an_effect_averages_to_zero_over_the_objects(rng):
    X, encoding = numeric(rng)
    X[:, 0] = rng.choice([1.0, 2.0, 5.0], size=len(X), p=[0.7, 0.2, 0.1])
    effects = feature_effects(certain(lambda x: x[:, 0] ** 2 + x[:, 1]), X, encoding)
    effect = effects.features[0]
    assert effect.grid.tolist() == [1.0, 2.0, 5.0]  # few values are taken as they are
    at_objects = effect.mean[np.searchsorted(effect.grid, X[:, 0]), 0]
    assert at_objects.mean() == pytest.approx(0.0, abs=1e-12)
    assert effects.relevance.mean[0, 0] == pytest.approx(np.std(X[:, 0] ** 2))


def test_interactions_are_averaged_over_the_objects(rng):
    X, encoding = numeric(rng, n=30)
    effects = feature_effects(certain(lambda x: x[:, 0] * x[:, 1]), X, encoding, n_background=30)
    slope = X[:, 1].mean()
    effect = effects.features[0]
    assert effect.mean[:, 0] == pytest.approx(slope * (effect.grid - X[:, 0].mean()))


def test_an_only_feature_is_looked_at_closely(rng):
    X = rng.uniform(-4, 4, size=(400, 1))
    effects = feature_effects(certain(lambda x: np.sin(4 * x[:, 0])), X, FeatureEncoding.plain(1))
    effect = effects.features[0]
    wave = np.sin(4 * X[:, 0])
    assert effect.mean.max() - effect.mean.min() == pytest.approx(2.0, abs=0.01)
    assert effects.relevance.mean[0, 0] == pytest.approx(wave.std(), rel=0.01)
    assert effects.direction[0, 0] == "non-monotone"


def test_no_more_than_the_wanted_background_is_used(rng):
    X, encoding = numeric(rng, n=30)
    seen = []

    def averages(groups):
        seen.append(groups)
        return certain(lambda x: x[:, 1])(groups)

    feature_effects(averages, X, encoding, n_background=7, random_state=3)
    groups = seen[0]
    assert groups.shape == (N_GRID, 7, 2)
    # One feature is set, the other stays as it is in the objects.
    assert np.ptp(groups[:, :, 0], axis=1).max() == 0.0
    assert np.ptp(groups[:, :, 1], axis=0).max() == 0.0
    assert set(groups[0, :, 1]) <= set(X[:, 1])


def test_a_feature_of_many_categories_stays_small(rng):
    categories = tuple(f"c{i}" for i in range(400))
    encoding = FeatureEncoding((FeatureColumn("brand", "categorical", categories),))
    sizes = []

    def averages(groups):
        sizes.append(groups.shape[0] * groups.shape[1])
        return np.zeros((1, len(groups))), np.zeros((1, len(groups), len(groups)))

    feature_effects(averages, np.eye(400)[rng.integers(400, size=300)], encoding)
    assert 400 <= sizes[0] <= 3000


def test_directions_of_curves(rng):
    X = rng.uniform(-1, 1, size=(200, 4))
    curves = certain(lambda x: x[:, 0] ** 2 + np.tanh(4 * x[:, 1]) - np.exp(x[:, 2]))
    effects = feature_effects(curves, X, FeatureEncoding.plain(4))
    assert effects.direction.tolist() == [["non-monotone", "rises", "falls", "unclear"]]


def test_a_constant_feature_has_no_effect(rng):
    X = np.column_stack([np.full(20, 3.0), rng.normal(size=20)])
    effects = feature_effects(linear([[1.0, 1.0]], [[1.0, 1.0]]), X, FeatureEncoding.plain(2))
    effect = effects.features[0]
    assert effect.grid.tolist() == [3.0]
    assert effect.mean.tolist() == effect.low.tolist() == effect.high.tolist() == [[0.0]]
    assert effects.relevance.high[0, 0] == 0.0
    assert effects.direction[0, 0] == "unclear"


@pytest.mark.parametrize("categories", [("de", "uk"), ("de", "uk", "us"), ("only",)])
def test_categories(rng, categories):
    values = rng.choice(categories, size=40)
    frame = pd.DataFrame({"price": rng.normal(size=40), "keyboard": pd.Categorical(values, categories)})
    encoding = FeatureEncoding.learn(frame)
    worth = dict(zip(categories, (1.0, 4.0, -2.0), strict=False))

    def utility(x):
        return encoding.decode(x)["keyboard"].map(worth).to_numpy(dtype=float)

    effects = feature_effects(certain(utility), encoding.encode(frame), encoding)
    effect = effects.features[1]
    mean = np.mean([worth[value] for value in values])
    assert effect.kind == "categorical"
    assert effect.grid.tolist() == list(categories)
    assert effect.mean[:, 0] == pytest.approx([worth[category] - mean for category in categories])
    assert effect.values.tolist() == values.tolist()
    assert effects.direction[0, 1] == ("unclear" if len(categories) == 1 else "categorical")
    assert effects.best[0, 1] == max(categories, key=worth.get)


def test_the_same_seed_gives_the_same_effects(rng):
    X, encoding = numeric(rng)
    one, same, other = (
        feature_effects(linear([[1.0, 1.0]], [[1.0, 1.0]]), X, encoding, random_state=seed) for seed in (0, 0, 1)
    )
    assert np.array_equal(one.relevance.mean, same.relevance.mean)
    assert not np.array_equal(one.relevance.mean, other.relevance.mean)


@pytest.mark.parametrize("n_background", [0, -1, 2.5, "all"])
def test_a_wrong_background_is_refused(rng, n_background):
    X, encoding = numeric(rng)
    with pytest.raises(ChoiceGPError, match="n_background must be a whole number of at least 1"):
        feature_effects(linear([[1.0, 1.0]], [[1.0, 1.0]]), X, encoding, n_background=n_background)


def test_columns_know_their_places():
    encoding = FeatureEncoding(
        (
            FeatureColumn("size", "categorical", ("S", "M", "L")),
            FeatureColumn("price", "numeric"),
            FeatureColumn("new", "categorical", ("no", "yes")),
        )
    )
    places = {column.name: encoding.feature_names[place] for column, place in column_places(encoding)}
    assert places == {"size": ("size=S", "size=M", "size=L"), "price": ("price",), "new": ("new=yes",)}


def random_posterior(rng, effect_variance=None):
    prior = UtilityPrior.create(kernel_named("rbf"), 2, 3, effect_variance)
    objects = Objects(rng.normal(size=(8, 2)), np.arange(8))
    with jax.enable_x64(True):
        K = np.asarray(prior.covariance(objects, objects))
    precision = np.array([np.diag(rng.uniform(0.5, 4.0, size=8)) for _ in range(3)])
    covariance = np.linalg.inv(np.linalg.inv(K) + precision)
    mean = (covariance @ precision @ rng.normal(size=(3, 8, 1)))[..., 0]
    dual = np.linalg.solve(K, mean[..., None])[..., 0]
    gain = precision - precision @ covariance @ precision
    return Posterior(prior, objects, mean, dual, gain)


class TestDraws:
    """Draws that agree about the direction of an effect and differ in its scale."""

    @pytest.fixture
    def effects(self, rng):
        X, encoding = numeric(rng)
        scale = np.exp(rng.normal(0.0, 1.2, size=(600, 1, 1)))

        def averages(groups):
            drawn = np.concatenate([2.0 * scale, rng.normal(size=scale.shape)], axis=1) * groups[..., 0].mean(axis=1)
            return Averages(drawn.mean(axis=0), np.zeros((2, len(groups), len(groups))), drawn)

        return X, scale.ravel(), feature_effects(averages, X, encoding)

    def test_the_band_excludes_zero_where_all_agree(self, effects):
        X, scale, found = effects
        effect = found.features[0]
        away = effect.grid - X[:, 0].mean()
        # A symmetric band would hold zero everywhere.
        assert scale.mean() < Z95 * scale.std()
        assert np.all(np.sign(effect.low[:, 0]) == np.sign(away))
        assert np.all(np.sign(effect.high[:, 0]) == np.sign(away))
        low, high = np.quantile(2.0 * scale, [0.025, 0.975])
        rising = away > 0
        assert effect.low[rising, 0] == pytest.approx(low * away[rising])
        assert effect.high[rising, 0] == pytest.approx(high * away[rising])
        assert effect.mean[:, 0] == pytest.approx(2.0 * scale.mean() * away)
        assert found.direction[:, 0].tolist() == ["rises", "unclear"]
        assert found.relevance.low[0, 0] > 0.0

    def test_what_is_unknown_given_a_draw_widens_the_band(self, rng):
        X, encoding = numeric(rng)

        def averages(groups):
            centre = groups[..., 0].mean(axis=1)
            return Averages(centre[None], np.outer(centre, centre)[None], np.repeat(centre[None, None], 4000, axis=0))

        effect = feature_effects(averages, X, encoding).features[0]
        away = np.abs(effect.grid - X[:, 0].mean())
        assert (effect.high - effect.low)[:, 0] == pytest.approx(2 * Z95 * away, rel=0.08)

    def test_a_frame_has_a_row_for_each_utility_feature_and_value(self, effects):
        found = effects[-1]
        frame = found.frame()
        assert frame.columns.tolist() == ["utility", "feature", "value", "effect", "lower", "upper"]
        assert len(frame) == 2 * 2 * N_GRID
        own = frame[(frame["utility"] == 2) & (frame["feature"] == "x0")]
        assert own["value"].tolist() == found.features[0].grid.tolist()
        assert own["lower"].tolist() == found.features[0].low[:, 1].tolist()

    @pytest.mark.parametrize("n", [6, 9])
    def test_the_averages_of_a_posterior_are_those_of_its_draws(self, rng, n):
        posterior = random_posterior(rng)
        prior, known = posterior.prior, posterior.objects
        settings = jax.tree.map(lambda leaf: np.stack([leaf, leaf + 0.3]), prior)
        dual = rng.normal(size=(2, 5, 3, 8))
        posterior = Posterior(prior, known, posterior.mean, posterior.dual, posterior.gain, None,
                              draws_of(settings, known, dual))  # fmt: skip
        X = rng.normal(size=(4, n, 2))
        found = posterior_averages(posterior, np.zeros(2), np.ones(2))(X)
        new = Objects(X.reshape(-1, 2), -1 - np.arange(4 * n))
        drawn, left = [], []
        for h in range(2):
            setting = jax.tree.map(lambda leaf, h=h: leaf[h], settings)
            cross = np.asarray(setting.covariance(known, new)).reshape(3, 8, 4, n).mean(axis=3)
            own = np.asarray(setting.covariance(new, new)).reshape(3, 4, n, 4, n).mean(axis=(2, 4))
            drawn.append(np.einsum("dtg,sdt->sdg", cross, dual[h]))
            left.append(own - np.swapaxes(cross, 1, 2) @ posterior.draws.inverse[h] @ cross)
        assert found.draws == pytest.approx(np.concatenate(drawn))
        assert found.mean == pytest.approx(np.concatenate(drawn).mean(axis=0))
        assert found.covariance == pytest.approx(np.mean(left, axis=0), abs=1e-8)


class TestPosteriorAverages:
    centre, scale = np.array([1.0, -2.0]), np.array([2.0, 0.5])

    @pytest.mark.parametrize("n_groups", [1, 5, N_GRID, N_GRID + 1])
    @pytest.mark.parametrize("n", [6, 9])
    def test_agree_with_the_posterior_of_all_objects(self, rng, n_groups, n):
        posterior = random_posterior(rng)
        X = rng.normal(size=(n_groups, n, 2))
        mean, covariance, draws = posterior_averages(posterior, self.centre, self.scale)(X)
        assert draws is None
        flat = (X.reshape(-1, 2) - self.centre) / self.scale
        with jax.enable_x64(True):
            moments = posterior.mean_and_covariance_at(Objects(flat, -1 - np.arange(len(flat))))
        all_mean, all_covariance = (np.asarray(part) for part in moments)
        average = np.kron(np.eye(n_groups), np.full(n, 1 / n))
        assert mean.shape == (3, n_groups)
        assert mean == pytest.approx(all_mean @ average.T)
        assert covariance == pytest.approx(average @ all_covariance @ average.T, abs=1e-10)

    def test_object_effects_drop_out_of_effects(self, rng):
        with_effects = random_posterior(rng, effect_variance=2.0)
        plain = UtilityPrior(with_effects.prior.kernels, None)
        without = Posterior(plain, with_effects.objects, with_effects.mean, with_effects.dual, with_effects.gain)
        X = rng.normal(size=(30, 2))
        one, other = (
            feature_effects(posterior_averages(posterior, self.centre, self.scale), X, FeatureEncoding.plain(2))
            for posterior in (with_effects, without)
        )
        for effect, expected in zip(one.features, other.features, strict=True):
            assert effect.high == pytest.approx(expected.high, abs=1e-6)
        assert one.relevance.mean == pytest.approx(other.relevance.mean, rel=0.02, abs=1e-6)


def test_a_model_must_be_fitted():
    with pytest.raises(ChoiceGPError, match="not fitted yet"):
        model_effects(object())


def test_the_effect_of_a_number_that_may_be_missing(rng):
    encoding = FeatureEncoding((FeatureColumn("price", "numeric", fill=0.5), FeatureColumn("size", "numeric")))
    X = np.column_stack([rng.normal(size=30), np.zeros(30), rng.normal(size=30)])
    X[:5, :2] = 0.5, 1.0
    effects = feature_effects(linear([[2.0, 7.0, 0.0]], np.full((1, 3), 1e-4)), X, encoding)
    assert effects.names == ("price", "size")
    price = effects.features[0]
    slope = np.diff(price.mean[:, 0]) / np.diff(price.grid)
    np.testing.assert_allclose(slope, 2.0)
