"""Example 1 of the paper: two utilities, cos 2x and -sin 2x, learned from few choices.

Data.  200 inputs, uniform in [-4.5, 4.5]; 50 or 150 sets of 3 or 5 of them, drawn at random, from each of which what no
other object of the set dominates is chosen, without errors.  Repetition r draws inputs and sets with seed r (one
repetition unless more are asked for; the paper shows one).  All options of the models are the defaults, and their
``random_state`` is 0.

Posterior.  ChoiceGP with two utilities; its bands come from a default fit, which samples utilities and
hyperparameters.  Measured: the share of 1000 new sets that are predicted exactly, of known inputs (those that some
training set showed) and of 1000 new inputs; the evidence lower bound; seconds of the fit, intervals included.
Utilities are known only up to their order, their level and increasing transformations of each (their direction is
known), so a picture beside the truth needs conventions: (1) the order is the one with the largest sum of rank
correlations with the truth over a grid of 181 inputs; (2) 2000 joint draws of the posterior are centred over the grid,
draw by draw, since the level says nothing; (3) mean and 2.5% and 97.5% quantiles of the draws are moved and scaled, all
by the same two numbers for each utility, so that the mean has the location and spread of the truth over the grid.  As
numbers: the rank correlation of mean and truth, which no increasing transformation changes, and the mean width of the
band in these units (the truth has standard deviation 0.7), both averaged over the two utilities.

Leave-one-out.  ``select_n_utilities`` with 1 to 4 utilities, a forward search that ends after two numbers in a row that
are clearly worse; expected log scores (elpd) by cavities with selective refits.  The same models are also scored by the
paper's PSIS.  Where more than a few sets have a Pareto k above 0.7 its value cannot be trusted: that share is reported.
The paper's values are for its own random inputs and sets: compare the choice and the order of magnitude, not digits.
"""

import time
import warnings
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from choicegp import ChoiceData, ChoiceGP, datasets, select_n_utilities
from choicegp.experiments.experiment import ExperimentOptions, ExperimentReport, Outcome, RunSettings, RunValues
from choicegp.experiments.results import markdown_table
from choicegp.plotting.style import COLOURS, LINES, MARKERS, legend_below, mark_values, new_figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Design = tuple[int, int]  # sets, objects in each
Done = dict[Design, dict[int, RunValues]]  # by the seeds of the repetitions

TITLE = "SinCos: posteriors of two utilities, and how many there are"

N_OBJECTS, LOW, HIGH = 200, -4.5, 4.5
DESIGNS: tuple[Design, ...] = tuple(product((50, 150), (3, 5)))
N_TEST = 1000
TOO_HEAVY = 0.7  # Pareto k above which importance weights cannot be smoothed
_FLAT = 1e-12  # a spread that is a smaller part of the draws than this is rounding
# The paper's PSIS-LOO.
PAPER = {
    (50, 3): {1: -882, 2: -34, 3: -42, 4: -50},
    (50, 5): {1: -1906, 2: -118, 3: -134, 4: -152},
    (150, 3): {1: -3213, 2: -69, 3: -80, 4: -91},
    (150, 5): {1: -6108, 2: -84, 3: -95, 4: -109},
}
_OFF_THE_SCALE = 20.0  # standard errors below the best: named in the picture, not drawn


def runs(options: ExperimentOptions) -> list[RunSettings]:
    """List the four designs, posterior and leave-one-out of each, repetition by repetition."""
    designs = [design for design in DESIGNS if design[0] == 50] if options.quick else DESIGNS
    common = {"n_objects": N_OBJECTS, "n_test": 200 if options.quick else N_TEST}
    most = 2 if options.quick else 4
    return [
        {"kind": kind, "n_sets": n_sets, "set_size": set_size, "seed": options.seed + repetition} | own
        for repetition in range(1 if options.repetitions is None else options.repetitions)
        for kind, own in (("posterior", common), ("loo", {"n_objects": N_OBJECTS, "max_utilities": most}))
        for n_sets, set_size in designs
    ]


def run(settings: RunSettings, data: Path | None = None) -> RunValues:
    """Fit one posterior, or search for the number of utilities; no published table is needed."""
    simulated = datasets.sincos(
        settings["n_objects"], settings["n_sets"], settings["set_size"], random_state=settings["seed"]
    )
    if settings["kind"] == "posterior":
        return _posterior(settings, simulated.data)
    return _leave_one_out(settings, simulated.data)


