"""The search for the number of utilities."""

import re
from functools import partial

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, datasets, select_n_utilities
from choicegp.compute.devices import computing
from choicegp.estimators import n_utilities as estimators_n_utilities
from choicegp.fitting.fit import fit_posterior
from choicegp.fitting.options import FitOptions
from choicegp.inference.posterior import condition, factorise_on_host, prior_covariance
from choicegp.inference.problem import pose
from choicegp.inference.starts import grown_starts
from choicegp.selection import cavity, n_utilities
from choicegp.selection.compare import HeldOut
from choicegp.selection.loo import CavityDiagnostics, loo_result
from choicegp.selection.search import Candidate, Search
from choicegp.storage.checkpoints import Checkpoint

QUICK = {"intervals": "none", "object_effects": False, "n_restarts": 1, "max_iter": 60, "progress": False}


@pytest.fixture(scope="module", autouse=True)
def quick_scores():
    """Leave-one-out with few points and refits: one utility explains so little that every set would have its fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cavity, "MOST_REFITS", 8)
        patch.setattr(cavity, "_N_POINTS", (16, 16, 16))
        yield


@pytest.fixture(scope="module")
def sincos() -> ChoiceData:
    return datasets.sincos(n_objects=24, n_sets=40).data


@pytest.fixture(scope="module")
def found(sincos, quick_scores):
    return select_n_utilities(sincos, max_utilities=3, **QUICK)


def test_two_utilities_are_found(found):
    assert found.n_utilities == 2
    assert found.model is found.models[2]
    assert found.model.n_utilities_ == 2


def test_the_table_tells_all(found):
    table = found.table
    assert list(table.index) == [1, 2, 3]
    compared = ["rank", "elpd", "p", "elpd_diff", "weight", "se", "dse", "warning", "doubtful"]
    assert list(table.columns) == [*compared, "refits", "elbo", "start", "seconds"]
    best = table["elpd"].idxmax()
    assert (table.loc[best, "elpd_diff"], table.loc[best, "dse"]) == (0.0, 0.0)
    # The stated rule, from the table itself.
    within = table.index[table["elpd_diff"] <= table["dse"]]
    assert found.n_utilities == within.min()
    assert (table["seconds"] > 0).all()
    for d, model in found.models.items():
        assert table.loc[d, "elbo"] == model.elbo_
        assert table.loc[d, "elpd"] == found.results[d].elpd


def test_it_prints_its_table_and_its_reason(found):
    lines = repr(found).splitlines()
    assert lines[0].split()[:3] == ["elpd", "se", "elpd_diff"]
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert lines[5:] == [found.reason]


def test_without_a_seed_one_is_drawn(half):
    found = select_n_utilities(
        half, max_utilities=1, random_state=None, intervals="none", n_restarts=1, max_iter=5, progress=False
    )
    assert isinstance(found.model.random_state, int)
    assert f"random_state={found.model.random_state} repeats this fit" in found.model.fit_result_.notes[-1]


def test_a_seed_drawn_for_auto_is_reported_and_repeats_the_fit(half, monkeypatch):
    """Object effects are added after the search, by a fit that has the same seed."""
    monkeypatch.setattr(estimators_n_utilities, "select_n_utilities", partial(select_n_utilities, max_utilities=1))
    model = ChoiceGP("auto", random_state=None, intervals="none", n_restarts=1, max_iter=5, progress=False).fit(half)
    assert model.fitted_.has_effects
    assert model.random_state is None
    seed = int(re.search(r"random_state=(\d+) repeats this fit", model.fit_result_.notes[-1])[1])
    again = ChoiceGP("auto", random_state=seed, intervals="none", n_restarts=1, max_iter=5, progress=False).fit(half)
    assert again.elbo_ == model.elbo_
    assert not any("seed" in note for note in again.fit_result_.notes)


def test_the_reason_is_in_words(found):
    assert found.reason.startswith("2 utilities: ")
    assert "standard error" in found.reason
    assert found.reason.endswith(".")


def test_side_by_side_changes_nothing(sincos, found):
    again = select_n_utilities(sincos, max_utilities=3, n_jobs=2, **QUICK)
    assert again.n_utilities == found.n_utilities
    np.testing.assert_array_equal(again.table["elpd"], found.table["elpd"])


def test_auto_is_the_chosen_model(sincos, found, monkeypatch):
    asked = {}

    def search(data, **options):
        asked.update(options)
        return found

    monkeypatch.setattr(estimators_n_utilities, "select_n_utilities", search)
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
    """The best fit counts: from random starts, from the smaller model, or from the larger one."""
    assert found.table["start"].loc[1] == "annealed"
    for d in (2, 3):
        annealed = ChoiceGP(d, **QUICK).fit(sincos).elbo_
        elbo, start = found.table["elbo"].loc[d], found.table["start"].loc[d]
        assert elbo == annealed if start == "annealed" else elbo > annealed


def test_a_fit_grows_from_a_smaller_model(found, sincos):
    """Without annealing, a start from one good utility reaches what random starts reach."""
    options = FitOptions.validated(found.models[2].get_params())
    with computing():
        grown = fit_posterior(sincos, options, None, found.models[1].posterior_)
    assert grown.result.n_annealing == 0
    assert grown.posterior.n_utilities == 2
    assert grown.elbo <= found.table["elbo"].loc[2]


def mean_of(start, problem) -> np.ndarray:
    factor = factorise_on_host(np.asarray(prior_covariance(start.prior, problem)))
    return np.asarray(condition(factor, start.sites).mean)[:, : problem.n_objects]


def test_starts_with_one_utility_more(sincos):
    """The sites of the smaller model are recovered: with its prior they make its posterior."""
    model = ChoiceGP(2, shared_part=False, **QUICK).fit(sincos)
    posterior = model.posterior_
    problem = pose(sincos, (sincos.X - model.centre_) / model.scale_, np.arange(len(sincos.X)), effects=False)
    with computing():
        starts = grown_starts(posterior, posterior.prior, problem)
        assert len(starts) == 3  # a copy of either, and zero
        for start, copied in zip(starts, (0, 1, None), strict=True):
            assert start.prior.n_utilities == 3
            expected = 0.0 * posterior.mean[:1] if copied is None else posterior.mean[copied : copied + 1]
            np.testing.assert_allclose(mean_of(start, problem), np.concatenate([posterior.mean, expected]), atol=1e-3)


def test_starts_with_one_utility_more_keep_the_shared_part(found, sincos):
    """Sites of a further utility would say something about the shared part; one without sites is that part alone."""
    model = found.models[2]
    posterior = model.posterior_
    problem = pose(sincos, (sincos.X - model.centre_) / model.scale_, np.arange(len(sincos.X)), effects=False)
    with computing():
        *copies, zero = grown_starts(posterior, posterior.prior, problem)
        assert len(copies) == 2
        own = np.asarray(posterior.prior.covariance(posterior.objects, posterior.objects))[0]
        shared = own @ np.asarray(posterior.dual)[0]
        np.testing.assert_allclose(mean_of(zero, problem), np.vstack([posterior.mean, shared]), atol=1e-2)
        for i, start in enumerate(copies):
            assert (start.prior.shared, start.prior.n_utilities) == (True, 3)
            np.testing.assert_array_equal(start.sites.precision[2], start.sites.precision[i])
            np.testing.assert_array_equal(start.prior.kernels.log_lengthscale[3],
                                          start.prior.kernels.log_lengthscale[i + 1])  # fmt: skip
            mean = mean_of(start, problem)
            np.testing.assert_allclose(mean[2], mean[i], atol=0.1, err_msg="equal priors and sites")


def test_the_number_agrees_with_cross_validation(sincos, found, monkeypatch):
    """Fourteen folds, all learned anew in each, and the same rule: the same number.

    Without two or three of the forty sets a problem is still padded to forty: no program is compiled for it.
    """
    steps = {d: Candidate(found.models[d].fitted_, "annealed", found.results[d], 0.0) for d in (1, 2)}
    monkeypatch.setattr(Search, "judged", lambda *_: steps)  # which is known already
    again = select_n_utilities(sincos, max_utilities=2, folds=14, contenders="all", **QUICK)
    assert again.n_utilities == found.n_utilities
    cv = again.table["cv"]
    assert cv[2] > cv[1] + 100
    assert again.table["cv_se"][2] == 0
    assert again.reason.startswith(f"2 utilities: the best score by 14-fold cross-validation, {cv[2]:.1f}; one utility")


def test_utilities_that_order_all_objects_in_the_same_way_are_reported_as_one():
    """The paper's appendix: two utilities fitted to choices by one."""
    data = datasets.counterexample(n_objects=40, n_pairs=160).data
    model = ChoiceGP(2, **QUICK).fit(data)
    assert "utilities 1 and 2 order all objects in the same way: they count as one" in model.fit_result_.notes
    assert not any("in the same way" in note for note in ChoiceGP(1, **QUICK).fit(data).fit_result_.notes)


