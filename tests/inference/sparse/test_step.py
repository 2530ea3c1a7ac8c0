"""Sparse inference: what a step does, what a fit is judged by, and both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from choicegp import ChoiceData, HyperPriors, datasets
from choicegp.compute.progress import Clock
from choicegp.inference.driver import Watch, run
from choicegp.inference.expectation import latin_normals, of_differences, samples
from choicegp.inference.sparse.course import SparseInference
from choicegp.inference.sparse.feed import InMemory
from choicegp.inference.sparse.plan import KernelStart, Plan, held_out_and_training, inducing_points
from choicegp.inference.sparse.points import (
    _inverse_root,
    inverse_roots,
    posterior_of_points,
    project,
)
from choicegp.inference.sparse.step import (
    SparseSettings,
    begin,
    posterior_of,
    solve,
)
from choicegp.kernels import RBF, Additive
from choicegp.model.derivatives import expected_derivatives, sampled_log_likelihood
from choicegp.model.prior import Objects, UtilityPrior

from .conftest import prior_of, source_of


def _plan(**changes) -> Plan:
    settings = SparseSettings(HyperPriors(), **changes.pop("settings", {}))
    usual = Plan(12, 16, 200, 0.02, settings, None, np.float64, 0)
    return usual._replace(**changes)


def fit_sparse(source, objects, starts, plan, clock):
    """Return what was inferred, and the last course."""
    inference = SparseInference(source, objects, starts, plan, Watch(clock))
    course, verdict = run(inference)
    return inference.conclude(course, verdict), course, inference.best(course)


def test_the_slope_of_the_inverse_root_is_that_of_factorisation_and_solve():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(2, 5, 5))
    covariance, slope = jnp.asarray(half @ half.swapaxes(1, 2) + np.eye(5)), jnp.asarray(rng.normal(size=(2, 5, 5)))

    def plain(matrix):
        return solve_triangular(jnp.linalg.cholesky(matrix), jnp.eye(5), lower=True)

    def total(inverse, matrices):
        return jnp.sum(slope * inverse(0.5 * (matrices + jnp.swapaxes(matrices, 1, 2))))

    ours = jax.grad(lambda k: total(_inverse_root, k))(covariance)
    theirs = jax.grad(lambda k: total(jax.vmap(plain), k))(covariance)
    assert np.asarray(ours) == pytest.approx(np.asarray(theirs), abs=1e-12)


def test_the_marginals_of_sets_are_those_of_the_posterior_that_predicts(data):
    rng = np.random.default_rng(1)
    source = source_of(data)
    points = inducing_points(source.read(np.arange(10), 3).X.reshape(-1, 1), 2, 8, 0)
    state = begin(prior_of(), points, None, rng)
    half = rng.normal(size=(2, 8, 8))
    state = state._replace(precision=half @ half.swapaxes(1, 2))
    sets = source.read(np.arange(6), 3)
    solved = solve(state, 0.0, 1e-9)
    part = jax.jit(project)(state.prior, state.points, solved.inverse_root, solved.whitened, sets)
    posterior = posterior_of(state, solved)
    moments_at = jax.jit(type(posterior).mean_and_covariance_at)
    assert posterior.is_sparse
    for k in range(6):
        objects = Objects(sets.X[:, k], np.zeros(3, int))
        mean, covariance = moments_at(posterior, objects)
        assert part.mean[:, :, k] == pytest.approx(np.asarray(mean), abs=1e-8)
        assert part.covariance[..., k] == pytest.approx(np.asarray(covariance), abs=1e-8)
    # The posterior's own means are those at its inducing points.
    for i in range(2):
        own = posterior.mean_at(Objects(points[i], np.zeros(8, int)))[i]
        assert np.asarray(own) == pytest.approx(np.asarray(posterior.mean[i]), abs=1e-6)


def test_a_step_moves_the_hyperparameters_up_the_bound(data):
    """The slope with the posterior held, from Price's theorem, against differences of the expected log-likelihood."""
    rng = np.random.default_rng(2)
    source = source_of(data)
    sets = source.read(np.arange(12), 3)
    points = inducing_points(sets.X.reshape(-1, 1), 2, 6, 0)
    state = begin(prior_of(), points, None, rng)
    whitened = posterior_of_points(jnp.asarray(4.0 * np.stack([np.eye(6)] * 2)), jnp.asarray(3.0 * state.linear))
    normals = latin_normals(2, 2, 12, 4096, rng)

    def moments(prior):
        root = inverse_roots(prior, points, 1e-8)
        part = project(prior, points, root, whitened, sets)
        return part.mean, part.covariance

    @jax.jit
    def expected(prior):
        u = samples(of_differences(*moments(prior)), normals)
        return jnp.sum(jnp.mean(sampled_log_likelihood(u, sets.present, sets.chosen), axis=-1))

    @jax.jit
    def slope_of(prior):
        values, pull_back = jax.vjp(moments, prior)
        found = expected_derivatives(samples(of_differences(*values), normals), sets.present, sets.chosen)
        return pull_back((found.gradient, -0.5 * found.curvature))[0]

    slope = slope_of(state.prior)
    leaves, tree = jax.tree.flatten(state.prior)
    for number, leaf in enumerate(leaves):
        for entry in np.ndindex(leaf.shape):
            sides = []
            for way in (0.01, -0.01):
                moved = [np.array(one) for one in leaves]
                moved[number][entry] += way
                sides.append(float(expected(jax.tree.unflatten(tree, moved))))
            difference = (sides[0] - sides[1]) / 0.02
            assert jax.tree.leaves(slope)[number][entry] == pytest.approx(difference, rel=0.05, abs=0.05)


