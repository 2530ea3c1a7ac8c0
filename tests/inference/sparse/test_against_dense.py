"""Sparse inference with every object an inducing point is dense inference, with and without a shared part."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp import ChoiceGP
from choicegp.inference.dense import evidence_gradient, target_sites
from choicegp.inference.expectation import latin_normals
from choicegp.inference.posterior import Factor, condition, evidence_bound, factorise_on_host
from choicegp.inference.problem import Problem, pose
from choicegp.inference.sites import Sites
from choicegp.inference.sparse.feed import Sets
from choicegp.inference.sparse.plan import inducing_points
from choicegp.inference.sparse.points import inverse_roots, posterior_of_points, project
from choicegp.inference.sparse.step import Pace, SparseSettings, begin, posterior_of, run_steps, solve
from choicegp.inference.starts import covariance_at
from choicegp.model.error_models import DISCERNIBILITY, BestInOne, WithThreshold
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.prediction.utilities import joint_samples

from .conftest import prior_of, source_of


class AllInducing(NamedTuple):
    """Sites at all objects of a problem, and the same seen from whitened inducing points at all of them."""

    prior: UtilityPrior
    problem: Problem
    factor: Factor
    sites: Sites

    @classmethod
    def of(cls, data, shared, rng, errors=DISCERNIBILITY):
        X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
        problem = pose(data, X, np.arange(len(X)), effects=False, errors=errors)
        n = problem.n_objects
        assert len(problem.valid) == n
        half = rng.normal(size=(2, n, n))
        sites = Sites(0.1 * half @ half.swapaxes(1, 2), rng.normal(size=(2, n)))
        prior = prior_of(shared=shared, threshold=errors.has_threshold)
        return cls(prior, problem, factorise_on_host(np.asarray(covariance_at(prior, problem))), sites)

    def whitened(self, sites):
        """Precision, linear part and, with a shared part, the precision between it and the others."""
        root, own = self.factor.root, self.factor.root[int(self.prior.shared) :]
        precision, linear = np.asarray(sites.precision), np.asarray(sites.linear)
        cross = root[0].T @ precision @ own if self.prior.shared else None
        if self.prior.shared:
            precision, linear = (np.concatenate([part.sum(axis=0)[None], part]) for part in (precision, linear))
        return root.swapaxes(1, 2) @ precision @ root, np.einsum("pji,pj->pi", root, linear), cross

    @property
    def points(self):
        return np.stack([np.asarray(self.problem.objects.X)] * self.prior.n_parts)


@pytest.mark.parametrize(
    ("shared", "errors"),
    [(False, DISCERNIBILITY), (True, DISCERNIBILITY), (True, WithThreshold()), (False, BestInOne(threshold=True))],
)
def test_with_every_object_an_inducing_point_a_step_is_that_of_dense_inference(data, shared, errors):
    rng = np.random.default_rng(6)
    given = AllInducing.of(data, shared, rng, errors)
    (batch,) = given.problem.batches
    size = len(batch.rows)
    normals = latin_normals(2, size - 1, batch.rows.shape[1], 16, rng)
    moments = jax.jit(condition)(given.factor, given.sites)
    _, wanted, _, _ = jax.jit(target_sites)(moments.mean, moments.covariance, given.problem, (normals,), 1.0, None)
    precision, linear, cross = given.whitened(given.sites)
    state = begin(given.prior, given.points, None, rng)
    state = state._replace(precision=precision, linear=linear, cross=cross)
    real = batch.sets >= 0
    sets = source_of(data, threshold=errors.has_threshold).read(batch.sets[real], size)
    groups = (Sets(*(part[None] for part in sets)),)
    pace = Pace(*(np.array([value]) for value in (1.0, 0.0, 1.0, 0.0)))
    settings = SparseSettings(None, jitter=1e-9, errors=errors)
    after, bound, healthy = run_steps(state, groups, pace, (normals[:, :, real],), settings)
    assert healthy
    value = jax.jit(evidence_bound)(moments.mean, moments.covariance, moments.kl, given.problem, (normals,), None)
    assert float(bound[0]) == pytest.approx(float(value), rel=1e-6)
    for found, part in zip((after.precision, after.linear, after.cross), given.whitened(wanted), strict=True):
        if part is not None:
            assert np.asarray(found) == pytest.approx(part, rel=1e-5, abs=1e-5 * np.max(abs(part)))


@pytest.mark.parametrize("shared", [False, True])
def test_with_every_object_an_inducing_point_hyperparameters_climb_as_in_dense_inference(data, shared):
    """Of Gaussian sites the slopes with the whitened posterior held are those of the evidence."""
    given = AllInducing.of(data, shared, np.random.default_rng(7))
    precision, linear = given.sites
    everything = np.asarray(given.problem.objects.X)[:, None]
    sets = Sets(everything, np.ones((len(everything), 1), bool), np.zeros((len(everything), 1), bool), np.ones(1))
    wanted = jax.jit(lambda: evidence_gradient(
        given.prior, given.problem, condition(given.factor, given.sites), given.sites
    ))()  # fmt: skip

    @jax.jit
    def slopes():
        whitened = posterior_of_points(*given.whitened(given.sites))

        def moments(prior):
            part = project(prior, given.points, inverse_roots(prior, given.points, 1e-9), whitened, sets)
            return part.mean, part.covariance

        (mean, _), pull_back = jax.vjp(moments, given.prior)
        gradient = linear[..., None] - jnp.einsum("dab,dbm->dam", precision, mean)
        return pull_back((gradient, -0.5 * precision[..., None]))[0]

    for ours, theirs in zip(jax.tree.leaves(slopes()), jax.tree.leaves(wanted), strict=True):
        assert np.asarray(ours) == pytest.approx(np.asarray(theirs), rel=1e-4, abs=1e-4)


def test_draws_with_a_shared_part_are_those_of_the_posterior(data, monkeypatch):
    monkeypatch.setattr("choicegp.inference.sparse.step.N_GAUSSIAN", 2**15)
    rng = np.random.default_rng(1)
    sets = source_of(data).read(np.arange(2), 3)
    prior = prior_of(shared=True)
    points = inducing_points(source_of(data).read(np.arange(10), 3).X.reshape(-1, 1), prior.n_parts, 5, 0)
    # A precision of all parts together, as sites make it.
    shared, own = rng.normal(size=(2, 2, 9, 5))
    precision = np.concatenate([np.sum(shared.swapaxes(1, 2) @ shared, axis=0)[None], own.swapaxes(1, 2) @ own])
    state = begin(prior, points, None, rng)
    state = state._replace(precision=precision, cross=shared.swapaxes(1, 2) @ own)
    solved = solve(state, 0.0, 1e-9)
    part = jax.jit(project)(state.prior, state.points, solved.inverse_root, solved.whitened, sets)
    part, posterior = jax.tree.map(np.asarray, part), posterior_of(state, solved)
    for k in range(2):
        objects = Objects(sets.X[:, k], np.zeros(3, int))
        mean, variance = posterior.mean_and_variance_at(objects)
        assert np.asarray(mean) == pytest.approx(part.mean[:, :, k], abs=1e-6)
        assert np.asarray(variance) == pytest.approx(np.einsum("daa->da", part.covariance[..., k]), rel=0.03)
        u = joint_samples(posterior, objects, 2**15, 0)
        joint = np.cov(u.reshape(len(u), -1).T).reshape(3, 2, 3, 2).transpose(1, 3, 0, 2)
        assert joint == pytest.approx(part.joint[..., k], abs=0.04 * np.max(part.joint[..., k]))
    for i in range(2):
        own_mean = posterior.mean_at(Objects(points[1 + i], np.zeros(5, int)))[i]
        assert np.asarray(own_mean) == pytest.approx(posterior.mean[i], abs=1e-9)


def test_with_every_object_an_inducing_point_a_fit_is_that_of_dense_inference(data, monkeypatch):
    # Each fit integrates with points of its own: with many of them they can be compared.
    monkeypatch.setattr("choicegp.inference.dense.N_POINTS", 256)
    monkeypatch.setattr("choicegp.inference.sparse.course.N_POINTS", 256)
    options = {"kernel": RBF(0.5, 4.0), "learn_hyperparameters": False, "n_restarts": 2}
    options |= {"shared_part": True, "object_effects": False}
    dense = ChoiceGP(2, inference="dense", max_iter=200, tol=1e-3, **options).fit(data)
    whole = {"n_inducing": 100, "batch_size": 100}
    sparse = ChoiceGP(2, inference="sparse", max_iter=600, tol=1e-3, **whole, **options).fit(data)
    assert sparse.fit_result_.status == "converged"
    assert sparse.elbo_ == pytest.approx(dense.elbo_, abs=0.3)
    # The fits may name the utilities in another order, which no choice tells.
    ours, theirs = sparse.utilities(data), dense.utilities(data)
    order = [int(np.argmax(abs(np.corrcoef(ours.mean[:, i], theirs.mean.T)[0, 1:]))) for i in range(2)]
    assert sorted(order) == [0, 1]
    assert ours.mean == pytest.approx(theirs.mean[:, order], abs=0.15)
    assert ours.sd == pytest.approx(theirs.sd[:, order], rel=0.25)  # of 512 draws of each
    for p, q in zip(sparse.predict_proba(data), dense.predict_proba(data), strict=True):
        assert p == pytest.approx(q, abs=0.03)
