"""The sets that are asked about, in groups of one size, and the posterior of the utilities inside them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import sets_by_size
from choicegp.inference.expectation import Marginals, of_differences, samples, sobol_normals
from choicegp.inference.respondents.personal import AnyPosterior, PersonalDraws, PersonalPosterior
from choicegp.model.prior import Objects, UtilityPrior

_AT_ONCE = 65_536  # numbers that take a few milliseconds: smaller chunks are filled up to this
_CELLS = 4_000_000  # numbers in the largest temporary array of a chunk


class Group(NamedTuple):
    """Sets of one size: their numbers (n,), where their objects are shown and their rows (a, m); m >= n, padded."""

    sets: np.ndarray
    places: np.ndarray
    rows: np.ndarray


def groups(data: ChoiceData, cells: Callable[[int], int]) -> Iterator[Group]:
    """Yield chunks of sets of equal size, each chunk padded to a full one by repeating its last set.

    ``cells`` tells how many numbers a set of that many objects takes while it is worked on.
    """
    for sets, by_set in sets_by_size(data.offsets):
        size = _chunk_size(cells(by_set.shape[1]), len(sets))
        for start in range(0, len(sets), size):
            filled = np.minimum(np.arange(start, start + size), len(sets) - 1)
            places = by_set[filled].T
            yield Group(sets[start : start + size], places, data.flat_shown[places])


def asked(people: np.ndarray | None, data: ChoiceData, group: Group) -> np.ndarray | None:
    """Return the person of each set of a group (1, m), from the people of all sets; None where all are one."""
    if people is None:
        return None
    return people[np.searchsorted(data.offsets, group.places[:1], side="right") - 1]


def _chunk_size(cells: int, n_sets: int) -> int:
    """Return a power of two, one of few: each is a program to compile, and filling up a small one takes no time."""

    def sets_in(most: int) -> int:
        return 1 << max(0, (most // cells).bit_length() - 1)

    return max(min(sets_in(_AT_ONCE), 64), min(sets_in(_CELLS), 1024, 1 << (n_sets - 1).bit_length()))


class SetUtilities(NamedTuple):
    """Posterior of the utilities inside sets, as Gaussian differences of their parts to a set's first object.

    Attributes
    ----------
    marginal : Marginals
        Where there are draws, of what no draw knows: every array has a leading axis of H settings.
    moves : Array (H, p, a, m, S) or None
        What each draw predicts; of people, whose parts are drawn together, for d utilities.
    shared : bool
        Whether the first part is shared by all utilities.
    """

    marginal: Marginals
    moves: Array | None = None
    shared: bool = False

    def sampled(self, normals: Array) -> Array:
        """Turn standard normals (p, a - 1, 1, S) into utilities (d, a, m, S)."""
        m = self.marginal.mean.shape[-1]
        wide = jnp.broadcast_to(normals, _wide(normals, m))
        if self.moves is None:
            return samples(self.marginal, wide)
        p, n, _, n_points = wide.shape
        by_setting = jnp.moveaxis(wide.reshape(p, n, m, len(self.moves), -1), 3, 0)
        drawn = jax.vmap(samples)(self.marginal, by_setting) + self.moves
        u = jnp.moveaxis(drawn, 0, 3).reshape(p, n + 1, m, n_points)
        return u[:1] + u[1:] if self.shared else u


def points_for(posterior: AnyPosterior, n_objects: int, n: int) -> np.ndarray:
    """Draw the ``n`` points (p, a - 1, 1, n) at which the utilities inside sets of that size are sampled."""
    return sobol_normals(posterior.n_sampled, n_objects - 1, n, np.random.default_rng(0))


def set_utilities(posterior: AnyPosterior, objects: Objects, n_points: int) -> SetUtilities:
    """Return the posterior inside sets; ``objects`` holds arrays (a, m, c) and (a, m)."""
    if isinstance(posterior, PersonalPosterior):
        assert objects.people is not None
        mean, covariance = posterior.moments(objects.people[0], objects)
        return SetUtilities(of_differences(mean, covariance[0] if len(mean) == 1 else covariance))
    if isinstance(posterior, PersonalDraws):
        return _of_people(posterior.some(n_points), objects, n_points)
    draws = posterior.draws
    if draws is None:
        cross, covariance = _inside_sets(posterior.prior, posterior.objects, objects, posterior.gain)
        mean = jnp.einsum("dtom,dt->dom", cross, posterior.dual)
        return SetUtilities(of_differences(mean, covariance))
    # As many draws as points, evenly from all settings; all are powers of two.
    n_settings, n_draws = draws.dual.shape[:2]
    if n_points < n_settings:
        draws = jax.tree.map(lambda leaf: leaf[:: n_settings // n_points], draws)
        n_settings = n_points
    dual = draws.dual[:, :: max(1, n_settings * n_draws // n_points)]
    repeats = n_points // (n_settings * dual.shape[1])

    def of_setting(setting: tuple[UtilityPrior, Array, Array]) -> tuple[Marginals, Array]:
        prior, inverse, own = setting
        cross, covariance = _inside_sets(prior, posterior.objects, objects, inverse)
        moves = jnp.repeat(jnp.einsum("ptom,spt->poms", cross, own), repeats, axis=-1)
        return of_differences(jnp.zeros(cross.shape[::2] + cross.shape[3:]), covariance), moves - moves[:, :1]

    marginal, moves = jax.lax.map(of_setting, (draws.prior, draws.inverse, dual))
    return SetUtilities(marginal, moves, posterior.prior.shared)


def _of_people(posterior: PersonalDraws, objects: Objects, n_points: int) -> SetUtilities:
    assert objects.people is not None
    means, covariances = posterior.in_sets(objects.people[0], objects)
    moves = jnp.repeat(means, n_points // (means.shape[0] * means.shape[-1]), axis=-1)
    d = posterior.n_utilities
    marginal = jax.vmap(lambda mean, own: of_differences(jnp.zeros_like(mean), own[0] if d == 1 else own))(
        means[..., 0], covariances
    )
    return SetUtilities(marginal, moves - moves[:, :, :1])


def _inside_sets(prior: UtilityPrior, shown: Objects, objects: Objects, gain: Array) -> tuple[Array, Array]:
    """Return prior covariances of shown objects with objects of sets, (p, t, a, m), and what is left, (p, a, a, m)."""
    a, m, c = objects.X.shape
    cross = prior.covariance(shown, Objects(objects.X.reshape(a * m, c), objects.codes.reshape(a * m)))
    p, t, _ = cross.shape
    through, cross = (gain @ cross).reshape(p, t, a, m), cross.reshape(p, t, a, m)
    shrink = jnp.einsum("ptom,ptqm->poqm", cross, through)
    own = jax.vmap(lambda one: prior.covariance(one, one), 1, -1)(objects)
    return cross, own - 0.5 * (shrink + jnp.swapaxes(shrink, 1, 2))


def _wide(normals: Array, m: int) -> tuple[int, ...]:
    d, n, _, s = normals.shape
    return (d, n, m, s)
