"""How many utilities: a forward search over their number, judged by leaving sets out."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.validation import whole_number
from choicegp.errors import ChoiceGPError
from choicegp.estimators.choice_gp import ChoiceGP
from choicegp.estimators.fitting import MORE_STARTS, FitOptions, fit_posterior, jobs_option
from choicegp.estimators.leave_one_out import leave_one_out
from choicegp.estimators.runtime import computing, is_watched, linear_algebra_for, n_threads, on_terminal
from choicegp.inference.fit import Clock
from choicegp.selection.alike import alike_notes
from choicegp.selection.comparison import Difference, differences_to_best, smallest_within_one_se
from choicegp.selection.loo import LooResult

if TYPE_CHECKING:
    import pandas as pd

_MODEL = TypeVar("_MODEL", bound=ChoiceGP)
_FEW_OBJECTS = 500  # shown; up to there more starts are tried than in a single fit
PATIENCE = 2  # steps in a row that are clearly worse than the best end the search


class SelectionResult(NamedTuple):
    """Which number of utilities was chosen, and from what.

    Attributes
    ----------
    n_utilities : int
        The smallest number whose elpd is within one paired standard error of the best.
    table : DataFrame
        Indexed by the number of utilities: ``elpd``, ``se``, ``difference`` to the best with its paired standard
        error ``difference_se``, ``n_effective`` parameters, ``doubtful`` sets, ``refits`` made, ``elbo``,
        ``start`` ("annealed", or "grown" from the utilities of the row above) and ``seconds``.
    models : dict
        The fitted model of each number.
    reason : str
        Why this number, in words.
    results : dict
        The leave-one-out result of each number.
    """

    n_utilities: int
    table: "pd.DataFrame"
    models: dict[int, ChoiceGP]
    reason: str
    results: dict[int, LooResult]

    @property
    def model(self) -> ChoiceGP:
        """The model with the chosen number of utilities."""
        return self.models[self.n_utilities]


class _Step(NamedTuple):
    model: ChoiceGP
    start: str
    loo: LooResult | None
    seconds: float

    @property
    def result(self) -> LooResult:
        """How well the model predicts sets that it has not seen."""
        assert self.loo is not None
        return self.loo


def select_n_utilities(
    data: ChoiceData,
    max_utilities: int = 5,
    random_state: int = 0,
    *,
    n_jobs: int | None = None,
    progress: bool | str = "auto",
    **options: Any,
) -> SelectionResult:
    """Choose the number of utilities by leave-one-out cross-validation.

    The search goes up from one utility.  Each number is fitted from annealed random starts, and again from the
    utilities of the number before plus a copy of one of them or plus a zero utility; the better bound counts, so
    that a larger model is not left in a worse optimum than a smaller one.  Where the larger one is better, the number
    before is fitted again from its utilities less one of them.  The search ends at ``max_utilities``,
    or after two numbers in a row whose elpd is worse than the best by more than one paired standard error.  The
    smallest number whose elpd is within one paired standard error of the best is chosen.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    max_utilities : int
    random_state : int
    n_jobs : int, optional
        Fits that run side by side, by joblib; -1 for all cores.  By default as in `ChoiceGP`.
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    **options
        Of `ChoiceGP`: kernel, object_effects, lapse and the like.

    Returns
    -------
    SelectionResult

    Examples
    --------
    >>> from choicegp import datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> found = select_n_utilities(data, max_utilities=2, n_restarts=1, max_iter=60)
    >>> found.n_utilities
    2
    """
    if not isinstance(data, ChoiceData):
        raise ChoiceGPError(f"select_n_utilities takes a ChoiceData; got {type(data).__name__}")
    most = whole_number("max_utilities", max_utilities, 1)
    template = _template(options | {"random_state": random_state})
    steps: dict[int, _Step] = {}
    n_shown = len(np.unique(data.flat_shown))
    if template.get("n_restarts") is None and n_shown <= _FEW_OBJECTS:
        # A number of utilities that is left in a worse optimum than another is not compared fairly.
        template["n_restarts"] = MORE_STARTS
    threads = n_threads(jobs_option(n_jobs), n_shown)
    with _progress_bar(progress, most) as say, linear_algebra_for(n_shown):
        annealed = _annealed_fits(template, data, most, threads)
        for d in range(1, most + 1):
            say(d)
            steps[d] = _step(next(annealed), steps.get(d - 1), data, threads)
            if d > 2 and steps[d].result.elpd > steps[d - 1].result.elpd:
                # Perhaps one utility less would do as well, and its fit was left in a worse optimum.
                steps[d - 1] = _again(steps[d - 1], steps[d], "shrunk", data, threads)
            if _is_over(steps):
                break
    return _result(steps, most)


def fit_auto(model: _MODEL, data: ChoiceData, init: object) -> _MODEL:
    """Fit a model with ``n_utilities="auto"``: it becomes the chosen one of the search."""
    if init is not None:
        raise ChoiceGPError("init= goes with a number of utilities, not with n_utilities='auto'")
    options = {name: value for name, value in model.get_params(deep=False).items() if name != "n_utilities"}
    selection = select_n_utilities(data, **options)
    found = {name: value for name, value in vars(selection.model).items() if name.endswith("_")}
    vars(model).update(found, selection_=selection)
    return model


def _template(options: dict[str, Any]) -> dict[str, Any]:
    """Check the options once, before any work."""
    known = set(ChoiceGP._defaults()) - {"n_utilities"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ChoiceGPError(f"select_n_utilities has no option {unknown[0]!r}: it takes those of ChoiceGP")
    checked = FitOptions.validated(ChoiceGP(1, **options).get_params())
    if checked.inference in ("sparse", "joint", "mcmc"):
        raise ChoiceGPError(
            f"the number of utilities is chosen with inference='dense'; fit that number by {checked.inference!r} after"
        )
    # Leave-one-out needs a site for every set.  Bars of fits side by side would overwrite each other.
    inference = "dense" if checked.inference == "auto" else checked.inference
    return options | {"inference": inference, "progress": False}


def _annealed_fits(options: dict[str, Any], data: ChoiceData, most: int, n_jobs: int) -> Iterator[ChoiceGP]:
    """Yield the models of 1, 2, ... utilities, of which ``n_jobs`` at a time are fitted side by side."""
    from joblib import Parallel, delayed

    # Threads share the compiled programs, and compiling and fitting both let other threads run.  Nothing is begun
    # that is not waited for: a fit left behind would go on in the background.
    with Parallel(n_jobs, prefer="threads") as run:
        for first in range(1, most + 1, n_jobs):
            numbers = range(first, min(first + n_jobs, most + 1))
            yield from run(delayed(_annealed)(d, options, data) for d in numbers)


def _annealed(n_utilities: int, options: dict[str, Any], data: ChoiceData) -> ChoiceGP:
    return ChoiceGP(n_utilities, **options).fit(data)


def _step(model: ChoiceGP, before: _Step | None, data: ChoiceData, n_jobs: int) -> _Step:
    """Score a model; where there is a smaller one, fit once more from that and keep the better fit."""
    step = _Step(model, "annealed", None, model.fit_result_.seconds)
    return _scored(step, n_jobs) if before is None else _again(step, before, "grown", data, n_jobs)


def _again(step: _Step, neighbour: _Step, start: str, data: ChoiceData, n_jobs: int) -> _Step:
    """Fit once more from a model with one utility less or more, keep the better fit, and score it."""
    params = step.model.get_params(deep=False)
    checked = FitOptions.validated(params).decided(data)
    if checked.inference == "dense":
        with computing(step.model.device):
            fitted = fit_posterior(data, checked, None, neighbour.model.posterior_)
        step = step._replace(seconds=step.seconds + fitted.result.seconds)
        if fitted.elbo > step.model.elbo_:
            step = step._replace(model=ChoiceGP(**params)._keep(fitted, data), start=start, loo=None)
    return _scored(step, n_jobs)


def _scored(step: _Step, n_jobs: int) -> _Step:
    if step.loo is not None:
        return step
    clock = Clock(None)
    loo = leave_one_out(step.model, "cavity", None, 0, n_jobs)
    return step._replace(loo=loo, seconds=step.seconds + clock.seconds)


def _is_over(steps: dict[int, _Step]) -> bool:
    """Whether the last steps are all clearly worse than the best."""
    differences = differences_to_best({d: step.result for d, step in steps.items()})
    last = [differences[d] for d in sorted(steps)[-PATIENCE:]]
    return len(steps) > PATIENCE and all(-difference.elpd > difference.se for difference in last)


def _result(steps: dict[int, _Step], most: int) -> SelectionResult:
    import pandas as pd

    results = {d: step.result for d, step in steps.items()}
    differences = differences_to_best(results)
    chosen = smallest_within_one_se(results)
    rows = {
        d: {
            "elpd": step.result.elpd,
            "se": step.result.se,
            "difference": differences[d].elpd,
            "difference_se": differences[d].se,
            "n_effective": step.result.n_effective,
            "doubtful": len(step.result.doubtful),
            "refits": step.result.diagnostics.n_refits,  # type: ignore[union-attr]
            "elbo": step.model.elbo_,
            "start": step.start,
            "seconds": step.seconds,
        }
        for d, step in steps.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("n_utilities")
    models = {d: step.model for d, step in steps.items()}
    return SelectionResult(chosen, table, models, _reason(steps, differences, chosen, most), results)


def _reason(steps: dict[int, _Step], differences: dict[int, Difference], chosen: int, most: int) -> str:
    best = max(steps, key=lambda d: steps[d].result.elpd)

    def scored(d: int) -> str:
        return f"{d} ({steps[d].result.elpd:.1f})"

    if chosen == best:
        text = [f"{_utilities(chosen)}: the best leave-one-out score, {steps[best].result.elpd:.1f}"]
        if chosen > 1:
            nearest = differences[chosen - 1]
            text.append(
                f"one utility less is worse by {-nearest.elpd:.1f}, more than the standard error "
                f"{nearest.se:.1f} of that difference"
            )
    else:
        gain = differences[chosen]
        text = [
            f"{_utilities(chosen)}: the smallest number within one standard error of the best, {scored(best)}; "
            f"the difference is {-gain.elpd:.1f} with standard error {gain.se:.1f}"
        ]
    last = max(steps)
    if last < most:
        text.append(f"{last - 1} and {last} are clearly worse than the best, so more were not tried")
    elif chosen == most > 1:
        text.append(f"more than {most} were not tried: raise max_utilities")
    text += alike_notes(np.asarray(steps[chosen].model.posterior_.mean))
    text += [*steps[chosen].result.notes]
    doubtful = [d for d, step in steps.items() if len(step.result.doubtful)]
    if doubtful:
        text.append("scores with " + ", ".join(map(_utilities, doubtful)) + " rest on sets that are in doubt")
    return "; ".join(text) + "."


def _utilities(n: int) -> str:
    return "1 utility" if n == 1 else f"{n} utilities"


@contextlib.contextmanager
def _progress_bar(progress: bool | str, most: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told which number of utilities is at work."""
    if not is_watched(progress):
        yield lambda d: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal()) as bar:
        task = bar.add_task("compiling", total=most)
        yield lambda d: bar.update(task, description=f"{_utilities(d)} of at most {most}", completed=d - 1)
