"""The prior: d Gaussian processes over objects (eq:prior of the paper), and weak priors on their parameters.

The paper's utilities are independent.  Then they are so at every object that was never shown, and of a few such objects
most are incomparable, however well the features tell good ones from bad.  What people judge by is related: here a
utility may be the sum u_i = f_0 + f_i of a part that all utilities share and of a part of its own, and the variances
of the parts, which are learned, say how close the utilities are.

An object is its features and its id.  Features never say everything about an object: with object effects, a
utility has one more independent term for each id.  All rows of that id share the term and no other row does,
however similar the features are.

A threshold (`choicegp.model.threshold`) is an object without features: it is independent of all others, and the
variance of its utilities is a hyperparameter of its own.

Noise-free choices would send the error scale to zero and therefore the kernels' variances, which are measured in
units of the error scale, to infinity.  A normal density on the logarithm of every hyperparameter, wide enough to be
overruled by a few choices, prevents that.  It guides the fit and is no part of the reported ELBO.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from choicegp.data.packing import padded_size
from choicegp.errors import ChoiceGPError
from choicegp.model.kernels import RBF, Kernel, Linear, Matern12, Matern32, Matern52
from choicegp.model.shapes import AnyArray
from choicegp.model.waves import Additive, Periodic

_NAMED = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "linear": Linear,
    "periodic": Periodic,
    "additive": Additive,
}
THRESHOLD = -(2**31)
"""The code of the threshold, of which there is one; codes of ids are not negative."""
STEP = THRESHOLD + 1
"""The code of all objects between which utilities must rise, see `choicegp.model.monotone`: they share one effect."""

_LEAST_ROOM = 32  # objects


def kernel_named(kernel: "str | Kernel") -> Kernel:
    """Return the kernel of that name with its default parameters, or the kernel itself.

    Examples
    --------
    >>> kernel_named("matern52").__class__.__name__
    'Matern52'
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str) or kernel not in _NAMED:
        raise ChoiceGPError(f"unknown kernel {kernel!r}: use one of {', '.join(_NAMED)} or a choicegp Kernel")
    return _NAMED[kernel]()


class Objects(NamedTuple):
    """Objects as the prior sees them.

    Attributes
    ----------
    X : Array (n, c)
        Features.
    codes : Array (n,) of int
        One number per object id; equal ids have equal codes.  Features of what has the code `THRESHOLD` say nothing.
    people : Array of int or None
        Who is asked, of objects in sets: the number of a person for each set.
    """

    X: Float[AnyArray, "*d n c"]
    codes: Int[AnyArray, " n"]
    people: Int[AnyArray, "1 m"] | None = None


def threshold_like(objects: Objects) -> Objects:
    """Return the threshold, one row; its features, which say nothing, are copied from the first of some objects."""
    return Objects(objects.X.reshape(-1, objects.X.shape[-1])[:1], np.full_like(objects.codes[:1], THRESHOLD))


def with_room(objects: Objects) -> tuple[Objects, np.ndarray]:
    """Add copies of the first object, so that few programs serve all numbers; return which objects (n,) are real.

    Examples
    --------
    >>> objects, real = with_room(Objects(np.ones((40, 2)), np.arange(40)))
    >>> len(objects.X), int(real.sum())
    (40, 40)
    >>> len(with_room(Objects(np.ones((3, 2)), np.arange(3)))[1])
    32
    """
    n = len(objects.codes)
    size = padded_size(max(n, _LEAST_ROOM), 2)
    rows = np.pad(np.arange(n), (0, size - n))
    return Objects(np.asarray(objects.X)[rows], np.asarray(objects.codes)[rows]), np.arange(size) < n


