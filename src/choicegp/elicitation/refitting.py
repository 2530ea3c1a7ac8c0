"""Models that follow the answers: refitted in the background, from the last model, while that one asks."""

import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.data.choices import ChoiceData
from choicegp.data.packing import padded_generously, padded_size
from choicegp.estimators.choice_gp import ChoiceGP
from choicegp.inference.posterior import Draws, Posterior
from choicegp.model.prior import Objects

RECENT = 8
"""Answers over which it is judged how much the model still changes."""
_N_PROBES = 64  # sets for which it is predicted
_GROWN = 1.25  # by which the answers have grown when a fit starts from scratch
_COLD = 10.0  # the first fit may take this many times the seconds of a later one
_LEAST_SECONDS = 0.1
_OF_LIMIT = 0.8  # part of the time limit after which a refit's second fit ends: what follows it takes time too
_NOBODY = -1  # code of a copy without influence, which is no shown object
_FILLED = 0.6  # part of a size from which on the next one is prepared
_ONE_BLOCK = {"n_restarts": 1, "max_iter": 1}  # options of a fit that only compiles


class Answered(NamedTuple):
    """What a model is fitted to: answers, and the number of the last event among them."""

    data: ChoiceData
    last: int


class Current(NamedTuple):
    """The last model of someone.

    Attributes
    ----------
    model : ChoiceGP
    roomy : ChoiceGP
        The same, padded: what it asks, and the next fit that starts from it, need no new programs.
    last : int
        Number of the last event that it knows.
    n_cold : int
        Number of answers of the last fit from scratch.
    course : tuple of (int, ndarray)
        Numbers of answers, and what was then predicted for the same sets; of this model and of some before it.
    """

    model: ChoiceGP
    roomy: ChoiceGP
    last: int
    n_cold: int
    course: tuple[tuple[int, np.ndarray], ...]

    @property
    def change(self) -> float | None:
        """By how much the last `RECENT` answers changed probabilities of being chosen, on average; None if unknown."""
        n, now = self.course[-1]
        before = [predicted for earlier, predicted in self.course if earlier <= n - RECENT]
        return float(np.mean(np.abs(now - before[-1]))) if before else None


