"""The likelihood of a choice against the paper's formula written out, its limits, symmetries and numerics."""

import itertools
import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from choicegp.data.pareto import undominated
from choicegp.model.likelihood import (
    FLOOR,
    MAX_SUMMED,
    log_likelihood,
    object_pairs,
    pair_logs,
    subset_probabilities,
)

# These tests compile much and run little. Most of them share one shape (d, a, sets), that of `SETS`.
QUICK = {"xla_backend_optimization_level": 0}
SETS = (2, 5, 12)

log_p = jax.jit(log_likelihood, static_argnames="floor", compiler_options=QUICK)
table_of = jax.jit(subset_probabilities, static_argnames="floor", compiler_options=QUICK)


@partial(jax.jit, static_argnames="floor", compiler_options=QUICK)
def value_and_gradient(u, present, chosen, sigma, floor=FLOOR):
    """Values and gradients of a batch; sets are independent, so the gradient of their sum has each one's."""

    def total(u):
        value = log_likelihood(u, present, chosen, sigma=sigma, floor=floor)
        return jnp.sum(value), value

    gradient, value = jax.grad(total, has_aux=True)(u)
    return value, gradient


@partial(jax.jit, compiler_options=QUICK)
def lapsed(u, present, chosen, sigma, lapse):
    """The same with lapses, and the slopes of the sum in sigma and in lapse."""

    def total(u, sigma, lapse):
        value = log_likelihood(u, present, chosen, sigma=sigma, lapse=lapse)
        return jnp.sum(value), value

    slopes, value = jax.grad(total, argnums=(0, 1, 2), has_aux=True)(u, sigma, lapse)
    return value, *slopes


def members(a):
    """Return the subsets of a objects as bool (a, 2^a): bit i of the column number says whether i is in."""
    return (np.arange(2**a) >> np.arange(a)[:, None]) & 1 == 1


