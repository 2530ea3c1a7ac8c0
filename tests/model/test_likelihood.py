"""The likelihood of a choice against the paper's formula written out, its limits, symmetries and numerics."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.data.pareto import undominated
from choicegp.model.likelihood import (
    FLOOR,
    MAX_ENUMERATED,
    log_likelihood,
    object_pairs,
    pair_logs,
    subset_probabilities,
    with_lapse,
)

log_p = jax.jit(log_likelihood, static_argnames="floor")
table_of = jax.jit(subset_probabilities, static_argnames="floor")


@partial(jax.jit, static_argnames="floor")
def value_and_gradient(u, present, chosen, **options):
    """Values of a batch of sets and their gradients: sets are independent, so the sum's gradient is each one's."""

    def total(u):
        value = log_likelihood(u, present, chosen, **options)
        return jnp.sum(value), value

    gradient, value = jax.grad(total, has_aux=True)(u)
    return value, gradient


def members(a):
    """Return the subsets of a objects as bool (a, 2^a): bit i of the column number says whether i is in."""
    return (np.arange(2**a) >> np.arange(a)[:, None]) & 1 == 1


def utilities(*shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(scale=scale, size=shape)


def random_choices(a, n_sets, seed=0):
    """Return chosen (a, n_sets): at least one object of every set."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((a, n_sets)) < 0.5
    chosen[rng.integers(a, size=n_sets), np.arange(n_sets)] = True
    return chosen


def dominance(u, o, v, sigma):
    """P(o dominates v): the product of Φ over the utilities, written with erfc."""
    return math.prod(0.5 * math.erfc(-(row[o] - row[v]) / sigma / math.sqrt(2)) for row in u)


def by_hand(u, chosen, sigma=1.0, floor=0.0):
    """eq:likelihoodexpanse0 for one set, factor by factor, with the floor added to each."""
    inside = [o for o in range(u.shape[1]) if chosen[o]]
    outside = [v for v in range(u.shape[1]) if not chosen[v]]
    value = 1.0
    for o, v in itertools.combinations(inside, 2):
        value *= 1 - dominance(u, o, v, sigma) - dominance(u, v, o, sigma) + floor
    for v in outside:
        value *= 1 - math.prod(1 - dominance(u, o, v, sigma) for o in inside) + floor
    return value


# --- the formula ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("a", [1, 2, 3, 4, 5])
def test_brute_force_over_all_subsets(d, a):
    u, sigma = utilities(d, a, seed=10 * d + a), 0.7
    chosen = members(a)[:, 1:]
    batch = np.repeat(u[..., None], chosen.shape[1], axis=-1)
    value = log_p(batch, np.ones_like(chosen), chosen, sigma=sigma)
    expected = [by_hand(u, subset, sigma, FLOOR) for subset in chosen.T]
    np.testing.assert_allclose(np.exp(value), expected, rtol=1e-9, atol=1e-16)
    # The table of subsets is another program for the same numbers.
    np.testing.assert_allclose(table_of(u, sigma=sigma)[1:], np.exp(value), rtol=1e-12)


def test_known_value_of_a_pair():
    # One utility, better by one sigma: Φ(1) when the better one is chosen, Φ(-1) when the other one is.
    u, both = jnp.asarray([[3.0, 1.0]]), jnp.ones(2, bool)
    for better_chosen, expected in ((True, 0.8413447460685429), (False, 0.15865525393145707)):
        chosen = jnp.asarray([better_chosen, not better_chosen])
        assert float(jnp.exp(log_p(u, both, chosen, sigma=2.0, floor=0.0))) == pytest.approx(
            expected, rel=1e-13
        )


def test_the_authors_floor_is_the_price_of_a_pair_with_one_utility():
    u = utilities(1, 4)
    for n_chosen, n_pairs in ((2, 1), (3, 3), (4, 6)):
        chosen = jnp.arange(4) < n_chosen
        inside = float(log_p(u, chosen, chosen))  # the rest is padding
        assert inside == pytest.approx(n_pairs * math.log(1e-10), rel=1e-14)
    assert math.log(FLOOR) == pytest.approx(-23.03, abs=0.005)
    assert float(log_p(u, jnp.ones(4, bool), jnp.arange(4) < 2, floor=0.0)) == -np.inf


