"""log Φ and its derivatives, right far into both tails, in float64 and in float32.

``jax.scipy.special.log_ndtr`` takes its derivative as exp(-z²/2 - log Φ(z)): two numbers of size z²/2 cancel,
which overflows in float32 from about z = -1000.  Here everything comes from the scaled complementary error
function erfcx(x) = exp(x²) erfc(x), which never under- or overflows for x >= 0.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from choicegp.model.shapes import AnyArray

Values = Float[Array, "*batch"]

# (1 + 2x) erfcx(x) is smooth in s = (x - k) / (x + k), which maps [0, ∞) to [-1, 1): a polynomial in s of
# degree 20 is right to 4e-15 (relative) for every x >= 0; k = 3.75 was the best of the values tried.
_POLE = 3.75

# From z = -8 on, twelve levels of the continued fraction are right to 2e-13 (relative).
_FAR = 8.0
_FRACTIONS = 12

# Python numbers, not NumPy's, which would turn float32 into float64.
_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)


# Highest power first; the Chebyshev interpolant of SciPy's erfcx (a test makes it again).
_COEFFICIENTS = (
    1.7312209083118933e-08, 8.512559451761331e-09, -2.1321360409864602e-07, -2.7685663849700945e-08,
    1.6939254478276176e-06, -1.0084713725546233e-06, -1.1397625287921655e-05, 2.241015775977701e-05,
    5.162479200942778e-05, -0.00029016639136143893, 0.0002937218341919264, 0.0017556295487634313,
    -0.009746581262494456, 0.02836227674782648, -0.05869339838397541, 0.09230432122771155,
    -0.10880393015433062, 0.08227673848704045, 0.0035854154857627857, -0.14024059858550575,
    1.2375126308378264,
)  # fmt: skip  # four numbers a line, not one


def _erfcx(x: Float[AnyArray, "*batch"]) -> Values:
    s = (x - _POLE) / (x + _POLE)
    value = jnp.full_like(s, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        value = value * s + coefficient
    return value / (1 + 2 * x)


def log_probit_and_hazard(z: Float[AnyArray, "*batch"] | float) -> tuple[Values, Values, Values, Values]:
    """Return log Φ(z), log Φ(-z), h(z) and h(-z), where h = φ / Φ, at the cost of one erfcx."""
    z = jnp.asarray(z)
    scaled = _erfcx(jnp.abs(z) * _SQRT_HALF)
    gauss = jnp.exp(-0.5 * z * z)
    small = 0.5 * scaled * gauss  # Φ(-|z|)
    log_small = -0.5 * z * z + jnp.log(0.5 * scaled)
    log_large = jnp.log1p(-small)
    hazard_small = _SQRT_TWO_OVER_PI / scaled  # h(-|z|) ~ |z|
    hazard_large = gauss * 0.5 * _SQRT_TWO_OVER_PI / (1 - small)
    negative = z < 0
    return (
        jnp.where(negative, log_small, log_large),
        jnp.where(negative, log_large, log_small),
        jnp.where(negative, hazard_small, hazard_large),
        jnp.where(negative, hazard_large, hazard_small),
    )


def probit_and_hazard(z: Float[AnyArray, "*batch"]) -> tuple[Values, Values, Values, Values]:
    """Return Φ(z), Φ(-z), h(z) and h(-z), without a logarithm."""
    scaled = _erfcx(jnp.abs(z) * _SQRT_HALF)
    gauss = jnp.exp(-0.5 * z * z)
    small = 0.5 * scaled * gauss
    large = 1 - small
    density = gauss * 0.5 * _SQRT_TWO_OVER_PI
    hazard_small = _SQRT_TWO_OVER_PI / scaled
    hazard_large = density / large
    negative = z < 0
    return (
        jnp.where(negative, small, large),
        jnp.where(negative, large, small),
        jnp.where(negative, hazard_small, hazard_large),
        jnp.where(negative, hazard_large, hazard_small),
    )


@jax.custom_jvp
def hazard(z: Float[AnyArray, "*batch"] | float) -> Values:
    """h(z) = φ(z) / Φ(z), the derivative of log Φ (the inverse Mills ratio of -z).

    Examples
    --------
    >>> float(hazard(0.0)).__round__(4)
    0.7979
    """
    return log_probit_and_hazard(z)[2]


@hazard.defjvp
def _hazard_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    value = hazard(z)
    # 0 < h (z + h) < 1 for every z; rounding alone can leave that range.
    return value, -jnp.clip(value * _hazard_plus_z(z, value), 0.0, 1.0) * dz


def _hazard_plus_z(z: Float[AnyArray, "*batch"], value: Float[AnyArray, "*batch"]) -> Values:
    """Return z + h(z), which cancels far in the left tail: there Laplace's continued fraction gives it."""
    far = z < -_FAR
    x = jnp.where(far, -z, _FAR)
    tail = x
    for k in range(_FRACTIONS, 1, -1):
        tail = x + k / tail  # h(-x) = x + 1 / (x + 2 / (x + 3 / ...))
    return jnp.where(far, 1.0 / tail, z + value)


@jax.custom_jvp
def log_probit(z: Float[AnyArray, "*batch"] | float) -> Values:
    """Log of the standard normal distribution function.

    Examples
    --------
    >>> float(log_probit(0.0)).__round__(4)
    -0.6931
    """
    return log_probit_and_hazard(z)[0]


@log_probit.defjvp
def _log_probit_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    return log_probit(z), hazard(z) * dz
