"""The paper's counterexample: one utility, learned by ChoiceNN and by ChoiceGP with one utility too many.

Protocol, fixed before any run.  u(x) = cos 5x + exp(-x²/8); 150 inputs uniform in [-2.6, 2.6] (seed 0), 500 pairs of
them, the better one chosen.  Two kinds of new pairs: 1000 pairs of the same inputs, those of training left out, and
1000 pairs of 150 other inputs (seed 1).  A pair is right when exactly the better object is predicted: a model that
keeps both is wrong.

ChoiceNN (`ParetoEmbedding`) with one and two outputs, each from seeds 0 and 1: loss weights 0.495 (chosen objects
that are dominated), 0.495 (rejected objects that are not), 0.005 (distances), 0.005 (size); two hidden layers of 64
units; Adam with rate 0.01 on batches of 32 pairs, at most 1000 epochs, and patience of 100 judged on a ninth of the
pairs; inputs standardised.  Nothing is tuned.  ChoiceGP with two utilities, default options, seed 0.

Reported: the share of pairs that is right, in training and new; the correlation of a model's two outputs (posterior
means) at the inputs; how well the better of them follows u; and whether the fit of ChoiceGP calls its utilities alike.
Bands are of utilities whose mean over the interval is zero: choices say nothing about the level of a utility.

    python experiments/counterexample.py [--out experiments-out]    # a minute

It writes counterexample.csv (this table), counterexample-curves.csv, counterexample.png and counterexample.svg.
"""

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from choicegp import ChoiceData, ChoiceGP, ParetoEmbedding, datasets

EDGE, N_OBJECTS, N_PAIRS, N_NEW = 2.6, 150, 500, 1000
NETWORK: dict[str, Any] = {
    "weights": (0.495, 0.495, 0.005, 0.005), "n_layers": 2, "n_units": 64, "learning_rate": 0.01, "batch_size": 32,
    "max_epochs": 1000, "patience": 100, "validation_size": 1 / 9, "standardize": True,
}  # fmt: skip
RUNS = [("ChoiceNN", d, seed) for d in (1, 2) for seed in (0, 1)] + [("ChoiceGP", 2, 0)]
DRAWN = [("ChoiceNN", 1, 0), ("ChoiceNN", 2, 0), ("ChoiceNN", 2, 1), ("ChoiceGP", 2, 0)]
N_DRAWS = 2000
COLOURS = ("#0072B2", "#D55E00")  # told apart by the colour-blind; the lines' styles tell them apart in grey
LINES = ("-", (0, (4, 2)))


class Learned(NamedTuple):
    """A row of the table, and on the grid the utilities (g, d) and their bands (2, g, d), where there are any."""

    row: dict[str, Any]
    mean: np.ndarray
    bands: np.ndarray | None


def new_pairs(train: ChoiceData) -> tuple[ChoiceData, ChoiceData]:
    """Make pairs of the training inputs that were not shown, and pairs of other inputs."""
    rng = np.random.default_rng(2)
    seen = {tuple(sorted(rows)) for rows in train.shown}
    unseen = np.array([pair for pair in datasets.all_pairs(N_OBJECTS) if tuple(pair) not in seen])
    table = pd.DataFrame(train.X, columns=["x"])
    known = ChoiceData.from_utilities(table, datasets.counterexample_utility(train.X), rng.permutation(unseen)[:N_NEW])
    return known, datasets.counterexample(N_OBJECTS, N_NEW, random_state=1).data


