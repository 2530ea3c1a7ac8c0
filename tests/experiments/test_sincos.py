import io
import json
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceGP, datasets
from choicegp.experiments import sincos
from choicegp.experiments.experiment import ExperimentOptions, Outcome


def posterior(n_sets, set_size, seed=0, **values):
    grid = np.linspace(-4.5, 4.5, 19)
    truth = datasets.sincos_utilities(grid).T
    given = {
        "accuracy_known": 0.9, "accuracy_new": 0.8, "elbo": -50.0, "fit_seconds": 1.5, "status": "converged",
        "rank_correlation": 0.95, "width": 0.5, "grid": grid.tolist(), "shown_inputs": [0.0, 1.0],
        "mean": truth.tolist(), "low": (truth - 0.2).tolist(), "high": (truth + 0.2).tolist(), "truth": truth.tolist(),
    }  # fmt: skip
    settings = {"kind": "posterior", "n_sets": n_sets, "set_size": set_size, "seed": seed}
    return Outcome(settings, given | values, 2.0, "0.1.0")


def loo(n_sets, set_size, elpd, chosen, seed=0):
    values = {"n_utilities": chosen}
    for d, score in enumerate(elpd, 1):
        values |= {f"elpd_{d}": score, f"se_{d}": 5.0, f"psis_{d}": score - 9, f"psis_se_{d}": 6.0}
        values[f"psis_untrusted_{d}"] = 0.25
    return Outcome({"kind": "loo", "n_sets": n_sets, "set_size": set_size, "seed": seed}, values, 2.0, "0.1.0")


def drawn(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=20)
    return figure


def test_the_protocol_is_four_designs_of_two_kinds():
    listed = sincos.runs(ExperimentOptions())
    assert len(listed) == 8
    assert {(s["n_sets"], s["set_size"]) for s in listed} == {(50, 3), (50, 5), (150, 3), (150, 5)}
    assert {s["seed"] for s in listed} == {0}
    assert {s["max_utilities"] for s in listed if s["kind"] == "loo"} == {4}
    assert json.loads(json.dumps(listed)) == listed


def test_repetitions_follow_the_seed_and_come_whole():
    listed = sincos.runs(ExperimentOptions(seed=5, repetitions=2))
    assert [s["seed"] for s in listed] == [5] * 8 + [6] * 8


def test_the_quick_version_is_smaller():
    listed = sincos.runs(ExperimentOptions(quick=True))
    assert {s["n_sets"] for s in listed} == {50}
    assert {s["max_utilities"] for s in listed if s["kind"] == "loo"} == {2}


def test_a_posterior_is_scored_and_aligned_with_the_truth(monkeypatch):
    monkeypatch.setattr(
        sincos, "ChoiceGP", partial(ChoiceGP, intervals="none", object_effects=False, n_restarts=1, max_iter=20)
    )
    settings = {"kind": "posterior", "n_sets": 40, "set_size": 3, "n_objects": 24, "n_test": 40, "seed": 0}
    values = sincos.run(settings, None)
    json.dumps(values, allow_nan=False)
    truth, mean, low, high = (np.array(values[name]) for name in ("truth", "mean", "low", "high"))
    np.testing.assert_allclose(truth, datasets.sincos_utilities(np.array(values["grid"])).T, atol=1e-3)
    # Location and spread are the truth's by construction, the order by search, the shape is learned.
    np.testing.assert_allclose(mean.mean(axis=1), truth.mean(axis=1), atol=1e-3)
    np.testing.assert_allclose(mean.std(axis=1), truth.std(axis=1), atol=1e-3)
    correlation = sincos.rank_correlations(truth.T, mean.T)
    assert correlation.trace() > correlation[0, 1] + correlation[1, 0]
    assert values["rank_correlation"] == pytest.approx(correlation.trace() / 2, abs=1e-3)
    assert np.all(low < mean)
    assert np.all(mean < high)
    assert values["width"] == pytest.approx(np.mean(high - low), abs=1e-3)
    assert len(values["shown_inputs"]) == values["n_shown"] <= 24
    assert 0.5 < values["accuracy_known"] <= 1
    assert values["status"] == "stopped"  # at this test's limit of steps
    assert "intervals are too narrow" in values["intervals"]


@pytest.mark.parametrize("unit", [1e-100, 1e-14, 1.0])
def test_order_level_and_scale_of_the_draws_are_the_truths(unit):
    class Draws:
        """The two utilities the other way round, at any level, on other scales."""

        def sample_utilities(self, X, n_samples, random_state):
            rng = np.random.default_rng(random_state)
            utilities = datasets.sincos_utilities(X)[:, ::-1] * [30.0, 0.1]
            drawn = utilities * rng.normal(1.0, 0.1, (n_samples, 1, 1)) + rng.normal(0.0, 99.0, (n_samples, 1, 2))
            return unit * drawn

    values = sincos._curves(Draws(), np.array([0.5]))
    truth = np.array(values["truth"])
    np.testing.assert_allclose(values["mean"], truth, atol=1e-3)
    # Only the spread of the scale is left, 10%; the level of each draw is gone.
    spread = (np.array(values["high"]) - values["low"]) / 2
    np.testing.assert_allclose(spread, 0.196 * np.abs(truth - truth.mean(axis=1)[:, None]), atol=0.02)
    assert values["rank_correlation"] == pytest.approx(1.0)


