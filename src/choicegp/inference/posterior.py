"""The posterior of the utilities at the shown objects, and at any others (eq:pred).

With a shared part, u_i = f_0 + f_i, the sites of a utility act on the sum.  Given f_0 the utilities are independent,
and each is what it would be without it: with Q_i = (K_i + Λ_i^-1)^-1 the shared part has precision
K_0^-1 + sum_i Q_i, and

    Cov(u_i, u_j) = A_i S_0 A_j^T + [i = j] (K_i - K_i Q_i K_i),    A_i = I - K_i Q_i,

exact given the sites, with d + 1 factorisations of the order of the objects where independent utilities have d.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from choicegp.compute.programs import program
from choicegp.data.packing import padded_size
from choicegp.inference.expectation import SharedCovariance, expected_log_likelihood, marginals
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites, gram, seen_through
from choicegp.model.prior import Objects, UtilityPrior

FIRST_JITTER = 1e-9
LAST_JITTER = 1e-2
N_GAUSSIAN = 512  # draws of a Gaussian posterior with a shared part
_NOTHING = 1e-20  # relative size of a covariance that counts as zero
LEAST_VARIANCE = 1e-30  # a covariance of zeros too has a factor: a linear kernel where no feature varies


class Factor(NamedTuple):
    """Cholesky factors (p, t, t) of the prior covariance K + jitter, and the jitter (p,) that they took."""

    root: Array
    jitter: Array
    covariance: Array  # what the roots are of, jitter included


class GaussianMoments(NamedTuple):
    """The posterior that prior and sites make."""

    mean: Array  # (d, t)
    covariance: Array | SharedCovariance  # (d, t, t); with a shared part, of all utilities together
    dual: Array  # (p, t) K^-1 mean of each part
    half: Array  # (p, t, t) W; W^T W is the covariance of a part, of one's own given the shared part
    kl: Array  # KL divergence from the prior, (d,) or one for all
    gain: Array | None = None  # (d, t, t) Q, where there is a shared part
    shared_gain: Array | None = None  # (d, t, t) W_0 Q, W_0 that of the shared part


def prior_covariance(prior: UtilityPrior, problem: Problem) -> Array:
    """Return K (p, t, t) at the problem's objects; padding is independent of everything, with variance 1."""
    valid = problem.valid
    covariance = prior.covariance(problem.objects, problem.objects)
    # Far below rounding errors: the products of such numbers leave the range in which a CPU is quick (a step of a
    # sampler took ten times as long).
    counts = jnp.abs(covariance) > _NOTHING * jnp.max(covariance, axis=(1, 2), keepdims=True)
    return jnp.where(counts & valid[:, None] & valid[None, :], covariance, 0.0) + jnp.diag(1.0 * ~valid)


