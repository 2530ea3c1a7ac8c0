"""Moments joined from parts are those of the whole, whatever the size of the numbers."""

import numpy as np
import pytest

from choicegp.data.scaling import FeatureScaling


@pytest.mark.parametrize("unit", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("centre", [0.0, 1e6])
def test_joined_moments_are_those_of_the_whole(unit, centre):
    parts = [np.random.default_rng(n).normal(n, 1.0 + n, size=(5 + n, 2)) + centre for n in range(4)]
    joined = FeatureScaling.of(parts[0] * unit)
    for part in parts[1:]:
        joined = joined.joined(FeatureScaling.of(part * unit))
    whole = np.concatenate(parts)
    assert joined.n == len(whole)
    np.testing.assert_allclose(joined.mean / unit, whole.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(joined.sd / unit, whole.std(axis=0), rtol=1e-8)


def test_the_largest_numbers_do_not_overflow():
    most = np.finfo(float).max
    joined = FeatureScaling.of(np.array([[most]])).joined(FeatureScaling.of(np.array([[-most]])))
    assert joined.mean == 0.0
    assert joined.sd == most


def test_a_feature_that_does_not_vary_has_scale_one():
    joined = FeatureScaling.of(np.full((3, 1), 0.1)).joined(FeatureScaling.of(np.full((7, 1), 0.1)))
    assert joined.scale == 1.0
