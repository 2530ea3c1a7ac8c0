"""Sums of exponentials in logs, with derivatives, that no rounding makes infinite.

The textbook form takes the largest term out, so that exp(x - max x) is 1 for at least one term.  A compiler is free to
compute x twice, once for the largest term and once for the differences, and to round it differently (a fused
multiply-add, another logarithm).  Logs of far tails are as large as 1e12, where the last digit of float32 is 65536: all
terms vanish then, and their sum has the log -inf.  The derivative of ``jnp.max`` shares out by equality with the
maximum, and is 0 / 0 where nothing is equal to it, whatever the size of the numbers.  Here the largest term is 1
because its place says so, and shares are never made from a difference to the result.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from choicegp.model.shapes import AnyArray


@jax.custom_jvp
def log_add_exp(x: Float[AnyArray, "*#batch"] | float, y: Float[AnyArray, "*#batch"] | float) -> Float[Array, "..."]:
    """log(e^x + e^y).

    Examples
    --------
    >>> float(log_add_exp(0.0, 0.0)).__round__(4)
    0.6931
    """
    return jnp.maximum(x, y) + jnp.log1p(jnp.exp(-jnp.abs(_gap(x, y))))


def _gap(x: Float[AnyArray, "*#batch"] | float, y: Float[AnyArray, "*#batch"] | float) -> Float[Array, "..."]:
    """Return x - y, and 0 where both are -inf."""
    return jnp.where(jnp.maximum(x, y) > -jnp.inf, jnp.subtract(x, y), 0.0)


@log_add_exp.defjvp
def _log_add_exp_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (x, y), (dx, dy) = primals, tangents
    gap = _gap(x, y)
    return log_add_exp(x, y), jax.nn.sigmoid(gap) * dx + jax.nn.sigmoid(-gap) * dy


@jax.custom_jvp
def log_sum_exp(x: Float[AnyArray, "n *batch"]) -> Float[Array, "*batch"]:
    """log(sum e^x) over the leading axis.

    Examples
    --------
    >>> float(log_sum_exp(jnp.zeros(3))).__round__(4)
    1.0986
    """
    return jnp.max(x, axis=0) + jnp.log(jnp.sum(_over_largest(x), axis=0))


@log_sum_exp.defjvp
def _log_sum_exp_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return log_sum_exp(x), jnp.sum(shares(x) * dx, axis=0)


@jax.custom_jvp
def shares(x: Float[AnyArray, "n *batch"]) -> Float[Array, "n *batch"]:
    """Return e^x / sum e^x over the leading axis: the derivatives of `log_sum_exp`."""
    over_largest = _over_largest(x)
    return over_largest / jnp.sum(over_largest, axis=0, keepdims=True)


@shares.defjvp
def _shares_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    value = shares(x)
    return value, value * (dx - jnp.sum(value * dx, axis=0, keepdims=True))


def _over_largest(x: Float[AnyArray, "n *batch"]) -> Float[Array, "n *batch"]:
    """Return e^(x - max x): the first of the largest terms is 1 and none is above 1, also after rounding."""
    largest = jnp.max(x, axis=0, keepdims=True)
    largest = jnp.where(largest > -jnp.inf, largest, 0.0)
    place = jnp.arange(len(x)).reshape((-1,) + (1,) * (x.ndim - 1))
    return jnp.where(place == jnp.argmax(x, axis=0, keepdims=True), 1.0, jnp.exp(jnp.minimum(x - largest, 0.0)))
