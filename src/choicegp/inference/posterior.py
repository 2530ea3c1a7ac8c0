"""The Gaussian posterior of the utilities at the shown objects, and at any others (eq:pred)."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from choicegp.compute.programs import program
from choicegp.inference.expectation import expected_log_likelihood, marginals
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects, UtilityPrior

FIRST_JITTER = 1e-9
LAST_JITTER = 1e-2
_LEAST_VARIANCE = 1e-30  # a covariance of zeros too has a factor: a linear kernel where no feature varies


class Factor(NamedTuple):
    """Cholesky factors (d, t, t) of the prior covariance K + jitter, and the jitter (d,) that they took."""

    root: Array
    jitter: Array


class GaussianMoments(NamedTuple):
    """The posterior that prior and sites make."""

    mean: Array  # (d, t)
    covariance: Array  # (d, t, t)
    dual: Array  # (d, t) K^-1 mean
    half: Array  # (d, t, t) W with covariance = W^T W
    kl: Array  # (d,) KL divergence from the prior


def prior_covariance(prior: UtilityPrior, problem: Problem) -> Array:
    """Return K (d, t, t) at the problem's objects; padding is independent of everything, with variance 1."""
    valid = problem.valid
    covariance = prior.covariance(problem.objects, problem.objects)
    return jnp.where(valid[:, None] & valid[None, :], covariance, 0.0) + jnp.diag(1.0 * ~valid)