def test_the_bound_rises_with_the_number_of_inducing_points(data):
    source = source_of(data)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    start = (KernelStart("own", prior_of()),)
    plan = _plan(batch_size=100, settings={"learn_prior": False})
    bounds = [fit_sparse(source, objects, start, plan._replace(n_inducing=n), Clock(None))[0].elbo for n in (8, 24)]
    assert bounds[1] > bounds[0] + 1.0


@pytest.mark.parametrize("learn_points", [False, True])
def test_learning_raises_the_bound(data, learn_points):
    source = source_of(data)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    start = (KernelStart("own", prior_of()),)
    held = _plan(n_inducing=8, batch_size=100, settings={"learn_prior": False})
    learned = _plan(n_inducing=8, batch_size=100, settings={"learn_points": learn_points})
    before, _, (first, _) = fit_sparse(source, objects, start, held, Clock(None))
    after, _, (last, _) = fit_sparse(source, objects, start, learned, Clock(None))
    assert after.elbo > before.elbo + 1.0
    moved = float(np.max(abs(last.points - first.points)))
    assert (moved > 1e-3) == learn_points


@pytest.mark.parametrize(("weight", "shared"), [(1.0, False), (1e7, False), (1e7, True)])
def test_float32_never_leaves_the_numbers(weight, shared):
    """Equal objects, contradictory choices, huge variances and weights, in the precision of accelerators."""
    rng = np.random.default_rng(4)
    kernel = Additive(0.05, 10.0) * RBF(3.0) + RBF(1.0, 1e4)
    X = rng.normal(size=(30, 2))
    X[10:15] = X[:5]
    shown = [rng.permutation(30)[:4] for _ in range(24)]
    chosen = [rows[: rng.integers(1, 5)] for rows in shown]
    data = ChoiceData.from_sets(X, [*shown, *shown], [*chosen, *(rows[-1:] for rows in shown)], weights=[weight] * 48)
    source = InMemory(data, X.mean(axis=0), X.std(axis=0))
    objects = (X - X.mean(axis=0)) / X.std(axis=0)
    plan = _plan(n_inducing=20, max_iter=60, dtype=np.float32, settings={"jitter": 1e-5})
    starts = (KernelStart("own", UtilityPrior.create(kernel, 2, 2, shared=shared)),)
    fit, _, best = fit_sparse(source, objects, starts, plan, Clock(None))
    assert fit.status == "stopped"
    assert fit.n_iter == 60
    for leaf in jax.tree.leaves((best, fit.elbo)):
        assert np.all(np.isfinite(leaf))
    posterior = posterior_of(*jax.tree.map(np.asarray, best))
    mean, variance = posterior.mean_and_variance_at(Objects(objects, np.zeros(30, int)))
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(variance))


