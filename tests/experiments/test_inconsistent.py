import io
import json
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from choicegp import ChoiceGP, datasets
from choicegp.experiments import inconsistent
from choicegp.experiments.experiment import ExperimentOptions, Outcome
from choicegp.experiments.inconsistent_report import MODELS, RIVALS

SMALL = {"n_objects": 8, "n_features": 2, "n_classes": 2, "sparsity": 0.5, "seed": 0}
DONE = SimpleNamespace(status="converged")


def simulated():
    return datasets.inconsistent_preferences(8, 2, 2, 0.5, random_state=0)


def test_the_protocol():
    listed = inconsistent.runs(ExperimentOptions())
    # 20 repetitions of 2 x (5 levels x 4 models + 4 further numbers of utilities).
    assert len(listed) == 20 * 2 * 24
    keys = [json.dumps(settings, sort_keys=True) for settings in listed]
    assert len(set(keys)) == len(keys)
    assert json.loads(json.dumps(listed)) == listed
    assert [settings["seed"] for settings in listed] == np.repeat(range(20), 48).tolist()
    assert {settings["n_objects"] for settings in listed} == {30}
    assert {settings["model"] for settings in listed} == set(MODELS)
    medium = [
        (s["n_classes"], s["n_utilities"]) for s in listed[:48] if s["model"] == "ChoiceGP" and s["sparsity"] == 0.5
    ]
    assert sorted(medium) == list(product((1, 2), range(1, 6)))
    others = {(s["n_classes"], s.get("n_utilities")) for s in listed if s["sparsity"] != 0.5}
    assert others == {(1, 1), (2, 3), (1, None), (2, None)}


def test_the_quick_version_is_small():
    listed = inconsistent.runs(ExperimentOptions(quick=True, seed=4))
    assert {(s["seed"], s["sparsity"], s["n_objects"]) for s in listed} == {(4, 0.5, 12), (5, 0.5, 12)}
    assert {s["n_classes"] for s in listed} == {1, 2}
    assert len(inconsistent.runs(ExperimentOptions(quick=True, repetitions=1))) == len(listed) / 2


class Knowing:
    """Knows the true utilities and answers by them; stands for all models."""

    fit_result_ = DONE
    elbo_ = log_evidence_ = -1.0

    def __init__(self, n_utilities=None, **options):
        # Only a model of choices has intervals to leave out.
        own = {} if n_utilities is None else {"intervals": "none"}
        assert options == {"random_state": 0, "progress": False} | own

    def fit(self, data):
        self.data = data
        return self

    def score(self, data):
        return 0.25

    def log_prob(self, data):
        return np.full(len(data), -50.0)

    def predict_proba(self, data):
        U = simulated().U
        return [(U[rows].sum(axis=1) >= U[rows].sum(axis=1).max()).astype(float) for rows in data.shown]

    def predict_pair_proba(self, first, second):
        return np.linspace(0.0, 1.0, len(first))


def test_choices_are_scored_on_pareto_answers(monkeypatch):
    monkeypatch.setattr(inconsistent, "ChoiceGP", Knowing)
    values = inconsistent.run(SMALL | {"model": "ChoiceGP", "n_utilities": 3}, None)
    alone = [len(kept) == 1 for kept in simulated().pareto_test.chosen]
    assert 0 < sum(alone) < len(alone)
    assert values["n_comparable"] == sum(alone)
    assert values["both_share"] == pytest.approx(1 - np.mean(alone))
    assert (values["n_train"], values["n_test"]) == (14, 14)
    assert values["accuracy"] == 0.25
    assert values["common_accuracy"] == 1.0  # who dominates has the larger sum
    assert values["log_score"] == pytest.approx(np.log(1e-10))


def test_who_is_not_found_better_is_wrong(monkeypatch):
    class Undecided(Knowing):
        def predict_proba(self, data):
            return [np.full(2, 0.5) for _ in data.shown]

    monkeypatch.setattr(inconsistent, "ChoiceGP", Undecided)
    assert inconsistent.run(SMALL | {"model": "ChoiceGP", "n_utilities": 3}, None)["common_accuracy"] == 0.0


def test_preferences_are_scored_on_forced_answers(monkeypatch):
    asked = []

    class Asked(Knowing):
        def predict_pair_proba(self, first, second):
            asked.append((first, second))
            return super().predict_pair_proba(first, second)

    monkeypatch.setitem(inconsistent.PREFERENCES, "GPGP", Asked)
    values = inconsistent.run(SMALL | {"model": "GPGP"}, None)
    test = simulated().forced_test
    winners = np.concatenate(test.chosen)
    losers = [next(row for row in shown if row != winner) for shown, winner in zip(test.shown, winners, strict=True)]
    np.testing.assert_array_equal(asked[0][0], test.X[winners])
    np.testing.assert_array_equal(asked[0][1], test.X[losers])
    assert values["accuracy"] == 0.5
    assert values["log_score"] == pytest.approx(np.mean(np.log(np.maximum(np.linspace(0, 1, 14), 1e-10))))
    assert values["common_accuracy"] == 0.25


def test_without_comparable_pairs_there_is_no_common_accuracy(monkeypatch):
    monkeypatch.setattr(inconsistent, "ChoiceGP", Knowing)
    values = inconsistent.run(SMALL | {"seed": 3, "model": "ChoiceGP", "n_utilities": 3}, None)
    assert "common_accuracy" not in values
    assert (values["n_comparable"], values["both_share"]) == (0, 1.0)


