"""The test of honesty: it measures what it says, judges by its goals, and hides nothing."""

import numpy as np
import pytest

from choicegp.experiments import honesty_data
from choicegp.experiments.experiment import ExperimentOptions, Outcome
from choicegp.experiments.honesty import report, run, runs
from choicegp.experiments.honesty_verdict import FEWEST, NO, UNKNOWN, YES, Tenth
from choicegp.experiments.run_log import plain

TINY = {
    "part": "simulated", "d": 2, "a": 3, "features": 2, "answers": "noisy", "objects": 8, "sets": 10, "related": 0.0,
    "repetition": 0, "seed": 0, "code": "",
}  # fmt: skip


class TestRuns:
    def test_the_full_test_has_a_hundred_noisy_data_sets_and_all_kinds(self):
        planned = runs(ExperimentOptions())
        noisy = [one for one in planned if one.get("answers") == "noisy"]
        assert len(noisy) >= 100
        for name, values in (("d", {1, 2, 3}), ("a", {2, 3, 5, 12, 16}), ("features", {2, 15})):
            assert {one[name] for one in noisy} == values
        small = [one for one in planned if one["part"] == "simulated" and one["objects"] <= 60]
        assert all(one["objects"] >= 20 and 60 <= one["sets"] <= 120 for one in small)
        assert {one["table"] for one in planned if one["part"] == "table"} == set(honesty_data.TABLES)
        assert {one["d"] for one in planned if one["part"] == "jump"} == {1, 2, 3}

    def test_without_a_folder_only_the_table_that_is_simulated_is_left(self):
        for quick in (False, True):
            planned = runs(ExperimentOptions(quick, tables=False))
            assert {one["table"] for one in planned if one["part"] == "table"} == {"vehicle"}
            assert {one["part"] for one in planned} == {"simulated", "jump", "table"}

    def test_the_quick_version_is_a_handful(self):
        assert len(runs(ExperimentOptions(quick=True))) == 6

    def test_the_sources_are_part_of_the_settings(self):
        assert {one["code"] for one in runs(ExperimentOptions(code="abc"))} == {"abc"}


@pytest.mark.usefixtures("short_chains")
def test_a_real_run_measures_everything():
    values = plain(run(TINY))
    assert 0 <= values["coverage"] <= 1
    assert sum(values["tenth_count"]) == 2 * 3 * honesty_data.N_TEST
    assert values["differences"] == 2 * (values["shown_objects"] - 1)
    assert values["intervals"].startswith("NUTS over utilities and hyperparameters: 64 draws")
    assert values["has_effects"] in (True, False)
    for kind in ("known", "new"):
        for who in ("", "constant_", "logistic_"):
            assert values[f"{kind}_{who}score"] < 0 < values[f"{kind}_{who}loss"]
            assert 0 <= values[f"{kind}_{who}exact"] <= 1
    text, figures = report([Outcome(TINY, values, 1.0, "0")])
    assert "### Verdict" in text
    assert list(figures) == ["honesty-calibration"]


def outcome(coverage=0.95, new_score=-1.0, chosen=50.0, **settings):
    """Return a run with given figures; its only tenth has 100 objects with a probability of 0.5."""
    tenth = np.zeros(10)
    tenth[5] = 1.0
    scores = {
        f"{kind}_{who}{what}": -1.0 if what == "score" else 0.5
        for kind in ("known", "new") for who in ("", "constant_", "logistic_") for what in ("score", "loss", "exact")
    }  # fmt: skip
    values = {
        "fit_seconds": 1.0, "fit_status": "converged", "shown_objects": 25, "coverage": coverage, "outer_tenths": 0.2,
        "sure_signs": 50, "wrong_signs": 0, "tenth_count": (FEWEST * tenth).tolist(),
        "tenth_predicted": (FEWEST / 2 * tenth).tolist(), "tenth_chosen": (chosen * tenth).tolist(),
    }  # fmt: skip
    return Outcome(TINY | settings, values | scores | {"new_score": new_score}, 1.0, "0")


