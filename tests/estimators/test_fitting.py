"""From data and options to a posterior: wrong options, hard data, and what each option does."""

import re

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGPError, HyperPriors
from choicegp.fitting import fit as fitting
from choicegp.fitting.options import FitOptions
from choicegp.kernels import RBF, Additive, Linear, Matern12, Matern32, Matern52, Periodic, Sum
from choicegp.model.prior import log_density


def finite(model, data) -> bool:
    """Tell whether everything a user may ask for is a finite number, and probabilities are such."""
    probability = np.concatenate(model.predict_proba(data))
    numbers = [probability, model.log_prob(data), model.elbo_, model.fit_result_.elbo_trace]
    numbers += [*model.utilities(data), model.sample_utilities(data, 2)]
    assert np.all((probability >= 0) & (probability <= 1))
    return all(np.isfinite(values).all() for values in numbers)


def gap(one, other, data) -> float:
    """Return the largest difference between two models' probabilities."""
    pairs = zip(one.predict_proba(data), other.predict_proba(data), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


# Options

WRONG = [
    ({"n_utilities": 0}, "n_utilities must be a whole number of at least 1; got 0"),
    ({"n_utilities": -2}, "n_utilities must be a whole number"),
    ({"n_utilities": 1.5}, "n_utilities must be a whole number of at least 1; got 1.5"),
    ({"n_utilities": True}, "n_utilities must be a whole number of at least 1; got True"),
    ({"n_utilities": "two"}, "n_utilities must be a whole number"),
    ({"n_utilities": None}, "n_utilities must be a whole number"),
    ({"n_utilities": np.array([1, 2])}, "n_utilities must be a whole number"),
    (
        {"inference": "nonsense"},
        "inference must be one of auto, dense, sparse, paper, paper-converged, mcmc; got 'nonsense'",
    ),
    ({"inference": None}, "inference must be one of"),
    ({"inference": ["dense"]}, "inference must be one of"),
    ({"kernel": "nope"}, "unknown kernel 'nope': use one of rbf"),
    ({"kernel": None}, "unknown kernel None"),
    ({"kernel": RBF}, "unknown kernel <class"),
    ({"kernel": RBF([1.0, 1.0, 1.0])}, "the kernel has 3 values of lengthscale, the data have 2 features"),
    ({"object_effects": 1}, "object_effects must be True or False; got 1"),
    ({"object_effects": "yes"}, "object_effects must be True, False or 'auto'; got 'yes'"),
    ({"standardize": None}, "standardize must be True or False"),
    ({"lapse": 1}, "lapse must be below 1"),
    ({"lapse": -0.1}, "lapse must be a number between 0 and 1; got -0.1"),
    ({"lapse": 1.5}, "lapse must be a number between 0 and 1"),
    ({"lapse": "x"}, "lapse must be a number between 0 and 1; got 'x'"),
    ({"lapse": None}, "lapse must be a number between 0 and 1"),
    ({"lapse": True}, "lapse must be a number between 0 and 1"),
    (
        {"lapse": "learn", "inference": "paper"},
        "lapse='learn' works with inference='dense', 'sparse' or 'mcmc'",
    ),
    ({"hyperpriors": 3}, "hyperpriors must be a HyperPriors or None; got 3"),
    ({"hyperpriors": (0.0, 1.0)}, "hyperpriors must be a HyperPriors or None"),
    ({"hyperpriors": HyperPriors(lengthscale=(0.0, 0.0))}, "lengthscale must be a mean and a standard deviation"),
    ({"hyperpriors": HyperPriors(variance=(np.nan, 1.0))}, "variance must be a mean and a standard deviation"),
    ({"hyperpriors": HyperPriors(period="ab")}, "period must be a mean and a standard deviation"),
    ({"hyperpriors": HyperPriors(effect_variance=1.0)}, "effect_variance must be a mean and"),
    ({"n_restarts": 0}, "n_restarts must be a whole number of at least 1; got 0"),
    ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
    ({"max_iter": 10.0}, "max_iter must be a whole number"),
    ({"max_seconds": -1}, "max_seconds must be a number between 0 and inf; got -1"),
    ({"max_seconds": "x"}, "max_seconds must be a number"),
    ({"tol": -1}, "tol must be a number between 0 and inf; got -1"),
    ({"tol": float("nan")}, "tol must be a number"),
    ({"tol": True}, "tol must be a number"),
    ({"n_inducing": 100, "inference": "dense"}, "n_inducing belongs to inference='sparse'"),
    ({"batch_size": 100, "inference": "paper"}, "batch_size belongs to inference='sparse'"),
    ({"learn_inducing": 1}, "learn_inducing must be True or False"),
    ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'gpu'; got 'tpu'"),
    ({"device": None}, "device must be 'auto', 'cpu' or 'gpu'; got None"),
    ({"n_jobs": 0}, "n_jobs must be a whole number of at least 1; got 0"),
    ({"n_jobs": -2}, "n_jobs must be a whole number of at least 1; got -2"),
    ({"n_jobs": "all"}, "n_jobs must be a whole number"),
    ({"progress": "x"}, "progress must be True, False or 'auto'; got 'x'"),
    ({"progress": None}, "progress must be True, False or 'auto'"),
    ({"random_state": "x"}, "random_state must be a whole number of at least 0; got 'x'"),
    ({"random_state": -1}, "random_state must be a whole number of at least 0; got -1"),
    ({"random_state": 1.0}, "random_state must be a whole number"),
]


@pytest.mark.parametrize(("options", "says"), WRONG, ids=lambda value: str(value)[:50])
def test_wrong_options_are_named(options, says, quick, data):
    model = quick(**options)
    with pytest.raises(ChoiceGPError) as raised:
        model.fit(data)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not model.__sklearn_is_fitted__()


def test_numpy_numbers_are_numbers(quick, data):
    options = {"n_utilities": np.int64(2), "tol": np.float32(0.1), "max_iter": np.int32(30), "n_jobs": -1}
    model = quick(**options, random_state=np.uint8(3), lapse=np.float64(0), object_effects=np.False_).fit(data)
    assert model.elbo_ == quick(tol=0.1, random_state=3).fit(data).elbo_


def test_without_a_seed_one_is_drawn_that_repeats_the_fit(quick, data):
    model = quick(random_state=None).fit(data)
    (note,) = model.fit_result_.notes
    seed = int(re.search(r"random_state=(\d+) repeats this fit", note)[1])
    assert model.random_state is None
    assert quick(random_state=seed).fit(data).elbo_ == model.elbo_


@pytest.mark.parametrize("what", [None, np.zeros((3, 2)), pd.DataFrame({"a": [1]}), [[0, 1]]])
def test_fit_takes_choice_data_only(what, quick):
    with pytest.raises(ChoiceGPError, match=r"fit takes a ChoiceData; got .*ChoiceData.from_long"):
        quick().fit(what)


def test_fit_needs_choices(quick, data):
    with pytest.raises(ChoiceGPError, match="fit needs data with choices"):
        quick().fit(ChoiceData.from_sets(data.X, data.shown))


def test_too_many_objects_are_refused(quick, data, monkeypatch):
    monkeypatch.setattr(fitting, "MOST_DENSE", 15)
    with pytest.raises(
        ChoiceGPError, match=r"16 different objects were shown; inference=.dense. works with at most 15"
    ):
        quick().fit(data)


def test_the_time_limit_leaves_a_usable_model(quick, data):
    model = quick(max_seconds=0.001, max_iter=None).fit(data)
    assert model.fit_result_.status == "stopped"
    assert "time limit of 0.001 s" in model.fit_result_.message
    assert 0 < model.fit_result_.n_iter < 30
    assert finite(model, data)


def test_the_fit_tells_how_it_went(model, quick, data):
    result = model.fit_result_
    assert (result.status, result.message) == ("stopped", "the limit of 30 steps")
    assert result.n_iter == len(result.elbo_trace) == 30
    assert result.seconds > 0
    assert result.notes == ()
    longer = quick(max_iter=300).fit(data)
    assert longer.fit_result_.status == "converged"
    assert "nats" in longer.fit_result_.message
    # What steps raise is the bound with the hyperpriors.
    hyperpriors = HyperPriors().for_features(2)
    raised = [one.elbo_ + float(log_density(one.posterior_.prior, hyperpriors)) for one in (model, longer)]
    assert raised[1] > raised[0]
    assert longer.elbo_ == pytest.approx(longer.fit_result_.elbo_trace[-1], abs=2.0), "scored on fresh points"


def test_threads_do_not_change_the_result(quick, data):
    one, two = (quick(n_restarts=3, n_jobs=n).fit(data) for n in (1, 2))
    assert one.elbo_ == two.elbo_
    assert np.array_equal(one.posterior_.gain, two.posterior_.gain)
    assert one.elbo_ >= quick().fit(data).elbo_ - 3.0


# Data that break others


def constant(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X[:, 0], np.full(len(X), 7.0)])


