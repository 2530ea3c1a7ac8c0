"""Choices among objects of DTLZ and ZDT problems: ChoiceGP and ChoiceNN on 40,960 sets of ten objects.

Protocol, fixed before the runs.  Problems: DTLZ1 to 7 with five objectives, ZDT1 to 4 and 6 with two; the paper counts
ten problems and does not name them.  Objects: uniform in the six variables' ranges, every set has its own; objects and
sets with seed 0.  From a set is chosen what no other object of it dominates.  Repetition r: the test sets are the first
tenth (4,096) of a permutation drawn with seed 1234 + r (and the seed of the command), the others are for training.
Both models see the same splits and are given the number of objectives; the test sets are looked at once.

* ChoiceGP: sparse inference, all options at their defaults.
* ChoiceNN: weights of the loss, layers, units and learning rate by Bayesian optimisation, judged on a fifth of the
  training sets: 60 rounds on ZDT1, DTLZ1, DTLZ2 and DTLZ7, 10 rounds, a reduced search, on the others.  Every fit has
  batches of 256 sets, at most 100 epochs and patience of 10, judged on a ninth of its sets; the best options are fitted
  to all training sets.

Measured: the A-mean over all test objects (the mean of two shares: of chosen objects that are predicted, and of
rejected objects that are not), both shares, the share of sets that are predicted exactly.  Keeping everything has an
A-mean of one half.

Without pymoo the choices are read from the folder of data, where a machine with pymoo has written them:

    python -m choicegp.experiments.pareto_problems FOLDER
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from choicegp import ChoiceData, ChoiceGP, datasets, metrics, search_embedding
from choicegp.experiments.experiment import ExperimentOptions, ExperimentReport, Outcome, RunSettings, RunValues
from choicegp.experiments.results import markdown_table, mean_and_sd
from choicegp.plotting.style import COLOURS, MARKERS, new_figure

TITLE = "DTLZ and ZDT problems: A-mean of ChoiceGP and ChoiceNN on 40,960 sets"
PROBLEMS = tuple(f"zdt{i}" for i in (1, 2, 3, 4, 6)) + tuple(f"dtlz{i}" for i in range(1, 8))
SEARCHED = ("zdt1", "dtlz1", "dtlz2", "dtlz7")
REPETITIONS = 5
N_SETS, SIZE, N_VARIABLES, TEST_SHARE = 40960, 10, 6, 0.1
_NETWORK = {"batch_size": 256, "max_epochs": 100, "patience": 10}
_QUICK = {"n_sets": 200, "inducing": 32, "steps": 20, "rounds": 2, "max_epochs": 5}
_MODELS = ("ChoiceGP", "ChoiceNN")


def runs(options: ExperimentOptions) -> list[RunSettings]:
    """List the runs: repetition by repetition, ChoiceGP on all problems, then ChoiceNN."""
    n = REPETITIONS if options.repetitions is None else options.repetitions
    problems = ("zdt1", "dtlz2") if options.quick else PROBLEMS
    return [
        _settings(model, problem, options.seed + repetition, quick=options.quick)
        for repetition in range(1 if options.quick and options.repetitions is None else n)
        for model in _MODELS
        for problem in problems
    ]


def _settings(model: str, problem: str, seed: int, *, quick: bool) -> RunSettings:
    own: RunSettings = {
        "model": model,
        "problem": problem,
        "seed": seed,
        "n_sets": _QUICK["n_sets"] if quick else N_SETS,
    }
    if model == "ChoiceGP":
        return own | ({"n_inducing": _QUICK["inducing"], "max_iter": _QUICK["steps"]} if quick else {})
    rounds = _QUICK["rounds"] if quick else 60 if problem in SEARCHED else 10
    return own | _NETWORK | {"rounds": rounds} | ({"max_epochs": _QUICK["max_epochs"]} if quick else {})


def run(settings: RunSettings, data: Path | str | None) -> RunValues:
    """Fit one model to the training sets of one problem, and look at its test sets."""
    choices = load(settings["problem"], settings["n_sets"], data)
    order = np.random.default_rng(1234 + settings["seed"]).permutation(len(choices))
    n_test = round(TEST_SHARE * len(choices))
    train, test = choices.take(np.sort(order[n_test:])), choices.take(np.sort(order[:n_test]))
    n_utilities = 2 if settings["problem"].startswith("zdt") else 5
    start = time.perf_counter()
    model, own_values = _fitted(settings, train, n_utilities)
    fitted = time.perf_counter()
    predicted = model.predict(test)
    done = time.perf_counter()
    rates = metrics.rates(test, predicted)
    result = model.fit_result_
    return {
        "n_utilities": n_utilities, "a_mean": metrics.a_mean(test, predicted), "tpr": rates[0], "tnr": rates[1],
        "exact_accuracy": metrics.exact_accuracy(test, predicted),
        "share_chosen": float(np.mean(test.flat_chosen)),  # type: ignore[arg-type]
        "seconds_fitting": fitted - start, "seconds_predicting": done - fitted, "status": result.status,
    } | own_values  # fmt: skip


def _fitted(settings: RunSettings, train: ChoiceData, n_utilities: int) -> tuple[Any, RunValues]:
    """Fit the model of the settings; return it with what only this model reports."""
    if settings["model"] == "ChoiceGP":
        own = {key: settings[key] for key in ("n_inducing", "max_iter") if key in settings}
        model = ChoiceGP(n_utilities, inference="sparse", random_state=settings["seed"], progress=False, **own)
        model.fit(train)
        result = model.fit_result_
        return model, {"elbo": model.elbo_, "steps": result.n_iter, "note": result.notes[0]}
    found = search_embedding(
        train, settings["rounds"], settings["seed"], n_utilities=n_utilities, progress=False,
        **{key: settings[key] for key in _NETWORK},
    )  # fmt: skip
    best = found.model
    weights = {f"weight_{i + 1}": float(weight) for i, weight in enumerate(best.weights)}
    return best, weights | {
        "n_layers": best.n_layers, "n_units": best.n_units, "learning_rate": best.learning_rate,
        "a_mean_of_rounds": found.table["a_mean"].tolist(),
    }  # fmt: skip


def load(problem: str, n_sets: int = N_SETS, data: Path | str | None = None) -> ChoiceData:
    """Make the choices of a problem; where the folder of data has them, read them."""
    folder = os.environ.get("CHOICEGP_DATA") if data is None else data
    file = None if not folder else Path(folder) / _file_name(problem, n_sets)
    if file is None or not file.exists():
        return datasets.benchmark_choices(problem, n_sets, SIZE, random_state=0).data
    chosen = np.unpackbits(np.load(file), count=n_sets * SIZE).astype(bool).reshape(n_sets, SIZE)
    low, high = np.zeros(N_VARIABLES), np.ones(N_VARIABLES)
    if problem == "zdt4":
        low[1:], high[1:] = -5.0, 5.0
    X = np.random.default_rng(0).uniform(low, high, size=(n_sets * SIZE, N_VARIABLES))
    shown = np.arange(len(X)).reshape(n_sets, SIZE)
    return ChoiceData.from_sets(X, shown, [row[mask] for row, mask in zip(shown, chosen, strict=True)])


def write(folder: Path, n_sets: int = N_SETS) -> None:
    """Write which objects are chosen, a bit each; the objects themselves come from the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for problem in PROBLEMS:
        chosen = datasets.benchmark_choices(problem, n_sets, SIZE, random_state=0).data.flat_chosen
        assert chosen is not None
        np.save(folder / _file_name(problem, n_sets), np.packbits(chosen))


