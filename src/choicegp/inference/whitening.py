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
from jax.scipy.linalg import solve_triangular

from choicegp.inference.posterior import half_covariance
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites


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
        return half, b_root, through, centre, precision - through.T @ through, linear - through.T @ centre

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
