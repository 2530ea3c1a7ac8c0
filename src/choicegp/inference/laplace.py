"""Laplace's approximation for probit answers about margins of a Gaussian process.

An answer k says that a margin s_k is positive, with probability Φ(s_k).  The margins are values of the process (a
function of pairs) or differences of two of its values (a utility of objects); in either way s = A f, f ~ N(0, K).
With g = A^T (log Φ)'(s) and W = -A^T (log Φ)''(s) A, the mode has K^-1 f = g, and the posterior is N(f, (K^-1 + W)^-1)
= N(f, K - K R K), R = (K + W^-1)^-1.  The evidence is log p(f) + sum_k log Φ(s_k) - log|I + W K| / 2 at the mode.

Its derivative with respect to K is known in closed form (Rasmussen and Williams, section 5.5.1), so that any kernel
will do and nothing is differentiated through Newton's iteration or a factorisation.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from choicegp.model.probit import hazard, log_probit

_MOST_STEPS = 100
_STEPS = (1.0, 0.5, 0.25, 0.1, 0.02)  # parts of a Newton step that are tried at once
_GAIN = 1e-10  # relative to the objective: less than this is no gain
_FAINT = 1e-8  # curvature times prior variance: an answer of less than this does not bend the evidence


class Margins(NamedTuple):
    """What was answered about: s = f[first] - f[second], or s = f where there are no index arrays."""

    weight: Array  # (m,) weight of each answer; 0 for padding
    first: Array | None = None  # (m,)
    second: Array | None = None  # (m,)

    def of(self, f: Array) -> Array:
        """Return A f."""
        return f if self.first is None else f[self.first] - f[self.second]

    def back(self, values: Array, n: int) -> Array:
        """Return A^T values."""
        if self.first is None:
            return values
        return jnp.zeros(n).at[self.first].add(values).at[self.second].add(-values)


class Laplace(NamedTuple):
    """The approximation at the mode."""

    evidence: Array  # log of the approximate marginal likelihood
    dual: Array  # (n,) K^-1 f = g
    gain: Array  # (n, n) R: what the answers take off the prior covariance
    f: Array  # (n,) the mode


class LaplaceSlopes(NamedTuple):
    """Derivatives of the evidence with respect to the covariances."""

    covariance: Array
    even: Array | None


def laplace(
    covariance: Array, margins: Margins, start: Array, even: Array | None = None
) -> tuple[Laplace, LaplaceSlopes]:
    """Find the mode by Newton's method, and the evidence and its derivatives there.

    Parameters
    ----------
    covariance : Array (n, n)
        K.
    margins : Margins
    start : Array (n,)
        Where f starts: zeros, or the mode with another covariance.
    even : Array (n, n), optional
        Covariance of a second process e, independent of f, where every answer k was given about f_k + e_k and
        about f_k - e_k.  By symmetry its mode is zero and stays so; it only enters the evidence.  ``weight`` then
        counts both answers.
    """
    n = len(start)
    dual = _mode(covariance, margins, start)
    f = covariance @ dual
    s = margins.of(f)
    h = hazard(s)
    curvature = margins.weight * h * (s + h)
    gain, log_det = _gain(covariance, margins, curvature)
    evidence = jnp.sum(margins.weight * log_probit(s)) - 0.5 * dual @ f - 0.5 * log_det
    # d curvature / ds: h' = -h (s + h).
    third = margins.weight * (h * (1.0 - h * (s + h)) - h * (s + h) ** 2)
    variance = _margin_variance(covariance, gain, margins, curvature)
    even_slope = None
    if even is not None:
        even_gain, even_det = _gain(even, margins, curvature)
        evidence -= 0.5 * even_det
        variance += _margin_variance(even, even_gain, margins, curvature)
        even_slope = -0.5 * even_gain
    # The mode moves with K: f changes by (I - K R) dK g, and the determinants change with f.
    pull = -0.5 * margins.back(third * variance, n)
    through = pull - gain @ (covariance @ pull)
    # a a^T + a t^T + t a^T as two squares, which are symmetric to the last bit.
    both = dual + through
    slope = 0.5 * (jnp.outer(both, both) - jnp.outer(through, through) - gain)
    return Laplace(evidence, dual, gain, f), LaplaceSlopes(slope, even_slope)


def _margin_variance(covariance: Array, gain: Array, margins: Margins, curvature: Array) -> Array:
    """Return the posterior variances of the margins, the diagonal of A (K - K R K) A^T."""
    if margins.first is None:
        # K - K R K = W^-1 - W^-1 R W^-1, whose diagonal needs no product of matrices.  Its rounding is magnified
        # by 1 / W, but it only matters times the third derivative, which is small with W.
        prior = jnp.diagonal(covariance)
        faint = curvature * prior < _FAINT
        known = jnp.where(faint, 1.0, curvature)
        return jnp.where(faint, prior, (1.0 - jnp.diagonal(gain) / known) / known)
    spread = covariance - covariance @ gain @ covariance
    own = jnp.diagonal(spread)
    return own[margins.first] + own[margins.second] - 2.0 * spread[margins.first, margins.second]


def _gain(covariance: Array, margins: Margins, curvature: Array) -> tuple[Array, Array]:
    """Return R = (K + W^-1)^-1 and log|I + W K|; K is never factorised, so it may be singular."""
    n = len(covariance)
    if margins.first is None:
        root, factor = _whitened(covariance, curvature)
        inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(n))
        return root[:, None] * inverse * root[None, :], 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    w = _laplacian(margins, curvature, n)
    sum_matrix = jnp.eye(n) + w @ covariance
    gain = jnp.linalg.solve(sum_matrix, w)
    return 0.5 * (gain + gain.T), jnp.linalg.slogdet(sum_matrix)[1]


def _whitened(covariance: Array, curvature: Array) -> tuple[Array, Array]:
    """Return W^1/2 for a diagonal W, and the Cholesky factor of B in R = W^1/2 B^-1 W^1/2, B = I + W^1/2 K W^1/2."""
    root = jnp.sqrt(jnp.maximum(curvature, 0.0))
    b = jnp.eye(len(root)) + root[:, None] * covariance * root[None, :]
    return root, jax.lax.linalg.cholesky(b, symmetrize_input=False)


def _laplacian(margins: Margins, curvature: Array, n: int) -> Array:
    """Return W = A^T diag(curvature) A."""
    i, j = margins.first, margins.second
    w = jnp.zeros((n, n)).at[i, j].add(-curvature).at[j, i].add(-curvature)
    return w.at[i, i].add(curvature).at[j, j].add(curvature)


class _Newton(NamedTuple):
    """Where Newton's method stands: a = K^-1 f, f, the objective, what the last step gained, and its number."""

    dual: Array
    f: Array
    value: Array
    gained: Array
    number: Array


