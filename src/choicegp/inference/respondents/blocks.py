"""The algebra of people given the population, a few people at a time.

The population's parts at the study's points are f = L v with v ~ N(0, I).  A person's utilities at any objects are
u = A v + e, e ~ N(0, C): A leads from the points to the objects, and C is what is her own, together with what the
points do not say about the objects.  Both depend on the objects alone, so that a few people share one table of them.
Sites of precision Λ and linear part η act on a person's utilities at her own objects.  With Λ = W W^T,

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
OWN_JITTER = 1e-8  # of the mean variance of a person's own part, where it is factorised
_SITE_JITTER = 1e-10  # of a site's own size


class Table(NamedTuple):
    """The prior at t objects: d utilities one after the other, p parts, M points."""

    lead: Array  # (d t, p M) A
    own: Array  # (d t, d t) C


class Information(NamedTuple):
    """What the answers of R people say; d n is the order of a person's utilities together."""

    half: Array  # (R, dn, dn) Y, with S = Y^T Y
    log_det: Array  # (R,) log |I + W^T C W|
    moved: Array  # (R, dn) C η
    fitted: Array  # (R,) η^T V η, V = C - C S C
    pulled: Array  # (R, dn) η - S C η


def whitening_roots(prior: UtilityPrior, points: Objects) -> Array:
    """Return L^-1 (p, M, M), L being the Cholesky factors of the population's covariance at its points."""
    covariance = prior.covariance(points, points)
    n = covariance.shape[-1]
    size = jnp.trace(covariance, axis1=1, axis2=2) / n + 1e-30
    roots = jnp.linalg.cholesky(covariance + (JITTER * size)[:, None, None] * jnp.eye(n))
    # Multiplying by the inverse is many times quicker than solving, of which there would be one for every person.
    return jax.vmap(lambda root: solve_triangular(root, jnp.eye(n), lower=True))(roots)


def leads(prior: StudyPrior, roots: Array, points: Objects, objects: Objects) -> Array:
    """Return A^T of each part, (p, M, t); for ``roots`` see `whitening_roots`."""
    cross = prior.population.covariance(points, objects)
    return jnp.zeros_like(cross) if prior.alone else roots @ cross


def tabled(prior: StudyPrior, roots: Array, points: Objects, objects: Objects) -> Table:
    """Make the prior at some objects (t, c)."""
    lead = leads(prior, roots, points, objects)
    d, (p, m, t), shared = prior.n_utilities, lead.shape, int(prior.population.shared)
    # What the points leave unknown of the population is as good as a person's own.
    parts = prior.covariance(objects, objects) - jnp.swapaxes(lead, 1, 2) @ lead
    own = together(prior, 0.5 * (parts + jnp.swapaxes(parts, 1, 2)))
    by_part = jnp.einsum("ij,jMt->itjM", jnp.eye(d), lead[shared:])
    if shared:
        by_part = jnp.concatenate([jnp.broadcast_to(lead[0].T[None, :, None], (d, t, 1, m)), by_part], axis=2)
    return Table(by_part.reshape(d * t, p * m), own.reshape(d * t, d * t))


def together(prior: StudyPrior, parts: Array) -> Array:
    """Turn covariances of independent parts, (..., p, n1, n2), into the utilities' own, (..., d, n1, d, n2)."""
    d, shared = prior.n_utilities, prior.population.shared
    own = jnp.einsum("ij,...iab->...iajb", jnp.eye(d, dtype=parts.dtype), parts[..., int(shared) :, :, :])
    return own + parts[..., 0, :, None, :][..., None, :, :, :] if shared else own


def own_between(prior: StudyPrior, lead: Array, other_lead: Array, objects: Objects, others: Objects) -> Array:
    """Return C between some objects and others, of one person: (d, n1, d, n2); leads are (p, M, n)."""
    return together(prior, prior.covariance(objects, others) - jnp.swapaxes(lead, 1, 2) @ other_lead)


def places_in(rows: Array, d: int, t: int) -> Array:
    """Return where the utilities (R, dn) of people who saw ``rows`` (R, n) of a table stand in it."""
    return ((jnp.arange(d) * t)[None, :, None] + rows[:, None, :]).reshape(len(rows), -1)


def inside(matrix: Array, places: Array) -> Array:
    """Look up, for each person, the entries (R, dn, dn) of a table's matrix."""
    return matrix[places[:, :, None], places[:, None, :]]


def gathered_at(places: Array, matrices: Array, vectors: Array, order: int) -> tuple[Array, Array]:
    """Add up people's matrices (R, dn, dn) and vectors (R, dn) where they stand in a table of this order."""
    matrix = jnp.zeros((order, order)).at[places[:, :, None], places[:, None, :]].add(matrices)
    return matrix, jnp.zeros(order).at[places].add(vectors)


