"""Search for the options of a ParetoEmbedding: weights of the loss, size of the network, learning rate."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from choicegp.checks import seed, whole_number
from choicegp.compute.progress import progress_report
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import check_something_kept, check_training_data
from choicegp.estimators.pareto_embedding import ParetoEmbedding
from choicegp.evaluation.metrics import a_mean, exact_accuracy
from choicegp.fitting.embedding import EmbeddingOptions
from choicegp.model.embedding import TERMS, term_weights

if TYPE_CHECKING:
    import pandas as pd

_JUDGED = 0.2  # share of the sets that judge the rounds
_LAYERS = (1, 3)
_UNITS = (16, 32, 64, 128)
_RATES = (3e-4, 3e-2)


class EmbeddingSearch(NamedTuple):
    """What was found by `search_embedding`.

    Attributes
    ----------
    model : ParetoEmbedding
        With the options of the best round, fitted to all sets.
    table : DataFrame
        One row per round: ``a_mean`` and ``exact_accuracy`` on the judging sets, the weights
        ``weight_chosen``, ``weight_rejected``, ``weight_distances`` and ``weight_size``, ``n_layers``, ``n_units``,
        ``learning_rate``, ``status``, ``n_epochs`` and ``seconds``.  A round that failed has no numbers.

    Examples
    --------
    As `search_embedding` returns it:

    >>> import pandas as pd
    >>> from choicegp import EmbeddingSearch, ParetoEmbedding
    >>> EmbeddingSearch(ParetoEmbedding(2), pd.DataFrame({"a_mean": [0.71, 0.84]}))
    EmbeddingSearch(2 rounds, best A-mean 0.840: ParetoEmbedding())
    """

    model: ParetoEmbedding
    table: "pd.DataFrame"

    def __repr__(self) -> str:
        best = self.table["a_mean"].max()
        return f"EmbeddingSearch({len(self.table)} rounds, best A-mean {best:.3f}: {self.model!r})"


def search_embedding(
    data: ChoiceData, n_rounds: int = 60, random_state: int | None = 0, **options: Any
) -> EmbeddingSearch:
    """Search for the weights of the loss, the layers, the units and the learning rate of a `ParetoEmbedding`.

    Each round fits four fifths of the sets with options that Optuna's TPE sampler proposes; they are judged by the
    A-mean of the choices predicted from the other sets.  The first round takes the defaults.  The best options are
    fitted to all sets.

    Parameters
    ----------
    data : ChoiceData
        With choices.
    n_rounds : int
        Number of fits from which the best options are taken.
    random_state : int or None
        Seed of everything. None: a new one.
    **options
        Of `ParetoEmbedding`.  ``weights``, ``n_layers``, ``n_units`` and ``learning_rate`` are not searched when they
        are given.  ``max_seconds`` limits each fit.

    Returns
    -------
    EmbeddingSearch
        The refitted model, and a table of the rounds.

    Examples
    --------
    >>> from choicegp import datasets
    >>> data = datasets.gp_utilities(n_objects=30, n_sets=40).data
    >>> model, table = search_embedding(data, n_rounds=2, n_layers=1, n_units=16, max_epochs=20)
    >>> len(table), model.n_layers
    (2, 1)
    """
    n_rounds = whole_number("n_rounds", n_rounds, 1)
    check_training_data(data, "search_embedding")
    check_something_kept(data, "ParetoEmbedding")
    random_state = seed(random_state)
    fixed = _checked(options | {"random_state": random_state})
    progress = options.get("progress", "auto")
    if len(data) < 2:
        raise ChoiceGPError("search_embedding needs at least two sets: one to fit and one to judge by")
    training, judging = data.split(_JUDGED, random_state=random_state)
    found: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    with _study(random_state) as study, progress_report(progress, n_rounds, "round", "A-mean") as report:
        study.enqueue_trial(_first(fixed))
        for number in range(1, n_rounds + 1):
            trial = study.ask()
            found.append(fixed | _proposed(trial, fixed))
            rows.append(_judged(found[-1], training, judging))
            _tell(study, trial, rows[-1]["a_mean"])
            if report is not None:
                report("searching", number, rows[-1]["a_mean"])
    scores = np.array([row["a_mean"] for row in rows])
    if np.isnan(scores).all():
        raise ChoiceGPError(f"every round of the search failed: {rows[0]['status']}")
    best = found[int(np.nanargmax(scores))] | {"progress": progress}
    return EmbeddingSearch(ParetoEmbedding(**best).fit(data), _table(rows))


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Check the options once, before any work."""
    known = ParetoEmbedding._defaults()
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ChoiceGPError(f"search_embedding has no option {unknown[0]!r}: it takes the options of ParetoEmbedding")
    EmbeddingOptions.validated(known | options)
    # Bars of single fits would hide the bar of the rounds.
    return options | {"progress": False}


