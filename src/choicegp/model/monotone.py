"""Utilities that may only rise, or only fall, with some features.

Such a feature has a part of its own in every utility, beside what the other features say:

    u_i(x) = f_i(other features) + sum_j g_ij(x_j).

g_ij is a line from knot to knot over the range of the feature, and continues as the first and the last of them beyond.
Its steps from knot to knot are independent and normal, before it is asked that none goes the wrong way: then it is so
at every object.  However large the steps are, half of each kind go the right way, so that asking for it says nothing
about their size.  A part that is shared by all utilities would have to be right for all of them at once: it has no g.

It is asked as the answer to a question would be: of two objects that differ in the feature alone, the one that must be
better is so in every utility, with an error far smaller than people make.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike

from choicegp.model.derivatives import ExpectedDerivatives
from choicegp.model.error_models import ErrorModel
from choicegp.model.kernels import Covariances, First, Kernel, Second, as_row
from choicegp.model.prior import UtilityPrior
from choicegp.model.probit import log_probit_and_hazard
from choicegp.model.shapes import AnyArray, Lapse, Masks, MasksOfSets, OfBatch, Parameters, Samples

NOISE = 0.1
"""Standard deviation of the error with which a step is known to go up, in units of the scale of people's errors."""
N_STEPS = 8
"""Steps over the range of a feature with a direction."""


class Monotone(Kernel):
    """A kernel of some features, and steps along each of the others, with which utilities rise or fall.

    Parameters
    ----------
    kernel : Kernel
        Of the features without a direction.
    signs : sequence of float
        For each feature 1 where utilities rise with it, -1 where they fall and 0 for those without a direction.
    low, high : sequence of float
        The range of each feature.
    variance : float
        Of g: half of the change of g over the range of a feature has about this variance.

    Examples
    --------
    A step along the first feature is the same whatever the second is:

    >>> from choicegp.model.kernels import RBF
    >>> kernel = Monotone(RBF(), [-1.0, 0.0], [0.0, 0.0], [2.0, 9.0]).for_features(2)
    >>> at = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 9.0], [1.0, 9.0]])
    >>> step = kernel.gram(at[:1], at) - kernel.gram(at[1:2], at)
    >>> bool(jnp.allclose(step[:, :2], step[:, 2:], atol=1e-6))
    True
    """

    kernel: Kernel
    log_variance: Parameters  # (k,)
    # Never learned:
    others: Float[AnyArray, "*d _"]  # numbers of the features without a direction
    columns: Float[AnyArray, "*d k"]  # and of those with one, with their ranges
    signs: Float[AnyArray, "*d k"]
    low: Float[AnyArray, "*d k"]
    high: Float[AnyArray, "*d k"]
    is_there: Float[AnyArray, "*d"]  # 0 for a part of the utilities that has no g

    def __init__(
        self, kernel: Kernel, signs: ArrayLike = (), low: ArrayLike = (), high: ArrayLike = (), variance: float = 1.0
    ) -> None:
        self.kernel = kernel
        every, of_columns = np.asarray(signs, float), np.flatnonzero(signs)
        self.signs = every[of_columns]
        # An inference holds all numbers of a prior within the bounds of logarithms: these must not leave them.
        ends = (np.asarray(end, float)[of_columns] for end in (low, high))
        self.others, self.columns = _squeezed(np.flatnonzero(every == 0.0)), _squeezed(of_columns)
        self.low, self.high = map(_squeezed, ends)
        self.log_variance = np.full(self.signs.shape, np.log(variance))
        self.is_there = np.ones(())

    def gram(self, X1: First, X2: Second) -> Covariances:
        """Return the covariances (n1, n2) between the objects of X1 (n1, c) and X2 (n2, c)."""
        return self.kernel.gram(self._free(X1), self._free(X2)) + self._steps(X1) @ self._steps(X2).T

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        """Return the variances (n,) at the objects of X (n, c)."""
        return self.kernel.diagonal(self._free(X)) + jnp.sum(self._steps(X) ** 2, axis=1)

    def for_features(self, n_features: int) -> "Monotone":
        """Return the same kernel with one lengthscale for each of ``n_features`` features that has no direction."""
        return eqx.tree_at(lambda one: one.kernel, self, self.kernel.for_features(n_features - len(self.signs)))

    def directions(self) -> dict[int, float]:
        """Return the sign of each feature that has one, by its number; also of kernels of several parts."""
        columns, signs = (np.atleast_2d(np.asarray(part))[0] for part in (_restored(self.columns), self.signs))
        return dict(zip(np.rint(columns).astype(int).tolist(), signs.tolist(), strict=True))

    def _free(self, X: Float[AnyArray, "n c"]) -> Array:
        """Return the features (n, c - k) without a direction."""
        return jnp.asarray(X)[:, jnp.rint(_restored(self.others)).astype(int)]

    def _steps(self, X: Float[AnyArray, "n c"]) -> Array:
        """Return how many of each step lie below the objects, (n, k N_STEPS), in units of the steps' sizes."""
        own = jnp.asarray(X)[:, jnp.rint(_restored(self.columns)).astype(int)]
        low, high = (as_row(_restored(end)) for end in (self.low, self.high))
        place = (own - low) / jnp.where(high > low, high - low, 1.0) * N_STEPS
        number = np.arange(N_STEPS)[None, None]
        first, last = np.where(number == 0, -np.inf, 0.0), np.where(number == N_STEPS - 1, np.inf, 1.0)
        below = jnp.clip(place[:, :, None] - number, first, last)
        size = jax.lax.stop_gradient(self.is_there) * 2.0 / N_STEPS * jnp.exp(0.5 * self.log_variance)
        return (below * size[None, :, None]).reshape(below.shape[0], -1)


