"""What analysts ask of shares: elasticities, what a feature is worth, and where people go when an object is withdrawn.

Each number is found in every joint draw of all people's utilities, from the shares of that draw, and reported with the
interval over draws.  Objects and their changed variants are drawn together, so that differences have no sampling noise
of their own.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from choicegp.checks import kind_of, listed, number_option, plain
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.prediction.assortments import Market, changed, column_named, numbers_of, usual_assortments
from choicegp.prediction.shares import NONE, MarketOptions, answers_of_people, interval, share_draws, with_none

_N_PRICES = 41
_FEW = 0.05  # share of draws that may have no price
_SAME = 1e-9  # differences of log odds that are none
_CERTAIN = 1e-6  # a share this close to 0 or 1 does not react to anything


def elasticities(
    fitted: Fitted, feature: str, assortment: Any, step: float, asked: MarketOptions
) -> tuple[pd.DataFrame, Market]:
    """Return own and cross elasticities, d log share / d log feature, by central differences; and what was offered."""
    step = number_option("step", step, 1e-4, 0.5)
    market = _enumerable(usual_assortments(fitted, assortment))
    values = _known_numbers(fitted, market, feature)
    if np.any(values == 0.0):
        zero = [plain(i) for i, value in zip(market.ids, values, strict=True) if value == 0.0]
        raise ChoiceGPError(
            f"feature {feature!r} is 0 for {listed(zero)}: a relative change of it is none, and there is no elasticity"
        )
    n = len(market.ids)
    variants = [changed(fitted.encoding, market.X, {feature: values * (1.0 + h)}) for h in (step, -step)]
    moved = market.with_variants(np.concatenate(variants), np.tile(np.arange(n), 2))
    places = [(number, j) for number, rows in enumerate(market.rows) for j in range(len(rows))]
    offered = [
        _replaced(market.rows[number], j, n + market.rows[number][j] + side * n)
        for number, j in places for side in (0, 1)
    ]  # fmt: skip
    drawn = [with_none(part, fitted) for part in share_draws(fitted, moved.offering(offered), asked)]
    # Of an object that is shown in several sets, the shares in all of them count: up, down; kept, taken.
    shares: dict[tuple[Any, Any], list[np.ndarray]] = {}
    for number_of_pair, (number, j) in enumerate(places):
        both = np.stack(drawn[2 * number_of_pair : 2 * number_of_pair + 2])  # (2, 2, S, a)
        objects = [*market.ids_of(number), *([NONE] if fitted.errors.has_threshold else [])]
        for k, other in enumerate(objects):
            shares.setdefault((objects[j], other), []).append(both[..., k])
    pairs = _in_order(shares)
    logs = np.log(np.stack([np.mean(shares[pair], axis=0) for pair in pairs], axis=-1))  # (2, 2, S, pairs)
    keep, take = (logs[0] - logs[1]) / (np.log1p(step) - np.log1p(-step))
    columns = {
        "changed": [changed_id for changed_id, _ in pairs], "object": [other for _, other in pairs],
        "kind": ["own" if changed_id == other else "cross" for changed_id, other in pairs],
    }  # fmt: skip
    return pd.DataFrame(columns | interval("kept", keep) | interval("taken", take)), market


def _in_order(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Put pairs of objects into the order in which objects come first, those who keep nothing last."""
    place = {one: number for number, one in enumerate(dict.fromkeys(first for first, _ in pairs))}
    return sorted(pairs, key=lambda pair: (place[pair[0]], place.get(pair[1], len(place))))


