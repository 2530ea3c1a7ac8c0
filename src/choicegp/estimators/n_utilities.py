"""`select_n_utilities`: the search for the number of utilities, for users."""

import os
from typing import Any, TypeVar

import numpy as np

from choicegp.checks import check_one_of, jobs_option, seed, whole_number
from choicegp.compute.devices import computing, n_threads
from choicegp.compute.progress import Clock
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.choice_gp import ChoiceGP, checkpoint_of
from choicegp.fitting.fit import add_intervals, completed, fit_posterior
from choicegp.fitting.options import MORE_STARTS, FitOptions
from choicegp.inference.driver import Keeper
from choicegp.selection.n_utilities import SelectionResult, choose_number
from choicegp.selection.search import Search

_MODEL = TypeVar("_MODEL", bound=ChoiceGP)
_FEW_OBJECTS = 500  # shown; up to this number nine starts are tried, beside those that grow from fewer utilities


def select_n_utilities(
    data: ChoiceData,
    max_utilities: int = 5,
    random_state: int | None = 0,
    *,
    folds: int | None = None,
    contenders: str = "undecided",
    n_jobs: int | None = None,
    progress: bool | str = "auto",
    checkpoint: "str | os.PathLike[str] | Keeper | None" = None,
    **options: Any,
) -> SelectionResult:
    """Choose the number of utilities by leave-one-out cross-validation.

    The search goes up from one utility.  Each number is fitted from annealed random starts, and again from the
    utilities of the number before plus a copy of one of them or plus a zero utility; the better bound counts, so
    that a larger model is not left in a worse optimum than a smaller one.  Where the larger one is better, the number
    before is fitted again from its utilities less one of them.  The search ends at ``max_utilities``,
    or after two numbers in a row whose elpd is worse than the best by more than one paired standard error.  The
    smallest number whose elpd is within one paired standard error of the best is chosen.

    Leave-one-out holds the hyperparameters fixed, although the set left out helped to learn them, and so does not see
    how well they are determined.  With ``folds``, numbers that it cannot distinguish are compared by cross-validation:
    without each fold the whole search is repeated up to the largest of them, hyperparameters included, and the
    smallest number whose log score is within one paired standard error of the best is chosen.  That takes several
    times as long.

    With ``respondents="hierarchical"`` or "individual", models of all people are compared, each fitted by itself, and a
    set is predicted from the other sets of its person and from what everyone else says.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    max_utilities : int
        The largest number that is tried.
    random_state : int or None
        Seed; the same seed gives the same result. None: a new one.
    folds : int, optional
        Number of folds of a cross-validation, for the case that leave-one-out leaves several numbers within one
        standard error of the best. By default there is no cross-validation.
    contenders : {"undecided", "all"}
        What is cross-validated: the numbers up to the best that leave-one-out cannot distinguish from it, if there are
        several; or in any case all numbers that were tried.
    n_jobs : int, optional
        Number of fits, and of folds (by joblib), that run in parallel; -1 for all cores.  By default as in `ChoiceGP`.
        With more than one, the next numbers are fitted while leave-one-out judges the numbers before.
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    checkpoint : path, optional
        A file in which the search keeps what it knows so far, as in `ChoiceGP.fit`.  A search that was interrupted or
        killed continues from there: numbers and folds that are finished are not fitted again.
    **options
        Options of `ChoiceGP`: kernel, object_effects, lapse and so on.  ``max_seconds`` is the time limit of the whole
        search: when it has passed, no further number is tried, and ``reason`` says what was left out.

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
    clock = Clock(options.get("max_seconds"))
    most = whole_number("max_utilities", max_utilities, 1)
    n_folds = _folds(folds, contenders, data)
    number = seed(random_state)
    n_shown = len(np.unique(data.flat_shown))
    template, checked = _template(options | {"random_state": number}, n_shown)
    checked = checked.with_threshold_as_in(data)._replace(drawn_seed=random_state is None)
    device = options.get("device", "auto")
    with computing(device), checkpoint_of(checkpoint, data, checked) as keeper:
        search = Search(data, checked, device, clock, keeper.part("search", checked.kernel))
        selection = choose_number(
            search, most, n_folds=n_folds, contenders=contenders, random_state=number,
            n_jobs=n_threads(jobs_option(n_jobs), n_shown), progress=progress,
        )  # fmt: skip
    records = selection.models | {selection.n_utilities: selection.model._replace(chosen=selection.record)}
    models = {d: ChoiceGP(d, **template)._keep(fitted) for d, fitted in records.items()}
    return selection._replace(models=models)


def fit_auto(model: _MODEL, data: ChoiceData, init: object, checkpoint: Any = None) -> _MODEL:
    """Fit a model with ``n_utilities="auto"``: it becomes the chosen one of the search."""
    if init is not None:
        raise ChoiceGPError("init= goes with a number of utilities, not with n_utilities='auto'")
    params = model.get_params(deep=False)
    first = FitOptions.validated(params | {"n_utilities": 1})
    with computing(model.device), checkpoint_of(checkpoint, data, first) as keeper:
        return _fit_auto(model, data, keeper)


def _fit_auto(model: _MODEL, data: ChoiceData, keeper: Keeper) -> _MODEL:
    options = {name: value for name, value in model.get_params(deep=False).items() if name != "n_utilities"}
    # What follows the search has the rest of its time.
    clock = Clock(model.max_seconds)
    selection = select_n_utilities(data, checkpoint=keeper, **options)
    model.selection_ = selection
    fitted = selection.model.fitted_
    # A seed that was drawn was drawn for the search: the rest of the fit has the same.
    chosen = {"n_utilities": fitted.n_utilities, "random_state": selection.model.random_state}
    asked = FitOptions.validated(model.get_params(deep=False) | chosen).decided(data)
    asked = asked._replace(drawn_seed=model.random_state is None)
    if asked.respondents != "pooled":
        if asked.object_effects is None or asked.intervals:
            fitted = fit_posterior(data, asked, keeper=keeper.part("rest"), clock=clock)
    elif asked.object_effects is None:
        fitted = completed(fitted, asked, clock, keeper)
    elif asked.intervals:
        fitted = add_intervals(fitted, asked, clock, keeper)
    return model._keep(fitted._replace(chosen=selection.record))


def _template(options: dict[str, Any], n_shown: int) -> tuple[dict[str, Any], FitOptions]:
    """Check the options once, before any work; return the options of the models, and the checked ones of a fit."""
    unknown = sorted(set(options) - (set(ChoiceGP._defaults()) - {"n_utilities"}))
    if unknown:
        raise ChoiceGPError(f"select_n_utilities has no option {unknown[0]!r}: it takes the options of ChoiceGP")
    checked = FitOptions.validated(ChoiceGP(1, **options).get_params())
    if checked.respondents == "auto":
        raise ChoiceGPError(
            "the number of utilities and respondents='auto' are not chosen together: pass respondents='hierarchical', "
            "'individual' or 'pooled'"
        )
    if checked.inference in ("sparse", "mcmc"):
        raise ChoiceGPError(
            "the number of utilities is chosen with inference='dense'; fit the chosen number by "
            f"{checked.inference!r} afterwards"
        )
    # Leave-one-out needs a site for every set.  Bars of parallel fits would overwrite each other.
    fixed: dict[str, Any] = {"progress": False}
    if checked.object_effects is None:
        # Numbers are compared without: a model of each number would decide for itself.
        fixed["object_effects"] = False
    if checked.inference == "auto":
        fixed["inference"] = "dense"
    if checked.n_restarts is None and n_shown <= _FEW_OBJECTS:
        # A number of utilities that is left in a worse optimum than another is not compared fairly.
        fixed["n_restarts"] = MORE_STARTS
    options = options | fixed
    return options, FitOptions.validated(ChoiceGP(1, **options).get_params())


def _folds(folds: int | None, contenders: str, data: ChoiceData) -> int | None:
    check_one_of("contenders", contenders, ("undecided", "all"))
    if folds is None:
        if contenders != "undecided":
            raise ChoiceGPError(f"contenders={contenders!r} are compared by cross-validation: pass folds=10")
        return None
    n_folds = whole_number("folds", folds, 2)
    if n_folds > len(data):
        raise ChoiceGPError(f"folds must be at most the number of sets, {len(data)}; got {folds}")
    return n_folds