def _posterior(settings: RunSettings, data: ChoiceData) -> RunValues:
    start = time.perf_counter()
    model = ChoiceGP(n_utilities=2, random_state=0, progress=False).fit(data)
    seconds = time.perf_counter() - start
    seed, size, n_test = (settings[name] for name in ("seed", "set_size", "n_test"))
    # Streams of seeds far from those of the training sets.
    known = np.unique(data.flat_shown)
    drawn = datasets.random_sets(len(known), n_test, size, random_state=10_000 + seed)
    inputs = pd.DataFrame({"x": data.X[:, 0]})
    old = ChoiceData.from_utilities(inputs, datasets.sincos_utilities(data.X), [known[rows] for rows in drawn])
    new = datasets.sincos(n_test, n_test, size, random_state=20_000 + seed).data
    return {
        "accuracy_known": model.score(old),
        "accuracy_new": model.score(new),
        "elbo": float(model.elbo_),
        "fit_seconds": round(seconds, 2),
        "status": model.fit_result_.status,
        "intervals": model.intervals_,
        "n_shown": len(known),
    } | _curves(model, data.X[known, 0])


def _curves(model: ChoiceGP, shown: NDArray[np.float64]) -> RunValues:
    """Return the utilities along the feature in the order, level and scale of the true ones."""
    grid = np.linspace(LOW, HIGH, 181)
    truth = datasets.sincos_utilities(grid)
    draws = model.sample_utilities(grid[:, None], 2000, random_state=0)
    draws = draws - draws.mean(axis=1, keepdims=True)
    mean = draws.mean(axis=0)
    correlation = rank_correlations(truth, mean)
    order = max(
        permutations(range(truth.shape[1])), key=lambda order: sum(correlation[i, j] for i, j in enumerate(order))
    )
    draws, mean = draws[:, :, list(order)], mean[:, list(order)]
    # A mean that does not vary has no spread to be given: what counts as none depends on the size of the draws.
    spread = mean.std(axis=0)
    varies = spread > _FLAT * np.abs(draws).max(axis=(0, 1))
    scale = np.divide(truth.std(axis=0), spread, out=np.ones_like(spread), where=varies)
    low, high = np.quantile(draws, (0.025, 0.975), axis=0) * scale + truth.mean(axis=0)
    curves = {"mean": mean * scale + truth.mean(axis=0), "low": low, "high": high, "truth": truth}
    return {
        "rank_correlation": float(np.mean([correlation[i, j] for i, j in enumerate(order)])),
        "width": float(np.mean(high - low)),
        "grid": grid.round(4).tolist(),
        "shown_inputs": shown.round(4).tolist(),
    } | {name: curve.T.round(4).tolist() for name, curve in curves.items()}