def judged(model, *pointwise):
    none = CavityDiagnostics(*np.zeros((4, 4)))
    return Candidate(
        model.fitted_, "annealed", loo_result(np.array(pointwise, float), none, np.zeros(0, int), "", ()), 0.0
    )


@pytest.fixture
def close(found, monkeypatch):
    """Make a search that cannot tell two utilities from three, the best; four are close too, and not simpler."""
    scores = {1: [-9.0, -9, -9, -9], 2: [-1.0, -2, -1, -2], 3: [-2.0, -1, -2, -0.5], 4: [-1.0, -2, -2, -0.6]}
    steps = {d: judged(found.models[min(d, 3)], *scores[d]) for d in scores}
    monkeypatch.setattr(Search, "judged", lambda *_: steps)
    asked = []

    def folds(scores):
        def compared(search, numbers, n_folds, **more):
            asked.append((numbers, n_folds, more["random_state"], more["n_jobs"]))
            return {d: HeldOut(np.array(scores[d], float)) for d in numbers}

        monkeypatch.setattr(n_utilities, "cross_validated", compared)
        return asked

    return folds


def test_what_leaving_one_out_cannot_decide_is_cross_validated(close, sincos):
    asked = close({2: [-9.0, -9, -9, -8], 3: [-2.0, -2, -2, -2]})
    result = select_n_utilities(sincos, 4, 5, folds=10, n_jobs=2, progress=False)
    assert asked == [([2, 3], 10, 5, 2)]
    assert result.n_utilities == 3
    assert result.model is result.models[3]
    np.testing.assert_allclose(result.table["cv"], [np.nan, -35.0, -8.0, np.nan])
    np.testing.assert_allclose(result.table["cv_se"], [np.nan, np.sqrt(4 * 0.1875), 0.0, np.nan])
    assert result.reason.startswith(
        "3 utilities: the best score by 10-fold cross-validation, -8.0; one utility less is worse by 27.0, more than "
        "the standard error 0.9 of that difference; leave-one-out cannot tell 2 (-6.0) and 3 (-5.5) apart"
    )


