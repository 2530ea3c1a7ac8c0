"""Folds: each set is scored once, by models that have not seen it."""

from typing import NamedTuple

import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.selection import folds
from choicegp.selection.folds import cross_validated
from choicegp.selection.search import Search

N_SETS = 11


@pytest.fixture
def data():
    sets = [[k, k + 1] for k in range(N_SETS)]
    return ChoiceData.from_sets(
        np.arange(N_SETS + 1.0)[:, None], sets, [[k] for k in range(N_SETS)], weights=np.arange(1.0, N_SETS + 1)
    )


class Model:
    """Scores a set by its first object and by its own number of utilities; it must not have seen the set."""

    def __init__(self, d, seen):
        self.d, self.seen = d, {int(shown[0]) for shown in seen.shown}


class Scores:
    """Stands for the predictor of such a model."""

    def __init__(self, model, data):
        self.model, self.first = model, np.array([int(shown[0]) for shown in data.shown])

    of = classmethod(lambda cls, model, data: cls(model, data))

    def log_probabilities(self, *, normalized):
        assert not normalized
        assert not self.model.seen & set(self.first.tolist())
        assert len(self.model.seen) + len(self.first) == N_SETS
        return -self.model.d - self.first / 100.0


class Options(NamedTuple):
    lapse: float = 0.1
    n_jobs: int | None = None


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def unjudged(self, numbers):
        calls.append((sorted(int(shown[0]) for shown in self.data.shown), self.options))
        return {d: Model(d, self.data) for d in numbers}

    monkeypatch.setattr(Search, "unjudged", unjudged)
    monkeypatch.setattr(folds, "choice_predictor", Scores)
    return calls


def scores(data, n_jobs=1, random_state=0, progress=False):
    search = Search(data, Options(), "auto")
    return cross_validated(search, {3, 2}, 4, random_state=random_state, n_jobs=n_jobs, progress=progress)


def test_every_set_is_scored_once_by_models_that_have_not_seen_it(data, asked):
    found = scores(data)
    assert sorted(found) == [2, 3]
    for d, own in found.items():
        np.testing.assert_allclose(own.pointwise, np.arange(1.0, 12.0) * (-d - np.arange(11.0) / 100.0))
        assert own.elpd == pytest.approx(own.pointwise.sum())
    assert sorted(len(kept) for kept, _ in asked) == [8, 8, 8, 9]
    assert all(options == Options() for _, options in asked)


def test_folds_side_by_side_have_one_core_each(data, asked):
    np.testing.assert_array_equal(scores(data, n_jobs=2)[3].pointwise, scores(data)[3].pointwise)
    assert [options.n_jobs for _, options in asked] == [1] * 4 + [None] * 4
    beside, alone = ({tuple(kept) for kept, _ in part} for part in (asked[:4], asked[4:]))
    assert beside == alone


def test_the_folds_follow_from_the_random_state(data, asked):
    for random_state in (0, 0, 1):
        scores(data, random_state=random_state)
    kept = [sets for sets, _ in asked]
    assert kept[:4] == kept[4:8]
    assert kept[:4] != kept[8:]


def test_progress_is_shown_on_request(data, asked, capfd):
    scores(data, progress=True)
    assert "4 of 4 folds of the cross-validation" in " ".join(capfd.readouterr().err.split())


def test_a_fold_for_which_there_is_no_time_leaves_no_scores(data, asked, monkeypatch):
    models = Search.unjudged
    monkeypatch.setattr(Search, "unjudged", lambda self, numbers: None if len(asked) == 2 else models(self, numbers))
    assert scores(data) == {}
