"""Intervals from draws: one draw more must lie inside with 95%, however few the draws are."""

import numpy as np
import pytest

from choicegp.prediction.draw_intervals import interval_of_draws

N = 4000


def coverage(n_settings: int, n_draws: int, share: float) -> tuple[float, float]:
    """Return how often one draw more is inside, and between quantiles; settings decide a share of the variance."""
    rng = np.random.default_rng([n_settings, n_draws])
    of_setting = np.sqrt(share) * rng.normal(size=(n_settings + 1, 1, N))
    draws = of_setting + np.sqrt(1.0 - share) * rng.normal(size=(n_settings + 1, n_draws, N))
    known, more = draws[:-1], draws[-1, 0]
    low, high = interval_of_draws(known)
    ends = np.quantile(known.reshape(-1, N), [0.025, 0.975], axis=0)
    return float(np.mean((low <= more) & (more <= high))), float(np.mean((ends[0] <= more) & (more <= ends[1])))


@pytest.mark.parametrize("n_settings", [8, 16, 32])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_one_draw_more_is_inside_with_95_percent_or_a_little_more(n_settings, share):
    inside, between_quantiles = coverage(n_settings, 4, share)
    assert 0.94 < inside < 0.98
    assert between_quantiles < inside - 0.005


def test_settings_that_decide_alone_make_intervals_a_little_too_wide():
    inside, between_quantiles = coverage(32, 16, 1.0)
    assert 0.955 < inside < 0.985
    assert between_quantiles < 0.95


def test_many_independent_draws_have_their_quantiles():
    draws = np.random.default_rng(0).normal(size=(1, 4000, 3)) ** 3
    low, high = interval_of_draws(draws)
    np.testing.assert_allclose(low, np.quantile(draws[0], 0.025, axis=0), rtol=0.005)
    np.testing.assert_allclose(high, np.quantile(draws[0], 0.975, axis=0), rtol=0.005)


def test_draws_that_are_equal_have_an_interval_without_width():
    low, high = interval_of_draws(np.ones((4, 2, 3)))
    np.testing.assert_array_equal(low, np.ones(3))
    np.testing.assert_array_equal(high, np.ones(3))


def test_a_long_tail_remains_one():
    draws = np.exp(np.repeat(np.random.default_rng(1).normal(size=(32, 1, 50)), 4, axis=1))
    low, high = interval_of_draws(draws)
    middle = np.median(draws, axis=(0, 1))
    assert np.all(high - middle > middle - low)
