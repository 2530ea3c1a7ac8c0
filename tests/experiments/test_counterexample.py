"""The counterexample: what is run, what a run gives, and a report of whatever is done."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from choicegp import datasets
from choicegp.experiments import counterexample
from choicegp.experiments.counterexample import grid_points, order_in_the_same_way, pairs_of, report, run, runs
from choicegp.experiments.experiment import ExperimentOptions, Outcome

TINY = {"data_seed": 0, "n_objects": 12, "n_pairs": 20, "n_new": 30, "max_epochs": 3}


def outcome(model, d, seed=0, **values):
    curves = {"mean": np.outer(grid_points(), np.ones(d)).tolist()}
    if model == "ChoiceGP":
        curves |= {"low": curves["mean"], "high": curves["mean"], "called_alike": True}
    made = dict.fromkeys((*counterexample.SHARES, "correlation_of_the_two", "correlation_with_u"), 0.25)
    made["correlation_of_the_two"] = 0.5 if d == 2 else math.nan
    return Outcome({"model": model, "d": d, "seed": seed} | TINY, made | curves | values, 1.0, "0.1.0")


def test_the_runs_are_those_of_the_protocol():
    made = [(one["model"], one["d"], one["seed"]) for one in runs(ExperimentOptions())]
    assert made == [
        ("ChoiceNN", 1, 0), ("ChoiceNN", 2, 0), ("ChoiceNN", 1, 1), ("ChoiceNN", 2, 1), ("ChoiceGP", 2, 0),
    ]  # fmt: skip
    assert {one["n_pairs"] for one in runs(ExperimentOptions())} == {500}
    assert {one["max_epochs"] for one in runs(ExperimentOptions(quick=True))} == {50}
    assert {one["data_seed"] for one in runs(ExperimentOptions(seed=7))} == {7}


def test_new_pairs_are_new():
    train, known, other = pairs_of(TINY)
    shown = {tuple(sorted(rows)) for rows in train.shown}
    assert not shown & {tuple(sorted(rows)) for rows in known.shown}
    assert (len(train), len(known), len(other)) == (20, 30, 30)
    np.testing.assert_array_equal(known.X, train.X)
    assert not set(other.X[:, 0]) & set(train.X[:, 0])
    # Everyone is right about who is better.
    u = datasets.counterexample_utility(known.X)[:, 0]
    assert all([rows[np.argmax(u[rows])]] == list(kept) for rows, kept in zip(known.shown, known.chosen, strict=True))


def test_a_run_of_the_network():
    values = run({"model": "ChoiceNN", "d": 1, "seed": 0} | TINY, None)
    assert all(0 <= values[share] <= 1 for share in counterexample.SHARES)
    assert np.shape(values["mean"]) == (len(grid_points()), 1)
    assert -1 <= values["correlation_with_u"] <= 1
    assert math.isnan(values["correlation_of_the_two"])
    assert "called_alike" not in values


class TwiceTheTruth:
    """What is used of `ChoiceGP`, which takes long to compile: both utilities are the true one, up to their level."""

    fit_result_ = SimpleNamespace(status="converged", notes=())

    def __init__(self, n_utilities, progress, random_state):
        self.d = n_utilities

    def fit(self, data):
        return self

    def score(self, data):
        return 1.0

    def utilities(self, data):
        return SimpleNamespace(mean=np.repeat(datasets.counterexample_utility(data.X), self.d, axis=1))

    def sample_utilities(self, X, n_samples, random_state):
        u = datasets.counterexample_utility(X["x"].to_numpy())
        return (
            7 + u + np.random.default_rng(0).normal(size=(n_samples, 1, self.d)) + np.zeros((n_samples, len(u), self.d))
        )


def test_a_run_of_choicegp_has_bands_around_no_level(monkeypatch):
    monkeypatch.setattr(counterexample, "ChoiceGP", TwiceTheTruth)
    values = run({"model": "ChoiceGP", "d": 2, "seed": 0} | TINY, None)
    u = datasets.counterexample_utility(grid_points())
    for name in ("mean", "low", "high"):  # the draws differ by their levels alone
        np.testing.assert_allclose(values[name], np.repeat(u - u.mean(), 2, axis=1), atol=1e-9)
    assert values["called_alike"] is True
    assert values["correlation_of_the_two"] == pytest.approx(1)
    assert values["correlation_with_u"] == pytest.approx(1)


@pytest.mark.parametrize("notes", [(), ("utilities 1 and 2 are alike", "utilities 1 and 2 coincide")])
def test_notes_do_not_decide_whether_utilities_coincide(notes, monkeypatch):
    opposite = type("Opposite", (TwiceTheTruth,), {
        "utilities": lambda self, data: SimpleNamespace(mean=datasets.counterexample_utility(data.X) * [5.0, -5.0]),
        "fit_result_": SimpleNamespace(status="converged", notes=notes),
    })  # fmt: skip
    monkeypatch.setattr(counterexample, "ChoiceGP", opposite)
    assert run({"model": "ChoiceGP", "d": 2, "seed": 0} | TINY, None)["called_alike"] is False


def test_order_in_the_same_way():
    u = 4 * np.random.default_rng(0).normal(size=(60, 1))
    assert order_in_the_same_way(np.hstack([u, 0.5 * u + 3]))
    assert order_in_the_same_way(np.hstack([u, u + 0.1 * np.random.default_rng(1).normal(size=u.shape)]))
    other = 4 * np.random.default_rng(2).normal(size=u.shape)
    flat = 1e-3 * u  # a flat utility is like no other
    assert not any(order_in_the_same_way(np.hstack([u, different])) for different in (-u, other, flat))


def test_the_report_has_a_row_for_each_run_and_a_panel_for_those_drawn():
    outcomes = [outcome("ChoiceGP", 2), *(outcome("ChoiceNN", d, seed) for seed in range(3) for d in (1, 2))]
    text, figures = report(outcomes)
    rows = [line for line in text.splitlines() if line.startswith("| Choice")]
    assert rows[0] == "| ChoiceNN, d = 1, seed 0 | 0.250 | 0.250 | 0.250 |  | 0.250 |"
    assert rows[-1] == "| ChoiceGP, d = 2 | 0.250 | 0.250 | 0.250 | 0.500 | 0.250 |"
    assert len(rows) == 7
    assert "The two utilities of ChoiceGP order the inputs in the same way." in text
    titles = [ax.get_title().splitlines()[0] for ax in figures["counterexample"].axes]
    assert titles[1:] == [
        "ChoiceNN, d = 1, seed 0",
        "ChoiceNN, d = 2, seed 0",
        "ChoiceNN, d = 2, seed 1",
        "ChoiceGP, d = 2",
    ]


@pytest.mark.parametrize("done", [("ChoiceNN", 2), ("ChoiceGP", 2)])
def test_a_part_of_the_runs_will_do(done):
    text, figures = report([outcome(*done, called_alike=False)] if done[0] == "ChoiceGP" else [outcome(*done)])
    assert text.count("\n| Choice") == 1
    assert ("do not order" in text) == (done[0] == "ChoiceGP")
    assert len(figures["counterexample"].axes) == 2
