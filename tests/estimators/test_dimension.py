"""The search for the number of utilities."""

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, datasets, select_n_utilities
from choicegp.estimators import dimension
from choicegp.estimators.dimension import _is_over, _Step
from choicegp.estimators.fitting import FitOptions, fit_posterior
from choicegp.estimators.growing import grown_starts
from choicegp.estimators.runtime import computing
from choicegp.inference.posterior import condition, factorise_on_host, prior_covariance
from choicegp.inference.problem import pose
from choicegp.selection.comparison import smallest_within_one_se
from choicegp.selection.loo import PsisDiagnostics, loo_result

QUICK = {"n_restarts": 1, "max_iter": 60, "progress": False}


@pytest.fixture(scope="module")
def sincos() -> ChoiceData:
    return datasets.sincos(n_objects=24, n_sets=40).data


@pytest.fixture(scope="module")
def found(sincos):
    return select_n_utilities(sincos, max_utilities=3, **QUICK)


def test_two_utilities_are_found(found):
    assert found.n_utilities == 2
    assert found.model is found.models[2]
    assert found.model.n_utilities_ == 2


def test_the_table_tells_all(found):
    table = found.table
    assert list(table.index) == [1, 2, 3]
    expected = {"elpd", "se", "difference", "difference_se", "n_effective", "doubtful", "refits", "elbo"}
    assert set(table.columns) == expected | {"start", "seconds"}
    best = table["elpd"].idxmax()
    assert (table.loc[best, "difference"], table.loc[best, "difference_se"]) == (0.0, 0.0)
    # The stated rule, from the table itself.
    within = table.index[-table["difference"] <= table["difference_se"]]
    assert found.n_utilities == within.min()
    assert (table["seconds"] > 0).all()
    for d, model in found.models.items():
        assert table.loc[d, "elbo"] == model.elbo_
        assert table.loc[d, "elpd"] == found.results[d].elpd


def test_the_reason_is_in_words(found):
    assert found.reason.startswith("2 utilities: ")
    assert "standard error" in found.reason
    assert found.reason.endswith(".")


def test_side_by_side_changes_nothing(sincos, found):
    again = select_n_utilities(sincos, max_utilities=2, n_jobs=2, **QUICK)
    assert again.n_utilities == found.n_utilities
    np.testing.assert_array_equal(again.table["elpd"], found.table["elpd"].loc[:2])


def test_auto_is_the_chosen_model(sincos, found, monkeypatch):
    asked = {}

    def search(data, **options):
        asked.update(options)
        return found

    monkeypatch.setattr(dimension, "select_n_utilities", search)
    model = ChoiceGP("auto", **QUICK, random_state=3).fit(sincos)
    assert (asked["n_restarts"], asked["max_iter"], asked["random_state"]) == (1, 60, 3)
    assert "n_utilities" not in asked
    assert model.n_utilities == "auto"
    assert model.n_utilities_ == 2
    assert model.selection_ is found
    np.testing.assert_array_equal(model.log_prob(sincos), found.model.log_prob(sincos))
    model.set_params(n_utilities=1).fit(sincos)
    assert not hasattr(model, "selection_")


def test_auto_is_saved_and_loaded(sincos, found, tmp_path):
    model = ChoiceGP("auto", **QUICK)
    vars(model).update({name: value for name, value in vars(found.model).items() if name.endswith("_")})
    model.save(tmp_path / "model.cgp")
    again = ChoiceGP.load(tmp_path / "model.cgp")
    assert (again.n_utilities, again.n_utilities_) == ("auto", 2)
    np.testing.assert_array_equal(again.log_prob(sincos), model.log_prob(sincos))


def test_a_larger_model_is_not_left_in_a_worse_optimum(found, sincos):
    """The better of two fits counts: one from random starts, one from the smaller model."""
    assert found.table["start"].loc[1] == "annealed"
    for d in (2, 3):
        annealed = ChoiceGP(d, **QUICK).fit(sincos).elbo_
        elbo, start = found.table["elbo"].loc[d], found.table["start"].loc[d]
        assert elbo > annealed if start == "grown" else elbo == annealed


def test_a_fit_grows_from_a_smaller_model(found, sincos):
    """Without annealing, a start from one good utility reaches what random starts reach."""
    options = FitOptions.validated(found.models[2].get_params())
    with computing():
        grown = fit_posterior(sincos, options, None, found.models[1].posterior_)
    assert grown.result.n_annealing == 0
    assert grown.posterior.n_utilities == 2
    assert grown.elbo <= found.table["elbo"].loc[2]


