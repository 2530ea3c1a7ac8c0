"""Coordinates in which chains walk: standard normals q of the hyperparameters, and w of the utilities.

With the sites of a dense fit held, the evidence log Z of prior and sites is a function of the hyperparameters alone,
and its gradient is known without differentiating a factorisation (`choicegp.inference.dense`).  Differences of that
gradient give the curvature of log Z + log p(hyperparameters) at its maximum: a Gaussian around the best ones.  No
direction is given more spread than the hyperpriors have: where the choices say nothing about a hyperparameter, those
speak.  With many objects, where gradients are costly and hyperparameters well known, all of one kind and part move
together.

At any hyperparameters, prior times sites is Gaussian in the parts f of the utilities: evidence Z times density
N(f; m, S).  With S = W^T W (of a utility's own part given the shared one, see `choicegp.inference.posterior`),
f = m + W^T w and w ~ N(0, I).  Sites that were made at some hyperparameters serve at others too: m, W and Z follow the
prior.  The exact posterior of w and the hyperparameters together is then

    log p(choices | u) - log sites(u) + log Z(hyperparameters) - |w|²/2 + log p(hyperparameters),

in which w is nearly standard normal whatever the hyperparameters are: the sites have taken the choices into account
already, and what is left to a sampler is where the likelihood is not Gaussian.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from choicegp.compute.programs import program
from choicegp.inference.dense import LOG_BOUNDS, evidence_gradient
from choicegp.inference.posterior import FIRST_JITTER, condition, factorise, half_covariance, prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites, gram
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior, is_learned, log_density

_MOST_WORK = 1e11  # differences of gradients times the cube of the objects and their parts
_APART = 0.1  # between the places of which gradients are compared, in log hyperparameters


class HyperPosterior(NamedTuple):
    """Log hyperparameters as a linear function of standard normals q."""

    prior: Any  # the best hyperparameters, of one person's prior or of a study's
    scale: Array  # (n, k) a root of their covariance; a row of zeros where nothing is learned
    inverse: Array  # (k, n) its pseudo-inverse
    spread: Array  # (n,) the hyperpriors' standard deviations; zero where nothing is learned

    @property
    def n_learned(self) -> int:
        """Number of hyperparameters that are uncertain."""
        return self.scale.shape[1]

    def prior_at(self, q: Array) -> Any:
        """Return the prior at coordinates q (k,)."""
        best, restore = ravel_pytree(self.prior)
        return restore(jnp.clip(best + self.scale @ q, *LOG_BOUNDS))

    def is_within(self, q: Array) -> Array:
        """Say whether the hyperparameters at q are within their bounds."""
        flat = ravel_pytree(self.prior)[0] + self.scale @ q
        return jnp.all((flat >= LOG_BOUNDS[0]) & (flat <= LOG_BOUNDS[1]))

    def shifts(self, objects: Objects) -> np.ndarray:
        """Return directions of q (p, k) along which the variance of one part grows, by a factor e² a unit.

        There are none, (0, k), where the variances cannot move so, or where a kernel is no multiple of its variances.
        """
        flat, restore = ravel_pytree(self.prior)
        leaves = jax.tree_util.tree_leaves_with_path(self.prior)
        parts = np.arange(self.prior.n_parts)
        moves = np.concatenate([
            np.kron(np.eye(len(parts)), np.full(np.size(leaf) // len(parts), 2.0 * _is_variance(path)))
            for path, leaf in leaves
        ], axis=1)  # fmt: skip
        q = moves @ np.asarray(self.inverse).T
        some = Objects(objects.X[:3], objects.codes[:3])
        before, after = (restore(flat + shift).covariance(some, some) for shift in (0.0, 0.5 * moves.sum(axis=0)))
        is_scale = np.allclose(q @ np.asarray(self.scale).T, moves) and np.allclose(after, math.e * before)
        return q if is_scale else np.zeros((0, q.shape[1]))

    def log_density(self, q: Array, hyperpriors: HyperPriors) -> Array:
        """Return the log density of the hyperpriors at coordinates q, up to a constant.

        Not at the bounds where there are some: beyond them a walk would find no way back.
        """
        best, restore = ravel_pytree(self.prior)
        return log_density(restore(best + self.scale @ q), hyperpriors)


@partial(program, static="hyperpriors")
def _slope(prior: UtilityPrior, sites: Sites, problem: Problem, hyperpriors: HyperPriors) -> Array:
    """Gradient of log Z + log p(hyperparameters)."""
    covariance = prior_covariance(prior, problem)
    moments = condition(factorise(covariance, jnp.full(len(covariance), FIRST_JITTER)), sites)
    evidence = ravel_pytree(evidence_gradient(prior, problem, moments, sites))[0]
    return evidence + ravel_pytree(jax.grad(log_density)(prior, hyperpriors))[0]


def hyper_posterior(
    prior: UtilityPrior, sites: Sites, problem: Problem, hyperpriors: HyperPriors | None
) -> HyperPosterior:
    """Approximate the posterior of the hyperparameters; without hyperpriors they are held at the best ones."""
    problem = problem._replace(batches=())  # the sites have said it all: one program, whatever the sets are

    def slope(there: UtilityPrior) -> Array:
        assert hyperpriors is not None
        return _slope(there, sites, problem, hyperpriors)

    return gaussian_around(prior, slope, hyperpriors, together=_move_together(prior, problem))


def hyperprior_alone(prior: UtilityPrior, problem: Problem, hyperpriors: HyperPriors | None) -> HyperPosterior:
    """Return what `hyper_posterior` would if the choices said nothing: it has the same shapes."""
    flat = np.zeros(len(ravel_pytree(prior)[0]))
    return gaussian_around(prior, lambda _: flat, hyperpriors, together=_move_together(prior, problem))


def prepare_slope(prior: UtilityPrior, sites: Sites, problem: Problem, hyperpriors: HyperPriors | None) -> None:
    """Compile what `hyper_posterior` needs for arguments like these."""
    if hyperpriors is not None:
        _slope.prepare(prior, sites, problem._replace(batches=()), hyperpriors)


def _move_together(prior: UtilityPrior, problem: Problem) -> bool:
    return len(ravel_pytree(prior)[0]) * prior.n_parts * len(problem.valid) ** 3 > _MOST_WORK


def gaussian_around(
    prior: Any, slope: Callable[[Any], Array | np.ndarray], hyperpriors: HyperPriors | None, *, together: bool = False
) -> HyperPosterior:
    """Make the Gaussian whose precision is minus the derivative of ``slope`` at the hyperparameters of ``prior``.

    With ``together``, all hyperparameters of one kind and part move together.
    """
    prior = jax.tree.map(np.asarray, prior)
    flat, restore = ravel_pytree(prior)
    best = np.asarray(flat)
    if hyperpriors is None:
        nothing = np.zeros((len(best), 0))
        return HyperPosterior(prior, nothing, nothing.T, np.zeros(len(best)))  # type: ignore[arg-type]
    spread = np.asarray(ravel_pytree(jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.full(np.shape(leaf), _prior_sd(path, hyperpriors)), prior
    ))[0])  # fmt: skip
    directions = _of_each_kind(prior, spread) if together else spread * np.eye(len(best))[spread > 0]
    here = np.asarray(slope(prior))
    rows = []
    for direction in directions:
        there = restore(jnp.asarray(best + _APART * direction))
        rows.append(directions @ (here - np.asarray(slope(jax.tree.map(np.asarray, there)))) / _APART)
    precision = np.nan_to_num(0.5 * (np.array(rows) + np.array(rows).T))
    values, vectors = np.linalg.eigh(precision)
    scale = directions.T @ vectors / np.sqrt(np.maximum(values, 1.0))
    return HyperPosterior(prior, scale, np.linalg.pinv(scale), spread)  # type: ignore[arg-type]


def _of_each_kind(prior: UtilityPrior, spread: np.ndarray) -> np.ndarray:
    """Return one direction for each kind of hyperparameter of each part, along which all of them move together."""
    leaves = jax.tree.leaves(prior)
    kinds = np.concatenate([np.full(np.size(leaf), number) for number, leaf in enumerate(leaves)])
    parts = np.concatenate([np.repeat(np.arange(len(leaf)), np.size(leaf) // len(leaf)) for leaf in leaves])
    groups = np.unique(np.column_stack([kinds, parts])[spread > 0], axis=0)
    return np.array([spread * ((kinds == kind) & (parts == part)) for kind, part in groups])


def _is_variance(path: tuple) -> bool:
    return path[-1].name.endswith("variance")


def _prior_sd(path: tuple, hyperpriors: HyperPriors) -> float:
    return getattr(hyperpriors, path[-1].name.removeprefix("log_"))[1] if is_learned(path) else 0.0


class Whitening(NamedTuple):
    """Maps between standard normals w (p, t) of the posterior, v of the prior, and the parts of the utilities.

    With a shared part, it comes first wherever there are p of something.
    """

    half: Array  # (p, t, t) W of each part
    b_root: Array  # (p, t, t) R, the Cholesky factor of B = I + L^T Λ L, with which W = R^-1 L^T
    through: Array  # (d, t, t) W Λ of each utility's own part
    centre: Array  # (p, t) W η, of a utility's own part as if the shared one were zero
    log_evidence: Array  # log Z

    def parts(self, w: Array) -> Array:
        """Return the parts (p, t) of the utilities at the objects."""
        if not self._is_shared:
            return jnp.einsum("dji,dj->di", self.half, self.centre + w)
        shared = self.half[0].T @ (self.centre[0] + w[0])
        own = jnp.einsum("dji,dj->di", self.half[1:], self.centre[1:] - self.through @ shared + w[1:])
        return jnp.concatenate([shared[None], own])

    def utilities(self, w: Array) -> Array:
        """Return the utilities (d, t) of the objects."""
        return self.total(self.parts(w))

    def total(self, parts: Array) -> Array:
        """Add the shared part, if there is one, to the others."""
        return parts[:1] + parts[1:] if self._is_shared else parts

    def to_prior(self, w: Array) -> Array:
        """Return v (p, t) with f = L v; nothing is divided by L, which may be nearly singular."""
        shifted = self.centre + w
        if self._is_shared:
            shifted -= self._pull(self.half[0].T @ shifted[0])
        return jax.lax.map(lambda args: solve_triangular(args[0], args[1], trans=1, lower=True), (self.b_root, shifted))

    def from_prior(self, v: Array) -> Array:
        """Return w (p, t) from v."""
        shifted = jnp.einsum("pji,pj->pi", self.b_root, v)
        if self._is_shared:
            shifted += self._pull(self.half[0].T @ shifted[0])
        return shifted - self.centre

    @property
    def _is_shared(self) -> bool:
        return len(self.half) > len(self.through)

    def _pull(self, shared: Array) -> Array:
        """Return how far the shared part moves the centres of the others."""
        return jnp.concatenate([jnp.zeros_like(self.centre[:1]), self.through @ shared])


def whiten(root: Array, sites: Sites) -> Whitening:
    """Find the coordinates, from the Cholesky factors (p, t, t) of the prior covariance; can be differentiated."""
    own_root = root[len(root) - len(sites.precision) :]

    def own(args: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        factor, precision, linear = args
        half, b_root = half_covariance(factor, precision)
        through, centre = half @ precision, half @ linear
        return half, b_root, through, centre, precision - gram(through), linear - through.T @ centre

    half, b_root, through, centre, gain, pulled = jax.lax.map(own, (own_root, sites.precision, sites.linear))
    if len(own_root) < len(root):
        shared_half, shared_b_root = half_covariance(root[0], jnp.sum(gain, axis=0))
        shared_centre = shared_half @ jnp.sum(pulled, axis=0)
        half, b_root, centre = (
            jnp.concatenate([first[None], rest])
            for first, rest in ((shared_half, half), (shared_b_root, b_root), (shared_centre, centre))
        )
    log_dets = jnp.log(jnp.diagonal(b_root, axis1=1, axis2=2))
    return Whitening(half, b_root, through, centre, 0.5 * jnp.sum(centre**2) - jnp.sum(log_dets))


def log_choices(u: Array, problem: Problem, lapse: Array | None) -> Array:
    """Return the log-likelihood of each set (m,), batch after batch, at utilities u (d, t); can be differentiated.

    As of one sample, from probabilities: that takes two thirds of the time of logarithms.
    """
    logs = [
        batch.errors.sampled(u[:, batch.rows][..., None], jnp.asarray(batch.present), jnp.asarray(batch.chosen), lapse)[
            :, 0
        ]
        for batch in problem.batches
    ]
    return jnp.concatenate([jnp.zeros(0), *logs])


@jax.jit  # a chain's program needs it several times: it is traced once
def log_likelihood(u: Array, problem: Problem, lapse: Array | None) -> Array:
    """Return the log-likelihood of all sets, by their weights.

    Parameters
    ----------
    u : Array (d, t)
        Utilities of the objects of the problem, in units of the scale of errors.
    problem : Problem
    lapse : Array () or None
        The lapse rate; None where nobody lapses.

    Returns
    -------
    Array ()

    Examples
    --------
    Two objects with equal utilities:

    >>> import numpy as np
    >>> from choicegp import ChoiceData
    >>> from choicegp.inference.problem import pose
    >>> data = ChoiceData.from_pairs([[0.0], [1.0]], [[1, 0]])
    >>> problem = pose(data, data.X, np.arange(2), effects=False)
    >>> round(float(log_likelihood(np.zeros((1, len(problem.valid))), problem, None)), 3)
    -0.693
    """
    weight = jnp.concatenate([jnp.zeros(0), *(batch.weight for batch in problem.batches)])
    return weight @ log_choices(u, problem, lapse)


def log_posterior(w: Array, whitening: Whitening, sites: Sites, problem: Problem, lapse: Array | None) -> Array:
    """Return the log of the exact posterior density of w (p, t), without the hyperparameters' own prior."""
    u = whitening.utilities(w)
    return log_likelihood(u, problem, lapse) + log_rest(w, u, whitening, sites)


def log_rest(w: Array, u: Array, whitening: Whitening, sites: Sites) -> Array:
    """Return what the log posterior density of w has beside the log-likelihood of its utilities u."""
    in_sites = jnp.sum(sites.linear * u) - 0.5 * jnp.einsum("di,dij,dj->", u, sites.precision, u)
    return whitening.log_evidence - in_sites - 0.5 * jnp.sum(w**2)
