"""The course of an inference by sites: annealed starts, which are compared, and one long run of the best.

Local optima dominate the result, so every start is annealed (the likelihood's weight rises from 0.05 to 1, with the
hyperparameters held: at low weight they would call everything noise), several starts from several lengthscales are
tried, and the one with the best bound continues.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.devices import with_settings_of_this_thread
from choicegp.inference.driver import Task, Verdict
from choicegp.inference.starts import ANNEALING, LENGTHSCALES, scaled
from choicegp.model.prior import UtilityPrior

BLOCK = 6  # steps between two looks from Python: progress, clock, stopping rule
_ATTEMPTS = 4  # at a block of steps
_REMEMBERED = 7  # latest calls by which the pace of steps is judged
_LEAST_SURE = 2.0  # pace that is believed of fewer calls
_TRIAL_BLOCKS = 2  # blocks after annealing before the starts are compared

Schedule = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For each step: the likelihood's weight, whether hyperparameters are learned, and whether a drop slows the steps."""


class StepTrace(NamedTuple):
    """What a step reports."""

    bound: Array
    objective: Array
    residual: Array


def looped(
    step: Callable[[Any, tuple], tuple[Any, StepTrace]], state: Any, schedule: tuple, n_steps: Array
) -> tuple[Any, StepTrace]:
    """Make the first steps of a schedule; one program makes any number of them."""

    def one(i: Array, carry: tuple[Any, StepTrace]) -> tuple[Any, StepTrace]:
        after, found = step(carry[0], tuple(part[i] for part in schedule))
        return after, jax.tree.map(lambda whole, own: whole.at[i].set(own), carry[1], found)

    nothing = jnp.zeros(len(schedule[0]))
    state = jax.tree.map(jnp.asarray, state)
    return jax.lax.fori_loop(0, n_steps, one, (state, StepTrace(nothing, nothing, nothing)))


class Course(NamedTuple):
    """A start, the blocks of steps made from it, how many were made while starts were compared, and its number."""

    state: Any
    traces: tuple[StepTrace, ...] = ()
    n_tried: int = 0
    number: int = 0

    @property
    def n_steps(self) -> int:
        """Number of steps made."""
        return sum(len(trace.bound) for trace in self.traces)

    def quality(self, n_blocks: int | None = None) -> tuple[int, float]:
        """Return what starts are compared by, after that number of blocks or after all."""
        # A start that the clock cut short has a smaller likelihood weight: its bound cannot be compared.
        made = self.traces[:n_blocks]
        objective = float(made[-1].objective[-1])
        return sum(len(trace.bound) for trace in made), objective if np.isfinite(objective) else -np.inf


