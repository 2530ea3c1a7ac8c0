"""The posteriors of people at any objects: Gaussian, or by draws."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from choicegp.inference.posterior import Posterior
from choicegp.inference.respondents.blocks import jittered_root, leads, own_between, tabled, whitening_roots
from choicegp.model.prior import Objects
from choicegp.model.respondents import StudyPrior

_LEFT_JITTER = 1e-7  # of the variance of a person's own part


def _seen_by(own: Objects, objects: Objects) -> Objects:
    """Return objects as a person sees them, from one of whose own the covariates are taken, where there are some."""
    c = objects.X.shape[-1]
    covariates = jnp.broadcast_to(own.X[:1, c:], (len(objects.X), own.X.shape[-1] - c))
    return Objects(jnp.concatenate([objects.X, covariates], axis=1), objects.codes)


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
        objects = _seen_by(own, objects)
        both = Objects(jnp.concatenate([objects.X, own.X]), jnp.concatenate([objects.codes, own.codes]))
        lead = leads(prior, roots, self.points, both)
        a, d = len(objects.X), prior.n_utilities
        here, there = lead[..., :a], lead[..., a:]
        beside = own_between(prior, here, there, objects, own).reshape(d * a, -1)
        alone = own_between(prior, here, here, objects, objects).reshape(d * a, d * a)
        led_here, led_there = (led(prior, part, population) for part in (here, there))
        left = alone - beside @ gain @ beside.T
        return led_here - beside @ (gain @ led_there), beside @ pulled.reshape(-1), 0.5 * (left + left.T)


def led(prior: StudyPrior, lead: Array, population: Array) -> Array:
    """Return the population's utilities (dn, k) at values of v (k, p M); the lead is (p, M, n)."""
    p, points, _ = lead.shape
    parts = jnp.einsum("pMn,kpM->pnk", lead, population.reshape(-1, p, points))
    return prior.population.total(parts).reshape(-1, len(population))


class Continued(NamedTuple):
    """What the draws of one setting of the hyperparameters say about objects of a person, S draws of them."""

    mean: Array  # (S, d, n)
    left: Array  # (d, n, d, n) covariance of what no draw knows
    size: Array  # mean variance of what is her own