def test_the_smaller_number_stays_where_cross_validation_cannot_decide_either(close, sincos):
    close({2: [-2.0, -3, -2, -2.5], 3: [-2.0, -1, -4, -2]})
    result = select_n_utilities(sincos, 4, folds=5, progress=False)
    assert result.n_utilities == 2
    assert result.reason.startswith(
        "2 utilities: the smallest number within one standard error of the best by 5-fold cross-validation, 3 (-9.0); "
        "the difference is 0.5 with standard error 2.9; leave-one-out cannot tell"
    )


def test_the_smallest_number_may_be_the_best(close, sincos):
    close({2: [-1.0, -1, -1, -1], 3: [-2.0, -1, -2, -1]})
    result = select_n_utilities(sincos, 4, folds=5, progress=False)
    assert result.reason.startswith(
        "2 utilities: the best score by 5-fold cross-validation, -4.0; one utility more is worse by 2.0 with standard "
        "error 1.0; leave-one-out cannot tell"
    )


def test_nothing_is_cross_validated_without_need(close, sincos, found, monkeypatch):
    asked = close({})
    result = select_n_utilities(sincos, 4, progress=False)
    assert result.n_utilities == 2
    assert "cv" not in result.table
    assert (
        "the difference is 0.5 with standard error 2.3; cross-validation could decide between them (folds=10)"
        in result.reason
    )
    clear = {d: judged(found.models[d], *[-score] * 4) for d, score in ((1, 9.0), (2, 1.0), (3, 2.0))}
    monkeypatch.setattr(Search, "judged", lambda *_: clear)
    result = select_n_utilities(sincos, 3, folds=10, progress=False)
    assert result.n_utilities == 2
    assert result.table[["cv", "cv_se"]].isna().all(axis=None)
    assert "folds" not in result.reason
    assert asked == []


