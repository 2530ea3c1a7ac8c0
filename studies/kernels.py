"""Which kernel predicts best, and whether a network predicts better: paired over splits of tables and of simulations.

    python studies/kernels.py edm pairs-edm jura --seed 60 --seeds 3 --ways rbf matern52
    python studies/kernels.py slump --seed 50 --seeds 8 --ways rbf network --intervals auto
    python studies/kernels.py summary rows.jsonl

Problems: a table's name (50 objects, 120 sets of 4; held-out sets of these and of new objects), the name after
``pairs-`` (60% of all pairs, as in `choicegp reproduce real-data`, the rest held out) or after ``beyond-`` (new
objects lie further along a random direction of the features than all others), and three simulations: ``gp`` (smooth
draws, answers with errors), ``sincos`` (smooth, no errors) and ``bends`` (utilities with kinks, no errors).  The
tables are read from the folder that CHOICEGP_DATA names.  ``several`` ways sample around several fits after small sets
of error-free answers too.
"""

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from choicegp import ChoiceData, ChoiceGP, ExtrapolationWarning, ParetoEmbedding, kernels
from choicegp.datasets import sincos_utilities
from choicegp.experiments.honesty_baselines import constant_answers, model_answers
from choicegp.experiments.honesty_data import N_NEW, TABLES, SplitAnswers, simulated, table_split
from choicegp.experiments.real_data import drawn
from choicegp.inference import intervals as modes

WAYS: dict[str, Any] = {
    "rbf": "rbf", "line + rbf": kernels.Linear() + kernels.RBF(), "matern52": "matern52",
    "rbf several": "rbf", "matern52 several": "matern52",
}  # fmt: skip
SIZE: dict[str, Any] = {"objects": 50, "sets": 120, "test": 100, "a": 4}
MEASURES = ("known_exact", "known_score", "new_exact", "new_score")


def split(problem: str, seed: int) -> tuple[int, SplitAnswers]:
    """Return the number of utilities, training sets, and held-out sets of known and of new objects."""
    folder, name = os.environ.get("CHOICEGP_DATA"), problem.split("-")[-1]
    settings = {**SIZE, "seed": seed, "table": name, "d": 3}
    if problem.startswith("pairs-"):
        pairs = drawn({"table": name, "n_objects": SIZE["objects"], "seed": seed}, folder)
        rest = pairs.choices.take(range(pairs.n_train, len(pairs.choices)))
        return 3, SplitAnswers(pairs.train, rest, None, pairs.table.U)  # type: ignore[arg-type]
    if problem.startswith("beyond-"):
        return 3, _beyond(name, seed, folder)
    if problem == "gp":
        return 2, simulated({"d": 2, "features": 5, "answers": "noisy", "related": 0.0, **settings})
    if problem in ("sincos", "bends"):
        return 2, _made(problem, np.random.default_rng([seed, 78]))
    return 3, table_split(settings, folder)


def _made(problem: str, rng: np.random.Generator) -> SplitAnswers:
    """Simulate answers without errors."""
    n = SIZE["objects"]
    if problem == "sincos":
        X = rng.uniform(-4.5, 4.5, size=(n + N_NEW, 1))
        U = sincos_utilities(X)
    else:
        X = rng.uniform(-1.0, 1.0, size=(n + N_NEW, 4))
        U = np.column_stack([-np.abs(X[:, 0] - 0.3) - np.abs(X[:, 1]), np.minimum(X[:, 2], X[:, 3] + 0.5 * X[:, 0])])
    return _answered(rng, np.arange(n), np.arange(n, n + N_NEW), lambda shown: ChoiceData.from_utilities(X, U, shown))


def _answered(rng: np.random.Generator, old: np.ndarray, new: np.ndarray, answer: Any) -> SplitAnswers:
    counts = (old, SIZE["sets"]), (old, SIZE["test"]), (new, SIZE["test"])
    shown = [[rng.choice(rows, SIZE["a"], replace=False) for _ in range(n)] for rows, n in counts]
    return SplitAnswers(*(answer(part) for part in shown), np.empty(0))