def inform(own: Array, sites: Sites) -> Information:
    """Combine C of people, (R, dn, dn), with their sites, of precision (R, d, n, n) and linear part (R, d, n)."""
    people, d, n, _ = sites.precision.shape
    size = jnp.trace(sites.precision, axis1=2, axis2=3)[..., None, None]
    root = jnp.linalg.cholesky(sites.precision + (_SITE_JITTER * size + 1e-30) * jnp.eye(n))  # W
    inner = jnp.einsum("riak,riajb->rikjb", root, own.reshape(people, d, n, d, n))
    inner = jnp.einsum("rikjb,rjbl->rikjl", inner, root).reshape(people, d * n, d * n)
    factor = jnp.linalg.cholesky(jnp.eye(d * n) + inner)
    transposed = jnp.einsum("ij,riab->ribja", jnp.eye(d), root).reshape(people, d * n, d * n)  # W^T
    half = jax.vmap(lambda one, other: solve_triangular(one, other, lower=True))(factor, transposed)
    linear = sites.linear.reshape(people, d * n)
    moved = down(own, linear)
    explained = down(half, moved)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
    fitted = jnp.sum(linear * moved, axis=1) - jnp.sum(explained**2, axis=1)
    return Information(half, log_det, moved, fitted, linear - up(half, explained))


def jittered_root(covariance: Array, jitter: float = OWN_JITTER) -> Array:
    """Return the Cholesky factors (R, k, k) of covariances of people's own parts, in which objects may be the same."""
    order = covariance.shape[1]
    size = jnp.trace(covariance, axis1=1, axis2=2) / order + 1e-30
    return jnp.linalg.cholesky(covariance + (jitter * size)[:, None, None] * jnp.eye(order))


def down(matrices: Array, vectors: Array) -> Array:
    """Multiply each person's matrix (R, k, l) by her vector (R, l)."""
    return jnp.einsum("rkl,rl->rk", matrices, vectors)


def up(matrices: Array, vectors: Array) -> Array:
    """Multiply the transpose of each person's matrix (R, k, l) by her vector (R, k)."""
    return jnp.einsum("rkl,rk->rl", matrices, vectors)


def population_part(table: Table, places: Array, information: Information) -> tuple[Array, Array]:
    """Return what these people say about v: the precision (p M, p M) and the linear part (p M,)."""
    said = jnp.swapaxes(information.half, 1, 2) @ information.half
    gain, pulled = gathered_at(places, said, information.pulled, len(table.lead))
    return table.lead.T @ (gain @ table.lead), table.lead.T @ pulled


class PersonMoments(NamedTuple):
    """The posterior of people's utilities at their own objects."""

    mean: Array  # (R, d, n)
    covariance: Array  # (R, d, n, d, n)


class TableMoments(NamedTuple):
    """The posterior of the population's utilities at a table's objects."""

    mean: Array  # (d t,) A v
    covariance: Array  # (d t, d t) A Σ A^T


def population_at(table: Table, mean: Array, root: Array) -> TableMoments:
    """Return the posterior of the population's utilities, v ~ N(mean, root^T root)."""
    spread = table.lead @ root.T
    return TableMoments(table.lead @ mean, spread @ spread.T)


def person_moments(
    own: Array, sites: Sites, information: Information, mean: Array, spread: Array
) -> tuple[PersonMoments, Array]:
    """Combine people with the population's utilities at their objects, N(mean, spread), (R, dn) and (R, dn, dn).

    Also return S spread S, (R, dn, dn).
    """
    people, d, n, _ = sites.precision.shape
    half = information.half
    taken = half @ own  # Y C
    # mean = A v + C η - C S (C η + A v)
    centre = mean + information.moved - up(taken, down(half, information.moved + mean))
    # What is left of A v: (I - C S) A
    through = half @ spread
    inner = through @ jnp.swapaxes(half, 1, 2)  # Y spread Y^T
    crossed = jnp.swapaxes(taken, 1, 2) @ through
    covariance = own + spread - crossed - jnp.swapaxes(crossed, 1, 2)
    covariance += jnp.swapaxes(taken, 1, 2) @ ((inner - jnp.eye(d * n)) @ taken)
    pulled = jnp.swapaxes(half, 1, 2) @ (inner @ half)
    return PersonMoments(centre.reshape(people, d, n), covariance.reshape(people, d, n, d, n)), pulled


def slopes(
    table: Table, places: Array, information: Information, dual: Array, pulled: Array, mean: Array, root: Array
) -> Table:
    """Return the gradient of the evidence of the Gaussian model, with the sites held, with respect to a table.

    With α = η - Λ m (R, dn), the gradient is (α α^T - S + S A Σ A^T S) / 2 in C and α v^T - S A Σ in A, where Σ is the
    covariance of v; ``pulled`` is S A Σ A^T S of each person.
    """
    said = jnp.swapaxes(information.half, 1, 2) @ information.half
    gain, forces = gathered_at(places, said, dual, len(table.lead))
    of_people = 0.5 * (dual[:, :, None] * dual[:, None, :] - said + pulled)
    own, _ = gathered_at(places, of_people, dual, len(table.lead))
    return Table(forces[:, None] * mean - (gain @ table.lead) @ root.T @ root, own)
