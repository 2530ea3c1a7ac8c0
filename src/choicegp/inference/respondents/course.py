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

from choicegp.compute.devices import Spread
from choicegp.inference.annealing import AnnealedInference, Course, Schedule, StepTrace
from choicegp.inference.dense import Adam
from choicegp.inference.driver import Task, Verdict
from choicegp.inference.problem import SetBatch
from choicegp.inference.respondents.steps import (
    Moves,
    Population,
    StudySites,
    StudyState,
    blank_sites,
    moved_people,
    normals_of,
    population_of_sites,
    run_block,
    score_people,
)
from choicegp.inference.respondents.study import Crowd, Study
from choicegp.inference.sites import Sites
from choicegp.inference.starts import ANNEALING
from choicegp.model.prior import UtilityPrior
from choicegp.model.respondents import FIRST_RATIOS, StudyPrior

N_POINTS = 16
SCORE_POINTS = 128
_RATE = 0.3  # of Adam, in log hyperparameters
# One program anneals people and makes the first sites of people of whom nothing is known but the population.  People
# who start anew keep more of their differences: from small weights most of them come back to where they were.
_ANNEALED, _ANEW = (Moves(weights, np.full(len(weights), 0.5), np.asarray(len(weights))) for weights in ANNEALING)
_FIRST = Moves(np.ones(len(ANNEALING[0])), np.ones(len(ANNEALING[0])), np.asarray(1))


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

    The task's ``prior`` is the population's; ``before`` is where everyone starts, instead of at annealed starts: at a
    population, or where an earlier inference of the same study ended; ``alone`` says that people have nothing in common
    but the hyperparameters; ``n_restarts`` is the number of random starts of each person, given the population.  People
    who differ much have optima of their own (measured on 50 people with 5 sets and 0.8 of the variance between them:
    without such starts, fits of each alone predicted better); ``spread`` divides the people of each chunk among several
    devices, for which the study was made.
    """

    def __init__(
        self, task: Task, study: Study, before: tuple[StudyPrior, Population] | InferredStudy | None = None, *,
        alone: bool = False, n_restarts: int = 0, spread: Spread | None = None, round_number: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(task)
        self.seed = task.seed + 1000 * round_number  # of all but the points on which rounds are compared
        self.before, self.alone, self.n_restarts = before, alone, n_restarts
        self.spread = spread
        self.study = laid_out(study, spread)
        (self.normals,) = self._normals(N_POINTS, self.seed)

    def warm_state(self) -> StudyState | None:
        """Return the state in which everyone is as a known population, or where an earlier inference ended."""
        if self.before is None:
            return None
        if isinstance(self.before, InferredStudy):
            found, nothing = self.before, np.zeros(self.before.population.mean.shape)
            sites = StudySites(found.sites, nothing)  # type: ignore[arg-type]
            return self._state(found.prior, sites, rate=0.3 * _RATE)._replace(lapse=found.lapse)
        prior, population = self.before
        people = blank_sites(self.study, prior.n_utilities, population.mean).people
        people = moved_people(prior, self.study, people, population, self.normals, _FIRST, self.task.rate)
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
            sites = StudySites(self._random_people(sites.people, rng), sites.population)
            return self._state(StudyPrior.around(prior, alone=True), sites)
        # How much people differ at first decides which optimum is found.
        ratio = float(np.exp(rng.uniform(*np.log(FIRST_RATIOS))))
        return self._state(StudyPrior.around(prior, ratio=ratio), sites)

    def begin(self) -> Course:
        """Return the best start, and from there the best of a few starts of each person."""
        course = super().begin()
        if not self.n_restarts or self.alone:
            return course
        anew = isinstance(self.before, InferredStudy)
        if self.before is not None and not anew:
            course = self.step(course)  # everyone is the population still
        state = course.state
        population = population_of_sites(state.prior, self.study, state.sites)
        tried = [(self._scores(state, population, self.normals), state.sites.people)]
        for number in range(self.n_restarts):
            if self.task.watch.is_up:
                break
            first = self._random_people(state.sites.people, np.random.default_rng([self.seed, 31, number]))
            moves = _ANEW if anew else _ANNEALED
            given = state.prior, self.study, first, population, self.normals, moves, state.lapse
            sites = StudySites(moved_people(*given), state.sites.population)
            tried.append((self._scores(state._replace(sites=sites), population, self.normals), sites.people))
        sites = StudySites(_best_of_each(tried), state.sites.population)
        return course._replace(state=state._replace(sites=sites, objective=np.asarray(-np.inf)))

    def _scores(self, state: StudyState, population: Population, *blocks: tuple) -> list[np.ndarray]:
        """Return each person's part of the bound, (k, R), the mean over blocks of points: one program for all."""
        given = state.prior, self.study, state.sites.people, population
        found = [score_people(*given, block, state.lapse) for block in blocks]
        return [np.mean([np.asarray(scores) for scores in crowd], axis=0) for crowd in zip(*found, strict=True)]

    def _random_people(self, like: tuple[Sites, ...], rng: np.random.Generator) -> tuple[Sites, ...]:
        """Return sites without precision, with which everyone has random utilities of her own."""
        return tuple(Sites(np.zeros(own.precision.shape), rng.normal(size=own.linear.shape)) for own in like)  # type: ignore[arg-type]

    def _best_start(self) -> Course:
        """Return the best start; of people who have nothing in common, the best start of each."""
        if not self.alone:
            return super()._best_start()
        courses = self._all_annealed()
        tried = []
        for course in courses:
            state = course.state
            population = population_of_sites(state.prior, self.study, state.sites)
            tried.append((self._scores(state, population, self.normals), state.sites.people))
        first = max(courses, key=Course.quality)
        sites = StudySites(_best_of_each(tried), first.state.sites.population)
        return first._replace(state=first.state._replace(sites=sites, objective=np.asarray(-np.inf)))

    def _normals(self, n_points: int, seed: int) -> list[tuple]:
        """Draw the points of every set, as blocks of N_POINTS."""
        drawn = normals_of(self.study, self.task.prior.n_utilities, n_points, seed)
        starts = range(0, n_points, N_POINTS)
        blocks = (jax.tree.map(lambda part, k=k: part[..., k : k + N_POINTS], drawn) for k in starts)
        return [jax.tree.map(lambda part: _placed(part, self.spread, 3), block) for block in blocks]

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
        blocks = self._normals(SCORE_POINTS, self.task.seed + 2**20)
        sites = StudySites(state.sites.people, np.zeros(state.sites.population.shape))  # type: ignore[arg-type]
        population = population_of_sites(state.prior, self.study, sites)
        scores = self._scores(state, population, *blocks)
        bound = sum(float(np.sum(score)) for score in scores) - 0.5 * float(population.log_det)
        made = (state.prior, population, state.sites.people, state.lapse)
        prior, population, people, lapse = jax.tree.map(np.asarray, made)
        bounds = np.concatenate([trace.bound for trace in course.traces])
        annealed = 0 if self.before is not None else min(len(ANNEALING[0]), len(bounds))
        status, message = verdict
        return InferredStudy(prior, population, people, lapse, bound, status, message, bounds, annealed)


