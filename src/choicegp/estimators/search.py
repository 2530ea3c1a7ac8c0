"""The search for the number of utilities: models of 1, 2, ... of them, each from several kinds of starts."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from choicegp.compute.devices import computing
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.estimators.choice_gp import ChoiceGP
from choicegp.estimators.leave_one_out import leave_one_out, prepare_to_leave_out
from choicegp.fitting.fit import fit_posterior
from choicegp.fitting.options import FitOptions
from choicegp.selection.compare import differences_to_best
from choicegp.selection.loo import LooResult

PATIENCE = 2  # steps in a row that are clearly worse than the best end the search


class Step(NamedTuple):
    """A number of utilities: its model, where that started, its leave-one-out score and the time all this took."""

    model: ChoiceGP
    start: str
    loo: LooResult | None
    seconds: float

    @property
    def result(self) -> LooResult:
        """How well the model predicts sets that it has not seen."""
        assert self.loo is not None
        return self.loo


def judged_steps(
    data: ChoiceData, most: int, options: dict[str, Any], n_jobs: int, say: Callable[[int], None]
) -> dict[int, Step]:
    """Go up from one utility until two numbers in a row are clearly worse than the best, by leave-one-out.

    Parameters
    ----------
    data : ChoiceData
    most : int
        Where the search ends at the latest.
    options : dict
        Of `ChoiceGP`.
    n_jobs : int
        Fits that run side by side.
    say : callable
        Is told each number before its turn.
    """
    steps: dict[int, Step] = {}
    annealed = _annealed_fits(options, data, most, n_jobs)
    for d in range(1, most + 1):
        say(d)
        steps[d] = _scored(_grown(next(annealed), steps.get(d - 1), data), n_jobs)
        if d > 2 and steps[d].result.elpd > steps[d - 1].result.elpd:
            # Perhaps one utility less would do as well, and its fit was left in a worse optimum.
            steps[d - 1] = _scored(_again(steps[d - 1], steps[d], "shrunk", data), n_jobs)
        if is_over(steps):
            break
    return steps


def models_of(data: ChoiceData, numbers: Collection[int], options: dict[str, Any]) -> dict[int, ChoiceGP]:
    """Find the models of some numbers as the search does, from starts of the same kinds; none is judged."""
    steps: dict[int, Step] = {}
    for d in range(1, max(numbers) + 1):
        steps[d] = _grown(_annealed(d, options, data), steps.get(d - 1), data)
        if d > 2 and d - 1 in numbers:
            steps[d - 1] = _again(steps[d - 1], steps[d], "shrunk", data)
    return {d: steps[d].model for d in numbers}


def is_over(steps: dict[int, Step]) -> bool:
    """Whether the last steps are all clearly worse than the best."""
    differences = differences_to_best({d: step.result for d, step in steps.items()})
    last = [differences[d] for d in sorted(steps)[-PATIENCE:]]
    return len(steps) > PATIENCE and all(-difference.elpd > difference.se for difference in last)


def _annealed_fits(options: dict[str, Any], data: ChoiceData, most: int, n_jobs: int) -> Iterator[ChoiceGP]:
    """Yield the models of 1, 2, ... utilities, of which ``n_jobs`` at a time are fitted side by side."""
    from joblib import Parallel, delayed

    # Threads share the compiled programs, and compiling and fitting both let other threads run.  Nothing is begun
    # that is not waited for: a fit left behind would go on in the background.
    with Parallel(n_jobs, prefer="threads") as run:
        for first in range(1, most + 1, n_jobs):
            numbers = range(first, min(first + n_jobs, most + 1))
            yield from run(delayed(_annealed)(d, options, data, to_be_left_out=True) for d in numbers)


def _annealed(n_utilities: int, options: dict[str, Any], data: ChoiceData, to_be_left_out: bool = False) -> ChoiceGP:
    model = ChoiceGP(n_utilities, **options)
    if to_be_left_out and data.has_choices:
        with computing(model.device):
            prepare_to_leave_out(data, FitOptions.validated(model.get_params()))
    return model.fit(data)


def _grown(model: ChoiceGP, before: Step | None, data: ChoiceData) -> Step:
    """Where there is a smaller model, fit once more from that and keep the better fit."""
    step = Step(model, "annealed", None, model.fit_result_.seconds)
    return step if before is None else _again(step, before, "grown", data)


def _again(step: Step, neighbour: Step, start: str, data: ChoiceData) -> Step:
    """Fit once more from a model with one utility less or more, and keep the better fit."""
    params = step.model.get_params(deep=False)
    checked = FitOptions.validated(params).decided(data)
    if checked.inference != "dense":
        return step
    with computing(step.model.device):
        fitted = fit_posterior(data, checked, None, neighbour.model.posterior_)
    step = step._replace(seconds=step.seconds + fitted.result.seconds)
    if fitted.elbo <= step.model.elbo_:
        return step
    return step._replace(model=ChoiceGP(**params)._keep(fitted), start=start, loo=None)


def _scored(step: Step, n_jobs: int) -> Step:
    if step.loo is not None:
        return step
    clock = Clock(None)
    loo = leave_one_out(step.model, "cavity", None, 0, n_jobs)
    return step._replace(loo=loo, seconds=step.seconds + clock.seconds)
