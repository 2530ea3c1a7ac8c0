"""Answers drawn from sets that are too large to enumerate, against enumeration where it is possible."""

import jax
import numpy as np
import pytest

from choicegp.model.likelihood import log_likelihood, subset_probabilities
from choicegp.prediction import answers
from choicegp.prediction.answers import MAX_CONTENDERS, draw_chances, mean_answers, proposals, sampled_answers

drawn_at = jax.jit(sampled_answers)
mean_at = jax.jit(mean_answers)
log_likelihood_at = jax.jit(log_likelihood)


def utilities(d, a, m, n_samples, scale, seed=0):
    """Samples (d, a, m, S) around utilities that differ between objects by about ``scale``, in units of the error."""
    rng = np.random.default_rng(seed)
    return scale * (rng.normal(size=(d, a, m, 1)) + 0.3 * rng.normal(size=(d, a, m, n_samples)))


def chances_of(u, seed=1):
    return draw_chances(*u.shape[:2], u.shape[-1], np.random.default_rng(seed))


def members(a):
    return (np.arange(2**a)[:, None] >> np.arange(a)) & 1


@pytest.mark.parametrize(("a", "d"), [(5, 2), (5, 1), (6, 3), (8, 2), (9, 3)])
def test_inclusion_is_that_of_all_subsets(a, d):
    table_at = jax.jit(subset_probabilities)
    for scale in (0.3, 1.0, 5.0):
        u = utilities(d, a, 6, 128, scale)
        table = np.asarray(table_at(u))
        wanted = np.einsum("ca,cm->am", members(a), (table / table.sum(axis=0)).mean(axis=-1))
        error = np.abs(np.asarray(mean_at(u, chances_of(u)).inclusion) - wanted)
        assert error.mean() < (1e-6 if d == 1 else 0.006)
        assert error.max() < (1e-6 if d == 1 else 0.04)


@pytest.mark.parametrize("d", [2, 3])
def test_inclusion_in_a_set_of_twelve_is_that_of_all_subsets(d):
    # Larger than is enumerated for users; 512 chains as they have, measured 0.004 on average and 0.011 at most.
    table_at = jax.jit(subset_probabilities)
    for scale in (0.3, 1.5):
        u = utilities(d, 12, 2, 32, scale)
        table = np.asarray(table_at(u))
        wanted = np.einsum("ca,cm->am", members(12), (table / table.sum(axis=0)).mean(axis=-1))
        u = np.repeat(u, 16, axis=-1)
        error = np.abs(np.asarray(mean_at(u, chances_of(u)).inclusion) - wanted)
        assert error.mean() < 0.006
        assert error.max() < 0.02


@pytest.mark.parametrize("d", [1, 2])
def test_answers_have_the_probabilities_of_the_likelihood(d):
    # At one point: 4096 answers from a set of four, by the share of each subset.
    u = np.broadcast_to(utilities(d, 4, 1, 1, 1.0), (d, 4, 1, 4096))
    table = np.asarray(jax.jit(subset_probabilities)(u[..., 0]))[:, 0]
    drawn = np.asarray(drawn_at(u, chances_of(u)).drawn)[:, 0]
    share = np.bincount((1 << np.arange(4)) @ drawn, minlength=16) / 4096
    assert share[0] == 0
    np.testing.assert_allclose(share, table / table.sum(), atol=4 * np.sqrt(0.25 / 4096))


def exact_ratio(u, chosen, j):
    """P(j is chosen | the others of ``chosen``) by the likelihood itself; nothing at all is never chosen."""
    logs = []
    for inside in (False, True):
        mask = chosen.copy()
        mask[j] = inside
        logs.append(float(log_likelihood_at(u, np.ones(len(mask), bool), mask)) if any(mask) else -np.inf)
    return 1 / (1 + np.exp(logs[0] - logs[1]))


