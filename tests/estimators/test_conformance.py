"""What every estimator keeps to, so that one loop runs them all."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

from choicegp import (
    MCMC,
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
    "ChoiceGP": ChoiceGP(1, intervals="none", n_restarts=1, max_iter=30, progress=False),
    "mcmc": ChoiceGP(1, inference=MCMC(n_draws=10, n_warm_up=10), object_effects=False, n_restarts=1, progress=False),
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
def test_parameters_are_stored_as_given_and_have_the_declared_types(name):
    kind = type(ESTIMATORS[name])
    declared = {k: v for base in reversed(kind.__mro__) for k, v in vars(base).get("__annotations__", {}).items()}
    parameters = inspect.signature(kind).parameters.values()
    assert {one.name: one.annotation for one in parameters}.items() <= declared.items()
    given = {one.name: object() for one in parameters}
    assert vars(kind(**given)) == given


def test_a_subclass_may_have_parameters_of_its_own():
    class Named(ChoiceGP):
        def __init__(self, name="none", n_utilities=2):
            super().__init__(n_utilities)
            self.name = name

    assert clone(Named("mine", 3)).get_params() == {"name": "mine", "n_utilities": 3}
    assert Named().inference == "auto"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_returns_itself_changes_no_option_and_gives_the_same_again(name, data, new, fitted):
    again = clone(ESTIMATORS[name])
    before = dict(again.get_params())
    assert again.fit(data) is again
    assert again.get_params() == before
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
def test_what_was_learned_is_kept(name, data, fitted, tmp_path):
    model = fitted[name]
    model.save(tmp_path / "model")
    for one in (model, type(model).load(tmp_path / "model")):
        assert one.data_ == data
        assert one.encoding_ == data.encoding
        assert one.fit_result_.status in ("converged", "stopped")
        assert one.fit_result_.seconds > 0
        lines = str(one).splitlines()
        assert lines[0] == repr(one)
        assert lines[1].startswith("Fitted to 60 sets of 16 objects in ")
    assert str(clone(ESTIMATORS[name])) == f"{clone(ESTIMATORS[name])!r}, not fitted"


WITHOUT = {"utilities": {"GeneralPreferenceGP", "PairGP"}, "probabilities": {"ParetoEmbedding"}}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_utilities_are_there_or_refused(name, data, new, fitted):
    if name in WITHOUT["utilities"]:
        with pytest.raises(ChoiceGPError, match=f"{name} has no utilities: it models preferences between two objects"):
            fitted[name].utilities(new)
        return
    found = fitted[name].utilities(new)
    assert found.mean.shape == found.sd.shape == (10, 1)
    # All learned the same utility, on scales of their own.
    assert abs(np.corrcoef(found.mean[:, 0], new.X @ [1.0, -0.5])[0, 1]) > 0.9


@pytest.mark.parametrize("name", ESTIMATORS)
def test_probabilities_are_there_or_refused(name, new, fitted):
    table = fitted[name].predict_frame(new)
    assert len(table) == len(new.flat_shown)
    chosen = np.concatenate([np.isin(a, b) for a, b in zip(new.shown, fitted[name].predict(new), strict=True)])
    assert np.array_equal(table["chosen"], chosen.astype(int))
    if name in WITHOUT["probabilities"]:
        assert list(table) == ["set", "object", "chosen"]
        for method in ("predict_proba", "log_prob"):
            with pytest.raises(ChoiceGPError, match=f"{name} has no probabilities of .* use ChoiceGP for these"):
                getattr(fitted[name], method)(new)
        return
    assert list(table) == ["set", "object", "probability", "chosen"]
    probability = fitted[name].predict_proba(new)
    assert np.array_equal(table["probability"], np.concatenate(probability))
    own = np.array(
        [p[np.isin(shown, rows)][0] for p, shown, rows in zip(probability, new.shown, new.chosen, strict=True)]
    )
    # Of one of two objects: also where a model allows both to be chosen, one utility chooses one.
    assert fitted[name].log_prob(new) == pytest.approx(np.log(own), abs=0.02)


@pytest.mark.parametrize("name", ["PreferenceGP", "GeneralPreferenceGP", "PairGP"])
def test_models_of_pairs_have_no_probabilities_of_larger_sets(name, new, fitted):
    larger = ChoiceData.from_sets(new.X, [[0, 1, 2], [3, 4]], [[0], [3]])
    assert list(fitted[name].predict_frame(larger)) == ["set", "object", "chosen"]
    for method in ("predict_proba", "log_prob"):
        with pytest.raises(ChoiceGPError, match=f"{name} has no probabilities of these choices: it models preferences"):
            getattr(fitted[name], method)(larger)
    both = ChoiceData.from_sets(new.X, [[3, 4]], [[3, 4]])
    with pytest.raises(ChoiceGPError, match="has no probability that two objects are chosen together"):
        fitted[name].log_prob(both)
    with pytest.raises(ChoiceGPError, match="log_prob needs data with choices"):
        fitted[name].log_prob(ChoiceData.from_sets(new.X, [[3, 4]]))


def test_ids_that_no_file_holds_leave_the_data_out(data, new, tmp_path):
    dates = np.arange("2026-01-01", "2026-01-17", dtype="datetime64[D]")
    named = ChoiceData.from_sets(data.X, data.shown, data.chosen, object_ids=list(dates.astype(object)))
    model = clone(ESTIMATORS["PreferenceGP"]).fit(named)
    model.save(tmp_path / "model")
    loaded = PreferenceGP.load(tmp_path / "model")
    assert np.array_equal(loaded.utilities(new).mean, model.utilities(new).mean)
    assert str(loaded).splitlines()[1].startswith("Fitted in ")
    with pytest.raises(ChoiceGPError, match="the file of this model does not hold its training data"):
        _ = loaded.data_


@pytest.mark.parametrize("name", ["PreferenceGP", "ParetoEmbedding"])
def test_without_a_seed_one_is_drawn(name, data, new):
    model = clone(ESTIMATORS[name]).set_params(random_state=None).fit(data)
    assert model.random_state is None
    assert len(model.predict(new)) == len(new)
    assert name == "ParetoEmbedding" or "the seed was drawn" in model.fit_result_.notes[-1]


@pytest.mark.parametrize("name", ["ChoiceGP", "BatchPreferenceGP"])
def test_questions_need_no_seed(name, new, fitted):
    model = fitted[name]
    samples = [model.sample_utilities(new, 2, random_state=None) for _ in range(2)]
    assert not np.array_equal(*samples)
    assert len(model.recommend(new, 3, random_state=None)) == 3
    assert model.loo(random_state=None).elpd == pytest.approx(model.loo().elpd, abs=1.0)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_wrong_data_are_clear_errors(name, data, fitted):
    fresh = clone(ESTIMATORS[name])
    with pytest.raises(ChoiceGPError, match="not fitted yet"):
        fresh.predict(data)
    with pytest.raises(ChoiceGPError, match="ChoiceData"):
        fresh.fit(np.zeros((3, 2)))
    for method in ("predict", "predict_proba", "predict_frame", "log_prob", "score"):
        with pytest.raises(ChoiceGPError, match="not fitted yet"):
            getattr(fresh, method)(data)
    for method in ("predict", "predict_frame", "score"):
        with pytest.raises(ChoiceGPError, match="ChoiceData"):
            getattr(fitted[name], method)(np.zeros((3, 2)))
    with pytest.raises(ChoiceGPError, match="choices"):
        fresh.fit(ChoiceData.from_sets(data.X, data.shown))
    wider = ChoiceData.from_sets(np.zeros((3, 5)), [[0, 1]])
    with pytest.raises(ChoiceGPError):
        fitted[name].predict(wider)
    with pytest.raises(ChoiceGPError, match="no parameter 'nonsense'"):
        fresh.set_params(nonsense=1)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_not_learned_yet_is_an_attribute_error_that_names_it(name, fitted):
    fresh, kind = clone(ESTIMATORS[name]), type(ESTIMATORS[name]).__name__
    learned = [n for n in dir(fitted[name]) if n.endswith("_") and not n.startswith("_")]
    assert {"fitted_", "fit_result_", "data_", "encoding_"} <= set(learned)
    for attribute in learned:
        message = rf"this {kind} is not fitted yet and has no attribute '{attribute}': call fit\(data\) first"
        with pytest.raises(AttributeError, match=message) as raised:
            getattr(fresh, attribute)
        assert raised.value.name == attribute
        assert not hasattr(fresh, attribute)
        assert hasattr(fitted[name], attribute)
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
    check_is_fitted(fitted[name])
    for model in (fresh, fitted[name]):
        with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute 'nonsense'"):
            _ = model.nonsense
        assert pickle.loads(pickle.dumps(copy.deepcopy(model))).get_params() == model.get_params()


@pytest.mark.parametrize("name", ["PreferenceGP", "ParetoEmbedding"])
def test_scikit_learn_crosses_validates(name, data):
    assert np.mean(cross_val_score(clone(ESTIMATORS[name]), data, cv=2)) > 0.6
