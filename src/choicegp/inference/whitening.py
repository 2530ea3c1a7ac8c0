"""Coordinates in which the Gaussian posterior is standard normal, and the exact log posterior in them.

Prior times sites is Gaussian in the parts f of the utilities: evidence Z times density N(f; m, S).  With S = W^T W
(of a utility's own part given the shared one, see `choicegp.inference.posterior`), f = m + W^T w and w ~ N(0, I).
Sites that were made at some hyperparameters serve at others too: m, W and Z follow the prior.  The exact posterior of
w and the hyperparameters together is then

    log p(choices | u) - log sites(u) + log Z(hyperparameters) - |w|²/2 + log p(hyperparameters),

in which w is nearly standard normal whatever the hyperparameters are: the sites have taken the choices into account
already, and what is left to a sampler is where the likelihood is not Gaussian.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from choicegp.inference.posterior import half_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites


class Whitening(NamedTuple):
    """A map from standard normals w (p, t) to the parts of the utilities."""

    half: Array  # (d, t, t) W of each utility's own part
    through: Array  # (d, t, t) W Λ
    centre: Array  # (d, t) W η
    shared_half: Array | None  # (t, t) W of the shared part
    shared_centre: Array | None  # (t,)
    log_evidence: Array  # log Z

    def parts(self, w: Array) -> Array:
        """Return the parts (p, t) of the utilities at the objects."""
        if self.shared_half is None or self.shared_centre is None:
            return jnp.einsum("dji,dj->di", self.half, self.centre + w)
        shared = self.shared_half.T @ (self.shared_centre + w[0])
        own = jnp.einsum("dji,dj->di", self.half, self.centre - self.through @ shared + w[1:])
        return jnp.concatenate([shared[None], own])

    def utilities(self, w: Array) -> Array:
        """Return the utilities (d, t) of the objects."""
        parts = self.parts(w)
        return parts if self.shared_half is None else parts[:1] + parts[1:]


def whiten(root: Array, sites: Sites) -> Whitening:
    """Find the coordinates, from the Cholesky factors (p, t, t) of the prior covariance; can be differentiated."""
    own_root = root[len(root) - len(sites.precision) :]

    def own(args: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        factor, precision, linear = args
        half, log_det = half_covariance(factor, precision)
        through, centre = half @ precision, half @ linear
        return half, through, centre, log_det, precision - through.T @ through, linear - through.T @ centre

    half, through, centre, log_dets, gain, pulled = jax.lax.map(own, (own_root, sites.precision, sites.linear))
    log_evidence = 0.5 * jnp.sum(centre**2) - jnp.sum(log_dets)
    if len(own_root) == len(root):
        return Whitening(half, through, centre, None, None, log_evidence)
    shared_half, log_det = half_covariance(root[0], jnp.sum(gain, axis=0))
    shared_centre = shared_half @ jnp.sum(pulled, axis=0)
    log_evidence += 0.5 * jnp.sum(shared_centre**2) - log_det
    return Whitening(half, through, centre, shared_half, shared_centre, log_evidence)


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


def log_posterior(w: Array, whitening: Whitening, sites: Sites, problem: Problem, lapse: Array | None) -> Array:
    """Return the log of the exact posterior density of w (p, t), without the hyperparameters' own prior."""
    u = whitening.utilities(w)
    weight = jnp.concatenate([jnp.zeros(0), *(batch.weight for batch in problem.batches)])
    in_sites = jnp.sum(sites.linear * u) - 0.5 * jnp.einsum("di,dij,dj->", u, sites.precision, u)
    exact = weight @ log_choices(u, problem, lapse)
    return exact - in_sites + whitening.log_evidence - 0.5 * jnp.sum(w**2)
