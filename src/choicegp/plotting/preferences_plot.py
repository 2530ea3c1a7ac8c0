"""A picture of who beats whom, for models of preferences between two objects: they need no utilities."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from choicegp.errors import ChoiceGPError
from choicegp.plotting.drawing import short
from choicegp.plotting.names import object_names
from choicegp.plotting.style import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from choicegp.estimators.preference_gp import PairwiseGP

_MOST_COMPARED, _MOST_DRAWN = 60, 20  # objects: those shown most often, and of these those that beat the most others
_MOST_WITH_NUMBERS = 12


def plot_preferences(model: "PairwiseGP", *, ax: "Axes | None" = None) -> "Axes":
    """Draw the probability that one object beats another, for the objects of the training data.

    The object that beats the most others comes first.  Of many objects the 20 first ones are drawn, of those 60 that
    were shown most often.

    Parameters
    ----------
    model : PreferenceGP, GeneralPreferenceGP or PairGP
        Fitted.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> from choicegp import ChoiceData, PreferenceGP
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> ax = plot_preferences(PreferenceGP(max_iter=20).fit(data))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x0 2', 'x0 1', 'x0 0']
    """
    if not hasattr(model, "predict_pair_proba"):
        raise ChoiceGPError(
            f"{type(model).__name__} has no preferences between two objects to draw: pass a PreferenceGP, a "
            "GeneralPreferenceGP or a PairGP"
        )
    rows, beats = _compared(model)
    n = len(rows)
    names = object_names(model.data_.object_ids.tolist(), model.data_.X, model.encoding_)
    labels = [short(names[row]) for row in rows]
    ax = ax or new_axes(3.2 + 0.32 * n, 2.0 + 0.28 * n)
    shown = np.ma.masked_array(100.0 * beats, np.eye(n, dtype=bool))
    # Blue and orange differ for the colour-blind too; white is one half.
    picture = ax.imshow(shown, cmap="PuOr_r", vmin=0.0, vmax=100.0)
    if n <= _MOST_WITH_NUMBERS:
        for i, j in zip(*np.nonzero(~np.eye(n, dtype=bool)), strict=True):
            dark = abs(beats[i, j] - 0.5) > 0.35
            ax.text(j, i, f"{shown[i, j]:.0f}", ha="center", va="center", fontsize=8, color="w" if dark else "k")
    ax.set_xticks(np.arange(n), labels, rotation=45, ha="right", fontsize=8)
    ax.set_yticks(np.arange(n), labels, fontsize=8)
    ax.set(xlabel="... this one", ylabel="this object beats ...")
    ax.figure.colorbar(picture, ax=ax, label="probability (%)", shrink=0.8)
    total = len(np.unique(model.data_.flat_shown))
    some = f"\n({n} of {total} objects)" if n < total else ""
    ax.set_title(f"How probably the object of a row beats the object of a column{some}", fontsize=11)
    return ax


def _compared(model: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return rows of the training objects, the one that beats the most others first, and who beats whom (n, n)."""
    data = model.data_
    times = np.bincount(data.flat_shown, minlength=len(data.X))
    rows = np.sort(np.argsort(-times, kind="stable")[: min(_MOST_COMPARED, int((times > 0).sum()))])
    first, second = np.triu_indices(len(rows), 1)
    beats = np.full((len(rows), len(rows)), 0.5)
    if len(first):
        p = model.predict_pair_proba(data.X[rows[first]], data.X[rows[second]])
        beats[first, second], beats[second, first] = p, 1.0 - p
    order = np.argsort(-np.sum(beats, axis=1), kind="stable")[:_MOST_DRAWN]
    return rows[order], beats[np.ix_(order, order)]
