"""What choice data look like, in numbers and in plain words."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import counted
from choicegp.reading.long import group_equal_rows

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData


@dataclass(frozen=True, repr=False)
class Description:
    """What choice data look like; ``str()`` describes them in plain words.

    Attributes
    ----------
    n_sets : int
    smallest_set, median_set, largest_set
        Numbers of objects shown.
    n_objects, n_features : int
    feature_names : tuple of str
    share_chosen : float or None
        The share of the shown objects that was chosen; None when the data have no choices.
    n_respondents : int or None
    n_never_shown : int
        Objects that are in no set.
    n_components, largest_component : int
        Groups of shown objects that no chain of sets connects, and the number of objects in the largest.
    n_repeats, n_contradictions : int or None
        Sets that show the objects of an earlier set with a choice made before, or with a new choice (whoever
        made it).
    n_identical_objects : int
        Objects that share all features with another.
    n_skipped : int
        Defects that were left out when the data were read.
    n_empty : int or None
        Sets from which nothing was chosen.
    kinds : dict of str to int
        How many sets there are of each kind.
    covariates : tuple of str
        What is known about the respondents.
    """

    n_sets: int
    smallest_set: int
    median_set: float
    largest_set: int
    n_objects: int
    n_features: int
    feature_names: tuple[str, ...]
    share_chosen: float | None
    n_respondents: int | None
    n_never_shown: int
    n_components: int
    largest_component: int
    n_repeats: int | None
    n_contradictions: int | None
    n_identical_objects: int
    n_skipped: int
    n_empty: int | None = None
    kinds: dict[str, int] = field(default_factory=dict)
    covariates: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        def some(n: int | None, noun: str) -> str:
            return counted(n or 0, noun, ",")

        sizes = counted(self.largest_set, "object")
        if self.smallest_set != self.largest_set:
            sizes = f"{self.smallest_set} to {self.largest_set} objects (median {self.median_set:g})"
        by = "" if self.n_respondents is None else f", by {some(self.n_respondents, 'respondent')}"
        names = ", ".join(self.feature_names[:8])
        names += f" and {self.n_features - 8:,} more" if self.n_features > 8 else ""
        chosen = "The data have no choices."
        if self.share_chosen is not None:
            chosen = f"{100 * self.share_chosen:.1f}% of the shown objects were chosen."
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.kinds.items())
        lines = (
            (True, f"{some(self.n_sets, 'set')} of {sizes}{by}."),
            (True, f"{some(self.n_objects, 'object')} with {some(self.n_features, 'feature')}: {names}."),
            (self.covariates, f"Known about the respondents: {', '.join(self.covariates)}."),
            (True, chosen),
            (self.n_empty, f"Nothing was chosen from {some(self.n_empty, 'set')}."),
            (self.kinds.keys() - {"keep"}, f"Kinds of sets: {kinds}."),
            (self.n_repeats, f"Shown again with the same choice: {some(self.n_repeats, 'set')}."),
            (
                self.n_contradictions,
                f"Shown again with another choice: {some(self.n_contradictions, 'set')}. "
                "No utilities explain all of these; they count as noise.",
            ),
            (
                self.n_never_shown,
                f"Never shown: {some(self.n_never_shown, 'object')}. {_predicted(self.n_never_shown)}",
            ),
            (
                self.n_components > 1,
                f"The objects fall into {self.n_components:,} groups never shown together: "
                "utilities of different groups cannot be compared by the choices alone. "
                f"The largest group has {some(self.largest_component, 'object')}.",
            ),
            (
                self.n_identical_objects,
                f"Equal in all features to another: {some(self.n_identical_objects, 'object')}. "
                "Features alone cannot distinguish these.",
            ),
            (self.n_skipped, f"Left out when the data were read: {some(self.n_skipped, 'defect')}."),
        )
        return "\n".join(line for applies, line in lines if applies)


def _predicted(n_never_shown: int) -> str:
    alone = n_never_shown == 1
    return f"{'It is' if alone else 'They are'} predicted from {'its' if alone else 'their'} features alone."


def describe(data: "ChoiceData") -> Description:
    """Describe choice data.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> data = ChoiceData.from_pairs([[1.0], [2.0], [3.0]], [[1, 0], [0, 1]])
    >>> print(describe(data))
    2 sets of 2 objects.
    3 objects with 1 feature: x0.
    50.0% of the shown objects were chosen.
    Shown again with another choice: 1 set. No utilities explain all of these; they count as noise.
    Never shown: 1 object. It is predicted from its features alone.
    """
    sizes, starts = np.diff(data.offsets), data.offsets[:-1]
    n_empty = None if data.flat_chosen is None else int((~np.logical_or.reduceat(data.flat_chosen, starts)).sum())
    component_sizes = _component_sizes(data, by_threshold=bool(n_empty))
    n_repeats, n_contradictions = _repeats(data)
    group, first = group_equal_rows(data.X)
    copies = np.bincount(group, minlength=len(first))
    return Description(
        n_sets=len(data),
        smallest_set=int(sizes.min()),
        median_set=float(np.median(sizes)),
        largest_set=int(sizes.max()),
        n_objects=len(data.X),
        n_features=data.X.shape[1],
        feature_names=data.feature_names,
        share_chosen=None if data.flat_chosen is None else float(data.flat_chosen.mean()),
        n_respondents=None if data.respondents is None else len(pd.unique(data.respondents)),
        n_never_shown=len(data.X) - int(component_sizes.sum()),
        n_components=len(component_sizes),
        largest_component=int(component_sizes.max()),
        n_repeats=n_repeats,
        n_contradictions=n_contradictions,
        n_identical_objects=int(copies[copies > 1].sum()),
        n_skipped=len(data.skipped),
        n_empty=n_empty,
        kinds={"keep": len(data)} if data.kinds is None else dict(Counter(data.kinds.tolist())),
        covariates=() if data.covariates is None else tuple(map(str, data.covariates.columns)),
    )


def _component_sizes(data: "ChoiceData", by_threshold: bool) -> NDArray[np.int64]:
    """Numbers of shown objects in each connected group; a threshold connects all from which something may be kept."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    t = len(data.X)
    # A set connects all its objects; an edge from its first object to each of them is enough.
    hubs = data.flat_shown[data.offsets[:-1]]
    one, other = np.repeat(hubs, np.diff(data.offsets)), data.flat_shown
    if by_threshold:
        met = hubs if data.kinds is None else hubs[data.kinds == "keep"]
        one, other = np.append(one, np.repeat(met[:1], len(met))), np.append(other, met)
    graph = coo_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(t, t))
    n, label = connected_components(graph, directed=False)
    shown = np.zeros(t, dtype=bool)
    shown[data.flat_shown] = True
    counts = np.bincount(label[shown], minlength=n)
    return counts[counts > 0]


def _repeats(data: "ChoiceData") -> tuple[int | None, int | None]:
    """Count sets that show the same objects again: with a choice made before, with a new one."""
    if data.flat_chosen is None:
        return None, None
    # A set's fingerprint is the sum of random 128-bit numbers of its objects: it does not depend on their
    # order, and two different sets share it with probability 2^-128.
    marks = np.random.default_rng(0).integers(2**64, size=(len(data.X), 2), dtype=np.uint64)[data.flat_shown]
    starts = data.offsets[:-1]
    shown = np.add.reduceat(marks, starts, axis=0)
    chosen = np.add.reduceat(marks * data.flat_chosen[:, None].astype(np.uint64), starts, axis=0)
    kinds = np.zeros(len(data)) if data.kinds is None else pd.factorize(data.kinds)[0]
    prints = pd.DataFrame(np.column_stack([shown, chosen])).assign(kind=kinds)
    n_shown = len(prints[[0, 1, "kind"]].drop_duplicates())
    n_answers = len(prints.drop_duplicates())
    return len(data) - n_answers, n_answers - n_shown
