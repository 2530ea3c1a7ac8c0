"""Training of a Pareto embedding: Adam on small batches of sets, ended when validation sets gain no more."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.compute.progress import Clock, Report
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_places
from choicegp.inference.dense import Adam
from choicegp.model.embedding import Batch, Embedding, batch_loss, set_losses

_MOST_PAIRS = 2_000_000  # of objects of one set that a batch holds, so that memory stays in the hundreds of megabytes
_GAIN = 1e-4  # relative; less is no gain


class TrainingSettings(NamedTuple):
    """How to train."""

    weights: np.ndarray  # (4,) of the terms of the loss
    learning_rate: float
    batch_size: int  # sets in a step, at most
    max_epochs: int
    patience: int  # epochs without a gain before training ends
    validation_size: float  # share of the sets that are kept for validation, 0 for none


class TrainedEmbedding(NamedTuple):
    """A finished training."""

    embedding: Embedding  # that of the epoch with the least validation loss
    # "converged", "stopped" (at a limit, or before a loss that is not finite) or "failed" (nothing was learned)
    status: str
    message: str
    best_epoch: int  # counted from 1
    # Mean over the batches of each epoch, and after it on the validation sets (on all sets if there are none).
    losses: np.ndarray
    validation_losses: np.ndarray


class PaddedSets(NamedTuple):
    """Choice data as arrays of one width.

    Attributes
    ----------
    X : array (t, c)
        Features of all objects.
    rows : int array (m, a)
        Rows of ``X`` shown in each set; 0 where a set has no more.
    present, chosen : bool array (m, a)
    weights : array (m,)
    """

    X: np.ndarray
    rows: np.ndarray
    present: np.ndarray
    chosen: np.ndarray
    weights: np.ndarray


def padded_sets(data: ChoiceData, X: np.ndarray) -> PaddedSets:
    """Arrange data with choices, whose objects have the scaled features ``X``."""
    assert data.flat_chosen is not None
    places, present = padded_places(data.offsets, np.arange(len(data)), int(np.diff(data.offsets).max()))
    rows, chosen = np.where(present, data.flat_shown[places], 0), data.flat_chosen[places] & present
    weights = np.ones(len(data)) if data.weights is None else data.weights / data.weights.max()
    return PaddedSets(X, rows, present, chosen, weights.astype(X.dtype))


def train_embedding(
    embedding: Embedding,
    sets: PaddedSets,
    settings: TrainingSettings,
    rng: np.random.Generator,
    clock: Clock,
    report: Report | None = None,
) -> TrainedEmbedding:
    """Train until the validation loss has not fallen for some epochs; the best parameters are returned."""
    training, validation = _parts(len(sets.rows), settings.validation_size, rng)
    size = _batch_size(settings.batch_size, sets.rows.shape[1])
    judged = _batches(validation if len(validation) else training, size)
    weights = settings.weights.astype(sets.X.dtype)
    rate = np.asarray(settings.learning_rate, sets.X.dtype)
    on_device = jax.tree.map(jnp.asarray, sets)
    now, adam = embedding, Adam.begin(embedding)
    best, best_epoch, least, last_gain, mark = embedding, 0, np.inf, 0, np.inf
    losses: list[float] = []
    judgements: list[float] = []
    status, message = "stopped", f"stopped after {settings.max_epochs} epochs: raise max_epochs to continue"
    for epoch in range(1, settings.max_epochs + 1):
        order = _batches(rng.permutation(training), size)
        now, adam, loss = _epoch(now, adam, on_device, order, weights, rate)
        losses.append(float(loss))
        judgements.append(float(_judge(now, on_device, judged, weights)))
        if not (np.isfinite(losses[-1]) and np.isfinite(judgements[-1])):
            status = "stopped" if best_epoch else "failed"
            message = f"the loss was no finite number in epoch {epoch}"
            break
        if judgements[-1] < least:
            best, best_epoch, least = now, epoch, judgements[-1]
        if least < mark * (1.0 - _GAIN):
            mark, last_gain = least, epoch
        if report is not None:
            report("training", epoch, judgements[-1])
        if epoch - last_gain >= settings.patience:
            status, message = "converged", f"the validation loss has not fallen for {settings.patience} epochs"
            break
        if clock.is_up:
            message = f"stopped after {clock.seconds:.1f} seconds: raise max_seconds to continue"
            break
    return TrainedEmbedding(best, status, message, best_epoch, np.array(losses), np.array(judgements))


def _parts(m: int, validation_size: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw which sets are trained on and which judge; a single set can only be trained on."""
    n_validation = 0
    if validation_size > 0 and m > 1:
        n_validation = min(max(round(validation_size * m), 1), m - 1)
    order = rng.permutation(m)
    return order[n_validation:], order[:n_validation]


def _batch_size(wanted: int, set_size: int) -> int:
    """Return how many sets a step takes: as many as wanted, unless all pairs inside them are too many to hold."""
    return max(1, min(wanted, _MOST_PAIRS // set_size**2))


def _batches(positions: np.ndarray, size: int) -> np.ndarray:
    """Cut positions into batches of about one size, filled up with -1: (batches, sets)."""
    n_batches = -(-len(positions) // size)
    width = -(-len(positions) // n_batches)
    batches = np.full(n_batches * width, -1)
    batches[: len(positions)] = positions
    return batches.reshape(n_batches, width)


def _batch(sets: PaddedSets, positions: Array) -> Batch:
    weights = jnp.where(positions >= 0, jnp.asarray(sets.weights)[positions], 0.0)
    X = jnp.asarray(sets.X)[jnp.asarray(sets.rows)[positions]]
    return Batch(X, jnp.asarray(sets.present)[positions], jnp.asarray(sets.chosen)[positions], weights)


@program
def _epoch(
    embedding: Embedding, adam: Adam, sets: PaddedSets, order: Array, weights: Array, rate: Array
) -> tuple[Embedding, Adam, Array]:
    """Take one step for each batch; return also the mean of the batches' losses."""

    def step(carry: tuple[Embedding, Adam], positions: Array) -> tuple[tuple[Embedding, Adam], Array]:
        now, adam = carry
        loss, gradient = jax.value_and_grad(batch_loss)(now, _batch(sets, positions), weights)
        direction, adam = adam.direction(gradient)
        return (jax.tree.map(lambda x, dx: x - rate * dx, now, direction), adam), loss

    (embedding, adam), losses = jax.lax.scan(step, (embedding, adam), order)
    return embedding, adam, losses.mean()


@program
def _judge(embedding: Embedding, sets: PaddedSets, order: Array, weights: Array) -> Array:
    """Return the weighted mean loss over batches of sets."""

    def total(positions: Array) -> tuple[Array, Array]:
        batch = _batch(sets, positions)
        return (batch.weights * set_losses(embedding, batch, weights)).sum(), batch.weights.sum()

    losses, counts = jax.lax.map(total, order)
    return losses.sum() / counts.sum()
