"""A network whose outputs explain the choices: further features of the objects, for a sparse fit.

It is trained as if its outputs were the utilities, on the likelihood of the choices, by Adam with decaying weights and
a falling rate; the held-out sets, which also judge the fit, choose which of its states is kept.  A network has no
doubts of its own: its outputs are features, and what is known about the utilities is left to the Gaussian process of
these.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.compute.progress import Clock
from choicegp.inference.dense import Adam
from choicegp.inference.sparse.feed import Sets, Source, all_of
from choicegp.model.derivatives import sampled_log_likelihood
from choicegp.model.mapped import Network

_BLOCK = 250  # steps between two looks at the held-out sets
_MOST_OBJECTS = 2_000_000  # in the sets that the network is trained on: they lie on the device
_MOST_PAIRS = 4_000_000  # of objects of one set, in a step and in the held-out sets of a shape
_DECAY, _WEIGHT_DECAY = (0.9, 0.99), 1e-2
_WARM_UP = 100  # steps
_HOPELESS, _WHEN = 4.0, 1.0 / 3.0  # times the log loss to beat that ends a training at this part of it


class NetworkPlan(NamedTuple):
    """How to train.

    Attributes
    ----------
    width : int
        Units in each layer.
    batch_size : int
        Sets in a step, at most.
    n_steps : int
        Steps, at most.
    rates : tuple of float
        The largest rates of learning of the networks that are trained; the best is kept.
    n_passes : int
        Passes over the sets, at most.
    """

    width: int = 128
    batch_size: int = 512
    n_steps: int = 6000
    rates: tuple[float, ...] = (5e-3, 1e-2)
    n_passes: int = 85

    def for_sets(self, n_sets: int) -> "NetworkPlan":
        """Return smaller steps, and fewer, for few sets."""
        batch = int(np.clip(n_sets // 64, 32, self.batch_size))
        steps = int(min(self.n_steps, self.n_passes * n_sets // batch))
        return self._replace(batch_size=batch, n_steps=max(_BLOCK, steps // _BLOCK * _BLOCK))


class TrainedNetwork(NamedTuple):
    """A network with outputs of unit size, the size of each as a utility, and its score on the held-out sets."""

    network: Network
    sizes: np.ndarray
    score: float

    def utilities(self, points: np.ndarray) -> np.ndarray:
        """Return what the network takes the utilities of objects for, (..., d)."""
        return np.asarray(_outputs(self.network, points), float) * self.sizes

    def first_utilities(self, points: np.ndarray) -> np.ndarray:
        """Return the utilities (d, M) of the inducing points (p, M, c), each at the points of its own part."""
        d = len(self.sizes)
        return np.stack([self.utilities(own)[:, i] for i, own in enumerate(points[len(points) - d :])])


_outputs = program(Network.__call__)


class _Training(NamedTuple):
    network: Network
    adam: Adam


def train_network(
    source: Source, training: np.ndarray, held_out: np.ndarray, objects: np.ndarray, n_utilities: int,
    plan: NetworkPlan, seed: int, clock: Clock, lapse: float | None = None, to_beat: float = -np.inf,
) -> TrainedNetwork | None:  # fmt: skip
    """Train on some of the training sets; None where nothing finite was found.

    ``objects`` (n, c) are those at which the outputs have unit size.  A network that stays far behind the held-out
    score ``to_beat`` is not trained to its end, nor with another rate.
    """
    groups = _read(source, np.random.default_rng([seed, 8]).permutation(training), _MOST_OBJECTS)
    judged = tuple(_first(sets, _most(sets)) for sets in _read(source, held_out, _MOST_OBJECTS))
    plan = plan.for_sets(sum(len(sets.weight) for sets in groups))
    best: tuple[float, Network | None] = -np.inf, None
    for rate in plan.rates:
        rng = np.random.default_rng([seed, 9])
        first = Network.create(objects.shape[1], plan.width, n_utilities, rng, np.float32)
        for done, (score, network) in enumerate(_course(first, groups, judged, plan, rate, rng, lapse), 1):
            if score > best[0]:
                best = score, network
            late = done * _BLOCK >= _WHEN * plan.n_steps
            if clock.is_up or not np.isfinite(score) or (late and best[0] < _HOPELESS * to_beat):
                break
        if best[0] < _HOPELESS * to_beat:
            break
    if best[1] is None:
        return None
    unit, sizes = jax.tree.map(lambda leaf: np.asarray(leaf, float), best[1]).standardized(objects)
    return TrainedNetwork(jax.tree.map(np.asarray, unit), sizes, best[0])


def _course(
    network: Network, groups: tuple[Sets, ...], judged: tuple[Sets, ...], plan: NetworkPlan, rate: float,
    rng: np.random.Generator, lapse: float | None,
) -> Iterator[tuple[float, Network]]:  # fmt: skip
    """Train, and yield the score on the held-out sets and the network after every block of steps."""
    state, n = _Training(network, Adam.begin(network)), sum(len(sets.weight) for sets in groups)
    lapsed = None if lapse is None else np.float32(lapse)
    for start in range(0, plan.n_steps, _BLOCK):
        steps = np.arange(start, start + _BLOCK)
        rates = rate * np.minimum(1.0, (steps + 1) / _WARM_UP) * 0.5 * (1.0 + np.cos(np.pi * steps / plan.n_steps))
        taken = tuple(
            rng.integers(m, size=(_BLOCK, min(most, max(1, round(plan.batch_size * m / n)))), dtype=np.int32)
            for m, most in ((len(sets.weight), _most(sets)) for sets in groups)
        )
        state = _train(state, groups, taken, rates.astype(np.float32), lapsed)
        yield float(_judge(state.network, judged, lapsed)), state.network


def _read(source: Source, sets: np.ndarray, most: int) -> tuple[Sets, ...]:
    """Read as many of the sets as have that many objects, one `Sets` for each shape, and place them on the device."""
    kept = sets[: max(1, int(np.searchsorted(np.cumsum(source.sizes[sets]), most)))]
    return tuple(jax.tree.map(jnp.asarray, part) for part in all_of(source, np.sort(kept), lambda _: most, np.float32))


def _most(sets: Sets) -> int:
    """How many sets of a shape are worked on at a time: their pairs of objects have to be held."""
    return max(1, _MOST_PAIRS // sets.X.shape[0] ** 2)


def _first(sets: Sets, n: int) -> Sets:
    return Sets(sets.X[:, :n], sets.present[:, :n], sets.chosen[:, :n], sets.weight[:n])


def _mean_log_likelihood(network: Network, groups: tuple[Sets, ...], lapse: Array | None) -> Array:
    """Return the mean over the sets, each shape by how many sets of all it stands for."""
    total, weights = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32)
    for sets in groups:
        u = jnp.moveaxis(network(sets.X), -1, 0)[..., None]
        logs = sampled_log_likelihood(u, sets.present, sets.chosen, lapse=lapse)[:, 0]
        total += jnp.sum(sets.weight * logs)
        weights += jnp.sum(sets.weight)
    return total / weights


@program
def _train(
    state: _Training, groups: tuple[Sets, ...], taken: tuple[Array, ...], rates: Array, lapse: Array | None
) -> _Training:  # fmt: skip
    """Take one step for each rate; ``taken`` are the numbers of the sets of every step."""

    def batch(sets: Sets, places: Array) -> Sets:
        scale = sets.weight.shape[0] / places.shape[0]
        return Sets(sets.X[:, places], sets.present[:, places], sets.chosen[:, places], scale * sets.weight[places])

    def step(now: _Training, given: tuple[tuple[Array, ...], Array]) -> tuple[_Training, None]:
        places, rate = given
        own = tuple(batch(sets, some) for sets, some in zip(groups, places, strict=True))
        gradient = jax.grad(_mean_log_likelihood)(now.network, own, lapse)
        direction, adam = now.adam.direction(gradient, _DECAY)
        moved = jax.tree.map(lambda x, dx: x + rate * (dx - _WEIGHT_DECAY * x), now.network, direction)
        return _Training(moved, adam), None

    return jax.lax.scan(step, state, (taken, rates))[0]


_judge = program(_mean_log_likelihood)
