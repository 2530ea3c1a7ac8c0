"""Probabilities of rare answers against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from choicegp.inference.expectation import Marginals
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.likelihood import subset_probabilities
from choicegp.prediction import tempering
from choicegp.prediction.set_utilities import SetUtilities
from choicegp.prediction.tempering import N_LAST, N_PARTICLES, _Particles, _tempered, log_sums, tempered_means

D, A, N = 2, 4, 1024
# The first object alone; the first two, which the second makes less and less probable.
CHOSEN = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]], bool).T
ORDER = np.repeat(np.arange(A)[:, None], 3, axis=1)
ABOVE = np.array([0.0, 25.0, 120.0])  # by how much the second object surpasses the first in both utilities


def differences():
    """Utilities thirty times the size of errors: one draw explains one answer."""
    root = 30.0 * np.linalg.cholesky(np.eye(A - 1) + 1)
    mean = np.zeros((D, A - 1, 3))
    mean[:, 0] = ABOVE
    return mean, np.broadcast_to(root[None, :, :, None], (D, A - 1, A - 1, 3))


def brute_force(n=50_000):
    mean, root = differences()
    normals = np.random.default_rng(1).normal(size=(D, A - 1, n))
    logs = []
    for k in range(3):
        u = np.einsum("dij,djn->din", root[..., k], normals) + mean[:, :, [k]]
        u = jnp.asarray(np.pad(u, ((0, 0), (1, 0), (0, 0)))[:, :, None])
        p = DISCERNIBILITY.sampled(u, jnp.ones((A, 1), bool), CHOSEN[:, [k]], None)[0]
        logs.append(np.log(np.mean(np.exp(p))))
    return np.array(logs)


def independent(chance):
    """Differences to the first object that are independent: it beats each other one with this chance in each utility.

    The likelihood of the first object alone is the product of Φ(-δ) over the others and the utilities, and for
    δ ~ N(μ, s²), E Φ(-δ) = Φ(-μ / sqrt(1 + s²)): the log probability is D (A - 1) log(chance), but for the floor.
    """
    s = 30.0
    mean = np.full((D, A - 1, 1), -norm.ppf(chance) * np.sqrt(1.0 + s**2))
    return mean, np.broadcast_to(s * np.eye(A - 1)[None, :, :, None], (D, A - 1, A - 1, 1))


def found(monkeypatch, given, normals):
    monkeypatch.setattr(tempering, "set_utilities", lambda *args: given)

    def means(points):  # another function for each test, so that none finds the program of another
        return tempered_means.__wrapped__(None, None, ORDER, CHOSEN, points, None, DISCERNIBILITY)

    return jax.jit(means)(normals)


@pytest.fixture(scope="module")
def normals():
    return np.random.default_rng(0).normal(size=(D, A - 1, 1, N))


def test_rare_answers_have_the_probability_of_brute_force(normals, monkeypatch):
    given = SetUtilities(Marginals(*map(jnp.asarray, differences())))
    means = found(monkeypatch, given, normals)
    wanted = brute_force()
    assert wanted[-1] < -5.0, "of a thousand draws, four explain the answer"
    np.testing.assert_allclose(means.log_mean, wanted, atol=0.4)
    u = np.asarray(means.utilities)
    assert u.shape == (D, A, 3, N_LAST)
    # Draws given the answer: the first object is dominated by none of the others, in nearly every draw.
    beaten = np.all(u[:, 1:] > u[:, :1], axis=0).any(axis=0)
    assert beaten.mean() < 0.05


def test_an_answer_that_no_draw_explains_has_its_known_probability(monkeypatch):
    given = SetUtilities(Marginals(*map(jnp.asarray, independent(0.147))))
    wanted = D * (A - 1) * np.log(0.147)
    assert wanted == pytest.approx(np.log(1e-5), abs=0.02)
    monkeypatch.setattr(tempering, "set_utilities", lambda *args: given)
    # With the moves of the default, single runs are off by about 1.7 here; the mean of many approaches the truth.
    monkeypatch.setattr(tempering, "_N_MOVES", 64)
    order, chosen = ORDER[:, :1], CHOSEN[:, :1]

    @jax.jit
    def both(points, key):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "key", lambda seed: key)
            means = tempered_means.__wrapped__(None, None, order, chosen, points, None, DISCERNIBILITY)
        plain = DISCERNIBILITY.sampled(given.sampled(points), jnp.ones((A, 1), bool), chosen, None)
        return means.log_mean[0], jnp.log(jnp.mean(jnp.exp(plain)))

    logs = []
    for seed, key in enumerate(jax.random.split(jax.random.key(1), 16)):
        points = jnp.asarray(np.random.default_rng(seed).normal(size=(D, A - 1, 1, N)))
        log_mean, plain = both(points, key)
        logs.append(float(log_mean))
        assert plain < wanted - 1.0, "of the first draws, none explains the answer"
    assert np.log(np.mean(np.exp(logs))) == pytest.approx(wanted, abs=0.3)
    assert np.std(logs) < 0.9


def test_draws_of_the_shown_objects_are_part_of_the_mean(normals, monkeypatch):
    # The same Gaussian, half of whose variance is in the draws of the shown objects, of two settings.
    mean, root = differences()
    half = np.sqrt(0.5) * np.stack([root, root])
    other = np.random.default_rng(2).normal(size=(2, D, A - 1, N // 2))
    moves = np.einsum("hdij,hdjs->hdis", half[..., 0], other)
    moves = np.pad(moves, ((0, 0), (0, 0), (1, 0), (0, 0)))[:, :, :, None].repeat(3, axis=3)
    given = SetUtilities(Marginals(jnp.asarray(np.stack([mean, mean])), jnp.asarray(half)), jnp.asarray(moves))
    np.testing.assert_allclose(found(monkeypatch, given, normals).log_mean, brute_force(), atol=0.5)


def test_common_answers_have_the_mean_of_the_first_draws(normals, monkeypatch):
    mean, root = differences()
    given = SetUtilities(Marginals(jnp.asarray(mean / 100), jnp.asarray(root / 100)))
    means = found(monkeypatch, given, normals)
    u = given.sampled(jnp.asarray(normals))
    p = DISCERNIBILITY.sampled(u, jnp.ones((A, 3), bool), CHOSEN, None)
    np.testing.assert_allclose(means.log_mean, np.log(np.mean(np.exp(p), axis=1)), rtol=1e-9)


def test_sums_over_subsets_are_those_of_whole_tables():
    u = np.random.default_rng(3).normal(size=(D, A, 3, 5))
    wanted = np.log(np.sum(np.asarray(subset_probabilities(jnp.asarray(u))), axis=0))
    np.testing.assert_allclose(log_sums(u), wanted, rtol=1e-12)
    assert N_PARTICLES % N_LAST == 0


@pytest.mark.parametrize("log_p", [-np.inf, np.nan])
def test_an_answer_that_is_impossible_ends_at_once(log_p):
    start = _Particles(jnp.zeros(16, int), jnp.zeros((16, 1, 1)), jnp.full(16, log_p))
    with jax.disable_jit():  # so that the moves are calls that can be seen
        log_mean, _ = _tempered(start, lambda draw, points: pytest.fail("nothing is gained by moves"), 1)
    np.testing.assert_equal(float(log_mean), log_p)


def test_the_power_grows_in_a_limited_number_of_steps(monkeypatch):
    monkeypatch.setattr(tempering, "_MOST_STEPS", 3)
    calls = []

    def particles(draw, points):
        calls.append(len(draw))
        return _Particles(draw, points, -1e6 * points[:, 0, 0] ** 2)

    rng = np.random.default_rng(0)
    start = particles(jnp.zeros(16, int), jnp.asarray(rng.normal(size=(16, 1, 1))))
    with jax.disable_jit():
        log_mean, last = _tempered(start, particles, 1)
    assert len(calls) == 1 + 2 * tempering._N_MOVES
    assert np.isfinite(log_mean)
    assert len(last.log_p) == N_PARTICLES
