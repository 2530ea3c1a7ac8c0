import numpy as np

from choicegp import ChoiceData
from choicegp.datasets.noisy import noisy_choices
from choicegp.evaluation.predictive_checks import compared, statistics

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
SHOWN = [RNG.choice(12, 3, replace=False).tolist() for _ in range(40)]


def simulated(n):
    return [noisy_choices(X, 3 * X, SHOWN, random_state=1000 + i) for i in range(n)]


def test_choices_of_the_model_itself_fit():
    found = compared(noisy_choices(X, 3 * X, SHOWN, random_state=1), simulated(200))
    assert found.fits
    assert found.message == "The choices look like those that the model would make."
    assert found.table["p"].min() > 0.02
    assert str(found).count("\n") == 7


def test_other_choices_are_named():
    everything = ChoiceData.from_sets(X, SHOWN, SHOWN)
    found = compared(everything, simulated(200))
    assert not found.fits
    assert found.table.loc["all", "p"] < 0.01
    assert "the share of sets of which everything is kept is 1, where the model expects" in found.message
    assert found.message.endswith("and check again.")


def test_reversals_are_counted_once_for_each_pair():
    data = ChoiceData.from_sets(X, [[0, 1], [1, 0], [2, 3], [3, 2], [4, 5]], [[0], [1], [2], [2], [4]])
    assert statistics(data)["reversed"] == 0.5
