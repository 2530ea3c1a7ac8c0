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
    python studies/respondents.py accuracy [--seeds 10] [--first 0] [--between 0.2 0.5 0.8] [--sets 5 15] [-o FILE]
    python studies/respondents.py report FILE ...    (means over what runs of `accuracy` have written)
    python studies/respondents.py speed [--people 100 300 1000] [--repeat 1]

With ``--claims FOLDER`` several processes share the data sets of `accuracy` and of `auto`.  ``--models hierarchical
adapted refitted`` leaves out the others; of a number that several files have, `report` takes the one of the last file.
"""

import argparse
import json
import resource
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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


def accuracy(seeds: range, shares: list[float], sizes: list[int], args: argparse.Namespace) -> None:
    """Write a line for each number of each data set."""
    warnings.filterwarnings("ignore", "25 of the 25 respondents")  # further people are not known, as is meant
    for n_sets in sizes:
        for seed in seeds:
            for between in shares:
                if not claimed(args.claims, f"accuracy-{between}-{n_sets}-{seed}"):
                    continue
                began = time.perf_counter()
                for name, (right, log) in cell(seed, between, n_sets, args.models):
                    row = {"between": between, "sets": n_sets, "seed": seed, "model": name}
                    seconds = round(time.perf_counter() - began, 1)
                    write(args.output, **row, exact=round(right, 4), log=round(log, 4), seconds=seconds)


def cell(seed: int, between: float, n_sets: int, names: list[str]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield exact accuracy and log score of each model for one data set."""
    study = datasets.many_people(75, 25, between, seed).data
    train, test = parts(study, n_sets, 0, 50)
    fresh, unseen = parts(study, 5, 50, 75)
    for name in ("pooled", "individual", "hierarchical"):
        if name not in names:
            continue
        model = ChoiceGP(2, respondents=name, random_state=seed, **OPTIONS).fit(train)
        yield name, scores(model, test)
        if name != "individual":
            yield f"new: {name}", scores(model, unseen)
        if name == "hierarchical" and "adapted" in names:
            yield "adapted", scores(model.adapt(fresh), unseen)
    if "refitted" in names:
        both = ChoiceData.concat([train, fresh])
        yield (
            "refitted",
            scores(ChoiceGP(2, respondents="hierarchical", random_state=seed, **OPTIONS).fit(both), unseen),
        )


def auto(seeds: range, shares: list[float], args: argparse.Namespace) -> None:
    """Write what is chosen, and what would have been best."""
    for seed in seeds:
        for between in shares:
            if not claimed(args.claims, f"auto-{between}-{seed}"):
                continue
            study = datasets.many_people(40, 25, between, seed).data
            train, test = parts(study, 8, 0, 40)
            chosen = ChoiceGP(2, respondents="auto", random_state=seed, **OPTIONS).fit(train)
            (why,) = [note for note in chosen.fit_result_.notes if note.startswith("respondents: ")]
            found = {"chosen": scores(chosen, test)}
            for name in NAMES[:3]:
                found[name] = scores(ChoiceGP(2, respondents=name, random_state=seed, **OPTIONS).fit(train), test)
            write(args.output, auto=between, seed=seed, why=why, scores=found)


def claimed(folder: Path | None, name: str) -> bool:
    """Return whether nobody else has claimed this work, and claim it."""
    if folder is None:
        return True
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def write(path: Path | None, **row: Any) -> None:
    """Print a row, and add it to a file as a line."""
    print(json.dumps(row), flush=True)
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def report(files: list[Path]) -> None:
    """Print means over seeds, and how far the hierarchical model is from others, with standard errors over seeds."""
    rows = pd.DataFrame([json.loads(line) for path in files for line in path.read_text().splitlines()])
    rows = rows[rows["model"].notna()].drop_duplicates(["between", "sets", "seed", "model"], keep="last")
    for what in ("exact", "log"):
        right = rows.pivot_table(index=["sets", "between", "seed"], columns="model", values=what).reindex(columns=NAMES)
        best = right[["pooled", "individual"]].max(axis=1, skipna=False)
        right["over the better"] = right["hierarchical"] - best
        right["over individual"] = right["hierarchical"] - right["individual"]
        right["new people"] = right["new: hierarchical"] - right["new: pooled"]
        right["adapted - refitted"] = right["adapted"] - right["refitted"]
        whole = right.groupby(["sets", "between"])
        table = []
        for (n_sets, share), part in [*whole, (("all", "all"), right)]:
            means = (f"{part[name].mean():.3f}" for name in NAMES)
            gains = (
                f"{part[name].mean():+.3f} ± {part[name].sem():.3f} ({part[name].count()})"
                for name in right.columns[len(NAMES) :]
            )
            table.append((str(n_sets), str(share), *means, *gains))
        print(f"{what}, differences with standard errors over (data sets)")
        print(markdown_table(("sets", "between", *right.columns), table))
        print("over the better, smallest:", right["over the better"].nsmallest(5).round(4).to_dict())


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
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--claims", type=Path)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--between", type=float, nargs="+", default=[0.2, 0.5, 0.8])
    parser.add_argument("--sets", type=int, nargs="+", default=[5, 15])
    parser.add_argument("--people", type=int, nargs="+", default=[100, 300, 1000])
    options = parser.parse_args()
    if options.part == "accuracy":
        accuracy(range(options.first, options.first + options.seeds), options.between, options.sets, options)
    elif options.part == "auto":
        auto(range(options.first, options.first + options.seeds), options.between, options)
    elif options.part == "report":
        report(options.files)
    else:
        speed(options.people, options.repeat)


if __name__ == "__main__":
    main()
