"""Utilities that order all objects in the same way are one."""

import numpy as np

from choicegp.fitting.record import coinciding_notes, coinciding_utilities

U = np.random.default_rng(0).normal(size=(1, 60)) * 4


def test_a_rescaled_copy_coincides_and_an_opposite_does_not():
    assert coinciding_utilities(np.concatenate([U, 0.5 * U + 3.0])) == [(0, 1)]
    assert coinciding_utilities(np.concatenate([U, -U])) == [(0,), (1,)]


def test_close_calls_do_not_count():
    noise = 0.1 * np.random.default_rng(1).normal(size=U.shape)
    assert coinciding_utilities(np.concatenate([U, U + noise])) == [(0, 1)]


def test_independent_utilities_do_not_coincide():
    other = np.random.default_rng(2).normal(size=U.shape) * 4
    assert coinciding_utilities(np.concatenate([U, other])) == [(0,), (1,)]


def test_a_flat_utility_is_like_no_other():
    assert coinciding_utilities(np.concatenate([U, 1e-3 * U])) == [(0,), (1,)]
    assert coinciding_utilities(np.zeros((2, 5))) == [(0,), (1,)]


def test_one_object_and_many_objects():
    assert coinciding_utilities(np.ones((2, 1))) == [(0,), (1,)]
    many = np.random.default_rng(3).normal(size=(1, 5000)) * 4
    assert coinciding_utilities(np.concatenate([many, 2 * many])) == [(0, 1)]


def test_in_words():
    assert coinciding_notes(np.concatenate([U, U, -U, 2 * U])) == (
        "utilities 1, 2 and 4 order all objects in the same way: they count as one",
    )
    assert coinciding_notes(np.concatenate([U, -U])) == ()
