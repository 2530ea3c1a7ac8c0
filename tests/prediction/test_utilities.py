"""Questions about utilities, against samples of the posterior and brute force."""

import time
from typing import NamedTuple

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from choicegp.data.pareto import undominated
from choicegp.errors import ChoiceGPError
from choicegp.inference.posterior import FIRST_JITTER, Posterior
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.prediction import utilities
from choicegp.prediction.utilities import dominance_probabilities, joint_samples, recommended

N_KNOWN = 20
mean_and_variance = jax.jit(Posterior.mean_and_variance_at)


class MeanAndSd(NamedTuple):
    mean: np.ndarray
    sd: np.ndarray


def objects_at(X, first_code=1000):
    return Objects(np.asarray(X), np.arange(len(X)) + first_code)


def make_posterior(n_utilities=2, noise=0.05, variance=4.0):
    """A posterior from noisy observations of smooth utilities at 20 objects."""
    X = np.random.default_rng(0).normal(size=(N_KNOWN, 2))
    prior = UtilityPrior.create(RBF(1.5, variance), 2, n_utilities)
    known = Objects(X, np.arange(N_KNOWN))
    K = np.asarray(prior.covariance(known, known))
    truth = np.stack([np.sin(X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]])[:n_utilities]
    gain = np.linalg.inv(K + noise * np.eye(N_KNOWN))
    dual = np.einsum("dij,dj->di", gain, np.sqrt(variance) * truth)
    return Posterior(prior, known, np.einsum("dij,dj->di", K, dual), dual, gain)


def means_of(posterior, objects):
    parts = [
        mean_and_variance(posterior, Objects(objects.X[start : start + 2000], objects.codes[start : start + 2000]))
        for start in range(0, len(objects.X), 2000)
    ]
    mean, variance = (np.concatenate([np.asarray(part[k]).T for part in parts]) for k in (0, 1))
    return MeanAndSd(mean, np.sqrt(variance))


@pytest.fixture(scope="module")
def posterior():
    return make_posterior()


@pytest.fixture(scope="module")
def seven():
    return objects_at(np.random.default_rng(3).normal(size=(7, 2)))


def test_joint_samples_have_the_posteriors_moments(posterior, seven):
    u = joint_samples(posterior, seven, 20_000, random_state=0)
    assert u.shape == (20_000, 7, 2)
    mean, covariance = posterior.mean_and_covariance_at(seven)
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    # Four standard errors of a mean, and of a covariance.
    assert np.all(np.abs(u.mean(axis=0).T - mean) < 4 * sd / np.sqrt(20_000))
    for i in range(2):
        error = 1.5 * np.outer(sd[i], sd[i]) / np.sqrt(20_000)
        assert np.all(np.abs(np.cov(u[:, :, i].T) - covariance[i]) < 4 * error)
    assert abs(np.corrcoef(u[:, 0, 0], u[:, 0, 1])[0, 1]) < 0.03  # the utilities are independent


