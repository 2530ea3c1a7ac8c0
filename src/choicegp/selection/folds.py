"""Numbers of utilities compared by cross-validation: every fold learns everything again, hyperparameters included."""

from collections.abc import Collection

import numpy as np

from choicegp.compute.devices import computing, linear_algebra_for
from choicegp.compute.progress import progress_bar
from choicegp.inference.driver import NOTHING
from choicegp.prediction.kinds import choice_predictor
from choicegp.selection.compare import HeldOut
from choicegp.selection.search import Search


def cross_validated(
    search: Search,
    numbers: Collection[int],
    n_folds: int,
    *,
    random_state: int,
    n_jobs: int,
    progress: bool | str,
) -> dict[int, HeldOut]:
    """Score every set by models of these numbers of utilities that have not seen its fold.

    The models are those that the search finds without the fold, not single fits: a number left in a poor optimum
    in one fold would be compared unfairly.  For the same reason nothing starts from a model of all sets, which
    would know where to look.  Without any result where the time limit leaves out a fit: the scores of some folds are
    not of all.

    Parameters
    ----------
    search : Search
        Its data have choices.
    numbers : collection of int
        Of utilities.
    n_folds : int
    random_state : int
        Decides which set goes to which fold.
    n_jobs : int
        Folds that run in parallel, by joblib.
    progress : bool or "auto"
    """
    from joblib import Parallel, delayed

    data = search.data
    fold = np.random.default_rng(random_state).permutation(len(data)) % n_folds
    weight = np.ones(len(data)) if data.weights is None else np.asarray(data.weights)
    scores = {d: np.zeros(len(data)) for d in numbers}
    complete = True
    if n_jobs > 1:
        # The cores are for the folds; threads share the compiled programs, which all folds of one size have in common.
        search = search._replace(options=search.options._replace(n_jobs=1))
    with (
        progress_bar(progress, n_folds) as bar,
        Parallel(n_jobs, prefer="threads", return_as="generator") as run,
    ):
        names = [f"fold {k} of {n_folds} for {', '.join(map(str, sorted(numbers)))}" for k in range(n_folds)]
        kept = {k: known for k, name in enumerate(names) if (known := search.keeper.recall(name)) is not None}
        left = (k for k in range(n_folds) if k not in kept)
        results = run(delayed(_without)(search, fold == k, sorted(numbers)) for k in left)
        for k in range(n_folds):
            found = kept[k] if k in kept else next(results)
            complete &= found is not None
            if found is not None and k not in kept:
                search.keeper.keep(names[k], found)
            for d, own in zip(sorted(numbers), found or (), strict=bool(found)):
                scores[d][fold == k] = weight[fold == k] * own
            bar.show(f"{k + 1} of {n_folds} folds of the cross-validation", k + 1)
    return {d: HeldOut(own) for d, own in scores.items()} if complete else {}


def _without(search: Search, held_out: np.ndarray, numbers: list[int]) -> tuple[np.ndarray, ...] | None:
    """Return the log-probabilities of the sets held out, by the models that the others make; None out of time."""
    data = search.data
    # Set here and not by the caller: joblib may be set to work with processes.
    with linear_algebra_for(len(np.unique(data.flat_shown))), computing(search.device):
        fits = search._replace(data=data[~held_out], keeper=NOTHING).unjudged(numbers)
        if fits is None:
            return None
        new = data[held_out]
        return tuple(choice_predictor(fits[d], new).log_probabilities(normalized=False) for d in numbers)
