"""Which object of a set would be the best: probabilities of single objects under the posterior.

The likelihood of each object to be the best is divided, per posterior sample, by the sum over the objects of the set.
Under Gaussian noise that sum is one already; the paper's likelihood needs it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr

from choicegp.compute.programs import program
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.inference.respondents.personal import AnyPosterior
from choicegp.model.error_models import Discernibility, ErrorModel, GaussianNoise
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.model.prior import Objects
from choicegp.prediction.choices import LARGE_SAMPLES, N_SAMPLES, SCORE_SAMPLES, log_likelihoods, mean_of_logs
from choicegp.prediction.set_utilities import Group, asked, groups, points_for, set_utilities


def _n_samples(a: int) -> int:
    return N_SAMPLES if a <= MAX_ENUMERATED else LARGE_SAMPLES


@program
def best_table(posterior: AnyPosterior, objects: Objects, normals: Array, errors: ErrorModel) -> Array:
    """Return P(object is the best of A) for every object of each set, (a, m); the columns sum to one."""
    a, m = objects.codes.shape
    if a == 1:
        return jnp.ones((1, m))
    utilities = set_utilities(posterior, objects, normals.shape[-1])
    if a == 2 and isinstance(errors, Discernibility | GaussianNoise):
        # E[Φ(z / s)] = Φ(μ / sqrt(s² + v)): no sampling is needed.
        mean, root = utilities.marginal.mean[0, 0], utilities.marginal.root[0, 0, 0]
        z = -mean / jnp.sqrt(errors.pair_variance + root**2)  # first minus second
        return jnp.stack([ndtr(z), ndtr(-z)])
    u = utilities.sampled(normals)
    present = jnp.ones((a, 1, 1), bool)
    logs = jax.lax.map(lambda best: errors.log_likelihood(u, present, best[:, None, None]), jnp.eye(a, dtype=bool))
    table = jnp.mean(jax.nn.softmax(logs, axis=0), axis=-1)
    return table if posterior.lapse is None else (1.0 - posterior.lapse) * table + posterior.lapse / a


class BestObjectPredictor(NamedTuple):
    """Predicts the best object of the sets of a ChoiceData.

    Attributes
    ----------
    posterior : Posterior
    objects : Objects
        The rows of the data's table, as the posterior sees them.
    data : ChoiceData
    errors : ErrorModel
    people : int array (m,) or None
        As in `choicegp.prediction.choices.ChoicePredictor`.
    """

    posterior: AnyPosterior
    objects: Objects
    data: ChoiceData
    errors: ErrorModel
    people: np.ndarray | None = None

    @classmethod
    def of(cls, fitted: Fitted, data: ChoiceData, objects: Objects | None = None) -> "BestObjectPredictor":
        """Predict by what a fit has learned; ``objects`` are the rows of the data's table, where they are at hand."""
        return cls(fitted.posterior, fitted.objects(data) if objects is None else objects, data, fitted.errors)

    def _chunks(self) -> Iterator[tuple[Group, Objects]]:
        def cells(a: int) -> int:
            return a * max(a, self.errors.n_nodes) * _n_samples(a)

        for group in groups(self.data, cells):
            people = asked(self.people, self.data, group)
            yield group, Objects(self.objects.X[group.rows], self.objects.codes[group.rows], people)

    def _table(self, objects: Objects) -> np.ndarray:
        a = objects.codes.shape[0]
        return np.asarray(
            best_table(self.posterior, objects, points_for(self.posterior, a, _n_samples(a)), self.errors)
        )

    def probabilities(self) -> list[np.ndarray]:
        """P(object is the best of its set), one array per set aligned with ``data.shown``."""
        result: list[np.ndarray] = [np.empty(0)] * len(self.data)
        for group, objects in self._chunks():
            table = self._table(objects)
            for column, k in enumerate(group.sets):
                result[k] = table[:, column]
        return result

    def choices(self) -> list[np.ndarray]:
        """Return the most probable best object of each set, as a row number of ``data.X``."""
        shown, probabilities = self.data.shown, self.probabilities()
        return [rows[[np.argmax(p)]] for rows, p in zip(shown, probabilities, strict=True)]

    def of_shown(self) -> tuple[np.ndarray, np.ndarray]:
        """P(object is the best) and whether it is the most probable one, aligned with ``data.flat_shown``."""
        probabilities = self.probabilities()
        best = [np.arange(len(p)) == np.argmax(p) for p in probabilities]
        return np.concatenate(probabilities), np.concatenate(best)

    def none(self) -> np.ndarray:
        """P(no object is marked), which is 0 for each set (m,)."""
        return np.zeros(len(self.data))

    def log_probabilities(self, *, normalized: bool) -> np.ndarray:
        """Log P(o is the best of A | training data) of the data's own best objects (m,)."""
        if self.data.flat_chosen is None:
            raise ChoiceGPError("log_prob needs data with choices: these have none")
        result = np.empty(len(self.data))
        for group, objects in self._chunks():
            a = len(group.rows)
            chosen = self.data.flat_chosen[group.places]
            if normalized:
                with np.errstate(divide="ignore"):
                    logs = np.log(np.sum(np.where(chosen, self._table(objects), 0.0), axis=0))
            else:
                points = points_for(self.posterior, a, SCORE_SAMPLES)
                values = log_likelihoods(self.posterior, objects, chosen, points, self.errors)
                logs = np.asarray(mean_of_logs(values, SCORE_SAMPLES))
            result[group.sets] = logs[: len(group.sets)]
        return result
