"""Comparing models by their scores of sets that they have not seen, set by set."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from choicegp.errors import ChoiceGPError
from choicegp.selection.loo import LooResult, standard_error

if TYPE_CHECKING:
    import pandas as pd

_NAME = TypeVar("_NAME")
_ROUNDS = 2000  # of the search for weights


class Judged(Protocol):
    """The scores of a model, such as a `LooResult`."""

    @property
    def elpd(self) -> float:
        """Expected log predictive density, the sum of ``pointwise``."""

    @property
    def pointwise(self) -> np.ndarray:
        """Score of each set (m,)."""


class HeldOut(NamedTuple):
    """Log score of each set by a model that has not seen its fold, times its weight (m,)."""

    pointwise: np.ndarray

    @property
    def elpd(self) -> float:
        """Sum of the scores."""
        return float(self.pointwise.sum())


class ElpdDifference(NamedTuple):
    """How much worse a model is than the best: the difference of the scores, and its standard error."""

    elpd: float
    se: float


def differences_to_best(results: Mapping[_NAME, Judged]) -> dict[_NAME, ElpdDifference]:
    """Compare each model with the best one, in pairs: both have scored the same sets.

    Examples
    --------
    >>> import numpy as np
    >>> from choicegp.selection.loo import PsisDiagnostics, loo_result
    >>> def scored(pointwise):
    ...     none = PsisDiagnostics(np.zeros(2), np.zeros(2))
    ...     return loo_result(np.array(pointwise), none, np.zeros(0), "", ())
    >>> differences_to_best({"a": scored([-1.0, -2.0]), "b": scored([-2.0, -3.0])})["b"]
    ElpdDifference(elpd=-2.0, se=0.0)
    """
    best = max(results, key=lambda name: results[name].elpd)
    return {
        name: ElpdDifference(
            result.elpd - results[best].elpd, standard_error(result.pointwise - results[best].pointwise)
        )
        for name, result in results.items()
    }


def smallest_within_one_se(results: Mapping[int, Judged]) -> int:
    """Return the smallest number of utilities whose elpd is within one paired standard error of the best."""
    differences = differences_to_best(results)
    return min(d for d in results if -differences[d].elpd <= differences[d].se)


def undecided(results: Mapping[int, Judged]) -> list[int]:
    """Return the numbers of utilities up to the best that are within one paired standard error of it.

    Just the best one, when those below it are clearly worse.
    """
    differences = differences_to_best(results)
    best = max(results, key=lambda d: results[d].elpd)
    return [d for d in sorted(results) if d <= best and -differences[d].elpd <= differences[d].se]


def compare(models: Mapping[str, Any], method: str = "cavity") -> "pd.DataFrame":
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
        One row per model, the best first, in columns that ArviZ's ``compare`` has too: ``rank`` (0 is the best),
        ``elpd``, the effective number of parameters ``p``, how much less than the best the elpd is (``elpd_diff``), the
        ``weight`` of the model in a stacked prediction, the standard error ``se`` of the elpd, the paired standard
        error ``dse`` of the difference, and whether there is a ``warning``; then the number of ``doubtful`` sets.

    Examples
    --------
    >>> from choicegp import ChoiceGP, datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> models = {d: ChoiceGP(d, intervals="none", n_restarts=1, max_iter=40).fit(data) for d in (1, 2)}
    >>> compare({"one utility": models[1], "two utilities": models[2]}).index[0]
    'two utilities'
    """
    if not isinstance(models, Mapping) or not models:
        raise ChoiceGPError("compare takes a dictionary of names and fitted models, at least one")
    _check_same_choices(models)
    results = {name: model if isinstance(model, LooResult) else model.loo(method) for name, model in models.items()}
    # Leaving out sets of a person by fits and by cavities estimates the same.
    kinds = {(len(found.pointwise), found.method == "psis", found.left_out) for found in results.values()}
    if len(kinds) > 1:
        raise ChoiceGPError("only results of one method on the same sets, with the same left out, can be compared")
    return comparison_table(results).sort_values("rank")


def comparison_table(results: Mapping[Any, LooResult]) -> "pd.DataFrame":
    """Return one row per result, in their order, in the columns of `compare`."""
    import pandas as pd

    differences = differences_to_best(results)
    elpd = np.array([result.elpd for result in results.values()])
    columns = {
        "rank": np.argsort(np.argsort(-elpd, kind="stable")),
        "elpd": elpd,
        "p": [result.n_effective for result in results.values()],
        # How much is lost against the best; abs keeps the zero of the best itself positive.
        "elpd_diff": [abs(differences[name].elpd) for name in results],
        "weight": stacking_weights(np.column_stack([result.pointwise for result in results.values()])),
        "se": [result.se for result in results.values()],
        "dse": [differences[name].se for name in results],
        "warning": [bool(result.warning) for result in results.values()],
        "doubtful": [len(result.doubtful) for result in results.values()],
    }
    return pd.DataFrame(columns, index=list(results))


def stacking_weights(scores: np.ndarray) -> np.ndarray:
    """Return the weights (k,) of models whose mixture predicts the sets best, from log scores (m, k).

    Yao et al. (2018).  The sum of logs is concave, and each round of expectation maximisation raises it.

    Examples
    --------
    >>> import numpy as np
    >>> stacking_weights(np.array([[-1.0, -2.0], [-1.0, -3.0]])).round(3)
    array([1., 0.])
    """
    likelihood = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    weights = np.full(scores.shape[1], 1.0 / scores.shape[1])
    if len(scores) == 0:
        return weights
    for _ in range(_ROUNDS):
        before, shares = weights, likelihood * weights
        weights = np.mean(shares / shares.sum(axis=1, keepdims=True), axis=0)
        if np.abs(weights - before).max() < 1e-9:
            break
    return weights


def _check_same_choices(models: Mapping[str, Any]) -> None:
    """Refuse models of different sets or choices; they may differ in everything else."""
    first: tuple[str, Any] | None = None
    for name, model in models.items():
        if isinstance(model, LooResult):
            continue
        if hasattr(model, "fit") and not hasattr(model, "loo"):
            raise ChoiceGPError(
                f"{name!r} cannot be compared: {type(model).__name__} has no leave-one-out score. "
                "Leave it out, or compare predictions of other choices with choicegp.metrics"
            )
        if not hasattr(model, "loo") or not hasattr(model, "fitted_"):
            raise ChoiceGPError(f"compare takes fitted models; {name!r} is {model!r}")
        data = model.data_
        kinds = np.full(len(data), "keep") if data.kinds is None else data.kinds
        sets = (data.offsets, data.flat_chosen, np.asarray(data.object_ids)[data.flat_shown], kinds)
        if first is None:
            first = (name, sets)
        elif not all(np.array_equal(one, other) for one, other in zip(first[1], sets, strict=True)):
            raise ChoiceGPError(f"{first[0]!r} and {name!r} were fitted to different choices: they cannot be compared")
