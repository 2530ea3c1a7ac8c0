"""Fit one problem by one method in this fresh process, and print what came out as one line of JSON."""

import time

_STARTED = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402

from problems import PROBLEMS  # noqa: E402

from choicegp import ChoiceGP, metrics  # noqa: E402


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("inference")
    parser.add_argument("--max-iter", type=int)
    parser.add_argument("--warm", action="store_true", help="fit a second time, with another seed")
    args = parser.parse_args()
    problem = PROBLEMS[args.problem]()

    def fit(seed: int) -> ChoiceGP:
        model = ChoiceGP(
            problem.n_utilities, inference=args.inference, max_iter=args.max_iter, random_state=seed, progress=False
        )
        return model.fit(problem.train)

    model = fit(0)
    out = {
        "cold": time.perf_counter() - _STARTED,
        "elbo": model.elbo_,
        "steps": model.fit_result_.n_iter,
        "status": model.fit_result_.status,
    }
    if args.warm:
        start = time.perf_counter()
        fit(1)
        out["warm"] = time.perf_counter() - start
    out["memory_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for name, data in (("known", problem.known), ("new", problem.new)):
        predicted = model.predict(data)
        out[f"exact_{name}"] = metrics.exact_accuracy(data, predicted)
        out[f"object_{name}"] = metrics.object_accuracy(data, predicted)
        out[f"a_mean_{name}"] = metrics.a_mean(data, predicted)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
