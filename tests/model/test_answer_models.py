"""Thresholds, the rule "best in one" and single best objects: brute force, sums, limits, and derivatives."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from choicegp.model.error_models import DISCERNIBILITY, KEPT_BY, BestInOne, GaussianNoise, WithThreshold
from choicegp.model.likelihood import FLOOR, subset_probabilities

from .conftest import mean_derivatives

QUICK = {"xla_backend_optimization_level": 0}
N_SETS, N_SAMPLES = 12, 3
THRESHOLD, IN_ONE, IN_ONE_OR_NONE = WithThreshold(), BestInOne(), BestInOne(threshold=True)
KINDS = {
    "threshold": THRESHOLD,
    "in one": IN_ONE,
    "in one or none": IN_ONE_OR_NONE,
    "best": DISCERNIBILITY.of_kind("best"),
    "worst": THRESHOLD.of_kind("worst"),
    "best of one": IN_ONE.of_kind("best"),
    "worst of one": IN_ONE_OR_NONE.of_kind("worst"),
}
SINGLE = ("best", "worst", "best of one", "worst of one")


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def expected(errors, u, present, chosen, lapse):
    return errors.expected_derivatives(u, present, chosen, lapse)


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def sampled(errors, u, present, chosen, lapse):
    return errors.sampled(u, present, chosen, lapse)


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def in_logs(errors, u, present, chosen, lapse):
    return errors.log_likelihood(u, present[..., None], chosen[..., None], lapse)


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def reference(errors, u, present, chosen, lapse):
    return mean_derivatives(lambda u: errors.log_likelihood(u, present[..., None], chosen[..., None], lapse), u)


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def all_probabilities(errors, u):
    return errors.answers(u)


def some_sets(name, d, a, seed=0, most=99):
    """Return u (d, a, m, S) at several scales and masks: chosen, then the threshold, then rejected, then padding."""
    rng = np.random.default_rng(seed)
    scales = np.resize([0.0, 0.3, 1.0, 3.0, 6.0], N_SETS)
    u = rng.normal(size=(d, a, N_SETS, N_SAMPLES)) * scales[:, None]
    sizes = np.resize([a, a, max(1, a - 1), max(1, a - 2)], N_SETS)
    none = KINDS[name].has_threshold
    n_chosen = np.ones_like(sizes) if name in SINGLE else rng.integers(1 - none, np.minimum(sizes - none, most) + 1)
    rows = np.arange(a)[:, None]
    return u, rows < sizes, rows < n_chosen


@pytest.mark.parametrize(
    ("name", "d", "a"),
    [*((name, 2, 4) for name in KINDS if "worst" not in name), ("threshold", 1, 3), ("in one or none", 3, 3)],
)
def test_they_are_the_derivatives_of_the_likelihood(name, d, a):
    errors = KINDS[name]
    u, present, chosen = some_sets(name, d, a, seed=10 * d + a)
    for lapse in (0.0, 0.1):
        value, gradient, curvature = reference(errors, u, present, chosen, lapse)
        found = expected(errors, u, present, chosen, lapse)
        np.testing.assert_allclose(found.value, value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.gradient, gradient, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found.curvature, curvature, rtol=1e-7, atol=1e-7)
        assert np.all((found.lapsed >= -1e-12) & (found.lapsed <= 1.0))
        quick, slow = (f(errors, u, present, chosen, lapse) for f in (sampled, in_logs))
        np.testing.assert_allclose(quick, slow, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(np.mean(quick, axis=-1), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in KINDS if "worst" not in name])
def test_padding_changes_nothing(name):
    errors = KINDS[name]
    u, present, chosen = some_sets(name, 2, 4, seed=5)
    before = expected(errors, u, present, chosen, 0.0)
    hidden = np.where(present[None, :, :, None], u, np.nan)
    empty = np.arange(N_SETS) == 4  # a set of padding alone
    found = expected(errors, hidden, present & ~empty, chosen & ~empty, 0.0)
    for part, same in zip(found[:3], before[:3], strict=True):
        np.testing.assert_allclose(part[..., ~empty], same[..., ~empty], atol=1e-10)
        assert np.all(np.isfinite(part))
    assert np.all(found.gradient[:, ~present] == 0.0)


@pytest.mark.parametrize("name", [name for name in KINDS if "worst" not in name])
def test_derivatives_are_finite_however_far_apart_objects_are(name):
    u, present, chosen = some_sets(name, 2, 4, seed=7)
    for scale in (1e2, 1e6):
        assert all(np.all(np.isfinite(part)) for part in expected(KINDS[name], scale * u, present, chosen, 0.0))


def all_answers(a, none=False):
    return [np.array(mask) for mask in product([False, True], repeat=a) if none or any(mask)]


def values_of(errors, u, answers):
    """Return p(C | A, u) of answers at utilities (d, a), put in order; with a threshold, it is the last object."""
    n, marks = u.shape[1], np.array(answers)
    if errors.has_threshold:
        marks = np.column_stack([marks, np.zeros(len(marks), bool)])
    rank = np.where(marks, 0, 2)
    if errors.has_threshold:
        rank[:, -1] = 1
    order = np.argsort(rank, axis=1, kind="stable").T
    ordered = np.take_along_axis(marks.T, order, 0)
    return np.exp(sampled(errors, u[:, order][..., None], np.ones((n, len(marks)), bool), ordered, 0.0)[:, 0])


def codes_of(answers):
    return np.array(answers) @ (1 << np.arange(len(answers[0])))


def singles_of(errors, u):
    return values_of(errors, u, list(np.eye(u.shape[1], dtype=bool)))


def test_a_threshold_is_an_object_that_is_not_seen():
    u = np.random.default_rng(0).normal(size=(2, 4))  # three objects, and the threshold as the last
    table = np.asarray(jax.jit(subset_probabilities)(u))
    answers = all_answers(3, none=True)
    np.testing.assert_allclose(all_probabilities(THRESHOLD, u), table[:8] + table[8:], rtol=1e-12)
    by_hand = (table[:8] + table[8:])[codes_of(answers)]
    np.testing.assert_allclose(values_of(THRESHOLD, u, answers), by_hand, rtol=1e-9)


@pytest.mark.parametrize("errors", [THRESHOLD, IN_ONE_OR_NONE])
def test_a_set_of_one_object_is_a_question_of_yes_or_no(errors):
    u = np.random.default_rng(0).normal(size=(3, 2))
    beaten = float(np.prod(ndtr(u[:, 1] - u[:, 0])))
    found = values_of(errors, u, [np.array([False]), np.array([True])])
    np.testing.assert_allclose(found, [beaten, 1.0 - beaten], atol=1e-9)


def by_assignments(u, none):
    """Return p(C) of every answer under the rule, one assignment of winners to utilities after the other."""
    d, a = u.shape
    scores = np.array([[np.prod([ndtr(row[o] - row[v]) for v in range(a) if v != o]) for o in range(a)] for row in u])
    q = scores / scores.sum(axis=1, keepdims=True)
    seen = a - none
    table = np.zeros(2**seen)
    for winners in product(range(a), repeat=d):
        code = sum(1 << o for o in set(winners) if o < seen)
        table[code] += np.prod(q[np.arange(d), winners])
    return table


@pytest.mark.parametrize("errors", [IN_ONE, IN_ONE_OR_NONE])
@pytest.mark.parametrize("d", [1, 3])
def test_the_best_in_one_are_the_winners_of_the_utilities(errors, d):
    u = np.random.default_rng(d).normal(size=(d, 4 + errors.has_threshold))
    by_hand, table = by_assignments(u, errors.has_threshold), np.asarray(all_probabilities(errors, u))
    assert by_hand.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(table, by_hand, atol=2e-9)
    answers = all_answers(4, none=errors.has_threshold)
    np.testing.assert_allclose(values_of(errors, u, answers), table[codes_of(answers)], rtol=1e-9)


def test_an_answer_with_more_objects_than_utilities_pays_the_floor_for_each():
    u = np.random.default_rng(0).normal(size=(2, 4))
    winners = by_assignments(u, none=False)
    inside = sum(winners[code] for code in range(16) if code & 0b1000 == 0)  # both winners are among the first three
    found = values_of(IN_ONE, u, [np.array([True, True, True, False])])
    np.testing.assert_allclose(found, FLOOR * inside, rtol=1e-6)


def test_of_two_objects_both_rules_keep_the_same():
    u = np.random.default_rng(1).normal(size=(3, 2))
    answers = all_answers(2)
    np.testing.assert_allclose(values_of(IN_ONE, u, answers), values_of(DISCERNIBILITY, u, answers), atol=1e-9)


@pytest.mark.parametrize("name", KEPT_BY)
def test_without_errors_the_answer_is_the_one_of_the_rule(name):
    errors, rng = KEPT_BY[name], np.random.default_rng(3)
    for _ in range(3):
        u = rng.normal(size=(2, 4))
        seen = 4 - errors.has_threshold
        if "one" in name:
            kept = {int(o) for o in np.argmax(u, axis=1)}
        else:
            kept = {o for o in range(4) if not any(np.all(u[:, v] > u[:, o]) for v in range(4))}
        code = sum(1 << o for o in kept if o < seen)
        table = np.asarray(all_probabilities(errors, 1e4 * u))
        assert table[code] == pytest.approx(1.0, abs=1e-6)
        assert table.sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", SINGLE[::2])
def test_probabilities_of_single_objects_sum_to_one(name):
    u = np.random.default_rng(0).normal(size=(2, 4))
    p = singles_of(KINDS[name], u)
    assert sum(p) == pytest.approx(1.0, abs=1e-8)
    # The worst by u are the best by -u.
    other = {"best": "worst", "worst": "best"}[name.split()[0]] + name.removeprefix(name.split()[0])
    np.testing.assert_allclose(singles_of(KINDS[other], -u), p, rtol=1e-12)


def test_the_best_object_is_one_that_nothing_dominates():
    u = np.random.default_rng(0).normal(size=(2, 4))
    stands = [np.prod([1 - np.prod(ndtr(u[:, v] - u[:, o])) for v in range(4) if v != o]) for o in range(4)]
    np.testing.assert_allclose(singles_of(KINDS["best"], u), np.array(stands) / sum(stands), rtol=1e-7)
    # Without errors, those that nothing dominates are equally likely.
    apart = 1e4 * np.array([[2.0, 1.0, 0.0, -1.0], [0.0, 1.0, 2.0, -1.0]])
    np.testing.assert_allclose(singles_of(KINDS["best"], apart), [1 / 3, 1 / 3, 1 / 3, 0.0], atol=1e-8)


def test_with_one_utility_the_best_object_has_the_likelihood_of_a_single_choice():
    u = np.random.default_rng(0).normal(size=(1, 4))
    same = singles_of(DISCERNIBILITY, u)
    np.testing.assert_allclose(singles_of(KINDS["best"], u), same, rtol=1e-9)
    np.testing.assert_allclose(singles_of(KINDS["best of one"], u), same, rtol=1e-8)


@pytest.mark.parametrize("name", [name for name in KINDS if "worst" not in name])
def test_only_differences_of_utilities_count_and_their_order_does_not(name):
    errors = KINDS[name]
    u, present, chosen = some_sets(name, 2, 4, seed=2)
    value = sampled(errors, u, present, chosen, 0.0)
    moved = u[::-1] + np.array([3.0, -5.0])[:, None, None, None]
    np.testing.assert_allclose(sampled(errors, moved, present, chosen, 0.0), value, rtol=1e-8, atol=1e-8)


def test_lapses_are_random_answers_of_the_kind():
    u = np.repeat([[[[-1e3]], [[0.0]], [[0.0]]]], 2, 0)  # the first object is far below the others
    all_present, first, nothing = np.ones((3, 1), bool), np.array([[True], [False], [False]]), np.zeros((3, 1), bool)
    found = [sampled(KINDS["best"], u, all_present, first, 0.3), sampled(THRESHOLD, u, all_present, nothing, 0.2),
             sampled(IN_ONE_OR_NONE, u, all_present, nothing, 0.2)]  # fmt: skip
    # One of three objects; one of four answers about two objects above the threshold.
    np.testing.assert_allclose(np.exp(np.ravel(found)), [0.1, 0.05, 0.05], rtol=1e-6)


def test_gaussian_noise_has_a_mirror_image_and_no_threshold():
    assert GaussianNoise().of_kind("best") == GaussianNoise()
    u = np.random.default_rng(0).normal(size=(1, 3, 1, 1))
    marks = np.ones((3, 1), bool), np.array([[True], [False], [False]])
    worst = sampled(GaussianNoise().of_kind("worst"), u, *marks, None)
    np.testing.assert_allclose(worst, sampled(GaussianNoise(), -u, *marks, None))
    with pytest.raises(ValueError, match="no threshold"):
        GaussianNoise().with_threshold()
    with pytest.raises(ValueError, match="one object"):
        GaussianNoise().answers(jnp.asarray(u))
