"""A request for sets to show, checked, and what is proposed."""

import itertools
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import kind_of, number_option, plain, seed, unique_index, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.choice_gp import ChoiceGP
from choicegp.fitting.record import Fitted

LEAST_LAPSE = 0.02
_SMALLEST, LARGEST = 2, 6


class Proposed(NamedTuple):
    """A set to show.

    Attributes
    ----------
    shown : tuple
        Labels of the objects, in the order in which to show them, which is random.
    value : float
        What the set is expected to bring: nats of information; the entropy of the answer for "uncertain"; the smallest
        distance between objects, in standard deviations of the features, for "space-filling"; NaN for "random" and
        "best".
    how : str
        The design that proposed it.
    reason : str
        Why this set, in words.

    Examples
    --------
    >>> from choicegp import datasets, next_set
    >>> question = next_set(None, datasets.laptops(10), size=3, random_state=0)
    >>> len(question.shown), question.how
    (3, 'space-filling')
    """

    shown: tuple[Any, ...]
    value: float
    how: str
    reason: str


class Request(NamedTuple):
    """What was asked for.

    Attributes
    ----------
    fitted : Fitted or None
    catalogue : DataFrame
    size : int
    how : str
    avoid : set of frozenset
        Rows of the catalogue.
    targets : list of list or None
        Rows of the catalogue.
    lapse : float
        Of the design and of the model, the larger one.
    seconds : float
        Time limit of each set.
    begun : float
        When the search for a set began, by `time.monotonic`.
    rng : numpy.random.Generator
    person : int or None
        Number of the person who is asked in a model of many people, -1 for somebody new; None in other models.
    n_answers : int
        How many answers the model knows, of this person in a model of many people.
    """

    fitted: Fitted | None
    catalogue: pd.DataFrame
    size: int
    how: str
    avoid: set[frozenset[int]]
    targets: list[list[int]] | None
    lapse: float
    seconds: float
    begun: float
    rng: np.random.Generator
    person: int | None = None
    n_answers: int = 0

    @property
    def deadline(self) -> float:
        """When the search for a set has to end."""
        return self.begun + self.seconds

    def without(self, rows: Iterable[int]) -> "Request":
        """Return the same with one more set to avoid, for the next set."""
        return self._replace(avoid=self.avoid | {frozenset(map(int, rows))}, begun=time.monotonic())

    def unshown(self) -> np.ndarray:
        """Return the rows (k,) of a random set that is not to be avoided."""
        n = len(self.catalogue)
        for _ in range(100):
            rows = self.rng.choice(n, self.size, replace=False)
            if frozenset(rows.tolist()) not in self.avoid:
                return rows
        # At most one more than there are to avoid: the first that is not among them.
        order = self.rng.permutation(n)
        for places in itertools.combinations(range(n), self.size):
            if frozenset(order[list(places)].tolist()) not in self.avoid:
                return order[list(places)]
        raise ChoiceGPError(f"all sets of {self.size} of these {n} objects were shown already: choose another size")

    def proposed(self, rows: np.ndarray, value: float, reason: str) -> Proposed:
        """Name the objects of a set, in random order."""
        labels = self.catalogue.index[self.rng.permutation(rows)]
        return Proposed(tuple(plain(label) for label in labels), value, self.how, reason)


def checked(
    model: ChoiceGP | None, objects: pd.DataFrame, size: int, how: str, *, avoid: Collection[frozenset[Any]],
    respondent: object, targets: Iterable[Iterable[Any]] | None, seconds: float, lapse: float,
    random_state: int | None,
) -> Request:  # fmt: skip
    """Check the arguments of a request."""
    if model is not None and not isinstance(model, ChoiceGP):
        raise ChoiceGPError(f"model must be a fitted ChoiceGP, or None before there is one; got {kind_of(model)}")
    if model is not None and not model.__sklearn_is_fitted__():
        raise ChoiceGPError("this ChoiceGP is not fitted yet: call fit(data) first, or pass model=None")
    if not isinstance(objects, pd.DataFrame):
        raise ChoiceGPError(f"objects must be a DataFrame with one row per object; got {kind_of(objects)}")
    index = unique_index(objects.index.to_numpy(), "every object needs a label of its own in the index of objects")
    if whole_number("size", size, _SMALLEST) > LARGEST:
        raise ChoiceGPError(f"size must be between {_SMALLEST} and {LARGEST} objects; got {size}")
    if len(objects) < size:
        raise ChoiceGPError(f"there are {len(objects)} objects, fewer than the {size} to show")
    fitted = None if model is None else model.fitted_
    person = _person(fitted, respondent)
    number_option("seconds", seconds, 0.0, float("inf"))
    lapse = max(number_option("lapse", lapse, 0.0, 1.0), LEAST_LAPSE)
    if fitted is not None and fitted.posterior.lapse is not None:
        lapse = max(lapse, float(fitted.posterior.lapse))
    wanted: list[list[int]] | None = None
    if targets is not None:
        if how != "predictive":
            raise ChoiceGPError(f"targets are for how='predictive', not for how={how!r}: leave them out")
        wanted = list(_as_rows("targets", targets, index))
        sizes = sorted({len(one) for one in wanted})
        if not wanted or sizes[0] < _SMALLEST or sizes[-1] > LARGEST or len(sizes) > 1:
            raise ChoiceGPError(
                f"targets must be sets of one size between {_SMALLEST} and {LARGEST} objects; got the sizes {sizes}"
            )
    shown = {frozenset(one) for one in _as_rows("avoid", avoid, index, known=False)}
    rng = np.random.default_rng([seed(random_state), 21])
    begun, n_answers = time.monotonic(), _n_answers(fitted, respondent)
    return Request(fitted, objects, size, how, shown, wanted, lapse, float(seconds), begun, rng, person, n_answers)


def _person(fitted: Fitted | None, respondent: object) -> int | None:
    """Return the number of a respondent in a model of many people, -1 for somebody new; None for other models."""
    study = None if fitted is None else fitted.study
    if study is None:
        if respondent is not None:
            raise ChoiceGPError("respondent is for models of many people, and this model is of one: leave it out")
        return None
    if respondent is None:
        raise ChoiceGPError(
            "this model is of many people: pass respondent=NAME, of a person who has answered or of somebody new"
        )
    return int(study.numbers([respondent])[0])


def _n_answers(fitted: Fitted | None, respondent: object) -> int:
    """Return how many answers a model knows, of one person in a model of many people; 0 where it kept no data."""
    data: ChoiceData | None = None if fitted is None else fitted.data
    if fitted is None or data is None:
        return 0
    if fitted.study is None or data.respondents is None:
        return len(data)
    return int(np.sum(np.asarray(data.respondents, dtype=object) == respondent))


def _as_rows(name: str, sets: Iterable[Iterable[Any]], index: pd.Index, known: bool = True) -> Iterator[list[int]]:
    """Turn sets of labels into rows; sets with labels that the catalogue lacks are an error, or are left out."""
    try:
        given = [list(one) for one in sets if not isinstance(one, str)]
    except TypeError:
        raise ChoiceGPError(f"{name} must be a collection of sets of labels") from None
    for one in given:
        rows = index.get_indexer(pd.Index(one, tupleize_cols=False))
        if (rows >= 0).all():
            yield rows.tolist()
        elif known:
            raise ChoiceGPError(f"{name} names an object that the catalogue lacks: {one[int(np.argmin(rows))]!r}")
