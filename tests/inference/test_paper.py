"""The authors' approximation: its pieces against plain inverses, its two optimisers, its manners."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from choicegp.compute.progress import Clock
from choicegp.datasets.simulated import sincos
from choicegp.inference import descent, paper
from choicegp.inference.driver import Learning, Task, Verdict, Watch, run
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.paper import (
    ConvergedPaperInference,
    PaperCourse,
    PaperInference,
    Parameters,
    approximate,
    bound_on_points,
    bound_on_samples,
    tie,
)
from choicegp.inference.posterior import conclude
from choicegp.inference.problem import pose
from choicegp.model.kernels import RBF, Linear
from choicegp.model.likelihood import log_likelihood
from choicegp.model.prior import Objects, UtilityPrior

LENGTHSCALES = np.array([[0.05], [0.1]])  # short, so that K can be inverted
VARIANCES = np.array([2.0, 4.5])  # tied: their geometric mean is 3

# Compiling takes longer than anything else here: these are shared.
approximation = jax.jit(approximate)
on_points = jax.jit(bound_on_points)
on_samples = jax.jit(bound_on_samples, static_argnames="n_samples")


PADDING = 3


def make_task(prior, problem, n_starts=1, max_iter=0, clock=None, report=None, **options):
    watch = Watch(clock or Clock(None), report)
    return Task(prior, problem, Learning(None), watch, n_starts, max_iter, **options)


def concluded(inference):
    return inference.conclude(*run(inference))


def fit_paper(prior, problem, n_samples=300, **options):
    return concluded(PaperInference(make_task(prior, problem, **options), n_samples))


def fit_paper_converged(prior, problem, **options):
    return concluded(ConvergedPaperInference(make_task(prior, problem, **options)))


@pytest.fixture(scope="module")
def bare():
    """A small problem without padded objects."""
    data = sincos(n_objects=30, n_sets=20).data
    problem = pose(data, data.X / data.X.std(axis=0), np.arange(30), effects=False)
    assert problem.valid.all()
    return problem


@pytest.fixture(scope="module")
def problem(bare):
    """The same problem with padding, which must show nowhere."""
    more = np.zeros(PADDING, dtype=int)
    objects = Objects(*(np.concatenate([part, part[more]]) for part in bare.objects[:2]))
    return bare._replace(objects=objects, valid=np.concatenate([bare.valid, more == 1]))


@pytest.fixture(scope="module")
def prior():
    """Two RBF kernels of their own lengthscales and variances."""
    same = UtilityPrior.create(RBF(), 1, 2)
    values = (np.log(LENGTHSCALES), np.log(VARIANCES))
    return eqx.tree_at(lambda p: (p.kernels.log_lengthscale, p.kernels.log_variance), same, values)


@pytest.fixture(scope="module")
def parameters(problem, prior):
    """Parameters that are no optimum of anything; precisions of padding are to be ignored."""
    whitened, log_precision = np.random.default_rng(1).normal(size=(2, 2, len(problem.valid)))
    return jax.tree.map(jnp.asarray, Parameters(prior, whitened * problem.valid, log_precision))


@pytest.fixture(scope="module")
def normals(problem):
    return quasi_normals(problem, 2, paper.N_POINTS, 0)


@pytest.fixture(scope="module")
def converged(problem):
    """Return the family's optimum, from a prior whose lengthscale is too long at first."""
    prior = UtilityPrior.create(RBF(variance=np.e), 1, 2)
    return fit_paper_converged(prior, problem, seed=0, n_starts=2, max_iter=300, tol=0.01, clock=Clock(None))


@pytest.fixture(scope="module")
def few_steps(problem):
    prior = UtilityPrior.create(RBF(variance=np.e), 1, 2)
    return fit_paper(prior, problem, seed=0, n_starts=2, max_iter=20, clock=Clock(None), n_samples=20)


def fresh_bound(fit, problem, seed=99):
    return float(
        conclude(
            fit.prior, problem, fit.factor, fit.sites, quasi_normals(problem, 2, 1024, seed), fit.posterior.lapse
        ).bound
    )


def finite(fit):
    return bool(np.all(np.isfinite(ravel_pytree((fit.prior, fit.factor, fit.sites))[0])))


# The family


