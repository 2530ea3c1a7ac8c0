"""The paper's counterexample, which has one true utility.

u(x) = cos 5x + exp(-x²/8); 150 inputs uniform in [-2.6, 2.6] (seed 0), 500 pairs of them, the better one chosen.  Two
kinds of new pairs: 1000 pairs of the same inputs, without the training pairs, and 1000 pairs of 150 other inputs (seed
1).  A pair is right when exactly the better object is predicted: a model that keeps both is wrong.

ChoiceNN (`ParetoEmbedding`) with one and two outputs, each from seeds 0 and 1: loss weights 0.495 (chosen objects
that are dominated), 0.495 (rejected objects that are not), 0.005 (distances), 0.005 (size); two hidden layers of 64
units; Adam with rate 0.01 on batches of 32 pairs, at most 1000 epochs, and patience of 100 judged on a ninth of the
pairs; inputs standardised.  Nothing is tuned.  ChoiceGP with two utilities, default options (intervals included, which
are its band), seed 0.

Reported: the share of pairs that is right, in training and new; the correlation of a model's two outputs (posterior
means) at the inputs; how well the better of them follows u; and whether the two utilities of ChoiceGP coincide: of the
pairs of inputs that differ in either by more than the error of a comparison, at most 2% are in opposite order.
Bands are of utilities whose mean over the interval is zero: choices say nothing about the level of a utility.

Another seed makes other data, and the seeds of the models follow it; repetitions are the seeds of ChoiceNN.  Quick: 40
inputs, 60 pairs, 200 new ones of either kind, at most 50 epochs.
"""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from choicegp import ChoiceData, ChoiceGP, ParetoEmbedding, datasets
from choicegp.experiments.experiment import ExperimentOptions, ExperimentReport, Outcome, RunSettings, RunValues
from choicegp.experiments.results import markdown_table
from choicegp.plotting.style import COLOURS, LINES, mark_values, new_figure, panels

TITLE = "One utility, learned by ChoiceNN and by ChoiceGP with one utility too many"

EDGE, N_GRID, N_DRAWS, N_SEEDS = 2.6, 400, 2000, 2
MOST_OPPOSITE = 0.02  # share of the clear pairs; two utilities with more differ
FULL = {"n_objects": 150, "n_pairs": 500, "n_new": 1000, "max_epochs": 1000}
QUICK = {"n_objects": 40, "n_pairs": 60, "n_new": 200, "max_epochs": 50}
NETWORK: dict[str, Any] = {
    "weights": (0.495, 0.495, 0.005, 0.005), "n_layers": 2, "n_units": 64, "learning_rate": 0.01, "batch_size": 32,
    "patience": 100, "validation_size": 1 / 9, "standardize": True,
}  # fmt: skip
SHARES = {
    "training_pairs": "training pairs",
    "new_pairs": "new pairs of the inputs",
    "pairs_of_new_inputs": "pairs of new inputs",
}
IN_THE_PAPER = (
    "The paper shows pictures without numbers. There, ChoiceNN with one output follows u; with two outputs it ended in "
    "two different optima, neither of which agrees with the choices; the two utilities of ChoiceGP coincide."
)


def runs(options: ExperimentOptions) -> list[RunSettings]:
    """Return ChoiceNN with one and two outputs from every seed, and ChoiceGP with two utilities."""
    sizes = {"data_seed": options.seed, **(QUICK if options.quick else FULL)}
    seeds = [options.seed + i for i in range(options.repetitions or N_SEEDS)]
    networks: list[RunSettings] = [{"model": "ChoiceNN", "d": d, "seed": seed} for seed in seeds for d in (1, 2)]
    return [settings | sizes for settings in [*networks, {"model": "ChoiceGP", "d": 2, "seed": options.seed}]]


def run(settings: RunSettings, data: object = None) -> RunValues:
    """Fit one model, score it, and return its utilities along the interval."""
    d, seed = settings["d"], settings["seed"]
    train, known, other = pairs_of(settings)
    grid = pd.DataFrame({"x": grid_points()})
    if settings["model"] == "ChoiceNN":
        network = ParetoEmbedding(
            d, **NETWORK, max_epochs=settings["max_epochs"], progress=False, random_state=seed
        ).fit(train)
        model: Any = network
        curves = {"mean": network.utilities(grid).mean}
        at_inputs = network.utilities(train).mean
        coincide = {}
    else:
        model = ChoiceGP(d, progress=False, random_state=seed).fit(train)
        draws = model.sample_utilities(grid, N_DRAWS, random_state=0)
        draws -= draws.mean(axis=1, keepdims=True)
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        curves = {"mean": draws.mean(axis=0), "low": low, "high": high}
        at_inputs = model.utilities(train).mean
        coincide = {"called_alike": order_in_the_same_way(at_inputs)}
    u = datasets.counterexample_utility(train.X)[:, 0]
    return {
        "training_pairs": model.score(train), "new_pairs": model.score(known),
        "pairs_of_new_inputs": model.score(other),
        "correlation_of_the_two": np.corrcoef(at_inputs.T)[0, 1] if d == 2 else math.nan,
        "correlation_with_u": max(np.corrcoef(at_inputs[:, i], u)[0, 1] for i in range(d)),
        **coincide, "fit_status": model.fit_result_.status, **curves,
    }  # fmt: skip


