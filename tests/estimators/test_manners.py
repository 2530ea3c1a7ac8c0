"""ChoiceGP has scikit-learn's manners."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.utils.validation import check_is_fitted

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError
from choicegp.kernels import RBF, Additive

from .conftest import equal

METHODS = {
    "predict": lambda model, data: model.predict(data),
    "predict_proba": lambda model, data: model.predict_proba(data),
    "predict_frame": lambda model, data: model.predict_frame(data),
    "log_prob": lambda model, data: model.log_prob(data),
    "score": lambda model, data: model.score(data),
    "utilities": lambda model, data: model.utilities(data.X),
    "sample_utilities": lambda model, data: model.sample_utilities(data.X, 2),
    "dominance_proba": lambda model, data: model.dominance_proba(data.X, data.X),
    "recommend": lambda model, data: model.recommend(data.X),
    "save": lambda model, data: model.save("never.cgp"),
}


def test_init_stores_anything_and_does_nothing_else():
    names = [name for name in inspect.signature(ChoiceGP.__init__).parameters if name != "self"]
    anything = {name: object() for name in names}
    model = ChoiceGP(**anything)
    assert vars(model) == anything
    assert model.get_params() == anything


def test_set_params_and_clone(model):
    changed = clone(model).set_params(n_utilities=3, kernel=RBF() + Additive())
    assert changed.n_utilities == 3
    assert isinstance(clone(changed).kernel.first, RBF)
    assert clone(changed).get_params()["max_iter"] == 30
    with pytest.raises(ValueError, match="ChoiceGP has no parameter 'n_utility': it has n_utilities, inference"):
        changed.set_params(n_utility=3)


def test_a_clone_is_not_fitted_and_does_not_share(model):
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    assert model.n_utilities_ == 2


@pytest.mark.parametrize("method", METHODS)
def test_an_unfitted_model_says_so(method, quick, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChoiceGPError, match=r"not fitted yet: call fit\(data\) first"):
        METHODS[method](quick(), data)
    assert not any(tmp_path.iterdir())


def test_fit_returns_itself_and_names_end_in_an_underscore(quick, data, model):
    unfitted = quick()
    assert unfitted.fit(data, y=[1, 2]) is unfitted
    learned = {name for name in dir(model) if name.endswith("_") and not name.startswith("_")}
    assert set(vars(model)) - set(model.get_params()) <= learned
    assert {"n_utilities_", "elbo_", "fit_result_", "data_", "posterior_", "encoding_"} <= learned
    assert isinstance(model.elbo_, float)
    assert model.data_ is data


def test_fit_does_not_change_parameters(data, quick):
    kernel = RBF(lengthscale=0.5)
    model = quick(kernel=kernel)
    before = dict(model.get_params())
    model.fit(data)
    assert all(model.get_params()[name] is value for name, value in before.items())
    assert kernel.log_lengthscale.shape == ()


def test_the_same_seed_gives_the_same_bits(quick, data, model):
    again = quick().fit(data)
    assert again.elbo_ == model.elbo_
    assert np.array_equal(again.fit_result_.elbo_trace, model.fit_result_.elbo_trace)
    assert np.array_equal(again.posterior_.gain, model.posterior_.gain)
    assert equal(again.predict_proba(data), model.predict_proba(data))
    other = quick(random_state=7).fit(data)
    assert not np.array_equal(other.fit_result_.elbo_trace, model.fit_result_.elbo_trace)


def test_prediction_repeats(model, data):
    for method in ("predict_proba", "log_prob", "predict"):
        assert equal(list(getattr(model, method)(data)), list(getattr(model, method)(data)))


def test_grid_search_and_cross_validation(quick, data):
    grid = [{"n_utilities": [1], "kernel": ["linear"]}, {"n_utilities": [2], "kernel": ["rbf"]}]
    search = GridSearchCV(quick(), grid, cv=2, error_score="raise").fit(data)
    one, two = search.cv_results_["mean_test_score"]
    assert two > one, "one utility cannot explain two chosen objects"
    assert search.best_params_ == {"n_utilities": 2, "kernel": "rbf"}
    assert len(search.predict(data)) == len(data)
    assert search.best_estimator_.data_ == data
    folds = cross_val_score(quick(), data, cv=KFold(2), error_score="raise")
    assert folds.mean() == two


def test_train_test_split(data):
    train, test = train_test_split(data, test_size=6, random_state=0)
    assert isinstance(train, ChoiceData)
    assert (len(train), len(test)) == (18, 6)
    assert not set(train.set_ids) & set(test.set_ids)
    assert np.array_equal(train.X, data.X)


def test_repr(model):
    assert repr(model) == "ChoiceGP(intervals='none', object_effects=False, n_restarts=1, max_iter=30, progress=False)"
    assert "RBF" in repr(ChoiceGP(kernel=RBF() + Additive(), hyperpriors=None))


def test_pickle(model, data):
    copy = pickle.loads(pickle.dumps(model))
    assert equal(copy.predict_proba(data), model.predict_proba(data))
    assert copy.data_ == data
    assert np.array_equal(copy.log_prob(data), model.log_prob(data))
