from functools import partial

import numpy as np
import pytest

from choicegp import ChoiceGP
from choicegp.experiments import pareto_problems as experiment
from choicegp.experiments.experiment import ExperimentOptions, Outcome


def outcome(model, problem, a_mean, seed=0):
    settings = {"model": model, "problem": problem, "seed": seed, "n_sets": 40960}
    settings |= {} if model == "ChoiceGP" else {"rounds": 10}
    values = {
        "a_mean": a_mean, "tpr": 0.9, "tnr": 0.8, "exact_accuracy": 0.7, "share_chosen": 0.4, "seconds_fitting": 12.0
    }  # fmt: skip
    return Outcome(settings, values, 15.0, "0")


def test_the_paper_s_size_is_asked_for_by_default():
    asked = experiment.runs(ExperimentOptions())
    assert len(asked) == 5 * 2 * 12
    assert {settings["n_sets"] for settings in asked} == {40960}
    assert {settings["seed"] for settings in asked[:24]} == {0}  # repetition by repetition
    rounds = {s["problem"]: s["rounds"] for s in asked if s["model"] == "ChoiceNN"}
    assert [problem for problem, n in rounds.items() if n == 60] == ["zdt1", "dtlz1", "dtlz2", "dtlz7"]
    assert set(rounds) == set(experiment.PROBLEMS)


def test_seed_and_repetitions_are_those_of_the_command():
    asked = experiment.runs(ExperimentOptions(seed=3, repetitions=2))
    assert sorted({settings["seed"] for settings in asked}) == [3, 4]


def test_choices_are_read_where_a_folder_has_them(tmp_path, monkeypatch):
    experiment.write(tmp_path, n_sets=30)
    made = {problem: experiment.load(problem, 30) for problem in ("zdt4", "dtlz3")}
    monkeypatch.setattr(experiment.datasets, "benchmark_choices", None)  # as where pymoo is missing
    for problem, expected in made.items():
        found = experiment.load(problem, 30, tmp_path)
        np.testing.assert_array_equal(found.X, expected.X)
        np.testing.assert_array_equal(found.flat_chosen, expected.flat_chosen)


@pytest.mark.parametrize("model", ["ChoiceGP", "ChoiceNN"])
def test_a_run_measures_its_model_on_sets_it_has_not_seen(model, monkeypatch):
    monkeypatch.setattr(experiment, "SIZE", 3)
    # The default kernel takes three times as long to compile, and is tested elsewhere.
    monkeypatch.setattr(experiment, "ChoiceGP", partial(ChoiceGP, kernel="rbf"))
    settings = next(s for s in experiment.runs(ExperimentOptions(quick=True)) if s["model"] == model)
    settings |= {"n_sets": 60} | ({"max_iter": 10, "n_inducing": 8} if model == "ChoiceGP" else {"rounds": 1})
    values = experiment.run(settings, None)
    assert 0.0 <= values["a_mean"] <= 1.0
    assert values["a_mean"] == pytest.approx((values["tpr"] + values["tnr"]) / 2)
    assert values["n_utilities"] == 2


def test_the_report_compares_problem_by_problem():
    found = experiment.report([
        outcome("ChoiceGP", "zdt1", 0.99), outcome("ChoiceGP", "zdt1", 0.97, seed=1), outcome("ChoiceNN", "zdt1", 0.95),
        outcome("ChoiceGP", "dtlz1", 0.91), outcome("ChoiceNN", "dtlz1", 0.92), outcome("ChoiceGP", "dtlz2", 0.9),
    ])  # fmt: skip
    assert "0.9800 ± 0.0141" in found.text
    assert "1 of 2 problems (splits: 1); not on DTLZ1" in found.text  # the second split of ZDT1 has no rival
    assert "**changed**" in found.text
    assert set(found.figures) == {"pareto-a-mean"}


def test_one_model_alone_is_not_compared():
    assert "they cannot be compared" in experiment.report([outcome("ChoiceGP", "zdt1", 0.99)]).text