@pytest.mark.parametrize("d", [1, 2, 3])
def test_two_objects_have_probabilities_that_sum_to_one(d):
    table = table_of(utilities(d, 2, 50, scale=2.0), floor=0.0)
    np.testing.assert_allclose(table.sum(axis=0), 1.0, rtol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_without_noise_only_the_pareto_set_is_chosen(d):
    rng = np.random.default_rng(d)
    u = np.stack([rng.permutation(5) for _ in range(d)]).astype(float)  # no two utilities are near
    chosen = members(5)[:, 1:]
    value = log_p(np.repeat(u[..., None], 31, -1), np.ones_like(chosen), chosen, sigma=0.02, floor=0.0)
    is_pareto = np.all(chosen == undominated(u.T)[:, None], axis=0)
    assert is_pareto.sum() == 1
    np.testing.assert_allclose(np.exp(value), is_pareto, atol=1e-12)
    np.testing.assert_allclose(table_of(u, sigma=0.02, floor=0.0)[1:], is_pareto, atol=1e-12)


@pytest.mark.parametrize(
    ("d", "a", "expected"),
    [(1, 3, 0.92), (1, 5, 0.72), (1, 8, 0.54), (2, 3, 0.997), (2, 5, 0.986), (2, 8, 0.971)],
)
def test_it_does_not_sum_to_one_over_subsets(d, a, expected):
    sums = np.asarray(table_of(utilities(d, a, 6000, seed=a)).sum(axis=0))
    error = sums.std() / np.sqrt(len(sums))
    assert error < 0.004
    assert abs(sums.mean() - expected) < 0.5 * 10.0 ** -len(str(expected)[2:]) + 4 * error


# --- symmetries ----------------------------------------------------------------------------------------


def test_no_order_matters():
    u, chosen = utilities(3, 5, 12), random_choices(5, 12)
    present = np.ones_like(chosen)
    value, gradient = value_and_gradient(u, present, chosen, sigma=0.5)
    rng = np.random.default_rng(1)
    objects, sets, order = rng.permutation(5), rng.permutation(12), rng.permutation(3)
    for place in ((order,), (slice(None), objects), (slice(None), slice(None), sets)):
        moved = chosen[place[1:]] if len(place) > 1 else chosen
        value_moved, gradient_moved = value_and_gradient(u[place], present, moved, sigma=0.5)
        np.testing.assert_allclose(value_moved, value[place[2:]] if len(place) == 3 else value, rtol=1e-12)
        np.testing.assert_allclose(gradient_moved, gradient[place], rtol=1e-10, atol=1e-13)


def test_only_differences_in_units_of_sigma_matter():
    u, chosen = utilities(2, 4, 9), random_choices(4, 9)
    present = np.ones_like(chosen)
    value = log_p(u, present, chosen)
    np.testing.assert_allclose(log_p(3.0 * u + 8.0, present, chosen, sigma=3.0), value, rtol=1e-12)


@pytest.mark.parametrize("garbage", [0.0, -1e6, 1e30, 1e300, np.inf, np.nan])
def test_padding_changes_nothing(garbage):
    u, chosen = utilities(2, 3, 9), random_choices(3, 9)
    value, gradient = value_and_gradient(u, np.ones_like(chosen), chosen, lapse=0.05)
    padded = np.insert(u, [0, 2, 3], garbage, axis=1)
    present = np.insert(np.ones_like(chosen), [0, 2, 3], False, axis=0)
    # A mark in the padding is no choice: only what is present can be chosen.
    marked = np.insert(chosen, [0, 2, 3], True, axis=0)
    value_padded, gradient_padded = value_and_gradient(padded, present, marked, lapse=0.05)
    np.testing.assert_allclose(value_padded, value, rtol=1e-13)
    np.testing.assert_allclose(gradient_padded[:, present].reshape(2, 3, 9), gradient, rtol=1e-12, atol=1e-15)
    assert np.all(gradient_padded[:, ~present] == 0)


def test_a_set_of_padding_alone_says_nothing():
    absent = jnp.zeros((3, 2), bool)
    for options in ({}, {"lapse": 0.1}):
        value, gradient = value_and_gradient(utilities(2, 3, 2), absent, absent, **options)
        np.testing.assert_allclose(value, 0.0, atol=1e-15)
        assert np.all(gradient == 0)


def test_a_batch_is_a_loop_over_its_sets():
    u = utilities(2, 4, 3, 5)  # three sets, five samples of the utilities of each
    chosen, present = random_choices(4, 3), np.ones((4, 3), bool)
    present[3, 1] = chosen[3, 1] = False
    chosen[0, 1] = True
    value = log_p(u, present, chosen, lapse=0.1)
    assert value.shape == (3, 5)
    for k, s in itertools.product(range(3), range(5)):
        single = log_p(u[:, :, k, s], present[:, k], chosen[:, k], lapse=0.1)
        assert float(value[k, s]) == pytest.approx(float(single), rel=1e-12)


# --- numerics ------------------------------------------------------------------------------------------


def test_pair_logs_are_the_logs_of_an_exhaustive_list():
    z = utilities(4, 500, scale=3.0)
    for d in (1, 2, 4):
        logs = pair_logs(jnp.asarray(z[:d]))
        p, q, r, c = (np.exp(x) for x in logs)
        np.testing.assert_allclose(p + q + r, 1.0, rtol=1e-14)
        np.testing.assert_allclose(p + c, 1.0, rtol=1e-14)
        expected = [dominance(column[:, None] * [1, 0], 0, 1, 1.0) for column in z[:d].T]
        np.testing.assert_allclose(p, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "a"), [(1, 2), (2, 1), (2, 3), (1, 30), (3, 100), (10, 5)])
