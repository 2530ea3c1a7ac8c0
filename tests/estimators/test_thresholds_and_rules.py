"""Models with a threshold, of another rule, and of sets of several kinds: from data to files."""

import numpy as np
import pytest

from choicegp import (
    BatchPreferenceGP,
    ChoiceData,
    ChoiceFolder,
    ChoiceGP,
    ChoiceGPError,
    PairGP,
    ParetoEmbedding,
    datasets,
)
from choicegp.compute.devices import computing
from choicegp.data.pareto import undominated
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import excess_note
from choicegp.model.error_models import KEPT_BY
from choicegp.model.kernels import RBF
from choicegp.selection.loo import leave_one_out, sampled_choices

QUICK = {"intervals": "none", "object_effects": False, "n_restarts": 1, "max_iter": 60, "n_jobs": 1}
N = 12
U = 6.0 * np.column_stack([np.linspace(-1, 1, N), np.cos(np.linspace(-2, 2, N))])
X = np.linspace(-1, 1, N)[:, None]
TAU = np.array([1.0, 3.0])


def kept(rows):
    """Rows that nothing dominates, the threshold included."""
    rows = np.asarray(rows)
    marks = undominated(np.vstack([U[rows], TAU]))
    return rows[marks[:-1]].tolist()


@pytest.fixture(scope="module")
def data():
    # Of one object or of three: programs of two shapes.
    shown = [rows.tolist() for rows in datasets.random_sets(N, 30, 3, random_state=1)] + [[k] for k in range(N)]
    return ChoiceData.from_sets(X, shown, [kept(rows) for rows in shown], empty="none")


@pytest.fixture(scope="module")
def model(data):
    return ChoiceGP(2, **QUICK).fit(data)


@pytest.fixture(scope="module")
def mixed(data):
    """Data of all kinds, and a model of them by the other rule."""
    kinds = np.resize(["keep", "best", "worst"], 24)
    shown = datasets.random_sets(N, 24, 3, random_state=2)
    mixed = datasets.noisy_choices(X, 9 * U, shown, rule="best-in-one", threshold=9 * TAU, kinds=kinds)
    return mixed, ChoiceGP(2, rule="best-in-one", threshold=True, **QUICK).fit(mixed)


def test_empty_answers_make_a_threshold(data, model):
    assert sum(len(rows) == 0 for rows in data.chosen) >= 3
    assert model.errors_.name == "discernibility with a threshold"
    assert model.score(data) > 0.9
    assert model.posterior_.prior.log_threshold_variance.shape == (3,)
    assert not any("say nothing" in note or "merged" in note for note in model.fit_result_.notes)


def test_probabilities_of_all_answers_sum_to_one(data, model):
    none, included = model.predict_none(data), model.predict_proba(data)
    alone = [k for k, rows in enumerate(data.shown) if len(rows) == 1]
    np.testing.assert_allclose([none[k] + included[k][0] for k in alone], 1.0, atol=1e-9)
    k = next(k for k, rows in enumerate(data.shown) if len(rows) == 3)
    rows = data.shown[k]
    answers = [[rows[o] for o in range(3) if code >> o & 1] for code in range(8)]
    asked = ChoiceData.from_sets(X, [rows] * 8, answers, empty="none")
    logs = model.log_prob(asked, normalized=True)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-9)
    assert np.exp(logs[0]) == pytest.approx(none[k], abs=1e-9)
    assert np.exp(logs[1::2]).sum() == pytest.approx(included[k][0], abs=1e-9)
    # Of two objects and a threshold the products almost sum to one as they are.
    pair = ChoiceData.from_sets(X, [rows[:2]] * 4, [[], rows[:1], rows[1:2], rows[:2]], empty="none")
    np.testing.assert_allclose(model.log_prob(pair), model.log_prob(pair, normalized=True), atol=0.1)


def test_large_sets_are_answered_too(model):
    everything = ChoiceData.from_sets(X, [range(N)], [kept(range(N))])
    worst = ChoiceData.from_sets(X, [np.argsort(U.sum(axis=1))[:2]])
    assert model.predict(everything)[0].tolist() == kept(range(N))
    assert model.predict_none(everything)[0] < 0.01
    assert model.predict(worst)[0].size == 0
    assert model.predict_none(worst)[0] > 0.8
    with pytest.raises(ChoiceGPError, match="normalized"):
        model.log_prob(everything, normalized=True)


