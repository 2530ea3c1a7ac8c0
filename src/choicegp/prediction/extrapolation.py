"""Objects unlike those that were shown in training: which features leave the range of these, and by how much.

Outside that range no answer says what a utility is: it returns to its prior mean or follows the kernel's own trend, and
a probability there may look as sure as any other.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from choicegp.checks import counted
from choicegp.reading.encoding import FeatureEncoding

WIDENED = 0.1
"""By this part of itself the range of a feature is widened on each side before an object lies outside."""
_ROUNDING = 1e-9  # of a feature's size: a constant feature that was computed in another way is the same
_MOST_NAMED = 10


class Beyond(NamedTuple):
    """A feature that leaves its range: from where to where it is outside, its range in training, how many objects."""

    low: float
    high: float
    shown_low: float
    shown_high: float
    n_objects: int

    def __str__(self) -> str:
        values = f"{self.low:.6g}" if self.low == self.high else f"{self.low:.6g} to {self.high:.6g}"
        of = counted(self.n_objects, "object")
        return f"{values} (shown {self.shown_low:.6g} to {self.shown_high:.6g}, {of})"


class Outside(NamedTuple):
    """How many of some objects lie outside the range of the training objects, and in which features."""

    n_outside: int
    n_objects: int
    features: dict[str, Beyond]

    def __str__(self) -> str:
        """Say it in words; nothing where no object lies outside."""
        if not self.n_outside:
            return ""
        named = [f"{name} {beyond}" for name, beyond in self.features.items()]
        more = [f"and {len(named) - _MOST_NAMED} more features"] if len(named) > _MOST_NAMED else []
        lie = "lies" if self.n_outside == 1 else "lie"
        return (
            f"{self.n_outside} of {counted(self.n_objects, 'object')} {lie} outside what was shown in training: "
            f"{', '.join(named[:_MOST_NAMED] + more)}. Predictions there rest on the model's prior assumptions: do not "
            "rely on them, or learn from answers about such objects"
        )


def outside_training(X: np.ndarray, trained: np.ndarray, encoding: FeatureEncoding) -> Outside:
    """Find the objects with a number outside the range that the training objects have.

    Parameters
    ----------
    X : array (n, c)
        Encoded features of the objects that are predicted.
    trained : array (t, c)
        Encoded features of the objects that were shown in training.
    encoding : FeatureEncoding
        Names the features; features of categories have no range and are passed over.

    Examples
    --------
    >>> found = outside_training(np.array([[5.0], [9.0]]), np.array([[1.0], [6.0]]), FeatureEncoding.plain(1))
    >>> found.features
    {'x0': Beyond(low=9.0, high=9.0, shown_low=1.0, shown_high=6.0, n_objects=1)}
    """
    if len(trained) == 0:
        return Outside(0, len(X), {})
    numeric = [column.kind == "numeric" for column in encoding.columns for _ in column.feature_names]
    low, high = trained.min(axis=0), trained.max(axis=0)
    with np.errstate(over="ignore"):  # nothing lies outside an infinite range
        margin = WIDENED * (high - low) + _ROUNDING * np.maximum(np.abs(low), np.abs(high))
        outside = ((low - margin > X) | (high + margin < X)) & numeric
    features = {}
    for j in np.flatnonzero(outside.any(axis=0)):
        values = X[outside[:, j], j]
        features[encoding.feature_names[j]] = Beyond(
            float(values.min()), float(values.max()), float(low[j]), float(high[j]), len(values)
        )
    return Outside(int(outside.any(axis=1).sum()), len(X), features)


def together(parts: Iterable[Outside]) -> Outside:
    """Add up what was found among several groups of objects, compared with the same training objects."""
    n_outside, n_objects, features = 0, 0, dict[str, Beyond]()
    for part in parts:
        n_outside, n_objects = n_outside + part.n_outside, n_objects + part.n_objects
        for name, new in part.features.items():
            old = features.get(name, new._replace(n_objects=0))
            features[name] = new._replace(
                low=min(old.low, new.low), high=max(old.high, new.high), n_objects=old.n_objects + new.n_objects
            )
    return Outside(n_outside, n_objects, features)