def _squeezed(values: np.ndarray) -> np.ndarray:
    return np.arcsinh(values) / 4.0


def _restored(values: Float[AnyArray, "*any"]) -> Array:
    return jnp.sinh(4.0 * jax.lax.stop_gradient(jnp.asarray(values)))


class Ordered(ErrorModel):
    """Of two objects the first is better in every utility, with the error `NOISE`."""

    name: ClassVar[str] = "order"
    n_nodes: ClassVar[int] = 1
    pair_variance: ClassVar[float] = NOISE**2

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return the sum over utilities of log Φ((u(first) - u(second)) / NOISE); nobody lapses here."""
        return jnp.sum(log_probit_and_hazard((u[:, 0] - u[:, 1]) / NOISE)[0], axis=0)

    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Average value, gradient and negative Hessian of log p over samples."""
        z = (u[:, 0] - u[:, 1]) / NOISE
        logs, _, hazard, _ = log_probit_and_hazard(z)
        slope = jnp.mean(hazard, axis=-1) / NOISE
        bend = jnp.mean(hazard * (z + hazard), axis=-1) / NOISE**2
        value = jnp.mean(jnp.sum(logs, axis=0), axis=-1)
        curvature = jnp.stack([jnp.stack([bend, -bend], axis=1), jnp.stack([-bend, bend], axis=1)], axis=1)
        return ExpectedDerivatives(value, jnp.stack([slope, -slope], axis=1), curvature, jnp.zeros_like(value))


def without_shared_steps(prior: UtilityPrior) -> UtilityPrior:
    """Leave the steps of features with a direction out of a part that is shared by all utilities."""
    if not prior.shared:
        return prior
    own = np.ones(prior.n_parts)
    own[0] = 0.0
    return eqx.tree_at(lambda one: one.kernels.is_there, prior, own)


def with_knots_over(prior: UtilityPrior, X: np.ndarray) -> UtilityPrior:
    """Spread the knots of features with a direction over the range of objects (n, c)."""
    columns, kernels = list(prior.kernels.directions()), prior.kernels
    assert isinstance(kernels, Monotone)
    ends = [np.broadcast_to(_squeezed(end[columns]), np.shape(kernels.low)) for end in (X.min(axis=0), X.max(axis=0))]
    kernels = eqx.tree_at(lambda one: (one.low, one.high), kernels, tuple(ends))
    return eqx.tree_at(lambda one: one.kernels, prior, kernels)