def reached(text, figure):
    """Return how the first verdict about a figure ends."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {figure}"))
    return line.split("|")[-2].strip()


class TestVerdict:
    @pytest.mark.parametrize(("value", "verdict"), [(0.89, NO), (0.91, YES), (0.97, YES), (0.99, NO)])
    def test_coverage(self, value, verdict):
        text = report([outcome(value), outcome(value, seed=1)]).text
        assert reached(text, "coverage of 95% intervals, noisy answers") == verdict
        assert reached(text, "coverage, noisy answers, d t > 600") == UNKNOWN

    def test_the_worst_kind_is_named(self):
        text = report([outcome(0.95), outcome(0.5, a=12)]).text
        assert "| the same, lowest of all kinds: a = 12 | 0.90 to 0.98 | 0.500 (1 data set) | **no** |" in text

    def test_large_problems_have_a_goal_of_their_own(self):
        large = outcome(0.86, d=3, objects=250)
        large.values["shown_objects"] = 250
        text = report([large]).text
        assert reached(text, "coverage, noisy answers, d t > 600") == YES
        assert reached(text, "coverage of 95% intervals, noisy answers") == UNKNOWN

    @pytest.mark.parametrize(("score", "verdict"), [(-1.019, YES), (-1.021, NO), (-np.inf, NO), (None, UNKNOWN)])
    def test_log_scores_beside_the_constant_answer(self, score, verdict):
        text = report([outcome(new_score=score)]).text
        figure = "log score a set of new objects minus the constant answer's: 2 features, noisy"
        assert reached(text, figure) == verdict

    @pytest.mark.parametrize(("chosen", "verdict"), [(50, YES), (62, YES), (64, NO), (36, NO)])
    def test_calibration_allows_two_standard_errors(self, chosen, verdict):
        assert reached(report([outcome(chosen=chosen)]).text, "calibration in tenths") == verdict

    def test_a_tenth_with_few_objects_is_not_judged(self):
        one = outcome(chosen=0)
        one.values["tenth_count"] = [0.0] * 5 + [FEWEST - 1] + [0.0] * 4
        assert reached(report([one]).text, "calibration in tenths") == UNKNOWN

    def test_signs(self):
        one = outcome()
        one.values["wrong_signs"] = 2
        assert reached(report([one]).text, "wrong signs among sure ones, noisy") == NO

    @pytest.mark.parametrize(("change", "verdict"), [(0.004, YES), (0.1, NO), (None, UNKNOWN)])
    def test_the_jump(self, change, verdict):
        values = {"fit_seconds": 1.0, "fit_status": "converged", "certain_sets": 3, "mean_change": change}
        text = report([Outcome({"part": "jump", "d": 2, "seed": 0}, values, 1.0, "0")]).text
        assert reached(text, "mean change by a dominated eleventh object, d = 2") == verdict

    def test_a_table_alone_is_reported(self):
        one = outcome(new_score=-1.5)
        settings = {"part": "table", "table": "slump", "d": 3, "a": 4, "seed": 0}
        text, figures = report([one._replace(settings=settings)])
        assert reached(text, "log score a set of new objects minus the constant answer's: table slump") == NO
        assert "| slump | 1 | -1.000 / -1.000 / -1.000 | -1.500 / -1.000 / -1.000 |" in text
        assert figures == {}

    def test_reached_and_missed_are_counted(self):
        text = report([outcome(0.5)]).text
        lines = [line for line in text.split("### Coverage")[0].splitlines() if line.startswith("| ")][1:]
        n = {verdict: sum(line.endswith(f"| {verdict} |") for line in lines) for verdict in (YES, NO, UNKNOWN)}
        said = f"{n[YES]} goals are reached, {n[NO]} are missed, and {n[UNKNOWN]} were not measured."
        assert said in text
        assert n[NO] == 3


def test_the_excess_of_a_tenth():
    assert Tenth(100, 0.5, 0.5).excess == pytest.approx(-0.13)
    assert Tenth(1e9, 0.5, 0.6).excess == pytest.approx(0.07, abs=1e-4)
