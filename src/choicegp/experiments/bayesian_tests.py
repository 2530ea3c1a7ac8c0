"""Which of two models is better, on one data set and on data sets like those seen: two Bayesian tests.

The differences of accuracy in n repetitions on data set i share training data, so they are correlated (where each
repetition draws its own objects, less than supposed here, which makes the tests careful):

    x_i ~ N(1 mu_i, sigma_i² M),   M = 1 on the diagonal and rho elsewhere,   rho = the test sets' share of the data.

`correlated_t_test` looks at one data set with p(mu_i, sigma_i) ∝ 1 / sigma_i (Corani and Benavoli, 2015).
`hierarchical_test` looks at all of them (Corani, Benavoli, Demšar, Mangili and Zaffalon, 2017), with their priors:

    mu_i ~ Student-t(mu_0, sigma_0, nu),   sigma_i ~ U(0, 1000 × mean of the observed standard deviations),
    mu_0 ~ U(-1, 1),   sigma_0 ~ U(0, 1000 × standard deviation of the observed means),
    nu ~ Gamma(alpha, beta),   alpha ~ U(0.5, 5),   beta ~ U(0.05, 0.15).

(Their program has nu - 1 in place of nu; the shares below agreed within sampling noise.)

Every draw of mu_0, sigma_0 and nu says how probable it is that the mean difference on a new data set is left of the
rope, within it, or right of it: a point of the simplex.  The test's answer is the share of draws in which each of the
three is the most probable one.

How it is sampled: Student's t is a normal distribution whose precision is multiplied by a Gamma(nu/2, nu/2) variable.
Given that, mu_i and mu_0 are integrated out exactly, and drawn afterwards: the posterior of the others has no funnel at
small sigma_0.  The others are left to the no-U-turn sampler, with window adaptation before (both BlackJAX's).

Data sets whose differences are all equal would have sigma_i = 0 and an infinite density, so sigma_i is at least a
tenth of the rope; and the mean of the observed standard deviations, of which the upper end is made, counts as no less.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import erf, gammaln
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from choicegp.errors import ChoiceGPError

ROPE = 0.01
"""Accuracies that differ by less are practically equal, as in the paper."""

_WIDE = 1000.0  # upper ends of the uniform priors of standard deviations, in those observed
_NARROW = 0.1  # smallest standard deviation, in half widths of the rope
_ALPHA, _BETA = (0.5, 5.0), (0.05, 0.15)
_N_CHAINS, _N_WARM_UP = 4, 500
_AIM = 0.9  # acceptance rate
_MOST_DOUBLINGS = 8
# The program is small: to optimise it well takes longer than to run it.  jaxlib 0.12 has the first no more.
_COMPILER: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}


class Probabilities(NamedTuple):
    """Of three regions of a difference: below -rope, within the rope, above it."""

    left: float
    rope: float
    right: float


class HierarchicalTest(NamedTuple):
    """What the differences on several data sets say about a new one."""

    shares: Probabilities  # of the draws in which the region is the most probable one on a new data set
    means: Probabilities  # that the mean difference on a new data set lies in the region, averaged over the draws
    points: NDArray[np.float64]  # (draws, 3): these probabilities of each draw, a point of the simplex each
    data_sets: list[Probabilities]  # that the mean difference on each of the data sets seen lies in the region
    mu: NDArray[np.float64]  # (draws, data sets): draws of the mean differences
    rhat: float  # the largest of all parameters
    n_divergent: int


class _Summary(NamedTuple):
    """All that the posterior needs of the differences, and the ends of the uniform priors."""

    n: NDArray[np.float64]  # (q,)
    mean: NDArray[np.float64]  # (q,)
    squares: NDArray[np.float64]  # (q,) about the mean, over 1 - rho
    inflation: NDArray[np.float64]  # (q,) variance of the mean of x_i, over sigma_i²
    sd: tuple[float, float]
    sd_among: tuple[float, float]


def correlated_t_test(differences: ArrayLike, rho: float, rope: float = ROPE) -> Probabilities:
    """Test the differences on one data set: the posterior of their mean is Student's t with n - 1 degrees of freedom.

    There are at least two differences, positive where the first model is better; ``rho`` is the correlation of two.

    Examples
    --------
    >>> found = correlated_t_test([0.04, 0.05, 0.06], rho=0.4)
    >>> round(found.right, 3)
    0.971
    """
    x = _checked(differences, rho, rope)
    scale = _spread(x) * np.sqrt(1 / len(x) + rho / (1 - rho))
    if scale == 0:
        return _regions(x > rope, x < -rope)
    posterior = stats.t(len(x) - 1, np.mean(x), scale)
    return _regions(posterior.sf(rope), posterior.cdf(-rope))


def hierarchical_test(
    differences: Sequence[ArrayLike], rho: float, rope: float = ROPE, *, n_draws: int = 2000, seed: int = 0
) -> HierarchicalTest:
    """Test the differences on several data sets together, with ``n_draws`` of each of four chains.

    Of each data set there are at least two differences, positive where the first model is better; ``rho`` is the
    correlation of two differences on the same data set.
    """
    if len(differences) == 0:
        raise ChoiceGPError("a test needs the differences on one data set or more")
    summary = _summarised([_checked(x, rho, rope) for x in differences], rho, rope)
    with jax.enable_x64(True), _on_cpu():
        start = _start(summary, np.random.default_rng(seed))
        draws, divergent = map(np.asarray, _quickly_compiled()(jax.random.key(seed), start, summary, n_draws=n_draws))
    flat = draws.reshape(-1, draws.shape[-1])
    mu_0, mu = _means(flat, summary, np.random.default_rng([seed, 1]))
    posterior = stats.t(np.exp(flat[:, 3]), mu_0, _inside(flat[:, 0], summary.sd_among))
    left, right = posterior.cdf(-rope), posterior.sf(rope)
    points = np.stack([left, 1 - left - right, right], axis=1)
    most = np.bincount(np.argmax(points, axis=1), minlength=3) / len(points)
    everything = np.concatenate([draws, mu_0.reshape(*draws.shape[:2], 1), mu.reshape(*draws.shape[:2], -1)], axis=2)
    return HierarchicalTest(
        Probabilities(*most.tolist()), Probabilities(*points.mean(axis=0).tolist()), points,
        [_regions(own > rope, own < -rope) for own in mu.T], mu, _rhat(everything), int(divergent.sum()),
    )  # fmt: skip


def _checked(differences: ArrayLike, rho: float, rope: float) -> NDArray[np.float64]:
    x = np.asarray(differences, float)
    if x.ndim != 1 or len(x) < 2 or not np.all(np.isfinite(x)):
        raise ChoiceGPError("of every data set a test needs two differences or more, all of them finite")
    if not (0 <= rho < 1 and rope > 0):
        raise ChoiceGPError(f"rho must be at least 0 and below 1, and rope positive; got rho = {rho}, rope = {rope}")
    return x


def _spread(x: NDArray[np.float64]) -> float:
    """Return the standard deviation; what is left of it by rounding is none."""
    sd = float(np.std(x, ddof=1))
    return sd if sd > 1e-12 * max(1.0, np.abs(x).max()) else 0.0


def _regions(right: Any, left: Any) -> Probabilities:
    above, below = float(np.mean(right)), float(np.mean(left))
    return Probabilities(below, 1 - below - above, above)


def _summarised(differences: list[NDArray[np.float64]], rho: float, rope: float) -> _Summary:
    n = np.array([float(len(x)) for x in differences])
    mean = np.array([x.mean() for x in differences])
    least = _NARROW * rope
    within = max(least, float(np.mean([_spread(x) for x in differences])))
    among = max(least, _spread(mean)) if len(mean) > 1 else within
    squares = np.array([np.sum((x - x.mean()) ** 2) for x in differences]) / (1 - rho)
    return _Summary(n, mean, squares, (1 + (n - 1) * rho) / n, (least, _WIDE * within), (0.0, _WIDE * among))


# Coordinates: sigma_0, alpha, beta, log nu; then the log multipliers of precision and sigma_i of all data sets.
# What has a uniform prior goes through the logistic function, whose slope is then its density.
_N_COMMON = 4


def _between(y: Array, ends: tuple[Any, Any]) -> Array:
    return ends[0] + (ends[1] - ends[0]) * jax.nn.sigmoid(y)


def _inside(y: NDArray[np.float64], ends: tuple[float, float]) -> NDArray[np.float64]:
    return ends[0] + (ends[1] - ends[0]) * special.expit(y)


def _log_posterior(position: Array, summary: _Summary) -> Array:
    sigma_0, log_nu = _between(position[0], summary.sd_among), position[3]
    alpha, beta = _between(position[1], _ALPHA), _between(position[2], _BETA)
    log_weight, y = jnp.split(position[_N_COMMON:], 2)
    sigma, nu = _between(y, summary.sd), jnp.exp(log_nu)
    uniform = jnp.concatenate([position[:3], y])
    prior = jnp.sum(jax.nn.log_sigmoid(uniform) + jax.nn.log_sigmoid(-uniform))
    prior += alpha * jnp.log(beta) - gammaln(alpha) + alpha * log_nu - beta * nu
    half = 0.5 * nu
    prior += jnp.sum(half * jnp.log(half) - gammaln(half) + half * (log_weight - jnp.exp(log_weight)))
    # The mean of x_i once mu_i is integrated out; the deviations from it do not depend on mu_i.
    variance = summary.inflation * sigma**2 + sigma_0**2 * jnp.exp(-log_weight)
    # Then mu_0: normal about the weighted mean of all data sets, and cut off at -1 and 1.
    sd = jnp.sum(1 / variance) ** -0.5
    centre = jnp.sum(summary.mean / variance) * sd**2
    fit = -0.5 * jnp.sum(jnp.log(variance) + (summary.mean - centre) ** 2 / variance) + jnp.log(sd)
    fit += jnp.log(erf((1 - centre) / (sd * jnp.sqrt(2.0))) + erf((1 + centre) / (sd * jnp.sqrt(2.0))))
    return prior + fit - jnp.sum((summary.n - 1) * jnp.log(sigma) + 0.5 * summary.squares / sigma**2)


def _drawn(key: Array, positions: Array, summary: _Summary, n_draws: int) -> tuple[Array, Array]:
    """Warm up all chains and draw from them: positions (chains, draws, coordinates), divergences (chains, draws)."""
    import blackjax

    density = partial(_log_posterior, summary=summary)
    options = {"initial_step_size": 0.3, "target_acceptance_rate": _AIM, "max_num_doublings": _MOST_DOUBLINGS}
    warm_up = blackjax.window_adaptation(blackjax.nuts, density, adaptation_info_fn=lambda *_: None, **options)

    def one_chain(key: Array, position: Array) -> tuple[Array, Array]:
        before, after = jax.random.split(key)
        (state, parameters), _ = warm_up.run(before, position, _N_WARM_UP)
        sampler = blackjax.nuts(density, **parameters)

        def step(state: Any, key: Array) -> tuple[Any, tuple[Array, Array]]:
            state, info = sampler.step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(step, state, jax.random.split(after, n_draws))[1]

    return jax.vmap(one_chain)(jax.random.split(key, len(positions)), positions)


@cache
def _quickly_compiled() -> Callable:
    """Return `_drawn` to be compiled quickly; where XLA does not know the options that do it, without."""
    try:
        jax.jit(jnp.sin, compiler_options=_COMPILER)(0.0)
    except (jax.errors.JaxRuntimeError, ValueError):
        return jax.jit(_drawn, static_argnames="n_draws")
    return jax.jit(_drawn, static_argnames="n_draws", compiler_options=_COMPILER)


def _on_cpu() -> contextlib.AbstractContextManager[Any]:
    """Compute on the CPU: on an accelerator, starting the steps of so small a program would take most of the time."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # switched off
        return contextlib.nullcontext()


