"""The algebra of one person, given the population, a few people at a time.

The population's parts at the study's points are f = L v with v ~ N(0, I).  Person r has utilities u = A v + e at her
own n objects, e ~ N(0, C): A leads from the points to her objects, and C is what is her own, together with what the
points do not say about her objects.  Sites of precision Λ and linear part η act on u.  With Λ = W W^T,

    S = (Λ^-1 + C)^-1 = W (I + W^T C W)^-1 W^T

is what her answers say about A v, with her own part integrated out: the population has precision I + sum_r A^T S A
and linear part sum_r A^T (η - S C η).  Neither Λ nor C is inverted, so that answers which say nothing, and objects
which are the same, need no care.  The cost is linear in the number of people.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior

JITTER = 1e-6  # of the population's variance, at its points
_SITE_JITTER = 1e-10  # of a site's own size


class Blocks(NamedTuple):
    """Prior of R people at n objects each: d utilities, p parts, M points."""

    lead: Array  # (R, p, M, n) A^T of each part
    own: Array  # (R, d, n, d, n) C


class Information(NamedTuple):
    """What the answers of R people say; d n is the order of a person's utilities together."""

    half: Array  # (R, dn, dn) Y, with S = Y^T Y
    through: Array  # (R, dn, p M) Y A
    log_det: Array  # (R,) log |I + W^T C W|
    fitted: Array  # (R,) η^T V η, V = C - C S C
    pulled: Array  # (R, d, n) η - S C η


def whitening_roots(prior: UtilityPrior, points: Objects) -> Array:
    """Return L^-1 (p, M, M), L being the Cholesky factors of the population's covariance at its points."""
    covariance = prior.covariance(points, points)
    n = covariance.shape[-1]
    size = jnp.trace(covariance, axis1=1, axis2=2) / n + 1e-30
    roots = jnp.linalg.cholesky(covariance + (JITTER * size)[:, None, None] * jnp.eye(n))
    # Multiplying by the inverse is many times quicker than solving, of which there would be one for every person.
    return jax.vmap(lambda root: solve_triangular(root, jnp.eye(n), lower=True))(roots)


def prior_blocks(prior: StudyPrior, roots: Array, points: Objects, objects: Objects) -> Blocks:
    """Make the prior of people at their own objects, (R, n, c) and (R, n); for ``roots`` see `whitening_roots`."""
    people, n, c = objects.X.shape
    flat = Objects(objects.X.reshape(-1, c), objects.codes.reshape(-1))
    cross = prior.population.covariance(points, flat)
    lead = jnp.zeros_like(cross) if prior.alone else roots @ cross
    lead = jnp.moveaxis(lead.reshape(*lead.shape[:2], people, n), 2, 0)
    # What the points leave unknown of the population is as good as a person's own.
    whole = jax.vmap(lambda one: prior.covariance(one, one))(objects)
    parts = whole - jnp.swapaxes(lead, 2, 3) @ lead
    parts = 0.5 * (parts + jnp.swapaxes(parts, 2, 3))
    return Blocks(lead, _together(prior, parts))


def _together(prior: StudyPrior, parts: Array) -> Array:
    """Turn covariances of independent parts, (..., p, n1, n2), into the utilities' own, (..., d, n1, d, n2)."""
    d, shared = prior.n_utilities, prior.population.shared
    own = jnp.einsum("ij,...iab->...iajb", jnp.eye(d, dtype=parts.dtype), parts[..., int(shared) :, :, :])
    return own + parts[..., 0, :, None, :][..., None, :, :, :] if shared else own


def own_between(prior: StudyPrior, lead: Array, other_lead: Array, objects: Objects, others: Objects) -> Array:
    """Return C between some objects and others, of one person: (d, n1, d, n2); leads are (p, M, n)."""
    return _together(prior, prior.covariance(objects, others) - jnp.swapaxes(lead, 1, 2) @ other_lead)