def worth(
    fitted: Fitted, feature: str, in_terms_of: str, change: Any, assortment: Any, asked: MarketOptions
) -> tuple[pd.DataFrame, Market]:
    """Return the change of price that leaves P(kept) as it was when a feature changes; and what was offered."""
    market = _enumerable(usual_assortments(fitted, assortment))
    if feature == in_terms_of:
        raise ChoiceGPError(f"feature {feature!r} is worth itself: name two features")
    _check_judged(fitted, market)
    prices = _known_numbers(fitted, market, in_terms_of)
    moved = _moved(fitted, market, feature, change)
    shown = numbers_of(fitted.encoding, fitted.data.X[np.unique(fitted.data.flat_shown)], in_terms_of)
    low, high = np.nanmin(shown), np.nanmax(shown)
    if not low < high:
        raise ChoiceGPError(f"{in_terms_of!r} is the same for all objects of the training data: it says nothing")
    grid = np.linspace(low, high, _N_PRICES)
    found = []
    for row in range(len(market.ids)):
        priced = changed(fitted.encoding, np.repeat(moved[[row]], len(grid), axis=0), {in_terms_of: grid})
        tried = market.with_variants(priced, np.repeat(row, len(grid)))
        of_sets = [(rows, rows.tolist().index(row)) for rows in market.rows if row in rows]
        offered = [
            _replaced(rows, j, own) for rows, j in of_sets for own in (row, *(len(market.ids) + np.arange(len(grid))))
        ]
        drawn = iter(share_draws(fitted, tried.offering(offered), asked))
        in_each = [np.stack([next(drawn).keep[:, j] for _ in range(1 + len(grid))], axis=1) for _, j in of_sets]
        kept = np.mean(in_each, axis=0)  # (S, 1 + grid)
        odds = np.log(np.clip(kept, _CERTAIN, 1.0)) - np.log(np.clip(1.0 - kept, _CERTAIN, 1.0))
        places = _nearest_roots(grid, odds[:, 1:] - odds[:, :1], prices[row])
        uncertain = np.abs(kept[:, 0] - 0.5) < 0.5 - _CERTAIN
        found.append(np.where(uncertain, places, np.nan) - prices[row])
    frame = pd.DataFrame([_worth_row(draws, in_terms_of, low, high) for draws in found])
    frame.insert(0, "object", [plain(i) for i in market.ids])
    everything = market.with_variants(moved, np.arange(len(market.ids)))
    return frame, everything.offering([np.arange(len(everything.ids))])


def diversion(fitted: Fitted, object_id: Any, assortment: Any, asked: MarketOptions) -> tuple[pd.DataFrame, Market]:
    """Return where people go when an object is withdrawn, and what was offered."""
    market = _enumerable(usual_assortments(fitted, assortment, object_id))
    places = [market.place(object_id, number) for number in range(len(market.rows))]
    if min(map(len, market.rows)) == 1:
        raise ChoiceGPError(f"the assortment has no object beside {object_id!r}")
    offered = [part for rows, place in zip(market.rows, places, strict=True) for part in (rows, np.delete(rows, place))]
    with_it = [np.delete(market.ids_of(number), place).tolist() for number, place in enumerate(places)]
    none = [NONE] if fitted.errors.has_threshold else []
    objects = [*dict.fromkeys(one for ids in with_it for one in ids), *none]
    n_draws = 0
    gained, weighted = np.zeros((2, asked.n_draws, len(objects)))
    taken, kept = np.zeros((2, asked.n_draws))
    for chunk in answers_of_people(fitted, market.offering(offered), asked):
        now = slice(n_draws, n_draws := n_draws + len(chunk[0].keep))
        for number, place in enumerate(places):
            old, new = (with_none(part, fitted)[1] for part in chunk[2 * number : 2 * number + 2])
            columns = [objects.index(one) for one in [*with_it[number], *none]]
            weight = chunk[2 * number].keep[..., place]
            gained[now, columns] += (new - np.delete(old, place, axis=-1)).mean(axis=1)
            weighted[now, columns] += np.einsum("sr,sra->sa", weight, new) / weight.shape[1]
            taken[now] += old[..., place].mean(axis=1)
            kept[now] += weight.mean(axis=1)
    frame: dict[str, Any] = {"object": objects}
    frame |= interval("diverted", gained / taken[:, None]) | interval("instead", weighted / kept[:, None])
    return pd.DataFrame(frame), market


