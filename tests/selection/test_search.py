"""The way up from one utility: what is fitted from what, and when it ends."""

import numpy as np
import pytest

from choicegp.compute.progress import Clock
from choicegp.selection.loo import PsisDiagnostics, loo_result
from choicegp.selection.search import Candidate, Search, is_over


def scored(*pointwise):
    none = PsisDiagnostics(np.zeros(4), np.zeros(4))
    result = loo_result(np.array(pointwise, float), none, np.zeros(0, int), "", ())
    return Candidate(None, "annealed", result, 0.0)


@pytest.mark.parametrize(
    ("levels", "over"),
    [
        ([-5.0, -1.0], False),
        ([-5.0, -1.0, -2.0], False),
        ([-5.0, -1.0, -2.0, -3.0], True),
        ([-5.0, -1.0, -2.0, -0.5], False),
        ([-1.0, -2.0, -3.0], True),
    ],
)
def test_the_search_ends_after_two_clearly_worse_steps(levels, over):
    steps = {d + 1: scored(level, level, level, level - 0.01) for d, level in enumerate(levels)}
    assert is_over(steps) == over


def test_models_are_found_as_the_search_finds_them(monkeypatch):
    """From random starts, from one utility less, and from one more where the smaller one is wanted."""
    made = []

    def again(self, found, neighbour, start):
        made.append((found.fitted, neighbour.fitted, start))
        return found._replace(fitted=f"{found.fitted} {start}")

    def grown(self, fitted, before):
        found = Candidate(fitted, "annealed", None, 0.0)
        return found if before is None else again(self, found, before, "grown")

    monkeypatch.setattr(Search, "_annealed", lambda self, d: f"model {d}")
    monkeypatch.setattr(Search, "_grown", grown)
    monkeypatch.setattr(Search, "_again", again)
    models = Search(None, None, "auto").unjudged([3, 4])
    assert made == [
        ("model 2", "model 1", "grown"),
        ("model 3", "model 2 grown", "grown"),
        ("model 4", "model 3 grown", "grown"),
        ("model 3 grown", "model 4 grown", "shrunk"),
    ]
    assert models == {3: "model 3 grown shrunk", 4: "model 4 grown"}


def test_models_for_which_there_is_no_time_are_not_compared(monkeypatch):
    found = Candidate("model", "annealed", None, 0.0)
    monkeypatch.setattr(Search, "_annealed", lambda self, d: "model")
    monkeypatch.setattr(Search, "_grown", lambda self, fitted, before: found)
    assert Search(None, None, "auto", Clock(0.0)).unjudged([1]) is None
    assert Search(None, None, "auto", Clock(1e9)).unjudged([1]) == {1: "model"}
    monkeypatch.setattr(Search, "_grown", lambda self, fitted, before: found._replace(cut=True))
    assert Search(None, None, "auto", Clock(1e9)).unjudged([1]) is None