def order_in_the_same_way(utilities: np.ndarray) -> bool:
    """Return whether two utilities (n, 2), in units of the error of a comparison, order the objects in the same way.

    Examples
    --------
    >>> order_in_the_same_way(np.array([[0.0, 1.0], [3.0, 9.0], [6.0, 30.0]]))
    True
    """
    first, second = np.triu_indices(len(utilities), 1)
    difference = utilities[first] - utilities[second]
    clear = np.abs(difference) > 1.0
    opposite = difference.prod(axis=1)[clear.any(axis=1)] <= 0
    return bool(clear.any(axis=0).all() and opposite.mean() <= MOST_OPPOSITE)


def pairs_of(settings: RunSettings) -> tuple[ChoiceData, ChoiceData, ChoiceData]:
    """Make training pairs, pairs of the same inputs that are not among them, and pairs of other inputs."""
    n_objects, n_new, seed = settings["n_objects"], settings["n_new"], settings["data_seed"]
    train = datasets.counterexample(n_objects, settings["n_pairs"], random_state=seed).data
    seen = {tuple(sorted(rows)) for rows in train.shown}
    unseen = np.array([pair for pair in datasets.all_pairs(n_objects) if tuple(pair) not in seen])
    drawn = np.random.default_rng(seed + 2).permutation(unseen)[:n_new]
    table = pd.DataFrame(train.X, columns=["x"])
    known = ChoiceData.from_utilities(table, datasets.counterexample_utility(train.X), drawn)
    return train, known, datasets.counterexample(n_objects, n_new, random_state=seed + 1).data


def grid_points() -> np.ndarray:
    """Return where utilities are drawn."""
    return np.linspace(-EDGE, EDGE, N_GRID)


def report(outcomes: Sequence[Outcome]) -> ExperimentReport:
    """Return the table of all runs, and a picture of the truth and the models."""
    ordered = sorted(outcomes, key=lambda one: (one.settings["model"] != "ChoiceNN", one.settings["d"]))
    head = ("model", *SHARES.values(), "correlation of its two utilities", "correlation of the better one with u")
    numbers = (*SHARES, "correlation_of_the_two", "correlation_with_u")
    rows = [(_name(one.settings), *(_rounded(one.values[name]) for name in numbers)) for one in ordered]
    parts = ["The table shows the share of pairs that are predicted correctly.", markdown_table(head, rows)]
    coincide = [one.values["called_alike"] for one in ordered if "called_alike" in one.values]
    if coincide:
        order = "order" if all(coincide) else "do not order"
        parts.append(f"The two utilities of ChoiceGP {order} the inputs in the same way.")
    return ExperimentReport("\n\n".join([*parts, IN_THE_PAPER]), {"counterexample": picture(ordered)})


def _name(settings: RunSettings) -> str:
    seed = f", seed {settings['seed']}" if settings["model"] == "ChoiceNN" else ""
    return f"{settings['model']}, d = {settings['d']}{seed}"


def _rounded(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def picture(outcomes: Sequence[Outcome]) -> Figure:
    """Draw the truth, ChoiceNN with one output from its first seed, with two from its first two, and ChoiceGP."""
    drawn = [
        one
        for d, model, most in ((1, "ChoiceNN", 1), (2, "ChoiceNN", 2), (2, "ChoiceGP", 1))
        for one in [one for one in outcomes if (one.settings["d"], one.settings["model"]) == (d, model)][:most]
    ]
    figure = new_figure(3.0 * (1 + len(drawn)), 3.5)
    axes = panels(figure, 1 + len(drawn))
    draw_truth(axes[0], pairs_of(drawn[0].settings)[0])
    for ax, one in zip(axes[1:], drawn, strict=True):
        draw_utilities(ax, one)
    for ax in axes:
        ax.set_xlabel("x")
        ax.set_xlim(-EDGE, EDGE)
        ax.locator_params(axis="both", nbins=6)
    keys = [mpl.lines.Line2D([], [], color=COLOURS[i], linestyle=LINES[i], label=f"utility {i + 1}") for i in range(2)]
    band = mpl.patches.Patch(color="0.5", alpha=0.3, linewidth=0, label="95% band (ChoiceGP)")
    figure.legend(handles=[*keys, band], loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_truth(ax: Axes, train: ChoiceData) -> None:
    """Draw the true utility, with marks where the inputs are."""
    x = grid_points()
    ax.plot(x, datasets.counterexample_utility(x)[:, 0], color="black", linewidth=1.6)
    mark_values(ax, train.X[:, 0], 8)
    ax.set_title("truth, u(x) = cos 5x + exp(-x²/8)\nthe inputs are marked below", size=10)
    ax.set_ylabel("utility (every panel has its own scale)")


def draw_utilities(ax: Axes, one: Outcome) -> None:
    """Draw the utilities of one model; where they coincide, the dashes of the second show the first."""
    x = grid_points()
    curves = {name: np.asarray(one.values[name]) for name in ("mean", "low", "high") if name in one.values}
    for i in range(curves["mean"].shape[1]):
        if "low" in curves:
            ax.fill_between(x, curves["low"][:, i], curves["high"][:, i], color=COLOURS[i], alpha=0.25, linewidth=0)
        ax.plot(x, curves["mean"][:, i], color=COLOURS[i], linestyle=LINES[i], linewidth=1.6)
    ax.set_title(f"{_name(one.settings)}\n{one.values['pairs_of_new_inputs']:.0%} of new pairs right", size=10)
