"""What a fit reports: utilities that order all objects in the same way are one, and one may be too few."""

import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.fitting.record import (
    FitResult,
    Utilities,
    coinciding_notes,
    coinciding_utilities,
    notes_on,
    one_utility_note,
)

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


@pytest.mark.parametrize(
    ("chosen", "n_utilities", "words"),
    [
        ([[0], [1]], 1, None),
        ([[0, 1], [1]], 2, None),
        ([[0, 1], [1]], 1, "as they were in 1 of 2 sets; use n_utilities=2"),
        ([[0, 1], [0, 1, 2]], 1, "as they were in 2 of 2 sets; use n_utilities=2"),
    ],
)
def test_one_utility_and_several_chosen_objects_are_named_with_advice(chosen, n_utilities, words):
    data = ChoiceData.from_sets(np.eye(3), [[0, 1, 2]] * len(chosen), chosen)
    notes = one_utility_note(data, n_utilities)
    assert (words is None) == (notes == ())
    assert words is None or words in notes[0]
    assert words is None or notes[0].endswith("leave these sets out and use BatchPreferenceGP")
    assert words is None or ": it costs; use" in one_utility_note(data, n_utilities, ": it costs")[0]
    assert notes_on(data, data.X, np.zeros((n_utilities, 3))) == notes


def test_reprs_are_a_line_of_words_and_numbers():
    done = FitResult("converged", "a block of 6 steps gained 0.01 nats", 66, 5.84, np.zeros(66), notes=("so",))
    assert repr(done) == "FitResult(converged: a block of 6 steps gained 0.01 nats; 66 steps in 5.8 s; 1 note)"
    found = Utilities(np.array([[1.0, -2.0], [3.0, 0.5]]), np.full((2, 2), 0.25))
    assert repr(found) == (
        "Utilities(2 objects, 2 utilities: means from -2 to 3, standard deviations from 0.25 to 0.25)"
    )
    unknown = Utilities(np.zeros((1, 1)), np.full((1, 1), np.nan))
    assert repr(unknown) == "Utilities(1 object, 1 utility: means from 0 to 0)"
