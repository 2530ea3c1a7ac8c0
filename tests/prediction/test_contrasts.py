"""Utilities as contrasts to the mean of the shown objects, against joint samples of the posterior."""

import jax
import numpy as np
import pytest

from choicegp.inference.posterior import Posterior, draws_of
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.prediction import contrasts as module
from choicegp.prediction.contrasts import contrasts
from choicegp.prediction.utilities import joint_samples

from .conftest import N_KNOWN, objects_at, posterior_of_draws

N_SAMPLES = 20_480  # of 512 draws each is used equally often


def gaussian():
    """Independent utilities, vague about their common level: long lengthscales and few, noisy observations."""
    X = np.random.default_rng(0).normal(size=(N_KNOWN, 2))
    prior = UtilityPrior.create(RBF(4.0, 30.0), 2, 2)
    known = Objects(X, np.arange(N_KNOWN))
    K = np.asarray(prior.covariance(known, known))
    # Only differences are observed, as choices have it.
    centring = np.eye(N_KNOWN) - 1.0 / N_KNOWN
    precision = centring @ centring / 0.2
    gain = np.linalg.inv(np.eye(N_KNOWN) + precision @ K) @ precision
    dual = np.einsum("dij,dj->di", gain, np.stack([np.sin(X[:, 0]), np.cos(X[:, 1])]))
    return Posterior(prior, known, np.einsum("dij,dj->di", K, dual), dual, 0.5 * (gain + np.swapaxes(gain, 1, 2)))


def sparse():
    """Inducing points of its own for each utility."""
    points = np.random.default_rng(1).normal(size=(2, 8, 2))
    prior = UtilityPrior.create(RBF(1.5, 4.0), 2, 2)
    inducing = Objects(points, np.arange(8))
    K = np.stack([np.asarray(prior.covariance(inducing, inducing))[i] for i in range(2)])
    gain = np.linalg.inv(K + 0.3 * np.eye(8))
    dual = np.einsum("dij,dj->di", gain, np.sin(points[..., 0]))
    return Posterior(prior, inducing, np.einsum("dij,dj->di", K, dual), dual, gain)


def sparse_with_shared_part():
    """Draws at inducing points of its own for each part."""
    rng = np.random.default_rng(2)
    points = Objects(rng.normal(size=(3, 8, 2)), np.arange(8))
    prior = UtilityPrior.create(RBF(1.5, 4.0), 2, 2, shared=True)
    K = np.asarray(prior.covariance(points, points))
    dual = np.sin(points.X[..., 0]) + rng.normal(size=(512, 3, 8)) * 0.3
    draws = draws_of(jax.tree.map(lambda leaf: leaf[None], prior), points, dual[None])
    mean = np.einsum("pij,pj->pi", K, dual.mean(axis=0))
    return Posterior(prior, points, mean[1:], dual.mean(axis=0), np.linalg.inv(K)[1:], None, draws)


POSTERIORS = {
    "gaussian": gaussian,
    "sparse": sparse,
    "sparse with a shared part": sparse_with_shared_part,
    "draws": lambda: posterior_of_draws(shared=False),
    "draws with a shared part": posterior_of_draws,
    "draws with object effects": lambda: posterior_of_draws(effect=0.5),
    "draws of one utility": lambda: posterior_of_draws(1, shared=False),
}


@pytest.fixture(scope="module", params=POSTERIORS)
def posterior(request):
    return POSTERIORS[request.param]()


def shown_of(posterior):
    return objects_at(np.random.default_rng(0).normal(size=(15, 2)), 0) if posterior.is_sparse else posterior.objects


def asked():
    """Seven new objects, and five that the draws know."""
    new, known = np.random.default_rng(3).normal(size=(7, 2)), np.random.default_rng(0).normal(size=(N_KNOWN, 2))[:5]
    return Objects(np.concatenate([new, known]), np.array([*range(1000, 1007), *range(5)]))