class UtilityPrior(eqx.Module):
    """Zero-mean Gaussian processes, the parts of which utilities are made.

    Attributes
    ----------
    kernels : Kernel
        Of the parts: every parameter has a leading axis of length p.  Without a shared part, the parts are the
        utilities, p = d; with one, it comes first, and p = d + 1.
    log_effect_variance : Array (p,) or None
        Log of the variance of the object effects; None for none.
    shared : bool
        Whether the first part is shared by all utilities.
    log_threshold_variance : Array (p,) or None
        Log of the variance of the threshold; None where there is none.
    """

    kernels: Kernel
    log_effect_variance: Float[AnyArray, " p"] | None = None
    shared: bool = eqx.field(static=True, default=False)
    log_threshold_variance: Float[AnyArray, " p"] | None = None

    @classmethod
    def create(
        cls, kernel: Kernel, n_features: int, n_utilities: int, effect_variance: float | None = None, *,
        shared: bool = False
    ) -> "UtilityPrior":  # fmt: skip
        """Give every part its own copy of ``kernel``, with one lengthscale per feature."""
        one, n_parts = kernel.for_features(n_features), n_utilities + shared
        kernels = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, dtype=float)] * n_parts), one)
        effect = None if effect_variance is None else np.full(n_parts, np.log(effect_variance))
        return cls(kernels, effect, shared)

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return jax.tree.leaves(self.kernels)[0].shape[0]

    @property
    def n_utilities(self) -> int:
        """Number of utilities."""
        return self.n_parts - self.shared

    def total(self, parts: Float[Array, "p *n"]) -> Float[Array, "d *n"]:
        """Add the shared part, if there is one, to the others: from (p, ...) to (d, ...)."""
        return parts[:1] + parts[1:] if self.shared else parts

    @partial(jax.jit, inline=True)  # by itself, too, one program and not one for every operation
    def covariance(self, first: Objects, second: Objects) -> Float[Array, "p n1 n2"]:
        """Return the covariances (p, n1, n2) of the parts between two groups of objects.

        A group may have objects of its own for each part: its X is then (p, n, c).
        """
        own = tuple(0 if np.ndim(group.X) == 3 else None for group in (first, second))
        gram = jax.vmap(lambda kernel, X1, X2: kernel.gram(X1, X2), (0, *own))(self.kernels, first.X, second.X)
        if self.log_effect_variance is not None:
            same = first.codes[:, None] == second.codes[None, :]
            gram = gram + jnp.exp(self.log_effect_variance)[:, None, None] * same[None]
        if self.log_threshold_variance is None:
            return gram
        one, other = ((group.codes == THRESHOLD) for group in (first, second))
        variance = jnp.exp(self.log_threshold_variance)[:, None, None] * (one[:, None] & other[None, :])[None]
        return jnp.where((one[:, None] | other[None, :])[None], variance, gram)

    @partial(jax.jit, inline=True)
    def variance(self, objects: Objects) -> Float[Array, "p n"]:
        """Return the variances (p, n) of the parts at the objects."""
        diagonal = jax.vmap(lambda kernel: kernel.diagonal(objects.X))(self.kernels)
        if self.log_effect_variance is not None:
            diagonal = diagonal + jnp.exp(self.log_effect_variance)[:, None]
        if self.log_threshold_variance is None:
            return diagonal
        own = jnp.broadcast_to(jnp.exp(self.log_threshold_variance)[:, None], diagonal.shape)
        return jnp.where((objects.codes == THRESHOLD)[None], own, diagonal)


class HyperPriors(NamedTuple):
    """Mean and standard deviation of the logarithm of each kind of hyperparameter.

    Lengthscales and periods refer to standardised features and variances to utilities in units of the error scale.
    Distances grow with the number of features: ``lengthscale`` is meant for one feature, and with c of them half the
    logarithm of c is added to its mean.  Warps are the weights of the logarithms in the learned scales of features;
    they are small unless the choices ask for more.  The threshold is one object, which says little about its variance:
    its prior is narrower.

    Attributes
    ----------
    lengthscale, variance, period : (float, float)
        Of kernels: mean and standard deviation of the logarithm.
    effect_variance : (float, float)
        Of effects of single objects.
    warp : (float, float)
    threshold_variance : (float, float)
    ratio : (float, float)
        Of what is a person's own, as a part of what people share.
    own_threshold_variance : (float, float)
        Of a person's own threshold around the threshold of all.
    covariate_ratio, covariate_lengthscale : (float, float)
        Of what people with similar covariates share, and of how similar they must be.

    Examples
    --------
    >>> HyperPriors(lengthscale=(0.0, 1.0)).variance
    (3.0, 3.0)
    >>> HyperPriors().for_features(1) == HyperPriors()
    True
    """

    lengthscale: tuple[float, float] = (0.5, 1.2)
    variance: tuple[float, float] = (3.0, 3.0)
    period: tuple[float, float] = (0.0, 2.0)
    effect_variance: tuple[float, float] = (1.0, 2.0)
    warp: tuple[float, float] = (-2.3, 2.0)
    threshold_variance: tuple[float, float] = (3.0, 1.5)
    ratio: tuple[float, float] = (-0.7, 1.5)
    own_threshold_variance: tuple[float, float] = (2.0, 1.5)
    covariate_ratio: tuple[float, float] = (-0.7, 1.5)
    covariate_lengthscale: tuple[float, float] = (0.5, 1.0)

    def for_features(self, n_features: int) -> "HyperPriors":
        """Return the priors for a number of features.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        HyperPriors
            With half the logarithm of the number added to the mean of ``lengthscale``.
        """
        mean, sd = self.lengthscale
        return self._replace(lengthscale=(mean + 0.5 * math.log(n_features), sd))


def log_density(prior: eqx.Module, hyperpriors: HyperPriors) -> Float[Array, ""]:
    """Return the log density of the hyperparameters of ``prior``, up to a constant."""
    total = jnp.zeros(())
    for path, leaf in jax.tree_util.tree_leaves_with_path(prior):
        if not is_learned(path):
            continue
        mean, sd = getattr(hyperpriors, _kind(path))
        total -= 0.5 * jnp.sum(((leaf - mean) / sd) ** 2)
    return total


def is_learned(path: tuple[Any, ...]) -> bool:
    """Say whether a leaf is the logarithm of a hyperparameter, and not a fixed property of the features."""
    return path[-1].name.startswith("log_")


def _kind(path: tuple[Any, ...]) -> str:
    return path[-1].name.removeprefix("log_")