def test_where_the_threshold_lies(data, model):
    tau = model.threshold_utilities()
    assert tau.mean.shape == tau.sd.shape == (2,)
    assert np.all((tau.lower < tau.mean) & (tau.mean < tau.upper))
    # It separates, in at least one utility each, what is kept alone from what is not.
    u = model.utilities(X).mean
    np.testing.assert_allclose(u[np.unique(data.flat_shown)].mean(axis=0), 0.0, atol=1e-6)
    alone = [np.all(u[k] < tau.mean) for k in range(N)]
    assert alone == [len(kept([k])) == 0 for k in range(N)]


def test_leave_one_out(data, model):
    with computing("cpu"):
        by_sites = leave_one_out(model.fitted_, max_refits=0)
        _, scores = sampled_choices(model.fitted_, 64, 0)
    assert np.all(np.isfinite(by_sites.pointwise))
    # Questions about single objects are scored too.
    assert np.all(by_sites.pointwise < 0.0)
    np.testing.assert_allclose(np.log(np.mean(np.exp(scores), axis=1)), model.log_prob(data), atol=0.6)
    assert by_sites.elpd < np.log(np.mean(np.exp(scores), axis=1)).sum()


def test_more_objects_than_utilities_are_noted():
    data = ChoiceData.from_sets(X, [[0, 1, 2], [3, 4]], [[0, 1, 2], [3]])
    (note,) = excess_note(data, KEPT_BY["best-in-one"], 2)
    assert "at most 2 objects can be kept, and more were kept of 1 of 2 sets" in note
    assert excess_note(data, KEPT_BY["best-in-one"], 3) == excess_note(data, KEPT_BY["discernibility"], 2) == ()


def test_models_are_saved_and_loaded(data, model, mixed, tmp_path):
    for k, (own, sets) in enumerate([(model, data), (mixed[1], mixed[0])]):
        own.save(tmp_path / f"{k}.cgp")
        again = ChoiceGP.load(tmp_path / f"{k}.cgp")
        assert again.errors_ == own.errors_
        assert again.data_ == own.data_
        assert again.get_params() == own.get_params()
        np.testing.assert_allclose(again.log_prob(sets), own.log_prob(sets))
        np.testing.assert_allclose(again.predict_none(sets), own.predict_none(sets))
        np.testing.assert_allclose(again.threshold_utilities().mean, own.threshold_utilities().mean)


def test_a_model_without_threshold_knows_no_empty_answers(data):
    something = data.take([k for k, rows in enumerate(data.chosen) if len(rows)])
    model = ChoiceGP(2, **QUICK).fit(something)
    assert model.errors_.name == "discernibility"
    assert np.all(model.predict_none(data) == 0.0)
    assert np.all(np.isneginf(model.log_prob(data)[[len(rows) == 0 for rows in data.chosen]]))
    with pytest.raises(ChoiceGPError, match="no threshold"):
        model.threshold_utilities()


def test_each_set_is_answered_by_its_kind(mixed):
    data, model = mixed
    assert model.errors_ == KEPT_BY["best-in-one with a threshold"]
    probabilities, answers = model.predict_proba(data), model.predict(data)
    marked = data.kinds != "keep"
    for k in np.flatnonzero(marked):
        assert probabilities[k].sum() == pytest.approx(1.0)
        assert answers[k].tolist() == [data.shown[k][np.argmax(probabilities[k])]]
    assert np.all(model.predict_none(data)[marked] == 0.0)
    assert model.score(data.take(~marked)) > 0.6
    logs = model.log_prob(data)
    for k in np.flatnonzero(marked)[:4]:
        place = data.shown[k].tolist().index(data.chosen[k][0])
        assert np.exp(logs[k]) == pytest.approx(probabilities[k][place], abs=0.03)
    frame = model.predict_frame(data)
    np.testing.assert_allclose(frame["probability"], np.concatenate(probabilities))


def test_batch_preferences_learn_from_the_worst_too():
    u = np.linspace(0.0, 40.0, 5)[:, None]
    data = datasets.noisy_choices(np.arange(5.0)[:, None], u, [[0, 1, 2], [2, 3, 4], [1, 2, 3]] * 2,
                                  kinds=["best"] * 3 + ["worst"] * 3)  # fmt: skip
    model = BatchPreferenceGP(n_restarts=1, max_iter=40).fit(data)
    assert [rows.tolist() for rows in model.predict(data)] == [[2], [4], [3], [0], [2], [1]]


def options(**given):
    return FitOptions.validated(ChoiceGP(2, **given).get_params())


