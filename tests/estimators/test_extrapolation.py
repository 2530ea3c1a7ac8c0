"""A prediction for objects outside the training range warns once; scores and what is done inside a fit do not."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from choicegp import (
    BatchPreferenceGP,
    ChoiceData,
    ChoiceGP,
    ExtrapolationWarning,
    ParetoEmbedding,
    PreferenceGP,
    search_embedding,
    select_n_utilities,
)
from choicegp.errors import ChoiceGPError

N_FAR = "2 of 6 objects lie outside what was shown in training: price 50 (shown 0 to 9, 2 objects)"
ESTIMATORS = {
    "ChoiceGP": ChoiceGP(1, intervals="none", n_restarts=1, max_iter=10, progress=False),
    "BatchPreferenceGP": BatchPreferenceGP(n_restarts=1, max_iter=10, progress=False),
    "PreferenceGP": PreferenceGP(n_restarts=1, max_iter=5, progress=False),
    "ParetoEmbedding": ParetoEmbedding(1, max_epochs=5, progress=False),
}
CALLS = {
    "predict": ESTIMATORS,
    "predict_proba": ("ChoiceGP", "BatchPreferenceGP", "PreferenceGP"),
    "predict_frame": ESTIMATORS,
    "utilities": ESTIMATORS,
    "recommend": ("ChoiceGP", "BatchPreferenceGP"),
}


def table(prices) -> pd.DataFrame:
    return pd.DataFrame({"price": np.array(prices, float), "colour": ["red", "blue"] * (len(prices) // 2)})


def pairs(objects: pd.DataFrame) -> ChoiceData:
    """Show neighbours in the table; the dearer one is chosen."""
    shown = [[k, k + 1] for k in range(len(objects) - 1)]
    return ChoiceData.from_sets(objects, shown, [[max(rows, key=lambda row: objects["price"][row])] for rows in shown])


@pytest.fixture(scope="module")
def train():
    return pairs(table(range(10)))


@pytest.fixture(scope="module")
def fitted(train):
    return {name: estimator.fit(train) for name, estimator in ESTIMATORS.items()}


@pytest.fixture(scope="module")
def far():
    return pairs(table([3, 50, 5, 50, 7, 8]))


def warned(call, *arguments) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments)
    return caught


@pytest.mark.parametrize(("call", "name"), [(call, name) for call, names in CALLS.items() for name in names])
def test_a_call_warns_once_and_points_at_the_caller(call, name, fitted, far, train):
    (found,) = warned(getattr(fitted[name], call), far)
    assert found.category is ExtrapolationWarning
    assert str(found.message).startswith(N_FAR)
    assert found.filename == __file__
    assert warned(getattr(fitted[name], call), train) == []


def test_tables_and_pairs_of_tables_are_looked_at(fitted, far, tmp_path):
    near, beyond = table([3, 4]), table([50, 4])
    calls = {
        "utilities": (beyond,), "recommend": (beyond,), "sample_utilities": (beyond, 2),
        "dominance_proba": (beyond, near),
    }  # fmt: skip
    for call, arguments in calls.items():
        (found,) = warned(getattr(fitted["ChoiceGP"], call), *arguments)
        assert "price 50 (shown 0 to 9, 1 object)" in str(found.message)
    (found,) = warned(fitted["ChoiceGP"].dominance_proba, beyond, beyond)
    assert str(found.message).startswith("2 of 4 objects")
    (found,) = warned(fitted["PreferenceGP"].predict_pair_proba, near, beyond)
    assert str(found.message).startswith("1 of 4 objects")
    (found,) = warned(fitted["ChoiceGP"].predict_file, far, tmp_path / "p.parquet")
    assert str(found.message).startswith(N_FAR)
    assert found.filename == __file__


def test_of_sets_only_shown_objects_count(fitted):
    hidden = ChoiceData.from_sets(table([3, 4, 5, 50]), [[0, 1], [1, 2]])
    assert warned(fitted["ChoiceGP"].predict, hidden) == []
    assert len(warned(fitted["ChoiceGP"].utilities, hidden)) == 1


def test_objects_of_the_training_table_that_were_not_shown_count_as_new(train):
    data = ChoiceData.from_sets(table([*range(10), 50, 51]), train.shown, train.chosen)
    model = ChoiceGP(1, intervals="none", n_restarts=1, max_iter=5, progress=False).fit(data)
    (found,) = warned(model.utilities, data)
    assert str(found.message).startswith("2 of 12 objects")
    assert warned(model.predict, data) == []


def test_scores_are_silent(fitted, far):
    for model in fitted.values():
        assert warned(model.score, far) == []
    for name in ("ChoiceGP", "BatchPreferenceGP", "PreferenceGP"):
        assert warned(fitted[name].log_prob, far) == []


@pytest.mark.parametrize("name", ["ChoiceGP", "ParetoEmbedding"])
def test_a_table_that_cannot_be_made_comes_without_a_warning(name, fitted, far, monkeypatch):
    def refused(*arguments):
        raise ChoiceGPError("not these sets")

    for step in ("_table", "_choices"):
        monkeypatch.setattr(type(fitted[name]), step, refused, raising=False)

    def asked():
        with pytest.raises(ChoiceGPError, match="not these sets"):
            fitted[name].predict_frame(far)

    assert warned(asked) == []


def test_a_refusal_comes_without_a_warning(fitted, far):
    def refused():
        with pytest.raises(ValueError, match="has no probabilities"):
            fitted["ParetoEmbedding"].predict_proba(far)

    assert warned(refused) == []


def test_a_saved_model_warns_too(fitted, far, tmp_path):
    for name, model in fitted.items():
        model.save(tmp_path / name)
        (found,) = warned(type(model).load(tmp_path / name).predict, far)
        assert str(found.message).startswith(N_FAR)
    # A file may lack the data of a model that does not need them.
    without = ParetoEmbedding()._keep(fitted["ParetoEmbedding"].fitted_._replace(data=None))
    assert warned(without.predict, far) == []


@pytest.mark.parametrize("call", ["cross-validation", "selection", "search"])
def test_what_holds_sets_out_is_silent(call):
    """One fold holds out the only set that shows the upper end of the range, and so does the search."""
    objects = table([*range(9), 100])
    # Every other object is in so many sets that all folds show it: programs of few shapes serve them.
    shown = [[k, k + step] for step in (1, 2, 3) for k in range(9 - step)]
    shown[-1] = [8, 9]
    data = ChoiceData.from_sets(objects, shown, [rows[1:] for rows in shown])
    seed = next(k for k in range(99) if 9 in data.split(0.2, random_state=k)[1].flat_shown)
    quick = {"intervals": "none", "object_effects": False, "n_restarts": 1, "max_iter": 3, "progress": False}
    calls = {
        "cross-validation": lambda: cross_val_score(ChoiceGP(1, **quick), data, cv=3),
        "selection": lambda: select_n_utilities(data, 2, folds=3, contenders="all", n_jobs=1, **quick),
        "search": lambda: search_embedding(data, n_rounds=2, max_epochs=2, random_state=seed, progress=False),
    }
    assert [found for found in warned(calls[call]) if found.category is ExtrapolationWarning] == []
