"""Kernels: how similar the utilities of two objects are, from their features.

A kernel is an immutable equinox module whose parameters are stored as logarithms, so that any real number is
valid and an optimiser needs no bounds.  A kernel made by a user holds plain numbers
(``RBF(lengthscale=2.0)``); `for_features` spreads them over the features (ARD) before fitting.

Gram matrices use the GEMM form of the squared distance: at 3000 x 3000 objects in 6 dimensions it took 47 ms
against 55 ms for a loop over the features, and its gradient 198 ms against 518 ms (float64, one run).
"""

# ruff: noqa: D102 - the methods of every kernel are documented once, in `Kernel`.

import math
from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike

from choicegp.errors import ChoiceGPError
from choicegp.model.shapes import AnyArray, Parameters

First = Float[AnyArray, "n1 c"]
Second = Float[AnyArray, "n2 c"]
Covariances = Float[Array, "n1 n2"]


def log_of_positive(value: ArrayLike, name: str, per_feature: bool = True) -> Parameters:
    """Return the logarithm of a parameter, or an error that names it."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.asarray(np.nan)
    if array.ndim > per_feature or array.size == 0 or not np.all(np.isfinite(array) & (array > 0)):
        one_each = ", or one per feature" if per_feature else ""
        raise ChoiceGPError(f"{name} must be a positive number{one_each}; got {value!r}")
    return np.log(array)


def spread_over(log_value: Parameters, n_features: int, name: str) -> Float[AnyArray, "... c"]:
    """Repeat one value for every feature (ARD); a vector must have the right length already."""
    if isinstance(log_value, float) or np.ndim(log_value) == 0:
        return np.full(n_features, float(log_value))
    if log_value.shape[-1] != n_features:
        raise ChoiceGPError(
            f"the kernel has {log_value.shape[-1]} values of {name}, the data have {n_features} features"
        )
    return log_value


def as_row(parameters: Float[Array, "..."]) -> Float[Array, "1 _"]:
    """Give one value, or one per feature, the shape of a row of features."""
    return jnp.reshape(parameters, (1, -1))


def centred(
    X1: Float[AnyArray, "n1 c"], X2: Float[AnyArray, "n2 c"]
) -> tuple[Float[Array, "n1 c"], Float[Array, "n2 c"]]:
    """Move the origin among the objects: differences stay, and far from zero they would lose digits."""
    centre = jnp.mean(X1, axis=0, keepdims=True)
    return jnp.subtract(X1, centre), jnp.subtract(X2, centre)


def squared_distance(X1: Float[Array, "n1 c"], X2: Float[Array, "n2 c"]) -> Float[Array, "n1 n2"]:
    """Return the squared distances between objects, zero where only rounding keeps them apart."""
    squares = jnp.sum(X1 * X1, axis=1)[:, None] + jnp.sum(X2 * X2, axis=1)[None, :]
    r2 = squares - 2.0 * X1 @ X2.T
    # Rounding alone keeps this much between an object and itself, and a square root (Matern) magnifies it.
    rounding = (1.0 + math.sqrt(X1.shape[1])) * float(jnp.finfo(squares.dtype).eps) * squares
    return jnp.where(r2 > rounding, r2, 0.0)


class Kernel(eqx.Module):
    """A covariance function of objects' features; the base class of all kernels, and of kernels of one's own.

    Fields whose names begin with ``log_`` are hyperparameters, and learned.  Lengthscales and periods are in units of
    the features that the model sees, which are standardised by default; variances are in units of the squared scale
    of errors.  The page on architecture has a kernel of one's own.

    Examples
    --------
    >>> kernel = RBF() + Linear() * Matern52(lengthscale=2.0)
    >>> isinstance(kernel, Kernel)
    True
    """

    @abstractmethod
    def gram(self, X1: First, X2: Second) -> Covariances:
        """Return the covariances between two tables of objects.

        Parameters
        ----------
        X1 : array (n1, c)
        X2 : array (n2, c)

        Returns
        -------
        array (n1, n2)
        """

    @abstractmethod
    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        """Return the variances at objects: the diagonal of ``gram(X, X)``.

        Parameters
        ----------
        X : array (n, c)

        Returns
        -------
        array (n,)
        """

    @abstractmethod
    def for_features(self, n_features: int) -> "Kernel":
        """Return the same kernel with one lengthscale (or variance, or period) per feature.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        Kernel
        """

    def directions(self) -> dict[int, float]:
        """Return the sign, by its number, of each feature with which utilities may only rise (1) or fall (-1)."""
        return {}

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: "Kernel") -> "Product":
        return Product(self, other) if isinstance(other, Kernel) else NotImplemented


class Stationary(Kernel):
    """A function of the distance between scaled features."""

    log_lengthscale: Parameters
    log_variance: Parameters

    def __init_subclass__(cls, *, init: bool = True) -> None:
        """Take ``init=False``, which says to type checkers that no constructor is derived from the fields."""
        super().__init_subclass__()

    def __init__(self, lengthscale: ArrayLike = 1.0, variance: float = 1.0) -> None:
        self.log_lengthscale = log_of_positive(lengthscale, "lengthscale")
        self.log_variance = log_of_positive(variance, "variance", per_feature=False)

    @abstractmethod
    def of_squared_distance(self, r2: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the correlation at a squared scaled distance.

        Parameters
        ----------
        r2 : array

        Returns
        -------
        array
            Of the same shape; 1 at distance 0.
        """

    def squared_distance(self, X1: First, X2: Second) -> Covariances:
        """Return the squared distances (n1, n2) between the scaled features of X1 (n1, c) and X2 (n2, c)."""
        scale = as_row(jnp.exp(-self.log_lengthscale))
        X1, X2 = centred(X1, X2)
        return squared_distance(X1 * scale, X2 * scale)

    def gram(self, X1: First, X2: Second) -> Covariances:
        return jnp.exp(self.log_variance) * self.of_squared_distance(self.squared_distance(X1, X2))

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        return jnp.exp(self.log_variance) * jnp.ones(X.shape[0], X.dtype)

    def for_features(self, n_features: int) -> "Stationary":
        spread = spread_over(self.log_lengthscale, n_features, "lengthscale")
        return eqx.tree_at(lambda kernel: kernel.log_lengthscale, self, spread)


