"""ParetoEmbedding with a search of 30 rounds on the problems of `made.py`; all rounds of a depth in one program.

Protocol, fixed before any run, with seed 0: the first round has the default options; the others have weights uniform on
the simplex, of which every second round gives the first two terms nine tenths, one to three layers of 32, 64 or 128
units and rates log-uniform between 3e-4 and 3e-2.  Rounds learn from 16,000 of the training sets, 30 epochs in batches
of 64, and are judged by the A-mean of 8,000 others after every second epoch; the best of these counts.  The options of
the best round are then refitted by `ParetoEmbedding` to all training sets, in batches of 64 and of 32, with patience of
25 epochs and at most 40 seconds, and the test sets of `made.py` are looked at once for each.

    python benchmarks/searched.py [--data DIR] ratios products

Prints lines of JSON: of the search, and of each refit.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from made import N_TEST, load

from choicegp import ChoiceData, ParetoEmbedding, metrics
from choicegp.datasets.families import MADE_PROBLEMS
from choicegp.inference.dense import Adam
from choicegp.model.embedding import Batch, Embedding, batch_loss

N_ROUNDS, N_LEARNED, N_JUDGED, N_EPOCHS, BATCH, WIDTH = 30, 16_000, 8_000, 30, 64, 128


def rounds() -> list[dict[str, Any]]:
    """Draw the options of all rounds."""
    rng = np.random.default_rng(0)
    every: list[dict[str, Any]] = [
        {"n_layers": 2, "n_units": 64, "learning_rate": 1e-2, "weights": (0.495, 0.495, 0.005, 0.005)}
    ]
    for number in range(N_ROUNDS - 1):
        weights = rng.dirichlet(np.ones(4))
        if number % 2 == 0:
            weights = np.append(0.9 * weights[:2] / weights[:2].sum(), 0.1 * weights[2:] / weights[2:].sum())
        layers, units = int(rng.integers(1, 4)), int(rng.choice([32, 64, 128]))
        rate = float(np.exp(rng.uniform(np.log(3e-4), np.log(3e-2))))
        every.append({"n_layers": layers, "n_units": units, "learning_rate": rate, "weights": tuple(weights.tolist())})
    return every


def first(n_features: int, d: int, options: dict[str, Any]) -> Embedding:
    """Draw a network, its layers filled up to one width with units that do nothing and so learn nothing."""
    layers, units = options["n_layers"], options["n_units"]
    drawn = Embedding.create((n_features, *[units] * layers, d), np.random.default_rng(0))
    matrices, shifts = [], []
    for k, (matrix, shift) in enumerate(zip(drawn.matrices, drawn.shifts, strict=True)):
        into, out = (0 if at_end else WIDTH - units for at_end in (k == 0, k == layers))
        matrices.append(np.pad(matrix, ((0, into), (0, out))).astype(np.float32))
        shifts.append(np.pad(shift, (0, out)).astype(np.float32))
    return Embedding(tuple(matrices), tuple(shifts))


@jax.jit
def epoch(nets: Any, adams: Any, X: Array, chosen: Array, order: Array, weights: Array, rates: Array) -> Any:
    """Make the steps of an epoch with every network."""

    def one(net: Embedding, adam: Adam, weight: Array, rate: Array) -> Any:
        def step(carry: Any, places: Array) -> tuple[Any, None]:
            net, adam = carry
            x = X[places]
            batch = Batch(x, jnp.ones(x.shape[:2], bool), chosen[places], jnp.ones(len(places), jnp.float32))
            direction, adam = adam.direction(jax.grad(batch_loss)(net, batch, weight))
            return (jax.tree.map(lambda p, dp: p - rate * dp, net, direction), adam), None

        return jax.lax.scan(step, (net, adam), order)[0]

    return jax.vmap(one)(nets, adams, weights, rates)


@jax.jit
def judged(nets: Any, X: Array, chosen: Array) -> Array:
    """Return the pooled A-mean of every network."""

    def one(net: Embedding) -> Array:
        u = net(X)
        ahead = u[:, None, :, :] - u[:, :, None, :]  # (o, v): by how much v is better than o
        kept = ~jnp.any(jnp.all(ahead >= 0, axis=-1) & jnp.any(ahead > 0, axis=-1), axis=-1)
        return 0.5 * (jnp.sum(kept & chosen) / jnp.sum(chosen) + jnp.sum(~kept & ~chosen) / jnp.sum(~chosen))

    return jax.lax.map(one, nets)


def search(train: ChoiceData, d: int, every: list[dict[str, Any]]) -> np.ndarray:
    """Return the A-mean of each round."""
    assert train.flat_chosen is not None
    X = ((train.X - train.X.mean(axis=0)) / train.X.std(axis=0)).astype(np.float32)
    rows, chosen = (part.reshape(len(train), -1) for part in (train.flat_shown, train.flat_chosen))
    mixed = np.random.default_rng(0).permutation(len(train))
    learned, judging = mixed[:N_LEARNED], mixed[N_LEARNED : N_LEARNED + N_JUDGED]
    given, asked = ((jnp.asarray(X[rows[some]]), jnp.asarray(chosen[some])) for some in (learned, judging))
    best = np.full(len(every), -np.inf)
    for layers in (2, 1, 3):
        own = [number for number, options in enumerate(every) if options["n_layers"] == layers]
        nets = jax.tree.map(lambda *parts: jnp.stack(parts), *(first(X.shape[1], d, every[i]) for i in own))
        adams = jax.vmap(Adam.begin)(nets)
        weights = jnp.asarray([every[i]["weights"] for i in own], jnp.float32)
        rates = jnp.asarray([every[i]["learning_rate"] for i in own], jnp.float32)
        rng = np.random.default_rng(1)
        for number in range(N_EPOCHS):
            order = rng.permutation(len(learned))[: len(learned) // BATCH * BATCH].reshape(-1, BATCH)
            nets, adams = epoch(nets, adams, *given, jnp.asarray(order), weights, rates)
            if number % 2 == 1:
                best[own] = np.fmax(best[own], np.asarray(judged(nets, *asked)))
    return best


def main() -> None:
    """Search on the named problems, or on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=MADE_PROBLEMS)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    for name in args.problems:
        data, d = load(name, args.data)
        order = np.random.default_rng(1234).permutation(len(data))
        train, test = data.take(np.sort(order[N_TEST:])), data.take(np.sort(order[:N_TEST]))
        start, every = time.perf_counter(), rounds()
        found = search(train, d, every)
        options = every[int(np.argmax(found))]
        print(json.dumps({
            "problem": name, "best": round(float(found.max()), 4), "default": round(float(found[0]), 4),
            "options": options, "seconds": round(time.perf_counter() - start, 1),
        }), flush=True)  # fmt: skip
        for batch in (64, 32):
            model = ParetoEmbedding(d, **options, batch_size=batch, patience=25, max_seconds=40.0, progress=False)
            found_a_mean = metrics.a_mean(test, model.fit(train).predict(test))
            print(json.dumps({"problem": name, "batch": batch, "a_mean": round(found_a_mean, 4)}), flush=True)


if __name__ == "__main__":
    main()
