"""MCMC: draws from the exact posterior, told how well they mixed, and used for prediction like any posterior."""

from types import SimpleNamespace

import blackjax
import jax
import numpy as np
import pytest
from scipy.special import ndtr

from choicegp import MCMC, ChoiceData, ChoiceGP, ChoiceGPError
from choicegp.compute.devices import computing
from choicegp.compute.progress import Clock
from choicegp.evaluation.diagnosis import importance
from choicegp.inference.driver import Inferred, Learning, Task, Watch, run
from choicegp.inference.mcmc import MCMCInference, _advance, _common, _tuning, align, judged
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import pose
from choicegp.inference.whitening import log_posterior, whiten
from choicegp.kernels import RBF

X = np.array([[0.0], [0.7], [2.0]])
PAIRS = [[0, 1], [1, 2], [0, 2]]
OPTIONS = {"kernel": RBF(1.0, 4.0), "learn_hyperparameters": False, "standardize": False, "progress": False}


@pytest.fixture(scope="module")
def data():
    return ChoiceData.from_pairs(X, PAIRS)


@pytest.fixture(scope="module")
def dense(data):
    return ChoiceGP(1, intervals="none", **OPTIONS).fit(data)


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


def test_moments_are_those_of_quadrature(sampled, grid):
    u, weight = grid
    drawn = sampled.sample_utilities(X, 4000, random_state=0)[:, :, 0]
    steps = np.stack([drawn[:, 0] - drawn[:, 1], drawn[:, 0] - drawn[:, 2]])
    mean = u @ weight
    sd = np.sqrt((u - mean[:, None]) ** 2 @ weight)
    # The moments of a posterior are those of all 6000 draws: five standard errors.
    with computing():
        centre, spread = (
            np.asarray(part)[0] for part in sampled.posterior_.mean_and_covariance_at(sampled.posterior_.objects)
        )
    contrast = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    np.testing.assert_allclose(contrast @ centre, mean, atol=0.12)
    np.testing.assert_allclose(np.sqrt(np.diagonal(contrast @ spread @ contrast.T)), sd, rtol=0.05)
    # Samples are taken from the 1024 draws that are kept, with standard errors of 0.06 and 3%.
    np.testing.assert_allclose(steps.mean(axis=1), mean, atol=0.3)
    np.testing.assert_allclose(steps.std(axis=1), sd, rtol=0.15)


def test_probabilities_are_those_of_quadrature(sampled, data, grid):
    u, weight = grid
    exact = ndtr(u[1]) @ weight  # P(0 beats 2); for two objects the likelihood sums to one
    asked = ChoiceData.from_sets(X, [[0, 2]])
    assert sampled.predict_proba(asked)[0] == pytest.approx([exact, 1 - exact], abs=0.01)
    assert sampled.dominance_proba(X[:1], X[2:]) == pytest.approx(np.array([[exact, 1 - exact, 0.0]]), abs=0.01)
    own = np.log(ndtr(u[1]) @ weight)
    assert sampled.log_prob(data)[2] == pytest.approx(own, abs=0.02)


def test_the_result_tells_how_it_went(sampled):
    result = sampled.fit_result_
    assert result.status == "converged"
    assert "6000 draws, R-hat at most 1.0" in result.message


def test_the_same_seed_gives_the_same_draws(data):
    one, two = (ChoiceGP(1, inference="mcmc", max_iter=50, n_restarts=1, **OPTIONS).fit(data) for _ in range(2))
    other = ChoiceGP(1, inference="mcmc", max_iter=50, n_restarts=1, random_state=5, **OPTIONS).fit(data)
    assert np.array_equal(one.posterior_.draws.dual, two.posterior_.draws.dual)
    assert not np.array_equal(one.posterior_.draws.dual, other.posterior_.draws.dual)


def test_time_is_kept(data):
    short = ChoiceGP(1, inference="mcmc", max_iter=10_000_000, max_seconds=0.0, n_restarts=1, **OPTIONS).fit(data)
    assert short.fit_result_.status == "stopped"
    assert "the time limit ended it early" in short.fit_result_.message
    assert np.isfinite(short.predict_proba(data)).all()


def test_a_sampled_model_is_saved_and_loaded_whole(sampled, data, tmp_path):
    sampled.save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    assert np.array_equal(np.concatenate(loaded.predict_proba(data)), np.concatenate(sampled.predict_proba(data)))
    assert np.array_equal(loaded.posterior_.draws.inverse, sampled.posterior_.draws.inverse)


