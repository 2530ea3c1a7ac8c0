"""What an option becomes on its way to an inference."""

import numpy as np
import pytest

from choicegp import ChoiceGP, Dense
from choicegp.fitting.options import FitOptions
from choicegp.inference import paper


def test_the_papers_inference_has_the_same_interface(quick, half):
    model = quick(inference="paper-converged", max_iter=10).fit(half)
    assert model.fit_result_.status in ("stopped", "converged")
    assert np.isfinite(np.concatenate(model.predict_proba(half))).all()
    assert model.score(half) > 0.4


def test_the_papers_steps_are_called_with_the_options(quick, half, monkeypatch):
    class Called(Exception):
        """Instead of 5000 steps."""

    def called(task: object) -> None:
        raise Called(task)

    monkeypatch.setattr(paper, "PaperInference", called)
    with pytest.raises(Called) as raised:
        quick(inference="paper", max_iter=None, n_restarts=4, random_state=9, lapse=0.2).fit(half)
    task = raised.value.args[0]
    assert (task.seed, task.n_starts, task.max_iter, task.lapse) == (9, 4, 5000, 0.2)


def test_a_record_is_fitted_saved_and_loaded_like_its_name(quick, half, tmp_path):
    by_name = quick(inference="dense", max_iter=30).fit(half)
    by_record = quick(inference=Dense(max_iter=30), max_iter=None).fit(half)
    assert by_record.elbo_ == by_name.elbo_
    by_record.save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    assert loaded.inference == Dense(max_iter=30)
    assert np.array_equal(loaded.log_prob(half), by_name.log_prob(half))


@pytest.mark.parametrize(
    ("n_objects", "n_utilities", "inference", "n_starts"),
    [(160, 2, "dense", 9), (160, 3, "dense", 16), (160, 3, "paper", 9), (161, 3, "paper", 3), (161, 2, "dense", 3)],
)
def test_few_objects_and_many_utilities_have_more_starts(n_objects, n_utilities, inference, n_starts):
    options = FitOptions.validated(ChoiceGP(n_utilities, inference=inference).get_params())
    assert options.n_starts(n_objects) == n_starts
