"""What analysts ask of shares: elasticities, what a feature is worth, and where people go when an object is withdrawn.

Each number is found in every joint draw of all people's utilities, from the shares of that draw, and reported with the
interval over draws.  Objects and their changed variants are drawn together, so that differences have no sampling noise
of their own.
"""

from typing import Any

import numpy as np
import pandas as pd

from choicegp.checks import kind_of, listed, number_option
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.prediction.assortments import Market, changed, column_named, numbers_of, one_assortment
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
    market = _enumerable(one_assortment(fitted, assortment))
    rows = market.rows[0]
    a = len(rows)
    values = _known_numbers(fitted, market, feature)
    if np.any(values == 0.0):
        zero = [i for i, value in zip(market.ids_of(0), values, strict=True) if value == 0.0]
        raise ChoiceGPError(
            f"feature {feature!r} is 0 for {listed(zero)}: a relative change of it is none, and there is no elasticity"
        )
    variants = [changed(fitted.encoding, market.X[rows], {feature: values * (1.0 + h)}) for h in (step, -step)]
    moved = market.with_variants(np.concatenate(variants), np.concatenate([rows, rows]))
    offered = [_replaced(rows, j, len(market.ids) + j + side * a) for j in range(a) for side in (0, 1)]
    drawn = [with_none(part, fitted) for part in share_draws(fitted, moved.offering(offered), asked)]
    width = np.log1p(step) - np.log1p(-step)
    objects = [*market.ids_of(0), *([NONE] if fitted.errors.has_threshold else [])]
    frames = []
    for j, object_id in enumerate(market.ids_of(0)):
        up, down = drawn[2 * j : 2 * j + 2]
        keep, take = ((np.log(more) - np.log(less)) / width for more, less in zip(up, down, strict=True))
        kinds = ["own" if k == j else "cross" for k in range(len(objects))]
        columns = {"changed": [object_id] * len(objects), "object": objects, "kind": kinds}
        frames.append(pd.DataFrame(columns | interval("keep", keep) | interval("take", take)))
    return pd.concat(frames, ignore_index=True), market


def worth(
    fitted: Fitted, feature: str, in_terms_of: str, change: Any, assortment: Any, asked: MarketOptions
) -> tuple[pd.DataFrame, Market]:
    """Return the change of price that leaves P(kept) as it was when a feature changes; and what was offered."""
    market = _enumerable(one_assortment(fitted, assortment))
    if feature == in_terms_of:
        raise ChoiceGPError(f"feature {feature!r} is worth itself: name two features")
    _check_judged(fitted, market)
    rows = market.rows[0]
    prices = _known_numbers(fitted, market, in_terms_of)
    moved = _moved(fitted, market, feature, change)
    shown = numbers_of(fitted.encoding, fitted.data.X[np.unique(fitted.data.flat_shown)], in_terms_of)
    low, high = np.nanmin(shown), np.nanmax(shown)
    if not low < high:
        raise ChoiceGPError(f"{in_terms_of!r} is the same for all objects of the training data: it says nothing")
    grid = np.linspace(low, high, _N_PRICES)
    found = []
    for j, row in enumerate(rows):
        priced = changed(fitted.encoding, np.repeat(moved[[j]], len(grid), axis=0), {in_terms_of: grid})
        tried = market.with_variants(priced, np.repeat(row, len(grid)))
        offered = [rows, *(_replaced(rows, j, len(market.ids) + k) for k in range(len(grid)))]
        kept = np.stack([part.keep[:, j] for part in share_draws(fitted, tried.offering(offered), asked)], axis=1)
        odds = np.log(np.clip(kept, _CERTAIN, 1.0)) - np.log(np.clip(1.0 - kept, _CERTAIN, 1.0))
        places = _nearest_roots(grid, odds[:, 1:] - odds[:, :1], prices[j])
        uncertain = np.abs(kept[:, 0] - 0.5) < 0.5 - _CERTAIN
        found.append(np.where(uncertain, places, np.nan) - prices[j])
    frame = pd.DataFrame([_worth_row(draws, in_terms_of, low, high) for draws in found])
    frame.insert(0, "object", market.ids_of(0))
    everything = market.with_variants(moved, rows)
    return frame, everything.offering([np.concatenate([rows, len(market.ids) + np.arange(len(rows))])])


def diversion(fitted: Fitted, object_id: Any, assortment: Any, asked: MarketOptions) -> tuple[pd.DataFrame, Market]:
    """Return where people go when an object is withdrawn, and what was offered."""
    market = _enumerable(one_assortment(fitted, assortment))
    rows, place = market.rows[0], market.place(object_id)
    others = np.delete(np.arange(len(rows)), place)
    if not len(others):
        raise ChoiceGPError(f"the assortment has no object beside {object_id!r}")
    diverted, instead = [], []
    for before, after in answers_of_people(fitted, market.offering([rows, rows[others]]), asked):
        old, new = (with_none(part, fitted)[1] for part in (before, after))
        gained = (new - np.delete(old, place, axis=-1)).mean(axis=1)
        diverted.append(gained / before.take[..., place].mean(axis=1, keepdims=True))
        weight = before.keep[..., place]
        instead.append(np.einsum("sr,sra->sa", weight, new) / weight.sum(axis=1, keepdims=True))
    objects = [i for i in market.ids_of(0) if i != object_id] + ([NONE] if fitted.errors.has_threshold else [])
    columns: dict[str, Any] = {"object": objects}
    columns |= interval("diverted", np.concatenate(diverted)) | interval("instead", np.concatenate(instead))
    return pd.DataFrame(columns), market


def _enumerable(market: Market) -> Market:
    """Refuse a large assortment: its shares are estimated from drawn answers, and small differences are lost."""
    if len(market.rows[0]) > MAX_ENUMERATED:
        raise ChoiceGPError(
            f"the assortment has {len(market.rows[0])} objects: this number is for at most {MAX_ENUMERATED}"
        )
    return market


def _check_judged(fitted: Fitted, market: Market) -> None:
    if len(market.rows[0]) == 1 and not fitted.errors.has_threshold:
        raise ChoiceGPError("an object alone is always kept by a model without a threshold: add objects")


def _known_numbers(fitted: Fitted, market: Market, feature: str) -> np.ndarray:
    values = numbers_of(fitted.encoding, market.X[market.rows[0]], feature)
    if np.any(np.isnan(values)):
        missing = [i for i, value in zip(market.ids_of(0), values, strict=True) if np.isnan(value)]
        raise ChoiceGPError(f"feature {feature!r} is missing for {listed(missing)}")
    return values


def _replaced(rows: np.ndarray, place: int, by: int) -> np.ndarray:
    result = rows.copy()
    result[place] = by
    return result


def _moved(fitted: Fitted, market: Market, feature: str, change: Any) -> np.ndarray:
    """Return the encoded objects with a number raised by ``change``, or in the category ``change``."""
    column, X = column_named(fitted.encoding, feature), market.X[market.rows[0]]
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
    return {"worth": middle, "worth_low": left, "worth_high": right, "no_price": missing, "in_words": words}
