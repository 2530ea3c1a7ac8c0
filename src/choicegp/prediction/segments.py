"""Segments: people who choose in the same way, what sets each segment apart, and how sure the segments are.

People are compared by what they are predicted to keep of sets drawn from the shown objects.  Two people disagree by the
mean difference of their probabilities, and k-medoids (partitioning around medoids) finds k people around whom the
others differ least.  Every joint draw of all people's utilities has segments of its own; how far these agree with the
reported ones (the adjusted Rand index) says how much the segments owe to what is not known.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import counted, whole_number
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.prediction.assortments import Market
from choicegp.prediction.shares import MarketOptions, answers_of_people, interval

N_SETS = 40
_LARGEST = 6  # objects of a set by which people are compared
_N_JUDGED = 20  # draws whose own segments are found
_MOST_NAMED = 3  # features that set a segment apart in words
_RIDGE = 0.1  # of the features' mean square
_NOTABLE = 0.25  # of the largest difference: smaller ones are not named
_STABLE, _UNSTABLE = 0.8, 0.5


class Segments(NamedTuple):
    """People who choose in the same way.

    Attributes
    ----------
    table : DataFrame
        One row for each segment: its number, how many ``people`` it has, their ``share``, the respondent in its middle
        (``medoid``), and what sets it apart, ``in_words``.
    people : DataFrame
        One row for each respondent: her ``segment``, and the mean difference (``distance``) between her probabilities
        and the medoid's.
    differences : DataFrame
        One row for each segment and feature: how much more often than others its people keep an object whose feature
        is larger by one standard deviation (of a category: that has it), with the ends of the 95% interval.
    stability : float
        Mean agreement (adjusted Rand index) of the segments with the segments of single draws: 1 where they are
        certain, 0 where they are no better than chance.

    Examples
    --------
    As `ChoiceGP.segments` returns it:

    >>> from choicegp import Segments
    >>> one = {"segment": [1], "people": [9], "share": [1.0], "medoid": ["ann"], "in_words": ["keeps what is cheap"]}
    >>> print(Segments(pd.DataFrame(one), pd.DataFrame(), pd.DataFrame(), 0.85))
    Segment 1: 9 respondents (100%), such as respondent ann; keeps what is cheap.
    Stability 0.85: the answers settle who belongs to which segment.
    """

    table: pd.DataFrame
    people: pd.DataFrame
    differences: pd.DataFrame
    stability: float

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Say it in words."""
        columns = (self.table[name].tolist() for name in ("segment", "people", "share", "medoid", "in_words"))
        lines = [
            f"Segment {segment}: {counted(people, 'respondent')} ({share:.0%}), such as respondent {medoid}; {words}."
            for segment, people, share, medoid, words in zip(*columns, strict=True)
        ]
        return "\n".join([*lines, f"Stability {self.stability:.2f}: {stability_in_words(self.stability)}."])


def stability_in_words(stability: float) -> str:
    """Say what a stability means."""
    if stability >= _STABLE:
        return "the answers settle who belongs to which segment"
    if stability >= _UNSTABLE:
        return "some people may belong to another segment"
    return "the answers do not settle the segments; ask for fewer, or ask people more questions"


def segments(fitted: Fitted, k: int, asked: MarketOptions) -> Segments:
    """Find k segments of the respondents."""
    study = fitted.study
    if study is None:
        raise ChoiceGPError(
            "segments are of people, and this model pools the answers of all: use ChoiceGP(respondents='hierarchical')"
        )
    k = whole_number("k", k, 2)
    if k >= len(study.ids):
        raise ChoiceGPError(f"there are {len(study.ids)} respondents: k must be smaller; got {k}")
    market = _compared(fitted, asked.seed)
    keep = np.concatenate(
        [
            np.concatenate([taken.keep for taken in chunk], axis=2).astype(np.float32)
            for chunk in answers_of_people(fitted, market, asked)
        ]
    )
    typical = keep.mean(axis=0)
    medoids, labels, distance = _by_size(*clustered(disagreement(typical), k))
    judged = np.linspace(0, len(keep) - 1, min(_N_JUDGED, len(keep))).astype(int)
    own = [clustered(disagreement(keep[s]), k)[1] for s in judged]
    stability = float(np.mean([adjusted_rand(labels, other) for other in own]))
    differences, words = _apart(fitted, market, keep, labels)
    counts = np.bincount(labels, minlength=k)
    table = pd.DataFrame({
        "segment": np.arange(1, k + 1), "people": counts, "share": counts / len(labels),
        "medoid": [study.ids[medoid] for medoid in medoids], "in_words": words,
    })  # fmt: skip
    people = pd.DataFrame({"respondent": list(study.ids), "segment": labels + 1, "distance": distance})
    return Segments(table, people, differences, stability)


def _compared(fitted: Fitted, seed: int) -> Market:
    """Draw the sets by which people are compared, of the usual size, from the shown objects."""
    data, rng = fitted.data, np.random.default_rng([seed, 11])
    shown = np.unique(data.flat_shown)
    size = int(np.clip(np.median(np.diff(data.offsets)), 2, min(_LARGEST, len(shown))))
    rows = tuple(rng.choice(shown, size, replace=False) for _ in range(N_SETS))
    codes = np.array([fitted.codes[i] for i in data.object_ids])
    return Market(data.X, codes, tuple(data.object_ids), tuple(range(N_SETS)), rows)