def factorise(covariance: Array, jitter: Array, scale: Array | None = None) -> Factor:
    """Cholesky with a ladder: jitter times ``scale`` is added, ten times more after each failure.

    The scale (p,) is by default the mean variance; a small difference of covariances has the rounding errors of these.
    """
    n = covariance.shape[-1]
    size = jnp.trace(covariance, axis1=1, axis2=2) / n if scale is None else scale

    def one(args: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, start, scale = args
        scale = jnp.maximum(scale, LEAST_VARIANCE)

        def failed(carry: tuple[Array, Array]) -> Array:
            return ~jnp.all(jnp.isfinite(carry[0])) & (carry[1] < LAST_JITTER)

        def climb(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            raised = carry[1] * 10.0
            return jnp.linalg.cholesky(matrix + raised * scale * jnp.eye(n)), raised

        root, last = jax.lax.while_loop(failed, climb, (jnp.full_like(matrix, jnp.nan), start / 10.0))
        return root, last, matrix + last * scale * jnp.eye(n)

    return Factor(*jax.lax.map(one, (covariance, jitter, size)))


def condition(factor: Factor, sites: Sites) -> GaussianMoments:
    """Combine prior and sites: B = I + L^T Λ L, S = L B^-1 L^T, m = S η, one utility after the other.

    A map over single matrices rather than a batched call: batched LAPACK deadlocked in one release of jaxlib.
    """
    if len(factor.root) > len(sites.precision):
        return _condition_with_shared(factor, sites)

    def one(args: tuple[Array, Array, Array]) -> GaussianMoments:
        root, precision, linear = args
        half, b_root = half_covariance(root, precision)
        covariance = gram(half)
        mean = covariance @ linear
        dual = linear - precision @ mean  # (K^-1 + Λ) m = η
        # tr(K^-1 S) - t = -tr(Λ S)
        kl = half_log_det(b_root) + 0.5 * (mean @ dual - jnp.sum(precision * covariance))
        return GaussianMoments(mean, covariance, dual, half, kl)

    return jax.lax.map(one, (factor.root, sites.precision, sites.linear))


def half_covariance(root: Array, precision: Array) -> tuple[Array, Array]:
    """W with W^T W = (K^-1 + Λ)^-1, and the Cholesky factor of B = I + L^T Λ L."""
    b_root = jnp.linalg.cholesky(jnp.eye(root.shape[0]) + seen_through(root, precision))
    return solve_triangular(b_root, root.T, lower=True), b_root


def half_log_det(b_root: Array) -> Array:
    """Half the log determinant of the matrix with this Cholesky factor."""
    return jnp.sum(jnp.log(jnp.diag(b_root)))


def _condition_with_shared(factor: Factor, sites: Sites) -> GaussianMoments:
    def own(args: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        root, precision, linear = args
        half, b_root = half_covariance(root, precision)
        through = half @ precision
        # What the sites of u_i say about f_0, with f_i integrated out.
        pulled = linear - through.T @ (half @ linear)
        return half, precision - gram(through), pulled, half_log_det(b_root), jnp.sum(through * half)

    halves, gain, pulled, log_dets, of_own = jax.lax.map(own, (factor.root[1:], sites.precision, sites.linear))
    half, b_root = half_covariance(factor.root[0], jnp.sum(gain, axis=0))
    shared = half.T @ (half @ jnp.sum(pulled, axis=0))

    def spread(args: tuple[Array, ...]) -> tuple[Array, ...]:
        own_half, own_gain, covariance, precision, linear = args
        mean = shared + own_half.T @ (own_half @ (linear - precision @ shared))
        taken = half @ own_gain
        # A^T = I - Q K, and A^T Λ = Q: so tr(Λ A S_0 A^T) is a sum of products.
        spread = half - taken @ covariance
        return mean, spread, taken, jnp.sum(taken * spread)

    args = (halves, gain, factor.covariance[1:], sites.precision, sites.linear)
    mean, spreads, taken, of_shared = jax.lax.map(spread, args)
    dual = sites.linear - jnp.einsum("dij,dj->di", sites.precision, mean)
    traced = jnp.sum(of_own) + jnp.sum(of_shared)
    kl = half_log_det(b_root) + jnp.sum(log_dets) + 0.5 * (jnp.sum(mean * dual) - traced)
    dual = jnp.concatenate([jnp.sum(dual, axis=0, keepdims=True), dual])
    root = jnp.concatenate([half[None], halves])
    return GaussianMoments(mean, SharedCovariance(spreads, halves), dual, root, kl, gain, taken)


def gains(moments: GaussianMoments, sites: Sites) -> Array:
    """Return what the choices take off the prior covariance of each part, (p, t, t): K^-1 - K^-1 S K^-1."""
    if moments.gain is None or moments.shared_gain is None:
        return jax.lax.map(lambda args: gain_of(*args), (moments.half, sites.precision))
    gain, taken = (
        jnp.concatenate([jnp.sum(own, axis=0, keepdims=True), own]) for own in (moments.gain, moments.shared_gain)
    )
    return jax.lax.map(lambda args: args[0] - gram(args[1]), (gain, taken))


class Draws(NamedTuple):
    """Draws of the parts of the utilities at the shown objects, as what predicts others.

    Each of H settings of the hyperparameters has S draws; all draws have the same weight.
    """

    prior: UtilityPrior  # every parameter has a leading axis of length H
    dual: Array  # (H, S, p, t) K^-1 f of each draw f
    inverse: Array  # (H, p, t, t) K^-1: what knowing f takes off the prior covariance


class Posterior(eqx.Module):
    """Posterior of the utilities, ready to predict: nothing is factorised again.

    Attributes
    ----------
    prior : UtilityPrior
        With the most probable hyperparameters.
    objects : Objects
        The objects that were shown.
    mean : Array (d, t)
        Means of the Gaussian posterior at those objects.
    dual : Array (p, t)
        K^-1 mean of each part.
    gain : Array (d, t, t)
        (K + Λ^-1)^-1, K the covariance of a utility's own part: what the choices take off it, given the shared part.
    lapse : Array or None
    draws : Draws or None
        What predictions use, where there are draws: always with a shared part.
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
        return self.mean.shape[0]

    @property
    def n_sampled(self) -> int:
        """Number of independent normals for each object of a set, from which its utilities are sampled."""
        return self.prior.n_parts

    @property
    def has_sites(self) -> bool:
        """Whether prior and sites make the Gaussian posterior; not so in files of draws from earlier versions."""
        return self.gain.size > 0

    @property
    def is_sparse(self) -> bool:
        """Whether inducing points, others for each utility, stand for the shown objects."""
        return np.ndim(self.objects.X) == 3

    @partial(jax.jit, inline=True)
    def mean_at(self, objects: Objects) -> Array:
        """Return the posterior means (d, n) at other objects."""
        if self.draws is None:
            return jnp.einsum("dtn,dt->dn", self.prior.covariance(self.objects, objects), self.dual)
        return jnp.mean(jax.lax.map(lambda draws: _mean_of(draws, self.objects, objects), self.draws), axis=0)

    @partial(jax.jit, inline=True)
    def mean_and_variance_at(self, objects: Objects) -> tuple[Array, Array]:
        """Return posterior means and variances, each (d, n)."""
        if self.draws is None:
            cross = self.prior.covariance(self.objects, objects)
            shrink = jnp.einsum("dtn,dtn->dn", cross, self.gain @ cross)
            variance = jnp.maximum(self.prior.variance(objects) - shrink, 0.0)
            return jnp.einsum("dtn,dt->dn", cross, self.dual), variance
        mean, square = jax.lax.map(lambda draws: _squares_of(draws, self.objects, objects), self.draws)
        centre = jnp.mean(mean, axis=0)
        return centre, jnp.maximum(jnp.mean(square, axis=0) - centre**2, 0.0)

    @partial(jax.jit, inline=True)
    def mean_and_covariance_at(self, objects: Objects) -> tuple[Array, Array]:
        """Return means (d, n) and covariances (d, n, n) of independent Gaussian utilities."""
        cross = self.prior.covariance(self.objects, objects)
        shrink = jnp.swapaxes(cross, 1, 2) @ (self.gain @ cross)
        covariance = self.prior.covariance(objects, objects) - shrink
        return jnp.einsum("dtn,dt->dn", cross, self.dual), 0.5 * (covariance + jnp.swapaxes(covariance, 1, 2))


def _mean_of(draws: Draws, shown: Objects, objects: Objects) -> Array:
    """Return the means (d, n) by the draws of one setting."""
    cross = draws.prior.covariance(shown, objects)
    return draws.prior.total(jnp.einsum("ptn,pt->pn", cross, jnp.mean(draws.dual, axis=0)))


def _squares_of(draws: Draws, shown: Objects, objects: Objects) -> tuple[Array, Array]:
    """Return means and mean squares (d, n) by the draws of one setting."""
    cross = draws.prior.covariance(shown, objects)
    left = draws.prior.variance(objects) - jnp.einsum("ptn,ptn->pn", cross, draws.inverse @ cross)
    drawn = jax.vmap(draws.prior.total)(jnp.einsum("ptn,spt->spn", cross, draws.dual))
    return jnp.mean(drawn, axis=0), jnp.mean(drawn**2, axis=0) + draws.prior.total(jnp.maximum(left, 0.0))


def gain_of(half: Array, precision: Array) -> Array:
    """Λ - Λ S Λ for one utility, from S = W^T W."""
    through = half @ precision
    return precision - gram(through)


class Conclusion(NamedTuple):
    """What is known at the end of an inference: the posterior and its evidence lower bound."""

    posterior: Posterior
    bound: float


def conclude(
    prior: UtilityPrior, problem: Problem, factor: Factor, sites: Sites, normals: tuple[np.ndarray, ...],
    lapse: Array | None, seed: int = 0,
) -> Conclusion:  # fmt: skip
    """Make the posterior that prior and sites define, as plain arrays without the padding, and score it.

    Every inference is scored here, on points it has not seen, without hyperpriors.
    """
    standard = None
    if prior.shared:
        # In pairs of opposite signs, so that the draws have the posterior's means.
        half = np.random.default_rng(seed).normal(size=(N_GAUSSIAN // 2, *factor.root.shape[:2]))
        standard = np.concatenate([half, -half])
    found = _conclude(factor, sites, problem, normals, lapse, standard)
    mean, dual, gain, bound = (np.asarray(part) for part in found[:4])
    n = problem.n_objects
    objects = Objects(problem.objects.X[:n], problem.objects.codes[:n])
    draws = None
    if found[4] is not None:
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], prior)
        draws = draws_of(one, objects, np.asarray(found[4])[None, ..., :n])
    arrays = Posterior(prior, objects, mean[:, :n], dual[:, :n], gain[:, :n, :n], lapse, draws)  # type: ignore[arg-type]
    return Conclusion(jax.tree.map(np.asarray, arrays), float(bound))


@partial(program, seldom=True)
def _conclude(
    factor: Factor, sites: Sites, problem: Problem, normals: tuple[Array, ...], lapse: Array | None,
    standard: Array | None,
) -> tuple[Array, Array, Array, Array, Array | None]:  # fmt: skip
    # One program, so that the posterior is made, and compiled, once.
    moments = condition(factor, sites)
    bound = evidence_bound(moments.mean, moments.covariance, moments.kl, problem, normals, lapse)
    if standard is None:
        return moments.mean, moments.dual, gains(moments, sites), bound, None
    assert moments.gain is not None
    return moments.mean, moments.dual, moments.gain, bound, _gaussian_duals(factor, sites, moments, standard)


def _gaussian_duals(factor: Factor, sites: Sites, moments: GaussianMoments, standard: Array) -> Array:
    """Turn standard normals (S, p, t) into K^-1 f (S, p, t) of draws f of the parts; the first part is shared."""
    root, half = factor.root[0], moments.half
    shared = root @ (root.T @ moments.dual[0]) + standard[:, 0] @ half[0]

    def own(args: tuple[Array, ...]) -> Array:
        own_root, own_half, precision, linear, normal = args
        part = ((linear - shared @ precision) @ own_half.T + normal) @ own_half
        return cho_solve((own_root, True), part.T).T

    normals = jnp.moveaxis(standard[:, 1:], 1, 0)
    duals = jax.lax.map(own, (factor.root[1:], half[1:], sites.precision, sites.linear, normals))
    first = cho_solve((root, True), shared.T).T
    return jnp.moveaxis(jnp.concatenate([first[None], duals]), 0, 1)


def evidence_bound(
    mean: Array, covariance: Array | SharedCovariance, kl: Array, problem: Problem, normals: tuple[Array, ...],
    lapse: Array | None,
) -> Array:  # fmt: skip
    """Return the ELBO: sum_k E_q[log p(C_k | A_k, u)] - KL(q | prior), without hyperpriors."""
    bound = -jnp.sum(kl)
    for batch, draws in zip(problem.batches, normals, strict=True):
        marginal = marginals(mean, covariance, batch)
        bound += jnp.sum(batch.weight * expected_log_likelihood(marginal, batch, draws, lapse))
    return bound


def factorise_on_host(covariance: np.ndarray) -> Factor:
    """Return Cholesky factors of covariances, in NumPy: nothing is compiled for the first factors of a fit.

    Parameters
    ----------
    covariance : ndarray (p, t, t)

    Returns
    -------
    Factor
        Roots, the jitter that each needed, and the matrices with it.

    Examples
    --------
    >>> factorise_on_host(np.array([[[4.0]]])).root.round(3).tolist()
    [[[2.0]]]
    """
    n = covariance.shape[-1]
    roots, jitters, matrices = [], [], []
    for matrix in covariance:
        jitter, scale = FIRST_JITTER, max(np.trace(matrix) / n, LEAST_VARIANCE)
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
        matrices.append(matrix + jitter * scale * np.eye(n))
    return Factor(np.array(roots), np.array(jitters), np.array(matrices))  # type: ignore[arg-type]


def draws_of(prior: UtilityPrior, objects: Objects, dual: np.ndarray) -> Draws:
    """Complete draws of the parts at the shown objects, given as K^-1 f (H, S, p, t), for H settings of the prior."""
    from scipy.linalg.lapack import dpotri

    n, inverses = len(objects.codes), []
    # Padded for this one product: data that grow object by object would compile it again for each number of objects.
    rows = np.pad(np.arange(n), (0, padded_size(n, 4) - n))
    padded = Objects(np.asarray(objects.X)[..., rows, :], np.asarray(objects.codes)[rows])
    for h in range(len(dual)):
        setting = jax.tree.map(lambda leaf, h=h: leaf[h], prior)
        covariance = np.asarray(setting.covariance(padded, padded))[:, :n, :n]
        for root in np.asarray(factorise_on_host(covariance).root):
            # Seen by columns, the transpose of a lower factor is an upper one: nothing is copied.
            half = np.triu(dpotri(root.T, lower=0)[0])
            inverses.append(half + np.triu(half, 1).T)
    return Draws(prior, dual, np.reshape(inverses, (len(dual), -1, n, n)))  # type: ignore[arg-type]
