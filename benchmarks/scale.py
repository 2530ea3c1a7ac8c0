"""One step of dense inference against its bare factorisations, over numbers of objects and sets (one process each)."""

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
from choicegp.compute.devices import computing
from choicegp.compute.threads import linear_algebra_for
from choicegp.model.prior import Objects


def best_of(work: Callable[[], object], times: int) -> float:
    """Return the shortest of a few runs, after one that compiles."""
    jax.block_until_ready(work())
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        jax.block_until_ready(work())
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Measure one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_objects", type=int)
    parser.add_argument("n_sets", type=int)
    args = parser.parse_args()
    problem = scaled(args.n_objects, args.n_sets)
    # Steps of one fit are timed: a second one, with object effects, would come on top.
    options = {"inference": "dense", "object_effects": False, "n_restarts": 1, "progress": False, "random_state": 0}
    model = ChoiceGP(2, **options).fit(problem.train)
    result = model.fit_result_
    shown = len(model.posterior_.objects.X)
    # A second, shorter fit has compiled programs: seconds a step without compiling.
    again = ChoiceGP(2, max_iter=30, **options).fit(problem.train).fit_result_
    with computing(), linear_algebra_for(shown):
        objects = Objects(jnp.asarray(model.posterior_.objects.X), jnp.asarray(model.posterior_.objects.codes))
        gram = jnp.asarray(np.asarray(model.posterior_.prior.covariance(objects, objects))) + jnp.eye(shown)
        factorise = jax.jit(jnp.linalg.cholesky)
        # Two factorisations a step and part of the utilities: of the prior covariance and of B.
        bare = 2 * sum(best_of(lambda i=i: factorise(gram[i]), 3) for i in range(len(gram)))
    print(json.dumps({
        "objects": shown, "sets": args.n_sets, "seconds": result.seconds, "steps": result.n_iter,
        "step_ms": 1e3 * again.seconds / again.n_iter, "bare_ms": 1e3 * bare,
        "ratio": again.seconds / again.n_iter / bare, "elbo": model.elbo_, "status": result.status,
        "memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
