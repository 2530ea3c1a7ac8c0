"""Assortments: sets of objects that are offered together, and what changes in them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import counted, kind_of, listed, plain
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.model.prior import Objects
from choicegp.reading.encoding import FeatureColumn, FeatureEncoding

_MOST_SETS = 20  # of the training data, where no assortment is named


class Market(NamedTuple):
    """Objects, and the assortments in which they are offered.

    Attributes
    ----------
    X : ndarray (n, c)
        Encoded features of all objects.
    codes : int ndarray (n,)
        One number for each object id, as the model counts them.
    ids : tuple
        Ids of the objects.
    names : tuple
        Names of the assortments.
    rows : tuple of int ndarray
        The objects of each assortment.
    """

    X: np.ndarray
    codes: np.ndarray
    ids: tuple[Any, ...]
    names: tuple[Any, ...]
    rows: tuple[np.ndarray, ...]

    def objects(self, fitted: Fitted) -> Objects:
        """Return the objects as the posterior sees them."""
        return Objects((self.X - fitted.centre) / fitted.scale, self.codes)

    def ids_of(self, number: int) -> list[Any]:
        """Return the ids of the objects of one assortment."""
        return [plain(self.ids[row]) for row in self.rows[number]]

    def place(self, object_id: Any, number: int = 0) -> int:
        """Return the place of an object in an assortment."""
        ids = self.ids_of(number)
        if object_id not in ids:
            raise ChoiceGPError(f"the assortment has no object {object_id!r}; it has {listed(ids)}")
        return ids.index(object_id)

    def offering(self, rows: list[np.ndarray]) -> "Market":
        """Return the same objects in other assortments."""
        return self._replace(names=tuple(range(len(rows))), rows=tuple(rows))

    def only_offered(self) -> "Market":
        """Leave out objects that no assortment offers; the others have the order in which they are offered."""
        rows = np.array(list(dict.fromkeys(np.concatenate(self.rows).tolist())), int)
        place = np.empty(len(self.ids), int)
        place[rows] = np.arange(len(rows))
        ids = tuple(self.ids[row] for row in rows)
        return Market(self.X[rows], self.codes[rows], ids, self.names, tuple(place[own] for own in self.rows))

    def with_variants(self, X: np.ndarray, of: np.ndarray) -> "Market":
        """Add variants of objects, which keep the ids of the rows ``of`` whose variants they are."""
        ids = (*self.ids, *(self.ids[row] for row in of))
        return self._replace(X=np.concatenate([self.X, X]), codes=np.concatenate([self.codes, self.codes[of]]), ids=ids)


def market_of(fitted: Fitted, assortments: Any) -> Market:
    """Read assortments: a ChoiceData, or a dict from names to tables of features or lists of ids of shown objects."""
    if isinstance(assortments, ChoiceData):
        data = assortments.with_encoding(fitted.encoding)
        if len(data) == 0:
            raise ChoiceGPError("there is no assortment")
        return Market(
            data.X, np.asarray(fitted.objects(data).codes), tuple(data.object_ids), tuple(data.set_ids), data.shown
        )
    if not isinstance(assortments, Mapping):
        raise ChoiceGPError(
            "assortments must be a ChoiceData, or a dict from the name of each assortment to a DataFrame of its "
            f"objects' features or a list of ids of objects of the training data; got {kind_of(assortments)}. One "
            "assortment needs a name too: {'today': objects}"
        )
    if not assortments:
        raise ChoiceGPError("there is no assortment")
    known = dict(fitted.codes)
    parts = [_objects_of(fitted, name, offered, known) for name, offered in assortments.items()]
    ends = np.cumsum([len(ids) for _, _, ids in parts])
    return Market(
        np.concatenate([X for X, _, _ in parts]),
        np.concatenate([codes for _, codes, _ in parts]),
        tuple(i for _, _, ids in parts for i in ids),
        tuple(assortments),
        tuple(np.split(np.arange(ends[-1]), ends[:-1])),
    )


def one_assortment(fitted: Fitted, assortment: Any) -> Market:
    """Read one assortment: a table, a list of ids, or a ChoiceData of one set; None is all shown objects, if few."""
    if assortment is None:
        shown = np.unique(fitted.data.flat_shown)
        if len(shown) > MAX_ENUMERATED:
            raise ChoiceGPError(
                f"the training data have {len(shown)} objects, which are no assortment: pass assortment=, a DataFrame "
                "of features or a list of ids"
            )
        return _training_market(fitted, [shown], ("all",))
    is_named = isinstance(assortment, ChoiceData | Mapping)
    market = market_of(fitted, assortment if is_named else {"assortment": assortment})
    if len(market.rows) != 1:
        raise ChoiceGPError(f"one assortment is needed; got {len(market.rows)}")
    return market


def usual_assortments(fitted: Fitted, assortment: Any, with_object: Any = None) -> Market:
    """Read one assortment; where none is named and objects are many, return sets of the training data.

    Shares are averaged over these sets: at most `_MOST_SETS` different ones, spread evenly over the data, or of those
    with one object.
    """
    data = fitted.data
    if assortment is not None or len(np.unique(data.flat_shown)) <= MAX_ENUMERATED:
        return one_assortment(fitted, assortment).only_offered()
    if with_object is not None and with_object not in fitted.codes:
        raise ChoiceGPError(f"the training data have no object {with_object!r}: pass assortment=, which has it")
    least = 1 if fitted.errors.has_threshold and with_object is None else 2
    different = {tuple(sorted(own.tolist())): own for own in data.shown if least <= len(own) <= MAX_ENUMERATED}
    sets = [own for own in different.values() if with_object is None or with_object in data.object_ids[own].tolist()]
    if not sets:
        which = f"with {with_object!r} " if with_object is not None else ""
        raise ChoiceGPError(
            f"no set of the training data {which}has {least} to {MAX_ENUMERATED} objects: pass assortment=, a "
            "DataFrame of features or a list of ids"
        )
    spread = np.linspace(0, len(sets) - 1, min(len(sets), _MOST_SETS)).astype(int)
    return _training_market(fitted, [sets[place] for place in spread], tuple(range(len(spread))))


def _training_market(fitted: Fitted, sets: list[np.ndarray], names: tuple[Any, ...]) -> Market:
    """Offer sets of row numbers of the training objects."""
    data, ids = fitted.data, tuple(fitted.data.object_ids)
    codes = np.array([fitted.codes.get(i, -1) for i in ids])
    return Market(data.X, codes, ids, names, tuple(sets)).only_offered()


def _objects_of(
    fitted: Fitted, name: Any, offered: Any, known: dict[Any, int]
) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return encoded features, codes and ids of the objects of one assortment."""
    if isinstance(offered, pd.DataFrame):
        ids = offered.index.tolist()
        X, codes = fitted.encoding.encode(offered), np.asarray(fitted.objects(offered, known).codes)
    elif isinstance(offered, str | bytes) or not np.iterable(offered):
        raise ChoiceGPError(
            f"assortment {name!r} must be a DataFrame of features, whose index holds the ids, or a list of ids of "
            f"objects of the training data; got {kind_of(offered)}"
        )
    else:
        ids = [plain(i) for i in offered]
        rows = _rows_of(fitted.data, ids)
        X, codes = fitted.data.X[rows], np.array([fitted.codes[i] for i in ids], int)
    if not ids:
        raise ChoiceGPError(f"assortment {name!r} has no object")
    if len(set(ids)) < len(ids):
        repeated = sorted({i for i in ids if ids.count(i) > 1}, key=str)
        raise ChoiceGPError(f"assortment {name!r} has objects twice: {listed(repeated)}")
    return X, codes, ids


