"""The way up from one utility: what is fitted from what, and when it ends."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from choicegp.compute.progress import Clock
from choicegp.errors import ChoiceGPError
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


class Fit:
    """A fit of a number of utilities, which knows from what it was made."""

    def __init__(self, d, before=None):
        self.d, self.before, self.result = d, before, SimpleNamespace(seconds=0.0, out_of_time=False)

    def __repr__(self):
        return f"{self.d} from {self.before}"


class Made:
    """Fits and scores of searches that are made up: which ones, by which thread, and what else happens meanwhile."""

    def __init__(self, monkeypatch, levels):
        self.levels, self.fits, self.ahead, self.meanwhile = levels, [], set(), {}
        monkeypatch.setattr(Search, "_annealed", lambda search, d: self.annealed(search, d))
        monkeypatch.setattr(Search, "_again", lambda search, *given: self.again(*given))
        monkeypatch.setattr(Search, "_scored", lambda search, found, n_jobs: self.scored(found))
        monkeypatch.setattr("choicegp.selection.search._kept", lambda candidate: candidate)

    def annealed(self, search, d):
        self.fits.append(("annealed", d))
        if threading.current_thread() is not threading.main_thread():
            self.ahead.add(d)
        self.meanwhile.get(d, lambda clock: None)(search.clock)
        return Fit(d)

    def again(self, found, neighbour, start):
        self.fits.append((start, found.fitted.d))
        return found._replace(start=start, fitted=Fit(found.fitted.d, neighbour.fitted))

    def scored(self, found):
        level = self.levels[found.fitted.d - 1]
        return found._replace(loo=scored(level, level, level, level - 0.01).loo)

    def search(self):
        options = SimpleNamespace(respondents="pooled", decided=lambda data: SimpleNamespace(errors=None))
        return Search(SimpleNamespace(object_ids=[]), options, "auto")

    def judged(self, most, n_jobs, say=lambda d: None):
        return self.search().judged(most, n_jobs, say)


@pytest.mark.parametrize("levels", [[-5.0, -1.0, -2.0, -3.0, -4.0], [-5.0, -4.0, -3.0, -2.0], [-1.0, -2.0, -3.0, -9.0]])
def test_fits_made_ahead_are_those_made_one_by_one(levels, monkeypatch):
    found = set()
    for n_jobs in (1, 2, 3, 8):
        made, said = Made(monkeypatch, levels), []
        found.add((repr(made.judged(len(levels), n_jobs, said.append)), tuple(said)))
        assert (len(made.ahead) > 0) == (n_jobs > 1)
        assert len(set(made.fits)) == len(made.fits), "nothing is fitted twice"
    assert len(found) == 1


def test_no_fit_is_begun_that_a_search_near_its_end_may_not_need(monkeypatch):
    made = Made(monkeypatch, [-1.0, -2.0, -3.0, -9.0, -9.0])
    assert list(made.judged(5, 2)) == [1, 2, 3]
    assert ("grown", 4) not in made.fits
    assert ("annealed", 5) not in made.fits


def test_fits_that_nobody_wants_are_interrupted(monkeypatch):
    """As by Ctrl-C during leave-one-out: the next fit ends at its next look at the clock, and no thread is left."""
    made, begun, ended = Made(monkeypatch, [-5.0, -1.0]), threading.Event(), []

    def never(clock):
        begun.set()
        try:
            while not clock.is_up:
                time.sleep(0.01)
        except KeyboardInterrupt:
            ended.append("interrupted")
            raise

    def interrupted(found):
        assert begun.wait(10.0)
        raise KeyboardInterrupt

    made.meanwhile[2], made.scored = never, interrupted
    before, search = threading.active_count(), made.search()
    with pytest.raises(KeyboardInterrupt):
        search.judged(4, 2, lambda d: None)
    assert ended == ["interrupted"]
    assert threading.active_count() <= before
    assert not search.clock.is_up, "the clock of the search itself was not ended"


def test_a_fit_that_fails_ahead_fails_when_it_is_its_turn(monkeypatch):
    made, said = Made(monkeypatch, [-5.0, -1.0, -2.0]), []

    def fails(clock):
        raise ChoiceGPError("the fit failed")

    made.meanwhile[2] = fails
    with pytest.raises(ChoiceGPError, match="the fit failed"):
        made.judged(3, 2, said.append)
    assert said == [1, 2]


def test_a_fit_that_fails_ahead_and_is_not_needed_is_not_missed(monkeypatch):
    made = Made(monkeypatch, [-1.0, -2.0, -3.0, -9.0])

    def fails(clock):
        raise ChoiceGPError("the fit failed")

    made.meanwhile[4] = fails
    assert list(made.judged(4, 8)) == [1, 2, 3]