class Scored:
    """Stands for a fitted model whose importance weights are bad."""

    fit_result_ = SimpleNamespace(status="converged")

    def __init__(self, elpd):
        self.elpd = elpd

    def loo(self, method):
        assert method == "psis"
        warnings.warn("leave-one-out cannot be trusted on 2 sets of 4: why", UserWarning, stacklevel=2)
        diagnostics = SimpleNamespace(pareto_k=np.array([0.1, 0.7, 0.71, np.inf]))
        return SimpleNamespace(elpd=self.elpd, se=2.0, diagnostics=diagnostics)


def test_leave_one_out_scores_every_number_in_two_ways(monkeypatch):
    columns = ("elpd", "se", "elpd_diff", "dse", "doubtful", "refits", "elbo")
    table = pd.DataFrame([[-90.0, 9.0, 70.0, 8.0, 1, 0, -99.0], [-20.0, 3.0, 0.0, 0.0, 0, 4, -40.0]], columns=columns)
    found = SimpleNamespace(
        n_utilities=2, reason="why", table=table.set_axis([1, 2]), models={1: Scored(-95.0), 2: Scored(-25.0)}
    )
    asked = []
    monkeypatch.setattr(sincos, "select_n_utilities", lambda *args, **options: asked.append((args, options)) or found)
    settings = {"kind": "loo", "n_sets": 4, "set_size": 3, "n_objects": 24, "max_utilities": 3, "seed": 7}
    values = sincos.run(settings, None)
    ((data, most), options), *none = asked
    assert not none
    assert (most, options) == (3, {"random_state": 0, "progress": False})
    np.testing.assert_array_equal(data.X, datasets.sincos(24, 4, 3, random_state=7).data.X)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["n_utilities"] == 2
    expected = {"elpd_1": -90.0, "se_2": 3.0, "difference_1": -70.0, "refits_2": 4, "doubtful_1": 1, "psis_2": -25.0}
    assert expected.items() <= values.items()
    assert values["psis_untrusted_1"] == 0.5  # above 0.7, not at it
    assert "elpd_3" not in values


def test_rank_correlation_sees_order_alone():
    x = np.linspace(-1, 1, 50)[:, None]
    np.testing.assert_allclose(sincos.rank_correlations(x, np.column_stack([np.exp(9 * x), -x])), [[1, -1]], atol=1e-12)


def test_the_report_of_nothing():
    assert sincos.report([]) == ("No run is done yet.\n", {})


def test_the_report_of_some_runs_shows_only_these():
    found = sincos.report([posterior(50, 3), loo(150, 5, [-5000.0, -30.0, -41.0], 2)])
    assert "| 50 | 3 | 0.900 | 0.800 | 0.950 | 0.500 | -50.0 | 1.5 | 1 of 1 |" in found.text
    assert "| 150 | 5 | 2 **chosen** | -30.0 ± 5.0 | -39.0 ± 6.0 | 25% | -84 |" in found.text
    assert "| 150 | 5 | 4 |" not in found.text
    assert "The paper: from" not in found.text  # one design has nothing to be compared with
    assert sorted(found.figures) == ["sincos-loo", "sincos-posteriors"]
    assert [ax.get_title() for ax in drawn(found.figures["sincos-posteriors"]).axes] == ["50 sets of 3"]
    (ax,) = drawn(found.figures["sincos-loo"]).axes
    assert ax.get_title() == "150 sets of 5"
    assert ax.texts[0].get_text() == "d = 1: −5000\n(off the scale)"


def test_repetitions_are_averaged_and_counted():
    outcomes = [loo(50, 3, [-900.0, -30.0], 2), loo(50, 3, [-800.0, -40.0, -44.0], 3, seed=1)]
    text = sincos.report(outcomes).text
    assert "| 50 | 3 | 1 | -850.0 ± 5.0 |" in text
    assert "| 50 | 3 | 2 | -35.0 ± 5.0 |" in text  # not chosen by both
    assert "- 50 sets of 3: d = 2 in 1 of 2, d = 3 in 1 of 2" in text
    assert "Two utilities are found in 1 of 2 searches." in text


def test_the_papers_observations_are_counted_by_repetition():
    outcomes = [
        posterior(50, 3, rank_correlation=0.9, width=0.8), posterior(50, 3, 1, rank_correlation=0.9, width=0.4),
        posterior(150, 3, rank_correlation=0.99, width=0.5), posterior(150, 3, 1, rank_correlation=0.99, width=0.5),
    ]  # fmt: skip
    text = sincos.report(outcomes).text
    told = (
        "sets of 3: rank correlation 0.900 to 0.990 (larger in 2 of 2 repetitions), width 0.60 to 0.50 (narrower in 1)"
    )
    assert told in text
    assert "easier" not in text


def test_all_four_panels_are_drawn():
    outcomes = [posterior(*design) for design in sincos.DESIGNS]
    outcomes += [loo(*design, [-900.0, -30.0, -35.0, -39.0], 2) for design in sincos.DESIGNS]
    found = sincos.report(outcomes)
    for figure in found.figures.values():
        assert len(drawn(figure).axes) == 4
    assert found.text.count("**chosen**") == 4
    assert "Two utilities are found in 4 of 4 searches." in found.text


def test_models_are_fitted_with_their_default_options(monkeypatch):
    made = []

    class Recorded(ChoiceGP):
        def fit(self, data, *args, **options):
            made.append(self.get_params())
            raise StopIteration

    monkeypatch.setattr(sincos, "ChoiceGP", Recorded)
    with pytest.raises(StopIteration):
        sincos.run({"kind": "posterior", "n_sets": 5, "set_size": 3, "n_objects": 10, "n_test": 5, "seed": 3}, None)
    assert made == [ChoiceGP(n_utilities=2, random_state=0, progress=False).get_params()]
