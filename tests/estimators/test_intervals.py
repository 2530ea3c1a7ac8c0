"""What makes the intervals of a fit, in words, and how the time of a fit is shared out."""

from functools import partial

import numpy as np
import pytest

from choicegp import MCMC, ChoiceGP, ChoiceGPError, select_n_utilities
from choicegp.compute import progress
from choicegp.estimators import n_utilities
from choicegp.fitting import fit as fitting
from choicegp.fitting.record import PLUG_IN
from choicegp.inference import chain, intervals
from choicegp.inference.annealing import BLOCK
from choicegp.inference.dense import DenseInference
from choicegp.selection import psis, search
from choicegp.selection.loo import leave_one_out

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


def test_leaving_one_out_by_weights_counts_each_draw_once(mixed, monkeypatch):
    seen = []
    monkeypatch.setattr(psis, "psis_loo", lambda scores, *_: seen.append(scores))
    leave_one_out(mixed.fitted_, "psis")
    assert seen[0].shape[1] == len(np.unique(seen[0], axis=1).T) == 32 * 16
    monkeypatch.undo()
    result = leave_one_out(mixed.fitted_, "psis")
    assert "the weights are of 512 draws, which are all that the model has" in result.notes
    assert mixed.to_datatree().posterior.sizes["draw"] == 512
    assert np.isfinite(result.pointwise).all()


def test_single_samples_come_from_all_settings(mixed):
    """Each setting has its own scale: a sample of one belongs to any of them."""
    x = np.array([[0.3, 0.1], [-0.5, 0.4]])
    first = [mixed.sample_utilities(x, 1, random_state=seed)[0] for seed in range(40)]
    drawn = mixed.sample_utilities(x, 4000, random_state=0)
    spread = np.std(np.array(first)[:, 0] - np.array(first)[:, 1], axis=0)
    wanted = np.std(drawn[:, 0] - drawn[:, 1], axis=0)
    assert np.all((spread / wanted > 0.6) & (spread / wanted < 1.6))


def test_a_seed_may_be_large(quick, data):
    fitted = quick(intervals="auto", random_state=2**63).fit(data)
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


@pytest.fixture
def slow(monkeypatch):
    """Let every part of a fit take ten seconds, before it begins for chains and at its end for other parts."""
    done = []

    def lasting(name, part, *, before=False):
        def called(*args, **options):
            done.extend([name] * before)
            found = part(*args, **options)
            done.extend([name] * (not before))
            return found

        return called

    monkeypatch.setattr(progress, "monotonic", lambda: 10.0 * len(done))
    monkeypatch.setattr(fitting, "_fit_at_objects", lasting("fit", fitting._fit_at_objects))
    monkeypatch.setattr(fitting, "_with_intervals", lasting("chains", fitting._with_intervals, before=True))
    monkeypatch.setattr(search, "leave_one_out", lasting("scores", search.leave_one_out))
    return done


NO_EFFECTS = "object effects were not tried: the time limit of 10 s had passed"
NO_INTERVALS = "intervals that allow for uncertain hyperparameters were not made: the time limit of {} s had passed"


def test_the_time_limit_holds_for_all_parts_of_a_fit_together(slow, quick, half):
    fitted = quick(object_effects="auto", intervals="auto", max_seconds=45.0).fit(half)
    assert slow == ["fit", "fit", "chains"], "without effects, with effects, sampling"
    assert fitted.fit_result_.seconds == 30.0
    assert fitted.intervals_.startswith(intervals.SAMPLED)
    assert not any("time limit" in note for note in fitted.fit_result_.notes)


def test_what_there_is_no_time_for_is_left_out_and_named(slow, quick, half):
    hurried = quick(object_effects="auto", intervals="auto", max_seconds=10.0).fit(half)
    assert slow == ["fit"], "the first fit has used it up"
    assert (hurried.fitted_.has_effects, hurried.intervals_) == (False, PLUG_IN)
    assert hurried.fit_result_.notes[-2:] == (NO_INTERVALS.format(10), NO_EFFECTS)
    slow.clear()
    later = quick(object_effects="auto", intervals="auto", max_seconds=20.0).fit(half)
    assert slow == ["fit", "fit"]
    assert later.intervals_ == PLUG_IN
    assert later.fit_result_.seconds == 20.0
    assert later.fit_result_.notes[-1] == NO_INTERVALS.format(20)
    slow.clear()
    asked = quick(object_effects=False, intervals="auto", max_seconds=0.0).fit(half)
    assert asked.fit_result_.out_of_time
    assert NO_INTERVALS.format(0) in asked.fit_result_.notes


