"""What the runs of the test of honesty say: verdicts first, then tables and one figure."""

from collections.abc import Iterable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from choicegp.experiments.experiment import ExperimentReport, Outcome
from choicegp.experiments.honesty_verdict import (
    CALIBRATION,
    ENUMERABLE,
    ERRORS,
    FEWEST,
    NO,
    SMALL_PROBLEM,
    UNKNOWN,
    YES,
    is_small,
    levels,
    mean_with_error,
    tenths_of,
    verdicts,
)  # fmt: skip
from choicegp.experiments.results import markdown_table
from choicegp.plotting.style import COLOURS, LINES, MARKERS, legend_below, new_figure, panels

FIGURE = "honesty-calibration"
ANSWERS = ("model", "constant", "logistic")
_PREFIX = {"model": "", "constant": "constant_", "logistic": "logistic_"}
# Columns that a table needs though no run may have them.
_SETTINGS = ("part", "d", "a", "features", "objects", "related", "answers", "table")
_VALUES = ("coverage", "outer_tenths", "sure_signs", "wrong_signs", "shown_objects", "fit_seconds", "fit_status",
           "certain_sets", "mean_change", "largest_change", "change_below",
           *(f"{kind}_{_PREFIX[who]}{what}" for kind in ("known", "new") for who in ANSWERS
             for what in ("score", "loss", "exact")))  # fmt: skip


def report(outcomes: Sequence[Outcome]) -> ExperimentReport:
    """Write verdicts and tables and draw the calibration of the runs that are done."""
    rows = [{**one.settings, **one.values} for one in outcomes]
    known = dict.fromkeys(name for row in rows for name in row)
    frame = pd.DataFrame(rows, columns=[*(known | dict.fromkeys((*_SETTINGS, *_VALUES)))])
    numbers = [name for name in _VALUES if name != "fit_status"]
    frame[numbers] = frame[numbers].apply(pd.to_numeric)
    simulated, jumps, tables = (frame[frame["part"] == part] for part in ("simulated", "jump", "table"))
    sections = [_verdicts(frame)]
    figures: dict[str, Figure] = {}
    if len(simulated):
        sections += [_coverage(simulated), _simulated_scores(simulated), _calibration(simulated)]
        figures[FIGURE] = draw_calibration(simulated)
    sections += ([_jumps(jumps)] if len(jumps) else []) + ([_tables(tables)] if len(tables) else [])
    return ExperimentReport("\n\n".join([*sections, _fits(frame)]), figures)


def _verdicts(frame: pd.DataFrame) -> str:
    found = verdicts(frame)
    n = {reached: sum(one.reached == reached for one in found) for reached in (YES, NO, UNKNOWN)}
    return "\n\n".join([
        "### Verdict",
        f"{n[YES]} goals are reached, {n[NO]} are missed, and {n[UNKNOWN]} were not measured. Means are over data "
        "sets, with their standard errors; a goal is judged by the mean.",
        markdown_table(("figure", "goal", "measured", "reached"), found),
    ])  # fmt: skip


def _coverage(simulated: pd.DataFrame) -> str:
    noisy, free = (simulated[simulated["answers"] == kind] for kind in ("noisy", "noise-free"))
    small = noisy[is_small(noisy)]
    groups = [
        (f"noisy, all with d t ≤ {SMALL_PROBLEM}", small), *((f"noisy, {name}", own) for name, own in levels(small)),
        (f"noisy, d t > {SMALL_PROBLEM}", noisy[~is_small(noisy)]), ("noise-free, all", free),
        *((f"noise-free, {name}", own) for name, own in levels(free)),
    ]  # fmt: skip
    rows = [
        (name, mean_with_error(own["coverage"]), f"{own['outer_tenths'].mean():.3f}", _share_of_wrong(own))
        for name, own in groups
        if len(own)
    ]
    head = ("answers", "coverage of 95% intervals", "ranks in the two outer tenths (0.2)", "wrong among sure signs")
    return "\n\n".join(["### Coverage of utility differences", markdown_table(head, rows)])


def _share_of_wrong(own: pd.DataFrame) -> str:
    n, wrong = own["sure_signs"].sum(), own["wrong_signs"].sum()
    return f"{wrong / n:.3f} of {n:.0f}" if n else "no sure sign"


def _score_row(name: Sequence[object], own: pd.DataFrame, what: str) -> list[object]:
    """Write known and new figures of the model, the constant answer and the logistic model."""
    return [
        *name,
        *(
            " / ".join(_number(own[f"{kind}_{_PREFIX[who]}{column}"].mean()) for who in ANSWERS)
            for column in (what, "exact")
            for kind in ("known", "new")
        ),
    ]


