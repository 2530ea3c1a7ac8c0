"""Steps of the inference for many people: sites of all sets, the population, and the hyperparameters.

With the sites fixed, the evidence of the Gaussian model that they make is

    F = sum_r (η^T V η - log |I + W^T C W|) / 2 + (b^T (I + H)^-1 b - log |I + H|) / 2,

H and b being the population's precision and linear part; its gradient is the gradient of the bound (see
`choicegp.inference.dense`).  Nothing is differentiated through a person's factorisations.  People are worked through in
chunks, so that memory does not grow with their number.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from choicegp.compute.programs import program
from choicegp.inference.annealing import Schedule, StepTrace
from choicegp.inference.dense import Adam, climbed, likely_lapse, next_pace, objective_of
from choicegp.inference.driver import Learning
from choicegp.inference.expectation import expect, expected_log_likelihood, of_differences
from choicegp.inference.problem import SetBatch
from choicegp.inference.respondents.blocks import (
    Information,
    PersonMoments,
    Table,
    inform,
    inside,
    person_moments,
    places_in,
    population_at,
    population_part,
    slopes,
    tabled,
    whitening_roots,
)
from choicegp.inference.respondents.study import Crowd, Study
from choicegp.inference.sites import Sites, psd_part
from choicegp.model.prior import Objects
from choicegp.model.respondents import StudyPrior


class StudySites(NamedTuple):
    """Sites of all people, and a linear part for the population that starts may have and that fades."""

    people: tuple[Sites, ...]  # of each crowd, with a leading axis of chunks: (k, R, d, n, n) and (k, R, d, n)
    population: Array  # (p M,)


class Population(NamedTuple):
    """The posterior of v, N(mean, root^T root)."""

    mean: Array  # (p M,)
    root: Array  # (p M, p M)
    log_det: Array  # log |I + H|


class StudyState(NamedTuple):
    """Where the optimisation stands."""

    prior: StudyPrior
    sites: StudySites
    lapse: Array | None
    adam: Adam
    rho: Array
    rate: Array
    objective: Array


def objects_of(study: Study, rows: Array) -> Objects:
    """Look up objects of the study."""
    return Objects(jnp.asarray(study.objects.X)[rows], jnp.asarray(study.objects.codes)[rows])


class Chunk(NamedTuple):
    """A few people of a crowd; a crowd itself with a leading axis of chunks."""

    table: Array  # (t,) rows of the study's objects
    places: Array  # (R, n) a person's objects, as places in the table
    sets: tuple[SetBatch, ...]
    sites: Sites

    def inside(self, t: int) -> Array:
        """Return where the people's utilities (R, dn) stand in the table's."""
        return places_in(self.places, self.sites.linear.shape[-2], t)


def chunks_of(crowd: Crowd, sites: Sites) -> Chunk:
    """Return the chunks of a crowd, with sites (k, R, d, n, n) and (k, R, d, n)."""
    return jax.tree.map(jnp.asarray, Chunk(crowd.table, crowd.places, crowd.sets, sites))  # type: ignore[arg-type]


def evidence(prior: StudyPrior, study: Study, sites: StudySites) -> tuple[Array, Population]:
    """Return F of the module's docstring, and the population's posterior."""
    roots = whitening_roots(prior.population, study.points)
    order = sites.population.shape[0]
    precision, linear, value = jnp.eye(order), sites.population, jnp.zeros(())
    if study.known is not None:
        precision, linear = jnp.asarray(study.known.precision), linear + study.known.linear

    def add(total: tuple, chunk: Chunk) -> tuple[tuple, None]:
        table = tabled(prior, roots, study.points, objects_of(study, chunk.table))
        places = chunk.inside(len(chunk.table))
        information = inform(inside(table.own, places), chunk.sites)
        said = (*population_part(table, places, information), 0.5 * jnp.sum(information.fitted - information.log_det))
        return jax.tree.map(jnp.add, total, said), None

    for crowd, own in zip(study.crowds, sites.people, strict=True):
        (precision, linear, value), _ = jax.lax.scan(add, (precision, linear, value), chunks_of(crowd, own))
    factor = jnp.linalg.cholesky(precision)
    mean = cho_solve((factor, True), linear)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diag(factor)))
    root = solve_triangular(factor, jnp.eye(order), lower=True)
    return value + 0.5 * (linear @ mean - log_det), Population(mean, root, log_det)


class Pass(NamedTuple):
    """What one pass over all people gives."""

    value: Array  # sum of the expected log-likelihoods
    target: tuple[Sites, ...]  # sites that the present posterior asks for
    lapsed: Array
    penalty: Array  # sum_r m·(η - Λ m) - tr(Λ S) + log |I + W^T C W|
    residual: Array  # squared norms of forces - duals, and of forces
    gradient: StudyPrior  # of the evidence of the Gaussian model that the sites make


def pass_over_people(
    prior: StudyPrior, study: Study, sites: StudySites, population: Population, normals: tuple, weight: Array,
    lapse: Array | None,
) -> Pass:  # fmt: skip
    """Make every person's posterior, and the sites that it asks for."""
    roots, pull_to_prior = jax.vjp(lambda prior: whitening_roots(prior.population, study.points), prior)
    nothing = jax.tree.map(jnp.zeros_like, (prior, roots))
    targets, sums = [], (jnp.zeros(()), jnp.zeros(()), jnp.zeros(()), jnp.zeros(2), *nothing)

    def of_chunk(sums: tuple, both: tuple[Chunk, tuple]) -> tuple[tuple, Sites]:
        chunk, draws = both
        objects, own = objects_of(study, chunk.table), chunk.sites
        table, pull = jax.vjp(lambda prior, roots: tabled(prior, roots, study.points, objects), prior, roots)
        places = chunk.inside(len(chunk.table))
        moments, information, pulled = _of_people(table, places, own, population)
        value, target, forces, lapsed = target_of(moments, chunk.sets, draws, weight, lapse)
        dual = own.linear - jnp.einsum("rdij,rdj->rdi", own.precision, moments.mean)
        traced = jnp.sum(own.precision * jnp.einsum("rdidj->rdij", moments.covariance))
        penalty = jnp.sum(moments.mean * dual) - traced + jnp.sum(information.log_det)
        norms = jnp.stack([jnp.sum((forces - dual) ** 2), jnp.sum(forces**2)])
        flat = dual.reshape(len(dual), -1)
        slope = pull(slopes(table, places, information, flat, pulled, population.mean, population.root))
        return jax.tree.map(jnp.add, sums, (value, lapsed, penalty, norms, *slope)), target

    for crowd, own, draws in zip(study.crowds, sites.people, normals, strict=True):
        sums, target = jax.lax.scan(of_chunk, sums, (chunks_of(crowd, own), draws))
        targets.append(target)
    value, lapsed, penalty, norms, gradient, of_roots = sums
    gradient = jax.tree.map(jnp.add, gradient, pull_to_prior(of_roots)[0])
    return Pass(value, tuple(targets), lapsed, penalty, norms, gradient)


