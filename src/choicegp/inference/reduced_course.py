"""The course of dense inference with many objects: the majority of steps is made at some of them.

Starts are annealed and compared at few inducing objects, the best one is followed at more, and its last steps are made
at as many as the bound asks for: then it is lower than the bound with all objects by about a fraction of a nat.
Where half of the objects would not be enough, the last steps are made with all.  In either case the posterior is made,
and scored, with all objects.

Where few objects say all that there is, as with one feature or a linear kernel, all steps are made at these.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from choicegp.compute.devices import linear_algebra_for
from choicegp.inference.annealing import Course, Schedule, StepTrace
from choicegp.inference.dense import N_POINTS, DenseInference, DenseState, first_pace
from choicegp.inference.driver import Inferred, Task, Verdict
from choicegp.inference.posterior import FIRST_JITTER, LAST_JITTER, factorise_on_host
from choicegp.inference.problem import Problem
from choicegp.inference.reduced import Choice, ReducedState, choice_of_objects, run_reduced
from choicegp.inference.sites import Sites, neighbours
from choicegp.inference.starts import LENGTHSCALES, Start, covariance_at, random_start, scaled
from choicegp.model.prior import UtilityPrior

MANY = 400
"""Objects up to which every step is made with all: compiling would take longer than is gained."""
_FIRST, _SECOND = 64, 128  # inducing objects while starts are compared, and for the one that continues
_LOSS = 0.2  # nats by which the bound of the last steps is about lower than with all objects
_ROUGHLY = 5.0  # times the tolerance at which the steps before the last ones end
_FAST, _SLOW = 0.4, 0.1  # rates of the hyperparameters after the first change of objects, and at least after the last
_LEFT, _FEWEST = 1e-5, 32  # part of the variance that may be left at the shortest first lengthscale; objects at least
_FEW = 0.25  # of the objects, at which all steps may be made
SOME = int(_FEWEST / _FEW)
"""Objects from which on few of them may say all that there is."""
_ENOUGH = 0.5  # of the objects: with more inducing ones, steps with all objects take no longer


def enough_objects(prior: UtilityPrior, problem: Problem) -> int | None:
    """Return the number of objects that say all that there is from the first steps on; None where they are many.

    It is a power of two, so that few programs are compiled for it.
    """
    choice = choice_of_objects(scaled(prior, min(LENGTHSCALES)), problem)
    n = int(np.argmax(choice.loss <= _LEFT * choice.loss[0])) if choice.loss[-1] <= _LEFT * choice.loss[0] else MANY
    n = max(_FEWEST, 1 << (n - 1).bit_length())
    return n if n <= _FEW * len(problem.valid) else None


class ReducedInference(DenseInference):
    """Annealed starts, and one long run of the best, at inducing objects whose number grows.

    ``n_objects`` is the number at which all steps are made, where that many are enough.
    """

    def __init__(self, task: Task, grown: Sequence[Start] = (), n_objects: int | None = None) -> None:
        super().__init__(task, grown=grown)
        self.neighbours = neighbours(task.problem)
        self.among = jax.tree.map(jnp.asarray, self.neighbours)
        self.first, self.second = (n_objects or _FIRST), (n_objects or _SECOND)

    def random_state(self, prior: UtilityPrior, rng: np.random.Generator) -> Any:
        """Return the state whose utilities are smooth random functions."""
        linear = random_start(prior, self.problem, rng).linear
        return self._first_state(prior, np.zeros((len(linear), *self.neighbours.columns.shape)), linear)

    def given_state(self, start: Start) -> Any:
        """Return the state at a given start."""
        precision = self.neighbours.of_matrices(np.asarray(start.sites.precision))
        return self._first_state(start.prior, precision, start.sites.linear)

    def _first_state(self, prior: UtilityPrior, precision: Any, linear: Any) -> ReducedState:
        prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
        chosen = choice_of_objects(prior, self.problem).first(self.first)
        jitter, pace = np.asarray(FIRST_JITTER), first_pace(prior)
        return ReducedState(prior, chosen, jitter, precision, linear, self.task.rate, *pace)  # type: ignore[arg-type]

    def begin(self) -> Course:
        """Return the best of the starts, followed to its end, with the inducing objects that its last steps need."""
        with linear_algebra_for(self.second):
            course = self.task.watch.keeper.recall("followed")
            if course is None:
                course = super().begin()
                if self._ended(course) is None and self.second > self.first:
                    few = self._choice(course.state).first(self.second)
                    # At few objects the hyperparameters went where little is lost; from there the way may be long.
                    state = course.state._replace(chosen=few, rate=np.asarray(_FAST))
                    course = course._replace(state=state, n_tried=len(course.traces))
            course = self._followed(course)
        if self.is_up or course.n_steps >= self.task.max_iter:
            return course
        return course._replace(state=self._last(course.state), n_tried=len(course.traces))

    def work_of_step(self, state: Any) -> float:
        """Return the seconds of a step on the machine of `DenseInference.work_of_step`."""
        if isinstance(state, DenseState):
            return super().work_of_step(state)
        r = len(state.chosen)
        return self.work_of_sets(N_POINTS) + self.n_numbers * (52e-9 * r + 0.23e-9 * r**2)

    def step(self, course: Course) -> Course:
        """Make a block of steps at full weight."""
        if isinstance(course.state, DenseState):
            return super().step(course)
        with linear_algebra_for(len(course.state.chosen)):
            return super().step(course)

    def _followed(self, course: Course) -> Course:
        """Make steps until they gain next to nothing, or a limit is reached."""
        while self._ended(course, _ROUGHLY) is None:
            self.task.watch.keeper.keep("followed", course, alone=True)
            course = self.step(course)
        return course

    def _last(self, state: ReducedState) -> ReducedState | DenseState:
        """Return the state from which the last steps are made."""
        choice = self._choice(state)
        enough = np.flatnonzero(choice.loss <= _LOSS)
        n = -(-int(enough[0]) // _FIRST) * _FIRST if len(enough) else len(self.problem.valid)
        n = self.second if len(enough) and enough[0] <= self.second else n
        if n > _ENOUGH * len(self.problem.valid):
            return self._with_all(state)
        rate = jnp.maximum(state.rate, _SLOW)
        return state._replace(chosen=jnp.asarray(choice.first(n)), rate=rate)

    def _choice(self, state: ReducedState) -> Choice:
        """Choose objects by the precision of the sites at each of them, of all utilities together."""
        own = np.asarray(self.neighbours.columns) == np.arange(len(self.problem.valid))[:, None]
        return choice_of_objects(state.prior, self.problem, np.sum(np.asarray(state.precision) * own, axis=(0, 2)))

    def _with_all(self, state: ReducedState) -> DenseState:
        """Return the state with all objects."""
        factor = factorise_on_host(np.asarray(covariance_at(state.prior, self.problem)))
        sites = Sites(self.neighbours.matrices(np.asarray(state.precision)), state.linear)  # type: ignore[arg-type]
        return DenseState(state.prior, factor, sites, *state[5:])._replace(rate=jnp.maximum(state.rate, _SLOW))

    def advance(self, state: Any, schedule: Schedule) -> tuple[Any, StepTrace]:
        """Make the steps of a schedule."""
        if isinstance(state, DenseState):
            return super().advance(state, schedule)
        given = (self.problem, self.among, self.normals, self.task.learning)
        return self.in_block(partial(run_reduced, state), schedule, *given)

    def is_healthy(self, state: Any) -> bool:
        """Say whether the numbers of a state are finite."""
        if isinstance(state, DenseState):
            return super().is_healthy(state)
        return bool(np.all(np.isfinite(np.asarray(state.linear))))

    def steadier(self, state: Any) -> Any:
        """Return the state with more jitter."""
        if isinstance(state, DenseState):
            return super().steadier(state)
        return state._replace(jitter=np.minimum(100.0 * np.asarray(state.jitter), LAST_JITTER))

    def conclude(self, course: Course, verdict: Verdict) -> Inferred:
        """Make the posterior, with all objects."""
        if isinstance(course.state, ReducedState):
            course = course._replace(state=self._with_all(course.state))
        return super().conclude(course, verdict)
