"""Intervals from draws at a few settings of the hyperparameters, wide enough for how few these are.

The truth is one draw more, if the model is right.  Quantiles of n independent draws are not where it lies with 95%:
between the 2.5% and the 97.5% quantile of 32 draws, one draw more lies with 89%.  And where a value is decided by the
hyperparameters, such as how far a threshold lies above the mean, 512 draws at 32 settings are not many more than 32.

For n draws from a normal distribution, one draw more lies with 95% within t_{n-1}(0.975) s sqrt(1 + 1/n) of their
mean.  Intervals from quantiles become wider by the ratio of this to where the quantile lies on average, on either side
of the median, so that a long tail remains one.

Of 512 normal draws at 32 settings, one draw more lies inside with 95% where settings decide nothing, and with 97% where
they decide alone (between the quantiles: 94%): rather too wide than too narrow.  Settings of chains that have not mixed
are not independent, and these intervals do not know it.
"""

import numpy as np
from scipy.special import ndtri, stdtrit

_TAIL = 0.025
_FEWEST = 8.0  # draws: of fewer, the number itself is hardly known


def interval_of_draws(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the 95% interval of draws (H, S, ...), S at each of H settings of the hyperparameters.

    Examples
    --------
    >>> same = np.repeat(np.random.default_rng(0).normal(size=(32, 1)), 16, axis=1)  # settings decide alone
    >>> low, high = interval_of_draws(same)
    >>> bool(high > np.quantile(same, 0.975))
    True
    """
    n_settings, n_draws = draws.shape[:2]
    low, middle, high = np.quantile(draws.reshape(-1, *draws.shape[2:]), [_TAIL, 0.5, 1.0 - _TAIL], axis=0)
    n = np.full(middle.shape, float(n_settings * n_draws))
    if n_settings > 1:
        # The variance of the mean of all draws, settings being independent.
        of_mean = draws.mean(axis=1).var(axis=0, ddof=1) / n_settings
        spread = draws.var(axis=(0, 1))
        n = np.minimum(np.divide(spread, of_mean, out=n.copy(), where=of_mean > 0), n)
    wider = _widening(n)
    return middle - wider * (middle - low), middle + wider * (high - middle)


def _widening(n: np.ndarray) -> np.ndarray:
    """Return by how much quantiles of n independent draws become wider, so that one more lies inside with 95%."""
    few = np.maximum(n, _FEWEST)
    # Where the quantile of normal draws is on average: the normal score of its rank, by Blom's formula.
    rank = 1.0 + _TAIL * (few - 1.0)
    quantile = -ndtri((rank - 0.375) / (few + 0.25))
    return -stdtrit(few - 1.0, _TAIL) * np.sqrt(1.0 + 1.0 / few) / quantile
