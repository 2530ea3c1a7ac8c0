"""Kernels of what a network makes of the features: similarity that does not follow single features.

A kernel with one lengthscale per feature knows directions along the features alone.  A network turns and bends them:
its outputs are new features, in which utilities are smooth.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from choicegp.model.kernels import Covariances, First, Kernel, Second
from choicegp.model.shapes import AnyArray


class Network(eqx.Module):
    """Three layers of one width, the second and third added to what they are given, and outputs; immutable.

    Attributes
    ----------
    first, second, third, last : array (inputs, outputs)
    first_shift, second_shift, third_shift, last_shift : array (outputs,)

    Examples
    --------
    >>> network = Network.create(3, 8, 2, np.random.default_rng(0))
    >>> network(np.zeros((5, 3))).shape
    (5, 2)
    """

    first: Float[AnyArray, "..."]
    first_shift: Float[AnyArray, "..."]
    second: Float[AnyArray, "..."]
    second_shift: Float[AnyArray, "..."]
    third: Float[AnyArray, "..."]
    third_shift: Float[AnyArray, "..."]
    last: Float[AnyArray, "..."]
    last_shift: Float[AnyArray, "..."]

    @classmethod
    def create(
        cls, n_features: int, width: int, n_outputs: int, rng: np.random.Generator, dtype: type = float
    ) -> "Network":  # fmt: skip
        """Draw the first weights."""

        def matrix(inputs: int, outputs: int, size: float = 1.0) -> np.ndarray:
            return (rng.standard_normal((inputs, outputs)) * size / np.sqrt(max(1, inputs))).astype(dtype)

        def shift(size: float = 0.0) -> np.ndarray:
            return (size * rng.standard_normal(width)).astype(dtype)

        return cls(
            matrix(n_features, width, 1.5), shift(0.5), matrix(width, width), shift(), matrix(width, width), shift(),
            matrix(width, n_outputs), np.zeros(n_outputs, dtype),
        )  # fmt: skip

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return self.last_shift.shape[-1]

    def __call__(self, X: Float[AnyArray, "*batch c"]) -> Float[Array, "*batch k"]:
        """Return the outputs (..., k) at features (..., c)."""
        own = (*(1,) * (X.ndim - 1), -1)  # the last axis
        h = jax.nn.silu(jnp.matmul(X, self.first) + jnp.reshape(self.first_shift, own))
        h = h + jax.nn.silu(jnp.matmul(h, self.second) + jnp.reshape(self.second_shift, own))
        h = h + jax.nn.silu(jnp.matmul(h, self.third) + jnp.reshape(self.third_shift, own))
        return jnp.matmul(h, self.last) + jnp.reshape(self.last_shift, own)

    def standardized(self, X: np.ndarray) -> tuple["Network", np.ndarray]:
        """Return the network with outputs of mean 0 and standard deviation 1 at objects, and the deviations before."""
        outputs = np.asarray(self(X), float)
        mean, sd = outputs.mean(axis=0), outputs.std(axis=0)
        sd = np.where(sd > 0.0, sd, 1.0)
        parts = np.asarray(self.last, float) / sd, (np.asarray(self.last_shift, float) - mean) / sd
        return eqx.tree_at(lambda network: (network.last, network.last_shift), self, parts), sd


class Mapped(Kernel):
    """A kernel of the features and of the outputs of a network, which is not learned with the kernel.

    Parameters
    ----------
    kernel : Kernel
        Of features and outputs, in this order.
    network : Network

    Examples
    --------
    >>> from choicegp.kernels import RBF
    >>> kernel = Mapped(RBF(), Network.create(3, 8, 2, np.random.default_rng(0))).for_features(3)
    >>> kernel.kernel.log_lengthscale.shape
    (5,)
    """

    kernel: Kernel
    network: Network

    def __init__(self, kernel: Kernel, network: Network | None = None) -> None:
        self.kernel = kernel
        self.network = Network.create(0, 0, 0, np.random.default_rng(0)) if network is None else network

    def mapped(self, X: Float[AnyArray, "n c"]) -> Float[Array, "n _"]:
        """Return the features with the outputs of the network beside them.

        Parameters
        ----------
        X : array (n, c)

        Returns
        -------
        array (n, c + k)
        """
        return jnp.concatenate([jnp.asarray(X), jax.lax.stop_gradient(self.network)(X)], axis=1)

    def gram(self, X1: First, X2: Second) -> Covariances:
        """Return the covariances (n1, n2) between the objects of X1 (n1, c) and X2 (n2, c)."""
        return self.kernel.gram(self.mapped(X1), self.mapped(X2))

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        """Return the variances (n,) at the objects of X (n, c)."""
        return self.kernel.diagonal(self.mapped(X))

    def for_features(self, n_features: int) -> "Mapped":
        """Return the same kernel with one lengthscale for each of ``n_features`` features and each output."""
        return Mapped(self.kernel.for_features(n_features + self.network.n_outputs), self.network)
