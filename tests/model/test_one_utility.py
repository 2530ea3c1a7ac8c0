"""With one utility the probabilities of single objects sum to one."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr

from choicegp.model.likelihood import FLOOR

from .test_likelihood import dominance, log_p, table_of, utilities


def single_objects(u):
    """Repeat utilities (1, a, sets) for the choice of each object alone: arguments with the sets, then the objects."""
    a, n_sets = u.shape[1:]
    chosen = np.broadcast_to(np.eye(a, dtype=bool)[:, None], (a, n_sets, a))
    return np.repeat(u[..., None], a, axis=-1), np.ones_like(chosen), chosen


@pytest.mark.parametrize(("floor", "scale"), [(FLOOR, 1.0), (FLOOR, 10.0), (0.01, 1.0), (0.0, 1.0), (0.0, 1e6)])
@pytest.mark.parametrize("a", [3, 5, 8])
def test_single_objects_sum_to_one(a, floor, scale):
    value = log_p(*single_objects(utilities(1, a, 40, seed=a, scale=scale)), floor=floor)
    np.testing.assert_allclose(np.exp(value).sum(axis=-1), 1.0, rtol=1e-12)


def test_two_objects_are_not_divided():
    # With the floor the two sum to 1 + 2e-10; data of pairs have the values that they always had, padded or not.
    u = utilities(1, 5, 40, scale=3.0)
    present, chosen = (np.repeat(np.arange(5)[:, None] < n, 40, axis=1) for n in (2, 1))
    value = log_p(u, present, chosen)
    expected = [math.log(dominance(u[..., k], 0, 1, 1.0) + FLOOR) for k in range(40)]
    np.testing.assert_allclose(value, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("u", [np.zeros((1, 100)), utilities(1, 100, scale=1e-3), utilities(1, 100, scale=30.0)])
def test_several_objects_keep_the_floor_and_are_no_probability_above_one(u):
    # The sum over single objects is as small as 100 / 2^99: dividing by it would outweigh the floor of a pair.
    chosen = np.arange(100)[:, None] < np.array([2, 3, 4])
    value = log_p(np.repeat(u[..., None], 3, axis=-1), np.ones_like(chosen), chosen)
    expected = [math.log(FLOOR) * n_pairs for n_pairs in (1, 3, 6)]
    beaten = [
        sum(math.log(1 - math.prod(1 - dominance(u, o, v, 1.0) for o in range(k)) + FLOOR) for v in range(k, 100))
        for k in (2, 3, 4)
    ]
    np.testing.assert_allclose(value, np.add(expected, beaten), rtol=1e-9)


@pytest.mark.parametrize(("a", "n_sets"), [(3, 4000), (5, 4000), (8, 4000)])
def test_the_scale_of_known_utilities_is_estimated_consistently(a, n_sets):
    u = utilities(1, a, n_sets, seed=a)
    answers = np.asarray(table_of(u))[2 ** np.arange(a)]
    cumulative = np.cumsum(answers / answers.sum(axis=0), axis=0)
    best = np.sum(np.random.default_rng(a).random(n_sets) > cumulative, axis=0)
    chosen = np.arange(a)[:, None] == best
    scales = np.linspace(0.7, 1.5, 17)
    repeated = (np.repeat(mask[:, None], len(scales), axis=1) for mask in (np.ones_like(chosen), chosen))
    value = log_p(u[:, :, None] * scales[:, None], *repeated).sum(axis=-1)
    assert abs(scales[np.argmax(value)] - 1.0) < 0.1
    # As the paper has it, without the division, the best scale is too large.
    ahead = np.take_along_axis(u[0], best[None], axis=0) - u[0]
    paper = [np.sum(np.where(chosen, 0.0, log_ndtr(scale * ahead))) for scale in scales]
    assert scales[np.argmax(paper)] > 1.15
