"""The posterior of a study: of the population, of each person who answered, and of people who did not."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.data.packing import padded_size
from choicegp.inference.posterior import N_GAUSSIAN, Draws, Posterior
from choicegp.inference.respondents.blocks import (
    inform,
    led,
    own_between,
    population_part,
    prior_blocks,
    whitening_roots,
)
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
    """

    prior: StudyPrior
    points: Objects
    mean: np.ndarray
    root: np.ndarray
    objects: Objects
    crowds: tuple[CrowdSites, ...]
    ids: tuple
    lapse: Any = None

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

    def of_crowd(self, number: int, places: np.ndarray | None = None) -> "PersonalPosterior":
        """Return the posterior of the people of a crowd, or of those at some places; of new people for `NEW`."""
        if number == NEW:
            d = self.prior.n_utilities
            rows, sites = np.zeros((1, 1), int), Sites(np.zeros((1, d, 1, 1)), np.zeros((1, d, 1)))  # type: ignore[arg-type]
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

    def population(self, seed: int = 0) -> Posterior:
        """Return the posterior of the population's utilities, of a person like the average, as draws."""
        roots = np.asarray(whitening_roots(self.prior.population, self.points))
        p, n = roots.shape[:2]
        half = np.random.default_rng(seed).normal(size=(N_GAUSSIAN // 2, len(self.mean))) @ self.root
        drawn = (self.mean + np.concatenate([half, -half])).reshape(-1, p, n)
        dual = np.einsum("pij,spi->spj", roots, drawn)
        inverse = np.swapaxes(roots, 1, 2) @ roots
        settings = jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.prior.population)
        draws = Draws(settings, dual[None], inverse[None])
        mean_dual = np.einsum("pij,pi->pj", roots, self.mean.reshape(p, n))
        covariance = np.asarray(self.prior.population.covariance(self.points, self.points))
        mean = np.asarray(self.prior.population.total(jnp.einsum("pij,pj->pi", covariance, mean_dual)))
        nothing = np.zeros((len(mean), 0, 0))
        return Posterior(self.prior.population, self.points, mean, mean_dual, nothing, self.lapse, draws)  # type: ignore[arg-type]


@program
def _person_gains(prior: StudyPrior, points: Objects, objects: Objects, sites: Sites) -> tuple[Array, Array]:
    """Return S (R, dn, dn) and η - S C η (R, d, n) of people, see `choicegp.inference.respondents.blocks`."""
    roots = whitening_roots(prior.population, points)

    def of_person(one: tuple[Objects, Sites]) -> tuple[Array, Array]:
        own, site = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one)
        information = inform(prior, prior_blocks(prior, roots, points, own), site)
        return information.half[0].T @ information.half[0], information.pulled[0]

    return jax.lax.map(of_person, (objects, sites))


@program
def _person_says(prior: StudyPrior, points: Objects, objects: Objects, sites: Sites) -> tuple[Array, Array]:
    roots = whitening_roots(prior.population, points)
    order = roots.shape[0] * roots.shape[1]

    def add(total: tuple[Array, Array], one: tuple[Objects, Sites]) -> tuple[tuple[Array, Array], None]:
        own, site = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one)
        blocks = prior_blocks(prior, roots, points, own)
        return jax.tree.map(jnp.add, total, population_part(prior, blocks, inform(prior, blocks, site))), None

    return jax.lax.scan(add, (jnp.zeros((order, order)), jnp.zeros(order)), (objects, sites))[0]