class AnnealedInference(ABC):
    """What inferences by sites have in common; a state has at least the fields ``rho`` and ``rate``.

    The number of steps is rounded up to whole blocks.  ``grown`` are starts to be tried instead of random ones.
    """

    def __init__(self, task: Task, grown: Sequence[Any] = ()) -> None:
        self.task, self.grown = task, grown
        self.seconds_of_step = 0.0  # the latest that was measured
        self._compiled: set[float] = set()
        self._slowness: deque[float] = deque(maxlen=_REMEMBERED)  # seconds of steps, in terms of what was foreseen
        self._is_interrupted = False

    @abstractmethod
    def warm_state(self) -> Any:
        """Return the state at an earlier model, where there is one; None otherwise."""

    @abstractmethod
    def random_state(self, prior: UtilityPrior, rng: np.random.Generator) -> Any:
        """Return a state with smooth random utilities."""

    @abstractmethod
    def given_state(self, start: Any) -> Any:
        """Return the state at a given start."""

    @abstractmethod
    def advance(self, state: Any, schedule: Schedule) -> tuple[Any, StepTrace]:
        """Make the steps of a schedule."""

    @abstractmethod
    def is_healthy(self, state: Any) -> bool:
        """Say whether the numbers of a state are finite."""

    @abstractmethod
    def steadier(self, state: Any) -> Any:
        """Return a state from which steps that left the numbers may be tried again."""

    @property
    def piece(self) -> int:
        """Number of steps between two looks at the clock."""
        return BLOCK

    def work_of_step(self, state: Any) -> float:
        """Return the seconds that a step takes on some machine; on others it takes a multiple."""
        return 1.0

    @property
    def work_afterwards(self) -> float:
        """Seconds that what follows the steps takes on the machine of `work_of_step`; on others, the same multiple."""
        return 0.0

    @property
    def is_up(self) -> bool:
        """Whether the time is up for steps: what follows them needs a part of it, by the pace of the latest steps."""
        pace = float(np.median(self._slowness)) if self._slowness else 1.0
        if len(self._slowness) < _REMEMBERED:
            pace = min(pace, _LEAST_SURE)  # the first steps are made while other threads compile
        return self.task.watch.is_up_in(pace * self.work_afterwards)

    @abstractmethod
    def conclude(self, course: Course, verdict: Verdict) -> Any:
        """Make the posterior."""

    def begin(self) -> Course:
        """Return the best of the starts."""
        warm = self.warm_state()
        if warm is not None:
            return Course(warm)
        if self.grown:
            best = max(self._in_parallel(self._from_given, range(len(self.grown))), key=Course.quality)
        else:
            best = self._best_start()
        return best._replace(n_tried=len(best.traces))

    def step(self, course: Course) -> Course:
        """Make a block of steps at full weight."""
        return self._block(course, np.ones(BLOCK), "fit", learn=True, steady=bool(course.traces))

    def verdict(self, course: Course) -> Verdict | None:
        """Stop when a block gains next to nothing, at a limit, or where no step is finite."""
        ended = self._ended(course)
        finite = any(np.all(np.isfinite(trace.objective)) for trace in course.traces)
        return ended if ended is None or finite else Verdict("failed", "the bound was not finite at any step")

    def _ended(self, course: Course, roughly: float = 1.0) -> Verdict | None:
        traces, task = course.traces, self.task
        if len(traces) > course.n_tried:
            last = traces[-1]
            if not np.all(np.isfinite(last.objective)):
                return Verdict("stopped", "no finite step was found; the last good place was kept")
            gained = last.objective[-1] - (traces[-2].objective[-1] if len(traces) > 1 else -np.inf)
            small = roughly * task.tol * max(1.0, float(abs(last.objective[-1])) / 100.0)
            if abs(gained) < small and last.residual[-1] < 0.05:
                return Verdict("converged", f"a block of {BLOCK} steps gained {gained:.2g} nats")
        if course.n_steps >= task.max_iter:
            return Verdict("stopped", f"the limit of {task.max_iter} steps")
        return Verdict("stopped", task.watch.out_of_time) if traces and self.is_up else None

    def _block(self, course: Course, weights: np.ndarray, phase: str, *, learn: bool, steady: bool) -> Course:
        """Make some steps; ones that leave the numbers are tried again, smaller and steadier."""
        schedule = np.asarray(weights, float), np.full(BLOCK, learn), np.full(BLOCK, steady)
        tried = course.state

        def say(n: int, bound: float) -> None:
            self.task.watch.report(phase, course.n_steps + n, bound)

        for _ in range(_ATTEMPTS):
            if self._is_interrupted:
                raise KeyboardInterrupt
            after, trace = self._advanced(tried, schedule, say)
            if np.all(np.isfinite(trace.objective)) and self.is_healthy(after):
                break
            tried = self.steadier(tried._replace(rho=0.25 * tried.rho, rate=0.25 * tried.rate))
        else:
            after = course.state
        return course._replace(state=after, traces=(*course.traces, trace))

    def _advanced(self, state: Any, schedule: Schedule, say: Callable[[int, float], None]) -> tuple[Any, StepTrace]:
        """Make the steps of a schedule, or those for which there is time, a few at a time."""
        traces: list[StepTrace] = []
        n, clock = 0, self.task.watch.clock
        while n < BLOCK:
            piece, start, work = min(self.piece, BLOCK - n), clock.seconds, self.work_of_step(state)
            is_compiled = work in self._compiled  # steps of the same size were made before
            state, trace = self.advance(state, tuple(part[n : n + piece] for part in schedule))  # type: ignore[arg-type]
            traces.append(StepTrace(*(np.asarray(part) for part in trace)))  # type: ignore[arg-type]
            if not np.all(np.isfinite(traces[-1].objective)):
                break
            n += piece
            self.seconds_of_step = (clock.seconds - start) / piece
            if is_compiled:
                self._slowness.append(self.seconds_of_step / work)
            self._compiled.add(work)
            say(n, float(traces[-1].bound[-1]))
            if n < BLOCK and self.is_up:
                break
        return state, StepTrace(*map(np.concatenate, zip(*traces, strict=True)))  # type: ignore[arg-type]

    def _in_parallel(self, function: Callable[[Any], Any], starts: Iterable[Any]) -> list[Any]:
        """Call a function of a start in several threads."""
        # Not `in_threads`: Ctrl-C there would wait for the whole starts of the other threads, not for their blocks.
        with ThreadPoolExecutor(self.task.n_jobs) as pool:
            try:
                return list(pool.map(with_settings_of_this_thread(function), starts))
            except BaseException:
                self._is_interrupted = True  # the other threads, which are waited for, end after their block
                raise

    def _best_start(self) -> Course:
        """Anneal several starts from several lengthscales, and take the better half further until one is left.

        The first steps after annealing tell little about where a start will end: halving by and by costs few steps
        and is wrong less often than one comparison.
        """
        courses, n_blocks = self._all_annealed(), len(self._phases(0))
        while len(courses) > 1:
            # Courses that were kept may be ahead: all are compared after the same number of blocks.
            courses = sorted(courses, key=lambda course: course.quality(n_blocks), reverse=True)
            courses = courses[: (len(courses) + 1) // 2]
            n_steps, _ = courses[0].quality(n_blocks)
            if len(courses) > 1 and not self.is_up and n_steps < self.task.max_iter:
                n_blocks += _TRIAL_BLOCKS
                courses = self._in_parallel(partial(self._further, n_blocks=n_blocks), courses)
        return courses[0]

    def _all_annealed(self) -> list[Course]:
        """Anneal all starts for which there is time."""
        tried = self._in_parallel(self._annealed, range(self.task.n_starts))
        return [course for course in tried if course is not None]

    def _annealed(self, number: int) -> Course | None:
        task = self.task
        if number and self.is_up:
            return None
        course = self._kept(number)
        if course is None:
            is_learned = task.learning.learn_prior
            own = scaled(task.prior, LENGTHSCALES[number % len(LENGTHSCALES)]) if is_learned else task.prior
            course = Course(self.random_state(own, np.random.default_rng([task.seed, number])), number=number)
        phases = self._phases(number)
        for block in range(len(course.traces), len(phases)):
            free = block >= len(ANNEALING[0]) // BLOCK
            phase = f"start {number + 1} of {task.n_starts}"
            course = self._keep(self._block(course, phases[block], phase, learn=free, steady=free))
            if self.is_up:
                break
        return course

    def _phases(self, number: int) -> list[np.ndarray]:
        """Return the likelihood's weights in the blocks of a start, before starts are compared."""
        annealing = ANNEALING[number % len(ANNEALING)].reshape(-1, BLOCK)
        return [*annealing, *[np.ones(BLOCK)] * _TRIAL_BLOCKS][: -(-self.task.max_iter // BLOCK)]

    def _further(self, course: Course, n_blocks: int) -> Course:
        while len(course.traces) < n_blocks:
            course = self._keep(self._block(course, np.ones(BLOCK), "comparing starts", learn=True, steady=True))
        return course

    def _from_given(self, number: int) -> Course:
        """Make the first steps from a given place, at full weight."""
        course = self._kept(number) or Course(self.given_state(self.grown[number]), number=number)
        for block in range(len(course.traces), _TRIAL_BLOCKS):
            course = self._keep(self._block(course, np.ones(BLOCK), "growing", learn=True, steady=block > 0))
            if self.is_up:
                break
        return course

    def _kept(self, number: int) -> Course | None:
        return self.task.watch.keeper.recall(f"start {number}")

    def _keep(self, course: Course) -> Course:
        self.task.watch.keeper.keep(f"start {course.number}", course)
        return course
