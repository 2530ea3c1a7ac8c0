"""A fit as an ArviZ DataTree."""

from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.fitting.record import Fitted
from choicegp.selection.loo import sampled_choices

if TYPE_CHECKING:
    from xarray import DataTree


def datatree(fitted: Fitted, n_samples: int | None, random_state: int | None) -> "DataTree":
    """Gather samples, log-likelihoods, choices and features under ArviZ's names, within `computing`."""
    from arviz_base import from_dict

    data = fitted.data
    utilities, scores = sampled_choices(fitted, n_samples, random_state)
    shown = np.unique(data.flat_shown)
    set_of = np.repeat(np.arange(len(data)), np.diff(data.offsets))
    names = _labels(data.object_ids)
    sets = _labels(data.set_ids)
    tree = from_dict(
        {
            "posterior": {"utility": utilities[None]},
            "log_likelihood": {"choice": scores.T[None]},
            "observed_data": {"chosen": np.asarray(data.flat_chosen).astype(int)},
            "constant_data": {"features": np.asarray(data.X)[shown], "size": np.diff(data.offsets)},
        },
        dims={
            "utility": ["object", "dimension"],
            "choice": ["set"],
            "chosen": ["row"],
            "features": ["object", "feature"],
            "size": ["set"],
        },
        coords={
            "object": names[shown],
            "dimension": np.arange(1, fitted.n_utilities + 1),
            "set": sets,
            "feature": np.asarray(data.feature_names),
            "row": np.arange(len(data.flat_shown)),
        },
        attrs={"/": {"inference_library": "choicegp", "elbo": fitted.elbo}},
    )
    observed = tree["observed_data"].to_dataset()
    # Which set and which object a row of the choices is about.
    tree["observed_data"] = type(tree)(
        observed.assign_coords(set_of_row=("row", sets[set_of]), object_of_row=("row", names[data.flat_shown]))
    )
    return tree


def _labels(ids: Any) -> np.ndarray:
    """Return ids as numbers where all are whole numbers, else as text: an index of mixed kinds is of no use."""
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool | np.bool_) for i in ids)
    return np.array([int(i) for i in ids]) if whole else np.array([str(i) for i in ids])