def laid_out(study: Study, spread: Spread | None) -> Study:
    """Bring a study to the device, or the people of each chunk to several."""
    crowds = []
    for crowd in study.crowds:
        sets = []
        for batch in crowd.sets:
            rows, present, chosen = (_placed(part, spread, 2) for part in (batch.rows, batch.present, batch.chosen))
            weight, numbers = (_placed(part, spread, 1) for part in (batch.weight, batch.sets))
            sets.append(SetBatch(rows, present, chosen, weight, numbers, batch.errors))
        people, rows, places = (_placed(part, spread, 1) for part in (crowd.people, crowd.rows, crowd.places))
        crowds.append(Crowd(people, rows, jnp.asarray(crowd.table), places, tuple(sets)))  # type: ignore[arg-type]
    rest = jax.tree.map(jnp.asarray, study._replace(crowds=()))
    return rest._replace(crowds=tuple(crowds))


def _placed(array: Any, spread: Spread | None, axis: int) -> Any:
    return jnp.asarray(array) if spread is None else spread.over(np.asarray(array), axis)


def _best_of_each(tried: list[tuple[Any, tuple[Sites, ...]]]) -> tuple[Sites, ...]:
    """Take the sites of each person from the try with her best score; tries are scores (k, R) and sites of crowds."""
    crowds = []
    for number in range(len(tried[0][1])):
        scores = np.stack([np.asarray(scores[number]) for scores, _ in tried])
        best = np.argmax(np.nan_to_num(scores, nan=-np.inf, neginf=-np.inf), axis=0)

        def picked(*parts: Any, best: np.ndarray = best) -> Any:
            stacked = np.stack([np.asarray(part) for part in parts])
            return np.take_along_axis(stacked, best.reshape(1, *best.shape, *[1] * (stacked.ndim - 3)), 0)[0]

        crowds.append(jax.tree.map(picked, *(people[number] for _, people in tried)))
    return tuple(crowds)