def nearly_the_same(X: np.ndarray) -> np.ndarray:
    return np.repeat(X[:2], 8, axis=0) + 1e-10 * X


HARD = {
    "near-identical objects": (nearly_the_same, {}),
    "a constant feature": (constant, {}),
    "times 1e9": (lambda X: X * 1e9, {}),
    "times 1e-9": (lambda X: X * 1e-9, {}),
    "far from zero": (lambda X: X + 1e6, {}),
    "times 1e300": (lambda X: X * 1e300, {}),
    "raw": (lambda X: X, {"standardize": False}),
    "raw times 1e9": (lambda X: X * 1e9, {"standardize": False}),
    "raw times 1e-9": (lambda X: X * 1e-9, {"standardize": False}),
    "raw far from zero": (lambda X: X + 1e6, {"standardize": False}),
    "raw near-identical objects": (nearly_the_same, {"standardize": False}),
    "tiny lengthscale": (lambda X: X, {"kernel": RBF(1e-6, 1e-6)}),
    "huge lengthscale": (lambda X: X, {"kernel": RBF(1e6, 1e6)}),
}


@pytest.mark.parametrize("case", HARD)
def test_hard_features_give_finite_numbers(case, quick, data):
    change, options = HARD[case]
    hard = ChoiceData.from_sets(change(data.X), data.shown, data.chosen)
    assert finite(quick(**options).fit(hard), hard)