def test_sparse_inference_finds_the_threshold_of_dense_inference(data, tmp_path):
    options = {"kernel": RBF(0.7, 30.0), "learn_hyperparameters": False, "shared_part": False, "n_restarts": 1}
    dense = ChoiceGP(2, inference="dense", object_effects=False, max_iter=100, **options).fit(data)
    (tmp_path / "files").mkdir()
    for name, sets in (("a", range(20)), ("b", range(20, len(data)))):
        data.take(sets).write(tmp_path / "files" / f"{name}.parquet")
    folder = ChoiceFolder(tmp_path / "files", empty="none")
    sparse = ChoiceGP(2, inference="sparse", max_iter=150, **options)
    sparse.fit(folder, checkpoint=tmp_path / "checkpoint")
    assert "sparse inference with 13 inducing points" in sparse.fit_result_.notes[0]
    assert sparse.elbo_ == pytest.approx(dense.elbo_, abs=0.5)
    ours, theirs = sparse.threshold_utilities(), dense.threshold_utilities()
    order = np.argsort(ours.mean) if theirs.mean[0] < theirs.mean[1] else np.argsort(-ours.mean)
    # Each fit integrates with a few points of its own.
    assert np.all(abs(ours.mean[order] - theirs.mean) < 0.4 * theirs.sd)
    assert ours.sd[order] == pytest.approx(theirs.sd, rel=0.15)
    assert sparse.predict_none(data) == pytest.approx(dense.predict_none(data), abs=0.04)
    np.testing.assert_allclose(sparse.log_prob(data), dense.log_prob(data), atol=0.08)
    assert sparse.recommend(X, n=2).index.tolist() == dense.recommend(X, n=2).index.tolist()
    sparse.save(tmp_path / "model.cgp")
    again = ChoiceGP.load(tmp_path / "model.cgp")
    assert np.array_equal(again.predict_none(data), sparse.predict_none(data))
    assert np.array_equal(again.threshold_utilities().upper, ours.upper)


def test_what_cannot_be_right_is_refused(data):
    with pytest.raises(ChoiceGPError, match="rule must be one of pareto, best-in-one"):
        options(rule="best")
    for wrong in ("yes", 2):
        with pytest.raises(ChoiceGPError, match="threshold"):
            options(threshold=wrong)
    with pytest.raises(ChoiceGPError, match="such answers need a threshold"):
        ChoiceGP(2, threshold=False).fit(data)
    for inference in ("paper", "paper-converged"):
        with pytest.raises(ChoiceGPError, match="paper's approximation"):
            ChoiceGP(2, inference=inference).fit(data)
    none = ChoiceData.from_sets(X, [[0, 1]], [[]], kinds="best", empty="none")
    with pytest.raises(ChoiceGPError, match="belongs to sets of the kind 'keep'"):
        ChoiceGP(2).fit(none)
    best = ChoiceData.from_sets(X, [[0, 1]], [[0]], kinds="best")
    with pytest.raises(ChoiceGPError, match="dense inference only"):
        ChoiceGP(2, inference="sparse").fit(best)
    for other in (PairGP(), ParetoEmbedding()):
        with pytest.raises(ChoiceGPError, match="has no threshold"):
            other.fit(data)
    with pytest.raises(ChoiceGPError, match="sets of the kind 'keep' only"):
        ParetoEmbedding().fit(best)


def test_recommendations_know_the_threshold():
    """Of objects that were all refused, none is recommended with confidence."""
    price = np.arange(6.0)[:, None]
    asked = [[k] for k in range(6) for _ in range(3)]
    answers = [[k] if k == 5 else [] for k in range(6) for _ in range(3)]
    data = ChoiceData.from_sets(price, asked, answers, empty="none")
    model = ChoiceGP(1, intervals="none", object_effects=False, n_restarts=1, progress=False).fit(data)
    table = model.recommend(price, 6)["probability"]
    assert table.loc[5] > 0.8
    assert table.drop(5).max() < 0.1
    assert model.recommend(price[:3], 3)["probability"].max() < 0.2


def test_the_threshold_is_decided_once_for_parts_of_the_data(data):
    decided = options().with_threshold_as_in(data)
    some = data.take([k for k, rows in enumerate(data.chosen) if len(rows)])
    assert decided.decided(some).errors.has_threshold
    assert not options().decided(some).errors.has_threshold
    # Deciding twice changes nothing.
    assert decided.decided(data).decided(data).errors == decided.decided(data).errors


def test_init_must_have_the_same_rule(data, model):
    with pytest.raises(ChoiceGPError, match="rule and threshold"):
        ChoiceGP(2, rule="best-in-one", **QUICK).fit(data, init=model)
    warm = ChoiceGP(2, **QUICK).fit(data, init=model)
    assert warm.elbo_ == pytest.approx(model.elbo_, abs=3.0)