def test_values_and_gradients_are_finite_at_extreme_differences(d, a, dtype):
    rng = np.random.default_rng(0)
    n_sets = 24
    kinds = [
        np.zeros((d, a, n_sets)),
        1e-12 * rng.normal(size=(d, a, n_sets)),
        1e6 * rng.normal(size=(d, a, n_sets)),
        rng.choice([0.0, 1e-12, 1.0, 1e6, -1e6], size=(d, a, n_sets)),
    ]
    u = np.concatenate(kinds, axis=-1).astype(dtype)
    chosen = random_choices(a, u.shape[-1])
    chosen[1:, ::3] = chosen[:1, ::3] = False
    chosen[0, ::3] = True  # one object alone, which is possible with one utility too
    for options in ({}, {"lapse": 0.02}, {"floor": 0.0}):
        value, gradient = value_and_gradient(u, np.ones_like(chosen), chosen, **options)
        assert value.dtype == gradient.dtype == dtype
        sound = np.isfinite(value)
        if options.get("floor") == 0.0:
            # Only two chosen objects with one utility are impossible.
            np.testing.assert_array_equal(~sound, (d == 1) & (chosen.sum(axis=0) > 1))
        else:
            assert np.all(sound)
        assert np.all(np.isfinite(gradient[..., sound]))


@pytest.mark.parametrize("z", [6.0, 10.0])
@pytest.mark.parametrize("floor", [0.0, FLOOR])
def test_single_precision_is_right_far_out(z, floor):
    # Rows are utilities: the pair agrees, disagrees, or agrees in all but one.
    rows = [[z, z, z], [-z, -z, -z], [z, -z, z], [z, z, 0.0], [z, 1.0, z], [-z, -1.0, 0.5]]
    u = np.zeros((3, 3, len(rows)))
    u[:, 0] = np.transpose(rows)
    u[:, 2] = -0.5
    present = np.ones((3, len(rows)), bool)
    for pattern in ([1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]):
        chosen = np.repeat(np.array(pattern, bool)[:, None], len(rows), axis=1)
        exact, slope = value_and_gradient(u, present, chosen, floor=floor)
        single, slope_single = value_and_gradient(u.astype(np.float32), present, chosen, floor=floor)
        np.testing.assert_allclose(single, exact, rtol=5e-6, atol=1e-6)
        np.testing.assert_allclose(slope_single, slope, rtol=2e-4, atol=1e-5)


def test_gradients_agree_with_finite_differences():
    u, chosen = utilities(2, 4, 7), random_choices(4, 7)
    present = np.ones_like(chosen)
    present[3, :3], chosen[3, :3], chosen[0, :3] = False, False, True

    def total(u, sigma, lapse):
        return jnp.sum(log_likelihood(u, present, chosen, sigma=sigma, lapse=lapse))

    at = (jnp.asarray(u), jnp.asarray(0.8), jnp.asarray(0.1))
    gradient = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*at)
    total, step = jax.jit(total), 1e-5
    rng = np.random.default_rng(2)
    for _ in range(5):
        direction = [jnp.asarray(rng.normal(size=np.shape(x))) for x in at]
        up, down = (
            float(total(*(x + sign * step * v for x, v in zip(at, direction, strict=True))))
            for sign in (1, -1)
        )
        slope = sum(float(jnp.sum(g * v)) for g, v in zip(gradient, direction, strict=True))
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-7)