def test_hard_choices_give_finite_numbers(quick, data):
    everything = ChoiceData.from_sets(data.X, data.shown, data.shown)
    model = quick(max_iter=90, n_restarts=3).fit(everything)
    assert finite(model, everything)
    assert model.score(everything) > 0.9
    others = [np.setdiff1d(rows, chosen) for rows, chosen in zip(data.shown, data.chosen, strict=True)]
    # Every set twice, answered in opposite ways where that is possible.
    opposite = [other if len(other) else rows for other, rows in zip(others, data.shown, strict=True)]
    contradictory = ChoiceData.from_sets(
        data.X, [*data.shown[:12], *data.shown[:12]], [*data.chosen[:12], *opposite[:12]]
    )
    assert finite(quick().fit(contradictory), contradictory)


def test_one_set_of_forty_objects_with_fifteen_features(quick):
    X = np.random.default_rng(0).normal(size=(40, 15))
    wide = ChoiceData.from_sets(X, [range(40)], [np.argsort(-X[:, 0])[:1]])
    model = quick(n_utilities=1, hyperpriors=None).fit(wide)
    probability = model.predict_proba(wide)[0]
    assert np.isfinite([*probability, model.elbo_]).all()
    assert np.argmax(probability) == wide.chosen[0]


NAMED = {
    "rbf": RBF, "matern12": Matern12, "matern32": Matern32, "matern52": Matern52,
    "linear": Linear, "periodic": Periodic, "additive": Additive,
}  # fmt: skip


def test_every_kernel_has_a_name(quick):
    for name, kind in NAMED.items():
        assert type(FitOptions.validated(quick(kernel=name).get_params()).kernel) is kind


TRIED = {name: name for name in ("matern12", "linear", "periodic")}
# Each kernel is compiled by itself, so some are tried together.
TRIED["three"] = Matern32() * Additive() + Matern52()


@pytest.mark.parametrize("kernel", TRIED.values(), ids=TRIED.keys())
def test_every_kernel_gives_finite_numbers(kernel, quick, half):
    model = quick(n_utilities=1, kernel=kernel).fit(half)
    assert np.isfinite(np.concatenate(model.predict_proba(half))).all()
    assert np.isfinite(model.elbo_)


def test_a_composed_kernel(composed, half):
    learned = composed.posterior_.prior.kernels
    assert isinstance(learned, Sum)
    assert isinstance(learned.first, RBF)
    assert isinstance(learned.second, Additive)
    assert learned.second.log_variance.shape == (3, 2), "for each part, of which the first is shared, and feature"
    assert np.isfinite(composed.utilities(half).sd).all()
    assert composed.score(half) > 0.4


def test_notes_tell_what_was_done(quick, data):
    X = np.column_stack([data.X[:, 0], np.full(16, 3.0)])
    first = data.shown[0]
    # Object 16 is another like one of the first set, and takes its place there; set 24 has one object.
    odd = ChoiceData.from_sets(
        np.vstack([X, X[first[:1]]]), [[16, *first[1:]], *data.shown[1:], [5]],
        [[16, *first[1:]], *data.chosen[1:], [5]],
    )  # fmt: skip
    notes = "; ".join(quick().fit(odd).fit_result_.notes)
    assert "1 objects equal to another in all features were merged with it" in notes
    assert "these features are the same for all shown objects and say nothing: x1" in notes
    assert "1 sets of one object say nothing" in notes


# What must not matter


def test_the_order_of_sets_and_objects_hardly_matters(quick, data):
    rng = np.random.default_rng(3)
    order = rng.permutation(16)
    place = np.argsort(order)
    sets = rng.permutation(24)
    moved = ChoiceData.from_sets(
        data.X[order], [place[data.shown[k]] for k in sets], [place[data.chosen[k]] for k in sets],
        object_ids=order,
    )  # fmt: skip
    long, same = (quick(max_iter=300, n_restarts=3).fit(these) for these in (data, moved))
    assert same.elbo_ == pytest.approx(long.elbo_, abs=1.0)
    assert gap(long, same, data) < 0.1


