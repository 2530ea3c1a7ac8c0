"""Predictions from draws that carry their hyperparameters, against brute force over joint samples."""

import time

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from choicegp import ChoiceData
from choicegp.model.prior import Objects
from choicegp.prediction.choices import ChoicePredictor
from choicegp.prediction.contrasts import contrasts
from choicegp.prediction.utilities import _undominated, dominance_probabilities, joint_samples, recommended

from .conftest import objects_at
from .test_choices import likelihoods

X = np.random.default_rng(1).normal(size=(40, 2))
N_SAMPLES = 8192
# By the size of a set: answers to more than ten objects are drawn and counted, and rounding may turn one of a million.
ROUNDING = {2: 1e-9, 3: 1e-9, 12: 5e-6}


def predictor(posterior, shown, chosen=None, order=None):
    order = np.arange(len(X)) if order is None else order
    place = np.argsort(order)
    data = ChoiceData.from_sets(
        X[order], [place[rows] for rows in shown], None if chosen is None else [place[rows] for rows in chosen]
    )
    return ChoicePredictor(posterior, Objects(X[order], 1000 + order), data)


def sets(size, n_sets=6):
    rng = np.random.default_rng(size)
    return [rng.choice(len(X), size, replace=False) for _ in range(n_sets)]


def test_joint_samples_continue_the_draws(drawn):
    """The mixture over settings and draws, each with what it leaves unknown, by plain algebra."""
    objects = objects_at(X[:6])
    u = joint_samples(drawn, objects, 20_480, random_state=0)
    means, covariances = [], []
    for h in range(len(drawn.draws.dual)):
        prior = jax.tree.map(lambda leaf, h=h: leaf[h], drawn.draws.prior)
        cross = np.asarray(prior.covariance(drawn.objects, objects))
        own, inner = (np.asarray(prior.covariance(one, one)) for one in (objects, drawn.objects))
        left = own - np.swapaxes(cross, 1, 2) @ np.linalg.solve(inner + 1e-8 * np.eye(len(inner[0])), cross)
        parts = np.einsum("ptn,spt->spn", cross, drawn.draws.dual[h])
        means.append(parts[:, :1] + parts[:, 1:])
        covariances.append(left[:1] + left[1:])
    means = np.concatenate(means)
    expected = np.stack([np.cov(means[:, i].T) + np.mean(covariances, axis=0)[i] for i in range(2)])
    sd = np.sqrt(np.diagonal(expected, axis1=1, axis2=2))
    assert np.all(np.abs(u.mean(axis=0).T - means.mean(axis=0)) < 4 * sd / np.sqrt(20_480))
    for i in range(2):
        assert np.all(np.abs(np.cov(u[:, :, i].T) - expected[i]) < 0.05 * np.outer(sd[i], sd[i]))
    # The shared part correlates the utilities of an object.
    assert np.corrcoef(u[:, 0, 0], u[:, 0, 1])[0, 1] > 0.2


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_probabilities_are_those_of_normalised_likelihoods_at_joint_samples(size, drawn):
    shown = sets(size, 3)
    found = predictor(drawn, shown).probabilities()
    member = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    for rows, p in zip(shown, found, strict=True):
        values = likelihoods(joint_samples(drawn, Objects(X[rows], 1000 + rows), N_SAMPLES, 3))
        values = values / values.sum(axis=0)
        np.testing.assert_allclose(p, member.T @ values.mean(axis=1), atol=0.03)


def test_the_subsets_of_a_set_have_probability_one(drawn):
    rows = sets(3, 1)[0]
    subsets = [[rows[j] for j in range(3) if code >> j & 1] for code in range(1, 8)]
    logs = predictor(drawn, [rows] * 7, subsets).log_probabilities(normalized=True)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("size", [2, 3, 12])
