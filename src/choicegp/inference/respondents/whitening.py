"""Coordinates in which the Gaussian posterior of a study is standard normal, and the exact log posterior in them.

The sites of all people make a Gaussian posterior of the population, v = μ + F^-T w, and of each person given v.  With
f = A v, the population's utilities at her objects,

    u = f + W^T (W (η - Λ f) + w),    W^T W = (C^-1 + Λ)^-1,

w being standard normal.  As for one person (`choicegp.inference.coordinates`), the exact posterior of all these
coordinates and of the hyperparameters together is

    log p(choices | u) - log sites(u) + log Z(hyperparameters) - |w|²/2 + log p(hyperparameters),

whatever the hyperparameters are at which the sites were made.  Covariances depend on who is asked only through the
objects that she saw: they are looked up in tables of all objects, of which there are few where people are sampled.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from choicegp.inference.problem import SetBatch
from choicegp.inference.respondents.blocks import (
    down,
    inside,
    jittered_root,
    places_in,
    tabled,
    up,
    whitening_roots,
)
from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects
from choicegp.model.respondents import StudyPrior


class SampledCrowd(NamedTuple):
    """R people with n objects each, what they answered, and their sites."""

    rows: Array  # (R, n) rows of the study's objects
    sets: tuple[SetBatch, ...]  # rows (a, R s) are places among a person's own objects; s sets in a row are one's own
    sites: Sites  # (R, d, n, n) and (R, d, n)


class Sampled(NamedTuple):
    """What is sampled: the utilities of all people at their own objects, and of the population."""

    objects: Objects
    points: Objects
    groups: tuple[SampledCrowd, ...]
    lapse: Array | None


class Coordinates(NamedTuple):
    """A point, in standard normals w."""

    population: Array  # (p M,)
    people: tuple[Array, ...]  # (R, dn) of each group


class GroupWhitening(NamedTuple):
    """The coordinates of R people; d n is the order of a person's utilities together."""

    half: Array  # (R, dn, dn) W = G^-1 L^T, C = L L^T and G the Cholesky factor of B = I + L^T Λ L
    through: Array  # (R, dn, dn) W Λ
    centre: Array  # (R, dn) W η


class StudyWhitening(NamedTuple):
    """The coordinates of a study at one setting of the hyperparameters."""

    lead: Array  # (d t, p M)
    mean: Array  # (p M,) μ
    factor: Array  # (p M, p M) F, the Cholesky factor of the precision of v
    groups: tuple[GroupWhitening, ...]
    log_evidence: Array  # log Z

    def utilities(self, w: Coordinates, sampled: Sampled) -> tuple[Array, ...]:
        """Return the utilities (R, dn) of the people of each group at their objects."""
        v, own = self.parts(w, sampled)
        return tuple(
            at_rows(self.lead @ v, group.rows, len(sampled.objects.X)) + part
            for group, part in zip(sampled.groups, own, strict=True)
        )

    def parts(self, w: Coordinates, sampled: Sampled) -> tuple[Array, tuple[Array, ...]]:
        """Return v, and what is people's own at their objects, (R, dn) of each group."""
        v, result = self._population(w.population), []
        for group, own, normals in zip(sampled.groups, self.groups, w.people, strict=True):
            f = at_rows(self.lead @ v, group.rows, len(sampled.objects.X))
            result.append(up(own.half, own.centre - down(own.through, f) + normals))
        return v, tuple(result)

    def population_utilities(self, w: Coordinates) -> Array:
        """Return the population's utilities (d t,) at all objects."""
        return self.lead @ self._population(w.population)

    def _population(self, w: Array) -> Array:
        return self.mean + solve_triangular(self.factor, w, trans=1, lower=True)


