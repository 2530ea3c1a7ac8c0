"""Steps at some of the objects: the same as with all objects where all are chosen, and a lower bound where few are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.compute.progress import Clock
from choicegp.inference import reduced_course
from choicegp.inference.annealing import BLOCK
from choicegp.inference.dense import DenseInference, DenseState
from choicegp.inference.driver import Task, Watch, run
from choicegp.inference.expectation import gram_of_differences, to_first
from choicegp.inference.posterior import factorise_on_host
from choicegp.inference.reduced import choice_of_objects, condition_reduced, covariances, roots_of, slope_of
from choicegp.inference.reduced_course import ReducedInference
from choicegp.inference.sites import Sites, neighbours
from choicegp.model.kernels import RBF
from choicegp.model.prior import UtilityPrior

from .conftest import LEARN, D, T, conditioned, covariance_of, make_data, make_prior, posed

conditioned_reduced = jax.jit(condition_reduced)


@pytest.fixture(autouse=True)
def all_are_chosen(monkeypatch):
    monkeypatch.setattr(reduced_course, "_FIRST", T)
    monkeypatch.setattr(reduced_course, "_SECOND", T)


def inference(problem, kind=ReducedInference):
    return kind(Task(make_prior(), problem, LEARN, Watch(Clock(None)), n_starts=1, max_iter=150))


def block_of(rows, seed=3):
    """Random precisions of sets, (d, a, a, m)."""
    a, m = rows.shape
    root = np.random.default_rng(seed).normal(size=(D, a, a, m))
    return np.einsum("doim,dpim->dopm", root, root)


def summed(problem, precision):
    total = np.zeros((D, T, T))
    for k in range(precision.shape[-1]):
        own = np.asarray(problem.batches[0].rows)[:, k]
        total[np.ix_(range(D), own, own)] += precision[..., k]
    return total


def inside(roots, rows):
    """R^T R at the objects of sets, (n, a, a, m)."""
    return (roots.mT @ roots)[:, rows[:, None], rows[None, :]]


def test_with_all_objects_a_step_is_that_of_dense_inference(problem):
    fewer, whole = inference(problem), inference(problem, DenseInference)
    schedule = np.linspace(0.5, 1.0, BLOCK), np.full(BLOCK, True), np.full(BLOCK, True)
    rng = np.random.default_rng
    after, trace = fewer.advance(fewer.random_state(make_prior(), rng(0)), schedule)
    wanted, wanted_trace = whole.advance(whole.random_state(make_prior(), rng(0)), schedule)
    for found, expected in zip(trace, wanted_trace, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    for found, expected in zip(jax.tree.leaves(after.prior), jax.tree.leaves(wanted.prior), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(fewer._with_all(after).sites.precision, wanted.sites.precision, atol=1e-5)


def test_a_fit_ends_where_dense_inference_ends(problem, learned):
    course, verdict = run(found := inference(problem))
    assert verdict.status == "converged"
    assert isinstance(course.state, DenseState), "half of the objects are not enough here"
    np.testing.assert_allclose(found.conclude(course, verdict).elbo, learned.elbo, atol=0.3)


@pytest.mark.parametrize("shared", [False, True])
def test_the_posterior_is_that_of_prior_and_sites(problem, shared):
    prior = UtilityPrior.create(RBF(1.5, 2.7), 2, D, shared=shared)
    factor = factorise_on_host(np.asarray(covariance_of(prior, problem)))
    precision, among = block_of(problem.batches[0].rows), neighbours(problem)
    linear = np.random.default_rng(4).normal(size=(D, T))
    wanted = conditioned(factor, Sites(summed(problem, precision), linear))
    found = conditioned_reduced(jnp.asarray(factor.root).mT, among.values((precision,)), linear, among)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-6)
    np.testing.assert_allclose(found.kl, np.sum(wanted.kl), atol=1e-6)
    np.testing.assert_allclose(found.dual, wanted.dual, atol=1e-6)
    own = wanted.covariance.own if shared else wanted.half
    np.testing.assert_allclose(found.own.mT @ found.own, own.mT @ own, atol=1e-6)
    if shared:
        spread = wanted.covariance.spread
        np.testing.assert_allclose(found.spread[0].T @ found.spread[1], spread[0].T @ spread[1], atol=1e-6)


def test_fewer_objects_lose_at_most_what_is_said(problem):
    prior, precision = make_prior(), block_of(problem.batches[0].rows)
    sites, linear, among = summed(problem, precision), np.random.default_rng(4).normal(size=(D, T)), neighbours(problem)
    choice = choice_of_objects(prior, problem, np.einsum("doo->o", sites))
    assert sorted(choice.order) == list(range(T))
    assert np.all(np.diff(choice.loss) < 0)
    assert abs(choice.loss[-1]) < 1e-4
    K = np.asarray(covariance_of(prior, problem))
    evidence = []
    for n in (4, T):
        Z = choice.first(n)
        root = np.linalg.cholesky(K[:, Z[:, None], Z] + 1e-9 * np.eye(n))
        F = np.linalg.solve(root, K[:, Z])
        found = conditioned_reduced(jnp.asarray(F), among.values((precision,)), linear, among)
        # The expectation of the sites' own log density, with what is left of the prior variance, less the divergence.
        left = K - np.swapaxes(F, 1, 2) @ F
        covariance = np.asarray(found.own.mT @ found.own) + left
        mean = np.asarray(found.mean)
        fit = (
            np.sum(linear * mean) - 0.5 * np.einsum("di,dij,dj->", mean, sites, mean) - 0.5 * np.sum(sites * covariance)
        )
        evidence.append(fit - float(found.kl))
        lost = 0.5 * np.sum(np.einsum("doo->do", sites) * np.einsum("doo->do", left))
        assert lost <= choice.loss[n] + 1e-6
    assert evidence[0] < evidence[1]


@pytest.mark.parametrize(("shared", "most"), [(False, 1), (True, 8)])
def test_the_slope_is_the_gradient_of_the_evidence(monkeypatch, problem, shared, most):
    monkeypatch.setattr("choicegp.inference.sites._MOST_NEIGHBOURS", most)
    monkeypatch.setattr("choicegp.inference.sites._AT_ONCE", 2)
    prior = UtilityPrior.create(RBF(1.5, 2.7), 2, D, shared=shared)
    chosen, rows, among = choice_of_objects(prior, problem).first(4), problem.batches[0].rows, neighbours(problem)
    precision, linear = (block_of(rows),), np.random.default_rng(4).normal(size=(D, T))

    def conditioned_at(prior):
        *some, near = covariances(prior, problem, chosen, among)
        lower, roots = roots_of(*some, 1e-10)
        within = near.reshape(len(near), -1)[:, among.places[0]]
        return within, lower, roots, condition_reduced(roots, among.values(precision), linear, among)

    def evidence(prior):
        within, _, roots, found = conditioned_at(prior)
        left, mean = within - inside(roots, rows), found.mean[:, rows]
        covariance = inside(found.own, rows) + left[-D:]
        if shared:
            covariance += inside(found.spread, rows) + left[0]
        second = covariance + mean[:, :, None] * mean[:, None]
        return jnp.sum(linear * found.mean) - 0.5 * jnp.sum(precision[0] * second) - found.kl

    def slope(prior):
        _, lower, roots, found = conditioned_at(prior)
        pull_back = jax.vjp(lambda prior: covariances(prior, problem, chosen, among), prior)[1]
        return pull_back(slope_of(found, lower, roots, among.values(precision)))[0]

    wanted = jax.jit(jax.grad(evidence))(prior)
    for found, expected in zip(*map(jax.tree.leaves, (jax.jit(slope)(prior), wanted)), strict=True):
        assert np.max(np.abs(expected)) > 0.01
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.max(np.abs(expected)))


def test_neighbours_are_shown_together(monkeypatch, problem):
    precision = block_of(problem.batches[0].rows)
    wanted = summed(problem, precision)
    rows = np.random.default_rng(5).normal(size=(4, T))
    for most, width in ((8, T), (1, 6)):
        monkeypatch.setattr("choicegp.inference.sites._MOST_NEIGHBOURS", most)
        monkeypatch.setattr("choicegp.inference.sites._CACHED", 3)
        monkeypatch.setattr("choicegp.inference.sites._AT_ONCE", 2)
        among = neighbours(problem)
        assert among.columns.shape == (T, width)
        values = among.values((precision,))
        np.testing.assert_allclose(among.matrices(values), wanted, atol=1e-12)
        np.testing.assert_allclose(among.of_matrices(wanted), values, atol=1e-12)
        np.testing.assert_allclose(among.product(jnp.asarray(rows), values[1]), rows @ wanted[1], atol=1e-12)
        np.testing.assert_allclose(among.of_vector(values[1], jnp.asarray(rows[0])), wanted[1] @ rows[0], atol=1e-12)


def test_padding_makes_no_neighbours(monkeypatch):
    monkeypatch.setattr("choicegp.inference.sites._MOST_NEIGHBOURS", 1)
    monkeypatch.setattr("choicegp.inference.sites._AT_ONCE", 2)
    problem = posed(make_data())
    batch = problem.batches[0]
    present, rows = np.array(batch.present), np.array(batch.rows)
    present[2], rows[2] = False, 0
    pairs = problem._replace(batches=(batch._replace(present=present, rows=rows),))
    # Two sets of two show every object: at most two others, and itself.
    assert neighbours(pairs).columns.shape[1] <= 4


def test_products_of_differences_inside_sets(problem):
    roots = np.random.default_rng(6).normal(size=(2, 5, T))
    side_by_side = np.concatenate(list(roots), axis=1)[None]
    many = np.random.default_rng(7).permuted(np.tile(np.arange(T), (14, 4))[:, :20], axis=0)
    for rows in (np.asarray(problem.batches[0].rows), many):
        found = gram_of_differences(jnp.asarray(roots), jnp.asarray(rows))
        np.testing.assert_allclose(found, to_first(inside(roots, rows)), atol=1e-12)
        together = gram_of_differences(jnp.asarray(roots), jnp.asarray(rows), together=True)
        n = len(rows) - 1
        np.testing.assert_allclose(together[:n, :n], found[0], atol=1e-12)
        between = to_first(inside(side_by_side, np.concatenate([rows, rows + T])))[0]
        # Of the second root: the differences to the first object of the first root, less that of its own first object.
        np.testing.assert_allclose(together[:n, n:], between[:n, n + 1 :] - between[:n, n : n + 1], atol=1e-12)
