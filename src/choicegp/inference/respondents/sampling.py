"""Honest draws for many people: their utilities, the population's and the hyperparameters, all sampled together.

A Gaussian posterior at the best hyperparameters is too narrow, and its hyperparameters are not the best ones: where
answers leave little doubt about what is preferred, the bound lies further below the marginal likelihood the larger the
utilities are, and the more people differ.  Where a study is small enough, the hyperparameters first climb the marginal
likelihood itself; then chains (`choicegp.inference.respondents.chain`) become draws with which predictions are made.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from choicegp.compute.devices import in_threads
from choicegp.compute.programs import program
from choicegp.inference.coordinates import HyperPosterior, gaussian_around
from choicegp.inference.driver import Task, Verdict, run
from choicegp.inference.mcmc import MORE, judged
from choicegp.inference.problem import SetBatch
from choicegp.inference.respondents.chain import Moved, StudyChainModel, Walk, drawn, log_joint, moved, turned
from choicegp.inference.respondents.course import InferredStudy
from choicegp.inference.respondents.posterior import PeopleDraws
from choicegp.inference.respondents.study import Crowd, Study
from choicegp.inference.respondents.whitening import Coordinates, Sampled, SampledCrowd, whiten_study
from choicegp.inference.sites import Sites
from choicegp.model.prior import HyperPriors, log_density
from choicegp.model.respondents import StudyPrior

N_CLIMBING, N_CLIMB = 2, 100
"""Chains by which the hyperparameters climb, and their steps."""
N_CHAINS, N_STEPS, N_WARM_UP = 16, 16, 8
"""Chains, their steps, and how many of these are made before draws are kept."""
_BLOCK = 10  # steps of climbing between two looks at the clock
_RATE, _CLOSER = 0.3, 6.0  # of climbing, and the number of steps in which it halves in the second half of the way
_STEEPEST = 3.0  # slope that counts; the first positions are not from the posterior
_APART = 0.05  # of two places whose slopes are compared
_LEAST_INFORMATION = 0.25  # about q, of which the approximation has 1
_FIRST_LEAP, _FIRST_TURN, _TARGET, _LEARNING = 0.25, 0.6, 0.8, 0.2
_MOST_WORK = 4e7  # cubes of the numbers of utilities of each person, in all: 40 people with 10 sets of 4 have 9e6
_MOST_OBJECTS = 400  # of which all tables are made
SAMPLED = "HMC over the utilities of all people and hyperparameters"


def sampled_of(study: Study, sites: tuple[Sites, ...], lapse: Any) -> Sampled:
    """Return what is sampled, without the padding of people."""
    return Sampled(
        study.objects, study.points, tuple(map(_group, study.crowds, sites)),
        None if lapse is None else np.asarray(lapse, float),  # type: ignore[arg-type]
    )  # fmt: skip


def _group(crowd: Crowd, sites: Sites) -> SampledCrowd:
    known = np.asarray(crowd.people).ravel() >= 0

    def flat(leaf: Any) -> np.ndarray:
        return np.asarray(leaf).reshape(-1, *np.shape(leaf)[2:])[known]

    def of_batch(batch: SetBatch) -> SetBatch:
        own = np.repeat(known, np.shape(batch.weight)[1] // crowd.people.shape[1])
        rows, present, chosen = (
            np.moveaxis(np.asarray(part), 1, 0).reshape(np.shape(part)[1], -1)[:, own]
            for part in (batch.rows, batch.present, batch.chosen)
        )
        weight, sets = (np.asarray(part).ravel()[own] for part in (batch.weight, batch.sets))
        return SetBatch(rows, present, chosen, weight, sets, batch.errors)

    return SampledCrowd(flat(crowd.rows), tuple(map(of_batch, crowd.sets)), Sites(*map(flat, sites)))  # type: ignore[arg-type]


@program
def _evidence_slope(prior: StudyPrior, sampled: Sampled) -> Array:
    return ravel_pytree(jax.grad(lambda prior: whiten_study(prior, sampled).log_evidence)(prior))[0]


def hyperparameters(prior: StudyPrior, sampled: Sampled, hyperpriors: HyperPriors | None) -> HyperPosterior:
    """Approximate the posterior of a study's hyperparameters, with the sites held."""
    of_prior = jax.jit(jax.grad(log_density), static_argnums=1)

    def slope(there: StudyPrior) -> Array:
        return _evidence_slope(there, sampled) + ravel_pytree(of_prior(there, hyperpriors))[0]

    return gaussian_around(prior, slope, hyperpriors)


class SampledState(NamedTuple):
    """Where the chains stand, what they have visited, and what has been learned about their steps."""

    model: StudyChainModel
    walks: tuple[Walk, ...]
    leap: float = _FIRST_LEAP  # of the utilities
    turn: float = _FIRST_TURN  # of the hyperparameters
    path: tuple[np.ndarray, ...] = ()  # hyperparameters while they climb
    root: np.ndarray | None = None  # of the covariance of the hyperparameters when the utilities are held
    n_warmed: int = 0
    kept: tuple[tuple[Walk, ...], ...] = ()  # where the chains stood after each step
    population: tuple[np.ndarray, ...] = ()  # (c, d t) utilities of the population there