def test_sets_are_held_out_of_many_only():
    class Sizes:
        sizes = np.full(5000, 3)

    held, kept = held_out_and_training(Sizes(), 256, 0)
    assert (len(held), len(kept)) == (250, 4750)
    assert len(np.intersect1d(held, kept)) == 0
    Sizes.sizes = np.array([3] * 50 + [1])
    held, kept = held_out_and_training(Sizes(), 256, 0)
    assert len(held) == 0
    assert kept.tolist() == list(range(50))  # a set of one object says nothing


def test_inducing_points_are_objects_and_differ_between_utilities():
    rng = np.random.default_rng(5)
    objects = np.repeat(rng.normal(size=(60, 2)), 2, axis=0)
    points = inducing_points(objects, 2, 20, 0)
    assert points.shape == (2, 20, 2)
    known = {tuple(row) for row in objects}
    assert all(tuple(row) in known for row in points.reshape(-1, 2))
    assert not np.array_equal(points[0], points[1])
    assert inducing_points(objects, 2, 500, 0).shape == (2, 60, 2)


def test_the_time_limit_stops_a_fit_while_starts_are_tried(data):
    source = source_of(data)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    starts = tuple(KernelStart(str(i), prior_of()) for i in range(3))
    fit, _, _ = fit_sparse(source, objects, starts, _plan(n_inducing=8), Clock(1e-6))
    assert fit.status == "stopped"
    assert "time limit" in fit.message
    assert fit.n_iter < 100
    assert np.isfinite(fit.elbo)


@pytest.mark.parametrize("max_iter", [5, 44])
def test_no_more_steps_are_made_than_allowed(data, max_iter):
    source = source_of(data)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    starts, plan = (KernelStart("own", prior_of()),), _plan(n_inducing=8, max_iter=max_iter)
    fit, _, _ = fit_sparse(source, objects, starts, plan, Clock(None))
    assert fit.n_iter == len(fit.trace) == max_iter
    assert fit.status == "stopped"
    assert fit.message == f"the limit of {max_iter} steps"


def test_weights_count_like_copies_and_single_objects_say_nothing(data):
    """With every set in each step, sets of weight 2 give the fit of sets that are there twice."""
    alone = [[0], [1]]
    shown, chosen = list(data.shown), list(data.chosen)
    weighted = ChoiceData.from_sets(data.X, [*shown, *alone], [*chosen, *alone], weights=[2.0] * 40 + [50.0] * 2)
    double = ChoiceData.from_sets(data.X, shown * 2, chosen * 2)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    plan = _plan(n_inducing=8, batch_size=100, max_iter=120, settings={"learn_prior": False})
    start = (KernelStart("own", prior_of()),)
    sources = (InMemory(d, data.X.mean(axis=0), data.X.std(axis=0)) for d in (weighted, double))
    one, other = (fit_sparse(source, objects, start, plan, Clock(None))[0] for source in sources)
    assert one.elbo == pytest.approx(other.elbo, abs=1.0)  # other points of integration


def test_a_start_that_breaks_is_passed_over(data):
    source = source_of(data)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), prior_of())
    plan = _plan(n_inducing=8, max_iter=44)
    starts = (KernelStart("broken", broken), KernelStart("good", prior_of()))
    fit, _, _ = fit_sparse(source, objects, starts, plan, Clock(None))
    assert fit.notes[0].endswith("start: good")
    assert np.isfinite(fit.elbo)
    fit, _, _ = fit_sparse(source, objects, starts[:1], plan, Clock(None))
    assert fit.status == "failed"


def test_many_sets_are_judged_by_sets_that_are_held_out():
    data = datasets.sincos(n_objects=60, n_sets=1000, set_size=2, random_state=0).data
    source = source_of(data)
    objects = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    starts = (KernelStart("bad", UtilityPrior.create(RBF(100.0, 4.0), 1, 2)), KernelStart("good", prior_of()))
    fit, course, _ = fit_sparse(source, objects, starts, _plan(n_inducing=8, max_iter=150), Clock(None))
    assert fit.notes[0].endswith("start: good")
    assert -1.0 < course.best_score < 0.0
    assert fit.n_iter <= 150