def rank_correlations(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Spearman's correlation of every column of one array with every column of the other.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.1], [2.0], [3.0]])
    >>> rank_correlations(x, np.column_stack([x**3, -x])).round(6).tolist()
    [[1.0, -1.0]]
    """
    ranks = rankdata(np.column_stack([first, second]), axis=0)
    centred = (ranks - ranks.mean(axis=0)) / ranks.std(axis=0)
    return centred[:, : first.shape[1]].T @ centred[:, first.shape[1] :] / len(ranks)


def _leave_one_out(settings: RunSettings, data: ChoiceData) -> RunValues:
    start = time.perf_counter()
    found = select_n_utilities(data, settings["max_utilities"], random_state=0, progress=False)
    values: RunValues = {"n_utilities": found.n_utilities, "reason": found.reason}
    values["search_seconds"] = round(time.perf_counter() - start, 2)
    table = found.table.assign(difference=0.0 - found.table["elpd_diff"], difference_se=found.table["dse"])
    for d, model in found.models.items():
        with warnings.catch_warnings():
            # The share of sets that PSIS cannot be trusted on is one of the results.
            warnings.filterwarnings("ignore", "leave-one-out cannot be trusted")
            psis = model.loo(method="psis")
        for name in ("elpd", "se", "difference", "difference_se", "doubtful", "refits", "elbo"):
            values[f"{name}_{d}"] = table[name].loc[d].item()
        values |= {
            f"psis_{d}": psis.elpd,
            f"psis_se_{d}": psis.se,
            f"psis_untrusted_{d}": float(np.mean(psis.diagnostics.pareto_k > TOO_HEAVY)),
            f"status_{d}": model.fit_result_.status,
        }
    return values


def report(outcomes: list[Outcome]) -> ExperimentReport:
    """Tabulate and draw the designs that are done."""
    done = _by_design(outcomes, "posterior"), _by_design(outcomes, "loo")
    parts, figures = [], {}
    if done[0]:
        parts += ["### Posteriors", _posterior_text(done[0])]
        figures["sincos-posteriors"] = _posterior_figure(done[0])
    if done[1]:
        parts += ["### How many utilities", _loo_text(done[1])]
        figures["sincos-loo"] = _loo_figure(done[1])
    return ExperimentReport("\n\n".join(parts) + "\n" if parts else "No run is done yet.\n", figures)


def _by_design(outcomes: list[Outcome], kind: str) -> Done:
    """Return the values of the designs that are done, in the order of their seeds."""
    chosen = sorted((o for o in outcomes if o.settings["kind"] == kind), key=lambda o: o.settings["seed"])
    done: Done = {design: {} for design in DESIGNS}
    for outcome in chosen:
        done[outcome.settings["n_sets"], outcome.settings["set_size"]][outcome.settings["seed"]] = outcome.values
    return {design: own for design, own in done.items() if own}


def _mean(own: dict[int, RunValues], name: str) -> float:
    """Return the mean over repetitions; a search may have ended before a number of utilities was tried."""
    known = [values[name] for values in own.values() if name in values]
    return float(np.mean(known)) if known else np.nan


def _posterior_text(done: Done) -> str:
    names = ("accuracy_known", "accuracy_new", "rank_correlation", "width")
    head = ("sets", "size", "exact, known inputs", "exact, new inputs", "rank correlation", "width of the band")
    rows = [
        (*design, *(f"{_mean(own, name):.3f}" for name in names), f"{_mean(own, 'elbo'):.1f}",
         f"{_mean(own, 'fit_seconds'):.1f}", f"{sum(v['status'] == 'converged' for v in own.values())} of {len(own)}")
        for design, own in done.items()
    ]  # fmt: skip
    table = markdown_table((*head, "ELBO", "seconds of a fit", "converged"), rows)
    note = (
        "Exact: the share of new sets that are predicted exactly. The rank correlation is between posterior mean and "
        "true utility; the true utilities have standard deviation 0.7 in the units of the 95% band. All values are "
        "means over repetitions."
    )
    return "\n\n".join([table, note, *_claims(done)])


def _claims(done: Done) -> list[str]:
    """Say of each of the paper's two observations in how many repetitions our numbers agree."""
    observed = {
        "from 50 to 150 sets the means become more accurate and the bands narrower": [
            ((50, size), (150, size), f"sets of {size}") for size in (3, 5)
        ],
        "from sets of 5 to sets of 3 estimation becomes easier": [((n, 5), (n, 3), f"{n} sets") for n in (50, 150)],
    }
    lines = []
    for claim, comparisons in observed.items():
        known = [one for one in comparisons if one[0] in done and one[1] in done]
        if known:
            ours = "; ".join(_better(done[before], done[after], name) for before, after, name in known)
            lines.append(f"- The paper: {claim}. Here, {ours}.")
    return ["\n".join(lines)] if lines else []


def _better(before: dict[int, RunValues], after: dict[int, RunValues], name: str) -> str:
    both = sorted(before.keys() & after.keys())
    closer = sum(after[seed]["rank_correlation"] > before[seed]["rank_correlation"] for seed in both)
    narrower = sum(after[seed]["width"] < before[seed]["width"] for seed in both)
    (r0, w0), (r1, w1) = ([_mean(own, value) for value in ("rank_correlation", "width")] for own in (before, after))
    return (
        f"{name}: rank correlation {r0:.3f} to {r1:.3f} (larger in {closer} of {len(both)} repetitions), "
        f"width {w0:.2f} to {w1:.2f} (narrower in {narrower})"
    )


def _loo_text(done: Done) -> str:
    rows = []
    for design, own in done.items():
        for d in _tried(own):
            best = " **chosen**" if all(values["n_utilities"] == d for values in own.values()) else ""
            rows.append((
                *design, f"{d}{best}", f"{_mean(own, f'elpd_{d}'):.1f} ± {_mean(own, f'se_{d}'):.1f}",
                f"{_mean(own, f'psis_{d}'):.1f} ± {_mean(own, f'psis_se_{d}'):.1f}",
                f"{_mean(own, f'psis_untrusted_{d}'):.0%}", PAPER[design].get(d),
            ))  # fmt: skip
    head = ("sets", "size", "d", "cavities", "PSIS", "k above 0.7", "the paper's PSIS")
    lines = [
        "The table shows the expected log score (elpd) of left-out sets ± its standard error, as means over "
        "repetitions; the share of sets on which PSIS cannot be trusted; and the paper's values, for its own inputs "
        "and sets. With one utility, the floor of 1e-10 determines the score: about 23 nats for each pair of "
        "objects that are chosen together.",
        markdown_table(head, rows),
        _chosen_text(done),
    ]
    return "\n\n".join(lines)


def _tried(own: dict[int, RunValues]) -> list[int]:
    return [d for d in range(1, 5) if any(f"elpd_{d}" in values for values in own.values())]


def _chosen_text(done: Done) -> str:
    """Count how often each number of utilities was chosen; the paper's scores are best at two everywhere."""
    lines = []
    for (n_sets, size), own in done.items():
        chosen = [values["n_utilities"] for values in own.values()]
        counts = ", ".join(f"d = {d} in {chosen.count(d)} of {len(own)}" for d in sorted(set(chosen)))
        lines.append(f"- {n_sets} sets of {size}: {counts}")
    right = sum(values["n_utilities"] == 2 for own in done.values() for values in own.values())
    total = sum(map(len, done.values()))
    return "\n".join(["Chosen number of utilities (the paper's and the true one: 2):\n", *lines]) + (
        f"\n\nTwo utilities are found in {right} of {total} searches."
    )


def _posterior_figure(done: Done) -> "Figure":
    columns = min(2, len(done))
    figure = new_figure(10.0, 0.9 + 2.9 * -(-len(done) // 2))
    axes = panels(figure, len(done), columns, sharex=True, sharey=True)
    for ax, ((n_sets, size), own) in zip(axes, done.items(), strict=True):
        _draw_curves(ax, own[min(own)])
        ax.set_title(f"{n_sets} sets of {size}", fontsize=11)
    for ax in axes[-columns:]:
        ax.set_xlabel("x")
    for ax in axes[::columns]:
        ax.set_ylabel("utility, aligned")
    legend_below(figure, 2)
    return figure


def _draw_curves(ax: "Axes", values: RunValues) -> None:
    grid = values["grid"]
    for i, name in enumerate(("cos 2x", "−sin 2x")):
        ax.fill_between(grid, values["low"][i], values["high"][i], color=COLOURS[i], alpha=0.2, linewidth=0)
        ax.plot(grid, values["mean"][i], LINES[i], color=COLOURS[i], label=f"posterior of {name}, 95% band")
        ax.plot(grid, values["truth"][i], ":", color="0.25", linewidth=1.2, label="" if i else "true utilities")
    mark_values(ax, values["shown_inputs"], 6, "inputs shown in some set")


def _loo_figure(done: Done) -> "Figure":
    figure = new_figure(2.6 * max(2, len(done)) + 0.4, 3.6)
    axes = panels(figure, len(done))
    for ax, (design, own) in zip(axes, done.items(), strict=True):
        _draw_scores(ax, design, own)
        ax.set_title(f"{design[0]} sets of {design[1]}", fontsize=11)
        ax.set_xlabel("number of utilities")
    axes[0].set_ylabel("expected log score (elpd)")
    legend_below(figure, 3)
    return figure


def _draw_scores(ax: "Axes", design: Design, own: dict[int, RunValues]) -> None:
    tried = _tried(own)
    elpd = {d: _mean(own, f"elpd_{d}") for d in tried}
    best = max(tried, key=lambda d: elpd[d])
    near = [d for d in tried if elpd[best] - elpd[d] <= _OFF_THE_SCALE * _mean(own, f"se_{best}")]
    scores = (("cavities", "elpd", "se"), ("PSIS", "psis", "psis_se"))
    for number, (label, value, error) in enumerate(scores):
        ax.errorbar(
            np.array(near) + 0.12 * (number - 1), [_mean(own, f"{value}_{d}") for d in near],
            [_mean(own, f"{error}_{d}") for d in near], color=COLOURS[number], linestyle=LINES[number],
            marker=MARKERS[number], capsize=3.0, label=f"{label}, standard error",
        )  # fmt: skip
    published = [PAPER[design].get(d, np.nan) for d in near]
    ax.plot(np.array(near) + 0.12, published, "D", color="0.25", markersize=5, label="the paper's PSIS")
    far = [f"d = {d}: −{-elpd[d]:.0f}" for d in tried if d not in near]
    if far:
        ax.text(0.03, 0.03, "\n".join([*far, "(off the scale)"]), transform=ax.transAxes, fontsize=8)
    ax.set_xticks(near)
    ax.set_xlim(min(near) - 0.6, max(near) + 0.6)
    ax.margins(y=0.2)
