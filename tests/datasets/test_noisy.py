"""Choices drawn from the model."""

import numpy as np
import pytest

from choicegp import ChoiceGPError
from choicegp.datasets import noisy_choices
from choicegp.model.likelihood import subset_probabilities

U = np.array([[0.0, 0.5], [0.4, -0.3], [-0.5, 0.1]])
X = np.arange(3.0)[:, None]


def test_choices_have_the_normalised_probabilities():
    drawn = noisy_choices(X, U, [[0, 1, 2]] * 4000, random_state=1)
    codes = np.array([np.sum(1 << rows) for rows in drawn.chosen])
    table = np.asarray(subset_probabilities(U.T))
    np.testing.assert_allclose(np.bincount(codes, minlength=8) / 4000, table / table.sum(), atol=0.025)
    assert np.bincount(codes, minlength=8)[0] == 0


def test_large_utilities_leave_no_errors_and_seeds_repeat():
    shown = [[0, 1], [1, 2], [2], [0, 1, 2]] * 20
    sure = noisy_choices(X, 1e3 * U, shown)
    assert [rows.tolist() for rows in sure.chosen] == [[0, 1], [1, 2], [2], [0, 1]] * 20
    one, two, other = (noisy_choices(X, U, shown, seed) for seed in (0, 0, 1))
    assert one == two
    assert one != other


def test_sets_too_large_are_refused():
    with pytest.raises(ChoiceGPError, match=r"set 1 has 11 objects.*at most 10"):
        noisy_choices(np.arange(11.0)[:, None], np.zeros((11, 2)), [[0, 1], range(11)])