def _mode(covariance: Array, margins: Margins, start: Array) -> Array:
    """Maximise sum_k log Φ(s_k) - f^T K^-1 f / 2 by Newton's method, over a = K^-1 f."""
    n = len(start)
    parts = jnp.asarray(_STEPS)[:, None]

    def objective(dual: Array, f: Array) -> Array:
        return jnp.sum(margins.weight * log_probit(margins.of(f))) - 0.5 * dual @ f

    def newton(f: Array) -> Array:
        """Return a where Newton's full step from f leads; it does not matter whether f was K a before."""
        s = margins.of(f)
        h = hazard(s)
        curvature = margins.weight * h * (s + h)
        b = margins.back(curvature * s + margins.weight * h, n)
        return b - _solve(covariance, margins, curvature, covariance @ b)

    def step(now: _Newton) -> _Newton:
        towards = newton(now.f)
        # f is linear in a: one product serves all parts of the step.
        duals = now.dual + parts * (towards - now.dual)
        fs = now.f + parts * (covariance @ towards - now.f)
        values = jax.vmap(objective)(duals, fs)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        best = jnp.argmax(values)
        better = values[best] > now.value
        return _Newton(
            jnp.where(better, duals[best], now.dual),
            jnp.where(better, fs[best], now.f),
            jnp.where(better, values[best], now.value),
            jnp.where(better, values[best] - now.value, 0.0),
            now.number + 1,
        )

    def goes_on(now: _Newton) -> Array:
        return (now.gained > _GAIN * (1.0 + jnp.abs(now.value))) & (now.number < _MOST_STEPS)

    # Values change less with the kernel than K^-1 f does: from an earlier mode's f Newton takes a fifth fewer steps.
    # Where the kernel has changed a lot zero may be better still.
    first = newton(start)
    duals = jnp.stack([first, jnp.zeros_like(start)])
    fs = jnp.stack([covariance @ first, jnp.zeros_like(start)])
    values = jax.vmap(objective)(duals, fs)
    best = jnp.where(values[0] > values[1], 0, 1)
    begin = _Newton(duals[best], fs[best], values[best], jnp.asarray(jnp.inf), jnp.asarray(1))
    return jax.lax.while_loop(goes_on, step, begin).dual


def _solve(covariance: Array, margins: Margins, curvature: Array, values: Array) -> Array:
    """Return R values."""
    n = len(covariance)
    if margins.first is None:
        root, factor = _whitened(covariance, curvature)
        return root * jax.scipy.linalg.cho_solve((factor, True), root * values)
    w = _laplacian(margins, curvature, n)
    return jnp.linalg.solve(jnp.eye(n) + w @ covariance, w @ values)
