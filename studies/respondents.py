"""Many people: what one model of all of them gains, and what it takes.

Protocol, fixed before any run.

Accuracy.  50 people, 100 objects with two features, two utilities, shares of variance between people 0.2, 0.5 and 0.8,
5 and 15 training sets of 4 and 10 test sets a person (`choicegp.datasets.many_people`), seeds 0 to 9: exact accuracy
and log score (normalised) on the test sets of models that are pooled, individual and hierarchical.  Then 25 further
people, of whom nothing is known, with 10 test sets: accuracy of the pooled and of the hierarchical model; and after
5 answers by ``adapt``, against a whole refit with them.  All with ``object_effects=False, intervals="none"``.

Speed.  100, 300 and 1000 people with 15 sets of 4, d = 2, share 0.5: seconds of a fit, and peak memory.

    python studies/respondents.py accuracy [--seeds 10] [--first 0] [--between 0.2 0.5 0.8] [--sets 5 15]
    python studies/respondents.py speed [--people 100 300 1000]
"""

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.experiments.markdown import markdown_table

OPTIONS = {"object_effects": False, "intervals": "none", "progress": False}


def parts(study: ChoiceData, n_sets: int, first: int, last: int) -> tuple[ChoiceData, ChoiceData]:
    """Return training and test sets of the people from ``first`` to ``last``."""
    people = np.asarray(study.respondents, int)
    number = np.arange(len(study)) % np.sum(people == 0)
    mine = (people >= first) & (people < last)
    return study.take(np.flatnonzero(mine & (number < n_sets))), study.take(np.flatnonzero(mine & (number >= 15)))


def scores(model: ChoiceGP, test: ChoiceData) -> tuple[float, float]:
    """Return exact accuracy and log score."""
    return model.score(test), float(np.mean(model.log_prob(test, normalized=True)))


def accuracy(seeds: range, shares: list[float], sizes: list[int]) -> None:
    """Print a row for each data set."""
    names = ("pooled", "individual", "hierarchical", "new: pooled", "new: hierarchical", "adapted", "refitted")
    print(
        markdown_table(("between", "sets", "seed", *(f"{name}{what}" for name in names for what in ("", " log"))), [])
    )
    for seed in seeds:
        for between in shares:
            for n_sets in sizes:
                print("|", between, "|", n_sets, "|", seed, end=" ", flush=True)
                for value in cell(seed, between, n_sets):
                    print(f"| {value:.3f}", end=" ", flush=True)
                print("|", flush=True)


def cell(seed: int, between: float, n_sets: int) -> Iterator[float]:
    """Yield exact accuracy and log score of each model for one data set."""
    study = datasets.many_people(75, 25, between, seed).data
    train, test = parts(study, n_sets, 0, 50)
    fresh, unseen = parts(study, 5, 50, 75)
    models = {}
    for name in ("pooled", "individual", "hierarchical"):
        models[name] = ChoiceGP(2, respondents=name, random_state=seed, **OPTIONS).fit(train)
        yield from scores(models[name], test)
    for name in ("pooled", "hierarchical"):
        yield from scores(models[name], unseen)
    yield from scores(models["hierarchical"].adapt(fresh), unseen)
    both = ChoiceData.concat([train, fresh])
    yield from scores(ChoiceGP(2, respondents="hierarchical", random_state=seed, **OPTIONS).fit(both), unseen)


def speed(sizes: list[int]) -> None:
    """Print seconds and memory for growing studies."""
    print(markdown_table(("people", "seconds", "steps", "peak MiB"), []))
    for n_people in sizes:
        data = datasets.many_people(n_people, 15, 0.5, 0).data
        began = time.perf_counter()
        model = ChoiceGP(2, respondents="hierarchical", **OPTIONS).fit(data)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {n_people} | {seconds:.1f} | {model.fit_result_.n_iter} | {peak:.0f} |", flush=True)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "speed"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--between", type=float, nargs="+", default=[0.2, 0.5, 0.8])
    parser.add_argument("--sets", type=int, nargs="+", default=[5, 15])
    parser.add_argument("--people", type=int, nargs="+", default=[100, 300, 1000])
    options = parser.parse_args()
    if options.part == "accuracy":
        accuracy(range(options.first, options.first + options.seeds), options.between, options.sets)
    else:
        speed(options.people)


if __name__ == "__main__":
    main()
