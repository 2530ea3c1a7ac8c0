"""Leave-one-out of a fitted model, comparison of models, and the DataTree for ArviZ."""

import subprocess
import sys
import warnings
from inspect import signature

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, ParetoEmbedding, PreferenceGP, compare


@pytest.fixture(scope="module")
def result(model):
    return model.loo()


@pytest.fixture(scope="module")
def single(half, quick):
    return quick(n_utilities=1).fit(half)


def test_the_cavity_is_the_default(model, data, result):
    assert result.method == "cavity"
    assert result.pointwise.shape == (len(data),)
    assert np.isfinite(result.pointwise).all()
    assert result.n_effective > 0
    assert result.elpd < model.log_prob(data).sum()
    assert result.notes == ()


def test_it_repeats_itself_also_after_saving(model, result, tmp_path):
    np.testing.assert_array_equal(model.loo().pointwise, result.pointwise)
    model.save(tmp_path / "model.cgp")
    np.testing.assert_array_equal(ChoiceGP.load(tmp_path / "model.cgp").loo().pointwise, result.pointwise)


def test_psis_is_what_arviz_makes_of_the_datatree(model, data):
    from arviz_stats import loo

    with warnings.catch_warnings(action="ignore"):  # of k, which is compared
        ours, theirs = model.loo("psis"), loo(model.to_datatree(), pointwise=True)
    assert ours.method == "psis"
    assert ours.elpd == pytest.approx(theirs.elpd)
    # Not their own: versions of ArviZ divide the squares by m or by m - 1.
    assert ours.se == pytest.approx(np.sqrt(len(data)) * theirs.elpd_i.values.std())
    np.testing.assert_allclose(ours.diagnostics.pareto_k, theirs.pareto_k.values)
    assert len(ours.doubtful) == int((theirs.pareto_k.values > theirs.good_k).sum())


def test_a_warning_says_how_many_sets_are_in_doubt(model):
    with pytest.warns(UserWarning, match=r"cannot be trusted on \d+ sets of 24: fits without them were not made"):
        result = model.loo(max_refits=0)
    assert result.warning


def test_one_utility_is_scored_by_the_floor(single, half):
    result = single.loo()
    n_several = sum(len(chosen) > 1 for chosen in half.chosen)
    assert n_several
    assert f"in {n_several} of 12 sets: the floor of 1e-10, about 23 nats" in result.notes[0]
    assert f"in {n_several} of 12 sets; use n_utilities=2" in single.fit_result_.notes[0]
    assert result.elpd < -20 * n_several


def test_one_utility_is_scored_by_the_lapse_rate_where_there_is_one(quick, half):
    result = quick(n_utilities=1, lapse=0.1).fit(half).loo()
    assert "of 12 sets: the lapse rate sets the score of these; use n_utilities=2" in result.notes[0]


def test_lapses_are_part_of_the_score(lapsing):
    result = lapsing.loo()
    assert np.isfinite(result.pointwise).all()
    assert result.pointwise.min() > np.log(0.1 / 7) - 1e-6


def test_object_effects_are_left_out_too(twins):
    result = twins.loo(max_refits=2)
    assert np.isfinite(result.pointwise).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "waic"}, "method must be 'cavity' or 'psis'; got 'waic'"),
        ({"max_refits": -1}, "max_refits must be a whole number of at least 0; got -1"),
        ({"max_refits": 2.5}, "max_refits must be a whole number of at least 0; got 2.5"),
        ({"method": "psis", "max_refits": 3}, "max_refits belongs to method='cavity'"),
    ],
)
def test_wrong_wishes_are_clear_errors(model, arguments, message):
    with pytest.raises(ChoiceGPError, match=message):
        model.loo(**arguments)


@pytest.mark.parametrize("method", ["loo", "to_datatree"])
def test_an_unfitted_model_has_no_score(method):
    with pytest.raises(ChoiceGPError, match="not fitted yet"):
        getattr(ChoiceGP(), method)()


COLUMNS = ["rank", "elpd", "p", "elpd_diff", "weight", "se", "dse", "warning", "doubtful"]


