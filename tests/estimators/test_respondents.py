"""Models of many people, as a user meets them."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, compare, datasets, next_set, select_n_utilities
from choicegp.fitting import adapting
from choicegp.inference.respondents import steps

QUICK = {"object_effects": False, "intervals": "none", "n_restarts": 1, "max_iter": 36, "progress": False}


@pytest.fixture(scope="module")
def study():
    return datasets.many_people(6, 8, 0.5, 3, n_objects=12, set_size=3)


@pytest.fixture(scope="module")
def halves(study):
    number = np.arange(len(study.data)) % 8
    return study.data.take(np.flatnonzero(number < 5)), study.data.take(np.flatnonzero(number >= 5))


@pytest.fixture(scope="module")
def model(halves):
    return ChoiceGP(2, respondents="hierarchical", **QUICK).fit(halves[0])


def test_a_model_knows_its_people(model, halves):
    assert model.respondents_ == (0, 1, 2, 3, 4, 5)
    assert np.isfinite(model.elbo_)
    assert "most probable hyperparameters" in model.intervals_
    _, test = halves
    known = np.concatenate(model.predict_proba(test))
    unnamed = np.concatenate(model.predict_proba(replace(test, respondents=None)))
    assert np.all((known >= 0) & (known <= 1))
    assert np.max(np.abs(known - unnamed)) > 0.05


def test_people_who_are_not_known_are_new_ones(model, halves):
    _, test = halves
    strangers = replace(test, respondents=np.array([f"stranger {k}" for k in range(len(test))], dtype=object))
    unnamed = replace(test, respondents=None)
    with pytest.warns(UserWarning, match="18 of the 18 respondents that these sets name are not known"):
        named = model.predict_proba(strangers)
    for one, other in zip(named, model.predict_proba(unnamed), strict=True):
        np.testing.assert_allclose(one, other)


def test_the_next_set_is_for_one_person(model, study):
    table = pd.DataFrame(study.data.X, columns=study.data.feature_names)
    known, new = (next_set(model, table, 3, respondent=who, seconds=60.0, random_state=0) for who in (0, "a stranger"))
    assert set(known.shown) <= set(table.index)
    assert 0.0 < known.value < new.value, "there is less to learn about somebody who has answered"
    many = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=table.columns)
    assert len(set(next_set(model, many, 3, how="best", respondent=5, random_state=0).shown)) == 3
    with pytest.raises(ChoiceGPError, match="this model is of many people: pass respondent=NAME"):
        next_set(model, table, 3)


def test_the_order_of_sets_and_people_changes_nothing_but_rounding(model, halves):
    train, test = halves
    # The people of a chunk are worked on together, in the order of their first sets.
    turned = ChoiceGP(2, respondents="hierarchical", **QUICK).fit(train.take(np.arange(len(train))[::-1]))
    assert turned.respondents_ == (5, 4, 3, 2, 1, 0)
    difference = np.concatenate(turned.predict_proba(test)) - np.concatenate(model.predict_proba(test))
    # Each set has its own integration points, which then fall differently.
    assert np.sqrt(np.mean(difference**2)) < 0.1


def test_a_file_predicts_bit_for_bit_the_same(model, halves, tmp_path):
    _, test = halves
    model.save(tmp_path / "study.cgp")
    loaded = ChoiceGP.load(tmp_path / "study.cgp")
    assert loaded.respondents_ == model.respondents_
    for one, other in zip(model.predict_proba(test), loaded.predict_proba(test), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(model.utilities(test).lower, loaded.utilities(test).lower)


def test_later_answers_are_learned_without_a_fit(model, study, halves):
    train, test = halves
    everyone = np.asarray(train.respondents, int)
    first = ChoiceGP(2, respondents="hierarchical", **QUICK).fit(train.take(np.flatnonzero(everyone < 5)))
    mine, asked = (
        train.take(np.flatnonzero(everyone == 5)),
        test.take(np.flatnonzero(np.asarray(test.respondents) == 5)),
    )
    adapted = first.adapt(mine)
    assert adapted.respondents_ == (0, 1, 2, 3, 4, 5)
    assert first.respondents_ == (0, 1, 2, 3, 4)
    assert len(adapted.data_) == len(train)
    # Her own answers are known now.
    with pytest.warns(UserWarning, match="1 of the 1 respondents"):
        before = np.mean(first.log_prob(mine))
    assert np.mean(adapted.log_prob(mine)) > before + 0.1
    again = first.adapt(mine.take([0, 1])).adapt(mine.take([2, 3, 4]))
    for one, other in zip(adapted.predict_proba(asked), again.predict_proba(asked), strict=True):
        np.testing.assert_allclose(one, other, atol=0.05)


def test_what_the_population_is_like_at_other_objects_does_not_matter_to_a_visitor(model, halves, monkeypatch):
    X = halves[0].X

    def answers(shown, chosen):
        return ChoiceData.from_sets(X, shown, chosen, respondents=["visitor"] * len(shown))

    few = model.adapt(answers([[0, 1, 2], [2, 3, 4], [0, 3, 4]], [[0], [2, 4], [0]]))
    n_programs = len(steps.run_block._executables)
    seven = answers([[0, 1, 2], [2, 3, 4], [3, 4, 5], [5, 6, 0]], [[0], [2, 4], [4], [0]])
    more = model.adapt(seven)
    assert len(steps.run_block._executables) == n_programs, "other answers need no other programs"
    monkeypatch.setattr(adapting, "padded_size", lambda n, fineness: len(X))  # as if everything had been seen
    whole = model.adapt(seven)
    asked = answers([[0, 1, 7], [2, 5, 9], [8, 10, 11]], [[0], [2], [8]])
    for one, other in zip(more.predict_proba(asked), whole.predict_proba(asked), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    np.testing.assert_allclose(more.utilities(X).mean, whole.utilities(X).mean, atol=0.01)  # steps end at a tolerance
    assert len(more.fitted_.study.objects.X) == len(X), "every object is there once"
    assert np.max(np.abs(few.predict_proba(asked)[0] - more.predict_proba(asked)[0])) > 1e-3


def test_people_who_are_alone_have_no_population(halves):
    train, test = halves
    model = ChoiceGP(2, respondents="individual", **QUICK).fit(train)
    assert np.all(np.isfinite(model.log_prob(test)))
    with pytest.raises(ChoiceGPError, match="no population"):
        model.utilities(test)
    with pytest.raises(ChoiceGPError, match="no population"):
        model.recommend(test)
    with pytest.raises(ChoiceGPError, match="no population"):
        model.effects()
    with pytest.raises(ChoiceGPError, match="nothing is known about new people"):
        model.shares({"some": [0, 1]}, people="new")


def test_a_threshold_is_each_persons_own():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12, 2))
    shown = [rng.choice(12, 3, replace=False) for _ in range(24)]
    # The first person keeps nothing, the others everything.
    people = np.repeat([0, 1, 2], 8)
    chosen = [[] if person == 0 else rows for rows, person in zip(shown, people, strict=True)]
    data = ChoiceData.from_sets(X, shown, chosen, respondents=people, empty="none")
    model = ChoiceGP(2, respondents="hierarchical", **QUICK).fit(data)
    none = model.predict_none(data)
    assert np.mean(none[people == 0]) > 0.5 > 0.2 > np.mean(none[people > 0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"respondents": "each"}, "respondents must be 'pooled', 'individual'"),
        ({"respondents": "hierarchical", "inference": "sparse"}, "does not work with inference='sparse'"),
        (
            {"respondents": "hierarchical", "monotone": {"x0": 1}},
            "monotone does not work with respondents='hierarchical'",
        ),
        ({"respondents": "auto", "monotone": {"x0": 1}}, "monotone does not work with respondents='auto'"),
        ({"respondents": "auto", "inference": "sparse"}, "respondents='auto' does not work with inference='sparse'"),
        ({"respondents": "auto", "n_utilities": "auto"}, "not chosen together: pass respondents='hierarchical'"),
    ],
)
def test_what_cannot_be_is_said(halves, options, words):
    with pytest.raises(ChoiceGPError, match=words):
        ChoiceGP(**QUICK | options).fit(halves[0])


def test_nobody_is_named(halves, model):
    unnamed = replace(halves[0], respondents=None)
    with pytest.raises(ChoiceGPError, match="do not say who answered"):
        ChoiceGP(2, respondents="hierarchical", **QUICK).fit(unnamed)
    with pytest.raises(ChoiceGPError, match="do not say who answered"):
        model.adapt(unnamed)


def test_questions_for_one_person_are_refused(model, halves):
    with pytest.raises(ChoiceGPError, match="for models of one person"):
        model.diagnose()
    pooled = ChoiceGP(2, **QUICK).fit(halves[0])
    assert any("6 respondents were pooled" in note for note in pooled.fit_result_.notes)
    with pytest.raises(ChoiceGPError, match="models of many people"):
        pooled.adapt(halves[0])
    with pytest.raises(ChoiceGPError, match="knows one person"):
        pooled.loo(by="respondent")


def test_sets_and_people_are_left_out(model, halves):
    by_set, by_person = model.loo(), model.loo(by="respondent")
    inside = np.sum(model.log_prob(halves[0]))
    # The more is left out the less is known.
    assert by_person.elpd < by_set.elpd < inside
    assert by_set.n_effective == pytest.approx(inside - by_set.elpd)
    assert by_set.method == "refit"
    # A person without her answers is a new one, but for what she said about the population.
    new = model.log_prob(replace(halves[0], respondents=None))
    assert np.corrcoef(new, by_person.pointwise)[0, 1] > 0.7
    with pytest.raises(ChoiceGPError, match="by must be"):
        model.loo(by="person")
    # Fits without a set and cavities estimate the same; fits without a person do not.
    both = compare({"pooled": by_set._replace(method="cavity"), "hierarchical": by_set})
    assert set(both.index) == {"pooled", "hierarchical"}
    with pytest.raises(ChoiceGPError, match="with the same left out"):
        compare({"set": by_set, "person": by_person})


def test_the_number_of_utilities_of_many_people_is_chosen_by_leaving_sets_out(halves):
    few = halves[0].take(np.arange(10))  # as in tests/fitting/test_adapting.py, whose programs serve here too
    found = select_n_utilities(few, 2, respondents="hierarchical", **QUICK)
    assert list(found.table["start"]) == ["annealed"] * 2
    assert found.model.respondents_ == (0, 1)
    assert found.table["elpd"][2] == pytest.approx(found.models[2].loo().elpd)
    assert found.table["refits"][2] == len(few)
    by_rule = min(d for d in (1, 2) if found.table["elpd_diff"][d] <= found.table["dse"][d])
    assert found.n_utilities == by_rule


def test_rows_of_another_table_are_other_objects(model, halves):
    train, _ = halves
    other = ChoiceData.from_sets(train.X[:3] + 1.0, [[0, 1, 2]], [[0]], respondents=["visitor"])
    adapted = model.adapt(other.with_encoding(train.encoding))
    assert len(adapted.data_.X) == len(train.X) + 3
    assert len(set(adapted.data_.object_ids.tolist())) == len(adapted.data_.X)
    known = zip(model.predict_proba(train), adapted.predict_proba(train), strict=True)
    assert max(np.max(np.abs(one - two)) for one, two in known) < 0.1


def test_adapt_refuses_empty_answers_where_there_is_no_threshold(model):
    nothing = ChoiceData.from_sets(model.data_.X, [[0, 1]], [[]], respondents=["visitor"], empty="none")
    with pytest.raises(ChoiceGPError, match="such answers need a threshold"):
        model.adapt(nothing)


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [((0.0, 0.0, 0.0), "pooled"), ((0.0, 0.2, 1.0), "hierarchical"), ((0.0, 1.0, 0.2), "individual")],
)
def test_cross_validation_says_how_people_are_related(halves, monkeypatch, gains, chosen):
    from choicegp.compute.progress import Clock
    from choicegp.fitting.options import FitOptions
    from choicegp.selection import respondents

    class Stub:
        """Predicts with a log probability that depends on how people are related alone."""

        def __init__(self, name, test):
            self.name, self.n = name, len(test)

        def log_probabilities(self, *, normalized):
            noise = 0.1 * np.sin(np.arange(self.n))
            return -2.0 + dict(zip(respondents.CANDIDATES, gains, strict=True))[self.name] + noise

    fitted = []

    def fit_posterior(data, options, clock):
        fitted.append((options.respondents, set(data.set_ids.tolist())))
        return options.respondents

    monkeypatch.setattr(respondents, "fit_posterior", fit_posterior)
    monkeypatch.setattr(respondents, "choice_predictor", Stub)
    train = halves[0]
    found = respondents.choose_people(train, FitOptions.validated(ChoiceGP(2).get_params()), Clock(None))
    assert found.chosen == chosen
    assert f"'{chosen}' is the simplest" in found.reason
    # Every set is held out once, and every person is in every part that is learned from.
    assert fitted[0][1] | fitted[3][1] == set(train.set_ids.tolist())
    assert not fitted[0][1] & fitted[3][1]
    assert len(fitted) == 6


def test_shares_are_the_mean_of_what_people_are_predicted_to_keep(model, study):
    asked = ChoiceData.from_sets(study.data.X, [[0, 3, 7]] * 6, respondents=range(6))
    expected = np.mean(model.predict_proba(asked), axis=0)
    np.testing.assert_allclose(model.shares({"one": [0, 3, 7]}, n_draws=600)["kept"], expected, atol=0.03)
    new = model.shares({"one": [0, 3, 7]}, n_draws=40, people="new")
    np.testing.assert_allclose(new["kept"], model.predict_proba(replace(asked, respondents=None))[0], atol=0.08)


@pytest.fixture(scope="module")
def sampled(halves):
    from choicegp.inference.respondents import sampling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "N_CLIMB", 30)
        patch.setattr(sampling, "N_CHAINS", 8)
        return ChoiceGP(2, respondents="hierarchical", **QUICK | {"intervals": "auto"}).fit(halves[0])


def test_people_are_sampled_by_default(sampled, model, halves, study):
    assert sampled.intervals_.startswith("HMC over the utilities of all people and hyperparameters: 64 draws")
    _, test = halves
    drawn, gaussian = (np.concatenate(one.predict_proba(test)) for one in (sampled, model))
    assert np.corrcoef(drawn, gaussian)[0, 1] > 0.8
    # Shares of draws that continue those of the chains are what predictions are, for known people and for new ones.
    asked = ChoiceData.from_sets(study.data.X, [[0, 3, 7]] * 6, respondents=range(6))
    expected = np.mean(sampled.predict_proba(asked), axis=0)
    shares = sampled.shares({"one": [0, 3, 7]}, n_draws=320)
    np.testing.assert_allclose(shares["kept"], expected, atol=0.03)
    new = sampled.shares({"one": [0, 3, 7]}, n_draws=64, people="new")
    np.testing.assert_allclose(new["kept"], sampled.predict_proba(replace(asked, respondents=None))[0], atol=0.08)
    # Draws know more than one setting of the hyperparameters: the population is less certain.
    assert np.mean(sampled.utilities(test).sd) > np.mean(model.utilities(test).sd)


def test_a_file_of_sampled_people_predicts_bit_for_bit_the_same(sampled, halves, tmp_path):
    sampled.save(tmp_path / "study.cgp")
    loaded = ChoiceGP.load(tmp_path / "study.cgp")
    for one, other in zip(sampled.predict_proba(halves[1]), loaded.predict_proba(halves[1]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.intervals_ == sampled.intervals_
    # What is learned later is Gaussian again, and says so.
    assert "too narrow" in loaded.adapt(halves[1].take([0, 1])).intervals_


@pytest.fixture(scope="module")
def segments():
    """Return a model of people of two segments: the young keep what is large, the old what is small."""
    rng = np.random.default_rng(0)
    X, people = np.linspace(-2, 2, 12)[:, None], np.repeat(np.arange(12), 4)
    shown = [rng.choice(12, 3, replace=False) for _ in people]
    sign = np.where(np.arange(12) % 2, -1.0, 1.0)
    chosen = [[rows[np.argmax(X[rows, 0] * sign[person])]] for rows, person in zip(shown, people, strict=True)]
    known = pd.DataFrame({"segment": np.where(sign > 0, "young", "old")}, index=range(12))
    data = ChoiceData.from_sets(X, shown, chosen, respondents=people).with_covariates(known)
    return ChoiceGP(1, respondents="hierarchical", **QUICK).fit(data)


def test_new_people_are_as_those_who_are_alike(segments, tmp_path):
    X = segments.data_.X
    known = pd.DataFrame({"segment": ["young", "old"]}, index=["ann", "bo"])
    asked = ChoiceData.from_sets(X, [[0, 11]] * 2, respondents=["ann", "bo"]).with_covariates(known)
    with pytest.warns(UserWarning, match="not known"):
        young, old = segments.predict_proba(asked)
    assert young[1] > 0.9
    assert old[0] > 0.9
    # Nothing is known about the segment of a person without covariates: she is average.
    average = segments.predict_proba(ChoiceData.from_sets(X, [[0, 11]]))[0]
    assert 0.3 < average[0] < 0.7
    # The population at large has the respondents' covariates: each object is kept by one segment.
    shares = segments.shares({"both": [0, 11]}, people="new", n_draws=20)
    assert np.all((shares["kept"] > 0.35) & (shares["kept"] < 0.65))
    segments.save(tmp_path / "segments.cgp")
    loaded = ChoiceGP.load(tmp_path / "segments.cgp")
    with pytest.warns(UserWarning, match="not known"):
        np.testing.assert_array_equal(loaded.predict_proba(asked)[0], young)
    answers = ChoiceData.from_sets(X, [[0, 11], [3, 9]], [[0], [3]], respondents=["ann", "ann"])
    with pytest.raises(ChoiceGPError, match="no covariates of the respondents 'ann'"):
        loaded.adapt(answers)
    adapted = loaded.adapt(answers.with_covariates(known))
    assert adapted.predict_proba(asked.take([0]))[0][0] > 0.5


def test_people_are_segmented(model):
    found = model.segments(2, n_draws=10)
    assert found.people["respondent"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.table["people"].sum() == 6
    assert -0.5 <= found.stability <= 1.0


FOUR_DEVICES = """
import sys
import numpy as np, jax
from choicegp import ChoiceGP, datasets
from choicegp.fitting import respondents
train = datasets.many_people(6, 8, 0.5, 3, n_objects=12, set_size=3).data.take(np.arange(30))
found, used = {"devices": len(jax.devices())}, []
class Spy(respondents.Spread):
    def over(self, array, axis):
        used.append(super().over(array, axis))
        return used[-1]
for name, spread in {"four": Spy, "one": lambda devices: None}.items():
    respondents.Spread = spread
    model = ChoiceGP(2, respondents="hierarchical", **eval(sys.argv[2])).fit(train)
    study = model.fitted_.study
    found |= {f"{name}_mean": study.mean, f"{name}_elbo": model.elbo_, f"{name}_sites": study.crowds[0].sites.linear}
found["lying_on"] = [len(array.sharding.device_set) for array in used]
np.savez(sys.argv[1], **found)
"""


def test_four_devices_find_what_one_finds(tmp_path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    file = str(tmp_path / "found.npz")
    child = [sys.executable, "-c", FOUR_DEVICES, file, repr(QUICK | {"max_iter": 8})]
    subprocess.run(child, env=environment, timeout=300, check=True)
    found = dict(np.load(file))
    assert found["devices"] == 4
    assert len(found["lying_on"]) > 0
    assert np.all(found["lying_on"] == 4)
    assert found["four_elbo"] == pytest.approx(found["one_elbo"], abs=1e-5)
    for name in ("mean", "sites"):
        np.testing.assert_allclose(found[f"four_{name}"], found[f"one_{name}"], rtol=1e-5, atol=1e-5)
