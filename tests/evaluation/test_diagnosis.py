"""Every finding of a diagnosis comes with one sentence of advice."""

import equinox as eqx
import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP
from choicegp.compute.devices import computing
from choicegp.evaluation.diagnosis import Diagnosis, importance, in_words
from choicegp.inference import intervals, mcmc
from choicegp.kernels import RBF

COVERS = {
    (0.2, True): (
        "covers the posterior well (Pareto k = 0.20, 900 of 1000 draws effective)",
        "Keep inference='dense'.",
    ),
    (0.6, True): ("is usable (Pareto k = 0.60", "compare intervals on which a decision depends with inference='mcmc'."),
    (0.8, True): ("is usable (Pareto k = 0.80", "Keep inference='dense' for probabilities"),
    (0.8, False): ("misses parts of the posterior", "Fit again with inference='mcmc' before you use intervals."),
}
MOVES = {
    (900.0, 0.001): "by 0.001 on average. This is small: probabilities by inference='dense' can be used.",
    (900.0, 0.05): "by 0.050 on average. This is large: compare probabilities on which a decision depends",
    (99.0, 0.001): "on average. Too few draws are effective to rely on this figure: pass n_draws=10000.",
}


@pytest.mark.parametrize(("k", "trusted"), COVERS)
@pytest.mark.parametrize(("effective", "moved"), MOVES)
def test_findings_have_advice(k, trusted, effective, moved):
    text = in_words(k, effective, 1000, moved, trusted)
    finding, advice = COVERS[k, trusted]
    assert text.startswith("the Gaussian approximation ")
    assert finding.replace("900 of", f"{effective:.0f} of") in text
    assert advice in text
    assert MOVES[effective, moved] in text
    assert text.index(advice) < text.index("Weighting moves")


# With a shared part


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    X = np.random.default_rng(0).normal(size=(6, 1))
    return ChoiceData.from_sets(X, [[0, 1], [2, 3], [4, 5], [0, 2], [1, 3]], [[0], [2], [4], [0], [1]])


# Single answers and a small variance: the posterior is close to a Gaussian.
HELD = {"kernel": RBF(1.0, 1.0), "learn_hyperparameters": False, "n_restarts": 1, "max_iter": 60, "progress": False}


@pytest.fixture(scope="module")
def model(data) -> ChoiceGP:
    return ChoiceGP(2, intervals="none", **HELD).fit(data)


def test_a_model_of_few_choices_with_a_shared_part_is_trusted(model):
    assert model.posterior_.prior.shared
    found = model.diagnose()
    assert found.trusted
    assert found.effective > 1900
    assert found.moved < 0.01
    assert found == model.diagnose(), "the same draws"
    assert "Keep inference='dense'" in found.message, "no chains were made: none can have mixed"


def test_a_gaussian_in_the_wrong_place_is_not_trusted(model):
    """The shared part of the posterior is what is moved: weights see it."""
    with computing():
        moved = eqx.tree_at(
            lambda of: of.mean, model.posterior_, model.posterior_.mean + 4.0 * np.array([1.0, -1, 1, -1, 1, -1])
        )
        problem = model.fitted_.training_problem()
        right, wrong = (importance(one, problem, n_draws=2000, seed=0) for one in (model.posterior_, moved))
    assert wrong[1] < 0.3 * right[1], "fewer effective draws"
    assert wrong[2] > 2 * right[2], "probabilities move more"


def test_draws_leave_the_diagnosis_of_the_gaussian_as_it_is(model, data, monkeypatch):
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 0)
    mixed = ChoiceGP(2, **HELD).fit(data)
    assert mixed.posterior_.draws.dual.shape[0] == mcmc.MOST_SETTINGS
    assert mixed.diagnose() == model.diagnose()


def test_a_diagnosis_prints_what_it_found():
    found = Diagnosis(False, "it misses parts. Fit again.", 1.2, 20.0, 2000, 0.1)
    assert str(found) == "it misses parts. Fit again."
    assert repr(found) == "Diagnosis(not trusted: it misses parts. Fit again.)"


def test_a_model_with_draws_is_sent_to_its_draws():
    text = in_words(0.8, 50.0, 1000, 0.001, False, sampled=True)
    assert text.startswith(
        "the Gaussian approximation misses parts of the posterior (Pareto k = 0.80, 50 of 1000 draws"
    )
    assert "effective). For this model it was only the start: its predictions and intervals come from chains" in text
    assert "Weighting" not in text
    assert "before you use intervals" not in text