def test_joint_samples_repeat_with_the_seed(posterior, seven):
    one, same, other = (joint_samples(posterior, seven, 5, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.01


def test_joint_samples_of_equal_objects_are_equal_and_finite(posterior):
    X = np.zeros((7, 2))
    X[1:4] = 1e-10 * np.arange(3)[:, None]
    u = joint_samples(posterior, Objects(X, np.zeros(7, int)), 50, random_state=0)
    # The jitter that a singular covariance needs is 1e-9 of its variance.
    assert np.abs(u - u[:, :1]).max() < 1e-3


def test_few_programs_serve_all_numbers_of_objects_and_no_sample_changes(posterior):
    X = np.random.default_rng(5).normal(size=(32, 2))
    joint_samples(posterior, objects_at(X), 2, random_state=0)
    n_programs = len(utilities._joint_roots._executables)
    for n in (1, 2, 9, 31):
        some = objects_at(X[:n])
        u = joint_samples(posterior, some, 3, random_state=0)
        mean, covariance = map(np.asarray, posterior.mean_and_covariance_at(some))
        scale = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / n
        root = np.linalg.cholesky(covariance + FIRST_JITTER * scale * np.eye(n))
        root = np.swapaxes(np.linalg.solve(root, covariance), 1, 2)  # without the jitter
        drawn = root @ np.random.default_rng(0).normal(size=(2, n, 3))
        np.testing.assert_allclose(u, np.moveaxis(mean[..., None] + drawn, (0, 1, 2), (2, 1, 0)), atol=1e-8)
    assert len(utilities._joint_roots._executables) == n_programs


def test_joint_samples_refuse_what_they_cannot_do(posterior, seven):
    with pytest.raises(ChoiceGPError, match="n_samples must be a whole number of at least 1; got 0"):
        joint_samples(posterior, seven, 0, 0)
    with pytest.raises(ChoiceGPError, match="n_samples must be a whole number of at least 1; got True"):
        joint_samples(posterior, seven, True, 0)
    with pytest.raises(ChoiceGPError, match="random_state must be a whole number of at least 0; got -1"):
        joint_samples(posterior, seven, 1, -1)
    with pytest.raises(ChoiceGPError, match="at most 5000 objects at a time; got 5001"):
        joint_samples(posterior, objects_at(np.zeros((5001, 2))), 1, 0)


@pytest.mark.parametrize("n_utilities", [1, 2, 3])
def test_dominance_probabilities_are_those_of_samples(n_utilities):
    posterior = make_posterior(n_utilities)
    rng = np.random.default_rng(4)
    first, second = objects_at(rng.normal(size=(7, 2))), objects_at(rng.normal(size=(7, 2)), 2000)
    table = dominance_probabilities(posterior, first, second)
    assert table.shape == (7, 3)
    assert np.all(table >= 0)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
    both = Objects(np.concatenate([first.X, second.X]), np.concatenate([first.codes, second.codes]))
    u = joint_samples(posterior, both, 20_000, random_state=0)
    z = u[:, :7] - u[:, 7:]
    wins, loses = ndtr(z).prod(axis=-1), ndtr(-z).prod(axis=-1)
    sampled = np.stack([wins, loses, 1 - wins - loses], axis=-1)
    error = sampled.std(axis=0) / np.sqrt(20_000)
    assert np.all(np.abs(table - sampled.mean(axis=0)) < 4 * error + 1e-9)
    if n_utilities == 1:
        assert not np.any(table[:, 2])
    swapped = dominance_probabilities(posterior, second, first)
    np.testing.assert_allclose(swapped, table[:, [1, 0, 2]], rtol=1e-9, atol=1e-15)


def test_an_object_against_itself_is_a_coin_flip(posterior, seven):
    table = dominance_probabilities(posterior, seven, seven)
    np.testing.assert_allclose(table, np.tile([0.25, 0.25, 0.5], (7, 1)), atol=1e-6)


def test_dominance_goes_row_by_row_and_in_parts(posterior):
    rng = np.random.default_rng(5)
    first, second = objects_at(rng.normal(size=(519, 2))), objects_at(rng.normal(size=(519, 2)), 2000)
    table = dominance_probabilities(posterior, first, second)
    tail = dominance_probabilities(
        posterior, Objects(first.X[512:], first.codes[512:]), Objects(second.X[512:], second.codes[512:])
    )
    np.testing.assert_allclose(table[512:], tail, rtol=1e-12)
    empty = Objects(np.zeros((0, 2)), np.zeros(0, int))
    assert dominance_probabilities(posterior, empty, empty).shape == (0, 3)
    with pytest.raises(ChoiceGPError, match="X1 has 519 rows and X2 0"):
        dominance_probabilities(posterior, first, empty)


def test_undominated_samples_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    u = np.round(rng.normal(size=(6, 200, 2)), 1)  # with ties
    wanted = np.stack([undominated(sample) for sample in u])
    np.testing.assert_array_equal(utilities._undominated(u), wanted)


def test_the_front_holds_the_undominated_and_nothing_else():
    values = np.random.default_rng(0).normal(size=(5000, 3))
    found = utilities._front(values)
    np.testing.assert_array_equal(np.sort(found), np.flatnonzero(undominated(values)))
    assert len(utilities._front(values, most=5)) == 5


def test_beating_is_counted_as_by_a_loop():
    rng = np.random.default_rng(1)
    values, by = rng.integers(0, 4, (50, 2)).astype(float), rng.integers(0, 4, (30, 2)).astype(float)
    wanted = [sum(np.all(other > own) for other in by) for own in values]
    np.testing.assert_array_equal(utilities._n_beating(values, by), wanted)


@pytest.fixture(scope="module")
def many(posterior):
    objects = objects_at(np.random.default_rng(6).normal(size=(2000, 2)))
    return objects, means_of(posterior, objects)


def test_recommended_agrees_with_sampling_all_objects(posterior, many):
    objects, means = many
    rows, probability = recommended(posterior, objects, means, 10, random_state=0)
    assert rows.shape == probability.shape == (10,)
    assert np.all(np.diff(probability) <= 0)
    u = joint_samples(posterior, objects, 300, random_state=9)
    brute = utilities._undominated(u).mean(axis=0)
    # Two samples of 512 and 300: four standard errors of a difference.
    error = np.sqrt(probability * (1 - probability) * (1 / 512 + 1 / 300)) + 0.005
    assert np.all(np.abs(brute[rows] - probability) < 4 * error)
    # Nothing much better was left out.
    others = np.delete(brute, rows)
    assert others.max() < probability[-1] + 0.12
    assert probability[0] > 0.2


@pytest.mark.parametrize("level", [0.0, 1e-300, 1e-9, -50.0, 1e9])
def test_candidates_where_a_utility_does_not_vary(monkeypatch, level):
    monkeypatch.setattr(utilities, "_MOST_CANDIDATES", 5)
    # Warnings are errors: nothing overflows.
    mean = np.column_stack([1.0 * np.arange(40), np.full(40, level)])
    assert len(utilities._candidates(mean, np.ones((40, 2)), mean)) == 5


def test_copies_of_an_object_are_recommended_alike(posterior):
    X = np.random.default_rng(6).normal(size=(30, 2))
    plain = objects_at(X)
    rows, probability = recommended(posterior, plain, means_of(posterior, plain), 30, random_state=0)
    copied = objects_at(np.concatenate([X, X, X[rows[:1]]]))
    all_rows, all_probability = recommended(posterior, copied, means_of(posterior, copied), 61, random_state=0)
    by_row = dict(zip(all_rows.tolist(), all_probability.tolist(), strict=True))
    assert by_row[rows[0]] == by_row[rows[0] + 30] == by_row[60]
    for row, own in zip(rows, probability, strict=True):
        assert abs(by_row[row] - own) < 0.1
        assert by_row[row] == by_row[row + 30]


def test_recommended_repeats(posterior, many):
    objects, means = many
    one, same = (recommended(posterior, objects, means, 5, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one[0], same[0])
    np.testing.assert_array_equal(one[1], same[1])


def test_objects_beaten_by_far_are_no_candidates_and_the_obvious_best_is():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=(500, 2)), np.full((500, 2), 0.1)
    mean[137] = 10.0
    assert utilities._candidates(mean, sd, mean).tolist() == [137]
    # With great uncertainty all stay, up to the limit.
    assert len(utilities._candidates(mean, 10 * sd + 10, mean)) == 500


@pytest.mark.parametrize("n_utilities", [1, 2, 4])
@pytest.mark.parametrize("spread", [0.01, 10.0])
def test_the_candidates_hold_everything_on_the_front_of_the_means(n_utilities, spread):
    rng = np.random.default_rng(2)
    mean = rng.normal(size=(8000, n_utilities)) * np.logspace(0, 2, n_utilities)
    rows = utilities._candidates(mean, np.full(mean.shape, spread), mean)
    assert np.all(np.diff(rows) > 0)
    assert len(rows) <= 1500
    assert set(np.flatnonzero(undominated(mean))) <= set(rows)


def test_candidates_are_those_that_the_front_beats_least_probably():
    rng = np.random.default_rng(3)
    mean, sd = rng.normal(size=(4000, 2)), rng.uniform(1.0, 3.0, size=(4000, 2))
    front = np.flatnonzero(undominated(mean))
    rows = utilities._candidates(mean, sd, mean)
    assert len(rows) == 1500
    dominates = ndtr((mean[front, None] - mean) / np.hypot(sd[front, None], sd)).prod(axis=-1)  # (o, v)
    score = np.log1p(-dominates).sum(axis=0)
    others = np.setdiff1d(rows, front)
    left_out = np.setdiff1d(np.arange(4000), rows)
    assert score[others].min() >= score[left_out].max()


def test_known_utilities_are_compared_by_their_sign():
    mean = np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 0.0]])
    # Warnings are errors. A tie is even; the front's own member is 0, 2.
    found = utilities._log_undominated(mean, np.zeros((3, 2)), np.array([[2.0, 2.0]]), np.zeros((1, 2)))
    np.testing.assert_allclose(found, [np.log(1e-12), np.log(1e-12), 0.0], atol=1e-3)
    tied = utilities._log_undominated(mean[:1], np.zeros((1, 2)), np.array([[0.0, 1.0]]), np.zeros((1, 2)))
    np.testing.assert_allclose(tied, np.log(0.5))


