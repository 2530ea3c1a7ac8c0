"""How many utilities: a forward search over their number, judged by leaving sets out."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from choicegp.checks import jobs_option, whole_number
from choicegp.compute.progress import is_watched, on_terminal
from choicegp.compute.threads import linear_algebra_for, n_threads
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.choice_gp import ChoiceGP
from choicegp.estimators.cross_validation import cross_validated
from choicegp.estimators.search import Step, judged_steps
from choicegp.fitting.options import MORE_STARTS, FitOptions, seed_option
from choicegp.fitting.record import alike_notes
from choicegp.selection.compare import HeldOut, Judged, differences_to_best, smallest_within_one_se, undecided
from choicegp.selection.loo import LooResult

if TYPE_CHECKING:
    import pandas as pd

_MODEL = TypeVar("_MODEL", bound=ChoiceGP)
_FEW_OBJECTS = 500  # shown; up to there nine starts are tried, beside those that grow from fewer utilities


class SelectionResult(NamedTuple):
    """Which number of utilities was chosen, and from what.

    Attributes
    ----------
    n_utilities : int
        The smallest number whose elpd is within one paired standard error of the best; where that left several and
        they were cross-validated, the smallest of them whose cross-validated score is.
    table : DataFrame
        Indexed by the number of utilities: ``elpd``, ``se``, ``difference`` to the best with its paired standard
        error ``difference_se``, ``n_effective`` parameters, ``doubtful`` sets, ``refits`` made, ``elbo``,
        ``start`` ("annealed", "grown" from the utilities of the row above, or "shrunk" from those of the row below)
        and ``seconds``.  With ``folds`` also ``cv``, the cross-validated log score, and ``cv_se``, the paired standard
        error of its difference to the best; NaN for numbers that were not cross-validated.
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


