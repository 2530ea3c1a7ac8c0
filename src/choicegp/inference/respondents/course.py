"""The course of the inference for many people.

Some people are fitted first, from annealed starts: they say most about the hyperparameters, and which optimum is best.
Everyone else starts at what those say about the population.  Utilities have no order of their own: all people start
from the same population, around which each person's utilities vary, so that the first utility of one person means
what the first utility of another does.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from choicegp.inference.annealing import AnnealedInference, Course, Schedule, StepTrace
from choicegp.inference.dense import Adam
from choicegp.inference.driver import Task, Verdict
from choicegp.inference.respondents.steps import (
    Population,
    StudySites,
    StudyState,
    blank_sites,
    conclude_study,
    first_sites,
    normals_of,
    run_block,
)
from choicegp.inference.respondents.study import Study
from choicegp.inference.sites import Sites
from choicegp.inference.starts import ANNEALING
from choicegp.model.prior import UtilityPrior
from choicegp.model.respondents import StudyPrior

N_POINTS = 16
SCORE_POINTS = 128
_RATE = 0.3  # of Adam, in log hyperparameters


class InferredStudy(NamedTuple):
    """What an inference for many people gives."""

    prior: StudyPrior
    population: Population
    sites: tuple[Sites, ...]  # of each crowd, (k, R, d, n, n) and (k, R, d, n)
    lapse: Any
    elbo: float
    status: str
    message: str
    trace: np.ndarray
    n_annealing: int = 0


class StudyInference(AnnealedInference):
    """Annealed starts, and one long run of the best, for all people of a study.

    The task's ``prior`` is the population's; ``before`` is where everyone starts, instead of at annealed starts;
    ``alone`` says that people have nothing in common but the hyperparameters.
    """

    def __init__(
        self, task: Task, study: Study, before: tuple[StudyPrior, Population] | None = None, *, alone: bool = False
    ) -> None:
        super().__init__(task)
        self.before, self.alone = before, alone
        normals = normals_of(study, task.prior.n_utilities, N_POINTS, task.seed)
        self.study, self.normals = jax.tree.map(jnp.asarray, (study, normals))

    def warm_state(self) -> StudyState | None:
        """Return the state in which everyone is as the population that is known."""
        if self.before is None:
            return None
        prior, population = self.before
        people = first_sites(prior, self.study, population, self.normals, self.task.rate)
        sites = StudySites(people, np.zeros(len(population.mean)))  # type: ignore[arg-type]
        # The hyperparameters have been learned from others: they move little.
        return self._state(prior, sites, rate=0.3 * _RATE)

    def random_state(self, prior: UtilityPrior, rng: np.random.Generator) -> StudyState:
        """Return the state whose population has smooth random utilities, without a shared part."""
        shape = prior.n_parts, len(self.study.points.X)
        push = rng.normal(size=shape)
        push[: int(prior.shared)] = 0.0
        sites = blank_sites(self.study, prior.n_utilities, push.ravel())
        if self.alone:
            # Nobody starts at a population: everyone has random utilities of her own.
            people = tuple(Sites(own.precision, rng.normal(size=own.linear.shape)) for own in sites.people)  # type: ignore[arg-type]
            sites = StudySites(people, sites.population)
        return self._state(StudyPrior.around(prior, alone=self.alone), sites)

    def _best_start(self) -> Course:
        """Return the best start; of people who have nothing in common, the best start of each."""
        if not self.alone:
            return super()._best_start()
        courses = self._all_annealed()
        scored = [
            conclude_study(course.state.prior, self.study, course.state.sites, self.normals, self.task.rate)[1]
            for course in courses
        ]

        def best_of(scores: tuple, sites: tuple[Sites, ...]) -> Sites:
            """Take the sites of each person of a crowd from the course with her best score."""
            best = np.argmax(np.stack([np.asarray(score) for score in scores]), axis=0)

            def picked(*parts: Any) -> Any:
                stacked = np.stack([np.asarray(part) for part in parts])
                return np.take_along_axis(stacked, best.reshape(1, *best.shape, *[1] * (stacked.ndim - 3)), 0)[0]

            return jax.tree.map(picked, *sites)

        each = zip(*(course.state.sites.people for course in courses), strict=True)
        people = tuple(best_of(*crowd) for crowd in zip(zip(*scored, strict=True), each, strict=True))
        first = max(courses, key=lambda course: course.quality)
        state = first.state._replace(sites=StudySites(people, first.state.sites.population), objective=-np.inf)
        return first._replace(state=state)

    def _state(self, prior: StudyPrior, sites: StudySites, rate: float = _RATE) -> StudyState:
        prior = jax.tree.map(lambda leaf: np.asarray(leaf, float), prior)
        adam = Adam.begin(np.zeros(ravel_pytree(prior)[0].shape))
        rho, rate_, objective = (np.asarray(number, float) for number in (0.5, rate, -np.inf))
        return StudyState(prior, sites, self.task.rate, adam, rho, rate_, objective)  # type: ignore[arg-type]

    def given_state(self, start: Any) -> Any:
        """Refuse: starts are not given here."""
        raise NotImplementedError

    def advance(self, state: StudyState, schedule: Schedule) -> tuple[StudyState, StepTrace]:
        """Make the steps of a schedule."""
        return run_block(state, schedule, self.study, self.normals, self.task.learning)

    def is_healthy(self, state: StudyState) -> bool:
        """Say whether the numbers of a state are finite."""
        return all(bool(np.all(np.isfinite(np.asarray(sites.linear)))) for sites in state.sites.people)

    def steadier(self, state: StudyState) -> StudyState:
        """Return the state itself: smaller steps are tried."""
        return state

    def conclude(self, course: Course, verdict: Verdict) -> InferredStudy:
        """Make the posterior."""
        state = course.state
        points = normals_of(self.study, self.task.prior.n_utilities, SCORE_POINTS, self.task.seed + 2**20)
        sites = StudySites(state.sites.people, np.zeros(state.sites.population.shape))  # type: ignore[arg-type]
        population, scores = conclude_study(state.prior, self.study, sites, points, state.lapse)
        bound = sum(float(np.sum(score)) for score in scores) - 0.5 * float(population.log_det)
        made = (state.prior, population, state.sites.people, state.lapse)
        prior, population, people, lapse = jax.tree.map(np.asarray, made)
        bounds = np.concatenate([trace.bound for trace in course.traces])
        annealed = 0 if self.before is not None else min(len(ANNEALING[0]), len(bounds))
        status, message = verdict
        return InferredStudy(prior, population, people, lapse, bound, status, message, bounds, annealed)
