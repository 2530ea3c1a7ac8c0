"""The posterior of fixed hyperparameters: the fixed point of every set's own site."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.inference.expectation import SharedCovariance, expect, marginals
from choicegp.inference.problem import Problem, SetBatch
from choicegp.inference.reduced import condition_reduced
from choicegp.inference.sites import Neighbours, Sites, psd_part

_MOST_STEPS = 200
_SETTLED = 3e-3  # relative change of the sites


class OwnSites(NamedTuple):
    """The sites of a batch's sets, unweighted: precision (d, a, a, m), linear (d, a, m), clipped share (m,)."""

    precision: Array
    linear: Array
    clipped: Array


class Settled(NamedTuple):
    """A posterior at fixed hyperparameters, with every set's own site.

    Attributes
    ----------
    sites : tuple of OwnSites
    mean, covariance : Array (d, t), (d, t, t) or (d, d, t, t)
    change : Array
        Relative change of the sites in the last step.
    n_steps : Array
    """

    sites: tuple[OwnSites, ...]
    mean: Array
    covariance: Array | SharedCovariance
    change: Array
    n_steps: Array


class _Settling(NamedTuple):
    """The latest place, the change that it asks for, the size of the step after next, and the sites after the next."""

    now: Settled
    change: Array
    rho: Array
    sites: tuple[OwnSites, ...]


@program
def settle(
    sites: tuple[OwnSites, ...], more: Sites, roots: Array, problem: Problem, among: Neighbours, normals: tuple,
    lapse: Array | None,
) -> Settled:  # fmt: skip
    """Move the sites to their fixed point, hyperparameters held; one program, whichever sets have weight 0.

    ``roots`` are what `whole_roots` returns.  The first marginals are those that the first sites make together with
    ``more``, precisions at the neighbours of every object and linear parts; after that, ``more`` is forgotten.
    """

    def moments(sites: tuple[OwnSites, ...], more: Sites) -> tuple[Array, Array | SharedCovariance]:
        weighted = [own.precision * batch.weight for batch, own in zip(problem.batches, sites, strict=True)]
        linear = more.linear
        for batch, own in zip(problem.batches, sites, strict=True):
            linear = linear.at[:, batch.rows].add(batch.weight * own.linear)
        found = condition_reduced(roots, more.precision + among.values(weighted), linear, among)
        if found.spread is None:
            return found.mean, jnp.swapaxes(found.own, 1, 2) @ found.own
        return found.mean, SharedCovariance(found.spread, found.own)

    def step(carry: _Settling) -> _Settling:
        # The conditioning is written once, here, because it is a large part of what is compiled: so the last step is
        # worked out although it is not made.
        n_steps = carry.now.n_steps + 1.0
        others = jax.tree.map(lambda part: jnp.where(n_steps > 0, 0.0, part), more)
        now = Settled(carry.sites, *moments(carry.sites, others), carry.change, n_steps)
        wanted, moved, whole = [], jnp.zeros(2), jnp.full(2, 1e-24)
        for batch, draws, old in zip(problem.batches, normals, now.sites, strict=True):
            new, gradient = _target(batch, draws, now, lapse)
            turned = new.precision - old.precision
            force = new.linear - old.linear - jnp.einsum("dopm,dpm->dom", turned, now.mean[:, batch.rows])
            moved += jnp.stack([jnp.sum((batch.weight * turned) ** 2), jnp.sum((batch.weight * force) ** 2)])
            whole += jnp.stack([jnp.sum((batch.weight * new.precision) ** 2), jnp.sum((batch.weight * gradient) ** 2)])
            wanted.append(new)
        sites = jax.tree.map(lambda a, b: (1.0 - carry.rho) * a + carry.rho * b, now.sites, tuple(wanted))
        change = jnp.sqrt(jnp.max(moved / whole))
        rho = jnp.where(change > now.change, jnp.maximum(0.5 * carry.rho, 0.1), jnp.minimum(1.2 * carry.rho, 1.0))
        rho = jnp.where(n_steps < 1, 0.9, rho)  # the first step only says what the start implies
        return _Settling(now, change, rho, sites)

    def unsettled(carry: _Settling) -> Array:
        now = carry.now
        return (now.n_steps < 2) | ((now.change > _SETTLED) & (now.n_steps < _MOST_STEPS))

    sites = jax.tree.map(jnp.asarray, sites)
    mean, covariance = jax.tree.map(
        lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(moments, sites, more)
    )
    infinite, one = jnp.asarray(jnp.inf), jnp.asarray(1.0)
    before = Settled(sites, mean, covariance, infinite, -one)
    return jax.lax.while_loop(unsettled, step, _Settling(before, infinite, one, sites)).now


def _target(batch: SetBatch, draws: Array, now: Settled, lapse: Array | None) -> tuple[OwnSites, Array]:
    """Return the sites that the present marginals ask for, and the gradients (d, a, m)."""
    expected = expect(marginals(now.mean, now.covariance, batch), batch, draws, lapse)
    precision = psd_part(expected.curvature)
    linear = expected.gradient + jnp.einsum("dopm,dpm->dom", precision, now.mean[:, batch.rows])
    # The trace of a matrix is the sum of its eigenvalues: the negative ones are what the projection added.
    kept, whole = jnp.einsum("doom->m", precision), jnp.einsum("doom->m", expected.curvature)
    clipped = (kept - whole) / jnp.maximum(2.0 * kept - whole, jnp.finfo(kept.dtype).tiny)
    return OwnSites(precision, linear, jnp.clip(clipped, 0.0, 1.0)), expected.gradient


def no_sites(n_utilities: int, batch: SetBatch) -> OwnSites:
    """Return sites that say nothing."""
    a, m = batch.rows.shape
    return OwnSites(np.zeros((n_utilities, a, a, m)), np.zeros((n_utilities, a, m)), np.zeros(m))  # type: ignore[arg-type]
