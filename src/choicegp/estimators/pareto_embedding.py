"""ParetoEmbedding: choice functions by a network whose outputs are utilities."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from choicegp.checks import flag_option, number_option, whole_number
from choicegp.compute.devices import computing
from choicegp.compute.programs import program
from choicegp.compute.progress import Clock, Report, is_watched, on_terminal
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import split_sets
from choicegp.data.pareto import undominated_in_sets
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator
from choicegp.evaluation import metrics
from choicegp.fitting.record import scaling
from choicegp.inference.embedding_training import TrainedEmbedding, TrainingSettings, padded_sets, train_embedding
from choicegp.model.embedding import Embedding, term_weights
from choicegp.reading.encoding import FeatureEncoding
from choicegp.reading.long import group_equal_rows
from choicegp.storage.archive import plain, read_archive, write_archive

if TYPE_CHECKING:
    import os

FORMAT = "choicegp-embedding"
VERSION = 1
_ROWS_AT_ONCE = 4096


class EmbeddingFit(NamedTuple):
    """How the training of a `ParetoEmbedding` went.

    Attributes
    ----------
    status : str
        "converged", or "stopped" (at a limit of epochs or time, or before a loss that is not finite).
    message : str
        Why, in words.
    n_epochs : int
        Epochs made.
    best_epoch : int
        The epoch, counted from 1, whose parameters are kept.
    seconds : float
    losses : ndarray (n_epochs,)
        Mean loss of the batches of each epoch.
    validation_losses : ndarray (n_epochs,)
        Loss on the validation sets after each epoch; on all sets with ``validation_size=0``.
    """

    status: str
    message: str
    n_epochs: int
    best_epoch: int
    seconds: float
    losses: np.ndarray
    validation_losses: np.ndarray


class ParetoEmbedding(Estimator):
    """Choice functions by a network (Pfannschmidt and Hüllermeier, KI 2020; "ChoiceNN").

    A network maps the features of an object to ``n_utilities`` outputs; of a set, the objects are chosen whose
    outputs no other object's dominate.  There are no probabilities: `ChoiceGP` gives them.

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
    random_state : int
        Seed; the same seed gives the same result.

    Attributes
    ----------
    n_utilities_ : int
    fit_result_ : EmbeddingFit
        Status, message, number of epochs, seconds and losses.
    embedding_ : Embedding
        The network.
    encoding_ : FeatureEncoding

    Examples
    --------
    >>> from choicegp import ParetoEmbedding, datasets
    >>> data = datasets.gp_utilities(n_objects=40, n_sets=60).data
    >>> train, test = data.split(0.3, random_state=0)
    >>> model = ParetoEmbedding(n_utilities=2, max_epochs=100).fit(train)
    >>> len(model.predict(test)) == len(test)
    True
    >>> model.utilities(test).shape
    (40, 2)
    """

    def __init__(
        self,
        n_utilities: int = 2,
        *,
        weights: tuple[float, float, float, float] = (0.495, 0.495, 0.005, 0.005),
        n_layers: int = 2,
        n_units: int = 64,
        learning_rate: float = 1e-2,
        batch_size: int = 32,
        max_epochs: int = 1000,
        patience: int = 100,
        validation_size: float = 1 / 9,
        standardize: bool = True,
        max_seconds: float | None = None,
        device: str = "auto",
        progress: bool | str = "auto",
        random_state: int = 0,
    ) -> None:
        self.n_utilities = n_utilities
        self.weights = weights
        self.n_layers = n_layers
        self.n_units = n_units
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_size = validation_size
        self.standardize = standardize
        self.max_seconds = max_seconds
        self.device = device
        self.progress = progress
        self.random_state = random_state

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
        clock = Clock(options.max_seconds)
        centre, scale = scaling(data, options.standardize)
        X = _scaled(data.X, centre, scale)
        rng = np.random.default_rng(options.random_state)
        sizes = (X.shape[1], *[options.n_units] * options.n_layers, options.n_utilities)
        first = Embedding.create(sizes, rng)
        with computing(self.device), progress_bar(options.progress, options.training.max_epochs, "epoch") as report:
            trained = train_embedding(first, padded_sets(data, X), options.training, rng, clock, report)
        if trained.status == "failed":
            raise ChoiceGPError(
                f"the fit failed: {trained.message}. Try standardize=True, or a learning_rate below "
                f"{options.training.learning_rate:g}"
            )
        return self._keep(trained, clock.seconds, centre, scale, data.encoding)

    def _keep(
        self,
        trained: TrainedEmbedding,
        seconds: float,
        centre: np.ndarray,
        scale: np.ndarray,
        encoding: FeatureEncoding,
    ) -> Self:
        matrices = tuple(np.asarray(matrix) for matrix in trained.embedding.matrices)
        shifts = tuple(np.asarray(shift) for shift in trained.embedding.shifts)
        self.embedding_ = Embedding(matrices, shifts)
        self.fit_result_ = EmbeddingFit(
            trained.status,
            trained.message,
            len(trained.losses),
            trained.best_epoch,
            seconds,
            trained.losses,
            trained.validation_losses,
        )
        self.n_utilities_ = len(shifts[-1])
        self.centre_, self.scale_ = centre, scale
        self.encoding_ = encoding
        return self

    def predict(self, data: ChoiceData) -> list[np.ndarray]:
        """Return the choice from each set, as rows of ``data.X``; data needs no choices.

        It holds every object that no other of the set dominates; of equal objects, all or none are chosen.
        """
        self._check_fitted()
        if not isinstance(data, ChoiceData):
            raise ChoiceGPError(f"a ChoiceData is needed; got {type(data).__name__}")
        chosen = undominated_in_sets(self.utilities(data), data.flat_shown, data.offsets)
        return split_sets(data.flat_shown, data.offsets, chosen)

    def score(self, data: ChoiceData, y: None = None) -> float:
        """Return the fraction of sets that are predicted exactly."""
        return metrics.exact_accuracy(data, self.predict(data))

    def utilities(self, X: Any) -> np.ndarray:
        """Return the network's outputs at any objects, (n, d); larger is better.

        Parameters
        ----------
        X : DataFrame of features, encoded array (n, c), or ChoiceData
        """
        self._check_fitted()
        encoded = X.with_encoding(self.encoding_).X if isinstance(X, ChoiceData) else self.encoding_.encode(X)
        # Where a row stands in a matrix can change the last bit of its product: equal objects are computed once.
        group, first = group_equal_rows(encoded)
        with computing(self.device):
            outputs = _outputs(self.embedding_, _scaled(encoded[first], self.centre_, self.scale_))
        infinite = np.flatnonzero(~np.isfinite(outputs).all(axis=1))
        if len(infinite):
            raise ChoiceGPError(
                f"the utilities of row {first[infinite[0]]} are no finite numbers: its features are too far from "
                "those of the training objects"
            )
        return outputs[group]

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the model to one file, in a documented format that holds no code."""
        self._check_fitted()
        result = self.fit_result_
        arrays = {
            "centre": self.centre_, "scale": self.scale_,
            "losses": result.losses, "validation_losses": result.validation_losses,
        }  # fmt: skip
        for layer, (matrix, shift) in enumerate(zip(self.embedding_.matrices, self.embedding_.shifts, strict=True)):
            arrays |= {f"matrix_{layer}": np.asarray(matrix), f"shift_{layer}": np.asarray(shift)}
        told = {
            "status": result.status, "message": result.message, "best_epoch": result.best_epoch,
            "seconds": result.seconds,
        }  # fmt: skip
        params = self.get_params(deep=False)
        # Weights may have been given as an array.
        params["weights"] = tuple(params["weights"])
        about = {
            "format": FORMAT, "version": VERSION, "params": plain(params), "fit": told,
            "n_matrices": len(self.embedding_.matrices), "encoding": self.encoding_.to_json(),
        }  # fmt: skip
        write_archive(path, arrays, about)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> "ParetoEmbedding":
        """Read a model written by `save`; it predicts bit for bit the same."""
        return read_archive(path, cls._made_from, kind=FORMAT, version=VERSION)

    @classmethod
    def _made_from(cls, arrays: dict[str, Any], about: dict[str, Any]) -> "ParetoEmbedding":
        layers = range(about["n_matrices"])
        embedding = Embedding(
            tuple(arrays[f"matrix_{layer}"] for layer in layers), tuple(arrays[f"shift_{layer}"] for layer in layers)
        )
        told = dict(about["fit"])
        seconds = told.pop("seconds")
        trained = TrainedEmbedding(
            embedding, **told, losses=arrays["losses"], validation_losses=arrays["validation_losses"]
        )
        model = cls(**about["params"] | {"weights": tuple(about["params"]["weights"])})
        encoding = FeatureEncoding.from_json(about["encoding"])
        return model._keep(trained, seconds, arrays["centre"], arrays["scale"], encoding)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise ChoiceGPError("this ParetoEmbedding is not fitted yet: call fit(data) first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "embedding_")


class EmbeddingOptions(NamedTuple):
    """The validated options of a `ParetoEmbedding`."""

    n_utilities: int
    n_layers: int
    n_units: int
    training: TrainingSettings
    standardize: bool
    max_seconds: float | None
    progress: bool | str
    random_state: int

    @classmethod
    def validated(cls, params: dict[str, Any]) -> "EmbeddingOptions":
        """Check every option; the first wrong one is a clear error."""
        rate = number_option("learning_rate", params["learning_rate"], 0.0, 1.0)
        share = number_option("validation_size", params["validation_size"], 0.0, 1.0)
        if rate == 0.0:
            raise ChoiceGPError("learning_rate must be above 0: with 0 nothing is learned")
        if share == 1.0:
            raise ChoiceGPError("validation_size must be below 1: no set would be left to train on")
        limit = params["max_seconds"]
        settings = TrainingSettings(
            weights=term_weights(params["weights"]),
            learning_rate=rate,
            batch_size=whole_number("batch_size", params["batch_size"], 1),
            max_epochs=whole_number("max_epochs", params["max_epochs"], 1),
            patience=whole_number("patience", params["patience"], 1),
            validation_size=share,
        )
        return cls(
            n_utilities=whole_number("n_utilities", params["n_utilities"], 1),
            n_layers=whole_number("n_layers", params["n_layers"], 0),
            n_units=whole_number("n_units", params["n_units"], 1),
            training=settings,
            standardize=flag_option("standardize", params["standardize"]),
            max_seconds=None if limit is None else number_option("max_seconds", limit, 0.0, np.inf),
            progress=params["progress"],
            random_state=whole_number("random_state", params["random_state"], 0),
        )


def check_training_data(data: Any, function: str) -> None:
    """Check that a function was given choices to learn from."""
    if not isinstance(data, ChoiceData):
        raise ChoiceGPError(
            f"{function} takes a ChoiceData; got {type(data).__name__}. Make one with ChoiceData.from_long"
        )
    if not data.has_choices:
        raise ChoiceGPError(f"{function} needs data with choices: these have none")


@contextlib.contextmanager
def progress_bar(progress: bool | str, total: int, unit: str) -> Iterator[Report | None]:
    """Yield a function that shows how many units of work are done, and a value; None when nobody looks."""
    if not is_watched(progress):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal()) as bar:
        task = bar.add_task("compiling", total=total)

        def report(phase: str, step: int, value: float) -> None:
            bar.update(task, description=f"{phase}: {unit} {step} of at most {total}, {value:.4g}", completed=step)

        yield report


def _scaled(X: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    # What is infinite then makes a loss or a utility infinite, which is looked for.
    with np.errstate(over="ignore"):
        return (X - centre) / scale


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