def learn(name: str, d: int, seed: int, train: ChoiceData, grid: pd.DataFrame) -> Learned:
    """Fit one model and score it."""
    start = time.perf_counter()
    bands = None
    if name == "ChoiceNN":
        network = ParetoEmbedding(d, **NETWORK, progress=False, random_state=seed).fit(train)
        model: Any = network
        mean, at_inputs = network.utilities(grid), network.utilities(train)
        alike = ""
    else:
        model = ChoiceGP(d, progress=False, random_state=seed).fit(train)
        draws = model.sample_utilities(grid, N_DRAWS, random_state=0)
        draws -= draws.mean(axis=1, keepdims=True)
        mean, bands = draws.mean(axis=0), np.quantile(draws, [0.025, 0.975], axis=0)
        at_inputs = model.utilities(train).mean
        alike = str(any("alike" in note for note in model.fit_result_.notes))
    seconds = time.perf_counter() - start
    u = datasets.counterexample_utility(train.X)[:, 0]
    known, other = new_pairs(train)
    row = {
        "model": name, "d": d, "seed": seed, "training pairs": model.score(train), "new pairs": model.score(known),
        "pairs of new inputs": model.score(other),
        "correlation of the two": np.corrcoef(at_inputs.T)[0, 1] if d == 2 else np.nan,
        "correlation with u": max(np.corrcoef(at_inputs[:, i], u)[0, 1] for i in range(d)),
        "called alike": alike, "status": model.fit_result_.status, "seconds": round(seconds, 1),
    }  # fmt: skip
    return Learned(row, mean, bands)


def draw(ax: Axes, x: np.ndarray, learned: Learned) -> None:
    """Draw the utilities of one model; where they coincide, the dashes of the second show the first."""
    for i in range(learned.mean.shape[1]):
        if learned.bands is not None:
            ax.fill_between(x, *learned.bands[:, :, i], color=COLOURS[i], alpha=0.25, linewidth=0)
        ax.plot(x, learned.mean[:, i], color=COLOURS[i], linestyle=LINES[i], linewidth=1.6)
    row = learned.row
    seed = f", seed {row['seed']}" if (row["model"], row["d"]) == ("ChoiceNN", 2) else ""
    ax.set_title(f"{row['model']}, d = {row['d']}{seed}\n{row['pairs of new inputs']:.0%} of new pairs right", size=10)


def picture(x: np.ndarray, learned: dict[tuple[str, int, int], Learned], train: ChoiceData) -> Figure:
    """Draw truth and models side by side."""
    figure = Figure(figsize=(15.0, 3.5), dpi=140, layout="constrained")
    panels = figure.subplots(1, 1 + len(DRAWN))
    panels[0].plot(x, datasets.counterexample_utility(x)[:, 0], color="black", linewidth=1.6)
    panels[0].plot(
        train.X[:, 0], np.zeros(len(train.X)), "|", color="0.3", transform=panels[0].get_xaxis_transform(), markersize=8
    )
    panels[0].set_title("truth, u(x) = cos 5x + exp(-x²/8)\nthe inputs are marked below", size=10)
    panels[0].set_ylabel("utility (every panel has its own scale)")
    for ax, key in zip(panels[1:], DRAWN, strict=True):
        draw(ax, x, learned[key])
    for ax in panels:
        ax.set_xlabel("x")
        ax.set_xlim(-EDGE, EDGE)
        ax.locator_params(axis="both", nbins=6)
    keys = [mpl.lines.Line2D([], [], color=COLOURS[i], linestyle=LINES[i], label=f"utility {i + 1}") for i in range(2)]
    band = mpl.patches.Patch(color="0.5", alpha=0.3, linewidth=0, label="95% band (ChoiceGP)")
    figure.legend(handles=[*keys, band], loc="outside lower center", ncols=3, frameon=False)
    return figure


def main() -> None:
    """Fit all models, write table, curves and pictures, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("experiments-out"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train = datasets.counterexample(N_OBJECTS, N_PAIRS, random_state=0).data
    x = np.linspace(-EDGE, EDGE, 400)
    grid = pd.DataFrame({"x": x})
    learned = {run: learn(*run, train, grid) for run in RUNS}
    table = pd.DataFrame([found.row for found in learned.values()])
    table.to_csv(args.out / "counterexample.csv", index=False)
    curves = {"x": x, "truth": datasets.counterexample_utility(x)[:, 0]}
    for (name, d, seed), found in learned.items():
        for i in range(d):
            curves[f"{name} d={d} seed={seed} utility {i + 1}"] = found.mean[:, i]
            if found.bands is not None:
                for edge, values in zip(("low", "high"), found.bands[:, :, i], strict=True):
                    curves[f"{name} d={d} seed={seed} {edge} {i + 1}"] = values
    pd.DataFrame(curves).to_csv(args.out / "counterexample-curves.csv", index=False)
    figure = picture(x, learned, train)
    for suffix in ("png", "svg"):
        figure.savefig(args.out / f"counterexample.{suffix}")
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
