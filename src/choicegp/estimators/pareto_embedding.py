"""ParetoEmbedding: choice functions by a network whose outputs are utilities, and a search for its options."""

import contextlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from choicegp.checks import counted, seed, whole_number
from choicegp.compute.devices import computing
from choicegp.compute.programs import program
from choicegp.compute.progress import progress_report
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import split_sets
from choicegp.data.pareto import undominated_in_sets
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator, check_something_kept, check_training_data
from choicegp.evaluation.metrics import a_mean, exact_accuracy
from choicegp.fitting.embedding import (
    EmbeddingFit,
    EmbeddingOptions,
    FittedEmbedding,
    fit_embedding,
)
from choicegp.fitting.record import Utilities, encoded_features
from choicegp.model.embedding import TERMS, Embedding, term_weights
from choicegp.reading.long import group_equal_rows

if TYPE_CHECKING:
    import pandas as pd

_ROWS_AT_ONCE = 4096


@dataclass(eq=False, repr=False)
class ParetoEmbedding(Estimator):
    """Choice functions by a network (Pfannschmidt and Hüllermeier, KI 2020; "ChoiceNN").

    A network maps the features of an object to ``n_utilities`` outputs; of a set, the objects are chosen whose
    outputs no other object's dominate; of equal objects, all or none.  There are no probabilities: `ChoiceGP` gives
    them.

    Parameters
    ----------
    n_utilities : int
        Number of outputs.
    weights : sequence of four numbers
        Of the terms of the loss, scaled to sum to one: chosen objects that are dominated, rejected objects that are
        not, distances between objects that the network changes, and the size of its outputs.
    n_layers, n_units : int
        Hidden layers, and units in each.
    learning_rate : float
        Of Adam.
    batch_size : int
        Sets in a step, at most; fewer where sets are so large that all their pairs would not fit into memory.
    max_epochs : int
        Maximum number of passes over the sets.
    patience : int
        Training ends when the validation loss has not fallen for this many epochs.
    validation_size : float
        Share of the sets on which this is judged, below 1; they are not trained on.  0: judged on all sets.
    standardize : bool
        Whether features are scaled to mean 0 and standard deviation 1 first.
    max_seconds : float, optional
        Time limit of the fit; what was reached by then is kept.
    device : {"auto", "cpu", "gpu"}
    progress : bool or "auto"
        Whether to show a progress bar on standard error; "auto": on a terminal.
    random_state : int or None
        Seed; the same seed gives the same result. None: a new one.

    Attributes
    ----------
    n_utilities_ : int
    fit_result_ : EmbeddingFit
        Status, message, number of epochs, seconds and losses.
    embedding_ : Embedding
        The network.
    data_ : ChoiceData
        The training data.
    encoding_ : FeatureEncoding

    Examples
    --------
    >>> from choicegp import ParetoEmbedding, datasets
    >>> data = datasets.gp_utilities(n_objects=40, n_sets=60).data
    >>> train, test = data.split(0.3, random_state=0)
    >>> model = ParetoEmbedding(n_utilities=2, max_epochs=100).fit(train)
    >>> len(model.predict(test)) == len(test)
    True
    >>> model.utilities(test).mean.shape
    (40, 2)
    """

    _format = "choicegp-embedding"
    _without = "its network gives utilities and no probabilities; use ChoiceGP for these"
    fitted_: FittedEmbedding = field(init=False)
    fit_result_: EmbeddingFit = field(init=False)
    n_utilities: int = 2
    _: KW_ONLY
    weights: tuple[float, float, float, float] = (0.495, 0.495, 0.005, 0.005)
    n_layers: int = 2
    n_units: int = 64
    learning_rate: float = 1e-2
    batch_size: int = 32
    max_epochs: int = 1000
    patience: int = 100
    validation_size: float = 1 / 9
    standardize: bool = True
    max_seconds: float | None = None
    device: str = "auto"
    progress: bool | str = "auto"
    random_state: int | None = 0

    def fit(self, data: ChoiceData, y: None = None) -> Self:
        """Train the network on choices.

        Parameters
        ----------
        data : ChoiceData
            With choices.
        y : None
            Ignored; scikit-learn passes it.

        Returns
        -------
        ParetoEmbedding
            Itself.
        """
        options = EmbeddingOptions.validated(self.get_params(deep=False))
        check_training_data(data, "fit")
        check_something_kept(data, "ParetoEmbedding")
        with computing(self.device):
            return self._keep(fit_embedding(data, options))

    @property
    def embedding_(self) -> Embedding:
        """The network."""
        return self.fitted_.embedding

    @property
    def n_utilities_(self) -> int:
        """Number of utilities."""
        return len(self.embedding_.shifts[-1])

    def _choices(self, data: ChoiceData) -> list[np.ndarray]:
        """Choose every object that no other of the set dominates; of equal objects, all or none are chosen."""
        utilities = self._utilities(data).mean
        chosen = undominated_in_sets(utilities, data.flat_shown, data.offsets)
        return split_sets(data.flat_shown, data.offsets, chosen)

    def _utilities(self, X: Any) -> Utilities:
        """Return the network's outputs."""
        encoded = encoded_features(X, self.encoding_)
        # Where a row stands in a matrix can change the last bit of its product: equal objects are computed once.
        group, first = group_equal_rows(encoded)
        with computing(self.device):
            outputs = _outputs(self.embedding_, self.fitted_.scaled(encoded[first]))
        infinite = np.flatnonzero(~np.isfinite(outputs).all(axis=1))
        if len(infinite):
            raise ChoiceGPError(
                f"the utilities of row {first[infinite[0]]} are no finite numbers: its features are too far from "
                "the features of the training objects"
            )
        return Utilities(outputs[group], np.full(outputs[group].shape, np.nan))

    def _learned(self) -> str:
        n_epochs = counted(self.fit_result_.n_epochs, "epoch")
        return f"{counted(self.n_utilities_, 'utility', many='utilities')}, {n_epochs}"


_embedded = program(Embedding.__call__)


def _outputs(embedding: Embedding, X: np.ndarray) -> np.ndarray:
    """Return the outputs at scaled features; blocks are filled up, so that few shapes have to be compiled."""
    parts = []
    for start in range(0, len(X), _ROWS_AT_ONCE):
        block = X[start : start + _ROWS_AT_ONCE]
        filled = np.zeros((1 << max(len(block) - 1, 63).bit_length(), X.shape[1]))
        filled[: len(block)] = block
        parts.append(np.asarray(_embedded(embedding, filled))[: len(block)])
    return np.concatenate(parts)


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
