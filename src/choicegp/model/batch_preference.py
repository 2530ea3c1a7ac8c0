"""The best object of a set under Gaussian noise, eq:likelihoodbatch (Siivola et al. 2021), and its derivatives.

Every object of a set gets noise of its own, N(0, σ²), and the best is the one whose noisy utility is the largest.
Given the noise w of the best object o itself, it is ahead of each rejected v independently:

    p(o | A, u) = E_w[prod_v Φ((u(o) + w - u(v)) / σ)],    w ~ N(0, σ²).

Over the objects of the set these probabilities sum to one.  The integrand is log-concave in w, with curvature of at
least 1 / σ², so Gauss-Hermite nodes are put around its peak and spread as it is: relative accuracy is kept however far
o is behind, where nodes around zero would miss all of the mass.  Nothing leaves the logs.  With π the distribution of
w given that o was the best, c_v = (u(o) - u(v)) / σ and h = φ / Φ,

    d log p / dc_v = E_π[h_v],    -d² log p / dc_v dc_v' = δ_vv' E_π[h_v (c_v + w + h_v)] - Cov_π(h_v, h_v').

The paper states that its own likelihood with one utility, prod_v Φ((u(o) - u(v)) / σ), is a lower bound.  It is not:
with one rejected object and u(o) - u(v) = σ the batch likelihood is Φ(1 / sqrt 2) = 0.760, and Φ(1) = 0.841.  What
holds is

    p(o | A, u) >= prod_v Φ((u(o) - u(v)) / (sqrt 2 σ)),

with equality for one rejected object: the factors increase in w, so the mean of their product is at least the product
of their means, and E_w[Φ((c + w) / σ)] = Φ(c / (sqrt 2 σ)).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from choicegp.model.derivatives import ExpectedDerivatives
from choicegp.model.log_sums import log_sum_exp, shares
from choicegp.model.probit import log_probit, log_probit_and_hazard
from choicegp.model.shapes import AnyArray, Masks, MasksOfSets

N_NODES = 32
"""Nodes of the quadrature: log p and its gradient are right to 3e-10 for sets of up to ten objects, 8e-10 for 32."""

_STEPS = 6  # of Newton's method to the peak: from the left it cannot overshoot


def _gauss_hermite() -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Nodes x and logs of weights for the integral of a function over the whole line, around 0 on scale 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
    # Weights belong to exp(-x²/2) as a factor of the integrand, which is put back; the noise has 1 / sqrt(2π).
    return nodes, np.log(weights) + 0.5 * nodes**2 - 0.5 * math.log(2.0 * math.pi)


def _noise_nodes(
    ahead: Float[Array, "r *batch"], rejected: Bool[Array, "r *batch"]
) -> tuple[Float[Array, "Q *batch"], Float[Array, "Q *batch"]]:
    """Place nodes (Q, ...) in the noise of the best object, with the logs of weight times density.

    ``ahead`` (r, ...) holds c_v.  The slope of the log integrand, sum_v h(c_v + w) - w, is convex and falls, so
    Newton's steps from any point left of the peak rise to it.  With h(z) > -z such a point is half the largest lag.
    """

    def slope_and_curvature(w: Array) -> tuple[Array, Array]:
        z = ahead + w[None]
        hazard = jnp.where(rejected, log_probit_and_hazard(z)[2], 0.0)
        bend = jnp.where(rejected, jnp.clip(hazard * (z + hazard), 0.0, 1.0), 0.0)
        return jnp.sum(hazard, axis=0) - w, 1.0 + jnp.sum(bend, axis=0)

    def rise(_: int, w: Array) -> Array:
        slope, curvature = slope_and_curvature(w)
        return w + slope / curvature

    start = 0.5 * jnp.max(jnp.where(rejected, -ahead, 0.0), axis=0, initial=0.0)
    peak = jax.lax.fori_loop(0, _STEPS, rise, start)
    spread = jax.lax.rsqrt(slope_and_curvature(peak)[1])
    x, log_weight = (part.reshape((-1,) + (1,) * peak.ndim) for part in _gauss_hermite())
    w = peak[None] + spread[None] * x
    return w, log_weight + jnp.log(spread)[None] - 0.5 * w * w


def log_best(u: Float[AnyArray, "1 a *batch"], present: Masks, best: Masks) -> Float[Array, "*batch"]:
    """Return log p(o | A, u), the log probability that o is the best of the set, by eq:likelihoodbatch.

    Parameters
    ----------
    u : Array (1, a, ...)
        Utilities of the set's objects in units of σ; trailing axes are a batch.
    present : bool Array (a, ...)
        Which rows are objects; the rest is padding.
    best : bool Array (a, ...)
        One object of the set.

    Returns
    -------
    Array (...)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> u = jnp.array([[1.0, 0.0]])  # the first object is better by one σ
    >>> both = jnp.array([True, True])
    >>> float(jnp.exp(log_best(u, both, jnp.array([True, False])))).__round__(3)  # Φ(1 / sqrt 2), not Φ(1)
    0.76
    """
    present, best = (jnp.reshape(mask, mask.shape + (1,) * (u.ndim - 1 - mask.ndim)) for mask in (present, best))
    own = jnp.where(present, u[0], 0.0)  # whatever stands in the padding, NaN too
    ahead = jnp.sum(jnp.where(best, own, 0.0), axis=0, keepdims=True) - own
    rejected = jnp.broadcast_to(present & ~best, ahead.shape)
    # The integral does not depend on where its nodes are: they need no derivative.
    w, log_mass = _noise_nodes(jax.lax.stop_gradient(ahead), rejected)
    beats = jnp.where(rejected[None], log_probit(ahead[None] + w[:, None]), 0.0)
    return log_sum_exp(log_mass + jnp.sum(beats, axis=1))


def expected_best_derivatives(
    u: Float[AnyArray, "1 a m S"], present: MasksOfSets, best: MasksOfSets
) -> ExpectedDerivatives:
    """Average value, gradient and negative Hessian of log p(o | A, u) over samples.

    Parameters
    ----------
    u : Array (1, a, m, S)
        S samples of the utilities of the a objects of each of m sets, in units of σ.
    present, best : bool Array (a, m)
        The best object of a set comes first, then the rejected ones, then padding.

    Returns
    -------
    ExpectedDerivatives
        The curvature is positive semi-definite, because p is log-concave in u.
    """
    own = jnp.where(present[..., None], u[0], 0.0)
    ahead = own[:1] - own[1:]
    rejected = jnp.broadcast_to((present & ~best)[1:, :, None], ahead.shape)
    w, log_mass = _noise_nodes(ahead, rejected)
    z = ahead[None] + w[:, None]  # (Q, r, m, S)
    logs, _, hazard, _ = log_probit_and_hazard(z)
    hazard = jnp.where(rejected[None], hazard, 0.0)
    mass = log_mass + jnp.sum(jnp.where(rejected[None], logs, 0.0), axis=1)
    value = log_sum_exp(mass)
    # π; exp(mass - value) would not quite sum to one where the value is huge and so is its last digit.
    share = shares(mass)[:, None]
    slope = jnp.sum(share * hazard, axis=0)
    bend = jnp.sum(share * jnp.clip(hazard * (z + hazard), 0.0, 1.0), axis=0)
    moved = hazard - slope[None]
    together = jnp.einsum("qrms,qtms->rtm", share * moved, moved) / u.shape[-1]
    inner = jnp.eye(len(ahead))[..., None] * jnp.mean(bend, axis=-1)[:, None] - together
    gradient = jnp.mean(slope, axis=-1)
    nothing = jnp.zeros_like(value[:, 0])
    return ExpectedDerivatives(
        jnp.mean(value, axis=-1),
        jnp.concatenate([jnp.sum(gradient, axis=0, keepdims=True), -gradient])[None],
        _of_objects(inner)[None],
        nothing,
    )


def _of_objects(inner: Float[Array, "r r m"]) -> Float[Array, "r+1 r+1 m"]:
    """Map a matrix (r, r, m) over the differences u(o) - u(v) to the objects, o first: (r + 1, r + 1, m)."""
    rows = jnp.concatenate([jnp.sum(inner, axis=0, keepdims=True), -inner])
    return jnp.concatenate([jnp.sum(rows, axis=1, keepdims=True), -rows], axis=1)
