"""What is measured on one data set is what the protocol says."""

from types import SimpleNamespace

import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.experiments import honesty_data, honesty_measures
from choicegp.experiments.honesty_measures import aligned, coverage, jump, surely_dominated, tenths


class FakeModel:
    """What is used of `ChoiceGP`: draws around given utilities, and one probability for all objects."""

    fit_result_, intervals_ = SimpleNamespace(status="converged", notes=("dense",)), "draws"
    fitted_ = SimpleNamespace(has_effects=False)

    def __init__(self, U, sd, probability=0.5):
        self.U, self.sd, self.probability = U, sd, probability

    def sample_utilities(self, data, n_samples, random_state):
        assert isinstance(data, ChoiceData), "rows of an array would be new objects"
        draws = np.random.default_rng(random_state).normal(size=(n_samples, len(data.X), self.U.shape[1]))
        return self.U[: len(data.X)] + self.sd * draws

    def predict_proba(self, data):
        return [np.full(len(rows), self.probability) for rows in data.shown]


class TestCoverage:
    @pytest.mark.parametrize(("sd", "low", "high"), [(1.0, 0.9, 1.0), (0.2, 0.2, 0.6), (20.0, 1.0, 1.0)])
    def test_draws_that_are_right_or_too_narrow_or_too_wide(self, sd, low, high):
        rng = np.random.default_rng(0)
        n = 400
        mean = 3 * rng.normal(size=(n, 2))
        data = ChoiceData.from_sets(rng.normal(size=(n, 1)), np.arange(n).reshape(-1, 2))
        truth = mean[:, ::-1] + rng.normal(size=(n, 2))
        found = coverage(FakeModel(mean, sd), honesty_data.SplitAnswers(data, data, data, truth), 0, is_noisy=True)
        assert low <= found["coverage"] <= high
        expected = {1.0: 0.2, 0.2: 0.8, 20.0: 0.0}[sd]
        assert found["outer_tenths"] == pytest.approx(expected, abs=0.06)
        assert found["wrong_signs"] <= 0.1 * max(found["sure_signs"], 1)

    def test_signs_of_a_utility_upside_down_are_wrong(self):
        rng = np.random.default_rng(0)
        U = 9 * rng.normal(size=(40, 1))
        data = ChoiceData.from_sets(rng.normal(size=(40, 1)), np.arange(40).reshape(-1, 2))
        found = coverage(FakeModel(-U, 0.1), honesty_data.SplitAnswers(data, data, data, U), 0, is_noisy=True)
        assert found["wrong_signs"] == found["sure_signs"] > 30

    def test_utilities_are_put_in_the_order_of_the_model(self):
        true = np.random.default_rng(0).normal(size=(30, 3))
        mean = true[:, [2, 0, 1]] + 0.1
        np.testing.assert_array_equal(aligned(mean, true, free_scale=False), true[:, [2, 0, 1]])

    def test_a_free_scale_is_never_negative(self):
        true = np.random.default_rng(0).normal(size=(30, 1))
        np.testing.assert_allclose(aligned(5 * true, true, free_scale=True), 5 * true)
        np.testing.assert_array_equal(aligned(-true, true, free_scale=True), 0 * true)


def test_tenths_count_every_object_of_all_tests():
    data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 3, [[0], [1], [0, 1]])
    found = tenths(FakeModel(np.zeros((2, 1)), 1.0, probability=1.0), [data, data])
    assert found["tenth_count"].tolist() == [0] * 9 + [12]
    assert found["tenth_chosen"][-1] == 8
    assert found["tenth_predicted"][-1] == 12


class TestJump:
    def test_nothing_changes_for_a_model_that_gives_all_the_same(self, monkeypatch):
        U = np.vstack([np.zeros((honesty_data.N_RANKED, 2)), [[-30.0, -30.0]]])
        monkeypatch.setattr(honesty_measures, "ChoiceGP", lambda d, progress, random_state: Fitting(FakeModel(U, 0.1)))
        found = jump({"part": "jump", "d": 2, "seed": 0})
        assert found["certain_sets"] == honesty_data.N_LEMON_TEST
        assert found["mean_change"] == found["change_below"] == 0.0

    def test_a_lemon_that_is_not_certain_is_left_out(self, monkeypatch):
        U = np.zeros((honesty_data.N_RANKED + 1, 2))
        monkeypatch.setattr(honesty_measures, "ChoiceGP", lambda d, progress, random_state: Fitting(FakeModel(U, 0.1)))
        found = jump({"part": "jump", "d": 2, "seed": 0})
        assert found["certain_sets"] == 0
        assert "mean_change" not in found

    def test_one_object_above_is_enough(self):
        lemon = np.zeros((5, 1, 2))
        assert surely_dominated(np.full((5, 3, 2), [-9.0, 9.0]), lemon) < 1e-9
        above = np.full((5, 3, 2), [-9.0, 9.0])
        above[:, 1] = 9.0
        assert surely_dominated(above, lemon) == pytest.approx(1)


class Fitting:
    """A model that is not fitted yet."""

    def __init__(self, model):
        self.model = model

    def fit(self, data):
        return self.model