def select_n_utilities(
    data: ChoiceData,
    max_utilities: int = 5,
    random_state: int = 0,
    *,
    folds: int | None = None,
    contenders: str = "undecided",
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

    Leave-one-out holds the hyperparameters, which the set left out helped to learn, and so does not see how well they
    are determined.  With ``folds``, numbers that it cannot tell apart are compared by cross-validation: without each
    fold the search is made anew up to the largest of them, hyperparameters and all, and the smallest number whose
    log score is within one paired standard error of the best is chosen.  That takes several times as long.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    max_utilities : int
    random_state : int
    folds : int, optional
        Number of folds of a cross-validation where leave-one-out leaves several numbers within one standard error of
        the best; None: none.
    contenders : {"undecided", "all"}
        What is cross-validated: the numbers up to the best that leave-one-out cannot tell from it, if there are
        several; or all numbers that were tried, in any case.
    n_jobs : int, optional
        Fits, and folds, that run side by side, by joblib; -1 for all cores.  By default as in `ChoiceGP`.
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
    most, random_state = whole_number("max_utilities", max_utilities, 1), seed_option(random_state)
    n_folds = _folds(folds, contenders, data)
    template = _template(options | {"random_state": random_state})
    n_shown = len(np.unique(data.flat_shown))
    if template.get("n_restarts") is None and n_shown <= _FEW_OBJECTS:
        # A number of utilities that is left in a worse optimum than another is not compared fairly.
        template["n_restarts"] = MORE_STARTS
    threads = n_threads(jobs_option(n_jobs), n_shown)
    with _progress_bar(progress, most) as say, linear_algebra_for(n_shown):
        steps = judged_steps(data, most, template, threads, say)
    held_out: dict[int, HeldOut] = {}
    if n_folds is not None:
        results = {d: step.result for d, step in steps.items()}
        numbers = list(steps) if contenders == "all" else undecided(results)
        if len(numbers) > 1:
            held_out = cross_validated(
                data, numbers, n_folds, template, random_state=random_state, n_jobs=threads, progress=progress
            )
    return _result(steps, most, n_folds, held_out)


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
    inference = "dense" if checked.inference == "auto" else options["inference"]
    return options | {"inference": inference, "progress": False}


def _folds(folds: int | None, contenders: str, data: ChoiceData) -> int | None:
    if contenders not in ("undecided", "all"):
        raise ChoiceGPError(f"contenders must be 'undecided' or 'all'; got {contenders!r}")
    if folds is None:
        if contenders != "undecided":
            raise ChoiceGPError(f"contenders={contenders!r} are compared by cross-validation: say folds=10")
        return None
    n_folds = whole_number("folds", folds, 2)
    if n_folds > len(data):
        raise ChoiceGPError(f"folds must be at most the number of sets, {len(data)}; got {folds}")
    return n_folds


def _result(steps: dict[int, Step], most: int, n_folds: int | None, held_out: dict[int, HeldOut]) -> SelectionResult:
    import pandas as pd

    results = {d: step.result for d, step in steps.items()}
    differences = differences_to_best(results)
    chosen = smallest_within_one_se(held_out or results)
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
    if n_folds is not None:
        errors = {d: difference.se for d, difference in differences_to_best(held_out).items()} if held_out else {}
        table["cv"] = [held_out[d].elpd if d in held_out else np.nan for d in steps]
        table["cv_se"] = [errors.get(d, np.nan) for d in steps]
    models = {d: step.model for d, step in steps.items()}
    reason = "; ".join([*_why(results, n_folds, held_out, chosen), *_remarks(steps, chosen, most)]) + "."
    return SelectionResult(chosen, table, models, reason, results)


def _why(
    results: dict[int, LooResult], n_folds: int | None, held_out: dict[int, HeldOut], chosen: int
) -> Iterator[str]:
    """Say by which scores the number was chosen."""
    if not held_out:
        yield from _by_the_rule(results, chosen, "leave-one-out")
        if n_folds is None and len(undecided(results)) > 1:
            yield "cross-validation may tell more (10 folds)"
        return
    yield from _by_the_rule(held_out, chosen, f"{n_folds}-fold cross-validation")
    close, alone = undecided(results), smallest_within_one_se(results)
    if len(close) > 1:
        names = [_scored(results, d) for d in close]
        yield f"leave-one-out cannot tell {', '.join(names[:-1])} and {names[-1]} apart"
    elif alone != chosen:
        yield f"leave-one-out says {_scored(results, alone)}"


def _by_the_rule(results: Mapping[int, Judged], chosen: int, by: str) -> Iterator[str]:
    """Say how the chosen number stands to the best or, when it is the best, to the one next to it."""
    differences = differences_to_best(results)
    best = max(results, key=lambda d: results[d].elpd)
    if chosen != best:
        gain = differences[chosen]
        yield (
            f"{_utilities(chosen)}: the smallest number within one standard error of the best by {by}, "
            f"{_scored(results, best)}; the difference is {-gain.elpd:.1f} with standard error {gain.se:.1f}"
        )
        return
    yield f"{_utilities(chosen)}: the best score by {by}, {results[best].elpd:.1f}"
    smaller, larger = ([d for d in results if sign * d > sign * chosen] for sign in (-1, 1))
    if smaller:
        d = max(smaller)
        less = "one utility less" if d == chosen - 1 else f"{d}"
        yield (
            f"{less} is worse by {-differences[d].elpd:.1f}, more than the standard error {differences[d].se:.1f} of "
            "that difference"
        )
    elif larger:
        d = min(larger)
        more = "one utility more" if d == chosen + 1 else f"{d}"
        yield f"{more} is worse by {-differences[d].elpd:.1f} with standard error {differences[d].se:.1f}"


def _remarks(steps: dict[int, Step], chosen: int, most: int) -> Iterator[str]:
    """Say what else a reader of the result should know."""
    last = max(steps)
    if last < most:
        yield f"{last - 1} and {last} are clearly worse than the best, so more were not tried"
    elif chosen == most > 1:
        yield f"more than {most} were not tried: raise max_utilities"
    yield from alike_notes(np.asarray(steps[chosen].model.posterior_.mean))
    yield from steps[chosen].result.notes
    doubtful = [d for d, step in steps.items() if len(step.result.doubtful)]
    if doubtful:
        yield "scores with " + ", ".join(map(_utilities, doubtful)) + " rest on sets that are in doubt"


def _scored(results: Mapping[int, Judged], d: int) -> str:
    return f"{d} ({results[d].elpd:.1f})"


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