class TestCompare:
    def test_the_table_is_the_one_of_arviz(self, half, quick):
        """On one and the same scores: they sample by themselves, and weigh by another optimiser."""
        import arviz_stats

        models = {"short": quick(max_iter=2).fit(half), "long": quick().fit(half)}
        with warnings.catch_warnings(action="ignore"):
            ours = compare(models, method="psis")
            # From version 1 on ArviZ rounds, unless it is told not to.
            exact = {"round_to": "none"} if "round_to" in signature(arviz_stats.compare).parameters else {}
            theirs = arviz_stats.compare({name: model.to_datatree() for name, model in models.items()}, **exact)
        # Since then there are columns of words and of a normal approximation, and what is lost is negative.
        assert set(theirs.columns) - {"p_worse", "diag_diff", "diag_elpd"} <= set(ours.columns)
        theirs["elpd_diff"] = theirs["elpd_diff"].abs()
        for column, tolerance in (("rank", 0), ("elpd", 1e-6), ("p", 1e-6), ("elpd_diff", 1e-6), ("weight", 1e-3)):
            np.testing.assert_allclose(ours[column], theirs[column], atol=tolerance, rtol=1e-6)

    def test_models_are_compared_in_pairs(self, half, single, quick):
        two = quick().fit(half)
        with warnings.catch_warnings(action="ignore"):
            table = compare({"one": single, "two": two})
            results = {"one": single.loo(), "two": two.loo()}
        assert list(table.index) == ["two", "one"]
        assert list(table.columns) == COLUMNS
        difference = results["two"].pointwise - results["one"].pointwise
        assert table.loc["one", "elpd_diff"] == pytest.approx(difference.sum())
        assert table.loc["one", "dse"] == pytest.approx(np.sqrt(12) * difference.std())
        assert (table.loc["two", ["elpd_diff", "dse"]] == 0).all()
        assert list(table["rank"]) == [0, 1]
        # Results at hand are as good as models.
        np.testing.assert_allclose(compare(results).to_numpy(float), table.to_numpy(float))

    def test_different_choices_cannot_be_compared(self, model, single):
        with pytest.raises(ChoiceGPError, match="'a' and 'b' were fitted to different choices"):
            compare({"a": model, "b": single})

    def test_other_objects_with_the_same_numbers_are_different_choices(self, half, single, quick):
        renamed = ChoiceData.from_sets(
            half.X, half.shown, half.chosen, object_ids=[f"object {i}" for i in range(len(half.X))]
        )
        other = quick(n_utilities=1).fit(renamed)
        with pytest.raises(ChoiceGPError, match="different choices"):
            compare({"a": single, "b": other})

    @pytest.mark.parametrize("models", [{}, [], None, {"a": ChoiceGP()}, {"a": 3}])
    def test_anything_else_is_a_clear_error(self, models):
        with pytest.raises(ChoiceGPError, match="compare takes"):
            compare(models)

    @pytest.mark.parametrize("other", [ParetoEmbedding(), PreferenceGP()])
    def test_a_model_without_a_score_is_named(self, other, single):
        kind = type(other).__name__
        with pytest.raises(ChoiceGPError, match=f"'b' cannot be compared: {kind} has no leave-one-out score"):
            compare({"a": single, "b": other})

    def test_results_of_two_methods_do_not_mix(self, result, model):
        with warnings.catch_warnings(action="ignore"):
            other = model.loo("psis")
        with pytest.raises(ChoiceGPError, match="only results of one method on the same sets"):
            compare({"a": result, "b": other})


@pytest.fixture(scope="module")
def tree(alice_model):
    return alice_model.to_datatree(n_samples=200, random_state=3)


class TestDataTree:
    def test_it_holds_samples_scores_choices_and_names(self, tree, alice_model):
        data = alice_model.data_
        shown = np.unique(data.flat_shown)
        assert tree["posterior/utility"].dims == ("chain", "draw", "object", "dimension")
        assert tree["posterior/utility"].shape == (1, 200, len(shown), 2)
        assert list(tree["posterior"].object.values) == [str(data.object_ids[row]) for row in shown]
        assert list(tree["constant_data"].feature.values) == list(data.feature_names)
        np.testing.assert_array_equal(tree["constant_data/features"], data.X[shown])
        np.testing.assert_array_equal(tree["observed_data/chosen"], data.flat_chosen)
        assert tree["log_likelihood/choice"].shape == (1, 200, len(data))
        first = tree["observed_data"]
        assert first.object_of_row.values[0] == str(data.object_ids[data.flat_shown[0]])
        assert first.set_of_row.values[0] == tree["log_likelihood"].set.values[0]

    def test_samples_are_those_of_the_model(self, tree, alice_model):
        mean = alice_model.utilities(alice_model.data_).mean[np.unique(alice_model.data_.flat_shown)]
        sampled = tree["posterior/utility"].values[0]
        # The mean of the shown objects is zero for the model, and anything for the samples.
        sampled = sampled - sampled.mean(axis=1, keepdims=True)
        error = np.abs(sampled.mean(axis=0) - mean) / (sampled.std(axis=0) / np.sqrt(200) + 1e-9)
        assert np.mean(error < 4) > 0.98

    def test_scores_belong_to_the_samples(self, tree, alice_model):
        import jax.numpy as jnp

        from choicegp.model.likelihood import log_likelihood

        data = alice_model.data_
        shown = np.unique(data.flat_shown)
        for k in (0, 7):
            rows = np.searchsorted(shown, data.shown[k])
            u = tree["posterior/utility"].values[0, 5, rows].T
            chosen = np.isin(data.shown[k], data.chosen[k])
            expected = log_likelihood(jnp.asarray(u), jnp.ones(len(rows), bool), jnp.asarray(chosen))
            assert tree["log_likelihood/choice"].values[0, 5, k] == pytest.approx(float(expected))


def test_the_estimator_loads_no_arviz():
    code = (
        "import sys; from choicegp import ChoiceGP, compare, select_n_utilities; "
        "print(*[n for n in ('arviz_base', 'arviz_stats', 'xarray', 'joblib', 'sklearn') if n in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.split()) == (0, []), ended.stderr
