"""The search for the options of a ParetoEmbedding: what is proposed, how it is judged, and what is refused."""

import sys

import numpy as np
import optuna
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGPError, ParetoEmbedding, metrics, search_embedding
from choicegp.estimators import pareto_embedding
from choicegp.estimators.pareto_embedding import EmbeddingSearch

FIXED = {"n_layers": 1, "n_units": 16, "max_epochs": 10}


@pytest.fixture(scope="module")
def found(easy) -> EmbeddingSearch:
    return search_embedding(easy[0], n_rounds=4, **FIXED)


def test_the_search_refits_the_best_round(easy, found):
    model, table = found
    assert isinstance(model, ParetoEmbedding)
    assert len(table) == 4
    best = table["a_mean"].argmax()
    weights = table[["weight_chosen", "weight_rejected", "weight_distances", "weight_size"]]
    assert weights.sum(axis=1).to_numpy() == pytest.approx(np.ones(4))
    assert weights.nunique().tolist() == [4] * 4
    assert model.weights == pytest.approx(tuple(weights.iloc[best]))
    assert model.learning_rate == table["learning_rate"].iloc[best]
    again = ParetoEmbedding(**model.get_params()).fit(easy[0])
    assert np.array_equal(again.utilities(easy[1]).mean, model.utilities(easy[1]).mean), "all sets were fitted"


def test_the_first_round_takes_the_defaults(found):
    first, defaults = found.table.iloc[0], ParetoEmbedding().get_params()
    names = ["weight_chosen", "weight_rejected", "weight_distances", "weight_size"]
    assert tuple(first[names]) == pytest.approx(defaults["weights"])
    assert first["learning_rate"] == defaults["learning_rate"]
    assert found.table["a_mean"].max() >= first["a_mean"]


def test_rounds_are_judged_by_sets_that_were_not_fitted(easy, found):
    training, judging = easy[0].split(0.2, random_state=0)
    row = found.table.iloc[0]
    weights = tuple(row[["weight_chosen", "weight_rejected", "weight_distances", "weight_size"]])
    model = ParetoEmbedding(weights=weights, learning_rate=row["learning_rate"], **FIXED).fit(training)
    assert row["a_mean"] == pytest.approx(metrics.a_mean(judging, model.predict(judging)))
    assert row["exact_accuracy"] == pytest.approx(model.score(judging))


def test_the_search_is_repeatable(easy, found):
    again = search_embedding(easy[0], n_rounds=4, **FIXED).table
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), found.table.drop(columns="seconds"))
    other = search_embedding(easy[0], n_rounds=2, random_state=1, **FIXED).table
    assert other["learning_rate"][1] != found.table["learning_rate"][1]


def test_what_is_given_is_not_searched(easy):
    given = {"weights": (1, 1, 0, 0), "learning_rate": 0.01, "max_epochs": 1}
    model, table = search_embedding(easy[0].take(range(10)), n_rounds=2, **given)
    assert table["weight_chosen"].tolist() == [0.5] * 2
    assert table["learning_rate"].tolist() == [0.01] * 2
    assert table["n_layers"][1] in {1, 2, 3}
    assert table["n_units"][1] in {16, 32, 64, 128}
    assert model.weights == (1, 1, 0, 0)


def test_a_round_that_fails_does_not_end_the_search(easy, monkeypatch):
    fit, calls = ParetoEmbedding.fit, []

    def spoilt(self, data, y=None):
        calls.append(1)
        if len(calls) == 1:
            raise ChoiceGPError("the fit failed")
        return fit(self, data, y)

    monkeypatch.setattr(pareto_embedding.ParetoEmbedding, "fit", spoilt)
    model, table = search_embedding(easy[0], n_rounds=2, **FIXED)
    assert table["status"][0] == "failed: the fit failed"
    assert table["a_mean"].isna().tolist() == [True, False]
    assert model.learning_rate == table["learning_rate"][1]
    calls.clear()
    with pytest.raises(ChoiceGPError, match="every round of the search failed: failed: the fit failed"):
        search_embedding(easy[0], n_rounds=1, **FIXED)


def test_the_search_keeps_silent(easy, caplog):
    # Optuna tells of every study that is begun, to a handler of its own.
    optuna.logging.enable_propagation()
    before = optuna.logging.get_verbosity()
    search_embedding(easy[0], n_rounds=1, **FIXED)
    optuna.logging.disable_propagation()
    assert caplog.records == []
    assert optuna.logging.get_verbosity() == before


def test_wrong_searches_are_named(easy, monkeypatch):
    train, _ = easy
    with pytest.raises(ChoiceGPError, match="n_rounds must be a whole number of at least 1; got 0"):
        search_embedding(train, 0)
    with pytest.raises(ChoiceGPError, match="search_embedding has no option 'kernel'"):
        search_embedding(train, kernel="rbf")
    with pytest.raises(ChoiceGPError, match="patience must be a whole number"):
        search_embedding(train, patience=0)
    with pytest.raises(ChoiceGPError, match="search_embedding takes a ChoiceData"):
        search_embedding(train.X)
    with pytest.raises(ChoiceGPError, match="search_embedding needs data with choices"):
        search_embedding(ChoiceData.from_sets(train.X, train.shown))
    with pytest.raises(ChoiceGPError, match="at least two sets"):
        search_embedding(train.take([0]))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ChoiceGPError, match=r'needs Optuna.*pip install "choicegp\[search\]"'):
        search_embedding(train)