def _distance(r2: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Square root with a gradient of zero, not infinity, at zero."""
    zero = r2 <= 0.0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, r2)))


class RBF(Stationary, init=False):
    """v exp(-r²/2), the paper's kernel; r is the distance of features divided by their lengthscales.

    Parameters
    ----------
    lengthscale : float or sequence of float
        One for all features or one each (ARD: each is learned).
    variance : float

    Examples
    --------
    Two objects that are one lengthscale apart:

    >>> import numpy as np
    >>> round(float(RBF(lengthscale=2.0).gram(np.zeros((1, 1)), np.full((1, 1), 2.0))[0, 0]), 4)
    0.6065
    """

    def of_squared_distance(self, r2: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        return jnp.exp(-0.5 * r2)


class Matern12(Stationary, init=False):
    """v exp(-r): continuous, rough.

    Parameters
    ----------
    lengthscale : float or sequence of float
        One for all features or one each (ARD: each is learned).
    variance : float

    Examples
    --------
    Two objects that are one lengthscale apart:

    >>> import numpy as np
    >>> round(float(Matern12(lengthscale=2.0).gram(np.zeros((1, 1)), np.full((1, 1), 2.0))[0, 0]), 4)
    0.3679
    """

    def of_squared_distance(self, r2: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        return jnp.exp(-_distance(r2))


class Matern32(Stationary, init=False):
    """v (1 + √3 r) exp(-√3 r): once differentiable.

    Parameters
    ----------
    lengthscale : float or sequence of float
        One for all features or one each (ARD: each is learned).
    variance : float

    Examples
    --------
    Two objects that are one lengthscale apart:

    >>> import numpy as np
    >>> round(float(Matern32(lengthscale=2.0).gram(np.zeros((1, 1)), np.full((1, 1), 2.0))[0, 0]), 4)
    0.4834
    """

    def of_squared_distance(self, r2: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        r = math.sqrt(3.0) * _distance(r2)
        return (1.0 + r) * jnp.exp(-r)


class Matern52(Stationary, init=False):
    """v (1 + √5 r + 5 r²/3) exp(-√5 r): twice differentiable.

    Parameters
    ----------
    lengthscale : float or sequence of float
        One for all features or one each (ARD: each is learned).
    variance : float

    Examples
    --------
    Two objects that are one lengthscale apart:

    >>> import numpy as np
    >>> round(float(Matern52(lengthscale=2.0).gram(np.zeros((1, 1)), np.full((1, 1), 2.0))[0, 0]), 4)
    0.524
    """

    def of_squared_distance(self, r2: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        r = math.sqrt(5.0) * _distance(r2)
        return (1.0 + r + r * r / 3.0) * jnp.exp(-r)


class Linear(Kernel):
    """sum_j v_j x_j x'_j; a constant would cancel in every comparison, so there is none.

    Parameters
    ----------
    variance : float or sequence of float
        Of the slope along each feature: one for all features or one each.

    Examples
    --------
    >>> import numpy as np
    >>> float(Linear(variance=3.0).gram(np.ones((1, 1)), np.full((1, 1), 2.0))[0, 0])
    6.0
    """

    log_variance: Parameters

    def __init__(self, variance: ArrayLike = 1.0) -> None:
        self.log_variance = log_of_positive(variance, "variance")

    def gram(self, X1: First, X2: Second) -> Covariances:
        return jnp.matmul(X1 * as_row(jnp.exp(self.log_variance)), X2.T)

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        return jnp.sum(X * X * as_row(jnp.exp(self.log_variance)), axis=1)

    def for_features(self, n_features: int) -> "Linear":
        spread = spread_over(self.log_variance, n_features, "variance")
        return eqx.tree_at(lambda kernel: kernel.log_variance, self, spread)


class Sum(Kernel):
    """The sum of two kernels; written ``first + second``.

    Attributes
    ----------
    first, second : Kernel

    Examples
    --------
    >>> kernel = RBF() + Linear()
    >>> type(kernel).__name__, type(kernel.second).__name__
    ('Sum', 'Linear')
    """

    first: Kernel
    second: Kernel

    def gram(self, X1: First, X2: Second) -> Covariances:
        return self.first.gram(X1, X2) + self.second.gram(X1, X2)

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        return self.first.diagonal(X) + self.second.diagonal(X)

    def for_features(self, n_features: int) -> "Sum":
        return Sum(self.first.for_features(n_features), self.second.for_features(n_features))


class Product(Kernel):
    """The product of two kernels; written ``first * second``.

    Attributes
    ----------
    first, second : Kernel

    Examples
    --------
    >>> kernel = RBF() * Linear()
    >>> type(kernel).__name__, type(kernel.second).__name__
    ('Product', 'Linear')
    """

    first: Kernel
    second: Kernel

    def gram(self, X1: First, X2: Second) -> Covariances:
        return self.first.gram(X1, X2) * self.second.gram(X1, X2)

    def diagonal(self, X: Float[AnyArray, "n c"]) -> Float[Array, " n"]:
        return self.first.diagonal(X) * self.second.diagonal(X)

    def for_features(self, n_features: int) -> "Product":
        return Product(self.first.for_features(n_features), self.second.for_features(n_features))