def _file_name(problem: str, n_sets: int) -> str:
    return f"{problem}-{n_sets}.npy"


def report(outcomes: Sequence[Outcome]) -> ExperimentReport:
    """Compare both models, problem by problem."""
    frame = pd.DataFrame([outcome.settings | outcome.values | {"took": outcome.seconds} for outcome in outcomes])
    problems = [problem for problem in PROBLEMS if problem in set(frame["problem"])]
    own = ("A-mean", "kept right / rejected right", "exact")
    head = (
        "problem",
        "kept",
        *(f"ChoiceGP {own[0]}", *own[1:], "s"),
        *(f"ChoiceNN {own[0]}", *own[1:], "rounds", "s"),
        "splits",
    )
    rows = []
    for problem in problems:
        here = frame[frame["problem"] == problem]
        gp, network = (here[here["model"] == model] for model in _MODELS)
        rounds = "" if network.empty else f"{network['rounds'].iloc[0]:.0f}"
        splits = f"{len(gp)} / {len(network)}"
        rows.append(
            (problem.upper(), f"{here['share_chosen'].mean():.2f}", *_cells(gp), *_cells(network, rounds), splits)
        )
    sizes = sorted(set(frame["n_sets"]))
    text = [
        f"There are {', '.join(f'{n:,}' for n in sizes)} sets of ten objects, of which a tenth is for the test. Values "
        "are mean ± standard deviation over splits, where there are several. The paper shows its A-means in a figure "
        "without numbers.",
        markdown_table(head, rows),
        _verdict(frame, problems),
    ]
    return ExperimentReport("\n\n".join(text) + "\n", {"pareto-a-mean": _figure(frame, problems)})