class Refitter:
    """Fits models one after the other in a thread of its own, which ends when there is nothing left to do.

    A fit starts from the last model.  Whenever the answers have become a quarter more there is also one from scratch,
    and the one with the higher bound is kept: what was plausible after few answers need not be where the best fit to
    more of them is.  After the same 12 answers of one simulated person, a fit that had always started from the last one
    predicted 0.47 of new sets, one from scratch 0.76.  Both together have one time limit.

    Parameters
    ----------
    template : ChoiceGP
        Its options are the options of all fits.
    max_seconds : float
        Time limit of a refit.
    probe : ChoiceData
        Sets whose predictions show how much a model changes.
    prepare : callable, optional
        Called with each model whose size is new, before it is used: whatever asks it compiles its programs there.
        Where it is given, the programs of the next size are compiled ahead, while there is nothing to fit.
    """

    def __init__(
        self, template: ChoiceGP, max_seconds: float, probe: ChoiceData,
        prepare: Callable[[ChoiceGP], object] | None = None,
    ) -> None:  # fmt: skip
        self._template, self._max_seconds, self._probe = template, max_seconds, probe
        self._prepare, self._prepared = prepare, set[tuple[int, bool]]()
        self._models: dict[Hashable, Current] = {}
        self._wanted: dict[Hashable, Callable[[], Answered | None]] = {}
        self._failed: Exception | None = None
        self._is_ended = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._fitted_all = threading.Condition(self._lock)
        self._is_fitting = False
        self._ahead: tuple[int, Current] | None = None  # a size to prepare, and a model of the size before

    def current(self, who: Hashable) -> Current | None:
        """Return the last model, or None before the first."""
        return self._models.get(who)

    def forget(self, who: Hashable) -> None:
        """Forget someone's models."""
        with self._lock:
            self._wanted.pop(who, None)
            self._models.pop(who, None)

    def request(self, who: Hashable, read: Callable[[], Answered | None]) -> None:
        """Ask for a new model; ``read`` returns what to fit, or None where that is too little."""
        with self._lock:
            if self._is_ended:
                return
            self._wanted[who] = read
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="choicegp-refit")
                self._thread.start()

    def abandon(self) -> None:
        """Fit nothing more; a fit that runs is not waited for, and its model is never used."""
        with self._lock:
            self._wanted.clear()
            self._is_ended = True

    def finish(self) -> None:
        """Fit what was asked for, wait for it as `wait` does, and do nothing more: no size is prepared any longer."""
        with self._lock:
            self._is_ended = True
        self.wait()

    def wait(self) -> None:
        """Wait until nothing is left to fit; raise the error of a fit that failed."""
        with self._fitted_all:
            while self._wanted or self._is_fitting:
                self._fitted_all.wait()
            failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _work(self) -> None:
        while True:
            with self._fitted_all:
                self._is_fitting = bool(self._wanted)
                self._fitted_all.notify_all()
                ahead = None
                if self._is_fitting:
                    who = next(iter(self._wanted))
                    read = self._wanted.pop(who)
                elif self._ahead is None or self._is_ended:
                    self._thread = None
                    return
                else:
                    ahead, self._ahead = self._ahead, None
            if ahead is not None:
                with contextlib.suppress(Exception):  # nobody asked for it
                    self._compile(*ahead)
                continue
            try:
                answered, before = read(), self._models.get(who)
                if answered is not None and (before is None or before.last != answered.last):
                    self._models[who] = self._fitted(answered, before)
                    self._ahead = self._next_size(self._models[who])
            except Exception as error:  # the last model stays, and `wait` raises this
                self._failed = error

    def _next_size(self, current: Current) -> tuple[int, Current] | None:
        """Return the size that a model will soon have, unless it is prepared."""
        if self._prepare is None:
            return None
        n, size = len(current.model.posterior_.objects.X), _size(current.roomy)
        n_all = len(self._probe.X) + current.model.errors_.has_threshold
        with padded_generously():
            following = padded_size(size + 1, 1), current.roomy.errors_.has_threshold
        return None if n < _FILLED * size or n_all <= size or following in self._prepared else (size, current)

    def _compile(self, size: int, current: Current) -> None:
        """Compile what the next size needs: a nobody answers, to whom more than ``size`` objects were shown."""
        n_least = size + 1 - current.roomy.errors_.has_threshold
        seen = [len(np.unique(self._probe.flat_shown[:stop])) for stop in self._probe.offsets[1:]]
        if seen[-1] < n_least:
            return
        some = self._probe.take(slice(int(np.searchsorted(seen, n_least)) + 1))
        first = np.zeros(len(some.flat_shown), bool)
        first[some.offsets[:-1]] = True
        data = replace(some, flat_chosen=first)
        with padded_generously():
            self._fit(data, None, **_ONE_BLOCK)
            _, roomy = self._fit(data, current.roomy, **_ONE_BLOCK)
            self._fit(data, roomy, **_ONE_BLOCK)
            roomy._probabilities(self._probe.with_encoding(roomy.encoding_))
        self._ready(roomy)

    def _fitted(self, answered: Answered, last: Current | None) -> Current:
        data, before, begun = answered.data, last, time.monotonic()
        # A model without a threshold says nothing about where the threshold of the next one is.
        if before is not None and _has_empty(data) and not before.model.errors_.has_threshold:
            before = None
        with padded_generously():
            is_due = before is None or len(data) >= _GROWN * before.n_cold
            found = [self._whole(data, None if before is None else before.roomy)]
            if before is not None and is_due:
                left = max(_OF_LIMIT * self._max_seconds - (time.monotonic() - begun), _LEAST_SECONDS)
                found.append(self._fit(data, None, max_seconds=left))
            model, roomy = max(found, key=lambda one: np.nan_to_num(one[0].elbo_, nan=-np.inf))
            predicted = np.concatenate(roomy._probabilities(self._probe.with_encoding(roomy.encoding_)))
        self._ready(roomy)
        course = [one for one in (last.course if last is not None else ()) if one[0] < len(data)]
        kept = [one for one in course[:-1] if one[0] > len(data) - 2 * RECENT] + course[-1:]
        n_cold = before.n_cold if before is not None and not is_due else len(data)
        return Current(model, roomy, answered.last, n_cold, (*kept, (len(data), predicted)))

    def _whole(self, data: ChoiceData, init: ChoiceGP | None) -> tuple[ChoiceGP, ChoiceGP]:
        """Fit, and once more where the time went into compiling, for a new number of sets or objects."""
        model, roomy = self._fit(data, init)
        return self._fit(data, roomy) if model.fit_result_.out_of_time else (model, roomy)

    def _ready(self, model: ChoiceGP) -> None:
        """Have the programs compiled that ask a model, where its size is new."""
        if self._prepare is not None:
            size = _size(model), model.errors_.has_threshold
            if size not in self._prepared:
                self._prepare(model)
                self._prepared.add(size)

    def _fit(self, data: ChoiceData, init: ChoiceGP | None, **special: Any) -> tuple[ChoiceGP, ChoiceGP]:
        """Return a model, and the same with room."""
        limit = self._max_seconds * (_COLD if init is None else 1.0)
        options = self._template.get_params(deep=False) | {"max_seconds": limit, "progress": False} | special
        model = ChoiceGP(**options).fit(data, init=init)
        return model, with_room(model)


