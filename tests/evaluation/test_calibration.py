"""Calibration: shares of chosen objects against their predicted probabilities."""

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGPError
from choicegp.metrics import calibration


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 1000, [[int(rng.random() < 0.7)] for _ in range(1000)])


def test_honest_probabilities_lie_on_the_diagonal(data):
    table = calibration(data, [[0.3, 0.7]] * 1000)
    assert table["objects"].tolist() == [1000, 1000]
    np.testing.assert_allclose(table["predicted"], [0.3, 0.7])
    assert np.all((table["low"] < table["predicted"]) & (table["predicted"] < table["high"]))


def test_overconfident_ones_do_not(data):
    table = calibration(data, [[0.05, 0.95]] * 1000)
    assert np.all((table["predicted"] < table["low"]) | (table["predicted"] > table["high"]))


def test_intervals_are_wilsons():
    data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 10, [[1]] * 10)
    table = calibration(data, [[0.0, 1.0]] * 10)
    assert table["observed"].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(table["high"].iloc[0], 0.2775, atol=1e-3)
    assert table["low"].iloc[0] == 0.0


def test_bins(data):
    assert len(calibration(data, [[0.3, 0.7]] * 1000, n_bins=1)) == 1
    assert calibration(data, [[0.0, 1.0]] * 1000, n_bins=4)["objects"].sum() == 2000


@pytest.mark.parametrize(
    ("probabilities", "options", "message"),
    [
        ([[0.3]] * 1000, {}, "one array per set"),
        ([[0.3, 0.7]] * 999, {}, "one array per set"),
        ([[-0.3, 0.7]] * 1000, {}, "between 0 and 1"),
        ([[np.nan, 0.7]] * 1000, {}, "between 0 and 1"),
        ([[0.3, 0.7]] * 1000, {"n_bins": 0}, "n_bins"),
    ],
)
def test_wrong_input_is_told(data, probabilities, options, message):
    with pytest.raises(ChoiceGPError, match=message):
        calibration(data, probabilities, **options)
    with pytest.raises(ChoiceGPError, match="choices"):
        calibration(ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]]), [[0.5, 0.5]])
