"""A fit that starts from an earlier one, when sets or objects have arrived since."""

from pathlib import Path

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError
from choicegp.inference import chain, intervals

from .test_fitting import finite


def test_a_warm_start_goes_on_from_the_last_answer(quick, data):
    earlier = quick(max_iter=300).fit(data.take(range(23)))
    warm = quick(max_iter=300).fit(data, init=earlier)
    cold = quick(max_iter=300, n_restarts=3).fit(data)
    assert warm.fit_result_.n_iter < cold.fit_result_.n_iter
    assert warm.elbo_ > cold.elbo_ - 2.0
    assert len(warm.data_) == 24
    assert len(earlier.data_) == 23, "the earlier model is left as it was"
    assert np.array_equal(warm.scale_, earlier.scale_)
    again = quick(max_iter=300).fit(data, init=earlier)
    assert again.elbo_ == warm.elbo_
    before = warm.elbo_
    assert warm.fit(data, init=warm).elbo_ == pytest.approx(before, abs=1.0), "a model may start from itself"


def test_a_warm_start_without_time_is_usable(quick, data, model):
    hurried = quick(max_seconds=0.0).fit(data, init=model)
    assert hurried.fit_result_.status == "stopped"
    assert finite(hurried, data)


def test_a_warm_start_takes_new_objects(quick, data, model):
    X = np.vstack([data.X[:15], [[0.3, 0.3]]])
    grown = ChoiceData.from_sets(X, data.shown, data.chosen, object_ids=[*range(15), "new"])
    warm = quick().fit(grown, init=model)
    assert warm.fitted_.codes["new"] == 16
    assert finite(warm, grown)


def test_a_warm_start_must_fit_the_model(quick, data, model, twins, alice, alice_model):
    for init in (3, "model", quick()):
        with pytest.raises(ChoiceGPError, match="init must be a ChoiceGP that is fitted already"):
            quick().fit(data, init=init)
    with pytest.raises(ChoiceGPError, match="init has 2 utilities, this model 1: they must agree"):
        quick(n_utilities=1).fit(data, init=model)
    with pytest.raises(ChoiceGPError, match="must agree about object_effects"):
        quick(object_effects=True).fit(data, init=model)
    with pytest.raises(ChoiceGPError, match="must have the same kernel"):
        quick(kernel="matern32").fit(data, init=model)
    with pytest.raises(ChoiceGPError, match="init= works with inference='dense' or 'mcmc' only"):
        quick(inference="paper").fit(data, init=model)
    with pytest.raises(ChoiceGPError, match=r"'x' not known|'x0', 'x1' missing"):
        quick(n_utilities=1, object_effects=True).fit(twins.data_, init=model)
    long = alice[0].to_long()
    french = ChoiceData.from_long(long.assign(keyboard=["fr", *long["keyboard"].astype(str)[1:]]))
    with pytest.raises(ChoiceGPError, match="'fr'"):
        quick().fit(french, init=alice_model)


# Shared parts, object effects and draws


def test_a_warm_start_keeps_the_shared_part_and_its_hyperparameters(quick, data, model):
    prior = model.posterior_.prior
    hurried = quick(max_seconds=0.0).fit(data, init=model)
    assert hurried.posterior_.prior.shared
    # No more than a step or two have been made from where the earlier model ended.
    step = np.abs(np.asarray(hurried.posterior_.prior.kernels.log_variance) - np.asarray(prior.kernels.log_variance))
    assert step.max() < 1.0
    assert hurried.elbo_ == pytest.approx(model.elbo_, abs=2.0)
    assert hurried.posterior_.draws.dual.shape == (1, 512, 3, 16)


@pytest.fixture(scope="module")
def with_effects(quick, data):
    return quick(object_effects=True).fit(data.take(range(23)))


def test_a_warm_start_keeps_object_effects_where_the_fit_may_decide(quick, data, model, with_effects):
    warm = quick(object_effects="auto").fit(data, init=with_effects)
    assert warm.fitted_.has_effects
    assert warm.elbo_ > quick(object_effects=True).fit(data).elbo_ - 2.0
    assert not quick(object_effects="auto").fit(data, init=model).fitted_.has_effects


def test_a_new_object_has_an_effect_of_its_own_after_a_warm_start(quick, data, with_effects):
    """The last object is replaced by another with the features of the first."""
    X = np.vstack([data.X[:15], data.X[:1]])
    grown = ChoiceData.from_sets(X, data.shown, data.chosen, object_ids=[*range(15), "twin"])
    warm = quick(object_effects="auto").fit(grown, init=with_effects)
    assert finite(warm, grown)
    assert len(warm.posterior_.objects.X) == 16, "not merged with its twin"
    found = warm.utilities(grown)
    assert not np.allclose(found.mean[0], found.mean[15], atol=1e-3)


def test_a_warm_start_from_draws_is_one_from_the_gaussian_fit_below_them(quick, data, model, monkeypatch):
    monkeypatch.setattr(intervals, "n_steps", lambda inference: (chain.BLOCK, chain.BLOCK))
    sampled = quick(intervals="auto").fit(data)
    assert sampled.intervals_.startswith(intervals.SAMPLED)
    assert sampled.elbo_ == model.elbo_
    assert quick().fit(data, init=sampled).elbo_ == quick().fit(data, init=model).elbo_


def test_draws_of_an_earlier_version_are_no_start(quick):
    old = ChoiceGP.load(Path(__file__).parents[1] / "storage" / "data" / "model-v2.cgp")
    with pytest.raises(ChoiceGPError, match="init has draws from an earlier version"):
        quick(n_utilities=old.n_utilities_, shared_part=False).fit(old.data_, init=old)


def test_a_model_starts_from_one_that_chose_its_effects_itself(quick, half):
    first = quick(object_effects="auto").fit(half)
    again = quick(object_effects="auto", learn_hyperparameters=False).fit(half, init=first)
    assert again.fitted_.has_effects == first.fitted_.has_effects
