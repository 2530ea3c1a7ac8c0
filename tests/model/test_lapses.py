"""Lapses: answers that are a random subset, mixed into the likelihood."""

import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.model.likelihood import FLOOR, with_lapse

from .test_likelihood import divided_by_hand, lapsed, one_of, some_sets, value_and_gradient


@pytest.mark.parametrize("d", [1, 2])
def test_a_lapse_mixes_in_the_uniform_choice(d):
    u, present, chosen = some_sets()
    u, chosen = u[:d], chosen if d > 1 else one_of(chosen)
    value, *_ = lapsed(u, present, chosen, 1.0, 0.2)
    sizes = present.sum(axis=0)
    expected = [
        0.8 * divided_by_hand(u[:, :a, k], chosen[:a, k], floor=FLOOR) + 0.2 / (2**a - 1) for k, a in enumerate(sizes)
    ]
    np.testing.assert_allclose(np.exp(value), expected, rtol=1e-9)


def test_a_lapse_counts_the_objects_that_are_present():
    present = jnp.asarray([[True, True], [True, True], [True, False], [True, False]])
    value = with_lapse(jnp.asarray([-1e4, -1e4]), present, 0.3)
    np.testing.assert_allclose(np.exp(value), [0.3 / 15, 0.3 / 3], rtol=1e-12)
    # The answer to a question about one object is certain.
    assert float(with_lapse(jnp.asarray(0.0), jnp.asarray([True, False]), 0.3)) == pytest.approx(0, abs=1e-15)


def test_a_lapse_bounds_the_likelihood_from_below():
    u, present, chosen = some_sets(scale=1e6)
    value, gradient, *slopes = lapsed(u, present, chosen, 1.0, 0.01)
    bound = np.log(0.01 / (2.0 ** present.sum(axis=0) - 1))
    assert np.all(value >= bound - 1e-12)
    assert np.any(value < bound + 1e-3)
    assert np.all(np.isfinite(gradient))
    assert np.all(np.isfinite(slopes))


def test_no_lapse_is_the_limit_of_small_lapses():
    u, present, chosen = some_sets()
    value, gradient = value_and_gradient(u, present, chosen, 1.0)
    for lapse in (0.0, 1e-14):
        mixed, mixed_gradient, *_ = lapsed(u, present, chosen, 1.0, lapse)
        np.testing.assert_allclose(mixed, value, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(mixed_gradient, gradient, rtol=1e-8, atol=1e-11)