def _rows_of(data: ChoiceData, ids: list[Any]) -> np.ndarray:
    """Find objects of the training data by their ids."""
    rows: dict[Any, list[int]] = {}
    for row, i in enumerate(data.object_ids.tolist()):
        rows.setdefault(i, []).append(row)
    unknown = [i for i in ids if i not in rows]
    if unknown:
        raise ChoiceGPError(
            f"the training data have no object {listed(unknown)}: describe new objects by a DataFrame of features"
        )
    several = [i for i in ids if len(rows[i]) > 1]
    if several:
        raise ChoiceGPError(
            f"the features of {counted(len(several), 'object')} differ between sets of the training data "
            f"({listed(several)}): pass a DataFrame of features"
        )
    return np.array([rows[i][0] for i in ids], int)


def changed(encoding: FeatureEncoding, X: np.ndarray, changes: Mapping[str, Any]) -> np.ndarray:
    """Return encoded objects with other values of some features."""
    table = encoding.decode(X)
    for name, values in changes.items():
        column_named(encoding, name)
        table[name] = values
    return encoding.encode(table)


def column_named(encoding: FeatureEncoding, name: Any) -> FeatureColumn:
    """Return the feature of a name."""
    for column in encoding.columns:
        if column.name == name:
            return column
    raise ChoiceGPError(f"there is no feature {name!r}; the features are {listed(c.name for c in encoding.columns)}")


def numbers_of(encoding: FeatureEncoding, X: np.ndarray, name: Any) -> np.ndarray:
    """Return the values of a numeric feature; refuse one of categories."""
    if column_named(encoding, name).kind != "numeric":
        numeric = [column.name for column in encoding.columns if column.kind == "numeric"]
        raise ChoiceGPError(f"feature {name!r} has categories, no numbers; numeric features: {listed(numeric)}")
    return encoding.decode(X)[name].to_numpy(float)
