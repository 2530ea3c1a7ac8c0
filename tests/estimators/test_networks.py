"""Sparse fits that may see a network's outputs."""

import json

import numpy as np
import pytest

from choicegp import ChoiceGP, Sparse, datasets

TINY = {"width": 8, "batch_size": 64, "n_steps": 500, "rates": (1e-2,)}


@pytest.fixture(scope="module")
def data():
    return datasets.made_choices("ratios", n_sets=1100, set_size=3).data


def fitted(data, monkeypatch, promising: float) -> ChoiceGP:
    monkeypatch.setattr("choicegp.fitting.sparse._LEAST_FOR_NETWORK", 1000)
    monkeypatch.setattr("choicegp.fitting.sparse._PROMISING", promising)
    monkeypatch.setitem(__import__("choicegp.fitting.sparse").fitting.sparse._NETWORK, True, TINY)
    method = Sparse(n_inducing=4, batch_size=8, max_iter=20)
    return ChoiceGP(2, inference=method, n_restarts=1, progress=False).fit(data)


def test_a_network_that_scores_higher_is_kept_and_saved(data, monkeypatch, tmp_path):
    model = fitted(data, monkeypatch, 1e9)
    note, sure, scores = model.fit_result_.notes[:3]
    assert sure.startswith("held-out sets: utilities times")
    assert scores.startswith("log score of the held-out sets")
    with_network, without = (float(word) for word in scores.replace(",", "").split() if word.startswith("-"))
    assert with_network > without  # four inducing points and twenty steps learn next to nothing by themselves
    assert note.endswith("start: a network")
    model.save(tmp_path / "model")
    assert json.loads(str(np.load(tmp_path / "model")["about"]))["version"] == 6
    loaded = ChoiceGP.load(tmp_path / "model")
    some = data.take(np.arange(20))
    assert np.array_equal(loaded.log_prob(some), model.log_prob(some))
    assert model.score(some) > 0.6


def test_a_network_that_is_far_behind_is_not_fitted(data, monkeypatch):
    model = fitted(data, monkeypatch, 1e-9)
    assert "network" not in " ".join(model.fit_result_.notes)


@pytest.mark.parametrize(("clearly", "n_points"), [(-1e9, 6), (1e9, 3)])
def test_inducing_points_grow_while_the_held_out_sets_gain(data, monkeypatch, clearly, n_points):
    monkeypatch.setattr("choicegp.fitting.sparse._CLEARLY", clearly)
    monkeypatch.setattr("choicegp.fitting.sparse._MOST_INDUCING", 6)
    method = Sparse(n_inducing=3, batch_size=8, max_iter=10, network=False, grow=True)
    model = ChoiceGP(2, inference=method, n_restarts=1, kernel="rbf", progress=False).fit(data)
    assert model.posterior_.objects.X.shape[1] == n_points
    assert "with 6 inducing points" in model.fit_result_.notes[2]
    assert model.fit_result_.notes[0].endswith("inducing points" if n_points == 6 else "lengthscales times 1")
