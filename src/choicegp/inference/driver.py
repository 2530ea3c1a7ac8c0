"""What every inference is, what it is given and gives, and the loop that runs it.

An inference is an object that holds what does not change.  Everything that changes is in its state, an immutable
record.  Three functions lead from one state to the next and to the result: ``begin`` tries the starts and returns the
first state, ``step`` makes a block of steps, and ``conclude`` makes the posterior of the last state.  A fourth,
``verdict``, ends the steps: it returns why the inference ends at a state, or None while it continues.

A state is all that is known so far.  A `Keeper` keeps it where a killed process finds it again: a fit that continues
from there makes the steps that it would have made, and gives the same result.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from choicegp.compute.progress import Clock, Report
from choicegp.errors import ChoiceGPError
from choicegp.inference.expectation import quasi_normals
from choicegp.inference.posterior import FIRST_JITTER, Factor, Posterior, conclude
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.model.prior import HyperPriors, UtilityPrior

SCORE_POINTS = 1024
"""Points on which a posterior is scored."""
CONCLUSION = "conclusion"
"""Under this name a clock keeps how long it took to make the posterior of the latest fit and to score it."""


class Keeper(Protocol):
    """Keeps what is known so far, by name, where a killed process finds it again."""

    def part(self, name: str, kernel: Any = None) -> "Keeper":
        """Return what keeps a part of the work; ``kernel`` has the structure of the kernels in what is kept."""
        ...

    def recall(self, name: str) -> Any:
        """Return what was kept under a name; None where nothing was."""
        ...

    def keep(self, name: str, known: Any, *, alone: bool = False) -> None:
        """Keep something instead of what had that name or, ``alone``, instead of all that this part has kept."""
        ...

    def forget(self) -> None:
        """Forget all that this part and its own parts have kept."""
        ...


class _Nothing:
    """Keeps nothing."""

    def part(self, name: str, kernel: Any = None) -> "_Nothing":
        return self

    def recall(self, name: str) -> Any:
        return None

    def keep(self, name: str, known: Any, *, alone: bool = False) -> None:
        return

    def forget(self) -> None:
        return


NOTHING: Keeper = _Nothing()
"""The keeper of a fit without a checkpoint."""


class Watch(NamedTuple):
    """What an inference looks at while it runs: the clock, the function that it reports to, and what keeps states."""

    clock: Clock
    listener: Report | None = None
    keeper: Keeper = NOTHING

    def part(self, name: str, kernel: Any) -> "Watch":
        """Return the watch of an inference that is one of several; ``kernel`` is as in `Keeper.part`."""
        return self._replace(keeper=self.keeper.part(name, kernel))

    def report(self, phase: str, step: int, value: float) -> None:
        """Report the phase, the number of steps made and the bound."""
        if self.listener is not None:
            self.listener(phase, step, value)

    @property
    def is_up(self) -> bool:
        """Whether the time limit has passed."""
        return self.clock.is_up

    def is_up_in(self, seconds: float) -> bool:
        """Whether the time limit will have passed after some seconds."""
        return self.clock.is_up_in(seconds)

    @property
    def out_of_time(self) -> str:
        """Say that the time limit ended a fit."""
        return f"the time limit of {self.clock.limit:g} s"

    def ended(self, verdict: "Verdict") -> bool:
        """Whether the time limit is the reason of a verdict, before it has passed: what follows takes time too."""
        return self.clock.limit is not None and verdict.message == self.out_of_time


class Learning(NamedTuple):
    """What is learned beside the utilities; hashable, part of compiled programs."""

    hyperpriors: HyperPriors | None
    learn_lapse: bool = False
    learn_prior: bool = True


class Task(NamedTuple):
    """What an inference at the shown objects is given.

    Attributes
    ----------
    prior : UtilityPrior
        Where the hyperparameters start.
    problem : Problem
        The shown objects, and the sets in batches of one size.
    learning : Learning
        What is learned beside the utilities.
    watch : Watch
        The time limit, and what shows progress.
    n_starts : int
        Number of starts to compare.
    max_iter : int
        Maximum number of steps of the start that continues.
    tol : float
        Converged when a few steps gain less than this many nats, for each 100 nats of the bound.
    lapse : float
        The lapse rate, or where it starts when it is learned.
    seed : int
    n_jobs : int
        Threads that run starts in parallel.
    points : tuple of ndarray or None
        What `score_points` gives, where it is at hand.

    Examples
    --------
    What `Method.inference` of an inference of one's own is given. This one looks at it and goes no further:

    >>> from choicegp import ChoiceGP, ChoiceGPError, datasets
    >>> from choicegp.inferences import Method
    >>> class Look(Method):
    ...     step, max_iter = "a look", 9
    ...     def inference(self, task, before):
    ...         print(task.prior.n_utilities, "utilities,", task.problem.n_sets, "sets,", task.max_iter, "steps")
    ...         raise ChoiceGPError("this is an example")
    >>> try:
    ...     ChoiceGP(2, inference=Look(), object_effects=False).fit(datasets.sincos(n_objects=12, n_sets=8).data)
    ... except ChoiceGPError as error:
    ...     print(error)
    2 utilities, 8 sets, 9 steps
    this is an example
    """

    prior: UtilityPrior
    problem: Problem
    learning: Learning
    watch: Watch
    n_starts: int
    max_iter: int
    tol: float = 0.02
    lapse: float = 0.0
    seed: int = 0
    n_jobs: int = 1
    points: tuple[np.ndarray, ...] | None = None

    @property
    def rate(self) -> Any:
        """The lapse rate as an array; None where nobody lapses."""
        return np.asarray(self.lapse, float) if self.lapse > 0 or self.learning.learn_lapse else None


def score_points(problem: Problem, n_utilities: int, seed: int) -> tuple[np.ndarray, ...]:
    """Draw the points on which the posterior is scored; no inference sees them before."""
    return quasi_normals(problem, n_utilities, SCORE_POINTS, seed + 2**20)


class Verdict(NamedTuple):
    """Why an inference ended.

    Attributes
    ----------
    status : {"converged", "stopped", "failed"}
        "stopped": at a limit.
    message : str
        The reason in words.

    Examples
    --------
    >>> from choicegp.inferences import Verdict
    >>> Verdict("stopped", "the limit of 300 steps").status
    'stopped'
    """

    status: str
    message: str


class Inferred(NamedTuple):
    """What an inference gives.

    Attributes
    ----------
    posterior : Posterior
    elbo : float
        Evidence lower bound in nats, scored on points that the inference has not seen, without hyperpriors.
    status, message : str
        As in `Verdict`.
    n_iter : int
        Steps of the start that continued, annealing included.
    trace : ndarray (n_iter,)
        ELBO at the beginning of each step, on the inference's own few points; tempered while annealing.
    n_annealing : int
        How many of the first steps were annealing.
    notes : tuple of str
        What a careful reader may want to know.
    factor : Factor or None
    sites : Sites or None
        What makes the posterior, at all objects of the problem, padding included; None where there are no sites.
    out_of_time : bool
        Whether the time limit had passed when it stopped.

    Examples
    --------
    What ``conclude`` of an inference returns, mostly by `inferred_from_sites`. This inference learns nothing: without
    sites the posterior is the prior.

    >>> import numpy as np
    >>> from choicegp import ChoiceGP, datasets
    >>> from choicegp.inferences import Method, Sites, Verdict, covariance_at, factorise_on_host, inferred_from_sites
    >>> class Nothing(Method):
    ...     step, max_iter = "none", 0
    ...     def inference(self, task, before):
    ...         return Unmoved(task)
    >>> class Unmoved:
    ...     def __init__(self, task):
    ...         self.task = task
    ...     def begin(self):
    ...         return factorise_on_host(np.asarray(covariance_at(self.task.prior, self.task.problem)))
    ...     def verdict(self, factor):
    ...         return Verdict("converged", "nothing was looked at")
    ...     def conclude(self, factor, verdict):
    ...         sites = Sites(np.zeros(factor.root.shape), np.zeros(factor.root.shape[:2]))
    ...         return inferred_from_sites(self.task, self.task.prior, factor, sites, None, verdict, np.zeros(0))
    >>> data = datasets.sincos(n_objects=12, n_sets=8).data
    >>> model = ChoiceGP(2, inference=Nothing(), object_effects=False).fit(data)
    >>> model.fit_result_.message, np.abs(model.utilities(data).mean).max().item()
    ('nothing was looked at', 0.0)
    """

    posterior: Posterior
    elbo: float
    status: str
    message: str
    n_iter: int
    trace: np.ndarray
    n_annealing: int = 0
    notes: tuple[str, ...] = ()
    factor: Factor | None = None
    sites: Sites | None = None
    out_of_time: bool = False

    @property
    def prior(self) -> UtilityPrior:
        """The prior with its learned hyperparameters."""
        return self.posterior.prior


class Inference(Protocol):
    """The four functions of every inference; ``state`` is a record of its own."""

    def begin(self) -> Any:
        """Return the first state: the best of several starts, where there are several."""
        ...

    def step(self, state: Any) -> Any:
        """Make a block of steps, and report it."""
        ...

    def verdict(self, state: Any) -> Verdict | None:
        """Return why the inference ends at this state; None while it continues."""
        ...

    def conclude(self, state: Any, verdict: Verdict) -> Any:
        """Make the posterior of the last state, an `Inferred`; or the part of a model that was learned."""
        ...


def run(inference: Inference, keeper: Keeper = NOTHING) -> tuple[Any, Verdict]:
    """Make blocks of steps, from the state that was kept, until the inference ends; return its last state and why."""
    state = keeper.recall("state")
    if state is None:
        state = inference.begin()
    while True:
        keeper.keep("state", state, alone=True)
        verdict = inference.verdict(state)
        if verdict is not None:
            return state, verdict
        state = inference.step(state)


def infer(inference: Inference, watch: Watch | None = None) -> Inferred:
    """Run an inference to its end; one that failed is a clear error.  ``watch`` is the one that it looks at."""
    state, verdict = run(inference, NOTHING if watch is None else watch.keeper)
    out_of_time = verdict.status == "stopped" and watch is not None and (watch.is_up or watch.ended(verdict))
    start = 0.0 if watch is None else watch.clock.seconds
    found: Inferred = inference.conclude(state, verdict)._replace(out_of_time=out_of_time)
    if watch is not None:
        watch.clock.took[CONCLUSION] = watch.clock.seconds - start
    if found.status == "failed" or not np.isfinite(found.elbo):
        raise ChoiceGPError(
            f"the fit failed: {found.message}. Try standardize=True, another kernel, or hyperpriors=HyperPriors()"
        )
    return found


def inferred_from_sites(
    task: Task, prior: UtilityPrior, factor: Factor, sites: Sites, lapse: Any, verdict: Verdict, trace: np.ndarray,
    n_annealing: int = 0,
) -> Inferred:  # fmt: skip
    """Conclude an inference whose posterior is made by its prior and its sites.

    Parameters
    ----------
    task : Task
    prior : UtilityPrior
        With the hyperparameters that were learned.
    factor : Factor
        Of the prior's covariance at the objects of the problem, from `factorise_on_host`.
    sites : Sites
    lapse : float array or None
        The lapse rate; None where nobody lapses.
    verdict : Verdict
    trace : ndarray (n_iter,)
        The bound at each step.
    n_annealing : int
        How many of the first steps were annealing.

    Returns
    -------
    Inferred
        With the posterior, and its bound on points that the inference has not seen.

    Examples
    --------
    `Inferred` has an inference that runs. It ends with::

        return inferred_from_sites(task, task.prior, factor, sites, task.rate, verdict, trace)
    """
    points = task.points or score_points(task.problem, prior.n_utilities, task.seed)
    posterior, elbo = conclude(prior, task.problem, factor, sites, points, lapse, task.seed)
    jitter = float(np.max(np.asarray(factor.jitter)))
    notes: tuple[str, ...] = ()
    if jitter > 10 * FIRST_JITTER:
        notes = (f"the prior covariance needed a jitter of {jitter:.0e} of its variance (near-identical objects)",)
    return Inferred(posterior, elbo, *verdict, len(trace), trace, n_annealing, notes, factor, sites)
