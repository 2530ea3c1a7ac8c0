"""The next set to show: which question says most.

A ladder with one interface: random sets; sets that fill the space of features, for which no model is needed; sets
whose answers are most uncertain; sets whose answers say most about the utilities, or about the answers to other sets;
and sets that hold the best objects.  `choicegp.elicitation.between` asks how many utilities there are.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from choicegp.checks import check_one_of, whole_number
from choicegp.compute.devices import computing
from choicegp.elicitation.growing import Found, search
from choicegp.elicitation.information import Drawn, Targets, about_targets, expected, expected_answers
from choicegp.elicitation.pool import POOL, Pool, chebyshev, pool_of, spread_out
from choicegp.elicitation.request import LEAST_LAPSE, Proposed, Request, checked
from choicegp.estimators.choice_gp import ChoiceGP
from choicegp.fitting.record import Fitted
from choicegp.model.prior import Objects, threshold_like
from choicegp.prediction.people import utilities_of_people
from choicegp.prediction.utilities import joint_samples
from choicegp.reading.encoding import FeatureEncoding

HOW = ("random", "space-filling", "uncertain", "information", "predictive", "staged", "best")
FEW_ANSWERS = 20
"""Below this number of answers of a person, "staged" asks about the answers to other sets."""
_N_DRAWS = 256
_N_DRAWS_AGAIN = 2048  # of the utilities, by which the best sets of a search for "predictive" are compared
_N_STARTS = 128  # random sets that a search values first
_N_REVALUED, _N_PREDICTIVE_REVALUED = 16, 32  # best sets of a search, which are valued again at many points
_N_TARGETS, _N_PAIRS = 32, 128  # sets about whose answers is asked: at most that many, or random pairs
_SPACE = 2048  # objects among which a set that fills the space is sought
_BEST_POOL = 256


def next_set(
    model: ChoiceGP | None, objects: pd.DataFrame, size: int = 4, *, how: str = "information",
    avoid: Collection[frozenset[Any]] = (), respondent: object = None, targets: Iterable[Iterable[Any]] | None = None,
    seconds: float = 0.5, lapse: float = LEAST_LAPSE, random_state: int | None = None,
) -> Proposed:  # fmt: skip
    """Propose the next set to show.

    Parameters
    ----------
    model : ChoiceGP or None
        Fitted to the answers so far.  Without one, the set fills the space of features, or is random.
    objects : DataFrame
        The catalogue, one row per object; its index holds the labels.
    size : int
        Number of objects to show, 2 to 6.
    how : str
        "random"; "space-filling": objects far from each other and from what was shown; "uncertain": the answer has the
        largest entropy; "information": the answer says most about the utilities; "predictive": the answer says most
        about the answers to ``targets``; "staged": "predictive" while the model knows fewer than 20 answers, then
        "information"; "best": each object is the best by a posterior draw of its own under random weights of the
        utilities, to find the best objects of the catalogue.
    avoid : collection of frozenset
        Sets of labels that were shown already.  They are not proposed again.
    respondent : object, optional
        Who is asked, for a model of many people (``respondents="hierarchical"``): one of its respondents, or somebody
        new.
    targets : iterable of sets, optional
        Sets of labels, all of one size, about whose answers "predictive" asks.  By default random pairs of the
        catalogue.
    seconds : float
        Time limit of the search.  What was found by then is proposed, and the reason says so; otherwise the same
        ``random_state`` gives the same set.  The first call for a size also compiles, which the limit does not cover.
    lapse : float
        Probability of a random answer that the design assumes, at least 0.02: without any, the design would chase
        contradictions between answers.
    random_state : int or None

    Returns
    -------
    Proposed

    Examples
    --------
    >>> from choicegp import datasets
    >>> first = next_set(None, datasets.laptops(), random_state=0)
    >>> len(first.shown), first.how
    (4, 'space-filling')
    """
    return next_sets(
        model, objects, 1, size, how=how, avoid=avoid, respondent=respondent, targets=targets, seconds=seconds,
        lapse=lapse, random_state=random_state,
    )[0]  # fmt: skip


def next_sets(
    model: ChoiceGP | None, objects: pd.DataFrame, n: int, size: int = 4, *, how: str = "information",
    avoid: Collection[frozenset[Any]] = (), respondent: object = None, targets: Iterable[Iterable[Any]] | None = None,
    seconds: float = 0.5, lapse: float = LEAST_LAPSE, random_state: int | None = None,
) -> list[Proposed]:  # fmt: skip
    """Propose several sets at once, all different, for answers that come back together.

    Every set is valued given the ones before it: answers to these are simulated from 16 posterior draws, all draws are
    weighed by the probability of such answers, and the value is averaged over the 16.

    Parameters
    ----------
    n : int
        Number of sets.
    model, objects, size, how, avoid, respondent, targets, seconds, lapse, random_state
        As in `next_set`; the time limit holds for each set.

    Returns
    -------
    list of Proposed

    Examples
    --------
    >>> from choicegp import datasets
    >>> sets = next_sets(None, datasets.laptops(), 3, random_state=0)
    >>> len({frozenset(one.shown) for one in sets})
    3
    """
    n = whole_number("n", n, 1)
    check_one_of("how", how, HOW)
    request = checked(
        model, objects, size, how, avoid=avoid, respondent=respondent, targets=targets, seconds=seconds, lapse=lapse,
        random_state=random_state,
    )  # fmt: skip
    if model is None and how != "random":
        request = request._replace(how="space-filling")
    if request.how == "staged":
        request = request._replace(how="predictive" if request.n_answers < FEW_ANSWERS else "information")
    with computing("auto" if model is None else model.device):
        return _DESIGNS[request.how](request, n)


def _random(request: Request, n: int) -> list[Proposed]:
    found = []
    for _ in range(n):
        rows = request.unshown()
        found.append(request.proposed(rows, np.nan, "the objects were drawn at random"))
        request = request.without(rows)
    return found


def _space_filling(request: Request, n: int) -> list[Proposed]:
    catalogue, found = request.catalogue, []
    shown = np.unique([row for one in request.avoid for row in one]).astype(int)
    some = np.union1d(request.rng.permutation(len(catalogue))[:_SPACE], shown)
    table = catalogue.iloc[some]
    encoding = FeatureEncoding.learn(table) if request.fitted is None else request.fitted.encoding
    X = encoding.encode(table)
    for _ in range(n):
        places, gap = spread_out(X, request.size, np.searchsorted(some, shown), request.rng)
        rows = some[places]
        if frozenset(rows.tolist()) in request.avoid:
            rows, gap = request.unshown(), np.nan
        found.append(request.proposed(rows, gap, "the objects differ much from each other and from what was shown"))
        request, shown = request.without(rows), np.union1d(shown, rows)
    return found


def _best(request: Request, n: int) -> list[Proposed]:
    """Find for each place the best object by its own draw and its own weights."""
    assert request.fitted is not None
    pool = pool_of(request.fitted, request.catalogue, request.rng, n=_BEST_POOL, person=request.person)
    n_places = n * request.size
    u = _sampled(request.fitted, pool.objects, n_places, request)
    values = np.concatenate([chebyshev(one, 1, request.rng) for one in u])
    found = []
    for start in range(0, n_places, request.size):
        places: list[int] = []
        for own in values[start : start + request.size]:
            order = np.argsort(-own, kind="stable")
            places.append(int(next(place for place in order if place not in places)))
        rows = pool.rows[places]
        if frozenset(rows.tolist()) in request.avoid:
            rows = _other(request, pool, values[start : start + request.size], places)
        reason = "each object is the best by a possible view of the utilities and a weighting of its own"
        found.append(request.proposed(rows, np.nan, reason))
        request = request.without(rows)
    return found


def _other(request: Request, pool: Pool, values: np.ndarray, places: list[int]) -> np.ndarray:
    """Exchange the last object for the next best that makes a set which is not to be avoided."""
    for place in np.argsort(-values[-1], kind="stable"):
        rows = pool.rows[[*places[:-1], int(place)]]
        if place not in places and frozenset(rows.tolist()) not in request.avoid:
            return rows
    return request.unshown()


def _valued(request: Request, n: int) -> list[Proposed]:
    """Find sets of high value, each given the ones before."""
    assert request.fitted is not None
    listed = request.targets
    if listed is not None:
        listed = [listed[i] for i in request.rng.permutation(len(listed))[:_N_TARGETS]]
    also = () if listed is None else np.unique(listed)
    pool = pool_of(request.fitted, request.catalogue, request.rng, also=also, person=request.person)
    predictive = request.how == "predictive"
    drawn = drawn_at(request.fitted, pool.objects, request, _N_DRAWS)
    targets = _targets(request, pool, drawn, listed) if predictive else None
    before: list[np.ndarray] = []
    found = []
    for _ in range(n):
        given = drawn.after(before, request.rng) if before else drawn
        tried = searched(request, pool, partial(_values, given, request.how, targets))
        if len(tried.sets):
            best, value = _best_of(request, pool, tried, given, listed)
            before.append(best)
            rows = pool.rows[best]
        else:
            rows, value = request.unshown(), np.nan
        found.append(request.proposed(rows, value, reason_for(_SAYS[request.how], value, tried.complete)))
        request = request.without(rows)
    return found


def _values(drawn: Drawn, how: str, targets: Targets | None, sets: np.ndarray) -> np.ndarray:
    if targets is not None:
        return about_targets(drawn, sets, targets)
    valued = expected(drawn, sets)
    return valued.entropy if how == "uncertain" else valued.information


def _best_of(
    request: Request, pool: Pool, tried: Found, drawn: Drawn, listed: list[list[int]] | None
) -> tuple[np.ndarray, float]:
    """Return the best set of a search and its value."""
    assert request.fitted is not None
    again = request.person is None and len(drawn.weights) == 1
    if not again or not tried.complete:
        return tried.sets[0], float(tried.values[0])
    # The best of many sets owes its place partly to the draws at hand: the best few are compared at many others.
    if request.how == "predictive":
        some = tried.sets[:_N_PREDICTIVE_REVALUED]
        others = drawn_at(request.fitted, pool.objects, request, _N_DRAWS_AGAIN)
        values = about_targets(others, some, _targets(request, pool, others, listed))
    else:
        some = tried.sets[:_N_REVALUED]
        answers = expected_answers(request.fitted, pool.objects, some, request.lapse)
        values = answers.entropy if request.how == "uncertain" else answers.information
    return some[np.argmax(values)], float(np.max(values))


def _targets(request: Request, pool: Pool, drawn: Drawn, listed: list[list[int]] | None) -> Targets:
    """Return the target sets; by default random pairs of the random objects of the pool."""
    if listed is None:
        # Pairs decide what is kept of larger sets, and have few answers: what is said about them is better estimated.
        pairs = np.array([request.rng.choice(pool.n_random, 2, replace=False) for _ in range(_N_PAIRS)])
        return Targets.of(drawn, pairs)
    place = {row: i for i, row in enumerate(pool.rows.tolist())}
    return Targets.of(drawn, np.array([[place[row] for row in one] for one in listed]))


def drawn_at(fitted: Fitted, objects: Objects, request: Request, n_draws: int) -> Drawn:
    """Draw utilities jointly at objects, and at the threshold where there is one."""
    if fitted.errors.has_threshold:
        rival = threshold_like(objects)
        objects = Objects(np.concatenate([objects.X, rival.X]), np.concatenate([objects.codes, rival.codes]))
    return Drawn.of(_sampled(fitted, objects, n_draws, request), fitted.errors, request.lapse)


def _sampled(fitted: Fitted, objects: Objects, n_draws: int, request: Request) -> np.ndarray:
    """Draw utilities (S, n, d) of the person who is asked."""
    number = int(request.rng.integers(2**32))
    if request.person is None:
        return joint_samples(fitted.posterior, objects, n_draws, number)
    return utilities_of_people(fitted, objects, n_draws, number, np.array([request.person]))[:, 0]


def searched(request: Request, pool: Pool, value: Callable[[np.ndarray], np.ndarray]) -> Found:
    """Search the sets of a pool which are not to be avoided."""
    place = {row: i for i, row in enumerate(pool.rows.tolist())}
    banned = {frozenset(place[row] for row in one) for one in request.avoid if one <= place.keys()}
    n = min(len(pool.rows), POOL)  # objects of targets come after these
    starts = np.array([request.rng.choice(n, request.size, replace=False) for _ in range(_N_STARTS)])
    return search(value, n, request.size, banned=banned, starts=starts, deadline=request.deadline)


def reason_for(says: str, value: float, complete: bool) -> str:
    """Say why a set was proposed."""
    if np.isnan(value):
        return "the objects were drawn at random: there was no time to search"
    limit = "" if complete else " (the best set found within the time limit)"
    return f"{says.format(f'{value / np.log(2):.2f} bits')}{limit}"


_SAYS = {
    "uncertain": "the answer is uncertain, with an entropy of {}",
    "information": "the answer is expected to say {} about the utilities",
    "predictive": "the answer is expected to say {} about the answer to another set",
}
_DESIGNS: dict[str, Callable[[Request, int], list[Proposed]]] = {
    "random": _random, "space-filling": _space_filling, "uncertain": _valued, "information": _valued,
    "predictive": _valued, "best": _best,
}  # fmt: skip