def test_mean_covariance_and_kl_agree_with_plain_inverses(problem, parameters):
    q = approximation(parameters, problem)
    n = problem.n_objects
    x = problem.objects.X[:n, 0]
    squares = (x[:, None] - x[None, :]) ** 2
    for i, scale in enumerate(LENGTHSCALES[:, 0]):
        K = 3.0 * np.exp(-0.5 * squares / scale**2)
        mean = np.linalg.cholesky(K) @ parameters.whitened[i, :n]
        inverse = np.linalg.inv(K)
        S = np.linalg.inv(inverse + np.diag(np.exp(parameters.log_precision[i, :n])))
        volumes = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
        kl = 0.5 * (np.trace(inverse @ S) + mean @ inverse @ mean - n + volumes)
        np.testing.assert_allclose(q.mean[i, :n], mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose((q.half[i].T @ q.half[i])[:n, :n], S, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(q.kl[i], kl, rtol=1e-6)


def test_without_uncertainty_the_bound_is_the_likelihood_at_the_mean(problem, parameters):
    sure = parameters._replace(log_precision=jnp.full_like(parameters.log_precision, 20.0))
    q = approximation(sure, problem)
    (batch,) = problem.batches
    value = jax.jit(log_likelihood)(q.mean[:, batch.rows], batch.present, batch.chosen)
    expected = np.sum(batch.weight * value) - np.sum(q.kl)
    assert np.isclose(on_samples(sure, problem, jax.random.key(0), 200, None), expected, rtol=1e-4)


def test_samples_and_points_estimate_the_same_bound(problem, parameters, normals):
    exact = float(on_points(parameters, problem, normals, None))
    estimates = [float(on_samples(parameters, problem, jax.random.key(i), 200, None)) for i in range(20)]
    assert np.std(estimates) < 0.05 * abs(exact)
    assert abs(np.mean(estimates) - exact) < 0.01 * abs(exact)


def test_blocks_of_samples_change_nothing(problem, monkeypatch):
    u = np.random.default_rng(0).normal(size=(2, len(problem.valid), 12))
    whole, blocks = (jax.jit(lambda u: paper._mean_log_likelihood(u, problem.batches[0], None)) for _ in "ab")
    value = whole(u)
    monkeypatch.setattr(paper, "_CHUNK", 700)  # of 120 differences a sample: 5 samples fit, 4 divide 12
    assert np.isclose(blocks(u), value, rtol=1e-12)


def test_gradient_agrees_with_finite_differences(problem, parameters, normals):
    vector = np.asarray(ravel_pytree(parameters)[0])
    loss = jax.tree_util.Partial(paper._bound_loss, parameters, problem, normals, None)
    gradient = loss(vector)[1]
    n = len(problem.valid)
    # Both lengthscales, both halves of the shared variance, two means and two precisions.
    for i in (0, 1, 2, 3, 4, 4 + n + 3, 4 + 2 * n + 1, 4 + 3 * n + 5):
        step = 1e-5 * np.eye(len(vector))[i]
        slope = (loss(vector + step)[0] - loss(vector - step)[0]) / 2e-5
        assert np.isclose(gradient[i], slope, rtol=1e-4, atol=1e-5), i
    assert abs(gradient[0]) > 0.1
    assert abs(gradient[2]) > 0.1


def test_only_one_variance_per_kernel_is_shared(prior):
    tied = tie(jax.tree.map(jnp.asarray, prior)).kernels
    np.testing.assert_allclose(np.exp(tied.log_variance), 3.0)
    np.testing.assert_allclose(np.exp(tied.log_lengthscale), LENGTHSCALES)
    relevances = jnp.log(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    linear = eqx.tree_at(lambda p: p.kernels.log_variance, UtilityPrior.create(Linear(), 2, 2), relevances)
    np.testing.assert_array_equal(tie(linear).kernels.log_variance, relevances)


def test_padding_changes_nothing(bare, problem, parameters, normals):
    n = problem.n_objects
    narrow = Parameters(parameters.prior, parameters.whitened[:, :n], parameters.log_precision[:, :n])
    loss, slope = paper._bound_loss(parameters, problem, normals, None, ravel_pytree(parameters)[0])
    assert np.isclose(-on_points(narrow, bare, normals, None), loss, rtol=1e-6)
    slope = ravel_pytree(parameters)[1](slope)
    np.testing.assert_array_equal(slope.whitened[:, n:], 0.0)
    np.testing.assert_array_equal(slope.log_precision[:, n:], 0.0)


# The fits


def test_padding_is_no_part_of_a_fit(problem, converged, few_steps):
    n = problem.n_objects
    for fit in (converged, few_steps):
        np.testing.assert_array_equal(fit.sites.precision[:, n:], 0.0)
        np.testing.assert_array_equal(fit.sites.linear[:, n:], 0.0)
        assert np.all(fit.sites.precision[:, np.arange(n), np.arange(n)] > 0.0)


def test_the_optimisers_bound_is_that_of_the_fit(problem, converged, normals):
    """The points are those of seed 0, on which the fixture was fitted."""
    bound = conclude(converged.prior, problem, converged.factor, converged.sites, normals, None).bound
    assert np.isclose(bound, converged.trace[-1], rtol=1e-6)


def test_convergence_is_reached_and_is_a_climb(converged):
    assert converged.status == "converged"
    assert "10 iterations gained" in converged.message
    assert converged.n_iter == len(converged.trace) < 300
    assert np.all(np.diff(converged.trace) > -1e-9)


def test_converged_is_better_than_a_few_steps_of_adam(problem, converged, few_steps):
    assert few_steps.status == "stopped"
    assert few_steps.message == "the limit of 20 steps; the bound was still rising"
    assert few_steps.trace.shape == (20,)
    assert fresh_bound(converged, problem) > fresh_bound(few_steps, problem) + 1.0


def test_adam_climbs_the_bound_that_it_reports(problem, few_steps):
    assert np.mean(few_steps.trace[-5:]) > np.mean(few_steps.trace[:5])
    # The trace is a noisy estimate of the same bound.
    assert abs(fresh_bound(few_steps, problem) - few_steps.trace[-1]) < 3.0


def test_the_variance_is_learned_and_shared(converged, few_steps):
    for fit in (converged, few_steps):
        first, second = np.asarray(fit.prior.kernels.log_variance)
        assert first == second != 1.0
    lengthscales = np.asarray(converged.prior.kernels.log_lengthscale)
    assert lengthscales[0] != lengthscales[1]


def test_the_posterior_predicts_at_the_shown_objects(problem, converged):
    posterior = conclude(
        converged.prior, problem, converged.factor, converged.sites, quasi_normals(problem, 2, 16, 0), None
    ).posterior
    mean, variance = posterior.mean_and_variance_at(posterior.objects)
    assert mean.shape == (2, problem.n_objects)
    np.testing.assert_allclose(mean, posterior.mean, atol=1e-4)
    prior_variance = np.exp(converged.prior.kernels.log_variance[0])
    assert np.all((variance > 0) & (variance < prior_variance))


def test_same_seed_same_fit(problem, few_steps):
    prior = UtilityPrior.create(RBF(variance=np.e), 1, 2)
    settings = {"n_starts": 2, "max_iter": 20, "clock": Clock(None), "n_samples": 20}
    np.testing.assert_array_equal(fit_paper(prior, problem, seed=0, **settings).trace, few_steps.trace)
    assert not np.any(fit_paper(prior, problem, seed=1, **settings).trace == few_steps.trace)


def test_a_lapse_rate_is_kept_and_counted(problem, prior, parameters, normals):
    fit = fit_paper(prior, problem, seed=0, n_starts=1, max_iter=0, clock=Clock(None), lapse=0.2)
    assert float(fit.posterior.lapse) == 0.2
    bounds = [float(on_points(parameters, problem, normals, lapse)) for lapse in (None, jnp.asarray(0.2))]
    assert bounds[1] > bounds[0] + 1.0  # wrong answers are less surprising


def test_map_runs_end_at_stationary_points_with_the_best_first(problem, prior):
    inference = PaperInference(make_task(prior, problem))
    tied = tie(jax.tree.map(jnp.asarray, prior))
    starts = inference.map_starts([tied] * 3)
    root = paper._factor_of(tied, inference.problem).root
    losses = []
    for start in starts:
        loss, gradient = paper._map_loss(root, inference.problem, None, start.whitened.ravel())
        assert np.linalg.norm(gradient) < 0.05 * np.linalg.norm(start.whitened)
        losses.append(float(loss))
    assert losses == sorted(losses)
    nothing = jnp.zeros(starts[0].whitened.size)
    assert losses[0] < float(paper._map_loss(root, inference.problem, None, nothing)[0])


# The clock and the reports


@pytest.mark.parametrize("fit", [fit_paper, fit_paper_converged])
def test_no_time_is_a_stop_with_a_usable_fit(fit, problem, prior):
    settings = {} if fit is fit_paper else {"tol": 0.0}
    ended = fit(prior, problem, seed=0, n_starts=50, max_iter=10_000, clock=Clock(0.0), **settings)
    assert ended.status == "stopped"
    assert "the time limit of 0 s" in ended.message
    assert ended.n_iter <= 1
    assert finite(ended)


def test_the_clock_is_looked_at_between_blocks(problem, monkeypatch):
    class Alarm(Clock):
        rung = False

        @property
        def is_up(self):
            return self.rung

    alarm, told = Alarm(5.0), []

    def report(phase, step, value):
        told.append((phase, step))
        assert np.isfinite(value)
        alarm.rung = phase == "fit" and step == 40

    monkeypatch.setattr(paper, "BLOCK", 20)
    prior = UtilityPrior.create(RBF(variance=np.e), 1, 2)
    fit = fit_paper(prior, problem, seed=0, n_starts=2, max_iter=5000, clock=alarm, n_samples=20, report=report)
    assert (fit.status, fit.message) == ("stopped", "the time limit of 5 s, after 40 steps")
    assert fit.n_iter == 40
    assert told[-2:] == [("fit", 20), ("fit", 40)]
    assert {phase for phase, _ in told} == {"MAP run 1 of 2", "MAP run 2 of 2", "fit"}


# What a run says about itself

noise = np.random.default_rng(0).normal(size=5000)


@pytest.mark.parametrize(
    ("trace", "status", "message"),
    [
        (noise - 100, "converged", "the paper's 5000 steps; the last 500 no longer raised the bound"),
        (
            noise + np.linspace(-200, -100, 5000),
            "stopped",
            "the paper's 5000 steps; the bound was still rising",
        ),
        (noise[:2000], "converged", "the limit of 2000 steps; the last 200 no longer raised the bound"),
        # Too short to tell.
        (noise[:100], "stopped", "the limit of 100 steps; the bound was still rising"),
    ],
)
def test_adam_has_converged_only_when_the_smoothed_bound_is_flat(trace, status, message, prior, problem):
    inference = PaperInference(make_task(prior, problem, max_iter=len(trace)))
    assert inference.verdict(PaperCourse(None, trace)) == (status, message)


def test_a_bound_that_is_not_finite_is_a_failure(problem, parameters):
    inference, stopped = PaperInference(make_task(parameters.prior, problem)), Verdict("stopped", "")
    fit = inference.concluded(parameters, stopped, np.full(5, np.nan))
    assert (fit.status, fit.message) == ("failed", "the bound is not finite")
    broken = parameters._replace(whitened=parameters.whitened * np.nan)
    assert inference.concluded(broken, stopped, np.zeros(5)).status == "failed"
    assert inference.concluded(parameters, stopped, np.array([np.nan, -3.0])).status == "stopped"


def descend(loss, start, **settings):
    task = Watch(Clock(None))
    return descent.descend(task, "", loss, descent.Descent(np.array([start])), **settings)


def test_a_line_search_comes_back_from_where_the_loss_is_not_finite():
    stepped_out = []

    def loss(x):  # x - log x, whose minimum is at 1; NaN for x <= 0
        with np.errstate(invalid="ignore", divide="ignore"):
            stepped_out.append(x[0] <= 0)
            return x[0] - np.log(x[0]), 1.0 - 1.0 / x

    end = descend(loss, 5.0, max_iter=100, tol=1e-12)
    assert any(stepped_out)
    np.testing.assert_allclose(end.x, 1.0, atol=1e-4)
    assert np.all(np.isfinite(end.losses))
    value, gradient = descent._guarded(loss)(np.array([-1.0]))
    assert np.isfinite(value)
    assert value > 1e9
    np.testing.assert_array_equal(gradient, 0.0)


def test_a_start_without_a_finite_loss_is_a_failure():
    end = descend(lambda x: (np.nan, x), 1.0, max_iter=10, tol=0.1)
    assert (end.status, end.losses) == ("failed", ())


def test_the_iteration_limit_is_named():
    def valley(x):
        return np.exp(-x[0]), -np.exp(-x)

    end = descend(valley, 0.0, max_iter=3, tol=0.0)
    assert (end.status, end.message, len(end.losses)) == ("stopped", "the limit of 3 iterations", 3)


def test_a_descent_ends_where_it_is_flat():
    def bowl(x):
        return 0.5 * x[0] ** 2, x

    end = descend(bowl, 3.0, max_iter=50, tol=0.0, flat=0.01)
    assert end.status == "converged"
    assert end.message.startswith("the steepest slope is")
    assert abs(end.x[0]) <= 0.01
