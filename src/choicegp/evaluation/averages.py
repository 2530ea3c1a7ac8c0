"""The posterior of utilities averaged over groups of objects, from which effects of features are computed."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choicegp.compute.programs import program
from choicegp.inference.posterior import Draws, Posterior
from choicegp.model.prior import Objects, UtilityPrior

FEW_VALUES, N_GRID = 12, 48
"""Numbers of groups to which others are rounded up: programs are compiled for few shapes."""
_FEW = 8  # objects of a group, with fewer of which nothing is gained by looking at pairs of groups


class Averages(NamedTuple):
    """What is known about the utilities averaged over each of g groups of objects.

    Attributes
    ----------
    mean : float array (d, g)
    covariance : float array (d, g, g)
        Around the mean or, where there are draws, around each of them.
    draws : float array (n, d, g), optional
    """

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    draws: NDArray[np.float64] | None = None


# Of encoded objects in groups (g, b, c).
GroupAverages = Callable[[NDArray[np.float64]], Averages | tuple[NDArray[np.float64], NDArray[np.float64]]]


def posterior_averages(posterior: Posterior, centre: NDArray[np.float64], scale: NDArray[np.float64]) -> GroupAverages:
    """Return the function that gives the posterior of averages of utilities over groups of objects.

    Parameters
    ----------
    posterior : Posterior
    centre, scale : float array (c,)
        How encoded features were scaled before the fit.
    """

    def averages(X: NDArray[np.float64]) -> Averages:
        n_groups = len(X)
        # Few different shapes: each is compiled once.
        step = FEW_VALUES if n_groups <= FEW_VALUES else N_GRID
        padded = np.concatenate([X, np.repeat(X[-1:], -n_groups % step, axis=0)])
        with jax.enable_x64(True):
            found = _averages(posterior, (padded - centre) / scale)
        draws, covariance = np.asarray(found[0])[..., :n_groups], np.asarray(found[1])[:, :n_groups, :n_groups]
        if posterior.draws is None:
            return Averages(draws[0, 0], covariance)
        return Averages(draws.mean(axis=(0, 1)), covariance, draws.reshape(-1, *draws.shape[2:]))

    return averages


@program
def _averages(posterior: Posterior, X: Array) -> tuple[Array, Array]:
    """Return the averages at each of S draws for each of H settings, (H, S, d, g), and the covariance around them.

    Without draws, the mean stands in for them.
    """
    g, b, c = X.shape
    # Codes that no known object has, the same in every group: object effects are common to all groups and
    # drop out of effects, which are differences.
    objects = Objects(X.reshape(g * b, c), jnp.tile(-1 - jnp.arange(b), g))

    def averaged(prior: UtilityPrior, gain: Array) -> tuple[Array, Array]:
        cross = prior.covariance(posterior.objects, objects)
        cross = cross.reshape(*cross.shape[:2], g, b).mean(axis=3)
        return cross, _between_groups(prior, objects, g) - jnp.swapaxes(cross, 1, 2) @ (gain @ cross)

    if posterior.draws is None:
        cross, left = averaged(posterior.prior, posterior.gain)
        return jnp.einsum("dtg,dt->dg", cross, posterior.dual)[None, None], left

    def of_setting(draws: Draws) -> tuple[Array, Array]:
        cross, left = averaged(draws.prior, draws.inverse)
        drawn = jax.vmap(draws.prior.total)(jnp.einsum("ptg,spt->spg", cross, draws.dual))
        return drawn, draws.prior.total(left)

    drawn, left = jax.lax.map(of_setting, posterior.draws)
    return drawn, jnp.mean(left, axis=0)


def _between_groups(prior: UtilityPrior, objects: Objects, g: int) -> Array:
    """Return the covariances (p, g, g) of the averages over g groups of objects."""
    b, c = len(objects.codes) // g, objects.X.shape[1]
    if b < _FEW or g % 2:
        return prior.covariance(objects, objects).reshape(-1, g, b, g, b).mean(axis=(2, 4))
    X, codes = objects.X.reshape(g, b, c), objects.codes.reshape(g, b)

    def between(i: Array, j: Array) -> Array:
        return prior.covariance(Objects(X[i], codes[i]), Objects(X[j], codes[j])).mean(axis=(1, 2))

    # Every pair of groups once, in blocks of one size: half of the work, and blocks that stay near the processor.
    rows, columns = np.tril_indices(g)
    blocks = jnp.asarray(rows).reshape(-1, g + 1), jnp.asarray(columns).reshape(-1, g + 1)
    found = jax.lax.map(lambda block: jax.vmap(between)(*block), blocks).reshape(len(rows), -1).T
    place = np.zeros((g, g), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return found[:, place]
