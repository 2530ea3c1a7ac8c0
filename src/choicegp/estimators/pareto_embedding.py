"""ParetoEmbedding: choice functions by a network whose outputs are utilities."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from choicegp.checks import counted
from choicegp.compute.devices import computing
from choicegp.compute.programs import program
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import split_sets
from choicegp.data.pareto import undominated_in_sets
from choicegp.errors import ChoiceGPError
from choicegp.estimators.base import Estimator, check_something_kept, check_training_data
from choicegp.fitting.embedding import (
    EmbeddingFit,
    EmbeddingOptions,
    FittedEmbedding,
    fit_embedding,
)
from choicegp.fitting.record import Utilities, encoded_features
from choicegp.model.embedding import Embedding
from choicegp.reading.long import group_equal_rows

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
