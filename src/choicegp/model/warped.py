"""A kernel of features on learned scales: plain, logarithmic from either end of their range, or between."""

# ruff: noqa: D102 - the methods of every kernel are documented once, in `Kernel`.

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike

from choicegp.model.kernels import Covariances, First, Kernel, Second
from choicegp.model.shapes import AnyArray

_UNIT_RANGE = np.array([[-1.0], [1.0]])
_NEAR_THE_END = 1e-3  # part of a range, and how far a logarithm of the distance from its end goes down


class Warped(Kernel):
    """A kernel of features on learned scales, between plain and logarithmic from either end of their range.

    Feature j enters as x + a_j log(1 + (x - l_j)+ / e_j) - b_j log(1 + (u_j - x)+ / e_j), an increasing function: a
    utility that changes fast near an end, such as a power of x or the logarithm of a price, is smooth in it, and no
    single lengthscale could follow it in x.  Only sparse inference makes it:
    the other inferences do not treat the ends as fixed.

    Parameters
    ----------
    kernel : Kernel
        Of the warped features.
    weight : float or array (2, c)
        a and b; learned.
    ends : array (2, c)
        Ends l and u of the features' ranges; never learned.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from choicegp.kernels import RBF
    >>> kernel = Warped(RBF(), weight=1.0, ends=[[0.0], [1.0]])
    >>> [round(float(x), 1) for x in kernel.warped(jnp.array([[0.0], [0.1], [0.2]]))[:, 0]]
    [-6.9, -2.1, -1.2]
    """

    kernel: Kernel
    log_warp: Float[AnyArray, "*d 2 c"]
    ends: Float[AnyArray, "*d 2 c"]

    def __init__(self, kernel: Kernel, weight: ArrayLike = 0.1, ends: ArrayLike = _UNIT_RANGE) -> None:
        self.kernel = kernel
        self.ends = np.asarray(ends, float)
        self.log_warp = np.broadcast_to(np.log(np.asarray(weight, float)), self.ends.shape)

    def warped(self, X: Float[AnyArray, "n c"]) -> Float[Array, "n c"]:
        """Return the features on their learned scales.

        Parameters
        ----------
        X : array (n, c)

        Returns
        -------
        array (n, c)
        """
        lower, upper = jax.lax.stop_gradient(self.ends)[:, None]
        near = _NEAR_THE_END * jnp.where(upper > lower, upper - lower, 1.0)
        up, down = jnp.exp(self.log_warp)[:, None]
        above, below = jnp.maximum(X - lower, 0.0), jnp.maximum(upper - X, 0.0)
        return X + up * jnp.log1p(above / near) - down * jnp.log1p(below / near)

    def gram(self, X1: First, X2: Second) -> Covariances:
        return self.kernel.gram(self.warped(X1), self.warped(X2))

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.warped(X))

    def for_features(self, n_features: int) -> "Warped":
        spread = tuple(np.broadcast_to(part, (2, n_features)) for part in (self.log_warp, self.ends))
        parts = (self.kernel.for_features(n_features), *spread)
        return eqx.tree_at(lambda kernel: (kernel.kernel, kernel.log_warp, kernel.ends), self, parts)
