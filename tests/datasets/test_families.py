import numpy as np
import pytest

from choicegp import ChoiceGPError, datasets
from choicegp.datasets.families import MADE_PROBLEMS


@pytest.mark.parametrize("name", MADE_PROBLEMS)
def test_choices_are_undominated_and_repeatable(name):
    simulated = datasets.made_choices(name, n_sets=30, set_size=5, random_state=1)
    table = datasets.made_problem(name, 150, random_state=1)
    assert 6 <= table.X.shape[1] <= 8
    assert 2 <= table.U.shape[1] <= 3
    np.testing.assert_array_equal(simulated.U, table.U)
    assert np.all(np.isfinite(table.U))
    for shown, chosen in zip(simulated.data.shown, simulated.data.chosen, strict=True):
        for row in shown:
            beaten = np.any(np.all(table.U[shown] >= table.U[row], axis=1) & np.any(table.U[shown] > table.U[row], 1))
            assert (row in chosen) == (not beaten)


def test_a_problem_is_the_same_for_all_objects():
    """What is random about a problem does not depend on which or how many objects are drawn."""
    few, many = (datasets.made_problem("rotated-zdt1", n, random_state=0) for n in (5, 50))
    np.testing.assert_allclose(few.U, many.U[:5], rtol=1e-12)


def test_unknown_problems_are_refused():
    with pytest.raises(ChoiceGPError, match="no made problem is called 'wfg1'"):
        datasets.made_problem("wfg1")
