"""The posterior of fixed hyperparameters: the fixed point of every set's own site.

Plain steps towards the sites that the marginals ask for take long where a model has more utilities than the choices
say: these trade off, and the sites move along that direction by a small part of the way in each step.  So a step is
extrapolated from the latest ones (Anderson, 1965): of all their combinations with weights that sum to 1 it takes the
one whose residual, the distance between the sites and what is asked for, would be smallest if the residual were
linear in the sites.
"""

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
_FIRST, _DAMPED = 0.9, 0.5  # part of the way of the first step, which only says what the start implies, and of others
_REMEMBERED, _MOST_NUMBERS = 5, 4_000_000  # earlier steps, and numbers of all of them together
_RIDGE = 1e-8  # added to their squares: steps that hardly differ do not count many times over


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
        How far these sites are from those that the marginals ask for, in parts of their size.
    n_steps : Array
    """

    sites: tuple[OwnSites, ...]
    mean: Array
    covariance: Array | SharedCovariance
    change: Array
    n_steps: Array


class _Past(NamedTuple):
    """The latest steps, by turns: where each would have led without extrapolation, and its residual, both (h, N)."""

    places: Array
    residuals: Array


class _Course(NamedTuple):
    """Where the steps stand: the latest place that was looked at, earlier ones, and the sites of the next."""

    now: Settled
    past: _Past
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

    def step(carry: _Course) -> _Course:
        # The conditioning is written once, here: it is a large part of what is compiled.
        now, past, sites = carry
        begun = now.n_steps > 0
        others = jax.tree.map(lambda part: jnp.where(begun, 0.0, part), more)
        now = Settled(sites, *moments(sites, others), now.change, now.n_steps + 1.0)
        residuals, whole, wanted = [], jnp.full(2, 1e-24), []
        for batch, draws, old in zip(problem.batches, normals, sites, strict=True):
            new, gradient = _target(batch, draws, now, lapse)
            turned = new.precision - old.precision
            force = new.linear - old.linear - jnp.einsum("dopm,dpm->dom", turned, now.mean[:, batch.rows])
            residuals.append((batch.weight * turned, batch.weight * force))
            whole += jnp.stack([jnp.sum((batch.weight * new.precision) ** 2), jnp.sum((batch.weight * gradient) ** 2)])
            wanted.append(new)
        scale = jnp.sqrt(whole)
        residual = _flat([(turned / scale[0], force / scale[1]) for turned, force in residuals])
        n = sum(own.precision.size for own in wanted)
        change = jnp.sqrt(jnp.maximum(jnp.sum(residual[:n] ** 2), jnp.sum(residual[n:] ** 2)))
        rho = jnp.where(begun, _DAMPED, _FIRST)
        place = (1.0 - rho) * _parts(sites) + rho * _parts(wanted)
        after, past = _extrapolated(place, residual, past, now.n_steps)
        return _Course(now._replace(change=change), past, _sites_at(after, wanted))

    def unsettled(carry: _Course) -> Array:
        now = carry.now
        return (now.n_steps < 2) | ((now.change > _SETTLED) & (now.n_steps < _MOST_STEPS))

    sites = jax.tree.map(jnp.asarray, sites)
    nowhere = jax.tree.map(lambda like: jnp.zeros(like.shape), jax.eval_shape(moments, sites, more))
    first = Settled(sites, *nowhere, jnp.asarray(jnp.inf), jnp.asarray(0.0))
    n_numbers = sum(own.precision.size + own.linear.size for own in sites)
    zeros = jnp.zeros((int(np.clip(_MOST_NUMBERS // n_numbers, 1, _REMEMBERED)), n_numbers))
    return jax.lax.while_loop(unsettled, step, _Course(first, _Past(zeros, zeros), sites)).now


def _target(batch: SetBatch, draws: Array, now: Settled, lapse: Array | None) -> tuple[OwnSites, Array]:
    """Return the sites that the present marginals ask for, and the gradients (d, a, m)."""
    expected = expect(marginals(now.mean, now.covariance, batch), batch, draws, lapse)
    precision = psd_part(expected.curvature)
    linear = expected.gradient + jnp.einsum("dopm,dpm->dom", precision, now.mean[:, batch.rows])
    # The trace of a matrix is the sum of its eigenvalues: the negative ones are what the projection added.
    kept, whole = jnp.einsum("doom->m", precision), jnp.einsum("doom->m", expected.curvature)
    clipped = (kept - whole) / jnp.maximum(2.0 * kept - whole, jnp.finfo(kept.dtype).tiny)
    return OwnSites(precision, linear, jnp.clip(clipped, 0.0, 1.0)), expected.gradient


def _extrapolated(place: Array, residual: Array, past: _Past, n_steps: Array) -> tuple[Array, _Past]:
    """Combine where a step, the first being number 1, leads with where earlier ones led, and remember it."""
    n = len(past.places)
    apart = residual - past.residuals
    gram = apart @ apart.T
    known = jnp.arange(n) < n_steps - 1
    # Each difference in units of its own size, so that large ones of the first steps do not hide the latest.
    size = jnp.sqrt(jnp.diag(gram)) + jnp.finfo(gram.dtype).tiny
    both = known[:, None] & known[None, :]
    matrix = jnp.where(both, gram / size[:, None] / size[None, :], 0.0) + jnp.diag(jnp.where(known, _RIDGE, 1.0))
    weights = jnp.linalg.solve(matrix, apart @ residual / size) / size
    weights = jnp.where(known & jnp.all(jnp.isfinite(weights)), weights, 0.0)
    turn = (n_steps.astype(int) - 1) % n
    kept = _Past(past.places.at[turn].set(place), past.residuals.at[turn].set(residual))
    return place - weights @ (place - past.places), kept


def _flat(pairs: list[tuple[Array, Array]]) -> Array:
    """Write all precisions, and after them all linear parts, in one row."""
    return jnp.concatenate([part.ravel() for both in zip(*pairs, strict=True) for part in both])


def _parts(sites: tuple[OwnSites, ...] | list[OwnSites]) -> Array:
    return _flat([(own.precision, own.linear) for own in sites])


def _sites_at(flat: Array, like: list[OwnSites]) -> tuple[OwnSites, ...]:
    """Read what `_parts` has written; a combination of precisions may have lost a little of its definiteness."""
    shapes = [own.precision.shape for own in like] + [own.linear.shape for own in like]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = [part.reshape(shape) for part, shape in zip(jnp.split(flat, ends[:-1]), shapes, strict=True)]
    both = zip(parts[: len(like)], parts[len(like) :], like, strict=True)
    return tuple(OwnSites(psd_part(precision), linear, own.clipped) for precision, linear, own in both)


def no_sites(n_utilities: int, batch: SetBatch) -> OwnSites:
    """Return sites that say nothing."""
    a, m = batch.rows.shape
    return OwnSites(np.zeros((n_utilities, a, a, m)), np.zeros((n_utilities, a, m)), np.zeros(m))  # type: ignore[arg-type]
