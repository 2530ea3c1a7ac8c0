"""The way up from one utility: what is fitted from what, and when it ends."""

import numpy as np
import pytest

from choicegp.estimators import search
from choicegp.estimators.search import Step, is_over, models_of
from choicegp.selection.loo import PsisDiagnostics, loo_result


def scored(*pointwise):
    none = PsisDiagnostics(np.zeros(4), np.zeros(4))
    result = loo_result(np.array(pointwise, float), none, np.zeros(0, int), "", ())
    return Step(None, "annealed", result, 0.0)


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

    def again(step, neighbour, start, data):
        made.append((step.model, neighbour.model, start))
        return step._replace(model=f"{step.model} {start}")

    def grown(model, before, data):
        step = Step(model, "annealed", None, 0.0)
        return step if before is None else again(step, before, "grown", data)

    monkeypatch.setattr(search, "_annealed", lambda d, options, data: f"model {d}")
    monkeypatch.setattr(search, "_grown", grown)
    monkeypatch.setattr(search, "_again", again)
    models = models_of(None, [3, 4], {})
    assert made == [
        ("model 2", "model 1", "grown"),
        ("model 3", "model 2 grown", "grown"),
        ("model 4", "model 3 grown", "grown"),
        ("model 3 grown", "model 4 grown", "shrunk"),
    ]
    assert models == {3: "model 3 grown shrunk", 4: "model 4 grown"}