@contextlib.contextmanager
def _study(random_state: int) -> Iterator[Any]:
    """Yield a study of Optuna that prints nothing."""
    try:
        import optuna
    except ImportError as error:
        raise ChoiceGPError(
            'search_embedding needs Optuna, which could not be imported: pip install "choicegp[search]"'
        ) from error
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        # Its seeds have 32 bits.
        sampler = optuna.samplers.TPESampler(seed=random_state % 2**32)
        yield optuna.create_study(direction="maximize", sampler=sampler)
    finally:
        optuna.logging.set_verbosity(before)


def _first(fixed: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of what is searched, as `_proposed` asks for them."""
    defaults = ParetoEmbedding._defaults()
    first = {name: defaults[name] for name in ("n_layers", "n_units", "learning_rate") if name not in fixed}
    if "weights" not in fixed:
        weights = zip(TERMS, term_weights(defaults["weights"]), strict=True)
        first |= {f"quantile_{term}": float(np.exp(-weight)) for term, weight in weights}
    return first


def _proposed(trial: Any, fixed: dict[str, Any]) -> dict[str, Any]:
    """Ask a trial for what is not fixed."""
    proposed: dict[str, Any] = {}
    if "weights" not in fixed:
        # Logarithms of uniform numbers, scaled to sum to one, are uniform on the simplex.
        sizes = -np.log([trial.suggest_float(f"quantile_{term}", 1e-6, 1.0 - 1e-6) for term in TERMS])
        proposed["weights"] = tuple((sizes / sizes.sum()).tolist())
    if "n_layers" not in fixed:
        proposed["n_layers"] = trial.suggest_int("n_layers", *_LAYERS)
    if "n_units" not in fixed:
        proposed["n_units"] = trial.suggest_categorical("n_units", _UNITS)
    if "learning_rate" not in fixed:
        proposed["learning_rate"] = trial.suggest_float("learning_rate", *_RATES, log=True)
    return proposed


def _judged(options: dict[str, Any], training: ChoiceData, judging: ChoiceData) -> dict[str, Any]:
    """Fit once; return a row of the table."""
    model = ParetoEmbedding(**options)
    row: dict[str, Any] = {"a_mean": np.nan, "exact_accuracy": np.nan}
    row |= {f"weight_{term}": weight for term, weight in zip(TERMS, term_weights(model.weights), strict=True)}
    row |= {name: getattr(model, name) for name in ("n_layers", "n_units", "learning_rate")}
    try:
        predicted = model.fit(training)._choices(judging)
    except ChoiceGPError as error:
        # The options were checked before: this combination of them diverged, others need not.
        return row | {"status": f"failed: {error}", "n_epochs": 0, "seconds": np.nan}
    result = model.fit_result_
    row |= {"a_mean": a_mean(judging, predicted), "exact_accuracy": exact_accuracy(judging, predicted)}
    return row | {"status": result.status, "n_epochs": result.n_epochs, "seconds": result.seconds}


def _tell(study: Any, trial: Any, score: float) -> None:
    if np.isfinite(score):
        study.tell(trial, score)
    else:
        from optuna.trial import TrialState

        study.tell(trial, state=TrialState.FAIL)


def _table(rows: list[dict[str, Any]]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows).rename_axis("round")
