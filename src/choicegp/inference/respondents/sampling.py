"""Honest draws for many people: their utilities, the population's and the hyperparameters, all sampled together.

A Gaussian posterior at the best hyperparameters is too narrow, and its utilities are too small: the bound prefers small
variances.  Where a study is small enough, chains (`choicegp.inference.respondents.chain`) start around the fit, are
judged by what they say about the population, and become draws with which predictions are made.
"""

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
from choicegp.inference.respondents.chain import (
    BLOCK,
    Position,
    StudyBlock,
    StudyChain,
    StudyChainModel,
    advance_study,
    first_study_chain,
    whitened,
)
from choicegp.inference.respondents.course import InferredStudy
from choicegp.inference.respondents.posterior import PeopleDraws
from choicegp.inference.respondents.study import Crowd, Study
from choicegp.inference.respondents.whitening import Coordinates, Sampled, WhitenedCrowd, whiten_study
from choicegp.inference.sites import Sites
from choicegp.model.prior import HyperPriors, log_density
from choicegp.model.respondents import StudyPrior

N_CHAINS = 2
N_WARM_UP = 10
"""Blocks of steps before draws are kept."""
LOOKS = (16, 32)
"""Numbers of blocks after which chains may have mixed; after the last of them they end."""
N_SETTINGS = 64
"""Draws that predictions use, each with hyperparameters of its own; a power of two."""
_MOST_WORK = 4e7  # cubes of the numbers of utilities of each person, in all: 40 people with 10 sets of 4 have 9e6
_MOST_OBJECTS = 400  # of which all tables are made
SAMPLED = "NUTS over the utilities of all people and hyperparameters"


def sampled_of(study: Study, sites: tuple[Sites, ...], lapse: Any) -> Sampled:
    """Return what is sampled, without the padding of people."""
    return Sampled(
        study.objects, study.points, tuple(map(_group, study.crowds, sites)),
        None if lapse is None else np.asarray(lapse, float),  # type: ignore[arg-type]
    )  # fmt: skip


def _group(crowd: Crowd, sites: Sites) -> WhitenedCrowd:
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

    return WhitenedCrowd(flat(crowd.rows), tuple(map(of_batch, crowd.sets)), Sites(*map(flat, sites)))  # type: ignore[arg-type]


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
    """The chains, the blocks that they have behind them, and what is kept of them."""

    chains: tuple[StudyChain, ...]
    n_warmed: int = 0
    blocks: tuple[tuple[StudyBlock, ...], ...] = ()  # one entry per block, of all chains
    ends: tuple[tuple[Position, ...], ...] = ()  # where the chains stood after each of these blocks


