"""Utilities as users see them: contrasts to the mean of the shown objects, with intervals.

Choices compare objects, so that they do not say where a utility is zero.  Most of the posterior's variance at a single
object is that common level (17.5 where differences between objects have 3.6, on one of the paper's examples): it says
nothing about the object, and no choice depends on it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.fitting.record import Utilities
from choicegp.inference.posterior import Draws, Posterior
from choicegp.model.prior import Objects, UtilityPrior, with_room
from choicegp.prediction.draw_intervals import interval_of_draws

_CHUNK = 512  # objects at a time
_MOST_REFERENCES = 512
_NORMAL = 1.959964  # half the width of a 95% interval, in standard deviations
_WithRoom = tuple[Objects, Array]  # see `with_room`


def contrasts(posterior: Posterior, objects: Objects, shown: Objects | int) -> Utilities:
    """Return means, standard deviations and 95% intervals of u(x) - mean of u over the shown objects, each (n, d).

    The shown objects are given, or their number: they are the first ones of the posterior.
    """
    if isinstance(shown, int):
        shown = Objects(posterior.objects.X[:shown], posterior.objects.codes[:shown])
    # Draws of the shown objects say themselves where the mean of all is.
    told = posterior.draws is not None and not posterior.is_sparse
    if not told:
        some = np.linspace(0, len(shown.X) - 1, min(len(shown.X), _MOST_REFERENCES)).astype(int)
        shown = Objects(shown.X[some], shown.codes[some])
    averaged = with_room(shown)
    parts = []
    for start in range(0, len(objects.X), _CHUNK):
        # One shape, hence one program, for many objects as for few.
        n = min(_CHUNK, len(objects.X) - start)
        rows = start + np.minimum(np.arange(min(_CHUNK, 1 << (n - 1).bit_length())), n - 1)
        part = Objects(objects.X[rows], objects.codes[rows])
        if posterior.draws is None:
            mean, variance = (np.asarray(value).T for value in _gaussian(posterior, part, averaged))
            sd = np.sqrt(variance)
            found: tuple[np.ndarray, ...] = mean, sd, mean - _NORMAL * sd, mean + _NORMAL * sd
        else:
            drawn = _of_draws(posterior.draws, posterior.objects, part, averaged, None if told else averaged)
            found = _summed_up(*map(np.asarray, drawn))
        parts.append([value[:n] for value in found])
    empty = np.zeros((0, posterior.n_utilities))
    return Utilities(*(np.concatenate(values) for values in zip([empty] * 4, *parts, strict=True)))


@program
def _gaussian(posterior: Posterior, objects: Objects, reference: _WithRoom) -> tuple[Array, Array]:
    moved, variance = _to_reference(posterior.prior, posterior.objects, posterior.gain, objects, reference)
    return jnp.einsum("dtn,dt->dn", moved, posterior.dual), variance


def _to_reference(
    prior: UtilityPrior, known: Objects, gain: Array, objects: Objects, reference: _WithRoom
) -> tuple[Array, Array]:
    """Return the prior covariances (p, t, n) of contrasts with the known objects, and the variances (p, n) left."""
    shown, real = reference
    cross = prior.covariance(known, objects)
    level = jnp.mean(prior.covariance(known, shown), axis=2, where=real)
    own = prior.variance(objects) - jnp.einsum("ptn,ptn->pn", cross, gain @ cross)
    through = (gain @ level[..., None])[..., 0]
    beside = jnp.mean(prior.covariance(objects, shown), axis=2, where=real)
    beside -= jnp.einsum("ptn,pt->pn", cross, through)
    of_level = jnp.mean(prior.covariance(shown, shown), axis=(1, 2), where=real[:, None] & real)
    of_level -= jnp.einsum("pt,pt->p", level, through)
    return cross - level[..., None], jnp.maximum(own - 2.0 * beside + of_level[:, None], 0.0)


@program
def _of_draws(
    draws: Draws, known: Objects, objects: Objects, shown: _WithRoom, reference: _WithRoom | None
) -> tuple[Array, Array]:
    """Return what each draw says, (H, S, d, n), and the variance that is left at each setting, (H, d, n).

    Without a reference the draws are of the shown objects, and so say where their mean is.
    """

    def of_setting(draws: Draws) -> tuple[Array, Array]:
        prior = draws.prior
        if reference is None:
            cross = prior.covariance(known, objects)
            moved = cross - jnp.mean(prior.covariance(known, shown[0]), axis=2, where=shown[1])[..., None]
            left = prior.variance(objects) - jnp.einsum("ptn,ptn->pn", cross, draws.inverse @ cross)
        else:
            moved, left = _to_reference(prior, known, draws.inverse, objects, reference)
        drawn = jnp.einsum("ptn,spt->spn", moved, draws.dual)
        return jax.vmap(prior.total)(drawn), prior.total(jnp.maximum(left, 0.0))

    return jax.lax.map(of_setting, draws)


def _summed_up(drawn: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return mean, standard deviation and the ends of the 95% interval, each (n, d)."""
    mean = drawn.mean(axis=(0, 1))
    sd = np.sqrt(drawn.var(axis=(0, 1)) + left.mean(axis=0))
    noise = np.random.default_rng(0).normal(size=(*drawn.shape[:2], 1, 1)) * np.sqrt(left)[:, None]
    low, high = interval_of_draws(drawn + noise)
    return mean.T, sd.T, low.T, high.T