def test_everything_can_be_asked_of_a_sampled_model(sampled, data):
    new = np.array([[0.3], [5.0], [0.0], [0.0]])
    assert sampled.predict(data)[0].tolist() == [0]
    utilities = sampled.utilities(new)
    assert np.all(np.isfinite(utilities.mean))
    assert utilities.sd[1] == pytest.approx(2.0, abs=0.05), "far from all objects the prior is left"
    drawn = sampled.sample_utilities(new, 2000, random_state=0)
    np.testing.assert_allclose(drawn.std(axis=0), utilities.sd, rtol=0.1)
    np.testing.assert_allclose(drawn[:, 2], drawn[:, 3], atol=1e-3)
    assert 0 < sampled.recommend(X, 1)["probability"].iloc[0] <= 1
    wide = ChoiceData.from_sets(np.linspace(0, 2, 12)[:, None], [range(12)], [[0]])
    assert len(sampled.predict_proba(wide)[0]) == 12
    assert np.isfinite(sampled.log_prob(wide)).all()
    with pytest.raises(ChoiceGPError, match="a posterior of draws has no sites to take out: use method='psis'"):
        sampled.loo()
    with pytest.raises(ChoiceGPError, match=r"consists of draws.*: diagnose a model with inference='dense'"):
        sampled.diagnose()


# Coordinates


@pytest.fixture(scope="module")
def problem(data):
    return pose(data, X, np.arange(3), effects=False)


def test_whitened_draws_have_the_posteriors_moments(dense):
    with computing():
        whitening = whiten(dense.posterior_)
        draws = np.random.default_rng(0).normal(size=(20_000, 1, 3))
        u = np.array([np.asarray(whitening.utilities(w)) for w in draws[:400]])
        spread = whitening.root @ whitening.spread
        covariance = np.asarray(dense.posterior_.mean_and_covariance_at(dense.posterior_.objects)[1])
    np.testing.assert_allclose(spread @ np.swapaxes(spread, 1, 2), covariance, atol=1e-6)
    np.testing.assert_allclose(u.mean(axis=0), dense.posterior_.mean, atol=0.4)


def test_the_log_posterior_is_prior_times_likelihood(dense, problem):
    with computing():
        whitening = whiten(dense.posterior_)
        values = []
        K = 4.0 * np.exp(-0.5 * (X - X.T) ** 2)
        for seed in range(3):
            w = np.random.default_rng(seed).normal(size=(1, 3))
            u = np.asarray(whitening.utilities(w))[0]
            order = np.argsort(np.asarray(dense.posterior_.objects.X)[:, 0])
            v = u[order]
            exact = sum(np.log(ndtr(v[i] - v[j])) for i, j in PAIRS) - 0.5 * v @ np.linalg.solve(K, v)
            values.append(float(log_posterior(w, whitening, problem, None)[0]) - exact)
    np.testing.assert_allclose(values, values[0], atol=1e-5)


def test_importance_weights_find_a_posterior_that_is_too_narrow(dense, problem):
    with computing():
        _, effective, moved = importance(dense.posterior_, problem, n_draws=4000, seed=0)
        covariance = np.asarray(dense.posterior_.prior.covariance(dense.posterior_.objects, dense.posterior_.objects))
        inverse = np.linalg.inv(covariance + 1e-9 * np.eye(3))
        shrunk = inverse - 0.02 * (inverse - np.asarray(dense.posterior_.gain))
        p = dense.posterior_
        narrow_k, fewer, _ = importance(
            Posterior(p.prior, p.objects, p.mean, p.dual, shrunk), problem, n_draws=4000, seed=0
        )
    assert effective > 3000
    assert moved < 0.02
    assert fewer < 1000
    assert narrow_k > 0.7


# Labels


def test_label_switching_is_undone(dense):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(2, 5)) * 3
    draws = mean + 0.1 * rng.normal(size=(2, 50, 2, 5))
    switched = draws.copy()
    switched[1, 20:] = switched[1, 20:, ::-1]

    reference = SimpleNamespace(prior={"log_variance": np.zeros(2)}, mean=mean)
    np.testing.assert_array_equal(align(switched, reference), draws)
    # Different hyperparameters tell utilities apart: nothing is to be undone.
    reference.prior = {"log_variance": np.array([0.0, 1.0])}
    np.testing.assert_array_equal(align(switched, reference), switched)


