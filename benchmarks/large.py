"""The paper's large benchmark: 40,960 sets of 10 objects of DTLZ and ZDT problems, by sparse inference.

Protocol, fixed before any run: objects and sets with seed 0; the test sets are the first 4,096 of a permutation drawn
with seed 1234, the rest is for training (some of it is held out by the fit itself); as many utilities as objectives;
all options at their defaults.  The test sets are looked at once, at the end.

    python benchmarks/large.py zdt1 dtlz2                          # with pymoo
    python benchmarks/large.py --generate DIR zdt1 dtlz2           # write the choices, to be carried elsewhere
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

from choicegp import ChoiceData, ChoiceGP, datasets, metrics
from choicegp.data.problems import PROBLEMS

N_SETS, SIZE, N_FEATURES, N_TEST = 40960, 10, 6, 4096


def generate(folder: Path, name: str) -> None:
    """Write which objects are chosen, a bit each; the objects themselves come from the seed."""
    simulated = datasets.benchmark_choices(name, N_SETS, SIZE, random_state=0)
    assert simulated.data.flat_chosen is not None
    np.save(folder / f"{name}.npy", np.packbits(simulated.data.flat_chosen))


def load(name: str, folder: Path | None) -> ChoiceData:
    """Make the problem's choices, or read them."""
    if folder is None:
        return datasets.benchmark_choices(name, N_SETS, SIZE, random_state=0).data
    low, high = np.zeros(N_FEATURES), np.ones(N_FEATURES)
    if name == "zdt4":
        low[1:], high[1:] = -5.0, 5.0
    X = np.random.default_rng(0).uniform(low, high, size=(N_SETS * SIZE, N_FEATURES))
    chosen = np.unpackbits(np.load(folder / f"{name}.npy")).astype(bool)
    shown = np.arange(len(X)).reshape(N_SETS, SIZE)
    return ChoiceData.from_sets(
        X, shown, [row[mask] for row, mask in zip(shown, chosen.reshape(shown.shape), strict=True)]
    )


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
    parser.add_argument("--generate", type=Path)
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
        if args.generate is not None:
            generate(args.generate, name)
            continue
        line = json.dumps(run(name, load(name, args.data), options))
        print(line, flush=True)
        if args.out is not None:
            with args.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
