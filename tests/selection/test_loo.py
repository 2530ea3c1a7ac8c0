"""What a result says of itself."""

import numpy as np
import pytest

from choicegp.selection.loo import PsisDiagnostics, loo_result


def result(pointwise=(-1.0, -3.0), doubtful=(), notes=()):
    diagnostics = PsisDiagnostics(np.full(len(pointwise), 0.5), np.zeros(len(pointwise)))
    return loo_result(np.array(pointwise), diagnostics, np.array(doubtful, int), "because", notes)


def test_sums():
    found = result()
    assert (found.elpd, found.n_effective) == (-4.0, 1.0)
    assert found.se == pytest.approx(np.sqrt(2.0))


@pytest.mark.parametrize(
    ("doubtful", "warning"),
    [
        ((), ""),
        ((1,), "leave-one-out cannot be trusted on one set of 2: because"),
        ((0, 1), "leave-one-out cannot be trusted on 2 sets of 2: because"),
    ],
)
def test_the_warning_names_how_many_sets(doubtful, warning):
    assert result(doubtful=doubtful).warning == warning


def test_in_words():
    text = str(result(doubtful=(1,), notes=("so it is",)))
    assert text.splitlines() == [
        "elpd -4.0 (se 1.4), 1.0 effective parameters, psis",
        "warning: leave-one-out cannot be trusted on one set of 2: because",
        "note: so it is",
    ]


def test_a_repr_is_a_line_without_arrays():
    assert repr(result(doubtful=(1,))) == "LooResult(elpd -4.0, se 1.4, 2 sets, 1 doubtful, by psis)"
    assert repr(result().diagnostics) == "PsisDiagnostics(gap: array (2,), pareto_k: array (2,))"
