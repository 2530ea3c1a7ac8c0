"""Many people: what one model of all of them gains, and what it takes.

Protocol, fixed before any run.

Accuracy.  50 people, 100 objects with two features, two utilities, shares of variance between people 0.2, 0.5 and 0.8,
5 and 15 training sets of 4 and 10 test sets a person (`choicegp.datasets.many_people`), seeds 0 to 9: exact accuracy
and log score (normalised) on the test sets of models that are pooled, individual and hierarchical.  Then 25 further
people, of whom nothing is known, with 10 test sets: accuracy of the pooled and of the hierarchical model; and after
5 answers by ``adapt``, against a whole refit with them.  All with ``object_effects=False, intervals="none"``.

Speed.  100, 300 and 1000 people with 15 sets of 4, d = 2, share 0.5: seconds of a fit, and peak memory; with
``--repeat 2`` also of the same fit once its programs are compiled.

Choice.  40 people with 8 training sets of 4, shares of variance between people 0, 0.3, 0.7 and 1: which way of relating
people ``respondents="auto"`` chooses, and why, beside exact accuracy and log score of all three on 10 test sets.

    python studies/respondents.py auto --seeds 1 --between 0 0.3 0.7 1 [--first 0]
    python studies/respondents.py accuracy [--seeds 10] [--first 0] [--between 0.2 0.5 0.8] [--sets 5 15]
    python studies/respondents.py report LOG ...    (means over the rows that runs of `accuracy` have printed)
    python studies/respondents.py speed [--people 100 300 1000] [--repeat 1]
"""

import argparse
import resource
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.experiments.results import markdown_table

OPTIONS = {"object_effects": False, "intervals": "none", "progress": False}
NAMES = ("pooled", "individual", "hierarchical", "new: pooled", "new: hierarchical", "adapted", "refitted")


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
    warnings.filterwarnings("ignore", "25 of the 25 respondents")  # further people are not known, as is meant
    print(
        markdown_table(("between", "sets", "seed", *(f"{name}{what}" for name in NAMES for what in ("", " log"))), [])
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


def auto(seeds: range, shares: list[float]) -> None:
    """Print what is chosen, and what would have been best."""
    for seed in seeds:
        for between in shares:
            study = datasets.many_people(40, 25, between, seed).data
            train, test = parts(study, 8, 0, 40)
            chosen = ChoiceGP(2, respondents="auto", random_state=seed, **OPTIONS).fit(train)
            (why,) = [note for note in chosen.fit_result_.notes if note.startswith("respondents: ")]
            print("|", between, "|", seed, "|", why, end=" ", flush=True)
            for name in NAMES[:3]:
                model = ChoiceGP(2, respondents=name, random_state=seed, **OPTIONS).fit(train)
                print("| {} {:.3f} {:.3f}".format(name, *scores(model, test)), end=" ", flush=True)
            print("|", flush=True)


def report(logs: list[Path]) -> None:
    """Print means over seeds, and how far the hierarchical model is from others, with standard errors over seeds."""
    rows = []
    for path in logs:
        for line in path.read_text().splitlines():
            cells = line.strip("| ").split("|")
            if line.startswith("| 0.") and len(cells) == 3 + 2 * len(NAMES):
                rows.append([float(cell) for cell in cells])
    found = np.unique(np.array(rows), axis=0)
    right = dict(zip(NAMES, found[:, 3::2].T, strict=True))
    gains = {
        "over the better": right["hierarchical"] - np.maximum(right["pooled"], right["individual"]),
        "over individual": right["hierarchical"] - right["individual"],
        "new people": right["new: hierarchical"] - right["new: pooled"],
        "adapted": right["adapted"] - right["refitted"],
    }
    cells = [
        (found[:, 0] == share) & (found[:, 1] == n) for n in np.unique(found[:, 1]) for share in np.unique(found[:, 0])
    ]
    table = []
    for cell in (*cells, np.ones(len(found), bool)):
        if not cell.any():
            continue
        n = int(cell.sum())
        where = ("all", "all") if n == len(found) else (f"{found[cell, 0][0]:g}", f"{found[cell, 1][0]:g}")
        means = (f"{right[name][cell].mean():.3f}" for name in NAMES)
        differences = (
            f"{gain[cell].mean():+.3f} ± {gain[cell].std(ddof=1) / np.sqrt(n) if n > 1 else np.nan:.3f}"
            for gain in gains.values()
        )
        table.append((*where, str(n), *means, *differences))
    print(markdown_table(("between", "sets", "seeds", *NAMES, *gains), table))


def speed(sizes: list[int], repeat: int) -> None:
    """Print seconds and memory for growing studies."""
    print(markdown_table(("people", "seconds", "steps", "peak MiB"), []))
    for n_people in np.repeat(sizes, repeat).tolist():
        data = datasets.many_people(n_people, 15, 0.5, 0).data
        began = time.perf_counter()
        model = ChoiceGP(2, respondents="hierarchical", **OPTIONS).fit(data)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {n_people} | {seconds:.1f} | {model.fit_result_.n_iter} | {peak:.0f} |", flush=True)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "auto", "report", "speed"))
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--between", type=float, nargs="+", default=[0.2, 0.5, 0.8])
    parser.add_argument("--sets", type=int, nargs="+", default=[5, 15])
    parser.add_argument("--people", type=int, nargs="+", default=[100, 300, 1000])
    options = parser.parse_args()
    if options.part == "accuracy":
        accuracy(range(options.first, options.first + options.seeds), options.between, options.sets)
    elif options.part == "auto":
        auto(range(options.first, options.first + options.seeds), options.between)
    elif options.part == "report":
        report(options.logs)
    else:
        speed(options.people, options.repeat)


if __name__ == "__main__":
    main()
