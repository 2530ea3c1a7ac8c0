"""Numbers of utilities compared by cross-validation: in every fold all is learned anew, hyperparameters and all."""

from collections.abc import Collection
from typing import Any

import numpy as np

from choicegp.compute.progress import count_report
from choicegp.compute.threads import linear_algebra_for
from choicegp.data.choices import ChoiceData
from choicegp.estimators.search import models_of
from choicegp.selection.compare import HeldOut


def cross_validated(
    data: ChoiceData,
    numbers: Collection[int],
    n_folds: int,
    options: dict[str, Any],
    *,
    random_state: int,
    n_jobs: int,
    progress: bool | str,
) -> dict[int, HeldOut]:
    """Score every set by models of these numbers of utilities that have not seen its fold.

    The models are those that the search finds without the fold, not single fits: a number left in a poor optimum
    in one fold would be compared unfairly.  For the same reason nothing starts from a model of all sets, which
    would know where to look.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    numbers : collection of int
        Of utilities.
    n_folds : int
    options : dict
        Of `ChoiceGP`.
    random_state : int
        Which set goes to which fold.
    n_jobs : int
        Folds that run side by side, by joblib.
    progress : bool or "auto"
    """
    from joblib import Parallel, delayed

    fold = np.random.default_rng(random_state).permutation(len(data)) % n_folds
    weight = np.ones(len(data)) if data.weights is None else np.asarray(data.weights)
    scores = {d: np.zeros(len(data)) for d in numbers}
    # The cores are for the folds; threads share the compiled programs, which all folds of one size have in common.
    each = options | {"n_jobs": 1} if n_jobs > 1 else options
    with (
        count_report(progress, n_folds, "folds of the cross-validation") as advance,
        Parallel(n_jobs, prefer="threads", return_as="generator") as run,
    ):
        results = run(delayed(_without)(data, fold == k, sorted(numbers), each) for k in range(n_folds))
        for k, found in enumerate(results):
            for d, own in found.items():
                scores[d][fold == k] = weight[fold == k] * own
            advance(1)
    return {d: HeldOut(own) for d, own in scores.items()}


def _without(
    data: ChoiceData, held_out: np.ndarray, numbers: list[int], options: dict[str, Any]
) -> dict[int, np.ndarray]:
    """Return the log-probabilities of the sets held out, by the models that the others make."""
    # Set here and not by the caller: joblib may have been told to work with processes.
    with linear_algebra_for(len(np.unique(data.flat_shown))):
        models = models_of(data[~held_out], numbers, options)
        return {d: model.log_prob(data[held_out]) for d, model in models.items()}
