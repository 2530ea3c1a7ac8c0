"""The fit of a Pareto embedding, a network whose outputs are utilities."""

from typing import Any, NamedTuple

import numpy as np

from choicegp.checks import flag_option, number_option, seed, whole_number
from choicegp.compute.progress import Clock, progress_report
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.fit import scaling
from choicegp.inference.embedding_training import TrainingSettings, padded_sets, train_embedding
from choicegp.model.embedding import Embedding, term_weights
from choicegp.reading.encoding import FeatureEncoding


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

    Examples
    --------
    >>> from choicegp import ChoiceData, ParetoEmbedding
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> model = ParetoEmbedding(n_utilities=1, max_epochs=5).fit(data)
    >>> model.fit_result_.n_epochs
    5
    """

    status: str
    message: str
    n_epochs: int
    best_epoch: int
    seconds: float
    losses: np.ndarray
    validation_losses: np.ndarray

    def __repr__(self) -> str:
        kept = f"epoch {self.best_epoch} of {self.n_epochs} kept"
        return f"EmbeddingFit({self.status}: {self.message}; {kept}, {self.seconds:.1f} s)"


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
            random_state=seed(params["random_state"]),
        )


class FittedEmbedding(NamedTuple):
    """All that the training of a network has learned.

    Attributes
    ----------
    embedding : Embedding
    result : EmbeddingFit
    centre, scale, encoding, data
        As in `choicegp.fitting.pairwise.FittedPairs`.
    """

    embedding: Embedding
    result: EmbeddingFit
    centre: np.ndarray
    scale: np.ndarray
    encoding: FeatureEncoding
    data: ChoiceData | None

    def scaled(self, encoded: np.ndarray) -> np.ndarray:
        """Scale encoded features as the training data were."""
        # What is infinite then makes a loss or a utility infinite, which is looked for.
        with np.errstate(over="ignore"):
            return (encoded - self.centre) / self.scale


def fit_embedding(data: ChoiceData, options: EmbeddingOptions) -> FittedEmbedding:
    """Train a network; the caller sets precision and device."""
    clock = Clock(options.max_seconds)
    centre, scale = scaling(data, options.standardize)
    with np.errstate(over="ignore"):
        X = (data.X - centre) / scale
    rng = np.random.default_rng(options.random_state)
    sizes = (X.shape[1], *[options.n_units] * options.n_layers, options.n_utilities)
    first = Embedding.create(sizes, rng)
    with progress_report(options.progress, options.training.max_epochs, "epoch", "loss") as report:
        trained = train_embedding(first, padded_sets(data, X), options.training, rng, clock, report)
    if trained.status == "failed":
        raise ChoiceGPError(
            f"the fit failed: {trained.message}. Try standardize=True, or a learning_rate below "
            f"{options.training.learning_rate:g}"
        )
    matrices, shifts = (
        tuple(np.asarray(array) for array in arrays)
        for arrays in (trained.embedding.matrices, trained.embedding.shifts)
    )
    result = EmbeddingFit(
        trained.status, trained.message, len(trained.losses), trained.best_epoch, clock.seconds, trained.losses,
        trained.validation_losses,
    )  # fmt: skip
    return FittedEmbedding(Embedding(matrices, shifts), result, centre, scale, data.encoding, data)