def utilities(*shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(scale=scale, size=shape)


def random_choices(present, seed=0):
    """Mark at least one of the objects that are present (a, sets) of every set."""
    rng = np.random.default_rng(seed)
    chosen = (rng.random(present.shape) < 0.5) & present
    first = np.argmax(present, axis=0)
    chosen[first, np.arange(present.shape[1])] |= ~chosen.any(axis=0)
    return chosen


def some_sets(seed=0, scale=1.0):
    """Return utilities, presence and choices of the shared shape: sets of five and some of one to four."""
    present = np.arange(SETS[1])[:, None] < np.array([5] * 8 + [1, 2, 3, 4])
    return utilities(*SETS, seed=seed, scale=scale), present, random_choices(present, seed)


def one_of(chosen):
    """Keep the last chosen object of each set, in most sets not the first object."""
    return chosen & (np.cumsum(chosen[::-1], axis=0)[::-1] == 1)


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


def divided_by_hand(u, chosen, sigma=1.0, floor=0.0):
    """The same; with one utility a single one of three or more objects is divided by the sum over single objects."""
    value = by_hand(u, chosen, sigma, floor)
    if len(u) > 1 or sum(chosen) != 1 or u.shape[1] < 3:
        return value
    return value / sum(by_hand(u, single, sigma, floor) for single in np.eye(u.shape[1], dtype=bool))


# --- the formula ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_brute_force_over_all_subsets(d):
    u, sigma = utilities(d, 5, seed=d), 0.7
    # All subsets of the first 1, 2, ... 5 objects; the rest is padding.
    sizes = [(a, number) for a in range(1, 6) for number in range(1, 2**a)]
    present = np.stack([np.arange(5) < a for a, _ in sizes], axis=1)
    chosen = np.stack([members(5)[:, number] for _, number in sizes], axis=1)
    value = log_p(np.repeat(u[..., None], len(sizes), axis=-1), present, chosen, sigma=sigma)
    expected = [divided_by_hand(u[:, :a], members(a)[:, number], sigma, FLOOR) for a, number in sizes]
    np.testing.assert_allclose(np.exp(value), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("a", [1, 2, 3, 4])
def test_brute_force_without_padding(a):
    u, chosen = utilities(2, a, 2**a - 1, seed=a), members(a)[:, 1:]
    value = log_p(u, np.ones_like(chosen), chosen)
    expected = [by_hand(u[..., k], chosen[:, k], floor=FLOOR) for k in range(chosen.shape[1])]
    np.testing.assert_allclose(np.exp(value), expected, rtol=1e-9, atol=1e-15)


@cache
def many_tables(d, a):
    u = utilities(d, a, 4000, seed=a)
    return u, np.asarray(table_of(u))


@pytest.mark.parametrize(("d", "a"), [(1, 3), (1, 5), (2, 3), (2, 5)])
def test_the_table_of_subsets_is_the_formula_too(d, a):
    u, table = many_tables(d, a)
    for k in range(3):
        expected = [by_hand(u[..., k], subset, floor=FLOOR) for subset in members(a).T]
        np.testing.assert_allclose(table[1:, k], expected[1:], rtol=1e-9, atol=1e-15)
    assert np.all(table[0] == 0)


@pytest.mark.parametrize(
    ("d", "a", "mean"),
    [(1, 3, 0.912), (1, 5, 0.748), (1, 8, 0.585), (2, 3, 0.9961), (2, 5, 0.9871), (2, 8, 0.9731)],
)
def test_it_does_not_sum_to_one_over_subsets(d, a, mean):
    u, table = many_tables(d, a)
    sums = table.sum(axis=0)
    assert abs(sums.mean() - mean) < 4 * sums.std() / np.sqrt(len(sums)) + 1e-3
    assert sums.max() < 1 + 1e-8
    if d == 1:  # only single objects count: sum_o prod_v Φ(u_o - u_v)
        wins = ndtr(u[0][:, None] - u[0][None, :])
        wins[np.arange(a), np.arange(a)] = 1.0
        np.testing.assert_allclose(sums, wins.prod(axis=1).sum(axis=0), rtol=1e-8)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_two_objects_have_probabilities_that_sum_to_one(d):
    table = table_of(utilities(d, 2, 50, scale=2.0), floor=0.0)
    np.testing.assert_allclose(table.sum(axis=0), 1.0, rtol=1e-14)


def test_known_value_of_a_pair():
    # One utility, better by one sigma: Φ(1) when the better one is chosen, Φ(-1) when the other one is.
    u, both = jnp.asarray([[3.0, 1.0]]), jnp.ones(2, bool)
    for better_chosen, expected in ((True, 0.8413447460685429), (False, 0.15865525393145707)):
        value = log_p(u, both, jnp.asarray([better_chosen, not better_chosen]), sigma=2.0, floor=0.0)
        assert float(jnp.exp(value)) == pytest.approx(expected, rel=1e-13)


def test_the_authors_floor_is_the_price_of_a_pair_with_one_utility():
    u = utilities(1, 4)
    for n_chosen, n_pairs in ((2, 1), (3, 3), (4, 6)):
        chosen = np.arange(4) < n_chosen
        assert float(log_p(u, chosen, chosen)) == pytest.approx(n_pairs * math.log(1e-10), rel=1e-14)
    assert math.log(FLOOR) == pytest.approx(-23.03, abs=0.005)
    assert float(log_p(u, np.ones(4, bool), np.arange(4) < 2, floor=0.0)) == -np.inf


@pytest.mark.parametrize("d", [1, 2, 3])
def test_without_noise_only_the_pareto_set_is_chosen(d):
    rng = np.random.default_rng(d)
    u = np.stack([rng.permutation(5) for _ in range(d)]).astype(float)  # no two utilities are near
    chosen = members(5)[:, 1:]
    value = log_p(np.repeat(u[..., None], 31, -1), np.ones_like(chosen), chosen, sigma=0.02, floor=0.0)
    is_pareto = np.all(chosen == undominated(u.T)[:, None], axis=0)
    assert is_pareto.sum() == 1
    np.testing.assert_allclose(np.exp(value), is_pareto, atol=1e-12)


# --- symmetries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["utilities", "objects", "sets"])
def test_no_order_matters(axis):
    u, present, chosen = some_sets()
    value, gradient = value_and_gradient(u, present, chosen, 0.5)
    order = np.random.default_rng(1).permutation(SETS[axis]) if axis else np.array([1, 0])
    masks = [np.take(mask, order, axis - 1) if axis else mask for mask in (present, chosen)]
    moved, moved_gradient = value_and_gradient(np.take(u, order, axis), *masks, 0.5)
    np.testing.assert_allclose(moved, value[order] if axis == 2 else value, rtol=1e-12)
    np.testing.assert_allclose(moved_gradient, np.take(np.asarray(gradient), order, axis), rtol=1e-10, atol=1e-13)


def test_only_differences_in_units_of_sigma_matter():
    u, present, chosen = some_sets()
    value, gradient = value_and_gradient(u, present, chosen, 1.0)
    scaled, scaled_gradient = value_and_gradient(3.0 * u + 8.0, present, chosen, 3.0)
    np.testing.assert_allclose(scaled, value, rtol=1e-12)
    np.testing.assert_allclose(3.0 * scaled_gradient, gradient, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(jnp.sum(gradient, axis=1), 0.0, atol=1e-13)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("garbage", [0.0, -1e6, 1e30, 1e300, np.inf, np.nan])
def test_padding_changes_nothing(garbage, d):
    small = np.ones((3, 12), bool)
    u, chosen = utilities(d, 3, 12), random_choices(small)
    chosen = chosen if d > 1 else one_of(chosen)
    value, gradient, *slopes = lapsed(u, small, chosen, 0.8, 0.05)
    # A mark in the padding is no choice: only what is present can be chosen.
    filled = [np.insert(x, [0, 2], y, axis=-2) for x, y in ((u, garbage), (small, False), (chosen, True))]
    padded, padded_gradient, *padded_slopes = lapsed(*filled, 0.8, 0.05)
    np.testing.assert_allclose(padded, value, rtol=1e-12)
    np.testing.assert_allclose(padded_gradient[:, [1, 2, 4]], gradient, rtol=1e-10, atol=1e-14)
    assert np.all(np.asarray(padded_gradient)[:, [0, 3]] == 0)
    np.testing.assert_allclose(padded_slopes, slopes, rtol=1e-10)


def test_a_set_of_padding_alone_says_nothing():
    absent = np.zeros(SETS[1:], bool)
    for value, gradient, *_ in (
        value_and_gradient(utilities(*SETS), absent, absent, 1.0),
        lapsed(utilities(*SETS), absent, absent, 1.0, 0.1),
    ):
        np.testing.assert_allclose(value, 0.0, atol=1e-15)
        assert np.all(np.asarray(gradient) == 0)


def test_a_batch_is_a_loop_over_its_sets():
    u = utilities(2, 4, 3, 5)  # three sets, five samples of the utilities of each
    present = np.arange(4)[:, None] < np.array([4, 3, 4])
    chosen = random_choices(present)
    value = log_p(u, present, chosen, lapse=0.1)
    assert value.shape == (3, 5)
    for k, s in itertools.product(range(3), range(5)):
        single = log_p(u[:, :, k, s], present[:, k], chosen[:, k], lapse=0.1)
        assert float(value[k, s]) == pytest.approx(float(single), rel=1e-12)


# --- numerics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 4])
def test_pair_logs_are_the_logs_of_an_exhaustive_list(d):
    z = utilities(d, 500, scale=3.0)
    p, q, r, c = (np.exp(x) for x in jax.jit(pair_logs)(z))
    np.testing.assert_allclose(p + q + r, 1.0, rtol=1e-13)
    np.testing.assert_allclose(p + c, 1.0, rtol=1e-13)
    np.testing.assert_allclose(p, ndtr(z).prod(axis=0), rtol=1e-12)
    np.testing.assert_allclose(q, ndtr(-z).prod(axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "a", "floor"), [(1, 30, FLOOR), (2, 100, 0.0), (10, 5, FLOOR)])
def test_values_and_gradients_are_finite_at_extreme_differences(d, a, floor, dtype):
    rng = np.random.default_rng(0)
    shape = (d, a, 24)
    kinds = [
        np.zeros(shape),
        1e-12 * rng.normal(size=shape),
        1e6 * rng.normal(size=shape),
        rng.choice([0.0, 1e-12, 1.0, 1e6, -1e6], size=shape),
    ]
    u = np.concatenate(kinds, axis=-1).astype(dtype)
    sizes = np.resize([1, 2, 3, a // 2, a, a], u.shape[-1])
    present = np.arange(a)[:, None] < sizes
    chosen = random_choices(present)
    chosen[1:, ::4], chosen[0, ::4] = False, True  # one object alone
    value, gradient = value_and_gradient(u, present, chosen, 1.0, floor=floor)
    assert value.dtype == gradient.dtype == dtype
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradient))
    assert np.all(np.asarray(value) <= a * a * 1e-9)
    assert np.min(value) < -20  # extreme sets were among them


@pytest.mark.parametrize("z", [6.0, 10.0])
def test_single_precision_is_right_far_out(z):
    # Differences of a pair that agrees, disagrees, or is near in one utility; a third object stands below.
    ahead = [(z, z), (-z, -z), (z, -z), (z, 0.0), (-z, 1.0), (0.5, -z)]
    u = np.zeros(SETS)
    u[:, 0] = np.tile(np.transpose(ahead), 2)
    u[:, 2] = -0.5
    present = np.repeat(np.arange(5)[:, None] < 3, 12, axis=1)
    for first, second in (([1, 0, 0], [0, 1, 0]), ([1, 1, 0], [1, 1, 1])):
        chosen = np.repeat(np.transpose([[*first, 0, 0], [*second, 0, 0]]), 6, axis=1) == 1
        exact, slope = value_and_gradient(u, present, chosen, 1.0, floor=0.0)
        single, single_slope = value_and_gradient(u.astype(np.float32), present, chosen, 1.0, floor=0.0)
        np.testing.assert_allclose(single, exact, rtol=5e-6, atol=1e-6)
        np.testing.assert_allclose(single_slope, slope, rtol=2e-4, atol=1e-6)


def test_gradients_agree_with_finite_differences():
    u, present, chosen = some_sets()
    at, step = (u, 0.8, 0.1), 1e-5

    def total(arguments):
        u, sigma, lapse = arguments
        return float(jnp.sum(lapsed(u, present, chosen, float(sigma), float(lapse))[0]))

    gradient = lapsed(u, present, chosen, *at[1:])[1:]
    rng = np.random.default_rng(2)
    everywhere = [[rng.normal(size=u.shape), 0.0, 0.0] for _ in range(4)]
    for direction in (*everywhere, [0.0 * u, 1.0, 0.0], [0.0 * u, 0.0, 1.0]):
        up, down = (total([x + s * step * v for x, v in zip(at, direction, strict=True)]) for s in (1, -1))
        slope = sum(float(np.sum(g * v)) for g, v in zip(gradient, direction, strict=True))
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-7, abs=1e-8)


def test_a_program_for_large_sets_is_no_longer_than_for_small_ones():
    def lines(a):
        shapes = (jax.ShapeDtypeStruct((2, a, 3), np.float64), *[jax.ShapeDtypeStruct((a, 3), bool)] * 2)
        return len(value_and_gradient.lower(*shapes, 1.0).as_text().splitlines())

    assert lines(100) == lines(20)


# --- the table of all subsets --------------------------------------------------------------------------


def test_the_table_of_subsets_takes_a_batch():
    u = utilities(2, 6, 3, 2, scale=1.5)
    table = table_of(u, sigma=0.9)
    assert table.shape == (64, 3, 2)
    chosen = members(6)[:, 1:]
    repeated = np.broadcast_to(u[..., None], (*u.shape, 63))
    masks = np.broadcast_to(chosen[:, None, None, :], (6, 3, 2, 63))
    value = log_p(repeated, np.ones_like(masks), masks, sigma=0.9)
    np.testing.assert_allclose(np.moveaxis(np.asarray(table[1:]), 0, -1), np.exp(value), rtol=1e-11)


def test_small_probabilities_keep_their_digits_in_the_table():
    # Objects 1 and 2 are far above object 0: that it beats either has probability Φ(-6)².
    u = np.array([[0.0, 6.0, 6.0], [0.0, 6.0, 6.0]])
    table = np.asarray(table_of(u.astype(np.float32), floor=0.0))
    assert table.dtype == np.float32
    rare, even = math.erfc(6 / math.sqrt(2)) / 2, 0.5
    assert table[0b001] == pytest.approx(rare**4, rel=1e-4)
    assert table[0b011] == pytest.approx(2 * rare * (1 - rare) * (rare**2 + even**2 * (1 - rare**2)), rel=1e-4)
    assert table[0b110] == pytest.approx(0.5, rel=1e-4)


def test_too_many_subsets_are_refused():
    most = jax.eval_shape(subset_probabilities, jax.ShapeDtypeStruct((1, MAX_SUMMED), np.float64))
    assert most.shape == (2**16,)
    with pytest.raises(ValueError, match=r"17 objects have 2\^17 subsets; at most 16"):
        subset_probabilities(jnp.zeros((1, MAX_SUMMED + 1)))


def test_pairs_are_numbered_from_both_sides():
    pairs = object_pairs(5)
    assert len(pairs.first) == 10
    assert np.all(pairs.first < pairs.second)
    for number, (o, v) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        assert pairs.index[o, v] == pairs.index[v, o] == number