class StudySampling:
    """Sample a study, from the place where its fit has ended.

    First the hyperparameters climb, by slopes of the exact marginal likelihood.  Then chains start at settings drawn
    around the place that was found, with the spread of the Gaussian approximation there: many short chains need not
    find the whole width of the hyperparameters by themselves.
    """

    def __init__(self, task: Task, study: Study, found: InferredStudy) -> None:
        self.task = task
        learns = task.learning.learn_prior and task.learning.hyperpriors is not None
        self.hyperpriors = task.learning.hyperpriors if learns else None
        self.sampled = sampled_of(study, found.sites, found.lapse)
        self.first = found.prior
        d = found.prior.n_utilities
        people = tuple(np.zeros((len(group.rows), d * group.rows.shape[1])) for group in self.sampled.groups)
        self.like = Coordinates(np.zeros(len(found.population.mean)), people)  # type: ignore[arg-type]

    def begin(self) -> SampledState:
        """Draw the first positions."""
        self.task.watch.report("warming up", 0, float("nan"))
        model = self._around(self.first)
        k, n = model.approximation.n_learned, N_CLIMBING if self.hyperpriors is not None else N_CHAINS
        walks = []
        for number in range(n):
            rng = self._rng(0, number)
            w = jax.tree.map(lambda leaf, rng=rng: rng.normal(size=leaf.shape), self.like)
            walks.append(Walk(w, np.zeros(k)))  # type: ignore[arg-type]
        root = None if self.hyperpriors is not None else np.zeros((k, k))
        return SampledState(model, tuple(walks), root=root)

    def step(self, state: SampledState) -> SampledState:
        """Let the hyperparameters climb for some steps, or make a step of all chains."""
        if state.root is not None:
            return self._sampled(state)
        for _ in range(_BLOCK):
            state = self._climbed(state)
        self.task.watch.report("warming up", len(state.path), float("nan"))
        return state if len(state.path) < N_CLIMB else self._spread_out(state)

    def verdict(self, state: SampledState) -> Verdict | None:
        """Stop when all draws are made, or at the time limit."""
        n, is_up = len(state.kept), self.task.watch.is_up
        if not is_up and n < N_STEPS - N_WARM_UP:
            return None
        if not n:
            return Verdict("stopped", self.task.watch.out_of_time)
        utilities = np.stack(state.population, axis=1)
        shape = (*utilities.shape[:2], -1, len(self.sampled.objects.X))
        return judged(utilities.reshape(shape), 0, n >= N_STEPS - N_WARM_UP)

    def conclude(self, state: SampledState, verdict: Verdict) -> PeopleDraws:
        """Turn what chains have visited into draws: a power of two of them, evenly from all."""
        n_kept = len(state.kept)
        n = 1 << (n_kept.bit_length() - 1)
        kept = [
            jax.tree.map(np.asarray, drawn(walk, state.model))
            for place in np.arange(1, n + 1) * n_kept // n - 1
            for walk in state.kept[place]
        ]
        prior, population, people = jax.tree.map(lambda *parts: np.stack(parts), *kept)
        by_person = tuple(np.swapaxes(np.asarray(part, np.float32), 0, 1)[:, :, None] for part in people)
        return PeopleDraws(prior, np.asarray(population, np.float32)[:, None], by_person)

    def _around(self, prior: StudyPrior) -> StudyChainModel:
        return StudyChainModel(hyperparameters(prior, self.sampled, self.hyperpriors), self.sampled)

    def _rng(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.task.seed, 41, *numbers])

    def _moved(self, state: SampledState, phase: int, made: int) -> list[Moved]:
        """Move the utilities of all chains."""

        def one(number: int) -> Moved:
            seed = int(self._rng(phase, number, made).integers(2**31))
            key = jax.random.key_data(jax.random.key(seed))
            return jax.tree.map(np.asarray, moved(state.walks[number], key, np.asarray(state.leap), state.model))

        return self._of_all(one, len(state.walks))

    def _of_all(self, one: Callable[[int], Any], n: int) -> list[Any]:
        return in_threads(one, range(n), min(self.task.n_jobs, n))

    def _climbed(self, state: SampledState) -> SampledState:
        """Move the utilities, then all hyperparameters together by the mean of the chains' slopes."""
        assert self.hyperpriors is not None
        made, model, hyperpriors = len(state.path), state.model, self.hyperpriors
        found = self._moved(state, 1, made)
        walks = [walk._replace(utilities=one.utilities) for walk, one in zip(state.walks, found, strict=True)]
        slopes = self._of_all(lambda n: np.asarray(log_joint(walks[n], model, hyperpriors)[1]), len(walks))
        slope = np.mean(slopes, axis=0)
        q = np.asarray(walks[0].hyper)
        if not np.all(np.isfinite(slope)):  # too far: halfway back to where numbers were finite
            q, slope = 0.5 * q, np.zeros_like(q)
        late = max(0, made - N_CLIMB // 2)
        q = q + _RATE / (1.0 + late / _CLOSER) * np.clip(slope, -_STEEPEST, _STEEPEST)
        leap = _adapted(state.leap, float(np.mean([one.accepted for one in found])))
        moved_walks = tuple(walk._replace(hyper=q) for walk in walks)
        return state._replace(walks=moved_walks, leap=leap, path=(*state.path, q))

    def _spread_out(self, state: SampledState) -> SampledState:
        """Start chains around the mean of the second half of the way."""
        q = np.mean(state.path[N_CLIMB // 2 :], axis=0)
        model = self._around(jax.tree.map(np.asarray, state.model.approximation.prior_at(q)))
        k = len(q)
        here = [walk._replace(hyper=np.zeros(k)) for walk in state.walks]  # type: ignore[arg-type]
        root = self._root_given_utilities(here, model)
        walks = tuple(
            Walk(here[number % len(here)].utilities, self._rng(2, number).normal(size=k))  # type: ignore[arg-type]
            for number in range(N_CHAINS)
        )
        return state._replace(model=model, walks=walks, root=root)

    def _root_given_utilities(self, walks: list[Walk], model: StudyChainModel) -> np.ndarray:
        """Return a root of about the covariance of q with the utilities held, from differences of slopes."""
        assert self.hyperpriors is not None
        hyperpriors, k = self.hyperpriors, model.approximation.n_learned

        def slope(walk: Walk, q: np.ndarray) -> np.ndarray:
            return np.asarray(log_joint(walk._replace(hyper=q), model, hyperpriors)[1])  # type: ignore[arg-type]

        def information(number: int) -> np.ndarray:
            walk = walks[number]
            ends = [[slope(walk, side * _APART * one) for side in (-1.0, 1.0)] for one in np.eye(k)]
            return np.array([(low - high) / (2.0 * _APART) for low, high in ends])

        found = np.nan_to_num(np.mean(self._of_all(information, len(walks)), axis=0))
        values, vectors = np.linalg.eigh(0.5 * (found + found.T))
        return vectors / np.sqrt(np.maximum(values, _LEAST_INFORMATION))

    def _sampled(self, state: SampledState) -> SampledState:
        """Make a step of all chains: the utilities, then the hyperparameters."""
        made, model, root = state.n_warmed + len(state.kept), state.model, state.root
        assert root is not None
        found = self._moved(state, 3, made)
        walks = [walk._replace(utilities=one.utilities) for walk, one in zip(state.walks, found, strict=True)]
        leap, turn = state.leap, state.turn
        warms = made < N_WARM_UP
        if warms:
            leap = _adapted(leap, float(np.mean([one.accepted for one in found])))
        if self.hyperpriors is not None:
            hyperpriors = self.hyperpriors

            def one(number: int) -> tuple[Walk, float]:
                return turned(walks[number], root, state.turn, self._rng(4, number, made), model, hyperpriors)

            both = self._of_all(one, len(walks))
            walks = [walk for walk, _ in both]
            turn = _adapted(turn, float(np.mean([chance for _, chance in both]))) if warms else turn
        self.task.watch.report("warming up" if warms else "sampling", made + 1, float("nan"))
        state = state._replace(walks=tuple(walks), leap=leap, turn=turn)
        if warms:
            return state._replace(n_warmed=state.n_warmed + 1)
        population = np.stack([one.population for one in found])
        return state._replace(kept=(*state.kept, state.walks), population=(*state.population, population))


def _adapted(size: float, accepted: float) -> float:
    """Make leaps longer where the majority of steps are taken, and shorter where few are."""
    return float(np.clip(size * np.exp(_LEARNING * (accepted - _TARGET)), 1e-3, 1.0))


def with_draws(task: Task, study: Study, found: InferredStudy) -> tuple[PeopleDraws | None, str]:
    """Sample a study where it is small enough; also say in words what made the draws, or why there are none."""
    if found.prior.alone:
        return None, "people who have nothing in common are not sampled together"
    d = found.prior.n_utilities
    work = sum(int(np.sum(crowd.people >= 0)) * (d * crowd.rows.shape[2]) ** 3 for crowd in study.crowds)
    if work > _MOST_WORK or len(study.objects.X) > _MOST_OBJECTS:
        return None, "there are too many people or objects to sample their utilities"
    sampling = StudySampling(task, study, found)
    state, verdict = run(sampling)
    if not state.kept:
        return None, verdict.message
    draws = sampling.conclude(state, verdict)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(draws)):
        return None, "the draws of the chains are not finite"
    return draws, f"{SAMPLED}: {verdict.message.removesuffix(': ' + MORE)}"
