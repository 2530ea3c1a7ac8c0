"""Utilities that order all objects alike are one."""

import numpy as np

from choicegp.fitting.record import alike_notes, alike_utilities

U = np.random.default_rng(0).normal(size=(1, 60)) * 4


def test_a_rescaled_copy_is_alike_and_an_opposite_is_not():
    assert alike_utilities(np.concatenate([U, 0.5 * U + 3.0])) == [(0, 1)]
    assert alike_utilities(np.concatenate([U, -U])) == [(0,), (1,)]


def test_close_calls_do_not_count():
    noise = 0.1 * np.random.default_rng(1).normal(size=U.shape)
    assert alike_utilities(np.concatenate([U, U + noise])) == [(0, 1)]


def test_independent_utilities_are_not_alike():
    other = np.random.default_rng(2).normal(size=U.shape) * 4
    assert alike_utilities(np.concatenate([U, other])) == [(0,), (1,)]


def test_a_flat_utility_is_like_no_other():
    assert alike_utilities(np.concatenate([U, 1e-3 * U])) == [(0,), (1,)]
    assert alike_utilities(np.zeros((2, 5))) == [(0,), (1,)]


def test_one_object_and_many_objects():
    assert alike_utilities(np.ones((2, 1))) == [(0,), (1,)]
    many = np.random.default_rng(3).normal(size=(1, 5000)) * 4
    assert alike_utilities(np.concatenate([many, 2 * many])) == [(0, 1)]


def test_in_words():
    assert alike_notes(np.concatenate([U, U, -U, 2 * U])) == (
        "utilities 1, 2 and 4 order all objects alike: they count as one",
    )
    assert alike_notes(np.concatenate([U, -U])) == ()