def _beyond(name: str, seed: int, folder: str | None) -> SplitAnswers:
    """Order the objects of a table along a random direction: the last are new."""
    rng = np.random.default_rng([seed, 77])
    table = TABLES[name](folder, seed)
    rows = rng.permutation(len(table))[: SIZE["objects"] + N_NEW]
    X = np.asarray(table.X, float)[rows]
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    rows = rows[np.argsort(Z @ rng.standard_normal(Z.shape[1]))]
    n = min(SIZE["objects"], round(2 / 3 * len(rows)))
    return _answered(rng, rows[:n], rows[n : n + N_NEW], table.choices)


def measured(problem: str, seed: int, way: str, intervals: str) -> dict[str, Any]:
    """Fit one model, and predict held-out sets."""
    d, data = split(problem, seed)
    start, tests = time.process_time(), {"known": data.known, "new": data.new}
    tests = {name: test for name, test in tests.items() if test is not None}
    found: dict[str, Any] = {"problem": problem, "seed": seed, "way": way}
    if way in ("network", "constant"):
        network = ParetoEmbedding(d, random_state=seed).fit(data.train) if way == "network" else None
        for name, test in tests.items():
            exact = constant_answers(data.train, test).exact if network is None else network.score(test)
            found[f"{name}_exact"] = exact
            if network is None:
                found |= constant_answers(data.train, test).values(test, name)
    else:
        large, modes._LARGE_SET = modes._LARGE_SET, 1 if "several" in way else modes._LARGE_SET
        model = ChoiceGP(d, kernel=WAYS[way], intervals=intervals, random_state=seed, progress=False).fit(data.train)
        modes._LARGE_SET = large
        found |= {"elbo": model.elbo_, "effects": model.fitted_.has_effects, "intervals": model.intervals_}
        for name, test in tests.items():
            found |= model_answers(model, test).values(test, name)
    found["seconds"] = round(time.process_time() - start, 1)
    return {name: value if isinstance(value, str) else np.asarray(value).tolist() for name, value in found.items()}


def summarise(paths: list[str]) -> None:
    """Print the mean of every way, and paired differences between ways with standard errors over splits."""
    rows: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for path in paths:
        for line in Path(path).read_text().splitlines():
            row = json.loads(line)
            rows[row["problem"]][row["seed"]][row["way"]] = row
    for problem, splits in rows.items():
        for ways in splits.values():
            fits = [ways[way] for way in ("rbf", "matern52") if way in ways]
            if len(fits) > 1:
                ways["larger bound"] = max(fits, key=lambda row: row["elbo"])
        names = sorted({way for ways in splits.values() for way in ways}, key=lambda way: (way != "rbf", way))
        for measure in MEASURES:
            own = {way: {seed: ways[way][measure] for seed, ways in splits.items() if measure in ways.get(way, {})}
                   for way in names}  # fmt: skip
            means = [f"{way} {np.mean([*by.values()]):.3f} ({len(by)})" for way, by in own.items() if by]
            for first, second in combinations([way for way in names if own[way]], 2):
                both = own[first].keys() & own[second].keys()
                if first == "rbf" and len(both) > 1:
                    gaps = np.array([own[second][seed] - own[first][seed] for seed in both])
                    means.append(f"{second} - {first}: {gaps.mean():+.3f} ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.3f}")
            if means:
                print(f"{problem} {measure}: {'; '.join(means)}")


def main() -> None:
    """Fit every split in every way, and print bounds, log scores and accuracies; or summarise printed rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", help="problems, or the word summary and files of rows")
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--ways", nargs="+", default=["rbf", "line + rbf", "matern52"], choices=[*WAYS, "network", "constant"]
    )
    parser.add_argument("--intervals", default="auto")
    args = parser.parse_args()
    if args.problems[0] == "summary":
        summarise(args.problems[1:])
        return
    warnings.simplefilter("ignore", ExtrapolationWarning)
    for seed in range(args.seed, args.seed + args.seeds):
        for problem in args.problems:
            for way in args.ways:
                print(json.dumps(measured(problem, seed, way, args.intervals)), flush=True)


if __name__ == "__main__":
    main()
