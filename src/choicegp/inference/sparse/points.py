"""The posterior of the inducing points, whitened, and of the utilities of sets that it makes.

Without a shared part the utilities are independent, and each has the posterior N(m, (I + R)^-1) of its own v.  With
one, u_i = A_0 v_0 + A_i v_i and independent rests, and a site of u_i acts on the sum: the precision of all v together
has the blocks R_0 = sum_ki A_0k^T P_ki A_0k, R_i = sum_k A_ik^T P_ki A_ik and R_0i = sum_k A_0k^T P_ki A_ik.  Given v_0
the others are independent, so that nothing larger than the inducing points of one part is factorised:

    v_i | v_0 ~ N(C_i (h_i - R_0i^T v_0), C_i),    C_i = (I + R_i)^-1,
    v_0 has precision I + R_0 - sum_i R_0i C_i R_0i^T,

which is exact given the sites, as in `choicegp.inference.posterior`.

A threshold (`choicegp.model.threshold`) is the last inducing point, whose features say nothing: its prior is
independent of all others', and so K_ZZ, L and A have blocks of their own for it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from choicegp.inference.expectation import Marginals, of_differences
from choicegp.inference.sparse.feed import Sets
from choicegp.model.prior import THRESHOLD, Objects, UtilityPrior
from choicegp.model.threshold import is_threshold

LEAST_VARIANCE = 1e-12  # a covariance of zeros too has a factor: a linear kernel where no feature varies


class Whitened(NamedTuple):
    """The posterior of v, from which v_i = m_i + H_i^T e_i - G_i^T e_0 is drawn by standard normals e."""

    mean: Array  # (p, M) m
    half: Array  # (p, M, M) H; H^T H is the covariance, of one's own part given the shared one
    kl: Array  # divergence from the prior, (d,) or one for all
    taken: Array | None = None  # (d, M, M) G, where there is a shared part


def posterior_of_points(precision: Array, linear: Array, cross: Array | None = None) -> Whitened:
    """Return the posterior of v that the sites make, one part after the other."""
    if cross is not None:
        return _with_shared(precision, linear, cross)

    def one(args: tuple[Array, Array]) -> Whitened:
        r, h = args
        n = len(h)
        half, log_det = _inverse_half(r)
        mean = half.T @ (half @ h)
        kl = 0.5 * (jnp.sum(half * half) - n + log_det + mean @ mean)
        return Whitened(mean, half, kl)

    return jax.lax.map(one, (precision, linear))


def _inverse_half(precision: Array) -> tuple[Array, Array]:
    """Return H with H^T H = (I + R)^-1, and the log determinant of I + R."""
    n = len(precision)
    root = jnp.linalg.cholesky(precision + jnp.eye(n))
    return solve_triangular(root, jnp.eye(n), lower=True), 2.0 * jnp.sum(jnp.log(jnp.diag(root)))


def _with_shared(precision: Array, linear: Array, cross: Array) -> Whitened:
    def own(args: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        r, h, beside = args
        half, log_det = _inverse_half(r)
        return half, half @ beside.T, half @ h, log_det

    halves, through, centre, log_dets = jax.lax.map(own, (precision[1:], linear[1:], cross))
    flat = through.reshape(-1, through.shape[-1])
    half, log_det = _inverse_half(precision[0] - flat.T @ flat)
    shared = half.T @ (half @ (linear[0] - flat.T @ centre.ravel()))
    mean = jnp.einsum("dji,dj->di", halves, centre - through @ shared)
    taken = half @ jnp.swapaxes(through, 1, 2) @ halves
    mean, half = jnp.concatenate([shared[None], mean]), jnp.concatenate([half[None], halves])
    trace = jnp.sum(half * half) + jnp.sum(taken * taken)
    kl = 0.5 * (trace - mean.size + log_det + jnp.sum(log_dets) + jnp.sum(mean * mean))
    return Whitened(mean, half, kl, taken)


def points_as_objects(prior: UtilityPrior, points: Array) -> Objects:
    """Return the inducing points (p, M, c) as objects; the last is the threshold where there is one."""
    n = points.shape[1]
    is_last = np.arange(n) == n - 1
    return Objects(points, np.where(is_last & (prior.log_threshold_variance is not None), THRESHOLD, 0))


def inverse_roots(prior: UtilityPrior, points: Array, jitter: float) -> Array:
    """Return L^-1 (p, M, M) of the prior covariance at the inducing points."""
    objects, n = points_as_objects(prior, points), points.shape[1]
    covariance = prior.covariance(objects, objects)
    ridge = jitter * jnp.maximum(jnp.trace(covariance, axis1=1, axis2=2) / n, LEAST_VARIANCE)
    return _inverse_root(covariance + ridge[:, None, None] * jnp.eye(n))


@jax.custom_vjp
def _inverse_root(covariance: Array) -> Array:
    """Return W = L^-1 of each covariance L L^T."""

    def one(matrix: Array) -> Array:
        return solve_triangular(jnp.linalg.cholesky(matrix), jnp.eye(len(matrix)), lower=True)

    return jax.lax.map(one, covariance)


def _inverse_root_forward(covariance: Array) -> tuple[Array, Array]:
    inverse = _inverse_root(covariance)
    return inverse, inverse


def _inverse_root_backward(inverse: Array, slope: Array) -> tuple[Array]:
    """Pull a slope W' back to the covariance: W^T Φ(-W' W^T) W, Φ the lower triangle with half its diagonal.

    Three products where differentiating through factorisation and solve takes two solves more.
    """
    transposed = jnp.swapaxes(inverse, 1, 2)
    lower = -jnp.tril(slope @ transposed)
    half = lower - 0.5 * lower * jnp.eye(lower.shape[-1])
    back = transposed @ half @ inverse
    return (0.5 * (back + jnp.swapaxes(back, 1, 2)),)


_inverse_root.defvjp(_inverse_root_forward, _inverse_root_backward)


class Projected(NamedTuple):
    """What the posterior of the inducing points says about sets."""

    mean: Array  # (d, a, m) of the utilities
    covariance: Array  # (d, a, a, m) of each utility
    weights: Array  # (p, a, m, M) A
    joint: Array | None  # (d, d, a, a, m) covariances between utilities, where they have a shared part

    @property
    def differences(self) -> Marginals:
        """The marginals of the sets, as differences."""
        return of_differences(self.mean, self.covariance if self.joint is None else self.joint)


def project(prior: UtilityPrior, points: Array, inverse_root: Array, whitened: Whitened, sets: Sets) -> Projected:
    """Return the marginals of sets under the posterior of the inducing points."""
    a, m, c = sets.X.shape
    dtype = sets.X.dtype
    prior, points, inverse_root, whitened = jax.tree.map(
        lambda leaf: leaf.astype(dtype), (prior, points, inverse_root, whitened)
    )
    codes = jnp.zeros((a, m), int)
    if prior.log_threshold_variance is not None:
        codes = jnp.where(is_threshold(sets.present, sets.chosen), THRESHOLD, codes)
    cross = prior.covariance(Objects(sets.X.reshape(a * m, c), codes.ravel()), points_as_objects(prior, points))
    weights = cross @ jnp.swapaxes(inverse_root, 1, 2)
    mean = prior.total(jnp.einsum("pnj,pj->pn", weights, whitened.mean)).reshape(-1, a, m)

    def by_set(part: Array) -> Array:
        return part.reshape(-1, a, m, part.shape[-1])

    def squares(part: Array) -> Array:
        return jnp.einsum("damj,dbmj->dabm", part, part)

    spread = weights @ jnp.swapaxes(whitened.half, 1, 2)
    own = jax.vmap(lambda one: prior.covariance(one, one), 1, -1)(Objects(sets.X, codes))
    if whitened.taken is None:
        covariance = own + squares(by_set(spread)) - squares(by_set(weights))
        return Projected(mean, covariance, by_set(weights), None)
    common = by_set(spread[:1] - weights[1:] @ jnp.swapaxes(whitened.taken, 1, 2))
    rest = own - squares(by_set(weights))
    alone = rest[1:] + squares(by_set(spread[1:]))
    same = jnp.eye(len(alone), dtype=dtype)[:, :, None, None, None] * alone
    joint = jnp.einsum("iamj,kbmj->ikabm", common, common) + rest[0] + same
    return Projected(mean, squares(common) + rest[0] + alone, by_set(weights), joint)
