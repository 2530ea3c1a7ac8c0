"""The posterior of a study: of the population, of each person who answered, and of people who did not."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.data.covariates import CovariateCoding
from choicegp.data.packing import padded_size
from choicegp.inference.posterior import N_GAUSSIAN, Draws, Posterior
from choicegp.inference.respondents.blocks import (
    inform,
    leads,
    places_in,
    population_part,
    tabled,
    whitening_roots,
)
from choicegp.inference.respondents.personal import PersonalDraws, PersonalPosterior
from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects
from choicegp.model.respondents import StudyPrior

NEW = -1
"""The number of a person of whom nothing is known."""


class CrowdSites(NamedTuple):
    """What people who saw similar numbers of objects have said."""

    people: np.ndarray  # (R,) numbers of the people
    rows: np.ndarray  # (R, n) rows of the study's objects
    sites: Sites  # (R, d, n, n) and (R, d, n)


class PeopleDraws(NamedTuple):
    """Joint draws of all people and of the population: H settings of the hyperparameters, S draws at each.

    Single precision: draws take most of a model's file, and their differences are far larger.
    """

    prior: StudyPrior  # every parameter has a leading axis of length H
    population: np.ndarray  # (H, S, p M) v
    people: tuple[np.ndarray, ...]  # (R, H, S, dn) of each crowd: what is her own at her objects, u - A v


class StudyPosterior(NamedTuple):
    """What is known about all people of a study.

    Attributes
    ----------
    prior : StudyPrior
    points : Objects
        Where the population's utilities are represented.
    mean : ndarray (p M,)
    root : ndarray (p M, p M)
        The whitened utilities of the population at the points are N(mean, root^T root).
    objects : Objects
        The distinct objects that anyone saw.
    crowds : tuple of CrowdSites
    ids : tuple
        The respondents, in the order of their numbers.
    lapse : ndarray or None
    draws : PeopleDraws or None
        What predictions use, where people were sampled.
    covariates : CovariateCoding or None
        How covariates of people become the last features of the objects that they see.
    """

    prior: StudyPrior
    points: Objects
    mean: np.ndarray
    root: np.ndarray
    objects: Objects
    crowds: tuple[CrowdSites, ...]
    ids: tuple
    lapse: Any = None
    draws: PeopleDraws | None = None
    covariates: CovariateCoding | None = None

    def numbers(self, respondents: Any) -> np.ndarray:
        """Return the numbers of respondents; `NEW` for those who did not answer."""
        known = {respondent: number for number, respondent in enumerate(self.ids)}
        return np.array([known.get(respondent, NEW) for respondent in respondents], int)

    def places_of(self, people: np.ndarray) -> np.ndarray:
        """Return the crowd of each of some people, given by their numbers, and her place in it, (n, 2)."""
        result = np.full((len(self.ids) + 1, 2), NEW)  # the last row, which is also number -1, is for new people
        for number, crowd in enumerate(self.crowds):
            result[crowd.people] = np.column_stack([np.full(len(crowd.people), number), np.arange(len(crowd.people))])
        return result[people]

    def covariates_of(self, people: np.ndarray) -> np.ndarray:
        """Return the covariates (n, q) of people by their numbers, as the model has them."""
        q = 0 if self.covariates is None else len(self.covariates.mean)
        result = np.zeros((len(self.ids), q))
        for crowd in self.crowds:
            result[crowd.people] = self.objects.X[crowd.rows[:, 0], self.objects.X.shape[1] - q :]
        return result[people]

    def new_people(self, covariates: np.ndarray | None) -> Objects:
        """Return one object, (R, 1, c), for each of some new people with these covariates (R, q).

        It says who they are, and nothing else.  By default there is one, who is average.
        """
        q = 0 if self.covariates is None else len(self.covariates.mean)
        covariates = np.zeros((1, q)) if covariates is None else covariates
        n = padded_size(len(covariates), 0)
        first = np.tile(self.objects.X[0, : self.objects.X.shape[1] - q], (n, 1))
        X = np.column_stack([first, np.pad(covariates, ((0, n - len(covariates)), (0, 0)), mode="edge")])
        return Objects(X[:, None], np.tile(self.objects.codes[:1], (n, 1)))

    def of_crowd(
        self, number: int, places: np.ndarray | None = None, covariates: np.ndarray | None = None
    ) -> "PersonalPosterior":
        """Return the posterior of the people of a crowd, or of those at some places.

        For `NEW`, of new people, for whom see `new_people`.
        """
        if number == NEW:
            own, d = self.new_people(covariates), self.prior.n_utilities
            sites = Sites(np.zeros((len(own.codes), d, 1, 1)), np.zeros((len(own.codes), d, 1)))  # type: ignore[arg-type]
        else:
            _, rows, sites = self.crowds[number]
            if places is not None:
                # Rounded up to a power of two by repeating the last: other numbers of people need no other programs.
                places = np.pad(places, (0, padded_size(len(places), 0) - len(places)), mode="edge")
                rows, sites = rows[places], Sites(sites.precision[places], sites.linear[places])
            own = Objects(self.objects.X[rows], self.objects.codes[rows])
        gain, pulled = (np.asarray(part) for part in _person_gains(self.prior, self.points, own, sites))
        return PersonalPosterior(self.prior, self.points, self.mean, self.root, own, gain, pulled, self.lapse)  # type: ignore[arg-type]

    def said_by(self, crowd: CrowdSites, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what some people of a crowd say about the population: precision and linear part of v."""
        rows, sites = crowd.rows[places], Sites(crowd.sites.precision[places], crowd.sites.linear[places])
        # Padding says nothing.
        more = padded_size(len(places), 0) - len(places)
        rows = np.pad(rows, ((0, more), (0, 0)), mode="edge")
        sites = Sites(*(np.pad(part, ((0, more), *[(0, 0)] * (np.ndim(part) - 1))) for part in sites))  # type: ignore[arg-type]
        own = Objects(self.objects.X[rows], self.objects.codes[rows])
        precision, linear = _person_says(self.prior, self.points, own, sites)
        return np.asarray(precision), np.asarray(linear)

    def drawn_crowd(
        self, number: int, places: np.ndarray | None = None, covariates: np.ndarray | None = None
    ) -> "PersonalDraws":
        """Do as `of_crowd` does, with draws."""
        draws = self.draws
        assert draws is not None
        if number == NEW:
            objects = self.new_people(covariates)
            own = np.zeros((len(objects.codes), *draws.population.shape[:2], self.prior.n_utilities), np.float32)
        else:
            rows, own = self.crowds[number].rows, draws.people[number]
            if places is not None:
                places = np.pad(places, (0, padded_size(len(places), 0) - len(places)), mode="edge")
                rows, own = rows[places], own[places]
            objects = Objects(self.objects.X[rows], self.objects.codes[rows])
        known = np.full(len(objects.codes), number != NEW)
        return PersonalDraws(draws.prior, self.points, draws.population, objects, own, known, self.lapse)  # type: ignore[arg-type]

    def population(self, seed: int = 0) -> Posterior:
        """Return the posterior of the population's utilities, of a person like the average, as draws."""
        roots = np.asarray(whitening_roots(self.prior.population, self.points))
        p, n = roots.shape[:2]
        if self.draws is None:
            half = np.random.default_rng(seed).normal(size=(N_GAUSSIAN // 2, len(self.mean))) @ self.root
            drawn = (self.mean + np.concatenate([half, -half])).reshape(1, -1, p, n)
            settings = jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.prior.population)
            of_settings = roots[None]
        else:
            settings, drawn = self.draws.prior.population, self.draws.population
            drawn = drawn.astype(float).reshape(*drawn.shape[:2], p, n)
            each = [jax.tree.map(lambda leaf, h=h: leaf[h], settings) for h in range(len(drawn))]
            of_settings = np.array([np.asarray(whitening_roots(prior, self.points)) for prior in each])
        dual = np.einsum("hpij,hspi->hspj", of_settings, drawn)
        draws = Draws(settings, dual, np.swapaxes(of_settings, 2, 3) @ of_settings)
        mean_dual = np.einsum("pij,pi->pj", roots, self.mean.reshape(p, n))
        covariance = np.asarray(self.prior.population.covariance(self.points, self.points))
        mean = np.asarray(self.prior.population.total(jnp.einsum("pij,pj->pi", covariance, mean_dual)))
        nothing = np.zeros((len(mean), 0, 0))
        return Posterior(self.prior.population, self.points, mean, mean_dual, nothing, self.lapse, draws)  # type: ignore[arg-type]


@program
def population_elsewhere(
    prior: StudyPrior, points: Objects, objects: Objects, mean: Array, root: Array
) -> tuple[Array, Array]:
    """Return mean (p t,) and covariance (p t, p t) of the population at t objects, whitened by its prior there.

    ``mean`` and ``root`` describe v at the points; what the points do not say about the objects is left as it was: of
    I, which is what is known a priori, the part through the points is taken away.
    """
    own = prior.population
    lead, roots = leads(prior, whitening_roots(own, points), points, objects), whitening_roots(own, objects)
    p, m, t = lead.shape
    through = roots @ jnp.swapaxes(lead, 1, 2)  # (p, t, M)
    spread = jnp.einsum("ptM,kpM->kpt", through, root.reshape(-1, p, m)).reshape(-1, p * t)
    left = jnp.eye(t) - through @ jnp.swapaxes(through, 1, 2)
    unknown = jnp.einsum("pij,pq->piqj", left, jnp.eye(p)).reshape(p * t, p * t)
    return jnp.einsum("ptM,pM->pt", through, mean.reshape(p, m)).ravel(), spread.T @ spread + unknown


@program
def _person_gains(prior: StudyPrior, points: Objects, objects: Objects, sites: Sites) -> tuple[Array, Array]:
    """Return S (R, dn, dn) and η - S C η (R, d, n) of people, see `choicegp.inference.respondents.blocks`."""
    roots = whitening_roots(prior.population, points)

    def of_person(one: tuple[Objects, Sites]) -> tuple[Array, Array]:
        own, site = one[0], jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one[1])
        information = inform(tabled(prior, roots, points, own).own[None], site)
        return information.half[0].T @ information.half[0], information.pulled[0].reshape(site.linear.shape[1:])

    return jax.lax.map(of_person, (objects, sites))


@program
def _person_says(prior: StudyPrior, points: Objects, objects: Objects, sites: Sites) -> tuple[Array, Array]:
    roots = whitening_roots(prior.population, points)
    order = roots.shape[0] * roots.shape[1]

    def add(total: tuple[Array, Array], one: tuple[Objects, Sites]) -> tuple[tuple[Array, Array], None]:
        own, site = one[0], jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one[1])
        table, n = tabled(prior, roots, points, own), len(own.codes)
        places = places_in(jnp.arange(n)[None], prior.n_utilities, n)
        said = population_part(table, places, inform(table.own[None], site))
        return jax.tree.map(jnp.add, total, said), None

    return jax.lax.scan(add, (jnp.zeros((order, order)), jnp.zeros(order)), (objects, sites))[0]