class StudySampling:
    """Sample a study, from the place where its fit has ended."""

    def __init__(self, task: Task, study: Study, found: InferredStudy) -> None:
        self.task = task
        self.hyperpriors = task.learning.hyperpriors if task.learning.learn_prior else None
        sampled = sampled_of(study, found.sites, found.lapse)
        self.model = StudyChainModel(hyperparameters(found.prior, sampled, self.hyperpriors), sampled)
        d, n_learned = found.prior.n_utilities, self.model.approximation.n_learned
        people = tuple(np.zeros((len(group.rows), d * group.rows.shape[1])) for group in sampled.groups)
        w: Any = Coordinates(np.zeros(len(found.population.mean)), people)  # type: ignore[arg-type]
        self.like = Position(w, np.zeros(n_learned))  # type: ignore[arg-type]

    def begin(self) -> SampledState:
        """Draw the first positions."""
        self.task.watch.report("warming up", 0, float("nan"))
        seeds = [[self.task.seed, 41, number] for number in range(N_CHAINS)]
        return SampledState(tuple(first_study_chain(np.random.default_rng(seed), self.like) for seed in seeds))

    def step(self, state: SampledState) -> SampledState:
        """Make a block of steps of all chains: of the warm-up, as long as that lasts, or of draws."""
        warms = state.n_warmed < N_WARM_UP
        made = BLOCK * (state.n_warmed + len(state.blocks))
        chains, blocks = self._advanced(state.chains, made, adapt=warms)
        self.task.watch.report("warming up" if warms else "sampling", made + BLOCK, float("nan"))
        if warms:
            return state._replace(chains=chains, n_warmed=state.n_warmed + 1)
        ends = (*state.ends, tuple(chain.position for chain in chains))
        return SampledState(chains, state.n_warmed, (*state.blocks, blocks), ends)

    def _advanced(
        self, chains: tuple[StudyChain, ...], first: int, *, adapt: bool
    ) -> tuple[tuple[StudyChain, ...], tuple[StudyBlock, ...]]:
        def one(number: int) -> tuple[StudyChain, StudyBlock]:
            # A seed may be larger than JAX's keys take.
            seed = int(np.random.SeedSequence(self.task.seed).generate_state(1)[0])
            key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), number))
            where = np.asarray(first, np.int32), np.asarray(adapt)
            return jax.tree.map(np.asarray, advance_study(chains[number], key, *where, self.model, self.hyperpriors))

        made = in_threads(one, range(len(chains)), min(self.task.n_jobs, N_CHAINS))
        return tuple(chain for chain, _ in made), tuple(block for _, block in made)

    def verdict(self, state: SampledState) -> Verdict | None:
        """Stop when the chains have mixed, when all draws are made, or at the time limit."""
        n_blocks, is_up = len(state.blocks), self.task.watch.is_up
        if not is_up and n_blocks not in LOOKS:
            return None
        if not n_blocks:
            return Verdict("stopped", self.task.watch.out_of_time)
        t = len(self.model.sampled.objects.X)
        utilities = np.array([
            np.concatenate([block.population for block in chain]) for chain in zip(*state.blocks, strict=True)
        ])  # fmt: skip
        n_divergent = sum(int(block.divergent) for blocks in state.blocks for block in blocks)
        verdict = judged(utilities.reshape(*utilities.shape[:2], -1, t), n_divergent, not is_up)
        return verdict if is_up or n_blocks >= LOOKS[-1] or verdict.status == "converged" else None

    def conclude(self, state: SampledState, verdict: Verdict) -> PeopleDraws:
        """Turn what chains have visited into draws, evenly from all of them."""
        n_blocks = len(state.blocks)
        n = min(N_SETTINGS // N_CHAINS, 1 << (n_blocks.bit_length() - 1))
        kept = [
            jax.tree.map(np.asarray, _drawn(position, self.model))
            for place in np.arange(1, n + 1) * n_blocks // n - 1
            for position in state.ends[place]
        ]
        prior, population, people = jax.tree.map(lambda *parts: np.stack(parts), *kept)
        by_person = tuple(np.swapaxes(np.asarray(part, np.float32), 0, 1)[:, :, None] for part in people)
        return PeopleDraws(prior, np.asarray(population, np.float32)[:, None], by_person)


@program
def _drawn(position: Position, model: StudyChainModel) -> tuple[StudyPrior, Array, tuple[Array, ...]]:
    """Return the prior, v (p M,), and what is people's own at their objects, (R, dn) of each group."""
    population, people = whitened(position.hyper, model).parts(position.utilities, model.sampled)
    return model.approximation.prior_at(position.hyper), population, people


def with_draws(task: Task, study: Study, found: InferredStudy) -> tuple[PeopleDraws | None, str]:
    """Sample a study where it is small enough; also say in words what made the draws, or why there are none."""
    d = found.prior.n_utilities
    work = sum(int(np.sum(crowd.people >= 0)) * (d * crowd.rows.shape[2]) ** 3 for crowd in study.crowds)
    if work > _MOST_WORK or len(study.objects.X) > _MOST_OBJECTS:
        return None, "there are too many people or objects to sample their utilities"
    sampling = StudySampling(task, study, found)
    state, verdict = run(sampling)
    if not state.blocks:
        return None, verdict.message
    draws = sampling.conclude(state, verdict)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(draws)):
        return None, "the draws of the chains are not finite"
    return draws, f"{SAMPLED}: {verdict.message.removesuffix(': ' + MORE)}"