def factorise(covariance: Array, jitter: Array) -> Factor:
    """Cholesky with a ladder: jitter times the mean variance is added, ten times more after each failure."""
    n = covariance.shape[-1]

    def one(args: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, start = args
        scale = jnp.maximum(jnp.trace(matrix) / n, _LEAST_VARIANCE)

        def failed(carry: tuple[Array, Array]) -> Array:
            return ~jnp.all(jnp.isfinite(carry[0])) & (carry[1] < LAST_JITTER)

        def climb(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            raised = carry[1] * 10.0
            return jnp.linalg.cholesky(matrix + raised * scale * jnp.eye(n)), raised

        return jax.lax.while_loop(failed, climb, (jnp.full_like(matrix, jnp.nan), start / 10.0))

    return Factor(*jax.lax.map(one, (covariance, jitter)))


def condition(factor: Factor, sites: Sites) -> GaussianMoments:
    """Combine prior and sites: B = I + L^T Λ L, S = L B^-1 L^T, m = S η, one utility after the other.

    A map over single matrices rather than a batched call: batched LAPACK deadlocked in one release of jaxlib.
    """

    def one(args: tuple[Array, Array, Array]) -> GaussianMoments:
        root, precision, linear = args
        b = jnp.eye(root.shape[0]) + root.T @ (precision @ root)
        b_root = jnp.linalg.cholesky(b)
        half = solve_triangular(b_root, root.T, lower=True)
        covariance = half.T @ half
        mean = covariance @ linear
        dual = linear - precision @ mean  # (K^-1 + Λ) m = η
        # tr(K^-1 S) - t = -tr(Λ S)
        kl = 0.5 * (2.0 * jnp.sum(jnp.log(jnp.diag(b_root))) - jnp.sum(precision * covariance) + mean @ dual)
        return GaussianMoments(mean, covariance, dual, half, kl)

    return jax.lax.map(one, (factor.root, sites.precision, sites.linear))


class Draws(NamedTuple):
    """Draws of the utilities at the shown objects, as what predicts others."""

    dual: Array  # (S, d, t) K^-1 u of each draw u
    inverse: Array  # (d, t, t) K^-1: what knowing u takes off the prior covariance


class Posterior(eqx.Module):
    """Gaussian posterior of the utilities, ready to predict: nothing is factorised again.

    Attributes
    ----------
    prior : UtilityPrior
    objects : Objects
        The objects that were shown.
    mean : Array (d, t)
        Posterior means at those objects.
    dual : Array (d, t)
        K^-1 mean.
    gain : Array (d, t, t)
        K^-1 - K^-1 S K^-1 = Λ - Λ S Λ: what the choices take off the prior covariance.
    lapse : Array or None
    draws : Draws or None
        Where the posterior was sampled; the other attributes are then the moments of the draws.
    """

    prior: UtilityPrior
    objects: Objects
    mean: Array
    dual: Array
    gain: Array
    lapse: Array | None = None
    draws: Draws | None = None

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return self.dual.shape[0]

    @property
    def is_sparse(self) -> bool:
        """Whether inducing points, others for each utility, stand for the shown objects."""
        return np.ndim(self.objects.X) == 3

    @partial(jax.jit, inline=True)
    def mean_at(self, objects: Objects) -> Array:
        """Return the posterior means (d, n) at other objects."""
        return jnp.einsum("dtn,dt->dn", self.prior.covariance(self.objects, objects), self.dual)

    @partial(jax.jit, inline=True)
    def mean_and_variance_at(self, objects: Objects) -> tuple[Array, Array]:
        """Return posterior means and variances, each (d, n)."""
        cross = self.prior.covariance(self.objects, objects)
        shrink = jnp.einsum("dtn,dtn->dn", cross, self.gain @ cross)
        variance = jnp.maximum(self.prior.variance(objects) - shrink, 0.0)
        return jnp.einsum("dtn,dt->dn", cross, self.dual), variance

    @partial(jax.jit, inline=True)
    def mean_and_covariance_at(self, objects: Objects) -> tuple[Array, Array]:
        """Return posterior means (d, n) and covariances (d, n, n)."""
        cross = self.prior.covariance(self.objects, objects)
        shrink = jnp.swapaxes(cross, 1, 2) @ (self.gain @ cross)
        covariance = self.prior.covariance(objects, objects) - shrink
        return jnp.einsum("dtn,dt->dn", cross, self.dual), 0.5 * (covariance + jnp.swapaxes(covariance, 1, 2))


def gain_of(half: Array, precision: Array) -> Array:
    """Λ - Λ S Λ for one utility, from S = W^T W."""
    through = half @ precision
    return precision - through.T @ through


class Conclusion(NamedTuple):
    """What is known at the end of an inference: the posterior and its evidence lower bound."""

    posterior: Posterior
    bound: float


def conclude(
    prior: UtilityPrior,
    problem: Problem,
    factor: Factor,
    sites: Sites,
    normals: tuple[np.ndarray, ...],
    lapse: Array | None,
) -> Conclusion:
    """Make the posterior that prior and sites define, as plain arrays without the padding, and score it.

    Every inference is scored here, on points it has not seen, without hyperpriors.
    """
    mean, dual, gain, bound = (np.asarray(part) for part in _conclude(factor, sites, problem, normals, lapse))
    n = problem.n_objects
    objects = Objects(problem.objects.X[:n], problem.objects.codes[:n])
    arrays = Posterior(prior, objects, mean[:, :n], dual[:, :n], gain[:, :n, :n], lapse)  # type: ignore[arg-type]
    return Conclusion(jax.tree.map(np.asarray, arrays), float(bound))


@program
def _conclude(
    factor: Factor, sites: Sites, problem: Problem, normals: tuple[Array, ...], lapse: Array | None
) -> tuple[Array, Array, Array, Array]:
    # One program, so that the posterior is made, and compiled, once.
    moments = condition(factor, sites)
    gain = jax.lax.map(lambda args: gain_of(*args), (moments.half, sites.precision))
    bound = evidence_bound(moments.mean, moments.covariance, moments.kl, problem, normals, lapse)
    return moments.mean, moments.dual, gain, bound


def evidence_bound(
    mean: Array, covariance: Array, kl: Array, problem: Problem, normals: tuple[Array, ...], lapse: Array | None
) -> Array:
    """Return the ELBO: sum_k E_q[log p(C_k | A_k, u)] - KL(q | prior), without hyperpriors."""
    bound = -jnp.sum(kl)
    for batch, draws in zip(problem.batches, normals, strict=True):
        marginal = marginals(mean, covariance, batch)
        bound += jnp.sum(batch.weight * expected_log_likelihood(marginal, batch, draws, lapse))
    return bound


def factorise_on_host(covariance: np.ndarray) -> Factor:
    """Do as `factorise` does, in NumPy: nothing is compiled for the first factors of a fit."""
    n = covariance.shape[-1]
    roots, jitters = [], []
    for matrix in covariance:
        jitter, scale = FIRST_JITTER, max(np.trace(matrix) / n, _LEAST_VARIANCE)
        while True:
            try:
                roots.append(np.linalg.cholesky(matrix + jitter * scale * np.eye(n)))
                break
            except np.linalg.LinAlgError:
                jitter *= 10.0
                if jitter > LAST_JITTER:
                    roots.append(np.full((n, n), np.nan))
                    break
        jitters.append(jitter)
    return Factor(np.array(roots), np.array(jitters))  # type: ignore[arg-type]


def prior_root(posterior: Posterior) -> np.ndarray:
    """Return L (d, t, t), the Cholesky factor of the prior covariance at the shown objects."""
    covariance = posterior.prior.covariance(posterior.objects, posterior.objects)
    return np.asarray(factorise_on_host(np.asarray(covariance)).root)


def posterior_of_draws(
    posterior: Posterior, utilities: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> Posterior:
    """Replace the utilities of a posterior by draws (S, d, t) of them with these means (d, t) and covariances."""
    inverse_root = np.linalg.inv(prior_root(posterior))
    inverse = np.swapaxes(inverse_root, 1, 2) @ inverse_root
    through = inverse @ covariance @ inverse
    gain = inverse - 0.5 * (through + np.swapaxes(through, 1, 2))
    dual = np.einsum("dij,dj->di", inverse, mean)
    draws = Draws(np.einsum("dij,sdj->sdi", inverse, utilities), inverse)  # type: ignore[arg-type]
    return Posterior(posterior.prior, posterior.objects, mean, dual, gain, posterior.lapse, draws)  # type: ignore[arg-type]
