"""Seconds and memory of a step of sparse inference, against what it consists of: bare products and factorisations.

    python benchmarks/steps.py                      # all rows, each in a process of its own
    python benchmarks/steps.py 40000 512 2 256      # sets, inducing points, utilities, sets in a step

A step has six products of the objects of its sets with a matrix of the order of the inducing points, and two
factorisations and two inversions of such matrices, for each utility; the same numbers of bare ones, of the same sizes
and precision, are timed in the same process.  The utilities are independent; how many times as long a step with a
shared part takes is a column of its own.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

from choicegp.experiments.results import markdown_table, table_row

SIZE, N_FEATURES, N_STEPS = 10, 6, 10
ROWS = (
    (10_000, 512, 2, 256), (40_000, 512, 2, 256), (160_000, 512, 2, 256),
    (40_000, 128, 2, 256), (40_000, 256, 2, 256), (40_000, 1024, 2, 256),
    (40_000, 512, 1, 256), (40_000, 512, 5, 256),
)  # fmt: skip


def seconds(work, *args) -> float:
    """Time the second of two calls: the first one compiles."""
    import jax

    jax.block_until_ready(work(*args))
    start = time.perf_counter()
    jax.block_until_ready(work(*args))
    return time.perf_counter() - start


def measure(n_sets: int, n_inducing: int, d: int, batch: int) -> dict:
    """Measure one size."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    from choicegp import ChoiceData, HyperPriors
    from choicegp.compute.devices import computing, linear_algebra_for
    from choicegp.inference.expectation import latin_normals
    from choicegp.inference.sparse.feed import Feed, InMemory, shares
    from choicegp.inference.sparse.plan import inducing_points, kernel_starts
    from choicegp.inference.sparse.step import Pace, SparseSettings, begin, run_steps

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_sets * SIZE, N_FEATURES))
    data = ChoiceData.from_utilities(X, X[:, :2], np.arange(len(X)).reshape(n_sets, SIZE))
    dtype = np.float64 if jax.default_backend() == "cpu" else np.float32
    with computing(), linear_algebra_for(n_inducing):
        source = InMemory(data, np.zeros(N_FEATURES), np.ones(N_FEATURES))
        parts = shares(source.sizes, np.arange(n_sets), batch)
        normals = tuple(latin_normals(d, p.size - 1, p.n_taken, 16, rng).astype(dtype) for p in parts)
        groups = Feed(source, parts, 0, dtype).steps(range(N_STEPS))
        ones = np.ones(N_STEPS)
        pace = Pace(0.1 * ones, 0.05 * ones, ones, 0.0 * ones)
        settings = SparseSettings(HyperPriors(), jitter=1e-6 if dtype == np.float64 else 1e-5)

        def a_step(*, shared: bool) -> float:
            prior = kernel_starts(None, X[:10_000], d, learn=True, shared=shared)[1].prior
            state = begin(prior, inducing_points(X[:5000], prior.n_parts, n_inducing, 0), None, rng)
            return seconds(run_steps, state, groups, pace, normals, settings) / N_STEPS

        step = a_step(shared=False)
        with_shared = a_step(shared=True) if d > 1 else step
        device = jax.devices()[0]
        on_device = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
        read = time.perf_counter()
        Feed(source, parts, 0, dtype).steps(range(N_STEPS))
        read = (time.perf_counter() - read) / N_STEPS
        tall = jnp.asarray(rng.normal(size=(d, batch * SIZE, n_inducing)).astype(dtype))
        square = jnp.asarray(rng.normal(size=(d, n_inducing, n_inducing)).astype(dtype))
        definite = jnp.asarray(np.stack([np.eye(n_inducing)] * d))

        @jax.jit
        def bare(tall, square, definite):
            with jax.default_matmul_precision("highest"):
                total = [jnp.sum((tall + i) @ square) for i in range(4)]  # A, its spread, and back through both
                total += [jnp.sum(jnp.swapaxes(tall + i, 1, 2) @ tall) for i in range(2)]  # sites, and back to L
            for i in range(2):
                root = jax.lax.map(jnp.linalg.cholesky, definite * (1.0 + i))
                eye = jnp.eye(n_inducing)
                total.append(jnp.sum(jax.lax.map(lambda r, eye=eye: solve_triangular(r, eye, lower=True), root)))
            return total

        floor = seconds(bare, tall, square, definite)
    return {
        "sets": n_sets, "inducing": n_inducing, "utilities": d, "batch": batch, "ms": round(1e3 * step, 1),
        "ms_reading": round(1e3 * read, 1), "bare_ms": round(1e3 * floor, 1), "ratio": round(step / floor, 2),
        "shared": round(with_shared / step, 2),
        "gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "gib_device": round(on_device, 2), "device": device.device_kind,
    }  # fmt: skip


def main() -> None:
    """Print a table, or one row as JSON."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(*map(int, sys.argv[1:]))))
        return
    head = {
        "sets": "sets", "inducing": "inducing points", "utilities": "utilities", "batch": "sets a step",
        "ms": "ms a step", "ms_reading": "ms reading", "bare_ms": "bare ms", "ratio": "ratio",
        "shared": "times with a shared part", "gib": "GiB", "gib_device": "GiB on a GPU",
    }  # fmt: skip
    print(markdown_table(list(head.values()), []))
    for row in ROWS:
        done = subprocess.run([sys.executable, __file__, *map(str, row)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{row} failed:\n{done.stderr}")
        measured = json.loads(done.stdout.splitlines()[-1])
        print(table_row([measured[name] for name in head]), flush=True)


if __name__ == "__main__":
    main()
