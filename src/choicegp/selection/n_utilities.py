"""How many utilities: a forward search over their number, judged by leaving sets out."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from choicegp.checks import counted
from choicegp.compute.devices import linear_algebra_for
from choicegp.compute.progress import Clock, progress_bar
from choicegp.fitting.record import ChosenNumber, coinciding_notes
from choicegp.selection.compare import (
    HeldOut,
    Judged,
    comparison_table,
    differences_to_best,
    smallest_within_one_se,
    undecided,
)
from choicegp.selection.folds import cross_validated
from choicegp.selection.loo import LooResult
from choicegp.selection.search import Candidate, Search, is_over

if TYPE_CHECKING:
    import pandas as pd


_KEPT = ("elpd", "se", "elpd_diff", "dse", "p", "cv", "cv_se")  # columns of the table that models' files hold


class SelectionResult(NamedTuple):
    """Which number of utilities was chosen, and from what.

    Attributes
    ----------
    n_utilities : int
        The smallest number whose elpd is within one paired standard error of the best; where that left several and
        they were cross-validated, the smallest of them whose cross-validated score is.
    table : DataFrame
        Indexed by the number of utilities: the columns of `compare`, the number of ``refits``, the ``elbo``, the
        ``start`` ("annealed", "grown" from the utilities of the row above, or "shrunk" from the row below)
        and ``seconds``.  With ``folds`` also ``cv``, the cross-validated log score, and ``cv_se``, the paired standard
        error of its difference to the best; NaN for numbers that were not cross-validated.
    models : dict
        The fitted model of each number.
    reason : str
        Why this number, in words.
    results : dict
        The leave-one-out result of each number.

    Examples
    --------
    As `select_n_utilities` returns it:

    >>> import pandas as pd
    >>> from choicegp import SelectionResult
    >>> table = pd.DataFrame({"elpd": [-90.0, -41.0]}, index=pd.Index([1, 2], name="n_utilities"))
    >>> found = SelectionResult(2, table, {1: "one", 2: "two"}, "2 has the best score", {})
    >>> found.model, int(found.table["elpd"].idxmax())
    ('two', 2)
    """

    n_utilities: int
    table: "pd.DataFrame"
    models: dict[int, Any]
    reason: str
    results: dict[int, LooResult]

    @property
    def model(self) -> Any:
        """The model with the chosen number of utilities."""
        return self.models[self.n_utilities]

    @property
    def record(self) -> ChosenNumber:
        """What a model's file keeps of it."""
        kept = self.table[[name for name in _KEPT if name in self.table]].reset_index()
        return ChosenNumber(self.n_utilities, self.reason, {str(name): kept[name].tolist() for name in kept})

    def __repr__(self) -> str:
        # The models and the scores of every set would fill pages.
        shown = [name for name in (*_KEPT, "doubtful") if name in self.table]
        return f"{self.table[shown].round(2).to_string()}\n{self.reason}"


def choose_number(
    search: Search,
    most: int,
    *,
    n_folds: int | None,
    contenders: str,
    random_state: int,
    n_jobs: int,
    progress: bool | str,
) -> SelectionResult:
    """Choose the number of utilities; see `choicegp.select_n_utilities`.  The models of the result are records.

    Parameters
    ----------
    search : Search
    most : int
        The largest number that is tried.
    n_folds : int or None
        Of a cross-validation, if there is any.
    contenders : {"undecided", "all"}
    random_state : int
        Of the folds.
    n_jobs : int
    progress : bool or "auto"
    """
    with (
        progress_bar(progress, most) as bar,
        linear_algebra_for(len(np.unique(search.data.flat_shown))),
    ):
        found = search.judged(most, n_jobs, lambda d: bar.show(f"{_utilities(d)} of at most {most}", d - 1))
    held_out: dict[int, HeldOut] = {}
    if n_folds is not None:
        numbers = list(found) if contenders == "all" else undecided({d: one.result for d, one in found.items()})
        if len(numbers) > 1:
            held_out = cross_validated(
                search, numbers, n_folds, random_state=random_state, n_jobs=n_jobs, progress=progress
            )
    unfinished = n_folds is not None and len(numbers) > 1 and not held_out
    return _result(found, most, n_folds, held_out, tuple(_out_of_time(found, most, search.clock, unfinished)))


def _result(
    found: dict[int, Candidate], most: int, n_folds: int | None, held_out: dict[int, HeldOut], left_out: tuple[str, ...]
) -> SelectionResult:
    results = {d: candidate.result for d, candidate in found.items()}
    chosen = smallest_within_one_se(held_out or results)
    table = comparison_table(results).rename_axis("n_utilities")
    table["refits"] = [result.diagnostics.n_refits for result in results.values()]  # type: ignore[union-attr]
    for column in ("elbo", "start", "seconds"):
        table[column] = [getattr(c.fitted if column == "elbo" else c, column) for c in found.values()]
    if n_folds is not None:
        errors = {d: difference.se for d, difference in differences_to_best(held_out).items()} if held_out else {}
        table["cv"] = [held_out[d].elpd if d in held_out else np.nan for d in found]
        table["cv_se"] = [errors.get(d, np.nan) for d in found]
    fits = {d: candidate.fitted for d, candidate in found.items()}
    reason = "; ".join([*_why(results, n_folds, held_out, chosen), *left_out, *_remarks(found, chosen, most)]) + "."
    return SelectionResult(chosen, table, fits, reason, results)


def _why(
    results: dict[int, LooResult], n_folds: int | None, held_out: dict[int, HeldOut], chosen: int
) -> Iterator[str]:
    """Say by which scores the number was chosen."""
    if not held_out:
        yield from _by_the_rule(results, chosen, "leave-one-out")
        if n_folds is None and len(undecided(results)) > 1:
            yield "cross-validation could decide between them (folds=10)"
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


def _out_of_time(found: dict[int, Candidate], most: int, clock: Clock, unfinished: bool) -> Iterator[str]:
    """Say what was not done because the time limit had passed."""
    if clock.limit is None:
        return
    last = max(found)
    if last < most and not is_over(found):
        yield f"more than {_utilities(last)} were not tried: {clock.had_passed}"
    if cut := [d for d, candidate in found.items() if candidate.cut]:
        yield f"not all fits of {', '.join(map(_utilities, cut))} were made to their end: {clock.had_passed}"
    if unfinished:
        yield f"the cross-validation was not finished and does not count: {clock.had_passed}"


def _remarks(found: dict[int, Candidate], chosen: int, most: int) -> Iterator[str]:
    """Say what else a reader of the result should know."""
    last = max(found)
    if last < most and is_over(found):
        yield f"{last - 1} and {last} are clearly worse than the best, so more were not tried"
    elif chosen == most > 1:
        yield f"more than {most} were not tried: raise max_utilities"
    yield from coinciding_notes(np.asarray(found[chosen].fitted.posterior.mean))
    yield from found[chosen].result.notes
    doubtful = [d for d, candidate in found.items() if len(candidate.result.doubtful)]
    if doubtful:
        yield "some sets of the scores with " + ", ".join(map(_utilities, doubtful)) + " cannot be trusted"


def _scored(results: Mapping[int, Judged], d: int) -> str:
    return f"{d} ({results[d].elpd:.1f})"


def _utilities(n: int) -> str:
    return counted(n, "utility", many="utilities")