def disagreement(keep: np.ndarray) -> np.ndarray:
    """Return the mean differences (R, R) between people's probabilities (R, n)."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(keep, keep, "cityblock")) / keep.shape[1]


def clustered(distance: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Partition around medoids: return the medoids (k,), the segment of each person and her distance to its medoid.

    Medoids are found greedily; then the best swap of a medoid and another person is made, until none helps.

    Examples
    --------
    >>> x = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    >>> clustered(np.abs(x[:, None] - x), 2)[1].tolist()
    [0, 0, 0, 1, 1, 1]
    """
    medoids = [int(np.argmin(distance.sum(axis=0)))]
    while len(medoids) < k:
        nearest = distance[medoids].min(axis=0)
        medoids.append(int(np.argmin(np.minimum(distance, nearest[:, None]).sum(axis=0))))
    total = distance[medoids].min(axis=0).sum()
    while True:
        best = total, 0, 0
        for place in range(k):
            others = distance[np.delete(medoids, place)].min(axis=0)
            totals = np.minimum(distance, others[:, None]).sum(axis=0)
            best = min(best, (totals.min(), place, int(np.argmin(totals))))
        if not best[0] < total * (1.0 - 1e-12):
            break
        total, medoids[best[1]] = best[0], best[2]
    chosen = np.sort(medoids)
    labels = np.argmin(distance[chosen], axis=0)
    return chosen, labels, distance[chosen].min(axis=0)


def _by_size(
    medoids: np.ndarray, labels: np.ndarray, distance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the segments by size, the largest first."""
    order = np.argsort(-np.bincount(labels, minlength=len(medoids)), kind="stable")
    return medoids[order], np.argsort(order)[labels], distance


def adjusted_rand(first: np.ndarray, second: np.ndarray) -> float:
    """Return how far two partitions agree: 1 if they are the same, 0 in the mean of random ones.

    Examples
    --------
    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    together = pd.crosstab(first, second).to_numpy()

    def pairs(counts: np.ndarray) -> float:
        return float(np.sum(counts * (counts - 1)) / 2.0)

    both, one, other = pairs(together), pairs(together.sum(axis=1)), pairs(together.sum(axis=0))
    chance = one * other / max(pairs(np.array([len(first)])), 1.0)
    most = (one + other) / 2.0
    return 1.0 if most == chance else (both - chance) / (most - chance)


def _apart(fitted: Fitted, market: Market, keep: np.ndarray, labels: np.ndarray) -> tuple[pd.DataFrame, list[str]]:
    """Compare what features do to what each segment keeps and to what the others keep, in every draw."""
    rows = np.concatenate(market.rows)
    X, names, kinds = market.X, fitted.encoding.feature_names, []
    for column in fitted.encoding.columns:
        kinds += [column.kind] * len(column.feature_names)
    numeric = np.array(kinds) == "numeric"
    scale = np.where(numeric, X[np.unique(rows)].std(axis=0), 1.0)
    by_set = (X / np.where(scale > 0, scale, 1.0))[rows].reshape(len(market.rows), -1, X.shape[1])
    design = (by_set - by_set.mean(axis=1, keepdims=True)).reshape(len(rows), -1)
    square = design.T @ design
    # Within sets, what one feature does beside the others, by ridge regression: features of few objects are collinear.
    ridge = square + _RIDGE * np.diag(square).mean() * np.eye(len(square))
    slopes = keep @ np.linalg.solve(ridge, design.T).T.astype(keep.dtype)  # (S, R, c)
    frames, words = [], []
    for segment in range(labels.max() + 1):
        mine = labels == segment
        apart = slopes[:, mine].mean(axis=1) - slopes[:, ~mine].mean(axis=1)
        columns = {"segment": [segment + 1] * len(names), "feature": list(names)}
        found = interval("difference", apart)
        frames.append(pd.DataFrame({**columns, **found}))
        words.append(_in_words(names, numeric, found))
    return pd.concat(frames, ignore_index=True), words


def _in_words(names: Sequence[str], numeric: np.ndarray, apart: dict[str, np.ndarray]) -> str:
    """Say which features set a segment apart: those whose interval does not hold 0, the largest first."""
    size = np.abs(apart["difference"])
    clear = (apart["difference_lower"] * apart["difference_upper"] > 0) & (size >= _NOTABLE * size.max())
    parts = []
    for j in np.argsort(-size, kind="stable")[:_MOST_NAMED]:
        if clear[j]:
            more = "more" if apart["difference"][j] > 0 else "less"
            what = f"a high {names[j]}" if numeric[j] else names[j]
            parts.append(f"objects with {what} {more} often (by {100 * size[j]:.0f} percentage points)")
    return f"compared with others, they keep {', '.join(parts)}" if parts else "nothing clearly sets them apart"
