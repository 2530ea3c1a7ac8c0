"""Leave-one-out scores of fitted models, and their comparison."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.checks import whole_number
from choicegp.compute.devices import computing
from choicegp.compute.threads import linear_algebra_for, n_threads
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import scaling
from choicegp.inference.problem import Problem, pose
from choicegp.model.prior import Objects
from choicegp.prediction.utilities import joint_samples
from choicegp.selection.cavity import MOST_REFITS, cavity_loo, prepare_cavity_loo
from choicegp.selection.compare import differences_to_best
from choicegp.selection.loo import LooResult, floor_note
from choicegp.selection.psis import N_SAMPLES, choice_log_likelihood, psis_loo

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.estimators.utility_gp import UtilityGP

METHODS = ("cavity", "psis")


def leave_one_out(
    model: "UtilityGP", method: str, max_refits: int | None, random_state: int, n_jobs: int | None = None
) -> LooResult:
    """Score every training set by a model that has not seen it; see `UtilityGP.loo`.

    ``n_jobs`` threads refit side by side, by default as many as the model itself has.
    """
    if method not in METHODS:
        raise ChoiceGPError(f"method must be 'cavity' or 'psis'; got {method!r}")
    whole_number("random_state", random_state, 0)
    posterior, data = model.posterior_, model.data_
    if posterior.is_sparse:
        raise ChoiceGPError(
            "leave-one-out needs inference='dense': a sparse fit is judged by its held-out sets instead"
        )
    lapse = None if posterior.lapse is None else float(posterior.lapse)
    notes = floor_note(data, posterior.n_utilities, lapse)
    if method == "psis":
        if max_refits is not None:
            raise ChoiceGPError("max_refits belongs to method='cavity': importance weights need no refits")
        _, scores = sampled_choices(model, N_SAMPLES, random_state)
        weight = np.ones(len(data)) if data.weights is None else np.asarray(data.weights)
        return psis_loo(scores, weight, notes)
    if posterior.draws is not None:
        raise ChoiceGPError("a posterior of draws has no sites to take out: use method='psis'")
    most = MOST_REFITS if max_refits is None else whole_number("max_refits", max_refits, 0)
    problem = model.fitted_.training_problem()
    with computing(model.device), linear_algebra_for(len(problem.valid)):
        return cavity_loo(
            posterior, problem, len(data), seed=random_state, max_refits=most,
            n_jobs=n_threads(model.n_jobs if n_jobs is None else n_jobs, len(problem.valid)), notes=notes,
        )  # fmt: skip


def prepare_to_leave_out(data: ChoiceData, options: FitOptions) -> None:
    """Have the programs of `leave_one_out` compiled while the model itself is fitted."""
    centre, scale = scaling(data, options.standardize)
    X, codes = (data.X - centre) / scale, np.arange(len(data.X))
    problem = pose(data, X, codes, effects=options.object_effects, errors=options.errors)
    has_lapse = options.learn_lapse or options.lapse > 0
    prepare_cavity_loo(options.n_utilities, problem, options.lapse if has_lapse else None)


def sampled_choices(model: "UtilityGP", n_samples: int, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    """Sample the utilities of the shown objects (S, n, d), and score every set under each sample (m, S).

    Objects are in the order of their rows in the data's table.
    """
    data = model.data_
    shown = np.unique(data.flat_shown)
    objects = model.fitted_.objects(data)
    with computing(model.device), linear_algebra_for(len(shown)):
        own = Objects(objects.X[shown], objects.codes[shown])
        utilities = joint_samples(model.posterior_, own, n_samples, random_state)
        problem = _by_row(model)
        # The problem has an order of its own; its codes are row numbers.
        order = np.searchsorted(shown, np.asarray(problem.objects.codes))
        scores = choice_log_likelihood(utilities[:, order], problem, len(data), model.posterior_.lapse)
    return utilities, scores


def _by_row(model: "UtilityGP") -> Problem:
    """Pose the problem with every row of the data's table an object of its own."""
    data = model.data_
    return pose(data, np.asarray(data.X), np.arange(len(data.X)), effects=True, errors=model.errors_)


def compare(models: "Mapping[str, UtilityGP | LooResult]", method: str = "cavity") -> "pd.DataFrame":
    """Compare models of the same choices by leave-one-out cross-validation.

    Parameters
    ----------
    models : mapping of names to fitted models
        Or to results of their ``loo``, where these are at hand.
    method : {"cavity", "psis"}
        How models are scored.

    Returns
    -------
    DataFrame
        One row per model, the best first: ``elpd``, ``se``, ``difference`` to the best with its paired standard
        error ``difference_se``, ``n_effective`` parameters, and the number of ``doubtful`` sets.

    Examples
    --------
    >>> from choicegp import ChoiceGP, datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> models = {d: ChoiceGP(d, n_restarts=1, max_iter=40).fit(data) for d in (1, 2)}
    >>> compare({"one utility": models[1], "two utilities": models[2]}).index[0]
    'two utilities'
    """
    import pandas as pd

    if not isinstance(models, Mapping) or not models:
        raise ChoiceGPError("compare takes a dictionary of names and fitted models, at least one")
    _check_same_choices(models)
    results = {name: _scored(model, method) for name, model in models.items()}
    if len({(len(result.pointwise), result.method) for result in results.values()}) > 1:
        raise ChoiceGPError("only results of one method on the same sets can be compared")
    differences = differences_to_best(results)
    rows = {
        name: {
            "elpd": result.elpd,
            "se": result.se,
            "difference": differences[name].elpd,
            "difference_se": differences[name].se,
            "n_effective": result.n_effective,
            "doubtful": len(result.doubtful),
        }
        for name, result in results.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.sort_values("elpd", ascending=False, kind="stable")


def _scored(model: Any, method: str) -> LooResult:
    return model if isinstance(model, LooResult) else model.loo(method)


def _check_same_choices(models: Mapping[str, Any]) -> None:
    """Models may differ in everything but the sets and what was chosen from them."""
    first: tuple[str, Any] | None = None
    for name, model in models.items():
        if isinstance(model, LooResult):
            continue
        if not hasattr(model, "loo") or not hasattr(model, "fitted_"):
            raise ChoiceGPError(f"compare takes fitted models; {name!r} is {model!r}")
        data = model.data_
        sets = (data.offsets, data.flat_chosen, np.asarray(data.object_ids)[data.flat_shown])
        if first is None:
            first = (name, sets)
        elif not all(np.array_equal(one, other) for one, other in zip(first[1], sets, strict=True)):
            raise ChoiceGPError(f"{first[0]!r} and {name!r} were fitted to different choices: they cannot be compared")
