"""The hyperparameters' posterior, as a Gaussian around the best ones.

With the sites of a dense fit held, the evidence log Z of prior and sites is a function of the hyperparameters alone,
and its gradient is known without differentiating a factorisation (`choicegp.inference.dense`).  Differences of that
gradient give the curvature of log Z + log p(hyperparameters) at its maximum.  No direction is given more spread than
the hyperpriors have: where the choices say nothing about a hyperparameter, those speak.  With many objects, where
gradients are costly and hyperparameters well known, all of one kind and part move together.
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

from choicegp.compute.programs import program
from choicegp.inference.dense import LOG_BOUNDS, evidence_gradient
from choicegp.inference.posterior import FIRST_JITTER, condition, factorise, prior_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
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
    work = len(ravel_pytree(prior)[0]) * prior.n_parts * len(problem.valid) ** 3

    def slope(there: UtilityPrior) -> Array:
        assert hyperpriors is not None
        return _slope(there, sites, problem, hyperpriors)

    return gaussian_around(prior, slope, hyperpriors, together=work > _MOST_WORK)


def gaussian_around(
    prior: Any, slope: Callable[[Any], Array], hyperpriors: HyperPriors | None, *, together: bool = False
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