class PersonalDraws(eqx.Module):
    """Draws of the utilities of R people, each with n objects of her own, at any objects.

    There are S draws at each of H settings of the hyperparameters.  Given v and what is a person's own at her objects,
    e, her utilities at others have mean A* v + C*r C^-1 e and covariance C** - C*r C^-1 Cr*.
    """

    prior: StudyPrior  # every parameter has a leading axis of length H
    points: Objects
    population: Array  # (H, S, p M) v
    objects: Objects  # (R, n, c) and (R, n)
    own: Array  # (R, H, S, dn) e
    known: Array  # (R,) False for new people, of whom nothing is known but the population
    lapse: Array | None = None

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return self.prior.log_ratio.shape[1] - self.prior.population.shared

    @property
    def n_sampled(self) -> int:
        """Number of independent normals for each object of a set: its utilities are sampled together."""
        return self.n_utilities

    def some(self, n_points: int) -> "PersonalDraws":
        """Return as many draws as points, evenly from all settings; all numbers are powers of two."""
        n_settings, n_draws = self.population.shape[:2]
        settings, each = slice(None, None, max(1, n_settings // n_points)), max(1, n_settings * n_draws // n_points)
        prior = jax.tree.map(lambda leaf: leaf[settings], self.prior)
        population, own = self.population[settings, ::each], self.own[:, settings, ::each]
        return PersonalDraws(prior, self.points, population, self.objects, own, self.known, self.lapse)

    def of_setting(self, h: int, draws: np.ndarray) -> "PersonalDraws":
        """Return some draws of one setting."""
        prior = jax.tree.map(lambda leaf: leaf[[h]], self.prior)
        population, own = self.population[[h]][:, draws], self.own[:, [h]][:, :, draws]
        return PersonalDraws(prior, self.points, population, self.objects, own, self.known, self.lapse)

    def in_sets(self, people: Array, objects: Objects) -> tuple[Array, Array]:
        """Return means (H, d, a, m, S) and covariances (H, d, d, a, a, m) for sets of people (m,) at objects (a, m)."""
        X, codes = jnp.swapaxes(objects.X, 0, 1), jnp.swapaxes(objects.codes, 0, 1)

        def of_setting(setting: tuple[StudyPrior, Array, Array]) -> tuple[Array, Array]:
            one = _OneSetting.of(*setting, self)
            continued = jax.lax.map(
                lambda of_set: one.continued(of_set[0], Objects(*of_set[1:])), (people, X, codes), batch_size=64
            )
            left = jnp.moveaxis(continued.left, (0, 1, 2, 3, 4), (4, 0, 2, 1, 3))
            return jnp.moveaxis(continued.mean, (0, 1), (2, 3)), left

        return jax.lax.map(of_setting, (self.prior, self.population, jnp.moveaxis(self.own, 1, 0)))

    def drawn(self, objects: Objects, normals: Array) -> Array:
        """Return joint draws (R, S, n, d) at objects (n, c), of the first setting; normals are (R, S, d n)."""
        one = _OneSetting.of(jax.tree.map(lambda leaf: leaf[0], self.prior), self.population[0], self.own[:, 0], self)
        d, n = self.n_utilities, len(objects.X)

        def of_person(args: tuple[Array, Array]) -> Array:
            person, standard = args
            mean, left, size = one.continued(person, objects)
            # Of objects that she saw nothing is left but rounding errors, of the size of the prior's variance.
            root = jnp.linalg.cholesky(left.reshape(d * n, d * n) + _LEFT_JITTER * size * jnp.eye(d * n))
            return jnp.swapaxes(mean + (standard @ root.T).reshape(-1, d, n), 1, 2)

        return jax.lax.map(of_person, (jnp.arange(len(normals)), normals), batch_size=16)


class _OneSetting(NamedTuple):
    """The draws of people at one setting of the hyperparameters, ready to be continued."""

    prior: StudyPrior
    points: Objects
    roots: Array  # L^-1 of the population
    population: Array  # (S, p M)
    objects: Objects
    factors: Array  # (R, dn, dn) Cholesky factors of C
    dual: Array  # (R, S, dn) C^-1 e
    known: Array

    @classmethod
    def of(cls, prior: StudyPrior, population: Array, own: Array, draws: PersonalDraws) -> "_OneSetting":
        roots = whitening_roots(prior.population, draws.points)

        def of_person(one: tuple[Objects, Array]) -> tuple[Array, Array]:
            objects, part = one
            factor = jittered_root(tabled(prior, roots, draws.points, objects).own[None])[0]
            return factor, cho_solve((factor, True), part.T).T

        factors, dual = jax.lax.map(of_person, (draws.objects, own.astype(float)))
        return cls(prior, draws.points, roots, population.astype(float), draws.objects, factors, dual, draws.known)

    def continued(self, person: Array, objects: Objects) -> Continued:
        prior, d, a = self.prior, self.prior.n_utilities, len(objects.X)
        own = Objects(self.objects.X[person], self.objects.codes[person])
        objects = _seen_by(own, objects)
        both = Objects(jnp.concatenate([objects.X, own.X]), jnp.concatenate([objects.codes, own.codes]))
        lead = leads(prior, self.roots, self.points, both)
        here, there = lead[..., :a], lead[..., a:]
        beside = jnp.where(self.known[person], own_between(prior, here, there, objects, own).reshape(d * a, -1), 0.0)
        alone = own_between(prior, here, here, objects, objects).reshape(d * a, d * a)
        taken = solve_triangular(self.factors[person], beside.T, lower=True)
        mean = led(prior, here, self.population).T + self.dual[person] @ beside.T
        left = alone - taken.T @ taken
        size = jnp.trace(alone) / len(alone)
        return Continued(mean.reshape(-1, d, a), (0.5 * (left + left.T)).reshape(d, a, d, a), size)


AnyPosterior = Posterior | PersonalPosterior | PersonalDraws
"""What predicts the answers to sets: one person's posterior, or several people's."""
