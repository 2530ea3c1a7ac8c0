"""Which model is better on the real tables: Bayesian tests of the accuracies that the runs gave."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.experiments.bayesian_tests import (
    ROPE,
    HierarchicalTest,
    Probabilities,
    correlated_t_test,
    hierarchical_test,
)
from choicegp.experiments.pairs import PREFERENCES
from choicegp.experiments.real_data_paper import NAMES

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
