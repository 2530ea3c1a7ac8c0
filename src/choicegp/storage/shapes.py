"""Whether the arrays of a model file fit together: a file from elsewhere may hold anything.

Arrays of wrong shapes are often broadcast without an error, and then predict something else.
"""

from typing import Any

import jax
import numpy as np

from choicegp.errors import ChoiceGPError
from choicegp.model.prior import Objects, UtilityPrior


def check_shapes(arrays: dict[str, Any], prior: UtilityPrior) -> None:
    """Refuse arrays that do not agree on the numbers of objects, features, utilities and parts of utilities."""
    n_objects, n_features, n_parts = len(arrays["codes"]), arrays["centre"].size, len(arrays["dual"])
    n_utilities = n_parts - prior.shared
    n_covariates = np.size(arrays.get("covariates_mean", ()))  # of people: further features of what they see
    points = (n_objects, n_features + n_covariates)
    known: dict[str, list[tuple[int, ...]]] = {
        "codes": [(n_objects,)], "centre": [(n_features,)], "scale": [(n_features,)],
        "X": [points, (n_parts, *points)], "mean": [(n_utilities, n_objects)], "dual": [(n_parts, n_objects)],
        "gain": [(n_utilities, n_objects, n_objects), (n_utilities, 0, 0)], "lapse": [()],
        "elbo_trace": [arrays["elbo_trace"].shape[:1]], "log_effect_variance": [(n_parts,)],
        "log_threshold_variance": [(n_parts,)],
    }  # fmt: skip
    for name, allowed in known.items():
        if name in arrays:
            _check(name, arrays[name], allowed)
    for leaf in jax.tree.leaves(prior.kernels):
        _check("kernel", leaf, [(n_parts, *np.shape(leaf)[1:])])
    one = Objects(np.zeros((1, n_features)), np.zeros(1, int))
    # Nothing is computed here but the shape; a kernel for other features fails.
    found = jax.eval_shape(prior.covariance, Objects(arrays["X"], arrays["codes"]), one)
    _check("kernel", found, [(n_parts, n_objects, 1)])


def _check(name: str, array: Any, allowed: list[tuple[int, ...]]) -> None:
    if tuple(array.shape) not in allowed:
        shapes = " or ".join(map(str, allowed))
        raise ChoiceGPError(f"a choicegp model with wrong parts: {name} has the shape {array.shape}, not {shapes}")