def test_a_cross_validation_that_is_out_of_time_does_not_count(close, sincos, monkeypatch):
    close({})
    monkeypatch.setattr(n_utilities, "cross_validated", lambda *_, **__: {})
    result = select_n_utilities(sincos, 4, folds=5, max_seconds=9.0, progress=False)
    assert result.n_utilities == 2
    assert "the cross-validation was not finished and does not count: the time limit of 9 s had passed" in result.reason
    assert result.table["cv"].isna().all()


def test_all_numbers_are_cross_validated_on_request(close, sincos):
    asked = close({1: [-1.0] * 4, 2: [-2.0] * 4, 3: [-3.0] * 4, 4: [-4.0] * 4})
    result = select_n_utilities(sincos, 4, folds=2, contenders="all", progress=False)
    assert asked[0][0] == [1, 2, 3, 4]
    assert result.n_utilities == 1
    assert list(result.table["cv"]) == [-4.0, -8.0, -12.0, -16.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_utilities": 0}, "max_utilities must be a whole number of at least 1; got 0"),
        ({"max_utilities": "many"}, "max_utilities must be a whole number"),
        ({"kernels": "rbf"}, "select_n_utilities has no option 'kernels': it takes the options of ChoiceGP"),
        ({"kernel": "rbff"}, "kernel"),
        ({"inference": "mcmc"}, "the number of utilities is chosen with inference='dense'"),
        ({"folds": 1}, "folds must be a whole number of at least 2; got 1"),
        ({"folds": 41}, "folds must be at most the number of sets, 40; got 41"),
        ({"folds": 2, "contenders": "some"}, "contenders must be 'undecided' or 'all', not 'some'"),
        ({"contenders": "all"}, "contenders='all' are compared by cross-validation: pass folds=10"),
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


def test_a_killed_search_does_not_fit_finished_numbers_again(sincos, found, tmp_path, monkeypatch):
    file, keep, fitted = tmp_path / "search.checkpoint", Checkpoint.keep, []

    class Killed(Exception):
        pass

    def keep_or_die(self, name, known, **options):
        keep(self, name, known, **options)
        if name == "search/finished" and len(known) == 2:
            self.write()
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", keep_or_die)
        with pytest.raises(Killed):
            select_n_utilities(sincos, max_utilities=3, checkpoint=file, n_jobs=1, **QUICK)
    annealed = Search._annealed
    monkeypatch.setattr(Search, "_annealed", lambda self, d: fitted.append(d) or annealed(self, d))
    resumed = select_n_utilities(sincos, max_utilities=3, checkpoint=file, **QUICK)
    assert fitted == [3]
    assert resumed.reason == found.reason
    assert resumed.table.drop(columns="seconds").equals(found.table.drop(columns="seconds"))
    assert resumed.models[1].elbo_ == found.models[1].elbo_
    assert resumed.models[1].predict(sincos)[0].tolist() == found.models[1].predict(sincos)[0].tolist()
    assert not file.exists()
