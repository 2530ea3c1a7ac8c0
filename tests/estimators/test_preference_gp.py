"""Models of preferences between two objects: PGP, GPGP and PairGP."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.base import clone

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, GeneralPreferenceGP, PairGP, PreferenceGP, datasets
from choicegp.fitting import pairwise
from choicegp.kernels import RBF

MODELS = (PreferenceGP, GeneralPreferenceGP, PairGP)
GIVEN = {"kernel": RBF(1.0, 4.0), "learn_hyperparameters": False, "standardize": False, "progress": False}


def quick(model, **options):
    return model(**({"max_iter": 15, "n_restarts": 1, "progress": False} | options))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 2))
    return X, np.sin(X[:, :1]) + 0.5 * X[:, 1:]


@pytest.fixture(scope="module")
def data(table):
    X, U = table
    pairs = np.random.default_rng(1).permutation(datasets.all_pairs(15))
    return ChoiceData.from_utilities(X, U, pairs)


@pytest.fixture(scope="module")
def train(data):
    return data[np.arange(70)]


@pytest.fixture(scope="module")
def fitted(train):
    return {model: quick(model).fit(train) for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_held_out_pairs_are_predicted(fitted, data, model):
    assert fitted[model].score(data[np.arange(70, 105)]) > 0.8


@pytest.mark.parametrize("model", MODELS)
def test_two_probabilities_of_a_pair_sum_to_one(fitted, model):
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(2, 30, 2))
    p, q = fitted[model].predict_pair_proba(first, second), fitted[model].predict_pair_proba(second, first)
    np.testing.assert_allclose(p + q, 1.0, atol=1e-9)
    assert p.std() > 0.1


def test_a_utility_is_transitive(fitted):
    X = np.random.default_rng(2).normal(size=(3 * 40, 2)).reshape(3, 40, 2)
    a, b, c = (fitted[PreferenceGP].predict_pair_proba(X[i], X[j]) > 0.5 for i, j in ((0, 1), (1, 2), (0, 2)))
    assert np.all(c[a & b])
    assert not np.any(c[~a & ~b])


def test_a_circle_is_learned_by_the_general_model_alone():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    circle = ChoiceData.from_pairs(X, [[0, 1], [1, 2], [2, 0]] * 4)
    assert quick(GeneralPreferenceGP).fit(circle).score(circle) == 1.0
    assert quick(PairGP).fit(circle).score(circle) == 1.0
    assert quick(PreferenceGP).fit(circle).score(circle) < 1.0


def test_it_agrees_with_sampling():
    """The Laplace approximation of one utility against draws of its prior, weighted by their likelihood.

    It is known to be cautious: the mode of a skewed posterior is nearer to zero than its mean.
    """
    X = np.linspace(-2, 2, 6)[:, None]
    rng = np.random.default_rng(3)
    pairs = [[i, j] if rng.random() < ndtr(X[i, 0] - X[j, 0]) else [j, i] for i, j in datasets.all_pairs(6)]
    data = ChoiceData.from_pairs(X, pairs)
    one = PreferenceGP(**GIVEN).fit(data)
    u = rng.multivariate_normal(np.zeros(6), 4.0 * np.exp(-0.5 * (X - X.T) ** 2), size=200_000)
    better, worse = np.transpose(pairs)
    weights = np.prod(ndtr(u[:, better] - u[:, worse]), axis=1)
    assert weights.sum() ** 2 > 5000 * np.sum(weights**2), "too few draws count"
    i, j = datasets.all_pairs(6).T
    exact = np.average(ndtr(u[:, i] - u[:, j]), axis=0, weights=weights)
    found = one.predict_pair_proba(X[i], X[j])
    assert np.array_equal(found > 0.5, exact > 0.5)
    assert np.abs(found - exact).mean() < 0.05
    assert np.abs(found - exact).max() < 0.08
    assert np.abs(found - 0.5).mean() < np.abs(exact - 0.5).mean()
    variational = ChoiceGP(1, intervals="none", **GIVEN).fit(data).dominance_proba(X[i], X[j])[:, 0]
    assert np.abs(found - variational).max() < 0.08, "ChoiceGP with one utility is PGP"


def test_sets_of_more_objects_are_answered_by_copelands_rule(fitted, table):
    X, _ = table
    sets = datasets.random_sets(15, 20, 5, random_state=0)
    found = fitted[PreferenceGP].predict(ChoiceData.from_sets(X, sets))
    best = [rows[np.argmax(fitted[PreferenceGP].utilities(X).mean[rows, 0])] for rows in sets]
    assert [rows.tolist() for rows in found] == [[row] for row in best], "with a utility that is its best object"
    assert fitted[PreferenceGP].predict(ChoiceData.from_sets(X, [[4]]))[0].tolist() == [4]


def test_the_utility_is_told(fitted, table):
    X, U = table
    found = fitted[PreferenceGP].utilities(X)
    assert found.mean.shape == found.sd.shape == (15, 1)
    assert np.corrcoef(found.mean[:, 0], U[:, 0])[0, 1] > 0.9
    far = fitted[PreferenceGP].utilities(np.full((1, 2), 100.0))
    assert far.sd[0, 0] > found.sd.max()


@pytest.mark.parametrize("model", MODELS)
def test_every_estimator_has_the_same_manners(model, train, fitted, tmp_path):
    one, two = fitted[model], quick(model).fit(train)
    new = np.random.default_rng(9).normal(size=(2, 10, 2))
    assert np.array_equal(one.predict_pair_proba(*new), two.predict_pair_proba(*new)), "a refit gives the same"
    copied = clone(quick(model, conflicts="random"))
    assert copied.get_params()["conflicts"] == "random"
    assert not copied.__sklearn_is_fitted__()
    with pytest.raises(ChoiceGPError, match=f"this {model.__name__} is not fitted yet"):
        copied.predict(train)
    fitted[model].save(tmp_path / "model.cgp")
    loaded = model.load(tmp_path / "model.cgp")
    assert np.array_equal(loaded.predict_pair_proba(*new), fitted[model].predict_pair_proba(*new))
    assert loaded.fit_result_.status == fitted[model].fit_result_.status
    assert loaded.get_params() == fitted[model].get_params()
    with pytest.raises(ChoiceGPError, match="a file of another kind"):
        ChoiceGP.load(tmp_path / "model.cgp")
    with pytest.raises(ChoiceGPError, match=r"features|columns"):
        fitted[model].predict_pair_proba(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ChoiceGPError, match="as many first as second objects"):
        fitted[model].predict_pair_proba(np.zeros((2, 2)), np.zeros((3, 2)))
    with pytest.raises(ChoiceGPError, match="a ChoiceData is needed; got list"):
        fitted[model].predict([1])


BAD = [
    ({"conflicts": "keep"}, "conflicts must be one of drop, random, majority"),
    ({"n_restarts": 0}, "n_restarts must be a whole number of at least 1"),
    ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
    ({"tol": -1.0}, "tol must be a number"),
    ({"max_seconds": "x"}, "max_seconds must be a number"),
    ({"standardize": 1}, "standardize must be True or False"),
    ({"hyperpriors": 3}, "hyperpriors must be a HyperPriors or None"),
    ({"kernel": "best"}, "kernel"),
    ({"device": "tpu9"}, "device must be"),
    ({"random_state": -1}, "random_state must be a whole number"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(data, options, message):
    with pytest.raises(ChoiceGPError, match=message):
        quick(PreferenceGP, **options).fit(data)


def test_bad_data(table, fitted):
    X, _ = table
    with pytest.raises(ChoiceGPError, match="no preference is left: all 2 pairs of objects were both chosen"):
        quick(PreferenceGP).fit(ChoiceData.from_sets(X, [[0, 1], [1, 2]], [[0, 1], [1, 2]]))
    with pytest.raises(ChoiceGPError, match="these have none"):
        quick(PreferenceGP).fit(ChoiceData.from_sets(X, [[0, 1]]))
    with pytest.raises(ChoiceGPError, match="these data hold no preference"):
        fitted[PreferenceGP].score(ChoiceData.from_sets(X, [[0, 1]], [[0, 1]]))


def test_too_many_pairs_are_a_clear_error(train, monkeypatch):
    monkeypatch.setattr(pairwise, "_MOST", 40)
    with pytest.raises(
        ChoiceGPError, match=r"pairs are more than the 40 that PairGP can factorise.*or use PreferenceGP"
    ):
        quick(PairGP).fit(train)
    quick(PreferenceGP).fit(train)  # 15 objects


def test_conflicts_are_settled_by_the_rule(table):
    X, U = table
    two = np.column_stack([U[:, 0], -X[:, 0], X[:, 1]])
    conflicting = ChoiceData.from_utilities(X, two, datasets.all_pairs(15))
    model = quick(PreferenceGP, conflicts="majority").fit(conflicting, outputs=two)
    assert "pairs in conflict: majority" in model.fit_result_.notes[0]
    assert 0.5 < model.score(conflicting, outputs=two) <= 1.0


def test_time_and_steps_are_kept(train):
    short = PreferenceGP(max_iter=1, n_restarts=1, tol=0.0, progress=False).fit(train)
    assert short.fit_result_.status == "stopped"
    timed = PreferenceGP(max_seconds=0.0, progress=False).fit(train)
    assert timed.fit_result_.status == "stopped"
    assert "time limit" in timed.fit_result_.message


def test_far_and_equal_objects_stay_finite():
    X = np.array([[1e9, 0.0], [1e9, 0.0], [-1e9, 5.0], [0.0, 5.0]])
    data = ChoiceData.from_pairs(X, [[0, 2], [3, 1], [2, 3], [0, 3]] * 3)  # as many as in the circle above
    for model in MODELS:
        p = quick(model).fit(data).predict_pair_proba(X[[0, 1]], X[[1, 3]])
        assert np.isfinite(p).all()
        assert p[0] == pytest.approx(0.5), "equal objects"