@pytest.mark.parametrize("model", ["ChoiceGP", "PGP"])
def test_real_models_run(monkeypatch, model):
    monkeypatch.setattr(inconsistent, "ChoiceGP", partial(ChoiceGP, object_effects=False, n_restarts=1, max_iter=30))
    # 15 objects and 70 training pairs: preference models are compiled for these elsewhere.
    settings = SMALL | {"n_objects": 15, "n_classes": 1, "sparsity": 1 / 3, "model": model}
    values = inconsistent.run(settings | ({"n_utilities": 1} if model == "ChoiceGP" else {}), None)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["accuracy"] == values["common_accuracy"] > 0.5
    assert -0.7 < values["log_score"] < 0


def made_up(scores, n_repetitions=6, levels=(0.3, 0.5), classes=(1, 2), numbers=()):
    """Make outcomes in which a model has the given score plus a wiggle that changes with the repetition alone."""
    outcomes = []
    for seed, n_classes, sparsity in product(range(n_repetitions), classes, levels):
        true = {1: 1, 2: 3}[n_classes]
        for model, score in scores.items():
            settings = {"n_classes": n_classes, "sparsity": sparsity, "model": model, "seed": seed}
            settings |= {"n_utilities": true} if model == "ChoiceGP" else {}
            outcomes.append(outcome(settings, score + 0.01 * seed + 0.002 * ((seed + len(model)) % 2)))
        for d, score in numbers if sparsity == 0.5 else ():
            settings = {"n_classes": n_classes, "sparsity": 0.5, "model": "ChoiceGP", "n_utilities": d, "seed": seed}
            if d != true:
                outcomes.append(outcome(settings, score + 0.01 * seed + 0.002 * (seed % 2)))
    return outcomes


def outcome(settings, accuracy):
    values = {
        "accuracy": accuracy, "common_accuracy": 0.9, "log_score": -0.2, "both_share": 0.75, "n_comparable": 20,
        "fit_seconds": 0.5, "status": "converged" if settings["seed"] else "stopped",
    }  # fmt: skip
    return Outcome(settings, values, 1.0, "0.1.0")


def test_claims_are_judged_by_their_numbers():
    scores = {"ChoiceGP": 0.80, "PGP": 0.80, "GPGP": 0.70, "PairGP": 0.72}
    text = inconsistent.report(made_up(scores, numbers=((1, 0.5), (2, 0.7), (4, 0.80), (5, 0.75)))).text
    assert "L = 1: ChoiceGP equals PGP: **confirmed**" in text
    assert "L = 1: ChoiceGP beats GPGP, PairGP: **confirmed** (GPGP +0.100" in text
    assert "L = 2: ChoiceGP beats PGP, GPGP, PairGP: **not confirmed**" in text
    assert "L = 2: ChoiceGP beats PGP, GPGP, PairGP by the common accuracy: **not confirmed**" in text
    assert "L = 2: accuracy rises up to d = 3: **confirmed** (1 to 2: +0.200 ± 0.000, 2 to 3: +0.100" in text
    assert "L = 2: accuracy does not fall after d = 3: **contradicted** (3 to 4: +0.000" in text


def test_tables_hold_means_and_errors():
    text = inconsistent.report(made_up(dict.fromkeys(MODELS, 0.6), n_repetitions=2, classes=(2,))).text
    assert "too few runs" in text
    # (0.600 + 0.612) / 2 for names of even length, (0.602 + 0.610) / 2 for the other one.
    assert "| 2 | 0.3 | 0.606 ± 0.006 | 0.606 ± 0.004 | 0.606 ± 0.006 | 0.606 ± 0.006 | 0.750 | 2 |" in text
    assert "| 2 | 0.3 | 0.900 ± 0.000 | 0.900 ± 0.000 | 0.900 ± 0.000 | 0.900 ± 0.000 | 20.0 | 2 |" in text
    assert "| 2 | ChoiceGP | 2 of 4 | 0.50 | -0.200 |" in text
    assert "L = 1" not in text


def test_levels_are_averaged_over_whole_repetitions_only():
    outcomes = made_up(dict.fromkeys(MODELS, 0.5))
    cut = [o for o in outcomes if not (o.settings["seed"] == 5 and o.settings["sparsity"] == 0.5)]
    results = inconsistent.Results(cut)
    assert sorted(results.over_levels("accuracy", 1, "PGP")) == [0, 1, 2, 3, 4]
    assert results.gap("accuracy", 1, "PGP").n == 5
    assert results.gap("accuracy", 1, "PGP", 0.3).n == 6


def test_figures_have_a_line_for_each_model_and_panels_for_what_is_done():
    outcomes = made_up(dict.fromkeys(MODELS, 0.6), numbers=((1, 0.5), (2, 0.7), (4, 0.8)))
    figures = inconsistent.report(outcomes).figures
    assert sorted(figures) == ["inconsistent-accuracy", "inconsistent-utilities"]
    assert [len(figure.axes) for figure in figures.values()] == [3, 2]
    for figure in figures.values():
        figure.savefig(io.BytesIO(), format="png", dpi=20)
    labels = figures["inconsistent-accuracy"].axes[1].get_legend_handles_labels()[1]
    assert sorted(labels) == sorted([*MODELS, 'always "both"'])


@pytest.mark.parametrize("kept", [lambda s: s["model"] == "PGP", lambda s: s["model"] == "ChoiceGP" and s["seed"] == 0])
def test_a_part_of_the_runs_makes_a_report(kept):
    outcomes = [o for o in made_up(dict.fromkeys(MODELS, 0.6)) if kept(o.settings)]
    found = inconsistent.report(outcomes)
    assert "too few runs" in found.text
    assert "nan" not in found.text
    assert len(found.figures) == 2


def test_the_report_of_nothing():
    assert inconsistent.report([]) == ("No run is done yet.\n", {})


def test_the_rivals_of_the_report_are_the_models_that_are_run():
    assert tuple(inconsistent.PREFERENCES) == RIVALS
