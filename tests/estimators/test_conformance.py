"""What every estimator keeps to, so that one loop runs them all."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from choicegp import (
    BatchPreferenceGP,
    ChoiceData,
    ChoiceGP,
    ChoiceGPError,
    GeneralPreferenceGP,
    PairGP,
    ParetoEmbedding,
    PreferenceGP,
    datasets,
)

ESTIMATORS = {
    "ChoiceGP": ChoiceGP(1, n_restarts=1, max_iter=30, progress=False),
    "joint": ChoiceGP(1, inference="joint", n_restarts=1, max_iter=10, progress=False),
    "BatchPreferenceGP": BatchPreferenceGP(n_restarts=1, max_iter=30, progress=False),
    "PreferenceGP": PreferenceGP(n_restarts=1, max_iter=10, progress=False),
    "GeneralPreferenceGP": GeneralPreferenceGP(n_restarts=1, max_iter=10, progress=False),
    "PairGP": PairGP(n_restarts=1, max_iter=10, progress=False),
    "ParetoEmbedding": ParetoEmbedding(1, max_epochs=30, progress=False),
}


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).normal(size=(16, 2))
    return ChoiceData.from_utilities(X, X @ [[1.0], [-0.5]], datasets.all_pairs(16)[:60])


@pytest.fixture(scope="module")
def new():
    X = np.random.default_rng(1).normal(size=(10, 2))
    return ChoiceData.from_utilities(X, X @ [[1.0], [-0.5]], datasets.all_pairs(10))


@pytest.fixture(scope="module")
def fitted(data):
    return {name: clone(estimator).fit(data) for name, estimator in ESTIMATORS.items()}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_returns_itself_and_changes_no_option(name, data):
    estimator = clone(ESTIMATORS[name])
    before = dict(estimator.get_params())
    assert estimator.fit(data) is estimator
    assert estimator.get_params() == before


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_refit_gives_the_same(name, data, new, fitted):
    again = clone(ESTIMATORS[name]).fit(data)
    for one, two in zip(again.predict(new), fitted[name].predict(new), strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_objects_that_were_not_seen_are_predicted(name, new, fitted):
    predicted = fitted[name].predict(new)
    assert all(set(rows) <= set(shown) and len(rows) for rows, shown in zip(predicted, new.shown, strict=True))
    assert fitted[name].score(new) > 0.7
    without = ChoiceData.from_sets(new.X, new.shown)
    assert all(np.array_equal(a, b) for a, b in zip(fitted[name].predict(without), predicted, strict=True))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_sets_of_other_sizes_are_predicted(name, new, fitted):
    mixed = ChoiceData.from_sets(new.X, [[0], [1, 2, 3], [4, 5, 6, 7, 8]])
    sizes = [len(rows) for rows in fitted[name].predict(mixed)]
    assert sizes[0] == 1
    assert all(size >= 1 for size in sizes)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_saved_comes_back(name, new, fitted, tmp_path):
    fitted[name].save(tmp_path / "model")
    loaded = type(fitted[name]).load(tmp_path / "model")
    for one, two in zip(loaded.predict(new), fitted[name].predict(new), strict=True):
        assert np.array_equal(one, two)
    assert loaded.get_params() == fitted[name].get_params()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_wrong_data_are_clear_errors(name, data, fitted):
    fresh = clone(ESTIMATORS[name])
    with pytest.raises(ChoiceGPError, match="not fitted yet"):
        fresh.predict(data)
    with pytest.raises(ChoiceGPError, match="ChoiceData"):
        fresh.fit(np.zeros((3, 2)))
    with pytest.raises(ChoiceGPError, match="choices"):
        fresh.fit(ChoiceData.from_sets(data.X, data.shown))
    wider = ChoiceData.from_sets(np.zeros((3, 5)), [[0, 1]])
    with pytest.raises(ChoiceGPError):
        fitted[name].predict(wider)
    with pytest.raises(ChoiceGPError, match="no parameter 'nonsense'"):
        fresh.set_params(nonsense=1)


@pytest.mark.parametrize("name", ["PreferenceGP", "ParetoEmbedding"])
def test_scikit_learn_crosses_validates(name, data):
    assert np.mean(cross_val_score(clone(ESTIMATORS[name]), data, cv=2)) > 0.6
