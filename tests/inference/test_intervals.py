"""Honest draws after a dense fit: sampled where the problem is small, else Gaussian and mixed over settings."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from choicegp.compute.progress import Clock
from choicegp.inference import intervals, mcmc
from choicegp.inference.chain import BLOCK
from choicegp.inference.coordinates import hyper_posterior, log_likelihood
from choicegp.inference.dense import DenseInference
from choicegp.inference.driver import Task, Verdict, Watch
from choicegp.inference.intervals import MOST_SAMPLED, with_intervals
from choicegp.inference.mcmc import MOST_SETTINGS
from choicegp.inference.populations import seconds_of_population
from choicegp.inference.posterior import factorise_on_host
from choicegp.model.kernels import RBF
from choicegp.model.prior import UtilityPrior

from .conftest import FIXED, LEARN, T, conditioned, covariance_of, fitted

N_DRAWS = 512


@pytest.fixture(scope="module")
def fit(problem):
    return fitted(problem, LEARN, prior=UtilityPrior.create(RBF(1.5, 2.7), 2, 2, shared=True), tol=1e-3)


def task_of(fit, problem, learning=LEARN, seconds=None, **options):
    return Task(fit.prior, problem, learning, Watch(Clock(seconds)), 1, 0, **options)


@pytest.fixture
def gaussian(monkeypatch):
    """Let every problem be too large to be sampled."""
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 2 * T - 1)


def assert_dense_parts_stay(found, fit):
    for name in ("mean", "dual", "gain"):
        np.testing.assert_array_equal(getattr(found.posterior, name), getattr(fit.posterior, name))
    assert (found.elbo, found.status, found.message) == (fit.elbo, fit.status, fit.message)


def parameters_of(draws):
    """The hyperparameters of all settings, (H, n)."""
    settings = [jax.tree.map(lambda leaf, h=h: leaf[h], draws.prior) for h in range(len(draws.dual))]
    return np.array([np.asarray(ravel_pytree(one)[0]) for one in settings])


class Shaped:
    """What the number of steps is chosen by: objects, parts, moves and sets of one size."""

    def __init__(self, size, n_sets=60, d=2, n_objects=25):
        batch = SimpleNamespace(rows=np.zeros((size, n_sets), int))
        prior = SimpleNamespace(n_parts=d + 1, n_utilities=d)
        self.task = SimpleNamespace(problem=SimpleNamespace(n_objects=n_objects, batches=(batch,)))
        self.before = SimpleNamespace(posterior=SimpleNamespace(prior=prior))
        self.n_moves, self.n_chains = 2, 4


def test_large_sets_have_fewer_steps():
    # Sixteen objects in a set make 28 times the pairs of three, and a step takes ten times as long.
    steps = {size: sum(intervals.n_steps(Shaped(size))) for size in (2, 3, 5, 12, 16)}
    assert steps[2] == steps[3] == steps[5] > steps[12] > steps[16]
    assert sum(intervals.n_steps(Shaped(16, n_sets=2000, d=3))) == 12 * BLOCK, "as few as there may be"


def test_more_chains_are_shorter():
    small, large = Shaped(3), Shaped(16, n_sets=2000, d=3)
    small.n_chains = large.n_chains = 8
    assert sum(intervals.n_steps(small)) == pytest.approx(0.5 * sum(intervals.n_steps(Shaped(3))), abs=BLOCK)
    assert intervals.n_steps(large) == (4 * BLOCK, 4 * BLOCK), "as many draws of all chains, and a warm-up of each"


def test_small_problems_are_sampled(fit, problem, monkeypatch):
    monkeypatch.setattr(intervals, "n_steps", lambda inference: (2 * BLOCK, BLOCK))
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 2 * T)
    found, words = with_intervals(task_of(fit, problem), fit)
    assert words.startswith("NUTS over utilities and hyperparameters: 128 draws, R-hat at most ")
    assert "make more draws" not in words, "advice for another option"
    draws = found.posterior.draws
    assert draws.dual.shape == (8, BLOCK, 3, T)
    assert len(np.unique(parameters_of(draws), axis=0)) > 4, "hyperparameters are uncertain"
    assert_dense_parts_stay(found, fit)


def test_hyperparameters_that_are_costly_to_move_are_drawn_around_the_best(fit, problem, monkeypatch):
    monkeypatch.setattr(intervals, "n_steps", lambda inference: (8 * BLOCK, BLOCK))
    monkeypatch.setattr(mcmc, "_MOST_MOVE", 0.0)
    found, words = with_intervals(task_of(fit, problem), fit)
    assert words.startswith("NUTS over utilities, mixed over settings of the hyperparameters: 512 draws, R-hat at most")
    parameters = parameters_of(found.posterior.draws)
    assert len(np.unique(parameters, axis=0)) == MOST_SETTINGS
    scale = np.asarray(hyper_posterior(fit.prior, fit.sites, problem, LEARN.hyperpriors).scale)
    sd = np.sqrt(np.sum(scale**2, axis=1))
    rows = [0, 1, 6]  # of the shared part, which no alignment exchanges
    ordered = np.asarray(ravel_pytree(fit.prior)[0])
    np.testing.assert_allclose((parameters[:, rows].mean(axis=0) - ordered[rows]) / sd[rows], 0.0, atol=0.72)
    again, _ = with_intervals(task_of(fit, problem), fit)
    np.testing.assert_array_equal(again.posterior.draws.dual, found.posterior.draws.dual)


def test_at_the_time_limit_the_gaussian_is_mixed(fit, problem):
    """Chains that are still warming up are worth less than a Gaussian."""
    found, words = with_intervals(task_of(fit, problem, seconds=0.0), fit)
    assert words == f"Gaussian utilities, mixed over {MOST_SETTINGS} settings of the hyperparameters"
    assert_dense_parts_stay(found, fit)


def test_beyond_the_gaussian_is_mixed_over_settings(fit, problem, gaussian):
    assert MOST_SAMPLED == 1500
    found, words = with_intervals(task_of(fit, problem), fit)
    assert words == f"Gaussian utilities, mixed over {MOST_SETTINGS} settings of the hyperparameters"
    draws = found.posterior.draws
    assert draws.dual.shape == (MOST_SETTINGS, N_DRAWS // MOST_SETTINGS, 3, T)
    assert_dense_parts_stay(found, fit)
    # The settings are draws of the hyperposterior: of 32, each mean within four standard errors, and of its spread.
    parameters = parameters_of(draws)
    scale = np.asarray(hyper_posterior(fit.prior, fit.sites, problem, LEARN.hyperpriors).scale)
    sd = np.sqrt(np.sum(scale**2, axis=1))
    shared, own = fit.prior.kernels.log_variance.shape[0], len(sd)
    assert (shared, own) == (3, 9)
    ordered = np.asarray(ravel_pytree(fit.prior)[0])
    # Aligning may exchange the two utilities' own rows: those of the shared part stay.
    rows = [0, 1, 6]
    np.testing.assert_allclose((parameters[:, rows].mean(axis=0) - ordered[rows]) / sd[rows], 0.0, atol=0.72)
    assert np.all(np.abs(np.log(parameters[:, rows].std(axis=0) / sd[rows])) < 0.6)


def test_at_each_setting_the_draws_have_the_gaussian_posteriors_mean(fit, problem, gaussian):
    draws = with_intervals(task_of(fit, problem), fit)[0].posterior.draws
    for h in (0, 7, 31):
        prior = jax.tree.map(lambda leaf, h=h: leaf[h], draws.prior)
        K = np.asarray(covariance_of(prior, problem))
        drawn = np.einsum("pij,spj->spi", K, draws.dual[h])
        u = drawn[:, :1] + drawn[:, 1:]
        # The order of the utilities may have been undone, and the sites have the old one.
        exact = []
        for order in ([0, 1], [1, 0]):
            sites = jax.tree.map(lambda part, order=order: np.asarray(part)[order], fit.sites)
            moments = conditioned(factorise_on_host(K), sites)
            exact.append(float(np.abs(u.mean(axis=0) - moments.mean).max()))
        assert min(exact) < 1e-4, "in pairs of opposite signs"
        root = np.asarray(factorise_on_host(K).root)
        product = draws.inverse[h] @ root @ np.swapaxes(root, 1, 2)
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(T), K.shape), atol=1e-4)


def test_a_mixture_is_wider_than_the_gaussian_at_the_best_hyperparameters(fit, problem, gaussian):
    mixed = with_intervals(task_of(fit, problem), fit)[0].posterior

    def width(posterior):
        draws = posterior.draws
        spread = []
        for h in range(len(draws.dual)):
            prior = jax.tree.map(lambda leaf, h=h: leaf[h], draws.prior)
            parts = np.einsum("pij,spj->spi", prior.covariance(posterior.objects, posterior.objects), draws.dual[h])
            u = parts[:, :1] + parts[:, 1:]
            spread.append(u - u.mean(axis=2, keepdims=True))
        return np.concatenate(spread).std(axis=0).mean()

    assert width(mixed) > 1.05 * width(fit.posterior)


def test_the_same_seed_gives_the_same_settings(fit, problem, gaussian):
    one, two, other = (with_intervals(task_of(fit, problem, seed=seed), fit)[0].posterior.draws for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.dual, two.dual)
    assert not np.array_equal(one.dual, other.dual)


def test_large_problems_have_fewer_settings_and_as_many_draws(fit, problem, gaussian, monkeypatch):
    monkeypatch.setattr(intervals, "_MOST_NUMBERS", 11 * 3 * T**2)
    found, words = with_intervals(task_of(fit, problem), fit)
    assert words == "Gaussian utilities, mixed over 8 settings of the hyperparameters"
    assert found.posterior.draws.dual.shape == (8, 64, 3, T)
    monkeypatch.setattr(intervals, "_MOST_NUMBERS", 1.0)
    assert with_intervals(task_of(fit, problem), fit)[0].posterior.draws.dual.shape == (4, 128, 3, T)


def test_hyperparameters_that_are_held_are_named_so(fit, problem, gaussian, monkeypatch):
    found, words = with_intervals(task_of(fit, problem, FIXED), fit)
    assert words == "Gaussian utilities at the hyperparameters of the fit"
    assert np.ptp(parameters_of(found.posterior.draws), axis=0).max() == 0.0
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 2 * T)
    monkeypatch.setattr(intervals, "n_steps", lambda inference: (BLOCK, BLOCK))
    _, words = with_intervals(task_of(fit, problem, FIXED), fit)
    assert words.startswith("NUTS over utilities: 64 draws, ")


@pytest.fixture
def many_modes(monkeypatch):
    """Let the answers of the problem count as free of errors and its sets as large; few and short fits."""
    values = {"_LARGE_SET": 2, "_SAYS_ALL": -np.inf, "_N_RIVALS": 5, "_MOST_RIVAL_STEPS": 36}
    for name, value in values.items():
        monkeypatch.setattr(intervals, name, value)
    monkeypatch.setattr(intervals, "n_steps", lambda inference: (2 * BLOCK, BLOCK))


@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3])
def test_whether_answers_are_free_of_errors_does_not_depend_on_the_scale_of_weights(fit, problem, weight, monkeypatch):
    monkeypatch.setattr(intervals, "_LARGE_SET", 2)
    batches = tuple(batch._replace(weight=weight * np.asarray(batch.weight)) for batch in problem.batches)
    mean = np.pad(fit.posterior.mean, ((0, 0), (0, len(problem.valid) - problem.n_objects)))
    said = float(log_likelihood(mean, problem, None)) / problem.n_sets
    for limit, expected in ((said - 0.01, True), (said + 0.01, False)):
        monkeypatch.setattr(intervals, "_SAYS_ALL", limit)
        assert intervals.may_have_modes(task_of(fit, problem._replace(batches=batches)), fit) is expected


@pytest.fixture
def equal_weights(monkeypatch):
    """All fits count, also those that have ended at one place."""
    monkeypatch.setattr(intervals, "_NATS", np.inf)
    monkeypatch.setattr(intervals, "_SAME", -np.inf)


def bounds_of(modes):
    return [one.elbo for one in modes]


def rivals_at(monkeypatch, fit, *better):
    """Let other starts end with these bounds above that of ``fit``."""
    others = [fit._replace(elbo=fit.elbo + nats) for nats in better]
    monkeypatch.setattr(intervals, "_N_RIVALS", len(others))
    monkeypatch.setattr(intervals, "_rival", lambda task, number: others[number])


def test_chains_of_large_sets_start_at_the_best_of_many_fits(fit, problem, many_modes, equal_weights):
    task = task_of(fit, problem)
    modes = intervals._modes(task, fit)
    assert len(modes) == 8
    assert len(set(map(id, modes))) == 6, "equal weights: all fits have a chain"
    assert any(one is fit for one in modes)
    assert bounds_of(modes) == sorted(bounds_of(modes), reverse=True)
    found, words = with_intervals(task, fit)
    assert words.startswith("NUTS over utilities and hyperparameters, from 6 fits: 256 draws, R-hat at most ")
    assert_dense_parts_stay(found, modes[0])
    assert len(found.posterior.draws.dual) == 2 * 8, "as many settings from each chain"
    # Every chain samples the same posterior, in the coordinates of its own fit.
    inference = mcmc.MCMCInference(task, modes[0], BLOCK, 0.8, modes=modes)
    assert inference.n_chains == 8
    for number, one in enumerate(modes):
        own = inference.model_of(number).approximation.prior
        np.testing.assert_array_equal(ravel_pytree(own)[0], ravel_pytree(one.prior)[0])
    few = mcmc.MCMCInference(task, modes[0], BLOCK, 0.8, modes=modes[:3])
    assert few.n_chains == 4
    assert few.model_of(3) is few.model_of(0)


@pytest.mark.parametrize(("share", "number"), [(1e9, 5), (3.5, 3), (1.01, 1), (0.99, 0)])
def test_there_are_as_many_rivals_as_there_is_time_for(fit, problem, many_modes, monkeypatch, share, number):
    seconds = seconds_of_population(2, problem)
    seconds += intervals._STEPS_OF_A_RIVAL * DenseInference(task_of(fit, problem)).work_of_step(None)
    monkeypatch.setattr(intervals, "_SECONDS_OF_RIVALS", share * seconds)
    seen = []
    monkeypatch.setattr(intervals, "_rival", lambda task, number: seen.append(number))
    assert intervals._modes(task_of(fit, problem), fit) == [fit]
    assert seen == list(range(number))


def test_better_fits_have_more_chains(fit, problem, many_modes, monkeypatch):
    rivals_at(monkeypatch, fit, -70.0, 2.0, -1.0, -50.0, -60.0)
    modes = intervals._modes(task_of(fit, problem), fit)
    # Weights e^(bound / 5): 0.45, 0.30 and 0.25 of eight chains.
    assert bounds_of(modes) == pytest.approx([fit.elbo + 2.0] * 4 + [fit.elbo] * 2 + [fit.elbo - 1.0] * 2)


def test_starts_that_end_at_one_place_count_once(fit, problem, many_modes, monkeypatch):
    rivals_at(monkeypatch, fit, 0.01, 0.0, -0.02, -1.0)
    modes = intervals._modes(task_of(fit, problem), fit)
    # Weights 0.55 and 0.45.
    assert bounds_of(modes) == pytest.approx([fit.elbo + 0.01] * 4 + [fit.elbo - 1.0] * 4)


def test_a_fit_that_is_far_better_than_all_others_has_the_usual_chains(fit, problem, many_modes, monkeypatch):
    rivals_at(monkeypatch, fit, -50.0, -50.0)
    assert intervals._modes(task_of(fit, problem), fit) == [fit]


def test_fits_that_fail_are_left_out(fit, problem, many_modes, equal_weights, monkeypatch):
    bounds = iter([np.nan, -3.0, -2.0, -1.0, -np.inf])
    monkeypatch.setattr(DenseInference, "conclude", lambda self, course, verdict: fit._replace(elbo=next(bounds)))
    modes = intervals._modes(task_of(fit, problem), fit)
    assert set(bounds_of(modes)) == {-3.0, -2.0, -1.0, fit.elbo}
    failed, usual = Verdict("failed", "no step was finite"), DenseInference.verdict
    verdicts = [failed]
    monkeypatch.setattr(
        DenseInference, "verdict", lambda self, course: verdicts.pop() if verdicts else usual(self, course)
    )
    bounds = iter([-4.0, -3.0, -2.0, -1.0, -5.0])
    assert len(set(bounds_of(intervals._modes(task_of(fit, problem), fit)))) == 5, "four of five, and the fit"
    assert not verdicts
    monkeypatch.setattr(DenseInference, "verdict", lambda self, course: failed)
    assert intervals._modes(task_of(fit, problem), fit) == [fit]


def test_a_rival_is_better_than_its_start_and_another_for_each_number(fit, problem, monkeypatch):
    task = task_of(fit, problem)._replace(max_iter=60)
    one, again, other = (intervals._rival(task, number) for number in (0, 0, 1))
    assert one.elbo == again.elbo
    assert one.trace[-1] > one.trace[0]
    assert not np.array_equal(one.posterior.mean, other.posterior.mean)
    assert one.n_annealing == 0


def test_with_a_time_limit_or_too_many_objects_there_is_one_fit(fit, problem, many_modes, monkeypatch):
    rivals_at(monkeypatch, fit, 1.0)
    assert intervals._modes(task_of(fit, problem, seconds=1e9), fit) == [fit]
    monkeypatch.setattr(intervals, "MOST_SAMPLED", 2 * T - 1)
    assert intervals._modes(task_of(fit, problem), fit) == [fit]


@pytest.mark.parametrize("changed", [{}, {"_LARGE_SET": 10}, {"_SAYS_ALL": -0.01}], ids=str)
def test_a_note_says_that_there_may_be_other_explanations(changed, fit, problem, many_modes, gaussian, monkeypatch):
    for name, value in changed.items():
        monkeypatch.setattr(intervals, name, value)
    found, _ = with_intervals(task_of(fit, problem), fit)
    assert found.notes == (() if changed else (intervals.MANY_MODES,)), "small sets and answers with errors have none"
