"""The best object of a set under Gaussian noise: derivatives, tails, and how it relates to the paper's likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from choicegp.compute.programs import program
from choicegp.model.batch_preference import expected_best_derivatives, log_best
from choicegp.model.error_models import ERROR_MODELS
from choicegp.model.likelihood import log_likelihood

GRID = np.linspace(-12.0, 12.0, 601)
A, M, S = 5, 40, 2
both = program(lambda u, present, best: (expected_best_derivatives(u, present, best), log_best(u, present, best)))


def plain_log_best(u):
    """Integrate eq:likelihoodbatch over a fine grid for utilities (a,) of which the first object is the best."""
    beats = 0.5 * jax.lax.erfc(-(u[0] - u[1:, None] + GRID[None]) / np.sqrt(2.0))
    density = np.exp(-0.5 * GRID**2) / np.sqrt(2.0 * np.pi)
    return jnp.log(jnp.sum(jnp.prod(beats, axis=0) * density) * (GRID[1] - GRID[0]))


@program
def plain_derivatives(u):
    """Differentiate it twice at utilities (m, a)."""
    return jax.vmap(lambda u: (plain_log_best(u), jax.grad(plain_log_best)(u), jax.hessian(plain_log_best)(u)))(u)


def found_at(u):
    """Return derivatives averaged over samples, and the logs, at utilities (a, m, S), the best object first.

    One shape, hence one program, serves all: what is missing is padding, and holds NaN.
    """
    a, m, n = u.shape
    wide = np.full((1, A, M, S), np.nan)
    wide[0, :a, :m, :n], wide[0, :a, :m, n:] = u, u[..., :1]
    present = np.zeros((A, M), bool)
    present[:a, :m] = True
    derivatives, logs = both(wide, present, present & (np.arange(A) == 0)[:, None])
    return derivatives, logs


@pytest.mark.parametrize("a", [2, 3, 5])
def test_value_gradient_and_hessian_are_those_of_a_plain_integral(a):
    u = np.random.default_rng(a).normal(scale=1.5, size=(a, M, 1))
    found, logs = found_at(u)
    value, gradient, hessian = plain_derivatives(u[..., 0].T)
    assert np.allclose(found.value, value, atol=1e-9, rtol=0)
    assert np.allclose(logs[:, 0], value, atol=1e-9, rtol=0)
    assert np.allclose(found.gradient[0, :a].T, gradient, atol=1e-9, rtol=0)
    assert np.allclose(np.moveaxis(found.curvature[0, :a, :a], 2, 0), -hessian, atol=5e-9, rtol=0)


def test_derivatives_are_averaged_over_samples():
    u = np.random.default_rng(0).normal(size=(4, 3, S))
    together, _ = found_at(u)
    apart = [found_at(u[..., s : s + 1])[0] for s in range(S)]
    for name in ("value", "gradient", "curvature"):
        mean = np.mean([getattr(one, name) for one in apart], axis=0)
        assert np.allclose(getattr(together, name), mean, atol=1e-13)


def test_the_logarithm_can_be_differentiated_whichever_object_is_the_best():
    u = np.random.default_rng(1).normal(size=(1, A))
    gradient = jax.jit(jax.grad(log_best))(u, np.ones(A, bool), np.arange(A) == 2)
    expected = plain_derivatives(np.roll(u, -2).repeat(M, axis=0))[1][0]
    assert np.allclose(np.roll(gradient, -2), expected, atol=1e-9)


def test_padding_and_sets_of_padding_alone_say_nothing():
    found, logs = found_at(np.random.default_rng(2).normal(size=(3, 7, 1)))
    assert np.allclose(found.value[7:], 0.0, atol=1e-12)
    assert np.allclose(logs[7:], 0.0, atol=1e-12)
    assert np.all(found.gradient[0, 3:] == 0)
    assert np.all(found.curvature[0, 3:] == 0)
    assert np.all(found.gradient[0, :, 7:] == 0)


@pytest.mark.parametrize("a", [2, 5])
def test_everything_is_finite_and_log_concave_however_far_apart_objects_are(a):
    rng = np.random.default_rng(a)
    u = rng.choice([-1.0, 1.0], size=(a, M, 1)) * 10.0 ** rng.uniform(-1.0, 6.0, size=(a, M, 1))
    u[:, 0] = 1e6 * np.eye(a)[-1][:, None]
    found, logs = found_at(u)
    assert all(np.all(np.isfinite(part)) for part in (*found, logs))
    assert np.linalg.eigvalsh(np.moveaxis(found.curvature[0], 2, 0)).min() > -1e-12


def test_the_logarithm_is_right_far_behind():
    lag = np.array([0.0, 3.0, 40.0, 1e3, 1e6])
    _, logs = found_at(np.stack([np.zeros(5), lag])[..., None])
    assert np.allclose(logs[:5, 0], log_ndtr(-lag / np.sqrt(2.0)), rtol=1e-12)


def probabilities(u):
    """Return the probability of each object (a,) to be the best, for utilities (a,)."""
    orders = [np.roll(np.arange(len(u)), -o) for o in range(len(u))]
    return np.exp(found_at(np.transpose([u[order] for order in orders])[..., None])[1][: len(u), 0])


@pytest.mark.parametrize("a", [2, 3, 5])
def test_probabilities_of_the_objects_sum_to_one(a):
    for u in np.random.default_rng(a).normal(scale=2.0, size=(20, a)):
        assert np.isclose(probabilities(u).sum(), 1.0, atol=1e-9)


def test_the_best_is_the_largest_of_utilities_with_noise_of_their_own():
    u = np.array([0.3, -0.4, 1.1, 0.0])
    noisy = u + np.random.default_rng(0).normal(size=(200_000, 4))
    counted = np.bincount(noisy.argmax(axis=1), minlength=4) / len(noisy)
    assert np.allclose(probabilities(u), counted, atol=0.005)


def test_the_papers_likelihood_is_no_lower_bound():
    # One rejected object, one sigma behind: the proposition says 0.760 >= 0.841.
    batch = probabilities(np.array([1.0, 0.0]))[0]
    papers = np.exp(jax.jit(log_likelihood)(jnp.array([[1.0, 0.0]]), np.ones(2, bool), np.array([True, False])))
    assert np.isclose(batch, ndtr(1.0 / np.sqrt(2.0)), rtol=1e-12)
    assert np.isclose(papers, ndtr(1.0), rtol=1e-8)
    assert batch < papers


@pytest.mark.parametrize("a", [2, 3, 4, 5])
def test_what_bounds_it_from_below_has_the_noise_of_both_objects(a):
    rng = np.random.default_rng(a)
    for _ in range(3):
        u = rng.normal(scale=3.0, size=(a, M, S))
        _, batch = found_at(u)
        bound = log_ndtr((u[:1] - u[1:]) / np.sqrt(2.0)).sum(axis=0)
        assert np.all(batch >= bound - 1e-9)
        assert np.allclose(batch, bound, atol=1e-9) == (a == 2)


def test_a_lapse_is_no_part_of_it():
    u, present, first = jnp.array([[1.0, 0.0]]), np.ones(2, bool), np.array([True, False])
    with pytest.raises(ValueError, match="lapse"):
        ERROR_MODELS["gaussian"].log_likelihood(u, present, first, 0.1)