def test_units_of_features_do_not_matter(quick, data, model):
    factor, shift = np.array([1000.0, 0.01]), np.array([-5.0, 20.0])
    other = ChoiceData.from_sets(data.X * factor + shift, data.shown, data.chosen)
    model_of_other = quick().fit(other)
    assert model_of_other.elbo_ == pytest.approx(model.elbo_, abs=1e-3)
    pairs = zip(model_of_other.predict_proba(other), model.predict_proba(data), strict=True)
    assert all(np.allclose(one, same, atol=1e-4) for one, same in pairs)


# Weights and lapses


def test_a_weight_of_two_is_the_set_twice(quick, data, half):
    twice = data.take([*range(12), *range(12)])
    # The same sets again with almost no weight: the arrays keep their shape.
    weighted = ChoiceData.from_sets(data.X, twice.shown, twice.chosen, weights=[2.0] * 12 + [1e-9] * 12)
    once = ChoiceData.from_sets(data.X, twice.shown, twice.chosen, weights=[1.0] * 12 + [1e-9] * 12)
    held = {"kernel": RBF(1.5, 4.0), "learn_hyperparameters": False, "n_restarts": 6, "max_iter": 150}
    two, heavy, light = (quick(**held).fit(these) for these in (twice, weighted, once))
    assert heavy.elbo_ == pytest.approx(two.elbo_, abs=0.5)
    assert light.elbo_ > two.elbo_ + 1.0
    assert gap(two, heavy, half) < 0.05 < gap(two, light, half)


def answers(data: ChoiceData, share: float) -> ChoiceData:
    """Return 60 sets of which the best by the first feature was taken, but for a share of random answers."""
    rng = np.random.default_rng(0)
    shown = [data.shown[k % 24] for k in range(60)]
    chosen = [rows[[np.argmax(data.X[rows, 0])]] for rows in shown]
    for k in np.flatnonzero(np.arange(60) % 5 < 5 * share):
        chosen[k] = rng.permutation(shown[k])[: rng.integers(1, 4)]
    return ChoiceData.from_sets(data.X, shown, chosen)


def test_a_lapse_rate_is_learned(quick, data):
    clean, random = (quick(n_utilities=1, lapse="learn", max_iter=60).fit(answers(data, share)) for share in (0.0, 0.2))
    assert 0 < float(clean.posterior_.lapse) < 0.05
    assert 0.1 < float(random.posterior_.lapse) < 0.35


def test_a_fixed_lapse_rate_bounds_probabilities(lapsing, half):
    assert float(lapsing.posterior_.lapse) == 0.1
    probability = np.concatenate(lapsing.predict_proba(half))
    # A random subset of three holds an object with probability 4/7.
    assert probability.min() >= 0.1 * 4 / 7 - 1e-9
    assert probability.max() <= 1 - 0.1 * 3 / 7 + 1e-9


# Checkpoints


def test_a_killed_fit_continues_to_the_same_result(quick, data, model, tmp_path, killed_after):
    file = tmp_path / "fit.checkpoint"
    for count in (2, 3):  # in the middle of its start, and when that is done
        with killed_after(count):
            quick().fit(data, checkpoint=file)
        assert file.exists()
    resumed = quick().fit(data, checkpoint=file)
    assert not file.exists()
    assert resumed.elbo_ == model.elbo_
    assert np.array_equal(resumed.posterior_.dual, model.posterior_.dual)
    assert np.array_equal(resumed.fit_result_.elbo_trace, model.fit_result_.elbo_trace)


def test_starts_that_were_kept_are_compared_as_if_nothing_had_happened(quick, data, tmp_path, killed_after):
    file = tmp_path / "fit.checkpoint"
    fitted = quick(n_restarts=3, max_iter=60).fit(data)
    for count in (12, 3, 3, 3):
        with killed_after(count):
            quick(n_restarts=3, max_iter=60, n_jobs=1).fit(data, checkpoint=file)
    resumed = quick(n_restarts=3, max_iter=60).fit(data, checkpoint=file)
    assert resumed.elbo_ == fitted.elbo_
    assert np.array_equal(resumed.fit_result_.elbo_trace, fitted.fit_result_.elbo_trace)


def test_an_interrupt_ends_all_threads_and_says_how_to_continue(quick, data, tmp_path, monkeypatch):
    from choicegp.inference.dense import DenseInference

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(DenseInference, "is_healthy", interrupt)
    with pytest.raises(KeyboardInterrupt):
        quick(n_restarts=4, n_jobs=2).fit(data, checkpoint=tmp_path / "fit.checkpoint")
    assert list(tmp_path.iterdir()) == [], "nothing was known yet"
