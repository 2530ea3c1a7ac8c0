"""What a fit does ahead: programs are compiled by another thread for the shapes that the chains then have."""

import contextlib
import threading

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.fitting import fit
from choicegp.inference import coordinates, mcmc
from choicegp.inference.chain import BLOCK

WITH_EMPTY = ChoiceData.from_sets(
    np.arange(6.0)[:, None], [[0, 1, 2], [2, 3, 4], [3, 4, 5]], [[1], [2], []], empty="none"
)
SINCOS = datasets.sincos(n_objects=12, n_sets=10, set_size=3, random_state=0).data


class Called(Exception):
    """Stands for a program that would be compiled now."""


class Recorded:
    """Stands for a program: which executables were prepared and which were asked for, and what is done instead."""

    def __init__(self, program, instead=None):
        self.program, self.instead, self.prepared, self.asked = program, instead or program, set(), set()
        self.threads, self.is_prepared = set(), threading.Event()

    def key(self, args):
        tree, static, settings, leaves = self.program._described(args)[0]
        return str(tree), str(static), settings, leaves

    def prepare(self, *args):
        self.threads.add(threading.current_thread())
        self.prepared.add(self.key(args))
        self.is_prepared.set()

    def __call__(self, *args):
        # On a busy core the fit may be faster than the thread that prepares.
        assert self.is_prepared.wait(30.0)
        self.asked.add(self.key(args))
        return self.instead(*args)


@pytest.fixture
def recorded(monkeypatch):
    def no_steps(chain, *args):
        model = args[-2]
        mcmc.duals_at(chain.hyper, np.zeros((BLOCK, *chain.position.shape)), model)

    def ends(*args):
        raise Called

    found = Recorded(mcmc.advance, no_steps), Recorded(coordinates._slope), Recorded(mcmc._duals, ends)
    monkeypatch.setattr(mcmc, "advance", found[0])
    monkeypatch.setattr(coordinates, "_slope", found[1])
    monkeypatch.setattr(mcmc, "_duals", found[2])
    return found


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (SINCOS, {}),
        (SINCOS, {"object_effects": False, "lapse": "learn"}),
        (SINCOS, {"n_utilities": 1, "object_effects": True, "standardize": False}),
        (WITH_EMPTY, {"shared_part": False, "kernel": "matern52"}),
    ],
)
def test_what_is_compiled_ahead_is_what_the_chains_need(data, options, recorded, monkeypatch):
    monkeypatch.setattr(fit, "_AGAINST_EFFECTS", np.inf)  # otherwise, objects mostly have effects
    model = ChoiceGP(**{"n_utilities": 2, "n_restarts": 1, "max_iter": 6, "n_jobs": 2, "progress": False} | options)
    with pytest.raises(Called):
        model.fit(data)
    for one in recorded:
        assert len(one.prepared) == 1
        assert one.prepared == one.asked
        assert threading.main_thread() not in one.threads


@pytest.mark.parametrize(
    ("options", "n_threads"),
    [({}, [2]), ({"n_jobs": 1}, [1]), ({"intervals": "none"}, []), ({"max_seconds": 1e9}, [])],
)
def test_nothing_is_compiled_ahead_that_may_not_be_needed_or_not_sooner(options, n_threads, monkeypatch):
    asked = []

    def recorded(pieces, n_jobs):
        asked.append(n_jobs)
        return contextlib.nullcontext()

    def ends(*args, **named):
        raise Called

    monkeypatch.setattr(fit, "ahead", recorded)  # with one thread, it does nothing ahead
    monkeypatch.setattr(fit, "_fit", ends)
    with pytest.raises(Called):
        ChoiceGP(2, n_restarts=1, **{"n_jobs": 2, "progress": False} | options).fit(SINCOS)
    assert asked == n_threads
