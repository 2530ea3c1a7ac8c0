"""Importance sampling against ArviZ and against known weights; nothing overflows."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.inference.problem import Problem
from choicegp.model.likelihood import log_likelihood
from choicegp.selection import psis
from choicegp.selection.psis import choice_log_likelihood, psis_loo

from .conftest import often_shown, posed

one_log_likelihood = jax.jit(log_likelihood)


def some_scores(m=12, n_samples=500, seed=0, scale=1.0):
    return -scale * np.random.default_rng(seed).gamma(2.0, 0.5, size=(m, n_samples))


def test_scores_are_those_of_arviz():
    from arviz_base import from_dict
    from arviz_stats import loo

    scores = some_scores()
    draws = np.zeros((1, 500))
    tree = from_dict({"posterior": {"u": draws}, "log_likelihood": {"choice": scores.T[None]}})
    with warnings.catch_warnings(action="ignore"):  # of k, which is compared below
        theirs = loo(tree, pointwise=True)
    ours = psis_loo(scores, np.ones(12))
    assert ours.elpd == pytest.approx(theirs.elpd)
    # Not their own: ArviZ 0.8 divides the squares by m, as its comparison of models does, and ArviZ 1.3 by m - 1.
    assert ours.se == pytest.approx(np.sqrt(12) * theirs.elpd_i.values.std())
    assert ours.n_effective == pytest.approx(theirs.p)
    np.testing.assert_allclose(ours.pointwise, theirs.elpd_i.values)
    np.testing.assert_allclose(ours.diagnostics.pareto_k, theirs.pareto_k.values)
    assert ours.method == "psis"


def test_leaving_a_set_out_makes_it_less_likely():
    """The sign of the weights: samples under which the set is unlikely count more."""
    result = psis_loo(some_scores(), np.ones(12))
    assert (result.diagnostics.gap > 0).all()


def test_gaussian_data_have_the_exact_answer():
    """One observation of a standard normal mean with unit noise: left out, it has variance 2."""
    rng = np.random.default_rng(1)
    y = np.array([0.3, -0.8])
    posterior = rng.normal(y.sum() / 3, np.sqrt(1 / 3), size=20_000)
    scores = -0.5 * (y[:, None] - posterior) ** 2 - 0.5 * np.log(2 * np.pi)
    other = y[::-1]
    exact = -0.5 * (y - other / 2) ** 2 / 1.5 - 0.5 * np.log(2 * np.pi * 1.5)
    np.testing.assert_allclose(psis_loo(scores, np.ones(2)).pointwise, exact, atol=0.02)


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_extreme_scores_stay_finite_and_are_in_doubt(scale):
    result = psis_loo(some_scores(scale=scale), np.ones(12))
    assert np.isfinite(result.pointwise).all()
    assert result.warning.startswith(f"leave-one-out cannot be trusted on {len(result.doubtful)} sets of 12: ")
    assert "Pareto k above 0.63" in result.warning


def test_a_set_that_says_nothing_scores_zero():
    scores = some_scores(3)
    scores[1] = 0.0
    result = psis_loo(scores, np.ones(3))
    assert (result.pointwise[1], result.diagnostics.pareto_k[1]) == (0.0, 0.0)


@pytest.mark.parametrize("weight", [1.0, 1e6, 1e12])
def test_rounding_is_no_tail_however_large_the_weight(weight):
    scores = np.nextafter(np.full((1, 400), -23.0), np.resize([-np.inf, np.inf], 400))
    result = psis_loo(scores, np.array([weight]))
    assert result.diagnostics.pareto_k[0] == 0.0
    assert result.pointwise[0] == pytest.approx(-23.0 * weight)


def test_the_whole_weight_is_left_out():
    scores = some_scores(2)
    double = psis_loo(scores, np.array([2.0, 1.0]))
    plain = psis_loo(scores, np.ones(2))
    assert double.pointwise[0] < 2 * plain.pointwise[0]
    assert double.pointwise[1] == pytest.approx(plain.pointwise[1])


def test_log_likelihoods_are_those_of_single_sets(monkeypatch):
    monkeypatch.setattr(psis, "_BLOCK", 300)  # several blocks, of which the last overlaps
    data = often_shown(8, 6, 3, 2)
    problem: Problem = posed(data)
    u = np.random.default_rng(0).normal(size=(7, len(problem.valid), 2))
    found = choice_log_likelihood(u, problem, len(data), None)
    codes = np.asarray(problem.objects.codes)
    place = {int(row): i for i, row in reversed(list(enumerate(codes)))}
    for k in range(len(data)):
        rows = [place[int(row)] for row in data.shown[k]]
        chosen = jnp.asarray(np.isin(data.shown[k], data.chosen[k]))
        expected = [one_log_likelihood(jnp.asarray(sample[rows].T), jnp.ones(3, bool), chosen) for sample in u]
        np.testing.assert_allclose(found[k], np.array(expected), rtol=1e-10)


def test_a_set_whose_largest_weights_are_equal_leaves_the_others_as_they_are():
    rng = np.random.default_rng(0)
    others = -rng.exponential(size=(3, 400))
    equal = np.where(np.arange(400) < 300, -0.5, -0.1)  # most samples have the smallest probability: no tail
    alone, together = psis_loo(others, np.ones(3)), psis_loo(np.vstack([others, equal]), np.ones(4))
    np.testing.assert_allclose(together.pointwise[:3], alone.pointwise)
    np.testing.assert_allclose(together.diagnostics.pareto_k[:3], alone.diagnostics.pareto_k)
    assert together.diagnostics.pareto_k[3] == 0.0
    assert together.pointwise[3] == pytest.approx(-np.log(np.mean(np.exp(-equal))))  # the harmonic mean


def test_what_arviz_refuses_for_another_reason_is_in_doubt(monkeypatch):
    from arviz_stats.base import array_stats

    def refuse(*_, **__):
        raise ValueError("some other reason")

    monkeypatch.setattr(type(array_stats), "psislw", refuse)
    equal = np.where(np.arange(400) < 300, -0.5, -0.1)
    result = psis_loo(np.vstack([some_scores(1, 400)[0], equal]), np.ones(2))
    assert result.diagnostics.pareto_k.tolist() == [np.inf, 0.0]
    assert result.doubtful.tolist() == [0]
    assert psis_loo(some_scores(1, 20), np.ones(1)).doubtful.tolist() == [0]  # too few for a tail
