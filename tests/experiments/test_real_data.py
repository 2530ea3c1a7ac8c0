"""The experiment on real data: what is run, how a run scores, and what the report says of made-up outcomes."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from choicegp.experiments import real_data, real_data_comparisons, real_data_report
from choicegp.experiments.bayesian_tests import HierarchicalTest, Probabilities, correlated_t_test
from choicegp.experiments.experiment import ExperimentOptions, Outcome
from choicegp.experiments.pairs import PREFERENCES, chosen_objects
from choicegp.experiments.real_data_paper import LOO, NAMES, accuracy

TINY = {"table": "vehicle", "repetition": 0, "seed": 0, "n_objects": 8, "max_iter": 5, "n_restarts": 1}


def test_everything_that_the_paper_reports_is_run_once():
    planned = real_data.runs(ExperimentOptions())
    assert len({json.dumps(settings, sort_keys=True) for settings in planned}) == len(planned) == 205
    parts = Counter((settings["part"], settings["repetition"]) for settings in planned)
    assert parts == {("utilities", 0): 5, **{("accuracy", repetition): 40 for repetition in range(5)}}
    assert [settings["repetition"] for settings in planned] == sorted(settings["repetition"] for settings in planned)
    fits = [settings for settings in planned if settings["part"] == "accuracy"]
    assert {(s["table"], s["model"]) for s in fits if s["rule"] == "random"} == {
        (t, m) for t in NAMES for m in PREFERENCES
    }
    assert all(settings["n_objects"] == 50 and "max_iter" not in settings for settings in planned)


def test_seeds_and_repetitions_are_the_users():
    planned = real_data.runs(ExperimentOptions(seed=7, repetitions=2))
    assert {(settings["repetition"], settings["seed"]) for settings in planned} == {(0, 7), (1, 8)}
    quick = real_data.runs(ExperimentOptions(quick=True))
    assert len(quick) == 29
    assert all(settings["max_iter"] < 100 and settings.get("model") != "ChoiceGP, no effects" for settings in quick)


def test_all_models_have_the_same_split_of_all_pairs():
    pairs = real_data.drawn(TINY, None)
    assert len(pairs.choices) == 28
    assert pairs.n_train == len(pairs.train) == 17
    again = real_data.drawn(TINY, None)
    assert [row.tolist() for row in pairs.choices.shown] == [row.tolist() for row in again.choices.shown]
    other = real_data.drawn(TINY | {"seed": 1}, None)
    assert not np.array_equal(pairs.table.X, other.table.X)


def test_a_coin_decides_where_both_are_kept():
    pairs = real_data.drawn(TINY | {"n_objects": 30}, None)
    before, after = chosen_objects(pairs.choices), chosen_objects(real_data.tossed(pairs, seed=0))
    assert all(len(rows) == 1 and set(rows) <= set(had) for rows, had in zip(after, before, strict=True))
    both = [(rows[0], had) for rows, had in zip(after, before, strict=True) if len(had) == 2]
    assert np.mean([own == had[0] for own, had in both]) == pytest.approx(0.5, abs=0.12)


def test_a_model_of_preferences_is_fitted_and_scored_by_either_rule():
    found = {
        rule: real_data.run(TINY | {"part": "accuracy", "model": "PGP", "rule": rule})
        for rule in ("majority", "random")
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for values in found.values():
        assert (values["n_drawn"], values["n_train"], values["n_test"]) == (8, 17, 11)
        assert 0 < values["n_comparable"] < 11
        assert all(0 <= values[score] <= 1 for score in ("accuracy", "common_accuracy", "majority_accuracy"))
    assert found["majority"]["accuracy"] == found["majority"]["majority_accuracy"]
    assert found["majority"]["objective"] != found["random"]["objective"]


class Oracle:
    """In the place of ChoiceGP: it keeps the truth in a share of the sets, and the opposite of it in the others."""

    elbo_, fit_result_ = -1.0, SimpleNamespace(status="converged")
    fitted_ = SimpleNamespace(has_effects=True)

    def __init__(self, n_utilities, intervals, **options):
        assert (n_utilities, intervals) == (3, "none")
        self.options = options

    def fit(self, data):
        assert len(data) == 17
        return self

    def score(self, data):
        assert len(data) == 11
        return 0.5

    def predict_proba(self, data):
        truth = [np.isin(rows, kept) + 0.0 for rows, kept in zip(data.shown, data.chosen, strict=True)]
        return [1.0 - own if i == 0 else 0.6 * own for i, own in enumerate(truth)]


def test_a_model_of_choices_is_scored_by_the_object_that_it_rather_keeps(monkeypatch):
    monkeypatch.setattr(real_data, "ChoiceGP", Oracle)
    values = real_data.run(TINY | {"part": "accuracy", "model": "ChoiceGP", "rule": "none"})
    assert values["accuracy"] == 0.5
    assert values["has_effects"] is True
    assert values["common_accuracy"] == pytest.approx(1 - 1 / values["n_comparable"])
    assert "majority_accuracy" not in values


def test_a_search_gives_the_scores_of_the_numbers_it_came_to(monkeypatch):
    def search(data, max_utilities, random_state, progress, **options):
        assert (len(data), max_utilities, random_state, progress) == (17, 5, 0, False)
        columns = {"elpd": [-90.0, -3.0], "se": 1.0, "elpd_diff": [87.0, 0.0], "dse": 2.0, "doubtful": 0}
        return SimpleNamespace(table=pd.DataFrame(columns, index=[1, 2]), n_utilities=2, reason="it is the best.")

    monkeypatch.setattr(real_data, "select_n_utilities", search)
    values = real_data.run(TINY | {"part": "utilities", "max_utilities": 5})
    assert json.loads(json.dumps(values)) == values
    assert (values["n_utilities"], values["elpd_1"], values["difference_1"], values["se_2"]) == (2, -90.0, -87.0, 1.0)
    assert "elpd_3" not in values


GAP = {"PGP": -0.02, "GPGP": 0.03, "PairGP": 0.03}


def outcomes(tables=tuple(NAMES), repetitions=3) -> list[Outcome]:
    """Make up runs in which ChoiceGP is 0.001 better than in the paper, and ahead of the others by GAP."""
    made = []
    for settings in real_data.runs(ExperimentOptions(repetitions=repetitions)):
        table, wiggle = settings["table"], 0.004 * (settings["repetition"] - 1)
        if table not in tables:
            continue
        if settings["part"] == "utilities":
            values = {"n_utilities": 2 if table == "edm" else 3, "reason": f"because of {table}."}
            for d, elpd in enumerate(LOO[table][:4], 1):  # the search ended before d = 5
                values |= {f"elpd_{d}": elpd + 1.0, f"se_{d}": 9.0, f"difference_{d}": elpd - max(LOO[table])}
                values |= {f"difference_se_{d}": 4.0, f"doubtful_{d}": 0}
        else:
            model = settings["model"]
            score = accuracy(table, "ChoiceGP", "majority") + 0.001
            score -= GAP[model] + wiggle if model in GAP else 0
            score -= 0.3 if settings["rule"] == "random" else 0
            values = {"n_drawn": 50, "n_train": 735, "n_test": 490, "n_comparable": 98, "accuracy": score,
                      "common_accuracy": 0.9, "objective": -9.0, "status": "converged"}  # fmt: skip
            values |= {"majority_accuracy": 0.7} if model in GAP else {"has_effects": model == "ChoiceGP"}
            if model == "ChoiceGP" and table == "am" and settings["repetition"] == 0:
                values["has_effects"] = False
        made.append(Outcome(settings, values, 1.0, "0"))
    return made


@pytest.fixture
def tests_made(monkeypatch) -> list[list[np.ndarray]]:
    """Put a fixed answer in the place of the hierarchical test, and record what it was asked."""
    asked = []

    def fixed(differences, rho, rope, seed):
        assert (rho, rope, seed) == (pytest.approx(0.4), 0.01, 0)
        asked.append(differences)
        points = np.random.default_rng(0).dirichlet([1, 2, 8], size=200)
        alone = [correlated_t_test(own, rho) for own in differences]
        shares = Probabilities(0.011, 0.022, 0.967)
        return HierarchicalTest(shares, shares, points, alone, np.zeros((200, len(alone))), 1.001, 0)

    monkeypatch.setattr(real_data_comparisons, "hierarchical_test", fixed)
    return asked


def row(text: str, *starts: str) -> list[str]:
    """Return the cells of the first row of a table in `text` whose first cells are these."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return next(cells for cells in lines if tuple(cells[: len(starts)]) == starts)