class PersonalPosterior(eqx.Module):
    """Posterior of the utilities of R people, each with n objects of her own, at any objects.

    At other objects a person's utilities are u* = A* v + e*, and e* depends on her answers through C*r, the covariance
    of her own part between the other objects and hers:

        E[u* | v] = A* v + C*r (η - S C η - S A v),    Cov(u* | v) = C** - C*r S Cr*.
    """

    prior: StudyPrior
    points: Objects
    mean: Array  # (p M,) of v
    root: Array  # (p M, p M)
    objects: Objects  # (R, n, c) and (R, n)
    gain: Array  # (R, dn, dn) S
    pulled: Array  # (R, d, n)
    lapse: Array | None = None

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return self.prior.n_utilities

    @property
    def n_sampled(self) -> int:
        """Number of independent normals for each object of a set: its utilities are sampled together."""
        return self.n_utilities

    def taken(self, people: np.ndarray) -> "PersonalPosterior":
        """Return the posterior of these people, given by their places; one may come several times."""
        own = Objects(self.objects.X[people], self.objects.codes[people])
        return PersonalPosterior(
            self.prior, self.points, self.mean, self.root, own, self.gain[people], self.pulled[people], self.lapse
        )

    def moments(self, people: Array, objects: Objects) -> tuple[Array, Array]:
        """Return means (d, a, m) and covariances (d, d, a, a, m) of the sets of people (m,), at objects (a, m)."""
        roots = whitening_roots(self.prior.population, self.points)

        def of_set(one: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            person, X, codes = one
            return self._of_person(roots, person, Objects(X, codes))

        mean, covariance = jax.lax.map(
            of_set, (people, jnp.swapaxes(objects.X, 0, 1), jnp.swapaxes(objects.codes, 0, 1)), batch_size=64
        )
        return jnp.moveaxis(mean, 0, -1), jnp.moveaxis(covariance, (0, 1, 2, 3, 4), (4, 0, 2, 1, 3))

    def _of_person(self, roots: Array, person: Array, objects: Objects) -> tuple[Array, Array]:
        """Return the mean (d, a) and the covariance (d, a, d, a) at some objects of one person."""
        d, a = self.n_utilities, len(objects.X)
        given, moved, alone = self._given_population(
            roots, person, objects, jnp.concatenate([self.mean[None], self.root])
        )
        mean, spread = given[:, 0] + moved, given[:, 1:]
        return mean.reshape(d, a), (alone + spread @ spread.T).reshape(d, a, d, a)

    def drawn(self, objects: Objects, population: Array, normals: Array) -> Array:
        """Return joint draws (R, S, n, d) of the utilities of all people at objects (n, c).

        ``population`` (S, p M) are draws of v, the same for all people, and ``normals`` (R, S, d n) standard normals.
        """
        roots = whitening_roots(self.prior.population, self.points)
        d, n = self.n_utilities, len(objects.X)

        def of_person(one: tuple[Array, Array]) -> Array:
            person, standard = one
            given, moved, alone = self._given_population(roots, person, objects, population)
            size = jnp.trace(alone) / len(alone)
            factor = jnp.linalg.cholesky(alone + (1e-9 * size + 1e-30) * jnp.eye(len(alone)))
            drawn = given.T + moved + standard @ factor.T
            return jnp.swapaxes(drawn.reshape(-1, d, n), 1, 2)

        return jax.lax.map(of_person, (jnp.arange(len(normals)), normals), batch_size=16)

    def _given_population(
        self, roots: Array, person: Array, objects: Objects, population: Array
    ) -> tuple[Array, Array, Array]:
        """Return a person's utilities (d a, k) at values of v (k, p M), what her answers add, and what is left unknown.

        The last is a covariance (d a, d a).
        """
        prior, gain, pulled = self.prior, self.gain[person], self.pulled[person]
        own = Objects(self.objects.X[person], self.objects.codes[person])
        both = Objects(jnp.concatenate([objects.X, own.X]), jnp.concatenate([objects.codes, own.codes]))
        cross = prior.population.covariance(self.points, both)
        lead = jnp.zeros_like(cross) if prior.alone else roots @ cross
        a, d = len(objects.X), prior.n_utilities
        here, there = lead[..., :a], lead[..., a:]
        beside = own_between(prior, here, there, objects, own).reshape(d * a, -1)
        alone = own_between(prior, here, here, objects, objects).reshape(d * a, d * a)
        led_here, led_there = (led(prior, part[None], population)[0] for part in (here, there))
        left = alone - beside @ gain @ beside.T
        return led_here - beside @ (gain @ led_there), beside @ pulled.reshape(-1), 0.5 * (left + left.T)


AnyPosterior = Posterior | PersonalPosterior
"""What predicts the answers to sets: one person's posterior, or several people's."""
