"""Joining data sets into one, and taking their sets apart."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from choicegp.checks import id_array, kind_of
from choicegp.data.covariates import joined_covariates
from choicegp.errors import ChoiceGPError
from choicegp.reading.defects import Draft, offsets_of
from choicegp.reading.encoding import FeatureEncoding
from choicegp.reading.long import group_equal_rows
from choicegp.reading.questions import singles

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData


def joined(parts: "Sequence[ChoiceData]") -> dict[str, Any]:
    """Return the fields of ``ChoiceData`` for several data sets; see ``ChoiceData.concat``."""
    if not isinstance(parts, list | tuple) or not parts:
        raise ChoiceGPError(f"concat needs a list of choice data, not {kind_of(parts) if parts else 'an empty one'}")
    for part in parts:
        if not hasattr(part, "flat_shown"):
            raise ChoiceGPError(f"concat needs a list of choice data, but it holds {kind_of(part)}")
    remedies = {"flat_chosen": "leave out those without", "respondents": "give respondents=... to those without"}
    for name, what in (("flat_chosen", "choices"), ("respondents", "respondents")):
        if len({getattr(part, name) is None for part in parts}) > 1:
            raise ChoiceGPError(f"some of these data have {what} and others do not: to join them, {remedies[name]}")
    encoding = _encoding(parts)
    X = np.concatenate([part.with_encoding(encoding).X for part in parts])
    ids = id_array([each for part in parts for each in part.object_ids.tolist()], len(X), "object_ids", "objects")
    group, first = group_equal_rows(X, pd.factorize(ids, use_na_sentinel=False)[0].astype(np.int64))
    starts = np.cumsum([0, *(len(part.X) for part in parts)])
    shown = [group[part.flat_shown + start] for part, start in zip(parts, starts[:-1], strict=True)]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])

    def every(name: str, default: Any = None) -> Any:
        found = [getattr(part, name) for part in parts]
        if all(values is None for values in found):
            return None
        full = [np.full(len(part), default) if v is None else v for part, v in zip(parts, found, strict=True)]
        return np.concatenate([values.astype(object) if default == "keep" else values for values in full])

    respondents = every("respondents")
    return {
        "X": X[first],
        "flat_shown": np.concatenate(shown),
        "offsets": offsets_of(sizes),
        "flat_chosen": every("flat_chosen"),
        "object_ids": ids[first],
        "set_ids": _set_ids(parts),
        "encoding": encoding,
        "respondents": respondents,
        "weights": every("weights", 1.0),
        "kinds": every("kinds", "keep"),
        "skipped": tuple(defect for part in parts for defect in part.skipped),
        "covariates": joined_covariates([part.covariates for part in parts]),
    }


def _encoding(parts: "Sequence[ChoiceData]") -> FeatureEncoding:
    first = parts[0].encoding
    if all(part.encoding == first for part in parts):
        return first
    names = [column.name for column in first.columns]
    tables = []
    for part in parts:
        table = part.encoding.decode(part.X)
        if set(table.columns) != set(names):
            raise ChoiceGPError("the data have different features: they cannot be joined")
        tables.append(table[names])
    together = pd.concat([table.astype(object) for table in tables], ignore_index=True).infer_objects()
    missing = any(column.fill is not None for part in parts for column in part.encoding.columns)
    return FeatureEncoding.learn(together, missing="level" if missing else "error")


def _set_ids(parts: "Sequence[ChoiceData]") -> Any:
    ids = [each for part in parts for each in part.set_ids.tolist()]
    if len(set(ids)) < len(ids):
        ids = [f"{i}/{each}" for i, part in enumerate(parts, 1) for each in part.set_ids.tolist()]
    return id_array(ids, len(ids), "set_ids", "sets")


def one_by_one(data: "ChoiceData") -> "ChoiceData":
    """Ask of every object that a set shows by itself.

    Examples
    --------
    >>> from choicegp import ChoiceData
    >>> one_by_one(ChoiceData.from_sets([[1.0], [2.0]], [[0, 1], [1]])).set_ids.tolist()
    ['0:1', '0:2', '1:1']
    """
    draft = Draft(**{name: getattr(data, name) for name in Draft._fields if name not in ("rows", "marks")})
    return replace(data, **singles(draft).parts)
