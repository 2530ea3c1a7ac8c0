"""Dense fits against their bare factorisations, over numbers of objects and sets (one process each).

The fit is made twice, and the second time, without compiling, is measured: seconds of the clock and of the processor.
On a machine that does other work at the same time only the second, and ratios, say something.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from problems import scaled

from choicegp import ChoiceGP
from choicegp.compute.devices import computing, linear_algebra_for
from choicegp.model.prior import Objects


def least(work: Callable[[], object], times: int) -> float:
    """Return the fewest seconds of the processor of a few runs, after one that compiles."""
    jax.block_until_ready(work())
    seconds = []
    for _ in range(times):
        start = time.process_time()
        jax.block_until_ready(work())
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    """Measure one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_objects", type=int)
    parser.add_argument("n_sets", type=int)
    parser.add_argument("--starts", type=int, help="by default as many as a fit tries")
    parser.add_argument("--effects", action="store_true", help="also try object effects, as a default fit does")
    args = parser.parse_args()
    data = scaled(args.n_objects, args.n_sets).train
    effects = "auto" if args.effects else False
    options = {"inference": "dense", "object_effects": effects, "n_restarts": args.starts, "progress": False}
    ChoiceGP(2, **options).fit(data)
    start, on_processor = time.perf_counter(), time.process_time()
    model = ChoiceGP(2, **options).fit(data)
    seconds, on_processor = time.perf_counter() - start, time.process_time() - on_processor
    shown, result = len(model.posterior_.objects.X), model.fit_result_
    with computing(), linear_algebra_for(1):
        objects = Objects(jnp.asarray(model.posterior_.objects.X), jnp.asarray(model.posterior_.objects.codes))
        gram = jnp.asarray(np.asarray(model.posterior_.prior.covariance(objects, objects))) + jnp.eye(shown)
        factorise = jax.jit(jnp.linalg.cholesky)
        # A step with all objects has two factorisations of each part: of the prior covariance and of B.
        bare = 2 * sum(least(lambda i=i: factorise(gram[i]), 3) for i in range(len(gram)))
    print(json.dumps({
        "objects": shown, "sets": args.n_sets, "seconds": seconds, "on_processor": on_processor,
        "steps": result.n_iter, "bare_ms": 1e3 * bare, "ratio": on_processor / result.n_iter / bare,
        "elbo": model.elbo_, "status": result.status,
        "memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