def test_the_report_has_our_values_beside_the_papers(tests_made):
    text, figures = real_data.report(outcomes())
    majority, coin, common, tests, utilities = text.split("### ")[1:]
    assert row(majority, "Slump")[1:4] == ["0.911 ± 0.000 (0.91)", "0.911 ± 0.000", "0.931 ± 0.004 (0.93)"]
    assert "ChoiceGP +0.001 (+0.001 to +0.001)" in majority
    assert "It did so in 2 of 3 (AM), 3 of 3 (EDM), 3 of 3 (Jura), 3 of 3 (Slump), 3 of 3 (Vehicle)." in majority
    assert "on 0 of 5 tables, in the paper on 4 (AM, EDM, Jura, Vehicle)" in majority
    assert row(coin, "AM")[1:3] == ["0.600", "0.621 ± 0.004 (0.74)"]
    assert "on 5 of 5 tables" in coin
    assert row(common, "Jura")[1] == "0.900 ± 0.000"
    assert row(tests, "accuracy", "PGP") == [
        "accuracy", "PGP", "5", "-0.020", "0.967", "0.022", "0.011", "0.967 / 0.022 / 0.011", "better in most draws",
        "1.001", "0",
    ]  # fmt: skip
    alone = row(tests, "AM", "GPGP")
    assert alone[2] == "+0.030 ± 0.004"
    assert alone[4] in (alone[3], "not installed")
    assert row(utilities, "EDM")[1:] == [
        "-5645.0 ± 9.0 (-5646)", "-137.0 ± 9.0 (-138)", "-135.0 ± 9.0 (-136)", "-157.0 ± 9.0 (-158)", "2 (3)",
    ]  # fmt: skip
    assert "best score on 5 of 5 tables" in utilities
    assert "chosen on 4 (AM, Jura, Slump, Vehicle)" in utilities
    assert "EDM: because of edm." in utilities
    assert set(figures) == {"real-data-simplex", "real-data-loo"}
    assert [len(figure.axes) for figure in figures.values()] == [3, 5]
    for figure in figures.values():
        figure.draw_without_rendering()
    assert len(tests_made) == 6
    np.testing.assert_allclose(tests_made[1][0], 0.03 + np.array([-0.004, 0, 0.004]))


