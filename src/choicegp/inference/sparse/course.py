"""The course of a sparse fit: starts are tried, the best one continues, and its steps become smaller at the end.

When nothing is gained any more is decided in `choicegp.inference.sparse.stopping`.

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

from choicegp.compute.devices import Spread, with_settings_of_this_thread
from choicegp.inference.driver import Inferred, Verdict, Watch
from choicegp.inference.expectation import latin_normals
from choicegp.inference.sparse.feed import Feed, Sets, Source, all_of, shares
from choicegp.inference.sparse.plan import (
    KernelStart,
    Plan,
    SparseCourse,
    held_out_and_training,
    inducing_points,
)
from choicegp.inference.sparse.sharpness import N_POINTS as SURE_POINTS
from choicegp.inference.sparse.sharpness import (
    Held,
    can_be_judged,
    can_be_sharpened,
    learned_sharpness,
    predictive_scores,
    sharpened,
)
from choicegp.inference.sparse.step import (
    Pace,
    Solved,
    SparseState,
    begin,
    differences_in,
    placed,
    posterior_of,
    run_steps,
    score,
    solve,
)
from choicegp.inference.sparse.stopping import COOLED, SMALLER, LastGain, Patience, Scored
from choicegp.model.error_models import DISCERNIBILITY, ErrorModel

BLOCK = 10  # steps between two looks from Python
_CHECK = 50  # steps between two looks at the held-out sets
N_POINTS = 16
_ANNEALING = np.repeat([0.05, 0.1, 0.2, 0.4, 0.7, 1.0], 10)  # weights of the likelihood, hyperparameters held
_TRIAL = 150  # steps of each start, annealing included
_STEADY = 0.6  # part of the steps, or of the time, after which they become smaller at the latest
_PATIENCE_ALL = 200  # steps without a gain that end a fit with all sets in every step
_RHO, _RHO_ALL, _RHO_ANNEALING, _RATE = 0.1, 0.5, 0.2, 0.05
_SCORED = 4096  # training sets from which the final bound is estimated, in chunks of:
_CHUNK = 1024
_CELLS = 30_000_000  # numbers of one temporary array: utilities, pairs of objects, sets and points
_ATTEMPTS = 4
_RIDGE = 1e-7


class SparseInference:
    """Natural-gradient steps on mini-batches; its state is a `SparseCourse`.

    Inducing points are chosen among the scaled features ``objects`` (n, c).  The starts are tried in turn for a few
    steps.  ``spread`` are several devices, among which the sets of every step are divided; ``only`` are the training
    sets to learn from, where not from all.
    """

    def __init__(
        self, source: Source, objects: np.ndarray, starts: Sequence[KernelStart], plan: Plan, watch: Watch, *,
        spread: Spread | None = None, only: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.errors = plan.settings.errors
        points = inducing_points(
            objects, starts[0].prior.n_parts, plan.n_inducing, plan.seed, threshold=self.errors.has_threshold
        )
        self.source, self.points, self.starts, self.plan = source, points, starts, plan
        self.watch, self.clock, self.spread = watch, watch.clock, spread
        self.reader = ThreadPoolExecutor(1)
        self.held_out, training = held_out_and_training(source, plan.batch_size, plan.seed)
        self.training = training if only is None else only
        self.reached = -np.inf  # score of the held-out sets, by which steps are judged
        self.judged = np.zeros(0)  # log probabilities of the choices from them, once the fit is as sure as it may be
        self.parts = np.zeros(0)  # expected log-likelihoods of which `reached` is the mean, where these are not known
        parts = shares(
            source.sizes, self.training, plan.batch_size, 1 if spread is None else len(spread),
            lambda size: self._most(size, N_POINTS),
        )  # fmt: skip
        self.feed = Feed(source, parts, plan.seed, plan.dtype)
        self.all_in_each = all(part.n_taken >= len(part.sets) for part in parts)
        # With all sets in every step there is no noise that smaller steps would average out.
        self.patience = (
            Patience(_PATIENCE_ALL, plan.tol / 100.0, n_levels=0)
            if self.all_in_each
            else Patience.for_sets(len(self.training), sum(part.n_taken for part in parts), plan.tol)
        )
        d = starts[0].prior.n_utilities
        rng = np.random.default_rng([plan.seed, 2])
        self.normals: tuple[Any, ...] = tuple(
            latin_normals(d, part.size - 1, part.n_taken, N_POINTS, rng).astype(plan.dtype) for part in parts
        )
        if spread is not None:
            self.normals = tuple(spread.over(part, 2) for part in self.normals)
        self._seconds_a_step = 0.0
        self._ahead: tuple[range, Future] | None = None
        self._kept: list[tuple[Sets, np.ndarray]] | None = None

    def begin(self) -> SparseCourse:
        """Return the course before its first step."""
        state, none = self._begin(0), np.zeros(0)
        return SparseCourse(
            0, 0, state, state, -np.inf, 0, 0, none, LastGain(Scored(-np.inf, none), 0), (-1, 0), 0.0, none
        )

    def _most(self, size: int, n_points: int) -> int:
        """How many sets of a size are worked on at a time: their pairs of objects have to be held."""
        return max(1, min(_CHUNK, _CELLS // (len(self.points) * size * size * n_points * self.errors.n_nodes)))

    def _begin(self, trial: int) -> SparseState:
        start, rng = self.starts[trial], np.random.default_rng([self.plan.seed, 3, trial])
        state = begin(start.prior, self.points, self.plan.lapse, rng)
        if start.utilities is None:
            return state
        return placed(state, self._solved(state, 0.0), start.utilities(self.points))

    @property
    def n_trial(self) -> int:
        """Steps of each start: at most half of all."""
        return min(_TRIAL, max(self.plan.max_iter // 2, min(BLOCK, self.plan.max_iter)))

    @property
    def n_annealing(self) -> int:
        """Steps of each start with a smaller weight of the likelihood."""
        return min(len(_ANNEALING), self.n_trial // 2)

    def step(self, course: SparseCourse) -> SparseCourse:
        """Make a block of steps, and look at what it gave."""
        return self._advanced(self._steps(course))

    def _advanced(self, course: SparseCourse) -> SparseCourse:
        if course.trial < len(self.starts):
            hurried = self.clock.is_up and course.step >= self.n_annealing
            return self._next_start(course) if course.step >= self.n_trial or hurried or course.broken else course
        at_end = course.cooling[0] >= 0 and course.step >= sum(course.cooling)
        if course.broken or not (course.step % _CHECK == 0 or at_end or course.step >= self.plan.max_iter):
            return course
        return self._checked_course(course)

    def _steps(self, course: SparseCourse) -> SparseCourse:
        steps = range(course.step, course.step + BLOCK)
        n_real = min(BLOCK, self.plan.max_iter - course.step)
        groups = self._groups(steps)
        ridge, began = course.ridge, self.clock.seconds
        for _ in range(_ATTEMPTS):
            pace = self._pace(course, steps, ridge)
            state, bounds, healthy = run_steps(course.state, groups, pace, self.normals, self.plan.settings)
            if self.spread is not None:
                state, bounds, healthy = self.spread.whole((state, bounds, healthy))
            if bool(healthy):
                break
            ridge = max(_RIDGE, 10.0 * ridge)
        else:
            return course._replace(broken=True)
        bounds = np.asarray(bounds)[:n_real]
        self._seconds_a_step = (self.clock.seconds - began) / BLOCK  # the last block's: the first ones compile
        trying = course.trial < len(self.starts)
        phase = f"start {course.trial + 1} of {len(self.starts)}" if trying else "fit"
        self.watch.report(phase, course.step + n_real, float(bounds[-1]))
        return course._replace(
            state=state, step=course.step + n_real, ridge=ridge, bounds=np.concatenate([course.bounds, bounds])
        )

    def _groups(self, steps: range) -> tuple[Sets, ...]:
        """Read the sets of a block, and begin to read the sets of the next while this one is worked on."""
        ahead = None if self._ahead is None else (self._ahead[0], self._ahead[1].result())  # one thread at a time reads
        groups = ahead[1] if ahead is not None and ahead[0] == steps else self._read(steps)
        following = range(steps.stop, steps.stop + len(steps))
        self._ahead = following, self.reader.submit(with_settings_of_this_thread(self._read), following)
        return groups

    def _read(self, steps: range) -> tuple[Sets, ...]:
        groups = self.feed.steps(steps)
        if self.spread is None:
            return groups
        over = self.spread.over
        return tuple(
            Sets(over(sets.X, 2), over(sets.present, 2), over(sets.chosen, 2), over(sets.weight, 1)) for sets in groups
        )

    def _pace(self, course: SparseCourse, steps: range, ridge: float) -> Pace:
        t = np.arange(steps.start, steps.stop)
        held = t < self.n_annealing
        level = np.minimum(t * len(_ANNEALING) // max(1, self.n_annealing), len(_ANNEALING) - 1)
        weight = np.where(held, _ANNEALING[level], 1.0)
        since, length = course.cooling
        smaller = SMALLER**course.progress.level * np.ones(len(t))
        if since >= 0:
            smaller *= (COOLED / smaller) ** np.clip((t - since) / length, 0.0, 1.0)
        # With all sets in every step there is no noise to average out, and the sites need not become slower.
        rho = np.full(len(t), _RHO_ALL) if self.all_in_each else _RHO * smaller
        rate = np.where(held, 0.0, _RATE * smaller)
        real = t < self.plan.max_iter  # a block has always the same length; steps beyond the last do nothing
        rho = np.where(held, _RHO_ANNEALING, rho) * real
        return Pace(rho, rate * real, weight, np.full(len(t), ridge))  # type: ignore[arg-type]

    def _next_start(self, course: SparseCourse) -> SparseCourse:
        scored = Scored(-np.inf, np.zeros(0)) if course.broken else self.scored(course)
        if scored.score > course.best_score:
            course = course._replace(
                best=course.state, best_score=scored.score, best_trial=course.trial, best_step=course.step,
                progress=LastGain(scored, course.step),
                scores=course.bounds,  # kept here until it is known which start continues
            )  # fmt: skip
        following, none = course.trial + 1, np.zeros(0)
        if following < len(self.starts) and not self.clock.is_up:
            return course._replace(
                trial=following, step=0, state=self._begin(following), bounds=none, ridge=0.0, broken=False
            )
        course = course._replace(
            trial=len(self.starts), step=course.best_step, state=course.best, bounds=course.scores,
            scores=np.array([course.best_score]), broken=not np.isfinite(course.best_score),
        )  # fmt: skip
        return self._cooled_if_due(course)

    def _checked_course(self, course: SparseCourse) -> SparseCourse:
        scored = self.scored(course)
        course = course._replace(scores=np.append(course.scores, scored.score))
        if scored.score > course.best_score:
            course = course._replace(best=course.state, best_score=scored.score, best_step=course.step)
        if course.cooling[0] >= 0:
            return course
        before = course.progress.level
        course = course._replace(progress=self.patience.after(course.progress, scored, course.step))
        if course.progress.level > before and course.best_score > scored.score:
            course = course._replace(state=course.best)  # smaller steps begin at the best place
        return self._cooled_if_due(course)

    def _cooled_if_due(self, course: SparseCourse) -> SparseCourse:
        """Let the steps become smaller where most of them, or of the time, are spent."""
        late = self.clock.limit is not None and self.clock.seconds > _STEADY * self.clock.limit
        if self.all_in_each or not (late or course.step >= _STEADY * self.plan.max_iter):
            return course
        left = self.plan.max_iter - course.step
        wanted = max(2 * _CHECK, round((1.0 / _STEADY - 1.0) * course.step))
        if self.clock.limit is not None:
            seconds_left = max(0.0, self.clock.limit - self.clock.seconds)
            wanted = min(wanted, int(0.9 * seconds_left / max(self._seconds_a_step, 1e-9)))
        return course._replace(cooling=(course.step, max(1, min(left, wanted))))

    def verdict(self, course: SparseCourse) -> Verdict | None:
        """Stop when nothing is gained any more, at a limit, or where no step is finite."""
        if course.trial < len(self.starts):
            return None
        if course.broken:
            if np.isfinite(course.best_score):
                return Verdict("stopped", "no finite step was found; the last good place was kept")
            return Verdict("failed", "no finite step was found from any start")
        since, length = course.cooling
        of_steps = Verdict("stopped", f"the limit of {self.plan.max_iter} steps")
        if since >= 0 and course.step >= since + length:
            by_time = self.clock.limit is not None and since < _STEADY * self.plan.max_iter
            return Verdict("stopped", self.watch.out_of_time) if by_time else of_steps
        if since < 0 and self.patience.is_spent(course.progress, course.step):
            return Verdict("converged", f"{course.step - course.progress.step} steps gained nothing worth mentioning")
        if course.step >= self.plan.max_iter:
            return of_steps
        return Verdict("stopped", self.watch.out_of_time) if self.clock.is_up else None

    def scored(self, course: SparseCourse) -> Scored:
        """Return the mean expected log-likelihood of the held-out sets and its parts; without any, the bound."""
        state, solved = course.state, self._solved(course.state, course.ridge)
        if len(self.held_out):
            each, weight = _expected(state, solved, self._held_out_chunks(), self.errors)
            scored = Scored(float(each @ weight / np.sum(weight)), each)
        else:
            each, weight = _expected(state, solved, self._chunks(self.training, N_POINTS), self.errors)
            scored = Scored(float(each @ weight) - float(np.sum(np.asarray(solved.whitened.kl))), np.zeros(0))
        return scored if np.isfinite(scored.score) else Scored(-np.inf, np.zeros(0))

    def _solved(self, state: SparseState, ridge: float) -> Solved:
        return solve(state, np.asarray(ridge), self.plan.settings.jitter)

    def _held_out_chunks(self) -> list[tuple[Sets, np.ndarray]]:
        if self._kept is None:
            self._kept = list(self._chunks(self.held_out, N_POINTS))
        return self._kept

    def _chunks(self, sets: np.ndarray, n_points: int) -> Iterator[tuple[Sets, np.ndarray]]:
        """Yield sets in chunks, each with points of its own."""
        rng = np.random.default_rng([self.plan.seed, 4, n_points])
        for chunk in all_of(self.source, sets, lambda size: self._most(size, n_points), self.plan.dtype):
            a, m, _ = chunk.X.shape
            yield (
                chunk,
                latin_normals(self.starts[0].prior.n_utilities, a - 1, m, n_points, rng).astype(self.plan.dtype),
            )

    def best(self, course: SparseCourse) -> tuple[SparseState, Solved]:
        """Return the best state of a course, and what predicts from it."""
        last = course.scores[-1] if course.scores.size else -np.inf
        state = course.best if course.broken or course.best_score > last else course.state
        return state, self._solved(state, course.ridge)

    def conclude(self, course: SparseCourse, verdict: Verdict) -> Inferred:
        """Take the best state, and estimate its bound on points that the fit has not seen."""
        self.reader.shutdown()
        self.reached = course.best_score
        state, solved = self.best(course)
        rng = np.random.default_rng([self.plan.seed, 5])
        some = np.sort(rng.permutation(self.training)[:_SCORED])
        expected, weight = _expected(state, solved, self._chunks(some, 4 * N_POINTS), self.errors)
        total = float(expected @ weight) * len(self.training) / max(1, len(some))
        bound = total - float(np.sum(np.asarray(solved.whitened.kl)))
        state, solved = jax.tree.map(np.asarray, (state, solved))
        start = self.starts[course.best_trial].name
        each = "part of the utilities" if state.prior.shared else "utility"
        note = f"sparse inference with {state.points.shape[1]} inducing points for each {each}; start: {start}"
        posterior = posterior_of(state, solved, self.plan.seed)
        notes: tuple[str, ...] = (note,)
        if self._is_judged:
            held = self._seen(state, solved)
            sharpness = learned_sharpness(held, self.errors, posterior.lapse, self.clock)
            if sharpness is not None:
                posterior, notes = sharpened(posterior, sharpness), (note, sharpness.in_words)
                if not self.clock.is_up:
                    self.judged = predictive_scores(held, sharpness, self.errors, posterior.lapse)
        if not len(self.judged) and len(self.held_out):
            self.parts = _expected(state, solved, self._held_out_chunks(), self.errors)[0]
        return Inferred(posterior, bound, *verdict, course.step, course.bounds, self.n_annealing, notes)

    @property
    def _is_judged(self) -> bool:
        """Whether held-out sets say how sure the fit may be."""
        sizes, kernel = self.source.sizes[self.held_out], self.starts[0].prior.kernels
        is_learned = self.plan.settings.learn_prior and self.errors == DISCERNIBILITY and not self.clock.is_up
        return bool(is_learned and len(sizes) > 0 and can_be_judged(sizes) and can_be_sharpened(kernel))

    def _seen(self, state: SparseState, solved: Solved) -> list[Held]:
        """Return the held-out sets as a state sees them."""
        return [
            Held(jax.tree.map(np.asarray, differences_in(state, solved, sets)), sets, normals)
            for sets, normals in self._chunks(self.held_out, SURE_POINTS)
        ]


def _expected(
    state: SparseState, solved: Solved, chunks: Iterable[tuple[Sets, np.ndarray]], errors: ErrorModel
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected log-likelihoods of the sets, and their weights; what fills up chunks is left out."""
    each, weights = [np.zeros(0)], [np.zeros(0)]
    for sets, normals in chunks:
        real = sets.weight > 0
        each.append(np.asarray(score(state, solved, sets, normals, errors), float)[real])
        weights.append(sets.weight[real].astype(float))
    return np.concatenate(each), np.concatenate(weights)
