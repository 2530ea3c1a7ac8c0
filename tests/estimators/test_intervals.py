"""What makes the intervals of a fit, in words, and how the time of a fit is shared out."""

from functools import partial

import numpy as np
import pytest

from choicegp import MCMC, ChoiceGP, ChoiceGPError, select_n_utilities
from choicegp.compute.progress import Clock
from choicegp.estimators import n_utilities
from choicegp.fitting import fit as fitting
from choicegp.fitting.record import PLUG_IN
from choicegp.inference import chain, intervals

MIXED = "Gaussian utilities, mixed over 32 settings of the hyperparameters"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(intervals, "n_steps", lambda inference: (2 * chain.BLOCK, 2 * chain.BLOCK))


@pytest.fixture(scope="module")
def mixed(quick, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "MOST_SAMPLED", 31)  # there are 2 utilities of 16 objects
        return quick(intervals="auto").fit(data)


def test_few_utilities_are_sampled(quick, data, model, monkeypatch):
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 32)
    sampled = quick(intervals="auto").fit(data)
    assert sampled.intervals_ == sampled.fit_result_.intervals
    assert sampled.intervals_.startswith("NUTS over utilities and hyperparameters: 128 draws, R-hat at most ")
    # Beside the draws it is the fit that it would be without them.
    assert sampled.elbo_ == model.elbo_
    assert sampled.fit_result_.message == model.fit_result_.message
    assert np.array_equal(sampled.posterior_.mean, model.posterior_.mean)
    settings = np.asarray(sampled.posterior_.draws.prior.kernels.log_variance)
    assert len(np.unique(settings[:, 0])) == len(settings) == 8


def test_many_utilities_are_mixed_over_settings(mixed, model):
    assert mixed.intervals_ == mixed.fit_result_.intervals == MIXED
    assert mixed.posterior_.draws.dual.shape == (32, 16, 3, 16)
    assert mixed.elbo_ == model.elbo_


def test_intervals_are_wider_than_those_at_the_most_probable_hyperparameters(mixed, model):
    new = np.random.default_rng(7).uniform(-1.0, 1.0, size=(30, 2))
    wide, narrow = mixed.utilities(new), model.utilities(new)
    assert (wide.upper - wide.lower).mean() > 1.1 * (narrow.upper - narrow.lower).mean()


def test_single_samples_come_from_all_settings(mixed):
    """Each setting has its own scale: a sample of one belongs to any of them."""
    x = np.array([[0.3, 0.1], [-0.5, 0.4]])
    first = [mixed.sample_utilities(x, 1, random_state=seed)[0] for seed in range(40)]
    drawn = mixed.sample_utilities(x, 4000, random_state=0)
    spread = np.std(np.array(first)[:, 0] - np.array(first)[:, 1], axis=0)
    wanted = np.std(drawn[:, 0] - drawn[:, 1], axis=0)
    assert np.all((spread / wanted > 0.6) & (spread / wanted < 1.6))


def test_a_seed_may_be_large(quick, half):
    fitted = quick(intervals="auto", random_state=2**63).fit(half)
    assert fitted.intervals_.startswith(intervals.SAMPLED)


NONE = {
    "none": {"intervals": "none"},
    "dense": {"intervals": "auto", "inference": "dense"},
    "paper": {"intervals": "auto", "inference": "paper-converged", "max_iter": 2},
}


@pytest.mark.parametrize("kind", NONE)
def test_other_fits_say_that_their_intervals_are_too_narrow(kind, quick, half):
    fitted = quick(**NONE[kind]).fit(half)
    assert fitted.intervals_ == fitted.fit_result_.intervals == PLUG_IN
    assert "too narrow" in fitted.intervals_


def test_draws_on_request_say_how_many_they_are(quick, half):
    drawn = quick(inference=MCMC(n_draws=chain.BLOCK, n_warm_up=chain.BLOCK), max_iter=None).fit(half)
    assert drawn.intervals_.startswith(f"draws: {4 * chain.BLOCK} draws, R-hat at most ")


@pytest.mark.parametrize("wrong", ["some", None, True])
def test_wrong_intervals_are_named(wrong, quick, half):
    with pytest.raises(ChoiceGPError, match="intervals must be 'auto' or 'none'; got"):
        quick(intervals=wrong).fit(half)


@pytest.mark.parametrize("effects", ["auto", False])
def test_a_number_of_utilities_that_was_searched_for_has_intervals_too(effects, quick, half, monkeypatch):
    monkeypatch.setattr(n_utilities, "select_n_utilities", partial(select_n_utilities, max_utilities=2))
    found = quick(n_utilities="auto", intervals="auto", object_effects=effects).fit(half)
    assert found.intervals_.startswith(intervals.SAMPLED)
    assert found.fitted_.has_effects == (effects == "auto")
    assert found.posterior_.draws.dual.shape[0] > 1
    # Numbers are compared by fits that have neither.
    searched = found.selection_.model
    assert searched.intervals_ == PLUG_IN
    assert not searched.fitted_.has_effects
    assert found.n_utilities_ == searched.n_utilities_ == found.selection_.n_utilities


class Slow(Clock):
    """A clock on which every part of a fit takes ten seconds; it remembers which limits were asked for."""

    limits: list[float | None]
    seconds = 10.0

    def __init__(self, max_seconds: float | None) -> None:
        super().__init__(max_seconds)
        self.limits.append(max_seconds)


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(Slow, "limits", [], raising=False)
    monkeypatch.setattr(fitting, "Clock", Slow)
    return Slow


def test_the_time_limit_holds_for_all_parts_of_a_fit_together(slow, quick, half):
    fitted = quick(object_effects="auto", intervals="auto", max_seconds=45.0).fit(half)
    assert slow.limits == [45.0, 35.0, 25.0], "without effects, with effects, sampling"
    assert fitted.fit_result_.seconds == 30.0
    assert fitted.intervals_.startswith(intervals.SAMPLED)


def test_what_there_is_no_time_for_is_left_out(slow, quick, half):
    hurried = quick(object_effects="auto", intervals="auto", max_seconds=10.0).fit(half)
    assert slow.limits == [10.0], "the first fit has used it up"
    assert (hurried.fitted_.has_effects, hurried.intervals_) == (False, PLUG_IN)
    slow.limits.clear()
    later = quick(object_effects="auto", intervals="auto", max_seconds=20.0).fit(half)
    assert slow.limits == [20.0, 10.0]
    assert later.intervals_ == PLUG_IN
    assert later.fit_result_.seconds == 20.0


def test_time_that_runs_out_while_chains_warm_up_leaves_a_mixture(slow, quick, half):
    fitted = quick(object_effects="auto", intervals="auto", max_seconds=25.0).fit(half)
    assert slow.limits == [25.0, 15.0, 5.0]
    assert fitted.intervals_.startswith("Gaussian utilities, mixed over ")


def test_without_a_time_limit_no_part_has_one(slow, quick, half):
    quick(object_effects="auto", intervals="auto").fit(half)
    assert slow.limits == [None, None, None]


def test_intervals_are_part_of_what_a_user_sees():
    assert ChoiceGP().intervals == "auto"
    assert "intervals='none'" in repr(ChoiceGP(intervals="none"))