def with_room(model: ChoiceGP) -> ChoiceGP:
    """Return the same model, padded: nearby numbers of objects share the programs that ask it."""
    fitted = model.fitted_._replace(posterior=padded(model.posterior_))
    return ChoiceGP(**model.get_params(deep=False))._keep(fitted)


def _size(model: ChoiceGP) -> int:
    return len(model.posterior_.objects.X)


def probe_of(objects: pd.DataFrame, size: int, number: int) -> ChoiceData:
    """Return random sets of a catalogue without choices."""
    rng = np.random.default_rng([number, 5])
    sets = [rng.choice(len(objects), min(size, len(objects)), replace=False) for _ in range(_N_PROBES)]
    return ChoiceData.from_sets(objects, sets, missing="level")


def _has_empty(data: ChoiceData) -> bool:
    assert data.flat_chosen is not None
    return bool(np.any(np.add.reduceat(data.flat_chosen, data.offsets[:-1], dtype=int) == 0))


def padded(posterior: Posterior) -> Posterior:
    """Add copies of the first object that are without influence, so that nearby numbers of objects share programs."""
    if posterior.is_sparse:
        return posterior
    n = len(posterior.objects.X)
    more = padded_size(n, 1) - n

    def wider(part: Any, n_axes: int) -> np.ndarray:
        return np.pad(np.asarray(part), [(0, 0)] * (np.ndim(part) - n_axes) + [(0, more)] * n_axes)

    rows = np.concatenate([np.arange(n), np.zeros(more, int)])
    codes = np.pad(np.asarray(posterior.objects.codes), (0, more), constant_values=_NOBODY)
    objects = Objects(np.asarray(posterior.objects.X)[rows], codes)
    draws = posterior.draws
    if draws is not None:
        draws = Draws(draws.prior, wider(draws.dual, 1), wider(draws.inverse, 2))  # type: ignore[arg-type]
    gain = wider(posterior.gain, 2) if posterior.has_sites else posterior.gain
    mean, dual = wider(posterior.mean, 1), wider(posterior.dual, 1)
    return Posterior(posterior.prior, objects, mean, dual, gain, posterior.lapse, draws)  # type: ignore[arg-type]