def at_rows(whole: Array, rows: Array, t: int) -> Array:
    """Look up utilities (d t,) of all objects at people's own: (R, dn)."""
    return whole[places_in(rows, len(whole) // t, t)]


def whiten_study(prior: StudyPrior, sampled: Sampled) -> StudyWhitening:
    """Find the coordinates at a setting of the hyperparameters; can be differentiated."""
    roots = whitening_roots(prior.population, sampled.points)
    table = tabled(prior, roots, sampled.points, sampled.objects)
    d, t = prior.n_utilities, len(sampled.objects.X)
    said, pulled = jnp.zeros((d * t, d * t)), jnp.zeros(d * t)
    log_evidence, groups = jnp.zeros(()), []
    for group in sampled.groups:
        people, n = group.rows.shape
        places = places_in(group.rows, d, t)
        root = jittered_root(inside(table.own, places))
        precision = jnp.einsum("ij,riab->riajb", jnp.eye(d), group.sites.precision).reshape(people, d * n, d * n)
        linear = group.sites.linear.reshape(people, d * n)
        b_root = jnp.linalg.cholesky(jnp.eye(d * n) + jnp.swapaxes(root, 1, 2) @ (precision @ root))
        half = jax.vmap(lambda one, other: solve_triangular(one, other.T, lower=True))(b_root, root)
        through, centre = half @ precision, down(half, linear)
        # What her answers say about the population: S = Λ - Λ V Λ, and η - Λ V η, V = W^T W.
        said = said.at[places[:, :, None], places[:, None, :]].add(precision - jnp.swapaxes(through, 1, 2) @ through)
        pulled = pulled.at[places].add(linear - up(through, centre))
        log_evidence += 0.5 * jnp.sum(centre**2) - jnp.sum(jnp.log(jnp.diagonal(b_root, axis1=1, axis2=2)))
        groups.append(GroupWhitening(half, through, centre))
    order = table.lead.shape[1]
    factor = jnp.linalg.cholesky(jnp.eye(order) + table.lead.T @ (said @ table.lead))
    linear = table.lead.T @ pulled
    mean = cho_solve((factor, True), linear)
    log_evidence += 0.5 * linear @ mean - jnp.sum(jnp.log(jnp.diag(factor)))
    return StudyWhitening(table.lead, mean, factor, tuple(groups), log_evidence)


def log_likelihood(utilities: tuple[Array, ...], sampled: Sampled) -> Array:
    """Return the log-likelihood of all answers at utilities (R, dn) of the people of each group."""
    total = jnp.zeros(())
    for group, flat in zip(sampled.groups, utilities, strict=True):
        people, n = group.rows.shape
        u = flat.reshape(people, -1, n)
        for batch in group.sets:
            owner = jnp.repeat(jnp.arange(people), batch.rows.shape[1] // people)
            own = jnp.moveaxis(u[owner[None, :], :, batch.rows], 2, 0)  # (d, a, m)
            logs = batch.errors.sampled(
                own[..., None], jnp.asarray(batch.present), jnp.asarray(batch.chosen), sampled.lapse
            )[:, 0]
            total += jnp.sum(batch.weight * logs)
    return total


def log_rest(w: Coordinates, utilities: tuple[Array, ...], whitening: StudyWhitening, sampled: Sampled) -> Array:
    """Return what the log posterior density of w has beside the log-likelihood of its utilities."""
    total = whitening.log_evidence - 0.5 * jnp.sum(w.population**2)
    for group, flat, own in zip(sampled.groups, utilities, w.people, strict=True):
        u = flat.reshape(group.sites.linear.shape)
        moved = jnp.einsum("rdij,rdj->rdi", group.sites.precision, u)
        total -= jnp.sum(u * (group.sites.linear - 0.5 * moved)) + 0.5 * jnp.sum(own**2)
    return total


def log_posterior(w: Coordinates, whitening: StudyWhitening, sampled: Sampled) -> Array:
    """Return the log of the exact posterior density of w, without the hyperparameters' own prior."""
    utilities = whitening.utilities(w, sampled)
    return log_likelihood(utilities, sampled) + log_rest(w, utilities, whitening, sampled)
