"""The paper's large benchmark: 40,960 sets of 10 objects of DTLZ and ZDT problems, by sparse inference.

Protocol, fixed before any run: objects and sets with seed 0; the test sets are the first 4,096 of a permutation drawn
with seed 1234, the rest is for training (some of it is held out by the fit itself); as many utilities as objectives;
all options at their defaults.  The test sets are looked at once, at the end.

    python benchmarks/large.py zdt1 dtlz2                          # with pymoo
    python -m choicegp.experiments.pareto_problems DIR             # write the choices, to be carried elsewhere
    python benchmarks/large.py --data DIR zdt1 dtlz2 [--out FILE]  # without pymoo

Prints one line of JSON per problem: pooled A-mean with its two rates, exact accuracy, seconds of the fit (the first
one of each number of utilities compiles), and peak memory.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

from choicegp import ChoiceData, ChoiceGP, metrics
from choicegp.experiments.pareto_problems import N_SETS, PROBLEMS, load

N_TEST = 4096


def run(name: str, data: ChoiceData, options: dict) -> dict:
    """Fit, predict the test sets once, and measure."""
    import jax

    order = np.random.default_rng(1234).permutation(len(data))
    train, test = data.take(np.sort(order[N_TEST:])), data.take(np.sort(order[:N_TEST]))
    d = 2 if name.startswith("zdt") else 5
    start = time.perf_counter()
    model = ChoiceGP(d, inference="sparse", **options).fit(train)
    fitted = time.perf_counter()
    predicted = model.predict(test)
    done = time.perf_counter()
    tpr, tnr = (float(rate or 0.0) for rate in metrics.rates(test, predicted))
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "problem": name, "utilities": d, "a_mean": round(metrics.a_mean(test, predicted), 4), "tpr": round(tpr, 4),
        "tnr": round(tnr, 4), "exact": round(metrics.exact_accuracy(test, predicted), 4),
        "seconds": round(fitted - start, 1), "seconds_predicting": round(done - fitted, 1),
        "steps": model.fit_result_.n_iter, "status": model.fit_result_.status, "note": model.fit_result_.notes[0],
        "elbo": round(model.elbo_, 1), "device": jax.devices()[0].device_kind,
        "host_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "device_gib": round(stats.get("peak_bytes_in_use", 0) / 2**30, 2), "options": options,
    }  # fmt: skip


def main() -> None:
    """Run the named problems, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--inducing", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    given = {"n_inducing": args.inducing, "batch_size": args.batch, "max_iter": args.steps, "max_seconds": args.seconds}
    options = {name: value for name, value in given.items() if value is not None}
    for name in args.problems:
        line = json.dumps(run(name, load(name, N_SETS, args.data), options))
        print(line, flush=True)
        if args.out is not None:
            with args.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
