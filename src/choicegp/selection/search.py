"""The search for the number of utilities: fits of 1, 2, ... of them, each from several kinds of starts."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from choicegp.compute.devices import computing, with_settings_of_this_thread
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.fitting.fit import fit_posterior
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import Fitted
from choicegp.inference.driver import NOTHING, Keeper
from choicegp.selection.compare import differences_to_best
from choicegp.selection.loo import LooResult, leave_one_out

PATIENCE = 2  # numbers in a row that are clearly worse than the best end the search


class Candidate(NamedTuple):
    """A number of utilities: its fit, where that started, its leave-one-out score and the time all this took.

    ``cut`` says whether the time limit left out a part of its fits.
    """

    fitted: Fitted
    start: str
    loo: LooResult | None
    seconds: float
    cut: bool = False

    @property
    def result(self) -> LooResult:
        """How well the fit predicts sets that it has not seen."""
        assert self.loo is not None
        return self.loo


class Search(NamedTuple):
    """What all fits of a search have in common: the data, the options but for the number, the device and the clock.

    ``keeper`` keeps the numbers that are finished, and the states of the fits that are not.
    """

    data: ChoiceData
    options: FitOptions
    device: str
    clock: Clock = Clock(None)
    keeper: Keeper = NOTHING

    def judged(self, most: int, n_jobs: int, say: Callable[[int], None]) -> dict[int, Candidate]:
        """Go up from one utility until two numbers in a row are clearly worse than the best, by leave-one-out.

        The time limit ends the search at any number but the first.

        Parameters
        ----------
        most : int
            Where the search ends at the latest.
        n_jobs : int
            Fits that run in parallel.
        say : callable
            Receives each number before its turn.
        """
        found = self._finished(most)
        with self._upcoming(len(found) + 1, most, n_jobs) as upcoming:
            for d in range(len(found) + 1, most + 1):
                if is_over(found):
                    break
                say(d)
                fitted = upcoming.fit(d, found.get(d - 1))
                if d < most and not _may_be_last(found):
                    upcoming.begin(d + 1, fitted)
                found[d] = self._scored(fitted, n_jobs)
                if d > 2 and found[d].result.elpd > found[d - 1].result.elpd:
                    # Perhaps one utility less would do as well, and its fit was left in a worse optimum.
                    found[d - 1] = self._scored(self._again(found[d - 1], found[d], "shrunk"), n_jobs)
                if not self._has_people:
                    self.keeper.keep("finished", tuple(map(_kept, found.values())))
                    for start, number in (("annealed", d), ("grown", d), ("shrunk", d - 1)):
                        self._part(start, number).forget()
                if self.clock.is_up:
                    break
        return found

    @property
    def _has_people(self) -> bool:
        """Whether fits are of many people: each begins by itself, and what is kept of it are its own states."""
        return self.options.respondents != "pooled"

    def _finished(self, most: int) -> dict[int, Candidate]:
        """Return the numbers that an earlier process has finished."""
        kept: tuple[Any, ...] = () if self._has_people else self.keeper.recall("finished") or ()
        codes = {i: number for number, i in enumerate(self.data.object_ids)}
        errors = self.options.decided(self.data).errors
        return {
            d: Candidate(Fitted(*fitted, codes, errors, self.data), *rest)  # type: ignore[call-arg]  # five of them
            for d, (fitted, *rest) in enumerate(kept[:most], 1)
        }

    def unjudged(self, numbers: Collection[int]) -> dict[int, Fitted] | None:
        """Fit some numbers as the search does, from starts of the same kinds, without leaving sets out.

        None where the time limit ends it: numbers that had less time than others are not compared fairly.
        """
        found: dict[int, Candidate] = {}
        for d in range(1, max(numbers) + 1):
            if self.clock.is_up:
                return None
            found[d] = self._grown(self._annealed(d), found.get(d - 1))
            if d > 2 and d - 1 in numbers:
                found[d - 1] = self._again(found[d - 1], found[d], "shrunk")
        if any(candidate.cut for candidate in found.values()):
            return None
        return {d: found[d].fitted for d in numbers}

    @contextlib.contextmanager
    def _upcoming(self, first: int, most: int, n_jobs: int) -> Iterator["_Upcoming"]:
        """Yield the fits from a number on; in the end those that nobody has asked for are interrupted."""
        # Threads share the compiled programs, and compiling and fitting both let other threads run.
        clock = self.clock.of_another_thread()
        with ThreadPoolExecutor(n_jobs) as pool:
            try:
                yield _Upcoming(self._replace(clock=clock), first, most, n_jobs, pool)
            finally:
                # A fit that is begun is waited for: one left behind would continue in the background.
                clock.end()
                pool.shutdown(wait=False, cancel_futures=True)

    def _annealed(self, n_utilities: int) -> Fitted:
        options = self.options._replace(n_utilities=n_utilities)
        with computing(self.device):
            return fit_posterior(self.data, options, None, keeper=self._part("annealed", n_utilities), clock=self.clock)

    def _part(self, start: str, n_utilities: int) -> Keeper:
        return self.keeper.part(f"{start} {n_utilities}")

    def _grown(self, fitted: Fitted, before: Candidate | None) -> Candidate:
        """Where there is a smaller model, fit once more from that and keep the better fit."""
        found = Candidate(fitted, "annealed", None, fitted.result.seconds, fitted.result.out_of_time)
        return found if before is None else self._again(found, before, "grown")

    def _again(self, found: Candidate, neighbour: Candidate, start: str) -> Candidate:
        """Fit once more from a fit with one utility less or more, and keep the better one."""
        options = self.options._replace(n_utilities=found.fitted.n_utilities).decided(self.data)
        if options.inference != "dense" or self._has_people:
            return found
        if self.clock.is_up:
            return found._replace(cut=True)
        with computing(self.device):
            fitted = fit_posterior(
                self.data, options, None, neighbour.fitted.posterior, self._part(start, options.n_utilities), self.clock
            )
        cut = found.cut or fitted.result.out_of_time
        found = found._replace(seconds=found.seconds + fitted.result.seconds, cut=cut)
        return found if fitted.elbo <= found.fitted.elbo else found._replace(fitted=fitted, start=start, loo=None)

    def _scored(self, found: Candidate, n_jobs: int) -> Candidate:
        if found.loo is not None:
            return found
        clock = self.clock.part()
        with computing(self.device):
            loo = leave_one_out(found.fitted, n_jobs=n_jobs, clock=clock)
        return found._replace(loo=loo, seconds=found.seconds + clock.seconds)


class _Upcoming:
    """The fits of a search: where several may run, other threads make the next ones while this one does other work."""

    def __init__(self, search: Search, first: int, most: int, n_jobs: int, pool: ThreadPoolExecutor) -> None:
        self._search, self._most, self._n_ahead, self._pool = search, most, n_jobs - 1, pool
        self._annealed: dict[int, Future[Fitted]] = {}
        self._grown: dict[int, Future[Candidate]] = {}
        self._anneal(first, first + self._n_ahead)

    def begin(self, d: int, before: Candidate) -> None:
        """Begin the fit of a number; the one before it is known."""
        self._anneal(d, d)
        if self._n_ahead:
            self._grown[d] = self._pool.submit(with_settings_of_this_thread(self._fitted), d, before)
        self._anneal(d + 1, d + self._n_ahead)

    def fit(self, d: int, before: Candidate | None) -> Candidate:
        """Return the fit of a number, when it is there."""
        return self._grown.pop(d).result() if d in self._grown else self._fitted(d, before)

    def _anneal(self, first: int, last: int) -> None:
        """Begin the annealed fits of some numbers."""
        for d in range(first, min(last, self._most) + 1):
            if self._n_ahead and d not in self._annealed:
                self._annealed[d] = self._pool.submit(with_settings_of_this_thread(self._search._annealed), d)

    def _fitted(self, d: int, before: Candidate | None) -> Candidate:
        # An annealed fit that was begun has a thread before those that wait for it: it comes to its end.
        annealed = self._annealed[d].result() if d in self._annealed else self._search._annealed(d)
        return self._search._grown(annealed, before)


def _kept(candidate: Candidate) -> tuple:
    """Return what a checkpoint keeps: the data, and what follows from them and the options, are there."""
    return tuple(candidate.fitted[:5]), *candidate[1:]


def is_over(found: dict[int, Candidate]) -> bool:
    """Whether the last numbers are all clearly worse than the best."""
    return len(found) > PATIENCE and _n_worse(found) >= PATIENCE


def _may_be_last(found: dict[int, Candidate]) -> bool:
    """Whether the search is over if one number more is clearly worse than the best."""
    return len(found) >= PATIENCE and _n_worse(found) >= PATIENCE - 1


def _n_worse(found: dict[int, Candidate]) -> int:
    """Count the last numbers in a row that are clearly worse than the best."""
    differences = differences_to_best({d: candidate.result for d, candidate in found.items()})
    clear = [-differences[d].elpd > differences[d].se for d in sorted(found, reverse=True)]
    return [*clear, False].index(False)