def test_time_that_runs_out_while_chains_warm_up_leaves_a_mixture(slow, quick, half):
    fitted = quick(object_effects="auto", intervals="auto", max_seconds=25.0).fit(half)
    assert slow == ["fit", "fit", "chains"]
    assert fitted.intervals_.startswith("Gaussian utilities, mixed over ")


def test_steps_leave_time_for_what_follows_them(quick, half, monkeypatch):
    """A block of steps takes ten seconds here, twice what is foreseen: so what follows the steps will take 25."""
    blocks = []

    def lasting(self, state, schedule):
        blocks.append(len(schedule[0]))
        return advance(self, state, schedule)

    advance = DenseInference.advance
    monkeypatch.setattr(progress, "monotonic", lambda: 10.0 * len(blocks))
    monkeypatch.setattr(DenseInference, "advance", lasting)
    monkeypatch.setattr(DenseInference, "work_of_step", lambda *_: 5.0 / BLOCK)
    monkeypatch.setattr(DenseInference, "work_afterwards", 12.5)
    fitted = quick(object_effects=False, max_seconds=45.0, max_iter=600).fit(half)
    assert blocks == [BLOCK] * 2, "20 seconds of steps are the most that leave 25"
    assert fitted.fit_result_.out_of_time
    assert "the time limit of 45 s" in fitted.fit_result_.message


def test_what_is_foreseen_to_take_too_long_is_not_begun(quick, half, monkeypatch):
    """The conclusion of a fit takes six seconds here: effects are not tried where fewer than 24 are left."""
    done = []

    def lasting(*args):
        done.append("conclusion")
        return conclude(*args)

    conclude = DenseInference.conclude
    monkeypatch.setattr(progress, "monotonic", lambda: 6.0 * len(done))
    monkeypatch.setattr(DenseInference, "conclude", lasting)
    short = quick(object_effects="auto", max_seconds=29.0).fit(half)
    assert len(done) == 1
    assert NO_EFFECTS.replace("10", "29") in short.fit_result_.notes
    done.clear()
    quick(object_effects="auto", max_seconds=31.0).fit(half)
    assert len(done) == 2


def test_mixing_is_not_begun_without_time_for_it(quick, half, monkeypatch):
    clock = progress.Clock(100.0)
    clock.took["conclusion"] = 20.0
    posterior = quick().fit(half).posterior_
    assert not fitting._no_time_to_mix(posterior, clock), "chains look at the clock"
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 0)
    assert fitting._no_time_to_mix(posterior, clock)
    assert not fitting._no_time_to_mix(posterior, progress.Clock(None))


def test_a_fit_without_a_time_limit_is_never_out_of_time(slow, quick, half):
    fitted = quick(object_effects="auto", intervals="auto").fit(half)
    assert slow == ["fit", "fit", "chains"]
    assert not fitted.fit_result_.out_of_time


def test_a_search_and_what_follows_it_have_one_time_limit(slow, quick, half):
    auto = quick(n_utilities="auto", object_effects="auto", intervals="auto", n_jobs=1)
    found = auto.set_params(max_seconds=30.0).fit(half)
    # There is time for one utility, and for two of them as they are annealed.
    assert slow == ["fit", "scores", "fit", "scores"]
    assert list(found.selection_.models) == [1, 2]
    reason = found.selection_.reason
    assert "more than 2 utilities were not tried: the time limit of 30 s had passed" in reason
    assert "not all fits of 2 utilities were made to their end: the time limit of 30 s had passed" in reason
    assert {NO_INTERVALS.format(30), NO_EFFECTS.replace("10", "30")} <= set(found.fit_result_.notes)
    slow.clear()
    least = auto.set_params(max_seconds=0.0).fit(half)
    assert (slow, least.n_utilities_) == (["fit", "scores"], 1)
    assert "not all fits of 1 utility were made to their end: the time" in least.selection_.reason


def test_intervals_are_part_of_what_a_user_sees():
    assert ChoiceGP().intervals == "auto"
    assert "intervals='none'" in repr(ChoiceGP(intervals="none"))
