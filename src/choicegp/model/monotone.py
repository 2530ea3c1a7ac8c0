"""Utilities that may only rise, or only fall, with some features.

Such a feature has a part of its own in every utility, a smooth curve and a line, beside what the other features say:

    u_i(x) = f_i(other features) + sum_j g_ij(x_j).

What is asked of g_ij then is asked of u_i at all objects.  It is asked at a few steps over the range of the feature, as
the answer to a question would be: of two objects that differ in it alone, the one that must be better is so in every
utility, with an error far below that of people.
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
from choicegp.model.error_models import ErrorModel, Lapse, Masks, MasksOfSets, Samples
from choicegp.model.kernels import Covariances, First, Kernel, Linear, Second
from choicegp.model.probit import log_probit_and_hazard
from choicegp.model.shapes import AnyArray
from choicegp.model.waves import Additive

NOISE = 0.1
"""Standard deviation of the error with which a step is known to go up, in units of the scale of people's errors."""
_NOTHING = -80.0  # log variance of a part that is not there


class Monotone(Kernel):
    """A kernel of some features, and a curve and a line in each of the others, which rise or fall.

    Parameters
    ----------
    kernel : Kernel
        Of the features without a direction.
    curve : Additive
    line : Linear
        Of the features with a direction.
    signs : sequence of float
        For each feature 1 where utilities rise with it, -1 where they fall and 0 for those without a direction.

    Examples
    --------
    A step along the first feature is the same whatever the second is:

    >>> from choicegp.model.kernels import RBF
    >>> kernel = Monotone.of(RBF(), [-1.0, 0.0])
    >>> at = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 9.0], [1.0, 9.0]])
    >>> step = kernel.gram(at[:1], at) - kernel.gram(at[1:2], at)
    >>> step = step[:, :2] - step[:, 2:]  # covariances with what the second feature changes
    >>> bool(jnp.allclose(step, 0.0, atol=1e-6))
    True
    """

    kernel: Kernel
    curve: Additive
    line: Linear
    signs: Float[AnyArray, "*d c"]  # never learned

    def __init__(
        self, kernel: Kernel, curve: Additive | None = None, line: Linear | None = None, signs: ArrayLike = ()
    ) -> None:
        self.signs = np.asarray(signs, float)
        one = np.ones(max(1, self.signs.size))
        self.kernel = kernel
        self.curve = Additive(one, one) if curve is None else curve
        self.line = Linear(one) if line is None else line

    @classmethod
    def of(cls, kernel: Kernel, signs: ArrayLike) -> "Monotone":
        """Make the kernel for these signs, (c,), with one curve and one line for each feature."""
        return cls(kernel, signs=signs).for_features(np.size(signs))

    def gram(self, X1: First, X2: Second) -> Covariances:
        """Return the covariances (n1, n2) between the objects of X1 (n1, c) and X2 (n2, c)."""
        (free1, own1), (free2, own2) = self._parted(X1), self._parted(X2)
        return self.kernel.gram(free1, free2) + self._curve.gram(own1, own2) + self.line.gram(own1, own2)

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        """Return the variances (n,) at the objects of X (n, c)."""
        free, own = self._parted(X)
        return self.kernel.diagonal(free) + self._curve.diagonal(own) + self.line.diagonal(own)

    def for_features(self, n_features: int) -> "Monotone":
        """Return the same kernel with one lengthscale for each of ``n_features`` features."""
        parts = (part.for_features(n_features) for part in (self.kernel, self.curve, self.line))
        return Monotone(*parts, self.signs)  # type: ignore[arg-type]  # each part is of its own kind again

    @property
    def _curve(self) -> Additive:
        """The curve, without a part for features that have no direction."""
        there = jax.lax.stop_gradient(self.signs) != 0.0
        return eqx.tree_at(
            lambda one: one.log_variance, self.curve, jnp.where(there, self.curve.log_variance, _NOTHING)
        )

    def _parted(self, X: Float[AnyArray, "n c"]) -> tuple[Array, Array]:
        """Return the features without a direction, and those with one; the others are zero in each."""
        there = (jax.lax.stop_gradient(self.signs) != 0.0)[None, :]
        X = jnp.asarray(X)
        return jnp.where(there, 0.0, X), jnp.where(there, X, 0.0)


class Ordered(ErrorModel):
    """Of two objects the first is better in every utility, with the error `NOISE`."""

    name: ClassVar[str] = "order"
    n_nodes: ClassVar[int] = 1
    pair_variance: ClassVar[float] = NOISE**2

    def log_likelihood(
        self, u: Float[AnyArray, "d a *batch"], present: Masks, chosen: Masks, lapse: Lapse = None
    ) -> Float[Array, "*batch"]:
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


def signs_of(kernels: Kernel) -> np.ndarray | None:
    """Return the signs (c,) that the kernels of a prior, or one kernel, ask for; None where they ask for none."""
    return np.atleast_2d(np.asarray(kernels.signs))[0] if isinstance(kernels, Monotone) else None