def test_baycomp_is_asked_with_the_same_correlation():
    pytest.importorskip("baycomp")
    differences = np.array([0.01, 0.03, -0.02, 0.05, 0.02])
    np.testing.assert_allclose(
        real_data_comparisons.by_baycomp(differences, 0.4), correlated_t_test(differences, 0.4), atol=1e-12
    )


def test_the_report_copes_with_a_part_of_the_runs(tests_made):
    everything = outcomes()
    for done in (everything[:0], everything[:9], everything[40:41]):
        text, figures = real_data.report(done)
        assert "nan" not in text
        assert ("real-data-loo" in figures) == any(outcome.settings["part"] == "utilities" for outcome in done)
    assert (
        "needs two repetitions of ChoiceGP and a preference model on two tables"
        in real_data.report(outcomes(("am",))).text
    )
    # Two tables have both repetitions of all models, a third one has them of ChoiceGP alone.
    tests_made.clear()
    some = [
        o
        for o in outcomes(("am", "edm", "jura"), 2)
        if o.settings["table"] != "jura" or o.settings.get("rule") == "none"
    ]
    assert "0.911 ± 0.000 (0.91) | 0.911 ± 0.000 | – (0.87)" in real_data.report(some).text
    assert {len(differences) for differences in tests_made} == {2}


def test_a_quick_version_says_so_and_fits_that_stopped_are_counted(tests_made):
    small = [o._replace(settings=o.settings | {"n_objects": 12}) for o in outcomes(("am",), 1)]
    small[0] = small[0]._replace(values=small[0].values | {"status": "stopped"})
    text = real_data.report(small).text
    assert text.startswith(real_data_report._QUICK)
    assert "1 of 8 fits did not converge" in text
