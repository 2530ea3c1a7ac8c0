"""What makes intervals honest: draws of the utilities under hyperparameters that are uncertain themselves.

A Gaussian posterior at the best hyperparameters is too narrow twice over: hyperparameters are uncertain, and the
Gaussian is narrower than what it approximates.  Where the problem is small enough, utilities and hyperparameters are
sampled; where it is larger, the utilities at settings of the hyperparameters drawn around the best ones; beyond, the
Gaussian posterior is mixed over such settings.

Answers without errors to large sets say so much that the posterior has many modes: where a group of objects dominates
or is dominated by all others, its objects may exchange their utilities, and the answers stay as they are.  No chain
goes from one mode to another.  There, further dense fits start from populations (`choicegp.inference.populations`), and
chains begin at the best.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from choicegp.compute.devices import in_threads, on_the_cpu
from choicegp.inference.chain import BLOCK
from choicegp.inference.coordinates import log_likelihood
from choicegp.inference.dense import DenseInference
from choicegp.inference.driver import Inferred, Task, Watch, run, score_points
from choicegp.inference.mcmc import (
    MORE,
    MOST_SETTINGS,
    N_CHAINS,
    Kept,
    MCMCInference,
    duals_at,
    posterior_of_settings,
    programs_of_chains,
)
from choicegp.inference.starts import covariance_at

MOST_SAMPLED = 1500
"""Utilities of shown objects, d times t, up to which they are sampled."""
_MOST_BLOCKS, _FEWEST_BLOCKS = 256, 8
# Seconds that the moves of a chain may take on one core, and what a move takes (measured; the overhead is in objects),
# by which the number of steps is chosen: by a formula and not by a clock, so that fits can be repeated.
_SECONDS, _SECONDS_OF_A_MOVE, _POWER, _OVERHEAD = 4.0, 3e-7, 1.6, 30
# The same with the likelihood, which large sets make costly: what a step takes for each pair of objects of a set and
# each utility, between the 0.6e-6 of noisy and the 1.4e-6 of noise-free answers that were measured.
_SECONDS_IN_ALL, _SECONDS_OF_A_PAIR = 10.0, 1e-6
_TARGET = 0.8
_N_DRAWS = 512  # of Gaussian posteriors
_MOST_NUMBERS = 3e7  # in the inverses of prior covariances, of all settings together
_LARGE_SET = 10  # objects: with more, answers without errors say nearly everything
_SAYS_ALL = -0.5  # log-likelihood of a set at the best utilities, above which answers count as free of errors
# Other fits are sought then, each from what is left of a population.
_N_RIVALS, _N_SLOTS, _STEPS_OF_A_RIVAL, _MOST_RIVAL_STEPS = 8, 8, 100, 150
_SECONDS_OF_RIVALS = 40.0  # on one core: where sets are many or large there are fewer rivals
_NARROW = 0.02  # of the prior's covariance: where a rival starts
# Nats of the bound that make a fit e times as probable: a bound is below the evidence of its mode by some nats, by more
# at one mode than at another, and fits that had ended gained up to five more when they were begun again.
_NATS = 5.0
_SAME = 0.05  # nats between the bounds of fits that have ended at one mode
SAMPLED = "NUTS over utilities and hyperparameters"
MANY_MODES = (
    "nearly error-free answers to large sets have several explanations, and intervals know the best ones that were "
    "found: signs of differences and probabilities of new objects may be surer than they should be. Fits with other "
    "values of random_state show how far explanations differ"
)


def n_steps(inference: MCMCInference) -> tuple[int, int]:
    """Return how many draws each chain makes at most, and how many steps before: what there is time for."""
    problem, prior = inference.task.problem, inference.before.posterior.prior
    n = problem.n_objects + _OVERHEAD
    # The utilities' own moves take about the time of one of hyperparameters, and so do new coordinates.
    moves = _SECONDS_OF_A_MOVE * prior.n_parts * n**_POWER * (inference.n_moves + 2)
    n_pairs = sum(len(batch.rows) * batch.rows.size for batch in problem.batches)
    likelihood = _SECONDS_OF_A_PAIR * prior.n_utilities * n_pairs
    share = N_CHAINS / inference.n_chains
    n_blocks = int(share * min(_SECONDS / moves, _SECONDS_IN_ALL / (moves + likelihood)) / BLOCK)
    n_warm_up = int(np.clip(n_blocks // 4, _FEWEST_BLOCKS // 2, 2 * _FEWEST_BLOCKS))
    fewest = int(share * _FEWEST_BLOCKS)
    return int(np.clip(n_blocks - n_warm_up, fewest, _MOST_BLOCKS)) * BLOCK, n_warm_up * BLOCK


def with_intervals(task: Task, before: Inferred) -> tuple[Inferred, str]:
    """Give a dense fit honest draws; also say in words what made them.

    With a time limit, the dense fit comes first; chains that it ends while they warm up are not used.
    """
    if not may_have_modes(task, before):
        return _made(task, [before])
    found, words = _made(task, _modes(task, before))
    return found._replace(notes=(*found.notes, MANY_MODES)), words


def programs_of_intervals(task: Task) -> Iterator[Callable[[], None]]:
    """Yield what compiles the programs by which the utilities of a task of this shape are sampled, if they are."""
    if task.prior.n_utilities * task.problem.n_objects <= MOST_SAMPLED:
        yield from map(on_the_cpu(), programs_of_chains(task))


def _made(task: Task, modes: list[Inferred]) -> tuple[Inferred, str]:
    """Make draws around some fits, of which the first is the best."""
    problem, before = task.problem, modes[0]
    if before.posterior.n_utilities * problem.n_objects > MOST_SAMPLED:
        return _mixed(task, before)
    with on_the_cpu():
        inference = MCMCInference(task, before, 0, _TARGET, until_mixed=True, modes=modes)
        n_draws, n_warm_up = n_steps(inference)
        inference = inference.of_length(n_draws, n_warm_up)
        state, verdict = run(inference, task.watch.keeper)
        if state.n_warmed >= n_warm_up:
            found = inference.conclude(state, verdict)
    if state.n_warmed < n_warm_up:
        return _mixed(task, before)
    sampled = SAMPLED if inference.n_moves else "NUTS over utilities"
    if inference.redraws:
        sampled += ", mixed over settings of the hyperparameters"
    n_fits = len({id(one) for one in modes})
    if n_fits > 1:
        sampled += f", from {n_fits} fits"
    words = f"{sampled}: {found.message.removesuffix(': ' + MORE)}"
    return before._replace(posterior=found.posterior), words


def _modes(task: Task, before: Inferred) -> list[Inferred]:
    """Return the fits around which chains start, the best first, each as often as its bound says: often ``before``."""
    if task.watch.clock.limit is not None or np.size(before.posterior.mean) > MOST_SAMPLED:
        return [before]
    # What only such answers need takes time to import.
    from choicegp.inference.populations import seconds_of_population

    clock = task.watch.clock.of_another_thread()
    own = Task(
        before.prior, task.problem, task.learning, Watch(clock), 1, _MOST_RIVAL_STEPS, seed=task.seed,
        n_jobs=task.n_jobs, points=score_points(task.problem, before.posterior.n_utilities, task.seed),
    )  # fmt: skip
    seconds = seconds_of_population(before.posterior.n_utilities, task.problem)
    seconds += _STEPS_OF_A_RIVAL * DenseInference(own).work_of_step(None)  # type: ignore[arg-type]  # at any state
    n_rivals = min(_N_RIVALS, int(_SECONDS_OF_RIVALS / seconds))
    if n_rivals == 0:
        return [before]
    task.watch.report("seeking other modes", 0, before.elbo)
    made = in_threads(partial(_rival, own), range(n_rivals), task.n_jobs, clock.end)
    rivals = [one for one in made if one is not None]
    fits: list[Inferred] = []
    for one in sorted([before, *rivals], key=lambda one: -one.elbo):
        if not fits or one.elbo < fits[-1].elbo - _SAME:
            fits.append(one)
    shares = np.cumsum(np.exp([(one.elbo - fits[0].elbo) / _NATS for one in fits]))
    places = np.searchsorted(shares, shares[-1] * (np.arange(_N_SLOTS) + 0.5) / _N_SLOTS)
    return [fits[place] for place in places] if len(set(places)) > 1 else fits[:1]


def _rival(task: Task, number: int) -> Inferred | None:
    """Return a fit that starts at what is left of a population; nothing where it fails."""
    from choicegp.inference.populations import population

    with on_the_cpu():
        found = population(task.prior, task.problem, np.random.default_rng([task.seed, 10, number]))
    if not np.isfinite(found.log_evidence):
        return None
    covariance = np.asarray(covariance_at(task.prior, task.problem))
    own = covariance[task.prior.shared :] + (covariance[0] if task.prior.shared else 0.0)
    inference = DenseInference(task, (found.utilities, _NARROW * own))  # type: ignore[arg-type]
    state, verdict = run(inference)
    if verdict.status == "failed":
        return None
    end = inference.conclude(state, verdict)
    return end if np.isfinite(end.elbo) else None


def may_have_modes(task: Task, before: Inferred) -> bool:
    """Whether sets are large and answered without errors."""
    problem, posterior = task.problem, before.posterior
    largest = max((len(batch.rows) for batch in problem.batches), default=0)
    if posterior.n_utilities == 1 or largest <= _LARGE_SET or posterior.lapse is not None:
        return False
    mean = np.pad(posterior.mean, ((0, 0), (0, len(problem.valid) - problem.n_objects)))
    answered = [batch for batch in problem.batches if np.any(np.asarray(batch.sets) >= 0)]
    weight = sum(float(np.sum(np.asarray(batch.weight)[np.asarray(batch.sets) >= 0])) for batch in answered)
    said = float(log_likelihood(mean, problem._replace(batches=tuple(answered)), None))
    return weight > 0.0 and said > _SAYS_ALL * weight


def _mixed(task: Task, before: Inferred) -> tuple[Inferred, str]:
    """Mix the Gaussian posterior over settings of the hyperparameters."""
    problem, posterior = task.problem, before.posterior
    sampler = MCMCInference(task, before, 0, _TARGET)
    p, t = posterior.prior.n_parts, len(problem.valid)
    few = int(np.clip(_MOST_NUMBERS / (p * t**2), 4, MOST_SETTINGS))
    n_settings = 1 << (few.bit_length() - 1)
    rng = np.random.default_rng([task.seed, 8])
    settings: list[Kept] = []
    for _ in range(n_settings):
        hyper = rng.normal(size=sampler.model.approximation.n_learned)
        half = rng.normal(size=(_N_DRAWS // n_settings // 2, p, t))
        settings.append(duals_at(hyper, np.concatenate([half, -half]), sampler.model))
    words = f"Gaussian utilities, mixed over {n_settings} settings of the hyperparameters"
    if not sampler.model.approximation.n_learned:
        words = "Gaussian utilities at the hyperparameters of the fit"
    return before._replace(posterior=posterior_of_settings(posterior, settings)), words