def _start(summary: _Summary, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return where the chains start: around what the data show."""
    q = len(summary.n)
    sd = np.maximum(np.sqrt(summary.squares / (summary.n - 1)), 2 * summary.sd[0])
    share = np.clip((sd - summary.sd[0]) / (summary.sd[1] - summary.sd[0]), None, 0.5)
    centre = np.concatenate([[special.logit(1 / _WIDE), 0.0, 0.0, np.log(20.0)], np.zeros(q), special.logit(share)])
    return centre + 0.5 * rng.normal(size=(_N_CHAINS, len(centre)))


def _means(
    flat: NDArray[np.float64], summary: _Summary, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw mu_0 (draws,) and the mean differences mu_i (draws, data sets), normal given everything else."""
    log_weight, y = np.split(flat[:, _N_COMMON:], 2, axis=1)
    seen = summary.inflation * _inside(y, summary.sd) ** 2
    prior = _inside(flat[:, :1], summary.sd_among) ** 2 * np.exp(-log_weight)
    sd = np.sum(1 / (seen + prior), axis=1) ** -0.5
    centre = np.sum(summary.mean / (seen + prior), axis=1) * sd**2
    low, high = special.ndtr((-1 - centre) / sd), special.ndtr((1 - centre) / sd)
    mu_0 = centre + sd * special.ndtri(low + (high - low) * rng.random(len(flat)))
    share = prior / (seen + prior)  # of what was seen, in the mean
    middle = share * summary.mean + (1 - share) * mu_0[:, None]
    return mu_0, middle + np.sqrt(share * seen) * rng.normal(size=middle.shape)


def _rhat(draws: NDArray[np.float64]) -> float:
    from arviz_stats.base import array_stats

    return float(np.max(array_stats.rhat(np.moveaxis(draws, 2, 0), chain_axis=1, draw_axis=2)))