def _enumerable(market: Market) -> Market:
    """Refuse a large assortment: its shares are estimated from drawn answers, and small differences are lost."""
    if (largest := max(map(len, market.rows))) > MAX_ENUMERATED:
        raise ChoiceGPError(f"the assortment has {largest} objects: this number is for at most {MAX_ENUMERATED}")
    return market


def _check_judged(fitted: Fitted, market: Market) -> None:
    if min(map(len, market.rows)) == 1 and not fitted.errors.has_threshold:
        raise ChoiceGPError("an object alone is always kept by a model without a threshold: add objects")


def _known_numbers(fitted: Fitted, market: Market, feature: str) -> np.ndarray:
    values = numbers_of(fitted.encoding, market.X, feature)
    if np.any(np.isnan(values)):
        missing = [plain(i) for i, value in zip(market.ids, values, strict=True) if np.isnan(value)]
        raise ChoiceGPError(f"feature {feature!r} is missing for {listed(missing)}")
    return values


def _replaced(rows: np.ndarray, place: int, by: int) -> np.ndarray:
    result = rows.copy()
    result[place] = by
    return result


def _moved(fitted: Fitted, market: Market, feature: str, change: Any) -> np.ndarray:
    """Return the encoded objects with a number raised by ``change``, or in the category ``change``."""
    column, X = column_named(fitted.encoding, feature), market.X
    if column.kind == "categorical":
        if change not in column.categories:
            raise ChoiceGPError(
                f"feature {feature!r} has categories: change must be one of {listed(column.categories)}"
            )
        return changed(fitted.encoding, X, {feature: change})
    if isinstance(change, bool) or not isinstance(change, int | float | np.number) or not np.isfinite(change):
        raise ChoiceGPError(f"change must be a number, as feature {feature!r} is; got {kind_of(change)}")
    return changed(fitted.encoding, X, {feature: _known_numbers(fitted, market, feature) + float(change)})


def _nearest_roots(grid: np.ndarray, values: np.ndarray, current: float) -> np.ndarray:
    """Return where values (S, g) at a grid are zero, the place nearest to the current one; NaN where there is none.

    Values that are zero everywhere name no place.
    """
    first, second = values[:, :-1], values[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        places = grid[:-1] + np.diff(grid) * first / (first - second)
    crossing = (first * second <= 0.0) & (first != second)
    flat = np.all(np.abs(values) < _SAME, axis=1, keepdims=True)
    distance = np.where(crossing & ~flat, np.abs(places - current), np.inf)
    nearest = np.argmin(distance, axis=1)[:, None]
    found = np.take_along_axis(places, nearest, axis=1)[:, 0]
    return np.where(np.isfinite(np.take_along_axis(distance, nearest, axis=1)[:, 0]), found, np.nan)


def _worth_row(draws: np.ndarray, price: str, low: float, high: float) -> dict[str, Any]:
    """Summarise changes of price; there is no number where more than a few draws have none."""
    missing = float(np.mean(np.isnan(draws)))
    left, middle, right = np.nanquantile(draws, [0.025, 0.5, 0.975]) if missing < 1.0 else [np.nan] * 3
    words = f"{price} may change by {middle:.4g} (95% interval {left:.4g} to {right:.4g})"
    if missing > 0.0:
        without = f"in {100 * missing:.3g}% of the draws no {price} from {low:g} to {high:g} leaves P(kept) as it was"
        other = f"; in the others {words}" if missing < 1.0 else ""
        words = f"{'no such price: ' if missing > _FEW else ''}{without}{other}"
    if missing > _FEW:
        left = middle = right = np.nan
    return {"worth": middle, "worth_lower": left, "worth_upper": right, "no_price": missing, "in_words": words}