def test_one_step_has_the_conditional_probability_of_the_likelihood():
    u = utilities(3, 12, 1, 1, 1.0)[..., 0, 0]
    agree, stays = (np.asarray(part) for part in jax.jit(answers._tables)(u[..., None, None]))
    placed = jax.jit(answers._placed)
    for j, size in ((0, 1), (3, 1), (5, 4), (11, 6)):
        chosen = np.random.default_rng(size).permutation(12) < size
        chosen[j] = True
        standing = np.log(np.where(chosen[:, None, None, None], stays, 1.0)).sum(axis=0)
        of_object = (j, agree[j], stays[j], np.log(stays[j]), np.full((1, 1), 0.5))
        _, chance = placed((chosen[:, None, None], standing), of_object)
        np.testing.assert_allclose(chance[0, 0], exact_ratio(u, chosen, j), rtol=1e-6)


@pytest.mark.parametrize("a", [12, 16])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_predicted_probabilities_come_true(a, d):
    # 800 people with known utilities, who answer once; their answers are the ends of other, longer chains.
    u = np.repeat(utilities(d, a, 800, 1, 1.5, seed=a), 8, axis=-1)
    predicted = np.asarray(mean_at(u, chances_of(u)).inclusion)
    once = u[..., :1]
    rng = np.random.default_rng(7)
    noise, levels = rng.normal(size=once.shape), rng.random((30, a, *once.shape[2:]))
    answered = np.asarray(drawn_at(once, answers.Chances(noise, levels)).drawn)[..., 0]
    assert np.all(answered.any(axis=0))
    for low in np.arange(0.0, 1.0, 0.1):
        tenth = (predicted >= low) & (predicted < low + 0.1 + (low > 0.85))
        if np.count_nonzero(tenth) >= 50:
            error = 3 * np.sqrt(0.25 / np.count_nonzero(tenth))
            assert abs(answered[tenth].mean() - predicted[tenth].mean()) < 0.03 + error


@pytest.mark.parametrize("d", [2, 3])
def test_only_contenders_matter_in_a_very_large_set(d, monkeypatch):
    u = utilities(d, MAX_CONTENDERS + 40, 2, 16, 3.0)
    few = mean_at(u, chances_of(u))
    monkeypatch.setattr(answers, "MAX_CONTENDERS", 1000)
    everything = jax.jit(lambda *args: mean_answers(*args))(u, chances_of(u, seed=2))
    # Of 16 samples each; between two seeds the same.
    assert np.abs(np.asarray(few.inclusion) - everything.inclusion).mean() < 0.004
    assert np.abs(np.asarray(few.inclusion).sum(axis=0) - everything.inclusion.sum(axis=0)).max() < 0.7
    assert few.drawn.shape == u.shape[1:]


def test_blocks_of_samples_change_nothing(monkeypatch):
    u = utilities(2, 12, 3, 64, 1.0)
    whole = mean_at(u, chances_of(u))
    monkeypatch.setattr(answers, "_BLOCK", 2 * 12 * 12 * 3 * 8)
    parts = jax.jit(lambda *args: mean_answers(*args))(u, chances_of(u))
    np.testing.assert_allclose(parts.inclusion, whole.inclusion, atol=2e-3)
    assert np.mean(np.asarray(parts.drawn) != whole.drawn) < 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e3, 1e9])
@pytest.mark.parametrize("d", [1, 2])
def test_no_scale_of_utilities_is_too_small_or_too_large(d, scale, dtype):
    u = utilities(d, 12, 4, 16, scale).astype(dtype)
    found = mean_at(u, jax.tree.map(lambda part: part.astype(dtype), chances_of(u)))
    assert found.inclusion.dtype == dtype
    assert np.all((found.inclusion >= 0) & (found.inclusion <= 1 + 1e-6))
    assert np.all(np.asarray(found.drawn).any(axis=0))
    if scale > 1:  # no errors: the Pareto set of every sample
        larger = np.all(u[:, :, None] > u[:, None], axis=0).any(axis=0)
        np.testing.assert_allclose(found.inclusion, (~larger).mean(axis=-1), atol=0.02)


def test_proposals_are_frequent_answers_and_the_most_probable_objects():
    inclusion = np.linspace(0.95, 0.05, 12)  # six of them above one half
    drawn = np.arange(12)[:, None] == np.array([3, 3, 7])
    tried = proposals(inclusion, drawn)
    assert tried.shape == (12, answers.N_PROPOSALS)
    columns = {tuple(np.flatnonzero(column)) for column in tried.T}
    assert {(3,), (7,), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5), (0, 1)} <= columns
    assert () not in columns
