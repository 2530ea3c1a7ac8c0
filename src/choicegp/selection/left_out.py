"""What a model would have predicted for each of its own sets without it, to judge it where no sets were held out.

As in `choicegp.selection.cavity`, a set's own site is taken out of the posterior of its objects, at the most probable
hyperparameters; the probabilities that objects are kept are then averaged over what is left.  No set is fitted again.
"""

from typing import NamedTuple

import numpy as np

from choicegp.checks import seed
from choicegp.compute.devices import linear_algebra_for
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.inference.expectation import sobol_normals
from choicegp.inference.problem import Problem, SetBatch
from choicegp.model.error_models import KEPT_BY
from choicegp.model.prior import THRESHOLD
from choicegp.prediction.taking import answered
from choicegp.selection.cavity import CavityFits, cavities, own_marginals, sites_together

_N_POINTS = 256


class LeftOut(NamedTuple):
    """Predictions for sets from all other sets.

    Attributes
    ----------
    data : ChoiceData
        The sets that were left out, one at a time: all sets of several objects from which any number could be kept.
    probabilities : list of array
        P(object is kept), aligned with ``data.shown``.
    """

    data: ChoiceData
    probabilities: list[np.ndarray]


def left_out_probabilities(fitted: Fitted, random_state: int | None = 0) -> LeftOut:
    """Predict every training set from the others; the caller sets precision and device."""
    if fitted.study is not None:
        raise ChoiceGPError("sets of many people are not left out one by one. Hold some out (data.split)")
    if fitted.posterior.is_sparse:
        raise ChoiceGPError("a sparse fit has no site for each set to take out: hold some sets out (data.split)")
    if not fitted.posterior.has_sites:
        raise ChoiceGPError("a posterior of draws has no sites to take out: hold some sets out (data.split)")
    if fitted.errors.name not in KEPT_BY:
        raise ChoiceGPError(f"sets are not left out one by one under {fitted.errors.name}. Hold some out (data.split)")
    problem, number = fitted.training_problem(), seed(random_state)
    found: dict[int, np.ndarray] = {}
    with linear_algebra_for(len(problem.valid)):
        fits = CavityFits(fitted.posterior, problem, number)
        for batch, sites in zip(problem.batches, fits.full.sites, strict=True):
            columns = np.flatnonzero(batch.sets >= 0)
            if batch.errors.name not in KEPT_BY or len(columns) == 0:
                continue
            own = own_marginals(fits.full, batch.rows[:, columns])
            parts = (batch.weight * sites.precision)[:, 1:, 1:, columns], (batch.weight * sites.linear)[:, 1:, columns]
            cavity, _ = cavities(own, *sites_together(*parts))
            d = fitted.n_utilities
            points = sobol_normals(d, len(batch.rows) - 1, _N_POINTS, np.random.default_rng(number))
            drawn = cavity.mean[..., None] + cavity.root @ points.reshape(-1, _N_POINTS)
            u = np.pad(drawn.reshape(len(columns), d, -1, _N_POINTS), ((0, 0), (0, 0), (1, 0), (0, 0)))
            found |= _kept(fitted, problem, batch, columns, u, number)
    sets = np.array(sorted(found), dtype=int)
    data = fitted.data.take(sets)
    return LeftOut(data, [_in_order(found[int(k)], fitted.data, int(k)) for k in sets])


def _kept(
    fitted: Fitted, problem: Problem, batch: SetBatch, columns: np.ndarray, u: np.ndarray, number: int
) -> dict[int, np.ndarray]:
    """Return P(kept) of each set of a batch at utilities (m, d, a, S): the chosen objects first, without padding."""
    lapse = None if fitted.posterior.lapse is None else float(fitted.posterior.lapse)
    sizes = batch.present[:, columns].sum(axis=0)
    found: dict[int, np.ndarray] = {}
    for size in np.unique(sizes):
        mine = np.flatnonzero(sizes == size)
        own = np.asarray(problem.objects.codes)[batch.rows[:size, columns[mine]]] == THRESHOLD
        order = np.argsort(own, axis=0, kind="stable")  # the threshold comes last
        some = np.take_along_axis(u[mine][:, :, :size], order.T[:, None, :, None], axis=2)
        keep = answered(np.moveaxis(some, (3, 0, 2, 1), (0, 1, 2, 3)), batch.errors, lapse, "equal", number).keep
        mean = keep.mean(axis=0)
        found |= {int(batch.sets[columns[place]]): row for place, row in zip(mine, mean, strict=True)}
    return found


def _in_order(kept: np.ndarray, data: ChoiceData, k: int) -> np.ndarray:
    """Put the probabilities of a set, the chosen objects first, in the order in which they were shown."""
    assert data.flat_chosen is not None
    result = np.empty(len(kept))
    result[np.argsort(~data.flat_chosen[data.offsets[k] : data.offsets[k + 1]], kind="stable")] = kept
    return np.clip(result, 0.0, 1.0)