def inform(prior: StudyPrior, blocks: Blocks, sites: Sites) -> Information:
    """Combine people's priors with their sites, of precision (R, d, n, n) and linear part (R, d, n)."""
    people, d, n, _ = sites.precision.shape
    size = jnp.trace(sites.precision, axis1=2, axis2=3)[..., None, None]
    root = jnp.linalg.cholesky(sites.precision + (_SITE_JITTER * size + 1e-30) * jnp.eye(n))  # W
    inner = jnp.einsum("riak,riajb->rikjb", root, blocks.own)
    inner = jnp.einsum("rikjb,rjbl->rikjl", inner, root).reshape(people, d * n, d * n)
    factor = jnp.linalg.cholesky(jnp.eye(d * n) + inner)
    transposed = jnp.einsum("ij,riab->ribja", jnp.eye(d), root).reshape(people, d * n, d * n)  # W^T
    half = jax.vmap(lambda one, other: solve_triangular(one, other, lower=True))(factor, transposed)
    moved = jnp.einsum("riajb,rjb->ria", blocks.own, sites.linear)  # C η
    explained = jnp.einsum("rkl,rl->rk", half, moved.reshape(people, d * n))
    pulled = sites.linear - jnp.einsum("rkl,rk->rl", half, explained).reshape(people, d, n)
    by_utility = half.reshape(people, d * n, d, n)
    own = jnp.einsum("rkin,riMn->rkiM", by_utility, blocks.lead[:, -d:])
    if prior.population.shared:
        first = jnp.einsum("rkn,rMn->rkM", jnp.sum(by_utility, axis=2), blocks.lead[:, 0])
        own = jnp.concatenate([first[:, :, None], own], axis=2)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
    fitted = jnp.sum(sites.linear * moved, axis=(1, 2)) - jnp.sum(explained**2, axis=1)
    return Information(half, own.reshape(people, d * n, -1), log_det, fitted, pulled)


def population_part(prior: StudyPrior, blocks: Blocks, information: Information) -> tuple[Array, Array]:
    """Return what these people say about v: the precision (p M, p M) and the linear part (p M,)."""
    through = information.through.reshape(-1, information.through.shape[-1])
    by_utility = jnp.einsum("riMn,rin->riM", blocks.lead[:, -prior.n_utilities :], information.pulled)
    linear = jnp.sum(by_utility, axis=0)
    if prior.population.shared:
        first = jnp.einsum("rMn,rin->M", blocks.lead[:, 0], information.pulled)
        linear = jnp.concatenate([first[None], linear])
    return through.T @ through, linear.reshape(-1)


class PersonMoments(NamedTuple):
    """The posterior of people's utilities at their own objects."""

    mean: Array  # (R, d, n)
    covariance: Array  # (R, d, n, d, n)


def person_moments(
    prior: StudyPrior, blocks: Blocks, sites: Sites, information: Information, mean: Array, root: Array
) -> PersonMoments:
    """Combine people with the population, v ~ N(mean, root^T root)."""
    people, d, n, _ = sites.precision.shape
    whole = blocks.own.reshape(people, d * n, d * n)
    half = information.half
    taken = half @ whole  # Y C
    expected = led(prior, blocks.lead, mean[None])[..., 0]
    moved = jnp.einsum("rkl,rl->rk", whole, sites.linear.reshape(people, d * n))
    # mean = A v + C η - C S (C η + A v)
    both = jnp.einsum("rkl,rl->rk", half, moved + expected)
    centre = expected + moved - jnp.einsum("rkl,rk->rl", taken, both)
    # What is left of A v: (I - C S) A
    left = led(prior, blocks.lead, root) - jnp.swapaxes(taken, 1, 2) @ (information.through @ root.T)
    covariance = whole - jnp.swapaxes(taken, 1, 2) @ taken + left @ jnp.swapaxes(left, 1, 2)
    return PersonMoments(centre.reshape(people, d, n), covariance.reshape(people, d, n, d, n))


def led(prior: StudyPrior, lead: Array, root: Array) -> Array:
    """Return A root^T (R, dn, k) for the rows of root (k, p M)."""
    people, p, points, _ = lead.shape
    parts = jnp.einsum("rpMn,kpM->rpnk", lead, root.reshape(-1, p, points))
    whole = parts[:, :1] + parts[:, 1:] if prior.population.shared else parts
    return whole.reshape(people, -1, root.shape[0])


def slopes(
    prior: StudyPrior, blocks: Blocks, information: Information, dual: Array, mean: Array, root: Array
) -> Blocks:
    """Return the gradient of the evidence of the Gaussian model, with the sites held, with respect to the blocks.

    With α = η - Λ m, the gradient is (α α^T - Q) / 2 in C and α v^T - S A Σ in A, where Σ is the covariance of v and
    Q = S - S A Σ A^T S.
    """
    people, d, n = dual.shape
    half = information.half
    pulled = jnp.swapaxes(half, 1, 2) @ (information.through @ root.T)  # S A root^T
    flat = dual.reshape(people, d * n)
    own = flat[:, :, None] * flat[:, None, :] - jnp.swapaxes(half, 1, 2) @ half + pulled @ jnp.swapaxes(pulled, 1, 2)
    parts = (flat[:, :, None] * mean - pulled @ root).reshape(people, d, n, -1, blocks.lead.shape[2])
    shared = int(prior.population.shared)
    lead = jnp.einsum("rinim->rimn", parts[:, :, :, shared:])
    if shared:
        lead = jnp.concatenate([jnp.sum(parts[:, :, :, :1], axis=1).transpose(0, 2, 3, 1), lead], axis=1)
    return Blocks(lead, 0.5 * own.reshape(people, d, n, d, n))