@pytest.mark.parametrize("features", ["spread", "far away"])
def test_the_order_of_rows_changes_no_recommendation(features):
    # Vague, so that far more objects could be the best than are sampled; far from all data they differ in nothing.
    posterior = make_posterior(2, noise=10.0)
    rng = np.random.default_rng(11)
    X = rng.normal(size=(6_000, 2)) * (1.0 if features == "spread" else 30.0)
    found = []
    for order in (np.arange(len(X)), rng.permutation(len(X)), np.arange(len(X))[::-1]):
        objects = objects_at(X[order])
        rows, probability = recommended(posterior, objects, means_of(posterior, objects), 20, random_state=0)
        found.append((order[rows], probability))
    for rows, probability in found[1:]:
        np.testing.assert_array_equal(rows, found[0][0])
        np.testing.assert_allclose(probability, found[0][1], atol=0.005)


@pytest.mark.parametrize("noise", [0.001, 10.0], ids=["sharp", "vague"])
def test_a_hundred_thousand_objects_are_few_seconds(noise):
    # The slowest test here: 2 to 5 s of computing; the limit allows for a machine that has other things to do.
    posterior = make_posterior(3, noise=noise)
    objects = objects_at(np.random.default_rng(7).normal(size=(100_000, 2)))
    means = means_of(posterior, objects)
    start = time.process_time()
    rows, probability = recommended(posterior, objects, means, 10, random_state=0)
    assert time.process_time() - start < 20
    assert len(np.unique(rows)) == 10
    assert np.all((probability > 0) & (probability <= 1))
