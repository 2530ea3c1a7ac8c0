"""Paired differences, and the rule by which a number of utilities is chosen."""

import numpy as np
import pytest

from choicegp.selection.compare import HeldOut, differences_to_best, smallest_within_one_se, undecided
from choicegp.selection.loo import PsisDiagnostics, loo_result


def scored(pointwise):
    pointwise = np.asarray(pointwise, float)
    none = PsisDiagnostics(np.zeros(len(pointwise)), np.zeros(len(pointwise)))
    return loo_result(pointwise, none, np.zeros(0, int), "", ())


def test_the_standard_error_is_that_of_the_difference():
    rng = np.random.default_rng(0)
    hard = rng.normal(-5.0, 10.0, size=40)  # the same sets are hard for both
    edge = rng.normal(0.3, 0.1, size=40)
    found = differences_to_best({"a": scored(hard), "b": scored(hard + edge)})
    assert found["b"] == (0.0, 0.0)
    assert found["a"].elpd == pytest.approx(-edge.sum())
    assert found["a"].se == pytest.approx(np.sqrt(40) * edge.std())
    assert found["a"].se < 1.0 < scored(hard).se


@pytest.mark.parametrize(
    ("gains", "noise", "chosen"),
    [
        ([0.0, 1.0, 1.0], 0.5, 2),  # the third is no better
        ([0.0, 0.01, 0.02], 1.0, 1),  # no difference is beyond its standard error
        ([0.0, 1.0, 2.0], 0.1, 3),
        ([1.0, 0.0, -1.0], 0.1, 1),
    ],
)
def test_the_smallest_within_one_standard_error(gains, noise, chosen):
    rng = np.random.default_rng(1)
    base = rng.normal(size=50)
    waves = [noise * np.cos(2 * np.pi * (d + 1) * np.arange(50) / 50) for d in range(3)]
    assert smallest_within_one_se({d + 1: scored(base + gains[d] + waves[d]) for d in range(3)}) == chosen


@pytest.mark.parametrize(
    ("gains", "noise", "left"),
    [
        ([0.0, 0.01, 0.02], 1.0, [1, 2, 3]),
        ([0.01, -5.0, 0.02], 1.0, [1, 3]),  # the one in between is clearly worse
        ([0.0, 1.01, 1.0], 0.5, [2]),  # the third is close to the best, but larger
        ([0.0, 1.0, 2.0], 0.1, [3]),
    ],
)
def test_numbers_that_cannot_be_told_from_the_best(gains, noise, left):
    waves = [noise * np.cos(2 * np.pi * (d + 1) * np.arange(50) / 50) for d in range(3)]
    results = {d + 1: HeldOut(gains[d] + waves[d]) for d in range(3)}
    assert undecided(results) == left
    assert smallest_within_one_se(results) == left[0]
