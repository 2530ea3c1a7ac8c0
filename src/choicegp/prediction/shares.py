"""Shares: how many people keep each object of an assortment, and how many would take it.

In every joint draw of all people's utilities, each person keeps an object with a probability that includes the errors
of answers, by the model's own likelihood.  The share of a draw is the mean over people; intervals are of shares over
draws.  A person who keeps several objects takes one of them by a stated rule, and who keeps nothing takes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import check_one_of, kind_of, listed, seed, whole_number
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.inference.respondents.posterior import NEW
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.model.prior import Objects, threshold_like
from choicegp.prediction.assortments import Market, changed, market_of, one_assortment
from choicegp.prediction.people import utilities_of_people
from choicegp.prediction.taking import TAKE_RULES, Taken, answered, check_offered

N_DRAWS = 400
N_NEW = 300
"""New people who stand for the population at large."""
NONE = "none"
_NUMBERS = 20_000_000  # utilities drawn at a time
_TOGETHER = 4_000_000  # utilities from which answers are found at a time
_MOST_TOGETHER = 400  # objects whose utilities are drawn jointly


class MarketOptions(NamedTuple):
    """Who is asked, how often utilities are drawn, and which of several kept objects is taken.

    Attributes
    ----------
    people : int ndarray (R,) or None
        Numbers of respondents, `NEW` for a new one; None for all respondents.
    n_draws : int
    seed : int
    take : {"equal", "best"}
    """

    people: np.ndarray | None
    n_draws: int
    seed: int
    take: str

    @classmethod
    def of(
        cls, fitted: Fitted, people: Any = None, n_draws: int = N_DRAWS, random_state: int | None = 0,
        take: str = "equal",
    ) -> "MarketOptions":  # fmt: skip
        """Check what a user asks for."""
        check_one_of("take", take, TAKE_RULES)
        return cls(_numbers(fitted, people), whole_number("n_draws", n_draws, 2), seed(random_state), take)


def _numbers(fitted: Fitted, people: Any) -> np.ndarray | None:
    if people is None:
        return None
    if fitted.study is None:
        raise ChoiceGPError(
            "this model pools the answers of all people: leave people= out, or use ChoiceGP(respondents='hierarchical')"
        )
    if isinstance(people, str):
        if people != "new":
            raise ChoiceGPError(f"people must be 'new' or a list of respondents; got {people!r}")
        if fitted.study.prior.alone:
            raise ChoiceGPError("with respondents='individual' nothing is known about new people: name respondents")
        return np.full(N_NEW, NEW)
    if not np.iterable(people) or not (people := list(people)):
        raise ChoiceGPError(f"people must be 'new' or a list of respondents; got {kind_of(people)}")
    numbers = fitted.study.numbers(people)
    unknown = [person for person, number in zip(people, numbers, strict=True) if number == NEW]
    if unknown:
        raise ChoiceGPError(f"the model does not know the respondents {listed(unknown)}; people='new' is for new ones")
    return np.unique(numbers)


def shares(fitted: Fitted, assortments: Any, asked: MarketOptions) -> tuple[pd.DataFrame, Market]:
    """Return the shares of the objects of every assortment, and what was offered."""
    market = market_of(fitted, assortments)
    frames = []
    for some in _batches(market):
        for number, drawn in zip(some, share_draws(fitted, market, asked, some), strict=True):
            ids = market.ids_of(number)
            keep, take = with_none(drawn, fitted)
            frames.append(pd.DataFrame({
                "set": [market.names[number]] * keep.shape[1],
                "object": [*ids, NONE][: keep.shape[1]],
                **interval("kept", keep), **interval("taken", take),
            }))  # fmt: skip
    return pd.concat(frames, ignore_index=True), market


def what_if(fitted: Fitted, assortment: Any, changes: Any, asked: MarketOptions) -> tuple[pd.DataFrame, Market]:
    """Return shares before and after changes, and the differences, from the same draws; and what was offered."""
    market = one_assortment(fitted, assortment)
    if not isinstance(changes, Mapping):
        raise ChoiceGPError(
            "changes must be a dict from ids of objects to their new values, such as {'B': {'price': 799}}, or None "
            f"for an object that is withdrawn; got {kind_of(changes)}"
        )
    before = market.rows[0]
    after, kept = before.copy(), np.ones(len(before), bool)
    for object_id, values in changes.items():
        place = market.place(object_id)
        if values is None:
            kept[place] = False
        elif isinstance(values, Mapping):
            after[place] = len(market.ids)
            variant = changed(fitted.encoding, market.X[before[[place]]], values)
            market = market.with_variants(variant, before[[place]])
        else:
            raise ChoiceGPError(f"the changes of {object_id!r} must be a dict of features, or None; got {values!r}")
    if not kept.any():
        raise ChoiceGPError("nothing is left of the assortment")
    market = market.offering([before, after[kept]])
    first, second = (with_none(drawn, fitted) for drawn in share_draws(fitted, market, asked))
    places = [*np.flatnonzero(kept), *([len(kept)] if fitted.errors.has_threshold else [])]
    columns: dict[str, Any] = {"object": [*market.ids_of(0), NONE][: first[0].shape[1]]}
    for name, old, part in zip(("kept", "taken"), first, second, strict=True):
        new = np.zeros_like(old)  # what is withdrawn is neither kept nor taken
        new[:, places] = part
        columns |= {f"{name}_before": old.mean(axis=0), f"{name}_after": new.mean(axis=0)}
        columns |= interval(f"{name}_difference", new - old)
    return pd.DataFrame(columns), market


def with_none(drawn: Taken, fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """Return shares kept and taken (S, a), with a last column for those who keep nothing where there is a threshold."""
    if not fitted.errors.has_threshold:
        return drawn.keep, drawn.take
    keep, take = (np.concatenate([part, drawn.none[..., None]], axis=-1) for part in (drawn.keep, drawn.take))
    return keep, take


def interval(name: str, draws: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of a number: its mean over draws (axis 0), and the ends of its 95% interval."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return {name: draws.mean(axis=0), f"{name}_lower": low, f"{name}_upper": high}


def share_draws(fitted: Fitted, market: Market, asked: MarketOptions, some: list[int] | None = None) -> list[Taken]:
    """Return the shares (S, a) of all people in every draw, for each assortment or for some of them."""
    chunks = [
        [Taken(*(part.mean(axis=1) for part in taken)) for taken in chunk]
        for chunk in answers_of_people(fitted, market, asked, some)
    ]
    return [Taken(*map(np.concatenate, zip(*parts, strict=True))) for parts in zip(*chunks, strict=True)]


def answers_of_people(
    fitted: Fitted, market: Market, asked: MarketOptions, some: list[int] | None = None
) -> Iterator[list[Taken]]:
    """Yield, for a few draws at a time, the probabilities (s, R, a) of every person for each assortment."""
    rows = [market.rows[number] for number in (range(len(market.rows)) if some is None else some)]
    check_offered(max(map(len, rows)))
    objects, places = _distinct(fitted, market, np.concatenate(rows))
    places_of = np.split(places, np.cumsum([len(own) for own in rows])[:-1])
    if fitted.errors.has_threshold:
        own = threshold_like(objects)
        objects = Objects(np.concatenate([objects.X, own.X]), np.concatenate([objects.codes, own.codes]))
        places_of = [np.append(own, len(objects.X) - 1) for own in places_of]
    lapse = None if fitted.posterior.lapse is None else float(np.asarray(fitted.posterior.lapse))
    for u in _drawn(fitted, objects, asked):
        yield _answered(
            u, places_of, partial(answered, errors=fitted.errors, lapse=lapse, take=asked.take, seed=asked.seed)
        )


def _answered(u: np.ndarray, places_of: list[np.ndarray], answered: Callable[[np.ndarray], Taken]) -> list[Taken]:
    """Return the answers of people with utilities (s, R, n, d); assortments of the same size are worked on together."""
    s, n_people, _, d = u.shape
    result: list[Taken] = [Taken(*[np.empty(0)] * 3)] * len(places_of)
    for size in {len(own) for own in places_of}:
        numbers = [number for number, own in enumerate(places_of) if len(own) == size]
        # Of a large assortment, each person's answers are drawn: their number depends on the number of people.
        n_together = 1 if size > MAX_ENUMERATED else max(1, _TOGETHER // (s * n_people * size * d))
        for start in range(0, len(numbers), n_together):
            some = numbers[start : start + n_together]
            own = u[:, :, [places_of[number] for number in some]]  # (s, R, k, size, d)
            found = answered(own.reshape(s, n_people * len(some), size, d))
            parts = [part.reshape(s, n_people, len(some), *part.shape[2:]) for part in found]
            for place, number in enumerate(some):
                result[number] = Taken(*(part[:, :, place] for part in parts))
    return result


def _distinct(fitted: Fitted, market: Market, rows: np.ndarray) -> tuple[Objects, np.ndarray]:
    """Return the different objects of some rows, and the place of each row among them: equal ones are drawn once."""
    key = np.column_stack([market.X[rows], market.codes[rows] if fitted.has_effects else np.zeros(len(rows))])
    _, first, places = np.unique(key, axis=0, return_index=True, return_inverse=True)
    return Objects(*(part[rows[first]] for part in market.objects(fitted)[:2])), places.ravel()


def _drawn(fitted: Fitted, objects: Objects, asked: MarketOptions) -> Iterator[np.ndarray]:
    """Yield joint draws (s, R, n, d) of the utilities, as many at a time as memory allows."""
    n_people = 1 if fitted.study is None else len(fitted.study.ids) if asked.people is None else len(asked.people)
    per_draw = n_people * len(objects.X) * fitted.n_utilities
    n_chunks = -(-asked.n_draws // max(1, _NUMBERS // per_draw))
    size = -(-asked.n_draws // n_chunks)  # all chunks are of one size: one program serves them
    for chunk in range(n_chunks):
        own = asked.seed if n_chunks == 1 else int(np.random.SeedSequence([asked.seed, chunk]).generate_state(1)[0])
        u = utilities_of_people(fitted, objects, size, own, asked.people)[: asked.n_draws - chunk * size]
        if not np.all(np.isfinite(u)):
            raise ChoiceGPError("the utilities of objects this close to each other cannot be drawn: use a larger step")
        yield u


def _batches(market: Market) -> list[list[int]]:
    """Put assortments together, in their order, whose objects are few enough to be drawn jointly."""
    batches: list[list[int]] = [[]]
    together: set[int] = set()
    for number, rows in enumerate(market.rows):
        if batches[-1] and len(together | set(rows.tolist())) > _MOST_TOGETHER:
            batches.append([])
            together = set()
        batches[-1].append(number)
        together |= set(rows.tolist())
    return batches