def test_bad_mixing_is_told():
    apart = np.random.default_rng(0).normal(size=(4, 100, 1, 3)) + 2.0 * np.arange(4)[:, None, None, None]
    status, message = judged(apart, 3, complete=True)
    assert status == "stopped"
    assert "3 divergent" in message
    assert "have not mixed: make more draws, by MCMC(n_draws=...) or max_iter with inference='mcmc'" in message


def test_too_few_draws_are_not_judged():
    status, message = judged(np.zeros((4, 3, 1, 2)), 0, complete=True)
    assert status == "stopped"
    assert message.startswith("12 draws are too few to see whether the chains mix: make more draws")


# Blocks


def chains_of(dense, problem, n_warm_up, max_iter=60, clock=None, listener=None):
    watch = Watch(clock or Clock(None), listener)
    task = Task(dense.posterior_.prior, problem, Learning(None), watch, 1, max_iter)
    before = Inferred(dense.posterior_, 0.0, "converged", "", 0, np.zeros(0))
    return MCMCInference(task, before, n_warm_up, 0.8)


def test_progress_is_reported_in_blocks_of_warm_up_and_draws(dense, problem):
    seen = []
    with computing():
        state, _ = run(chains_of(dense, problem, 120, listener=lambda *told: seen.append(told)))
    assert state.n_draws == 60, "a part of the last block"
    assert [phase for phase, _, _ in seen] == ["warming up"] * 4 + ["sampling"] * 2
    assert [step for _, step, _ in seen] == [0, 50, 100, 120, 170, 180]
    assert all(np.isfinite(value) for _, _, value in seen[1:])


class Limited(Clock):
    """A clock whose time is up after a few looks at it."""

    def __init__(self, n_looks):
        super().__init__(1.0)
        self.n_looks = n_looks

    @property
    def is_up(self):
        self.n_looks -= 1
        return self.n_looks < 0


def test_the_time_limit_ends_a_warm_up_with_what_is_known(dense, problem):
    with computing():
        inference = chains_of(dense, problem, 5000, max_iter=20, clock=Limited(2))
        state, (status, message) = run(inference)
        step_size, scales = _common(_tuning(state.chains))
    assert state.n_warmed == 100
    assert state.n_draws == 20
    assert status == "stopped"
    assert "the time limit ended it early" in message
    # 100 steps are the end of a window: the scales are those of it, the step size is not yet adapted again.
    assert not np.allclose(scales, 1.0)
    assert 0.3 < step_size < 3.0
    assert step_size != 1.0


@pytest.mark.parametrize("n_warm_up", [7, 120])
def test_a_warm_up_in_blocks_is_blackjax_window_adaptation(dense, problem, n_warm_up):
    with computing():
        inference = chains_of(dense, problem, n_warm_up)
        state = inference.begin()
        start = state.chains.position
        while state.n_warmed < n_warm_up:
            state = inference.step(state)
        step_size, scales = _common(_tuning(state.chains))

        def density(w):
            return log_posterior(w.reshape(1, -1), inference.whitening, problem, None)[0]

        adaptation = blackjax.window_adaptation(
            blackjax.nuts, density, initial_step_size=0.3, target_acceptance_rate=0.8, max_num_doublings=8
        )

        def one(position, key):
            (last, found), _ = adaptation.run(key, position, n_warm_up)
            return last.position, jax.numpy.log(found["step_size"]), found["inverse_mass_matrix"]

        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), len(start))
        position, log_steps, inverse_mass = jax.jit(jax.vmap(one))(start, keys)
    # The same random numbers: rounding alone differs, which the chains amplify.
    np.testing.assert_allclose(state.chains.position, position, atol=1e-4)
    np.testing.assert_allclose(np.log(step_size), log_steps.mean(), atol=1e-4)
    np.testing.assert_allclose(scales, inverse_mass.mean(axis=0), rtol=1e-4)


def test_as_many_draws_are_kept_as_asked_for(data):
    few = ChoiceGP(1, inference=MCMC(n_draws=20, n_warm_up=0), n_restarts=1, **OPTIONS).fit(data)
    assert few.fit_result_.message.startswith("80 draws, ")


def test_one_program_serves_warm_up_and_draws(dense, problem, monkeypatch):
    monkeypatch.setattr(_advance, "_executables", {})
    with computing():
        for n_warm_up in (60, 130):
            run(chains_of(dense, problem, n_warm_up))
    assert len(_advance._executables) == 1