def test_starts_with_one_utility_more(found, sincos):
    """The sites of the smaller model are recovered: with its prior they make its posterior."""
    model = found.models[2]
    posterior = model.posterior_
    problem = pose(sincos, (sincos.X - model.centre_) / model.scale_, np.arange(len(sincos.X)), effects=False)
    with computing():
        starts = grown_starts(posterior, found.models[1].posterior_.prior, problem)
        assert len(starts) == 3  # a copy of either, and zero
        n = problem.n_objects
        for start, copied in zip(starts, (0, 1, None), strict=True):
            assert start.prior.n_utilities == 3
            factor = factorise_on_host(np.asarray(prior_covariance(start.prior, problem)))
            mean = np.asarray(condition(factor, start.sites).mean)[:, :n]
            expected = 0.0 * posterior.mean[:1] if copied is None else posterior.mean[copied : copied + 1]
            np.testing.assert_allclose(mean, np.concatenate([posterior.mean, expected]), atol=1e-3)


def test_the_number_agrees_with_cross_validation(sincos, found):
    """Fourteen folds, hyperparameters relearned in each, and the same rule: the same number.

    Without two or three of the forty sets a problem is still padded to forty: no program is compiled for it.
    """
    order = np.random.default_rng(0).permutation(len(sincos))
    results = {}
    for d, model in found.models.items():
        pointwise = np.zeros(len(sincos))
        for fold in np.array_split(order, 14):
            rest = sincos.take(np.setdiff1d(order, fold))
            # From the model of all sets, which saves the annealing; all is learned anew.
            pointwise[fold] = ChoiceGP(d, **QUICK).fit(rest, init=model).log_prob(sincos.take(fold))
        results[d] = loo_result(pointwise, PsisDiagnostics(pointwise, pointwise), np.zeros(0, int), "", ())
    assert smallest_within_one_se(results) == found.n_utilities
    assert results[2].elpd > results[1].elpd + 100


def test_utilities_that_order_all_objects_alike_are_reported_as_one():
    """The paper's appendix: two utilities fitted to choices by one."""
    data = datasets.counterexample(n_objects=40, n_pairs=160).data
    model = ChoiceGP(2, n_restarts=1, max_iter=90, progress=False).fit(data)
    assert "utilities 1 and 2 order all objects alike: they count as one" in model.fit_result_.notes
    assert not any("alike" in note for note in ChoiceGP(1, **QUICK).fit(data).fit_result_.notes)


def scored(*pointwise):
    none = PsisDiagnostics(np.zeros(4), np.zeros(4))
    result = loo_result(np.array(pointwise, float), none, np.zeros(0, int), "", ())
    return _Step(None, "annealed", result, 0.0)


@pytest.mark.parametrize(
    ("levels", "over"),
    [
        ([-5.0, -1.0], False),
        ([-5.0, -1.0, -2.0], False),
        ([-5.0, -1.0, -2.0, -3.0], True),
        ([-5.0, -1.0, -2.0, -0.5], False),
        ([-1.0, -2.0, -3.0], True),
    ],
)
def test_the_search_ends_after_two_clearly_worse_steps(levels, over):
    steps = {d + 1: scored(level, level, level, level - 0.01) for d, level in enumerate(levels)}
    assert _is_over(steps) == over


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_utilities": 0}, "max_utilities must be a whole number of at least 1; got 0"),
        ({"max_utilities": "many"}, "max_utilities must be a whole number"),
        ({"kernels": "rbf"}, "select_n_utilities has no option 'kernels': it takes those of ChoiceGP"),
        ({"kernel": "rbff"}, "kernel"),
        ({"inference": "mcmc"}, "the number of utilities is chosen with inference='dense'"),
        ({"progress": "x"}, "progress must be True, False or 'auto'; got 'x'"),
    ],
)
def test_wrong_options_are_clear_errors(sincos, options, message):
    with pytest.raises(ChoiceGPError, match=message):
        select_n_utilities(sincos, **options)


def test_wrong_data_are_clear_errors(sincos):
    with pytest.raises(ChoiceGPError, match="select_n_utilities takes a ChoiceData; got list"):
        select_n_utilities([1, 2])
    with pytest.raises(ChoiceGPError, match="init= goes with a number of utilities"):
        ChoiceGP("auto").fit(sincos, init=ChoiceGP(2))


def test_progress_is_shown_on_request(half, capfd):
    select_n_utilities(half, max_utilities=1, n_restarts=1, max_iter=30, progress=True)
    assert "1 utility of at most 1" in capfd.readouterr().err
