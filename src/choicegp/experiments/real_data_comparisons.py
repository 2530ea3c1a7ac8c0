"""Which model is better on the real tables: Bayesian tests of the accuracies, and figures of them and of the scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from choicegp.experiments.bayesian_tests import (
    ROPE,
    HierarchicalTest,
    Probabilities,
    correlated_t_test,
    hierarchical_test,
)
from choicegp.experiments.pairs import PREFERENCES
from choicegp.experiments.real_data_paper import LOO, NAMES
from choicegp.plotting.style import COLOURS, legend_below, new_figure, panels

SCORES = {"accuracy": "accuracy", "common_accuracy": "common accuracy"}
_LEAST = 2  # repetitions of a table, and tables of a test


class Comparison(NamedTuple):
    """ChoiceGP against one preference model."""

    score: str  # a key of `SCORES`
    baseline: str
    tables: list[str]
    differences: list[NDArray[np.float64]]  # ChoiceGP's score less the other's, by table: of the repetitions of both
    rho: float  # correlation of the differences: the share of the pairs that are test pairs
    test: HierarchicalTest  # its right is where ChoiceGP is better


class TableTest(NamedTuple):
    """ChoiceGP against one preference model on one table."""

    table: str
    baseline: str
    mean: float  # of the differences
    sd: float
    t_test: Probabilities  # by the correlated t-test
    baycomp: Probabilities | None  # the same test as baycomp computes it, where that is installed
    hierarchical: Probabilities  # by the hierarchical test, in view of the other tables


def compared(fits: pd.DataFrame, score: str) -> list[Comparison]:
    """Test ChoiceGP against every preference model with the majority rule, by a key of `SCORES`.

    Preference models need two tables or more with two repetitions or more. The table ``fits`` has a row for each fit,
    with its settings and values.
    """
    rho = float((fits["n_test"] / (fits["n_train"] + fits["n_test"])).mean())
    ours = _by_repetition(fits, "ChoiceGP", "none", score)
    found = []
    for baseline in PREFERENCES:
        gaps = (ours - _by_repetition(fits, baseline, "majority", score)).dropna()
        own = {name: gaps[gaps.index.get_level_values("table") == name].to_numpy(float) for name in NAMES}
        own = {name: gap for name, gap in own.items() if len(gap) >= _LEAST}
        if len(own) >= _LEAST:
            differences = list(own.values())
            test = hierarchical_test(differences, rho, ROPE, seed=0)
            found.append(Comparison(score, baseline, list(own), differences, rho, test))
    return found


def _by_repetition(fits: pd.DataFrame, model: str, rule: str, score: str) -> pd.Series:
    rows = fits[(fits["model"] == model) & (fits["rule"] == rule)]
    return rows.set_index(["table", "repetition"])[score].astype(float).sort_index()


def by_baycomp(differences: NDArray[np.float64], rho: float) -> Probabilities | None:
    """Return the correlated t-test of one table as baycomp computes it; None where baycomp is not installed.

    It knows the correlation as 1 over the number of folds, and the number of folds as the number of differences over
    the number of runs.
    """
    try:
        from baycomp import CorrelatedTTest
        from baycomp.single import Posterior
    except ImportError:
        return None
    nothing = np.zeros(len(differences))
    statistics = CorrelatedTTest.compute_statistics(nothing, differences, runs=rho * len(differences))
    return Probabilities(*map(float, Posterior(*statistics, rope=ROPE).probs()))


def table_by_table(comparisons: Sequence[Comparison]) -> list[TableTest]:
    """Return what the differences on every single table say, one comparison after the other."""
    return [
        TableTest(
            table, c.baseline, float(own.mean()), float(own.std(ddof=1)),
            correlated_t_test(own, c.rho), by_baycomp(own, c.rho), shrunk,
        )
        for c in comparisons
        for table, own, shrunk in zip(c.tables, c.differences, c.test.data_sets, strict=True)
    ]  # fmt: skip


_TOP = np.sqrt(0.75)
_CORNERS = np.array([[0.0, 0.0], [0.5, _TOP], [1.0, 0.0]])  # left, rope, right


def draw_simplices(comparisons: Sequence[Comparison]) -> Figure:
    """Draw the posterior draws of every comparison in its simplex."""
    figure = new_figure(3.9 * len(comparisons), 3.9)
    for ax, comparison in zip(panels(figure, len(comparisons)), comparisons, strict=True):
        _draw_simplex(ax, comparison)
    figure.suptitle("Which is better on a new table? Posterior draws, darker where there are more, and their shares")
    return figure


def _draw_simplex(ax: Axes, comparison: Comparison) -> None:
    places = comparison.test.points @ _CORNERS
    ax.hexbin(
        places[:, 0], places[:, 1], gridsize=(44, 22), extent=(0.0, 1.0, 0.0, _TOP), bins="log", mincnt=1,
        cmap="Blues", vmin=0.3, linewidths=0.0, zorder=1,
    )  # fmt: skip
    outline = np.vstack([_CORNERS, _CORNERS[:1]])
    ax.plot(*outline.T, color="0.2", linewidth=1.2, zorder=2)
    centre = _CORNERS.mean(axis=0)
    for i in range(3):  # where two regions are equally probable, and the third is less so
        ax.plot(*np.vstack([centre, (_CORNERS[i - 1] + _CORNERS[i]) / 2]).T, color=COLOURS[1], linewidth=1.0, zorder=3)
    left, rope, right = (f"{share:.3f}" for share in comparison.test.shares)
    label: dict[str, Any] = {"ha": "center", "fontsize": 10}
    ax.text(0.0, -0.04, f"{comparison.baseline}\nbetter\n{left}", va="top", **label)
    ax.text(0.5, _TOP + 0.03, f"practically equal\n{rope}", va="bottom", **label)
    ax.text(1.0, -0.04, f"ChoiceGP\nbetter\n{right}", va="top", **label)
    ax.set(xlim=(-0.2, 1.2), ylim=(-0.28, 1.06), aspect="equal")
    ax.set_title(f"ChoiceGP and {comparison.baseline}", fontsize=11)
    ax.set_axis_off()


def draw_loo(searches: pd.DataFrame) -> Figure:
    """Draw the leave-one-out score of every table against the number of utilities, beside the paper's.

    The index of ``searches`` names the tables; its columns are ``n_utilities``, which was chosen, ``elpd_1``, ``se_1``,
    ``difference_se_1`` and so on.
    """
    columns = min(3, len(searches))
    figure = new_figure(max(5.0, 3.6 * columns), 1.0 + 2.8 * -(-len(searches) // columns))
    for ax, (table, search) in zip(panels(figure, len(searches), columns), searches.iterrows(), strict=True):
        _draw_scores(ax, str(table), search)
    legend_below(figure, min(2, columns))
    return figure


def _draw_scores(ax: Axes, table: str, search: pd.Series) -> None:
    numbers = [d for d in range(1, 1 + len(LOO[table])) if pd.notna(search.get(f"elpd_{d}"))]
    elpd, se, paired = (
        np.array([float(search[f"{name}_{d}"]) for d in numbers]) for name in ("elpd", "se", "difference_se")
    )
    drawn = np.array(numbers) > 1  # one utility is off any scale: the floor of the likelihood sets its score
    places = np.array(numbers)[drawn]
    ax.errorbar(places, elpd[drawn], se[drawn], color="0.6", capsize=3.0, zorder=1, label="ours, with standard error")
    ax.errorbar(
        places, elpd[drawn], paired[drawn], color=COLOURS[0], linestyle="", marker="o", linewidth=2.5, zorder=2,
        label="with standard error of the difference to the best",
    )  # fmt: skip
    chosen = int(search["n_utilities"])
    if chosen > 1:
        ax.plot(
            [chosen], [elpd[numbers.index(chosen)]], "o", markersize=13, fillstyle="none", color="black",
            markeredgewidth=1.5, label="chosen",
        )  # fmt: skip
    published = range(2, 1 + len(LOO[table]))
    ax.plot(published, LOO[table][1:], "s--", color=COLOURS[1], markersize=5, label="the paper's PSIS-LOO")
    ax.set_xticks(range(2, 1 + len(LOO[table])))
    ax.margins(0.1, 0.12)
    ax.set(xlabel="number of utilities d", ylabel="expected log score")
    ax.set_title(f"{NAMES[table]}\nat d = 1: {elpd[0]:.0f} (the paper's {LOO[table][0]})", fontsize=10)
