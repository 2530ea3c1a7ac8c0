"""The course of a sparse fit: several starts are tried, the best one goes on, and its steps become smaller at the end.

Which start is best, when nothing is gained any more and which state is kept is judged on sets that are held out of the
training sets, or, where all sets are in every step, by the bound itself.

The course is advanced block by block by a function of what is known so far; which sets a step sees depends on the
seed and on the step alone.  What is known so far is therefore all that a checkpoint holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from choicegp.inference.devices import Spread
from choicegp.inference.expectation import latin_normals
from choicegp.inference.fit import Clock, Report
from choicegp.inference.minibatches import Sets, Share, Source, all_of, shares, steps_of
from choicegp.inference.programs import with_settings_of_this_thread
from choicegp.inference.sparse import Pace, Solved, State, begin, run_steps, score, solve
from choicegp.inference.sparse_plan import (
    Course,
    Keeper,
    Plan,
    SparseFit,
    Start,
    held_out_and_training,
    inducing_points,
)

BLOCK = 10  # steps between two looks from Python
_CHECK = 50  # steps between two looks at the held-out sets
_WINDOW = 4  # checks over which something must be gained
N_POINTS = 16
_ANNEALING = np.repeat([0.05, 0.1, 0.2, 0.4, 0.7, 1.0], 10)  # weights of the likelihood, hyperparameters held
N_ANNEALING = len(_ANNEALING)
_TRIAL = 150  # steps of each start, annealing included
_STEADY = 0.6  # part of the steps, or of the time, after which they become smaller at the latest
_COOLING = 10.0**-1.5  # how much smaller the last steps are
_RHO, _RHO_ALL, _RHO_ANNEALING, _RATE = 0.1, 0.5, 0.2, 0.05
_SCORED = 4096  # training sets from which the final bound is estimated, in chunks of:
_CHUNK = 1024
_ATTEMPTS = 4
_RIDGE = 1e-7


def fit_sparse(
    source: Source,
    objects: np.ndarray,
    starts: Sequence[Start],
    plan: Plan,
    clock: Clock,
    *,
    report: Report | None = None,
    keeper: Keeper | None = None,
    spread: Spread | None = None,
) -> SparseFit:
    """Fit by natural-gradient steps on mini-batches.

    Parameters
    ----------
    source : Source
    objects : ndarray (n, c)
        Scaled features of a sample of the objects, among which inducing points are chosen.
    starts : sequence of Start
        Tried in turn for a few steps.
    plan : Plan
    clock : Clock
    report : callable, optional
        Called as report(phase, step, bound).
    keeper : Keeper, optional
        Where the course is kept after every check, and found again.
    spread : Spread, optional
        Several devices, among which the sets of every step are divided.
    """
    points = inducing_points(objects, starts[0].prior.n_utilities, plan.n_inducing, plan.seed)
    with ThreadPoolExecutor(1) as reader:
        run = _Run(source, points, starts, plan, clock, report, spread, reader)
        first = run.first()
        course = (keeper.load(first) if keeper is not None else None) or first
        run.prepare(first)
        outcome = run.outcome(course) if course.step else None
        while outcome is None:
            course = run.advance(course)
            outcome = run.outcome(course)
            if keeper is not None and course.step % _CHECK == 0:
                keeper.save(jax.tree.map(np.asarray, course))
        return run.concluded(course, *outcome)


class _Run:
    """Advances a course; holds what does not change."""

    def __init__(
        self, source: Source, points: np.ndarray, starts: Sequence[Start], plan: Plan, clock: Clock,
        report: Report | None, spread: Spread | None, reader: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        self.source, self.points, self.starts, self.plan = source, points, starts, plan
        self.clock, self.report, self.spread, self.reader = clock, report, spread, reader
        self.held_out, self.training = held_out_and_training(source, plan.seed)
        self.parts: tuple[Share, ...] = shares(
            source.sizes, self.training, plan.batch_size, 1 if spread is None else len(spread)
        )
        self.all_in_each = all(part.n_taken >= len(part.sets) for part in self.parts)
        d = len(points)
        rng = np.random.default_rng([plan.seed, 2])
        self.normals: tuple[Any, ...] = tuple(
            latin_normals(d, part.size - 1, part.n_taken, N_POINTS, rng).astype(plan.dtype) for part in self.parts
        )
        if spread is not None:
            self.normals = tuple(spread.over(part, 2) for part in self.normals)
        self._seconds_a_step = 0.0
        self._ahead: tuple[range, Future] | None = None
        self._kept: list[tuple[Sets, np.ndarray]] | None = None

    def first(self) -> Course:
        """Return the course before its first step."""
        state = self._begin(0)
        none = np.zeros(0)
        return Course(0, 0, state, state, -np.inf, 0, 0, none, (-1, 0), 0.0, none)

    def prepare(self, course: Course) -> None:
        """Have what comes after the first steps compiled while these are."""
        if self.spread is not None or not len(self.held_out):
            return
        jitter = self.plan.settings.jitter
        solve.prepare(course.state, jitter)
        solved = jax.eval_shape(lambda state: solve(state, jitter), course.state)
        for sets, normals in self._held_out_chunks():
            score.prepare(course.state, solved, sets, normals)

    def _begin(self, trial: int) -> State:
        rng = np.random.default_rng([self.plan.seed, 3, trial])
        return begin(self.starts[trial].prior, self.points, self.plan.lapse, rng)

    @property
    def n_trial(self) -> int:
        """Steps of each start."""
        return min(_TRIAL, self.plan.max_iter)

    def advance(self, course: Course) -> Course:
        """Make a block of steps, and look at what it gave."""
        course = self._steps(course)
        in_trial = course.trial < len(self.starts)
        if in_trial and course.step >= self.n_trial:
            return self._next_start(course)
        if not in_trial and course.step % _CHECK == 0:
            return self._checked_course(course)
        return course

    def _steps(self, course: Course) -> Course:
        steps = range(course.step, course.step + BLOCK)
        groups = self._groups(steps)
        ridge, began = course.ridge, self.clock.seconds
        for _ in range(_ATTEMPTS):
            pace = self._pace(course, steps, ridge)
            state, bounds = run_steps(course.state, groups, pace, self.normals, self.plan.settings)
            if self.spread is not None:
                state, bounds = self.spread.whole((state, bounds))
            bounds = np.asarray(bounds)
            if np.all(np.isfinite(bounds)) and np.all(np.isfinite(np.asarray(state.linear))):
                break
            ridge = max(_RIDGE, 10.0 * ridge)
        else:
            state = course.state  # the last good place; `outcome` sees that the bound is not finite
        self._seconds_a_step = (self.clock.seconds - began) / BLOCK  # the last block's: the first ones compile
        if self.report is not None:
            trying = course.trial < len(self.starts)
            phase = f"start {course.trial + 1} of {len(self.starts)}" if trying else "fit"
            self.report(phase, course.step + BLOCK, float(bounds[-1]))
        return course._replace(
            state=state, step=course.step + BLOCK, ridge=ridge, bounds=np.concatenate([course.bounds, bounds])
        )

    def _groups(self, steps: range) -> tuple[Sets, ...]:
        """Read the sets of a block, and begin to read those of the next while this one is worked on."""
        expected = self._ahead is not None and self._ahead[0] == steps
        groups = self._ahead[1].result() if expected and self._ahead else self._read(steps)
        following = range(steps.stop, steps.stop + len(steps))
        self._ahead = following, self.reader.submit(with_settings_of_this_thread(self._read), following)
        return groups

    def _read(self, steps: range) -> tuple[Sets, ...]:
        groups = steps_of(self.source, self.parts, steps, self.plan.seed, self.plan.dtype)
        if self.spread is None:
            return groups
        over = self.spread.over
        return tuple(
            Sets(over(sets.X, 2), over(sets.present, 2), over(sets.chosen, 2), over(sets.weight, 1)) for sets in groups
        )

    def _pace(self, course: Course, steps: range, ridge: float) -> Pace:
        t = np.arange(steps.start, steps.stop)
        held = t < len(_ANNEALING)
        weight = np.where(held, _ANNEALING[np.minimum(t, len(_ANNEALING) - 1)], 1.0)
        since, length = course.cooling
        smaller = np.ones(len(t)) if since < 0 else _COOLING ** np.clip((t - since) / length, 0.0, 1.0)
        # With all sets in every step there is no noise to average out, and the sites need not become slower.
        rho = np.full(len(t), _RHO_ALL) if self.all_in_each else _RHO * smaller
        rate = np.where(held, 0.0, _RATE * smaller)
        return Pace(np.where(held, _RHO_ANNEALING, rho), rate, weight, np.full(len(t), ridge))  # type: ignore[arg-type]

    def _next_start(self, course: Course) -> Course:
        score = self.score(course.state)
        if score > course.best_score or course.trial == 0:
            course = course._replace(
                best=course.state, best_score=score, best_trial=course.trial, best_step=course.step,
                scores=course.bounds,  # kept here until it is known which start goes on
            )  # fmt: skip
        following = course.trial + 1
        if following < len(self.starts) and not self.clock.is_up:
            none = np.zeros(0)
            return course._replace(trial=following, step=0, state=self._begin(following), bounds=none, ridge=0.0)
        return course._replace(
            trial=len(self.starts), step=course.best_step, state=course.best, bounds=course.scores,
            scores=np.array([course.best_score]),
        )  # fmt: skip

    def _checked_course(self, course: Course) -> Course:
        score = self.score(course.state)
        scores = np.append(course.scores, score)
        course = course._replace(scores=scores)
        if score > course.best_score:
            course = course._replace(best=course.state, best_score=score, best_step=course.step)
        if course.cooling[0] < 0 and not self.all_in_each and self._is_due(course):
            left = self.plan.max_iter - course.step
            wanted = max(2 * _CHECK, round((1.0 / _STEADY - 1.0) * course.step))
            if self.clock.limit is not None:
                seconds_left = max(0.0, self.clock.limit - self.clock.seconds)
                wanted = min(wanted, int(0.9 * seconds_left / max(self._seconds_a_step, 1e-9)))
            length = max(BLOCK, min(left, wanted) // _CHECK * _CHECK)
            return course._replace(cooling=(course.step, length))
        return course

    def _is_due(self, course: Course) -> bool:
        """Whether the steps should become smaller: nothing is gained, or most of the steps or the time are spent."""
        late = self.clock.limit is not None and self.clock.seconds > _STEADY * self.clock.limit
        return late or course.step >= _STEADY * self.plan.max_iter or self._has_stalled(course)

    def _has_stalled(self, course: Course) -> bool:
        if len(course.scores) <= _WINDOW:
            return False
        gained = np.max(course.scores[-_WINDOW:]) - np.max(course.scores[:-_WINDOW])
        part = self.plan.tol / 100.0 if self.all_in_each else self.plan.tol
        return bool(gained < part * abs(course.scores[-1]))

    def outcome(self, course: Course) -> tuple[str, str] | None:
        """Return status and message once the course is at its end."""
        if not np.all(np.isfinite(course.bounds[-BLOCK:])):
            return "failed", "no finite step was found"
        if course.trial < len(self.starts):
            return None
        since, length = course.cooling
        if since >= 0 and course.step >= since + length:
            if since < _STEADY * self.plan.max_iter and self._has_stalled_before(course, since):
                return "converged", f"{_WINDOW * _CHECK} steps gained less than {self.plan.tol:g} of the score"
            return "stopped", f"the limit of {self.plan.max_iter} steps" if self.clock.limit is None else "a limit"
        if self.all_in_each and self._has_stalled(course):
            return "converged", f"{_WINDOW * _CHECK} steps gained next to nothing"
        if course.step >= self.plan.max_iter:
            return "stopped", f"the limit of {self.plan.max_iter} steps"
        if self.clock.is_up:
            return "stopped", f"the time limit of {self.clock.limit:g} s"
        return None

    def _has_stalled_before(self, course: Course, step: int) -> bool:
        n = 1 + (step - self.n_trial) // _CHECK
        return self._has_stalled(course._replace(scores=course.scores[:n]))

    def score(self, state: State) -> float:
        """Return the mean expected log-likelihood of the held-out sets; without any, the bound."""
        solved = solve(state, self.plan.settings.jitter)
        if len(self.held_out):
            total, weight = _expected(state, solved, self._held_out_chunks())
            return total / weight
        total, _ = _expected(state, solved, self._chunks(self.training, N_POINTS))
        return total - float(np.sum(np.asarray(solved.whitened.kl)))

    def _held_out_chunks(self) -> list[tuple[Sets, np.ndarray]]:
        if self._kept is None:
            self._kept = list(self._chunks(self.held_out, N_POINTS))
        return self._kept

    def _chunks(self, sets: np.ndarray, n_points: int) -> Iterator[tuple[Sets, np.ndarray]]:
        """Yield sets in chunks, each with points of its own."""
        rng = np.random.default_rng([self.plan.seed, 4, n_points])
        for chunk in all_of(self.source, sets, _CHUNK, self.plan.dtype):
            a, m, _ = chunk.X.shape
            yield chunk, latin_normals(len(self.points), a - 1, m, n_points, rng).astype(self.plan.dtype)

    def concluded(self, course: Course, status: str, message: str) -> SparseFit:
        """Take the best state, and estimate its bound on points that the fit has not seen."""
        state = course.best if course.scores.size and course.best_score > course.scores[-1] else course.state
        solved = solve(state, self.plan.settings.jitter)
        rng = np.random.default_rng([self.plan.seed, 5])
        some = np.sort(rng.permutation(self.training)[:_SCORED])
        total, weight = _expected(state, solved, self._chunks(some, 4 * N_POINTS))
        per_set = total / max(weight, 1e-300)
        everything = len(self.training) * self.source.mean_weight
        bound = per_set * everything - float(np.sum(np.asarray(solved.whitened.kl)))
        held_out = float(course.best_score) if len(self.held_out) else float("nan")
        state, solved = jax.tree.map(np.asarray, (state, solved))
        return SparseFit(
            state, solved, bound, held_out, status, message, course.step, course.bounds,
            self.starts[course.best_trial].name,
        )  # fmt: skip


def _expected(state: State, solved: Solved, chunks: Iterable[tuple[Sets, np.ndarray]]) -> tuple[float, float]:
    """Return the expected log-likelihood of all sets, and their weight."""
    total, weight = 0.0, 0.0
    for sets, normals in chunks:
        expected = np.asarray(score(state, solved, sets, normals).expected, float)
        total += float(np.sum(sets.weight * expected))
        weight += float(np.sum(sets.weight))
    return total, weight