def _number(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.3f}"


def _score_table(first: Sequence[str], rows: Iterable[Sequence[object]], what: str) -> str:
    pairs = ((what, kind) for kind in ("known", "new"))
    exact = (("exact accuracy", kind) for kind in ("known", "new"))
    return markdown_table((*first, *(f"{name}, {kind} objects" for name, kind in (*pairs, *exact))), rows)


def _simulated_scores(simulated: pd.DataFrame) -> str:
    parts = [
        "### Held-out sets of simulated data",
        "Each cell has the model / the constant answer / the logistic model; means over data sets.",
    ]
    is_large = simulated["a"] > ENUMERABLE
    for own, column, text in (
        (simulated[~is_large], "score", "log score a set"),
        (simulated[is_large], "loss", "log loss an object"),
    ):
        groups = own.groupby(["answers", "features", "a"])
        rows = [_score_row((kind, f"{c:g}", f"{a:g}", len(one)), one, column) for (kind, c, a), one in groups]
        if rows:
            parts.append(_score_table(("answers", "features", "a", "data sets"), rows, text))
    return "\n\n".join(parts)


def _tables(tables: pd.DataFrame) -> str:
    rows = [_score_row((name, len(own)), own, "score") for name, own in tables.groupby("table")]
    return "\n\n".join([
        "### Published tables",
        "Each cell has the model / the constant answer / the logistic model; means over repetitions.",
        _score_table(("table", "repetitions"), rows, "log score a set"),
    ])  # fmt: skip


def _calibration(simulated: pd.DataFrame) -> str:
    rows = []
    for (kind, a, d), own in simulated.groupby(["answers", "a", "d"]):
        tenths = tenths_of(own)
        outside = [one for one in tenths if one.excess > 0]
        words = ", ".join(f"{one.predicted:.3f}: {one.observed:.3f} ({one.objects:.0f})" for one in outside)
        largest = f"{max(abs(one.gap) for one in tenths):.3f}" if tenths else None
        rows.append((kind, f"{a:g}", f"{d:g}", len(tenths), largest, len(outside), words))
    head = ("answers", "a", "d", "tenths judged", "largest gap", "outside", "outside, predicted: observed (objects)")
    return "\n\n".join([
        "### Calibration of probabilities",
        f"Tenths with at least {FEWEST} objects are judged; known and new objects together. A gap may be {CALIBRATION} "
        f"and {ERRORS} binomial standard errors. Objects of one data set share a model, so that the true errors are "
        "larger.",
        markdown_table(head, rows),
        f"![Predicted probabilities and shares of chosen objects]({FIGURE}.png)",
    ])  # fmt: skip


def _jumps(jumps: pd.DataFrame) -> str:
    rows = [
        (
            f"{d:g}", len(own), f"{own['certain_sets'].sum():.0f}", _number(own["mean_change"].mean()),
            _number(own["largest_change"].max()), _number(own["change_below"].mean()),
        )
        for d, own in jumps.groupby("d")
    ]  # fmt: skip
    head = ("d", "data sets", "sets", "mean change", "largest change", "mean change from nine to ten")
    return "\n\n".join(["### From ten to eleven objects", markdown_table(head, rows)])


def _fits(frame: pd.DataFrame) -> str:
    statuses = ", ".join(f"{n} {status}" for status, n in frame["fit_status"].value_counts().items())
    seconds = frame["fit_seconds"]
    return (
        f"Fits: {statuses}. A fit took {seconds.median():.1f} seconds (median) and {seconds.max():.1f} at most, "
        "including the compilation of programs."
    )


def draw_calibration(simulated: pd.DataFrame) -> Figure:
    """Draw predicted probabilities against shares of chosen objects, a panel for each set size."""
    sizes = sorted(simulated["a"].unique())
    figure = new_figure(2.8 * max(len(sizes), 2), 3.6)
    for ax, a in zip(panels(figure, len(sizes), sharey=True), sizes, strict=True):
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1.0)
        for (d, kind), own in simulated[simulated["a"] == a].groupby(["d", "answers"]):
            tenths, i = tenths_of(own), int(d) - 1
            filled = {} if kind == "noisy" else {"markerfacecolor": "white"}
            ax.plot(
                [one.predicted for one in tenths], [one.observed for one in tenths], color=COLOURS[i],
                marker=MARKERS[i], markersize=5,
                linestyle=LINES[i] if kind == "noisy" else "", linewidth=1.2, label=f"d = {d:g}, {kind}", **filled,
            )  # fmt: skip
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xlabel="predicted", title=f"sets of {a:g}")
    figure.axes[0].set_ylabel("share chosen")
    legend_below(figure, 3)
    return figure
