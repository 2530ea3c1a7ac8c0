"""The prior: d independent Gaussian processes over objects, eq:prior of the paper.

An object is its features and its id.  Features never say everything about an object: with object effects a
utility has one more, independent term for each id, shared by all rows of that id and by no other, however
equal their features are.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.model.kernels import Kernel


class Objects(NamedTuple):
    """Objects as the prior sees them.

    Attributes
    ----------
    X : Array (n, c)
        Features.
    codes : Array (n,) of int
        One number per object id; equal ids have equal codes.
    """

    X: Array
    codes: Array


class UtilityPrior(eqx.Module):
    """Zero-mean Gaussian processes, one per utility.

    Attributes
    ----------
    kernels : Kernel
        Every parameter has a leading axis of length d.
    log_effect_variance : Array (d,) or None
        Log of the variance of the object effects; None for none.
    """

    kernels: Kernel
    log_effect_variance: Array | None = None

    @classmethod
    def create(
        cls, kernel: Kernel, n_features: int, n_utilities: int, effect_variance: float | None = None
    ) -> "UtilityPrior":
        """Give every utility its own copy of ``kernel``, with one lengthscale per feature."""
        one = kernel.for_features(n_features)
        kernels = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, dtype=float)] * n_utilities), one)
        effect = None if effect_variance is None else np.full(n_utilities, np.log(effect_variance))
        return cls(kernels, effect)  # type: ignore[arg-type]

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return jax.tree.leaves(self.kernels)[0].shape[0]

    @partial(jax.jit, inline=True)  # by itself, too, one program and not one for every operation
    def covariance(self, first: Objects, second: Objects) -> Array:
        """Return the covariances (d, n1, n2) of the utilities between two groups of objects.

        A group may have objects of its own for each utility: its X is then (d, n, c).
        """
        own = tuple(0 if np.ndim(group.X) == 3 else None for group in (first, second))
        gram = jax.vmap(lambda kernel, X1, X2: kernel.gram(X1, X2), (0, *own))(self.kernels, first.X, second.X)
        if self.log_effect_variance is None:
            return gram
        same = first.codes[:, None] == second.codes[None, :]
        return gram + jnp.exp(self.log_effect_variance)[:, None, None] * same

    @partial(jax.jit, inline=True)
    def variance(self, objects: Objects) -> Array:
        """Return the variances (d, n) of the utilities at the objects."""
        diagonal = jax.vmap(lambda kernel: kernel.diagonal(objects.X))(self.kernels)
        if self.log_effect_variance is None:
            return diagonal
        return diagonal + jnp.exp(self.log_effect_variance)[:, None]
