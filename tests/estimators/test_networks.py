"""Sparse fits that may see a network's outputs."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from choicegp import ChoiceGP, Sparse, datasets
from choicegp.compute.progress import Clock
from choicegp.fitting import sparse
from choicegp.fitting.methods import Auto
from choicegp.inference.driver import Watch

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


def attempt(judged=(), parts=(), n_points=4, held_out=(1, 2)):
    """A fit that has ended, of which nothing is known but what the held-out sets say."""
    reached = float(np.mean(parts)) if len(parts) else -1.0
    points = np.zeros((1, n_points, 1))
    return SimpleNamespace(
        judged=np.array(judged), parts=np.array(parts), reached=reached, points=points, held_out=held_out
    )


BEFORE = np.array([-0.9, -1.0, -1.1, -1.0])
CLEAR, TIE = (BEFORE + np.array(gain) for gain in ([0.1, 0.2, 0.1, 0.2], [0.4, -0.3, 0.1, 0.0]))


@pytest.mark.parametrize("what", ["judged", "parts"])
def test_a_later_attempt_is_better_where_the_held_out_sets_clearly_say_so(what):
    before = attempt(**{what: BEFORE})
    assert sparse._is_better(attempt(**{what: CLEAR}), before)
    assert not sparse._is_better(attempt(**{what: TIE}), before)  # it is ahead, by less than two standard errors
    words = sparse._compared("now", attempt(**{what: CLEAR}), "then", before)
    name = {"judged": "log score", "parts": "expected log-likelihood"}[what]
    assert words == f"{name} of the held-out sets -0.8500 now, -1.0000 then"


def test_an_attempt_that_was_not_judged_does_not_replace_one_that_was():
    before, later = attempt(judged=BEFORE), attempt(parts=BEFORE + 0.9)
    assert not sparse._is_better(later, before)
    assert sparse._compared("now", later, "then", before).endswith("had no time to be judged, the fit then stands")
    assert not sparse._is_better(attempt(held_out=()), attempt(held_out=()))


@pytest.mark.parametrize(
    ("before", "seconds", "why"),
    [
        (attempt(judged=BEFORE), None, None),
        (attempt(held_out=()), None, "no sets were held out"),
        (attempt(parts=BEFORE), 0.0, "the time limit of 0 s had passed"),
        (attempt(parts=BEFORE), None, "held-out sets do not judge sets of more than ten objects, thresholds"),
        (attempt(judged=BEFORE, n_points=8), None, "there were 8 already, and there can be 8"),
    ],
)
def test_why_inducing_points_were_not_grown(before, seconds, why):
    found = sparse._why_not_grown(before, 8, Watch(Clock(seconds)))
    assert found is None if why is None else found.startswith(why)


@pytest.mark.parametrize(
    ("method", "why"),
    [(Sparse(n_inducing=3, max_iter=10, grow=True), "no sets were held out"), (Auto(grow=True, max_iter=3), "dense")],
)
def test_a_note_says_that_inducing_points_were_not_grown(data, method, why):
    options = {"n_restarts": 1, "kernel": "rbf", "intervals": "none", "object_effects": False, "progress": False}
    notes = ChoiceGP(1, inference=method, **options).fit(data.take(np.arange(20))).fit_result_.notes
    assert any(note.startswith(f"inducing points were not grown, because {why}") for note in notes)