def sampled_contrasts(posterior, objects, shown):
    both = Objects(np.concatenate([objects.X, shown.X]), np.concatenate([objects.codes, shown.codes]))
    u = joint_samples(posterior, both, N_SAMPLES, random_state=1)
    return u[:, : len(objects.X)] - u[:, len(objects.X) :].mean(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def found(posterior):
    return contrasts(posterior, asked(), shown_of(posterior))


@pytest.fixture(scope="module")
def samples(posterior):
    return sampled_contrasts(posterior, asked(), shown_of(posterior))


def test_means_and_standard_deviations_are_those_of_joint_samples(found, samples):
    assert found.mean.shape == found.sd.shape == samples.shape[1:]
    error = samples.std(axis=0) / np.sqrt(N_SAMPLES)
    assert np.all(np.abs(found.mean - samples.mean(axis=0)) < 5 * error + 1e-4)
    np.testing.assert_allclose(found.sd, samples.std(axis=0), rtol=0.03)


def test_intervals_hold_95_percent_of_joint_samples(found, samples):
    assert np.all((found.lower < found.mean) & (found.mean < found.upper))
    inside = (found.lower <= samples) & (samples <= found.upper)
    # The ends are quantiles of 512 numbers where there are draws, and wider where four settings differ.
    assert np.all(inside.mean(axis=0) > 0.925)
    assert abs(np.median(inside.mean(axis=0)) - 0.95) < 0.01
    np.testing.assert_allclose((samples < found.lower).mean(axis=0), 0.025, atol=0.026)


def test_the_common_level_is_no_part_of_it():
    posterior = gaussian()
    found = contrasts(posterior, posterior.objects, posterior.objects)
    _, variance = posterior.mean_and_variance_at(posterior.objects)
    assert np.all(found.sd < 0.3 * np.sqrt(variance).T)
    np.testing.assert_allclose(found.mean.mean(axis=0), 0.0, atol=1e-9)


def test_the_mean_of_the_shown_objects_is_zero(drawn):
    found = contrasts(drawn, drawn.objects, drawn.objects)
    np.testing.assert_allclose(found.mean.mean(axis=0), 0.0, atol=1e-9)


def test_an_object_is_the_same_alone_among_others_and_in_any_order(posterior, found):
    objects, shown = asked(), shown_of(posterior)
    one = contrasts(posterior, Objects(objects.X[3:4], objects.codes[3:4]), shown)
    assert one.mean.shape == one.lower.shape == (1, posterior.n_utilities)
    order = np.random.default_rng(2).permutation(12)
    moved = contrasts(posterior, Objects(objects.X[order], objects.codes[order]), shown)
    for alone, there, whole in zip(one, moved, found, strict=True):
        np.testing.assert_allclose(alone[0], whole[3], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(there, whole[order], rtol=1e-6, atol=1e-7)


def test_no_objects_have_no_utilities(posterior):
    found = contrasts(posterior, Objects(np.zeros((0, 2)), np.zeros(0, int)), shown_of(posterior))
    assert [part.shape for part in found] == [(0, posterior.n_utilities)] * 4


def test_parts_of_a_long_table_are_the_whole(drawn, monkeypatch):
    objects = asked()
    whole = contrasts(drawn, objects, drawn.objects)
    monkeypatch.setattr(module, "_CHUNK", 4)
    for one, same in zip(contrasts(drawn, objects, drawn.objects), whole, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-6, atol=1e-7)


def test_some_of_very_many_shown_objects_stand_for_all(monkeypatch):
    posterior = sparse()
    many = objects_at(np.random.default_rng(4).normal(size=(600, 2)), 0)
    found = contrasts(posterior, asked(), many)
    monkeypatch.setattr(module, "_MOST_REFERENCES", 600)
    exact = contrasts(posterior, asked(), many)
    np.testing.assert_allclose(found.mean, exact.mean, atol=0.05)
    np.testing.assert_allclose(found.sd, exact.sd, rtol=0.02)