def _of_people(
    table: Table, places: Array, sites: Sites, population: Population
) -> tuple[PersonMoments, Information, Array]:
    """Return people's posterior, what they say, and S A Σ A^T S of each."""
    covariance = inside(table.own, places)
    information, common = inform(covariance, sites), population_at(table, population.mean, population.root)
    moments, pulled = person_moments(
        covariance, sites, information, common.mean[places], inside(common.covariance, places)
    )
    return moments, information, pulled


def in_sets(moments: PersonMoments, batch: SetBatch) -> tuple[Array, Array]:
    """Return means (d, a, m) and covariances (d, d, a, a, m) inside sets, s of each person in a row."""
    owner = jnp.repeat(jnp.arange(len(moments.mean)), batch.rows.shape[1] // len(moments.mean))
    mean = moments.mean[owner[None, :], :, batch.rows]  # (a, m, d)
    rows, columns = batch.rows[:, None], batch.rows[None, :]
    covariance = moments.covariance[owner[None, None, :], :, rows, :, columns]  # (a, a, m, d, d)
    return jnp.moveaxis(mean, 2, 0), jnp.moveaxis(covariance, (3, 4), (0, 1))


def target_of(
    moments: PersonMoments, batches: tuple[SetBatch, ...], normals: tuple, weight: Array, lapse: Array | None
) -> tuple[Array, Sites, Array, Array]:
    """Return expected log-likelihood, sites, forces and lapsed share of the sets of R people."""
    people, d, n = moments.mean.shape
    precision, linear = jnp.zeros((people, d, n, n)), jnp.zeros((people, d, n))
    forces, value, lapsed = linear, jnp.zeros(()), jnp.zeros(())
    for batch, draws in zip(batches, normals, strict=True):
        mean, covariance = in_sets(moments, batch)
        expected = expect(of_differences(mean, covariance), batch, draws, lapse)
        own = jnp.asarray(weight * batch.weight)
        curvature, gradient = own * psd_part(expected.curvature), own * expected.gradient
        toward = gradient + jnp.einsum("dopm,dpm->dom", curvature, mean)
        owner = jnp.repeat(jnp.arange(people), batch.rows.shape[1] // people)
        at = owner[None, None, :], slice(None), batch.rows[:, None], batch.rows[None, :]
        precision = precision.at[at].add(jnp.moveaxis(curvature, 0, -1))
        linear = linear.at[owner[None, :], :, batch.rows].add(jnp.moveaxis(toward, 0, -1))
        forces = forces.at[owner[None, :], :, batch.rows].add(jnp.moveaxis(gradient, 0, -1))
        value += jnp.sum(batch.weight * expected.value)
        lapsed += jnp.sum(batch.weight * expected.lapsed)
    return value, Sites(precision, linear), forces, lapsed


def _step(
    state: StudyState, schedule: tuple, study: Study, normals: tuple, learning: Learning
) -> tuple[StudyState, StepTrace]:
    weight, learn, steady = schedule
    population = evidence(state.prior, study, state.sites)[1]
    found = pass_over_people(state.prior, study, state.sites, population, normals, weight, state.lapse)
    prior, adam = state.prior, state.adam
    if learning.learn_prior:
        moved = climbed(state, found.gradient, learning)
        prior, adam = jax.tree.map(lambda new, old: jnp.where(learn, new, old), moved, (prior, adam))
    bound = weight * found.value - 0.5 * (found.penalty + population.log_det)
    objective = objective_of(state, bound, learning)
    residual = jnp.sqrt(found.residual[0]) / (1e-12 + jnp.sqrt(found.residual[1]))
    rho, rate = next_pace(state, objective, steady)
    target = StudySites(found.target, jnp.zeros_like(state.sites.population))
    sites = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, state.sites, target)
    lapse = state.lapse
    if learning.learn_lapse:
        n_sets = sum(jnp.sum(batch.weight) for crowd in study.crowds for batch in crowd.sets)
        lapse = jnp.where(learn, likely_lapse(found.lapsed, n_sets), jnp.asarray(lapse))
    return StudyState(prior, sites, lapse, adam, rho, rate, objective), StepTrace(bound, objective, residual)


@partial(program, static="learning")
def run_block(
    state: StudyState, schedule: Schedule, study: Study, normals: tuple, learning: Learning
) -> tuple[StudyState, StepTrace]:
    """Make the steps of a schedule."""
    return jax.lax.scan(lambda s, x: _step(s, x, study, normals, learning), state, schedule)


def blank_sites(study: Study, d: int, population: Array | np.ndarray) -> StudySites:
    """Return sites of people that say nothing, and a linear part for the population."""

    def of(crowd: Crowd) -> Sites:
        k, people, n = crowd.rows.shape
        return Sites(np.zeros((k, people, d, n, n)), np.zeros((k, people, d, n)))  # type: ignore[arg-type]

    return StudySites(tuple(of(crowd) for crowd in study.crowds), population)  # type: ignore[arg-type]


@program
def population_of_sites(prior: StudyPrior, study: Study, sites: StudySites) -> Population:
    """Return the population's posterior."""
    return evidence(prior, study, sites)[1]


@program
def score_people(
    prior: StudyPrior, study: Study, people: tuple[Sites, ...], population: Population, normals: tuple,
    lapse: Array | None,
) -> tuple[Array, ...]:  # fmt: skip
    """Return each person's part of the bound, (k, R), given the population.

    The bound is the sum of these parts, less half the log determinant of the population's precision.
    """
    roots = whitening_roots(prior.population, study.points)

    def of_chunk(both: tuple[Chunk, tuple]) -> Array:
        chunk, draws = both
        own, n_people = chunk.sites, len(chunk.places)
        table = tabled(prior, roots, study.points, objects_of(study, chunk.table))
        moments, information, _ = _of_people(table, chunk.inside(len(chunk.table)), own, population)
        value = jnp.zeros(n_people)
        for batch, points in zip(chunk.sets, draws, strict=True):
            marginal = of_differences(*in_sets(moments, batch))
            logs = batch.weight * expected_log_likelihood(marginal, batch, points, lapse)
            value += jnp.sum(logs.reshape(n_people, -1), axis=1)
        dual = own.linear - jnp.einsum("rdij,rdj->rdi", own.precision, moments.mean)
        traced = jnp.einsum("rdij,rdidj->r", own.precision, moments.covariance)
        return value - 0.5 * (jnp.sum(moments.mean * dual, axis=(1, 2)) - traced + information.log_det)

    scores = []
    for crowd, own, draws in zip(study.crowds, people, normals, strict=True):
        scores.append(jax.lax.map(of_chunk, (chunks_of(crowd, own), draws)))
    return tuple(scores)


class Moves(NamedTuple):
    """Steps of people's sites: the weight of the likelihood in each, how far each goes, and how many are made."""

    weights: np.ndarray
    rho: np.ndarray
    n_steps: np.ndarray


@program
def moved_people(
    prior: StudyPrior, study: Study, people: tuple[Sites, ...], population: Population, normals: tuple, moves: Moves,
    lapse: Array | None,
) -> tuple[Sites, ...]:  # fmt: skip
    """Move the sites of people, given the population, which stays as it is."""

    def step(k: Array, people: tuple[Sites, ...]) -> tuple[Sites, ...]:
        sites = StudySites(people, jnp.zeros_like(population.mean))
        weight, rho = jnp.asarray(moves.weights)[k], jnp.asarray(moves.rho)[k]
        target = pass_over_people(prior, study, sites, population, normals, weight, lapse).target
        return jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, people, target)

    return jax.lax.fori_loop(0, moves.n_steps, step, people)


def normals_of(study: Study, d: int, n_points: int, seed: int) -> tuple:
    """Draw the points of every set, (k, d, a - 1, R s, S) for each batch of each crowd."""
    from choicegp.inference.expectation import latin_normals

    rng = np.random.default_rng(seed)

    def of(crowd: Crowd) -> tuple[np.ndarray, ...]:
        found = []
        for batch in crowd.sets:
            k, a, m = batch.rows.shape
            drawn = latin_normals(d, a - 1, k * m, n_points, rng).reshape(d, a - 1, k, m, n_points)
            found.append(np.moveaxis(drawn, 2, 0))
        return tuple(found)

    return tuple(of(crowd) for crowd in study.crowds)