def _cells(rows: pd.DataFrame, *rounds: str) -> list[str]:
    if rows.empty:
        return [""] * (4 + len(rounds))
    rates = f"{rows['tpr'].mean():.3f} / {rows['tnr'].mean():.3f}"
    exact, seconds = f"{rows['exact_accuracy'].mean():.3f}", f"{rows['seconds_fitting'].mean():.0f}"
    return [mean_and_sd(rows["a_mean"], 4), rates, exact, *rounds, seconds]


def _verdict(frame: pd.DataFrame, problems: Sequence[str]) -> str:
    """Say on how many problems ChoiceGP is above ChoiceNN, on the splits that both have seen."""
    table = frame.pivot_table(index=["problem", "seed"], columns="model", values="a_mean")
    table = table.dropna() if set(_MODELS) <= set(table.columns) else table.iloc[:0]
    if table.empty:
        return "The models have no split in common yet, so they cannot be compared."
    n_splits = table.groupby("problem").size()
    means = table.groupby("problem").mean()
    both = means.loc[[problem for problem in problems if problem in means.index]]
    ahead = both["ChoiceGP"] > both["ChoiceNN"]
    verdict = "confirmed" if ahead.all() else "changed" if ahead.any() else "not confirmed"
    behind = ", ".join(problem.upper() for problem in both.index[~ahead])
    splits = f"{n_splits.min()}" if n_splits.min() == n_splits.max() else f"{n_splits.min()} to {n_splits.max()}"
    return (
        f"The paper's claim, ChoiceGP above ChoiceNN: **{verdict}** on the problems that both have seen. ChoiceGP has "
        f"the larger A-mean on {ahead.sum()} of {len(both)} problems (splits: {splits})"
        + (f"; not on {behind}." if behind else ".")
    )


def _figure(frame: pd.DataFrame, problems: Sequence[str]) -> Figure:
    figure = new_figure(9.0, 3.8)
    ax = figure.subplots()
    for shift, model, colour, marker in zip((-0.12, 0.12), _MODELS, COLOURS, MARKERS, strict=False):
        own = frame[frame["model"] == model]
        place = [problems.index(problem) + shift for problem in own["problem"]]
        ax.plot(place, own["a_mean"], marker, color=colour, label=model, markersize=6, alpha=0.8)
    ax.set_xticks(range(len(problems)), [problem.upper() for problem in problems])
    ax.set_ylabel("A-mean on test sets")
    ax.set_xlim(-0.5, len(problems) - 0.5)
    ax.set_ylim(top=1.005)
    ax.grid(axis="y", color="0.9")
    ax.set_axisbelow(True)
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return figure


if __name__ == "__main__":
    write(Path(sys.argv[1]))
