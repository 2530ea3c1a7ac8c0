"""Choice data taken apart and joined: which sets an index selects, training and test parts, and single objects."""

import contextlib
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import check_one_of, id_array, kind_of, seed
from choicegp.data.covariates import joined_covariates
from choicegp.errors import ChoiceGPError
from choicegp.reading.defects import Draft, offsets_of
from choicegp.reading.encoding import FeatureEncoding
from choicegp.reading.long import group_equal_rows
from choicegp.reading.questions import singles

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData


def set_positions(key: Any, m: int) -> NDArray[np.int64]:
    """Return the positions that an index selects among ``m`` sets.

    The index is an int, a slice, a sequence of int, a bool mask, or (index, Ellipsis) as scikit-learn writes it.

    Examples
    --------
    >>> set_positions(slice(1, None), 3)
    array([1, 2])
    """
    if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
        key = key[0]
    if isinstance(key, slice):
        try:
            positions = np.arange(m)[key]
        except TypeError as error:
            raise ChoiceGPError(f"sets cannot be sliced by {key}; use whole numbers") from error
    elif isinstance(key, tuple | str | bytes | dict) or key is None:
        raise ChoiceGPError(f"sets are selected by position (a number, a list, a slice or a mask), not by {key!r}")
    else:
        positions = _listed_positions(key, m)
    if len(positions) == 0:
        raise ChoiceGPError("no sets are selected")
    return positions


def _listed_positions(key: Any, m: int) -> NDArray[np.int64]:
    if not isinstance(key, bool | np.bool_):
        with contextlib.suppress(TypeError):
            key = [operator.index(key)]
    try:
        array = np.asarray(key)
    except (ValueError, TypeError) as error:
        raise ChoiceGPError("sets are selected by a flat list of positions") from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise ChoiceGPError(f"sets are selected by whole numbers or a mask, not by {kind_of(key)} of {array.dtype}")
    if array.dtype.kind == "b":
        if len(array) != m:
            raise ChoiceGPError(f"the mask has {len(array)} entries but there are {m} sets")
        return np.flatnonzero(array)
    outside = array[(array < -m) | (array >= m)]
    if len(outside):
        raise ChoiceGPError(f"there is no set at position {outside[0]}: there are {m} sets, counted from 0")
    return np.where(array < 0, array + m, array).astype(np.int64)


def split_positions(
    m: int, respondents: NDArray[Any] | None, test_size: float | int, by: str, random_state: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the positions of the training and the test sets, each in their old order; see ``ChoiceData.split``."""
    check_one_of("by", by, ("set", "respondent"))
    if by == "set":
        unit = np.arange(m)
    elif respondents is None:
        raise ChoiceGPError("the data have no respondents to split by; use by='set'")
    else:
        unit = pd.factorize(respondents)[0]
    n_units = int(unit.max()) + 1
    n_test = _n_test(test_size, n_units, f"{by}s")
    generator = np.random.default_rng(seed(random_state))
    in_test = np.zeros(n_units, dtype=bool)
    in_test[generator.permutation(n_units)[:n_test]] = True
    return np.flatnonzero(~in_test[unit]), np.flatnonzero(in_test[unit])


def _n_test(test_size: float | int, n: int, what: str) -> int:
    if isinstance(test_size, bool | np.bool_) or not isinstance(test_size, int | float | np.integer | np.floating):
        raise ChoiceGPError(f"test_size must be a share between 0 and 1 or a number of {what}, not {test_size!r}")
    if n < 2:
        raise ChoiceGPError(f"at least two {what} are needed for a split; there is {n}")
    if isinstance(test_size, int | np.integer):
        if not 1 <= test_size < n:
            raise ChoiceGPError(f"test_size must be from 1 to {n - 1} {what}, not {test_size}")
        return int(test_size)
    if not 0 < test_size < 1:
        raise ChoiceGPError(f"test_size must be a share between 0 and 1 (or a whole number), not {test_size}")
    return min(max(round(test_size * n), 1), n - 1)


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