def test_a_program_for_large_sets_is_no_longer_than_for_small_ones():
    def lines(a):
        shapes = (jax.ShapeDtypeStruct((2, a, 3), np.float64), *[jax.ShapeDtypeStruct((a, 3), bool)] * 2)
        return len(value_and_gradient.lower(*shapes).as_text().splitlines())

    assert lines(100) == lines(20)


# --- lapses --------------------------------------------------------------------------------------------


def test_a_lapse_mixes_in_the_uniform_choice():
    u, lapse = utilities(2, 3), 0.2
    chosen = members(3)[:, 1:]
    value = log_p(np.repeat(u[..., None], 7, -1), np.ones_like(chosen), chosen, lapse=lapse)
    expected = [0.8 * by_hand(u, subset, floor=FLOOR) + 0.2 / 7 for subset in chosen.T]
    np.testing.assert_allclose(np.exp(value), expected, rtol=1e-9)


def test_a_lapse_counts_the_objects_that_are_present():
    present = jnp.asarray([[True, True], [True, True], [True, False], [True, False]])
    value = with_lapse(jnp.asarray([-1e4, -1e4]), present, 0.3)
    np.testing.assert_allclose(np.exp(value), [0.3 / 15, 0.3 / 3], rtol=1e-12)
    # An answer to a question about one object is certain.
    assert float(with_lapse(jnp.asarray(0.0), jnp.asarray([True, False]), 0.3)) == pytest.approx(
        0.0, abs=1e-15
    )


def test_a_lapse_bounds_the_likelihood_from_below():
    u, chosen = utilities(2, 5, 40, scale=1e6), random_choices(5, 40)
    value, gradient = value_and_gradient(u, np.ones_like(chosen), chosen, lapse=0.01, floor=0.0)
    assert np.all(np.asarray(value) >= math.log(0.01 / 31) - 1e-12)
    assert np.all(np.isfinite(gradient))


def test_no_lapse_is_the_limit_of_small_lapses():
    u, chosen = utilities(2, 4, 9), random_choices(4, 9)
    present = np.ones_like(chosen)
    value, gradient = value_and_gradient(u, present, chosen)
    for lapse in (0.0, 1e-14):
        mixed, mixed_gradient = value_and_gradient(u, present, chosen, lapse=lapse)
        np.testing.assert_allclose(mixed, value, rtol=1e-9)
        np.testing.assert_allclose(mixed_gradient, gradient, rtol=1e-9, atol=1e-12)


# --- the table of all subsets --------------------------------------------------------------------------


def test_the_table_of_subsets_takes_a_batch():
    u = utilities(2, 6, 3, 2, scale=1.5)
    table = table_of(u, sigma=0.9)
    assert table.shape == (64, 3, 2)
    assert np.all(np.asarray(table[0]) == 0)
    chosen = members(6)[:, 1:]
    repeated = np.broadcast_to(u[..., None], (*u.shape, 63))
    masks = np.broadcast_to(chosen[:, None, None, :], (6, 3, 2, 63))
    value = log_p(repeated, np.ones_like(masks), masks, sigma=0.9)
    np.testing.assert_allclose(np.moveaxis(np.asarray(table[1:]), 0, -1), np.exp(value), rtol=1e-11)


def test_small_probabilities_keep_their_digits_in_the_table():
    # Each object that is left out of {0} has probability Φ(-6)² of being dominated by it.
    u = np.array([[0.0, 6.0, 6.0], [0.0, 6.0, 6.0]])
    exact = np.asarray(table_of(u, floor=0.0))
    single = np.asarray(table_of(u.astype(np.float32), floor=0.0))
    assert exact[1] == pytest.approx((0.5 * math.erfc(6 / math.sqrt(2))) ** 4, rel=1e-9)
    np.testing.assert_allclose(single[1:], exact[1:], rtol=1e-4)
    assert single.dtype == np.float32


def test_too_many_subsets_are_refused():
    assert table_of(utilities(1, MAX_ENUMERATED)).shape == (2**MAX_ENUMERATED,)
    with pytest.raises(ValueError, match=r"11 objects have 2\^11 subsets; at most 10"):
        subset_probabilities(jnp.zeros((1, MAX_ENUMERATED + 1)))


def test_pairs_are_numbered_from_both_sides():
    pairs = object_pairs(5)
    assert len(pairs.first) == 10
    assert np.all(pairs.first < pairs.second)
    for number, (o, v) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        assert pairs.index[o, v] == pairs.index[v, o] == number
