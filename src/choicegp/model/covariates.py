"""The kernel of a population whose people differ by what is known about them: similar people share more."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike

from choicegp.model.kernels import Covariances, Kernel
from choicegp.model.shapes import AnyArray, Parameters


class OfPeople(Kernel):
    """A kernel of objects, in proportions shared by all people and by people with similar covariates z.

    k(x, x') (1 + b k_z(z, z')) / (1 + b): the first term is common to everyone, the second to people who are similar,
    by an RBF kernel of covariates.  Covariates are the last columns of the features, in units of their
    standard deviations; objects without them are seen by an average person.

    Parameters
    ----------
    kernel : Kernel
        Of the objects' features.
    n_features, n_covariates : int
    ratio : float
        b, learned.
    lengthscale : float
        Of each covariate, learned.

    Examples
    --------
    >>> from choicegp.model.kernels import RBF
    >>> kernel = OfPeople(RBF(), 1, 1, ratio=1.0)
    >>> young, old = jnp.array([[0.0, -2.0]]), jnp.array([[0.0, 2.0]])
    >>> float(kernel.gram(young, young)[0, 0]), round(float(kernel.gram(young, old)[0, 0]), 2)
    (1.0, 0.51)
    """

    kernel: Kernel
    log_covariate_ratio: Parameters
    log_covariate_lengthscale: Parameters
    origin: Float[AnyArray, "*d c"]  # zeros: as many as there are features; never learned

    def __init__(
        self, kernel: Kernel, n_features: int = 1, n_covariates: int = 1, ratio: ArrayLike = 0.5,
        lengthscale: ArrayLike = 1.5
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.log_covariate_ratio = np.log(np.asarray(ratio, float))
        self.log_covariate_lengthscale = np.broadcast_to(np.log(np.asarray(lengthscale, float)), (n_covariates,))
        self.origin = np.zeros(n_features)

    def gram(self, X1: Float[AnyArray, "n1 _"], X2: Float[AnyArray, "n2 _"]) -> Covariances:  # noqa: D102 - documented in `Kernel`
        (x1, z1), (x2, z2) = self._parted(X1), self._parted(X2)
        scale = jnp.exp(-self.log_covariate_lengthscale)[None]
        apart = (z1 * scale)[:, None] - (z2 * scale)[None]
        ratio = jnp.exp(self.log_covariate_ratio)
        return self.kernel.gram(x1, x2) * (1.0 + ratio * jnp.exp(-0.5 * jnp.sum(apart**2, axis=-1))) / (1.0 + ratio)

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:  # noqa: D102 - documented in `Kernel`
        return self.kernel.diagonal(self._parted(X)[0])

    def for_features(self, n_features: int) -> "OfPeople":  # noqa: D102 - documented in `Kernel`
        return OfPeople(
            self.kernel.for_features(n_features), n_features, np.shape(self.log_covariate_lengthscale)[-1],
            np.exp(self.log_covariate_ratio), np.exp(self.log_covariate_lengthscale),
        )  # fmt: skip

    def _parted(self, X: Float[AnyArray, "n k"]) -> tuple[Array, Array]:
        """Return features and covariates; an average person has covariates of zero."""
        c, q = self.origin.shape[-1], np.shape(self.log_covariate_lengthscale)[-1]
        X = jnp.asarray(X)
        return X[:, :c], X[:, c:] if X.shape[1] > c else jnp.zeros((X.shape[0], q), X.dtype)