def test_neither_the_order_nor_the_number_of_sets_matters(size, drawn):
    shown = sets(size)
    whole = predictor(drawn, shown).probabilities()
    backwards = predictor(drawn, shown[::-1]).probabilities()[::-1]
    alone = predictor(drawn, shown[2:3]).probabilities()[0]
    for one, same in zip(whole, backwards, strict=True):
        np.testing.assert_allclose(one, same, atol=ROUNDING[size])
    np.testing.assert_allclose(alone, whole[2], atol=ROUNDING[size])
    assert all(p.sum() >= 1 - 1e-9 and np.all((p >= 0) & (p <= 1)) for p in whole)


@pytest.mark.parametrize("size", [2, 3, 12])
def test_the_order_of_objects_hardly_matters(size, drawn):
    shown = sets(size)
    whole = predictor(drawn, shown).probabilities()
    # In the table it decides nothing; in a set, which sample points an object has.
    moved = predictor(drawn, shown, order=np.random.default_rng(0).permutation(len(X))).probabilities()
    turned = predictor(drawn, [rows[::-1] for rows in shown]).probabilities()
    for one, same, other in zip(whole, moved, turned, strict=True):
        np.testing.assert_allclose(one, same, atol=ROUNDING[size])
        np.testing.assert_allclose(one, other[::-1], atol=0.05)


def test_the_choice_is_the_most_probable_subset(drawn):
    shown = sets(3)
    subsets = [[1], [2], [1, 2], [3], [1, 3], [2, 3], [1, 2, 3]]
    for rows, chosen in zip(shown, predictor(drawn, shown).choices(), strict=True):
        tried = [rows[np.array(subset) - 1] for subset in subsets]
        logs = predictor(drawn, [rows] * 7, tried).log_probabilities(normalized=True)
        assert set(chosen) == set(tried[int(np.argmax(logs))])


def test_dominance_sums_to_one_and_is_that_of_joint_samples(drawn):
    first, second = objects_at(X[:9]), objects_at(X[9:18], 2000)
    table = dominance_probabilities(drawn, first, second)
    assert table.shape == (9, 3)
    assert np.all(table >= 0)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-9)
    both = Objects(X[:18], np.concatenate([first.codes, second.codes]))
    u = joint_samples(drawn, both, N_SAMPLES, random_state=0)
    z = u[:, :9] - u[:, 9:]
    wins, loses = ndtr(z).prod(axis=-1).mean(axis=0), ndtr(-z).prod(axis=-1).mean(axis=0)
    np.testing.assert_allclose(table, np.stack([wins, loses, 1 - wins - loses], axis=-1), atol=0.03)
    np.testing.assert_allclose(dominance_probabilities(drawn, second, first), table[:, [1, 0, 2]], atol=0.03)
    nothing = objects_at(X[:0])
    assert dominance_probabilities(drawn, nothing, nothing).shape == (0, 3)


def test_recommended_are_those_most_often_undominated_in_joint_samples(drawn):
    objects = objects_at(X)
    rows, probability = recommended(drawn, objects, contrasts(drawn, objects, drawn.objects), 8, random_state=0)
    brute = _undominated(joint_samples(drawn, objects, 2048, random_state=9)).mean(axis=0)
    assert np.all(np.diff(probability) <= 0)
    np.testing.assert_allclose(probability, brute[rows], atol=0.1)
    assert np.delete(brute, rows).max() < probability[-1] + 0.1
    assert brute[rows].max() > 0.3


def test_two_thousand_objects_are_recommended_in_seconds(drawn):
    many = objects_at(np.random.default_rng(7).normal(size=(2000, 2)))
    means = contrasts(drawn, many, drawn.objects)
    start = time.process_time()
    rows, probability = recommended(drawn, many, means, 10, random_state=0)
    # About 5 s of computing; the limit allows for a machine that has other things to do.
    assert time.process_time() - start < 40
    assert len(np.unique(rows)) == 10
    assert np.all((probability > 0) & (probability <= 1))
    order = np.random.default_rng(1).permutation(2000)
    moved = Objects(many.X[order], many.codes[order])
    again, same = recommended(drawn, moved, contrasts(drawn, moved, drawn.objects), 10, random_state=0)
    np.testing.assert_array_equal(order[again], rows)
    np.testing.assert_allclose(same, probability, atol=0.005)
