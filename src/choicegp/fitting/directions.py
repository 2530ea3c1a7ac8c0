"""Features with which all utilities may only rise or fall: what a user asks for, and whether the answers agree."""

from typing import Any

import numpy as np

from choicegp.checks import listed
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted, scaling
from choicegp.model.kernels import Kernel
from choicegp.model.monotone import N_STEPS, Monotone
from choicegp.model.prior import STEP

Directions = tuple[tuple[str, int], ...]
"""Names of features, each with 1 where utilities rise with it and -1 where they fall."""
_HARDLY = 2.0  # change of a utility over the range of a feature, in units of the error scale
_CLEAR = 3.0  # nats of the bound by which answers speak against directions


def directions_option(value: Any) -> Directions:
    """Check the option ``monotone``: names of features with 1 or -1."""
    pairs = value.items() if isinstance(value, dict) else None
    if pairs is None or not all(isinstance(name, str) and sign in (1, -1) for name, sign in pairs):
        raise ChoiceGPError(
            'monotone must name features with 1 (utilities rise) or -1 (they fall), such as {"price": -1}; '
            f"got {value!r}"
        )
    return tuple((name, int(sign)) for name, sign in pairs)


def directed(kernel: Kernel, directions: Directions, data: ChoiceData, standardize: bool) -> Kernel:
    """Return the kernel in which these features have parts of their own."""
    if isinstance(kernel, Monotone):
        return kernel
    encoding = data.encoding
    numeric = [column.name for column in encoding.columns if column.kind == "numeric"]
    unknown = [name for name, _ in directions if name not in numeric]
    if unknown:
        raise ChoiceGPError(
            f"monotone names {listed(unknown)}, but no numeric feature has this name; the numeric features are "
            f"{listed(numeric)}"
        )
    signs = np.zeros(len(encoding.feature_names))
    for name, sign in directions:
        signs[list(encoding.feature_names).index(name)] = sign
    centre, scale = scaling(data, standardize)
    shown = (data.X[np.unique(data.flat_shown)] - centre) / scale
    return Monotone(kernel, signs, shown.min(axis=0), shown.max(axis=0))


def held_back(fitted: Fitted) -> list[str]:
    """Name the features with a direction that hardly change some utility in its direction, over their range."""
    directions = fitted.posterior.prior.kernels.directions()
    if not directions:
        return []
    steps = np.asarray(fitted.posterior.mean)[:, np.asarray(fitted.posterior.objects.codes) == STEP]
    ends = steps.reshape(len(steps), -1, N_STEPS + 1)[:, :, [0, -1]]
    changes = ((ends[:, :, 1] - ends[:, :, 0]) * list(directions.values())).min(axis=0)
    names = fitted.encoding.feature_names
    return [names[j] for j, change in zip(directions, changes, strict=True) if change < _HARDLY]


def contradiction(fitted: Fitted, names: list[str], free: float) -> tuple[str, ...]:
    """Say that the answers speak against directions, from the bound of the same model without them.

    A priori the steps of all utilities go the right way with a probability that is known, which is not the answers'
    fault.
    """
    n_steps = N_STEPS * fitted.n_utilities * len(fitted.posterior.prior.kernels.directions())
    lost = free - (fitted.elbo + n_steps * np.log(2.0))
    if lost < _CLEAR:
        return ()
    return (
        f"the answers speak against monotone: without it they are explained better by {lost:.1f} nats; look at "
        f"{listed(names)}",
    )
