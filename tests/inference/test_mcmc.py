"""MCMC: draws from the exact posterior, with a report of how well they mixed, which predict like any posterior."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import ndtr

from choicegp import MCMC, ChoiceData, ChoiceGP
from choicegp.compute.devices import computing
from choicegp.compute.progress import Clock
from choicegp.inference.chain import _FIRST_STEP, BLOCK, SampledBlock, advance
from choicegp.inference.driver import Task, Watch, infer, run
from choicegp.inference.mcmc import (
    MOST_SETTINGS,
    N_CHAINS,
    Kept,
    MCMCInference,
    _aligned,
    duals_at,
    posterior_of_settings,
)
from choicegp.kernels import RBF
from choicegp.model.prior import UtilityPrior

from .conftest import FIXED, LEARN, fitted, make_prior, posed

X = np.array([[0.0], [0.7], [2.0]])
PAIRS = [[0, 1], [1, 2], [0, 2]]
OPTIONS = {
    "kernel": RBF(1.0, 4.0), "learn_hyperparameters": False, "standardize": False, "object_effects": False,
    "progress": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return ChoiceData.from_pairs(X, PAIRS)


@pytest.fixture(scope="module")
def sampled(data):
    return ChoiceGP(1, inference="mcmc", max_iter=1500, **OPTIONS).fit(data)


@pytest.fixture(scope="module")
def grid():
    """Exact posterior of u(0) - u(1) and u(0) - u(2) by quadrature over the prior: nodes and weights."""
    K = 4.0 * np.exp(-0.5 * (X - X.T) ** 2)
    contrast = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes)])
    u = np.linalg.cholesky(contrast @ K @ contrast.T) @ z
    likelihood = ndtr(u[0]) * ndtr(u[1]) * ndtr(u[1] - u[0])
    weight = np.outer(weights, weights).ravel() * likelihood
    return u, weight / weight.sum()


@pytest.fixture(scope="module")
def three(data):
    return posed(data)


@pytest.fixture(scope="module")
def dense(three):
    """A fit at hyperparameters that are held."""
    return fitted(three, FIXED, prior=make_prior(1.0, 4.0, n_utilities=1, n_features=1), tol=1e-3)


def chains_of(dense, problem, n_warm_up, max_iter=60, clock=None, listener=None, learning=FIXED, **options):
    watch = Watch(clock or Clock(None), listener)
    task = Task(dense.prior, problem, learning, watch, 1, max_iter, **options)
    return MCMCInference(task, dense, n_warm_up, 0.8)


# Exactness, with the hyperparameters held


def test_moments_of_all_draws_are_those_of_quadrature(dense, three, grid):
    u, weight = grid
    state, _ = run(chains_of(dense, three, 200, 2000))
    drawn = np.concatenate([block.utilities[:, 0, :3] for of_all in state.blocks for block in of_all])
    assert len(drawn) == state.n_draws * N_CHAINS == 2000 * N_CHAINS
    steps = np.stack([drawn[:, 0] - drawn[:, 1], drawn[:, 0] - drawn[:, 2]])
    mean = u @ weight
    sd = np.sqrt((u - mean[:, None]) ** 2 @ weight)
    # 8000 draws, of which half count: five standard errors, and a standard deviation of relative error 1.2 %.
    np.testing.assert_allclose((steps.mean(axis=1) - mean) / sd, 0.0, atol=0.08)
    np.testing.assert_allclose(steps.std(axis=1), sd, rtol=0.06)


def test_moments_of_the_kept_draws_are_those_of_quadrature(sampled, grid):
    u, weight = grid
    mean = u @ weight
    sd = np.sqrt((u - mean[:, None]) ** 2 @ weight)
    drawn = sampled.sample_utilities(X, 4000, random_state=0)[:, :, 0]
    steps = np.stack([drawn[:, 0] - drawn[:, 1], drawn[:, 0] - drawn[:, 2]])
    # Samples are taken from the 512 draws that are kept, with standard errors of 4 % of a standard deviation.
    np.testing.assert_allclose((steps.mean(axis=1) - mean) / sd, 0.0, atol=0.2)
    np.testing.assert_allclose(steps.std(axis=1), sd, rtol=0.15)
    with computing():
        centre = np.asarray(sampled.posterior_.mean_at(sampled.posterior_.objects))[0]
    contrast = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    np.testing.assert_allclose((contrast @ centre - mean) / sd, 0.0, atol=0.2)


def test_probabilities_are_those_of_quadrature(sampled, data, grid):
    u, weight = grid
    exact = ndtr(u[1]) @ weight  # P(0 beats 2); for two objects the likelihood sums to one
    asked = ChoiceData.from_sets(X, [[0, 2]])
    # 512 draws: the probability of one draw has a standard deviation of 0.1.
    assert sampled.predict_proba(asked)[0] == pytest.approx([exact, 1 - exact], abs=0.02)
    assert sampled.dominance_proba(X[:1], X[2:]) == pytest.approx(np.array([[exact, 1 - exact, 0.0]]), abs=0.02)
    assert sampled.log_prob(data)[2] == pytest.approx(np.log(exact), abs=0.025)


def test_the_result_tells_how_it_went(sampled):
    result = sampled.fit_result_
    assert result.status == "converged"
    assert "6016 draws, R-hat at most 1.0" in result.message, "whole blocks of sixteen"
    assert sampled.intervals_ == f"draws: {result.message}"


def test_hyperparameters_that_are_held_stay_where_they_are(sampled):
    for leaf in jax.tree.leaves(sampled.posterior_.draws.prior):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    np.testing.assert_allclose(sampled.posterior_.draws.prior.kernels.log_variance, np.log(4.0))


def test_a_sampled_model_keeps_the_gaussian_posterior_it_began_with(dense, three):
    found = infer(chains_of(dense, three, 20))
    for name in ("mean", "dual", "gain"):
        np.testing.assert_array_equal(getattr(found.posterior, name), getattr(dense.posterior, name))
    assert found.elbo == dense.elbo
    assert found.posterior.has_sites


# Repeatability and time


def test_the_same_seed_gives_the_same_draws_also_in_threads(dense, three):
    fits = [infer(chains_of(dense, three, 20, seed=seed, n_jobs=n)) for seed, n in ((0, 1), (0, 1), (0, 2), (5, 1))]
    one, *same, other = (fit.posterior.draws.dual for fit in fits)
    for again in same:
        np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_chains_differ(dense, three):
    state, _ = run(chains_of(dense, three, 20))
    first = [block.utilities[0] for block in state.blocks[0]]
    assert len(first) == N_CHAINS
    assert len(np.unique(np.round(first, 9), axis=0)) == N_CHAINS


def test_time_is_kept(data):
    short = ChoiceGP(1, inference="mcmc", max_iter=10_000_000, max_seconds=0.0, n_restarts=1, **OPTIONS).fit(data)
    assert short.fit_result_.status == "stopped"
    assert "the time limit ended it early" in short.fit_result_.message
    assert np.isfinite(short.predict_proba(data)).all()


class Limited(Clock):
    """A clock whose time is up after a few looks at it."""

    def __init__(self, n_looks):
        super().__init__(1.0)
        self.n_looks = n_looks

    @property
    def is_up(self):
        self.n_looks -= 1
        return self.n_looks < 0


def step_sizes(state):
    return np.exp([chain.tuning[1] for chain in state.chains])


def test_the_time_limit_ends_a_warm_up_with_what_is_known(dense, three):
    state, (status, message) = run(chains_of(dense, three, 5000, max_iter=20, clock=Limited(2)))
    assert state.n_warmed == 2 * BLOCK
    assert state.n_draws == BLOCK, "one setting is kept all the same"
    assert status == "stopped"
    assert "the time limit ended it early" in message
    assert np.all((step_sizes(state) > 0.2) & (step_sizes(state) < 3.0))
    assert not np.any(np.isin(step_sizes(state), [1.0, _FIRST_STEP]))


# Phases


def test_progress_is_reported_in_blocks_of_warm_up_and_draws(dense, three):
    seen = []
    state, _ = run(chains_of(dense, three, 40, listener=lambda *told: seen.append(told)))
    assert state.n_warmed == 40
    assert state.n_draws == 64, "whole blocks"
    assert [phase for phase, _, _ in seen] == ["warming up"] * 4 + ["sampling"] * 4
    assert [step for _, step, _ in seen] == [0, 16, 32, 40, 56, 72, 88, 104]
    assert all(np.isfinite(value) for _, _, value in seen[1:])


def test_without_a_warm_up_the_first_step_size_is_used(dense, three):
    state, verdict = run(chains_of(dense, three, 0, 20))
    np.testing.assert_allclose(step_sizes(state), _FIRST_STEP)
    assert state.n_draws == 2 * BLOCK
    assert "early" not in verdict.message


def test_the_warm_up_finds_the_step_size_of_the_target(dense, three):
    """The lower the acceptance rate aimed at, the longer the steps."""
    task = chains_of(dense, three, 300).task
    sizes = [step_sizes(run(MCMCInference(task, dense, 300, target))[0]).mean() for target in (0.95, 0.6)]
    assert 0.2 < sizes[0] < 0.8 * sizes[1]


def test_as_many_draws_are_kept_as_asked_for_in_whole_blocks(data):
    few = ChoiceGP(1, inference=MCMC(n_draws=20, n_warm_up=0), n_restarts=1, **OPTIONS).fit(data)
    assert few.fit_result_.message.startswith("128 draws, ")


def test_one_program_serves_warm_up_and_draws(dense, three, monkeypatch):
    monkeypatch.setattr(advance, "_executables", {})
    for n_warm_up in (20, 40):
        run(chains_of(dense, three, n_warm_up))
    assert len(advance._executables) == 1


def test_settings_are_taken_evenly_from_all_chains(dense, three):
    inference = chains_of(dense, three, 16, 400)
    state, verdict = run(inference)
    draws = inference.conclude(state, verdict).posterior.draws
    assert draws.dual.shape == (MOST_SETTINGS, BLOCK, 1, 3)
    places = np.arange(1, 9) * len(state.blocks) // 8 - 1
    for h, (place, number) in enumerate((place, number) for place in places for number in range(N_CHAINS)):
        end = state.blocks[place][number]
        # The draws are further steps of the chain from there, the first of which may stay.
        one = duals_at(end.hyper[-1], end.positions[-1:], inference.model)
        at = [jax.tree.map(lambda leaf, h=h: leaf[h], draws.prior)]
        np.testing.assert_array_equal(ravel_pytree(at[0])[0], one.log_hyper)
    assert places[-1] == len(state.blocks) - 1


def test_at_the_time_limit_each_setting_has_one_draw(dense, three):
    inference = chains_of(dense, three, 16, 64, clock=Limited(3))
    state, verdict = run(inference)
    draws = inference.conclude(state, verdict).posterior.draws
    n = len(draws.dual) // N_CHAINS
    assert draws.dual.shape == (n * N_CHAINS, 1, 1, 3)
    ends = [end for place in np.arange(1, n + 1) * len(state.blocks) // n - 1 for end in state.blocks[place]]
    for dual, end in zip(draws.dual, ends, strict=True):
        np.testing.assert_array_equal(dual, duals_at(end.hyper[-1], end.positions[-1:], inference.model).dual)


# Use


def test_a_sampled_model_is_saved_and_loaded_whole(sampled, data, tmp_path):
    sampled.save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    assert np.array_equal(np.concatenate(loaded.predict_proba(data)), np.concatenate(sampled.predict_proba(data)))
    np.testing.assert_allclose(loaded.posterior_.draws.inverse, sampled.posterior_.draws.inverse, rtol=1e-9)


def test_everything_can_be_asked_of_a_sampled_model(sampled, data):
    new = np.array([[0.3], [5.0], [0.0], [0.0]])
    assert sampled.predict(data)[0].tolist() == [0]
    utilities = sampled.utilities(new)
    assert np.all(np.isfinite(utilities.mean))
    with computing():
        variance = np.asarray(sampled.posterior_.mean_and_variance_at(type(sampled.posterior_.objects)(
            np.array([[50.0]]), np.array([-1])
        ))[1])  # fmt: skip
    assert np.sqrt(variance) == pytest.approx(2.0, abs=1e-6), "far from all objects the prior is left"
    drawn = sampled.sample_utilities(np.vstack([new, X]), 4000, random_state=0)
    contrasts = drawn[:, :4] - drawn[:, 4:].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(contrasts.std(axis=0), utilities.sd, rtol=0.1)
    np.testing.assert_allclose(drawn[:, 2], drawn[:, 3], atol=1e-3)
    assert 0 < sampled.recommend(X, 1)["probability"].iloc[0] <= 1
    wide = ChoiceData.from_sets(np.linspace(0, 2, 12)[:, None], [range(12)], [[0]])
    assert len(sampled.predict_proba(wide)[0]) == 12
    assert np.isfinite(sampled.log_prob(wide)).all()
    # The Gaussian posterior is still there: sites can be taken out, and its draws weighted.
    assert np.isfinite(sampled.loo().elpd)
    assert sampled.diagnose().effective > 1000


# Labels


def setting(problem, seed=0, *, shared=True, d=3):
    """A posterior of utilities that differ, and draws near its means at hyperparameters of their own."""
    prior = UtilityPrior.create(RBF(1.5, 2.7), 2, d, 0.2, shared=shared)
    fit = fitted(problem, LEARN, prior=prior, max_iter=30)
    rng = np.random.default_rng(seed)
    mean = 3 * rng.normal(size=(d, problem.n_objects))
    posterior = type(fit.posterior)(fit.prior, fit.posterior.objects, mean, fit.posterior.dual, fit.posterior.gain)
    best, restore = ravel_pytree(fit.prior)
    log_hyper = np.asarray(best) + rng.normal(size=len(best))
    dual = rng.normal(size=(BLOCK, d + shared, problem.n_objects))
    kept = Kept(log_hyper, dual, mean + 0.1 * rng.normal(size=(BLOCK, d, problem.n_objects)))
    return posterior, kept, jax.tree.map(np.asarray, restore(log_hyper))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 0, 1], [1, 2, 0]])
def test_label_switching_is_undone_with_the_hyperparameters(problem, order, shared):
    posterior, kept, prior = setting(problem, shared=shared)
    rows = [0, *(1 + i for i in order)] if shared else order
    switched_prior = jax.tree.map(lambda leaf: leaf[np.array(rows)], prior)
    switched = Kept(
        np.asarray(ravel_pytree(switched_prior)[0]), kept.dual[:, rows], kept.utilities[:, order]
    )  # fmt: skip
    found, dual = _aligned(switched_prior, switched, posterior)
    np.testing.assert_array_equal(dual, kept.dual)
    for one, same in zip(jax.tree.leaves(found), jax.tree.leaves(prior), strict=True):
        np.testing.assert_array_equal(one, same)
    # As a level of a utility says nothing, it does not count.
    moved = switched._replace(utilities=switched.utilities + 100.0 * np.arange(3)[:, None])
    np.testing.assert_array_equal(_aligned(switched_prior, moved, posterior)[1], kept.dual)


def test_chains_with_another_order_of_utilities_are_judged_alike(problem):
    posterior, kept, _ = setting(problem)
    fit = fitted(problem, LEARN, prior=posterior.prior, max_iter=30)._replace(posterior=posterior)
    inference = chains_of(fit, problem, 0, max_iter=8 * BLOCK, learning=FIXED)
    rng = np.random.default_rng(1)
    empty = np.zeros((BLOCK, 0))
    blocks = iter(
        SampledBlock(empty, empty, posterior.mean + 0.5 * rng.normal(size=kept.utilities.shape), 0, 0.0)
        for _ in range(8 * N_CHAINS)
    )
    drawn = [[next(blocks) for _ in range(N_CHAINS)] for _ in range(8)]
    switched = [[*row[:-1], row[-1]._replace(utilities=row[-1].utilities[:, [2, 0, 1]])] for row in drawn]
    state = inference.begin()
    one, other = (inference.verdict(state._replace(blocks=tuple(map(tuple, rows)))) for rows in (drawn, switched))
    assert one.status == "converged"
    assert other == one


def test_settings_become_draws_of_one_order(problem):
    posterior, kept, prior = setting(problem)
    back = jax.tree.map(lambda leaf: leaf[np.array([0, 2, 1, 3])], prior)
    other = Kept(np.asarray(ravel_pytree(back)[0]), kept.dual[:, [0, 2, 1, 3]], kept.utilities[:, [1, 0, 2]])
    draws = posterior_of_settings(posterior, [kept, other]).draws
    for leaf, single in zip(jax.tree.leaves(draws.prior), jax.tree.leaves(prior), strict=True):
        np.testing.assert_array_equal(leaf, np.stack([single, single]))
    np.testing.assert_array_equal(draws.dual, np.stack([kept.dual, kept.dual]))
    K = np.asarray(prior.covariance(posterior.objects, posterior.objects))
    for h in range(2):
        np.testing.assert_allclose(draws.inverse[h] @ K, np.broadcast_to(np.eye(K.shape[1]), K.shape), atol=1e-4)


def test_duals_are_those_of_the_drawn_utilities(problem):
    fit = fitted(problem, LEARN, prior=UtilityPrior.create(RBF(1.5, 2.7), 2, 2, 0.2, shared=True), max_iter=60)
    model = chains_of(fit, problem, 0, learning=LEARN).model
    rng = np.random.default_rng(0)
    hyper, positions = rng.normal(size=model.approximation.n_learned), rng.normal(size=(5, 3, len(problem.valid)))
    kept = duals_at(hyper, positions, model)
    prior = jax.tree.map(np.asarray, ravel_pytree(fit.prior)[1](kept.log_hyper))
    np.testing.assert_allclose(kept.log_hyper, ravel_pytree(model.approximation.prior_at(hyper))[0], rtol=1e-12)
    parts = np.einsum("pij,spj->spi", prior.covariance(fit.posterior.objects, fit.posterior.objects), kept.dual)
    np.testing.assert_allclose(parts[:, :1] + parts[:, 1:], kept.utilities, atol=1e-5)


def test_divergent_steps_are_counted(dense, three):
    """A step so long that every trajectory leaves the numbers."""
    inference = chains_of(dense, three, 0, 16)
    state = inference.begin()
    long = [chain._replace(tuning=(*chain.tuning[:1], np.asarray(12.0), *chain.tuning[2:])) for chain in state.chains]
    after = inference.step(state._replace(chains=tuple(long)))
    assert after.n_divergent == BLOCK * N_CHAINS
    assert f"{after.n_divergent} divergent" in inference.verdict(after).message
    assert inference.step(state).n_divergent == 0
