"""Reading choice data given as an object table and sequences of row numbers or ids, one per set."""

from itertools import chain
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from choicegp.checks import (
    as_index,
    as_table,
    check_one_of,
    id_array,
    kind_of,
    listed,
    number_array,
    plain,
    unique_index,
)
from choicegp.errors import ChoiceGPError, Defect
from choicegp.reading.cells import yes_or_no
from choicegp.reading.defects import Draft, Findings, Missing, Places, is_missing, offsets_of
from choicegp.reading.encoding import FeatureEncoding, check_encoding

_SET_TYPES = (list, tuple, range, np.ndarray, pd.Series, pd.Index, set, frozenset)


class SetOptions(TypedDict, total=False):
    """The other options of the constructors from sets; see :meth:`ChoiceData.from_sets`."""

    by: Literal["row", "id"]
    object_ids: Any
    respondents: Any
    weights: Any
    set_ids: Any
    kinds: Any
    encoding: FeatureEncoding | None


class FlatSets(NamedTuple):
    """Sets laid end to end: ``labels`` as given (n,), ``sizes`` (m,) and ``of_set`` (n,)."""

    labels: pd.Index
    sizes: NDArray[np.int64]
    of_set: NDArray[np.int64]


def read_sets(
    X: pd.DataFrame | ArrayLike,
    shown: Any,
    chosen: Any,
    by: str = "row",
    object_ids: Any = None,
    respondents: Any = None,
    weights: Any = None,
    set_ids: Any = None,
    kinds: Any = None,
    encoding: FeatureEncoding | None = None,
    missing: Missing = "error",
) -> tuple[Draft, Findings]:
    """Read sets into a draft, and report objects that are unknown, missing or chosen without being shown."""
    check_one_of("by", by, ("row", "id"))
    table, ids, encoding, object_defects = _read_objects(X, object_ids, encoding, missing)
    sets = flatten(shown, "shown")
    m = len(sets.sizes)
    if m == 0:
        raise ChoiceGPError("there are no sets: shown is empty")
    named = np.arange(m) if set_ids is None else id_array(set_ids, m, "set_ids", "sets")
    nameless = np.flatnonzero(is_missing(named))
    if len(nameless):
        raise ChoiceGPError(f"set_ids has no id at position {nameless[0]}")
    unique_index(named, "every set needs an id of its own")
    findings = Findings(named)
    for position, defect in object_defects:
        findings.of_object(position, defect)
    rows = _object_rows(sets, ids, by, findings, "shown")
    flat_chosen = None
    if chosen is not None:
        kept = flatten(chosen, "chosen")
        if len(kept.sizes) != m:
            raise ChoiceGPError(f"shown has {m} sets but chosen has {len(kept.sizes)}")
        kept_rows = _object_rows(kept, ids, by, findings, "chosen")
        flat_chosen = _mark_chosen(sets, rows, kept, kept_rows, ids, findings)
    draft = Draft(
        X=table,
        object_ids=ids,
        encoding=encoding,
        flat_shown=rows,
        offsets=offsets_of(sets.sizes),
        flat_chosen=flat_chosen,
        set_ids=named,
        respondents=None if respondents is None else id_array(respondents, m, "respondents", "sets"),
        weights=None if weights is None else _weight_array(weights, m),
        kinds=None if kinds is None else id_array([kinds] * m if isinstance(kinds, str) else kinds, m, "kinds", "sets"),
    )
    return draft, findings


def read_pairs(X: pd.DataFrame | ArrayLike, pairs: Any, **options: Unpack[SetOptions]) -> tuple[Draft, Findings]:
    """Read pairs [winner, loser] into a draft; the options are as in :func:`read_sets`."""
    flat = flatten(pairs, "pairs")
    uneven = np.flatnonzero(flat.sizes != 2)
    if len(uneven):
        raise ChoiceGPError(
            f"pairs must have two columns, winner and loser; row {uneven[0]} has {flat.sizes[uneven[0]]}"
        )
    shown = flat.labels.to_numpy().reshape(-1, 2)
    return read_sets(X, shown, shown[:, :1], **options)


def read_best_worst(
    X: pd.DataFrame | ArrayLike, shown: Any, best: Any, worst: Any, **options: Unpack[SetOptions]
) -> tuple[Draft, Findings]:
    """Read sets of which the best and the worst object were marked; the options are as in :func:`read_sets`."""
    draft, findings = read_sets(X, shown, _singles(best, "best"), **options)
    worst_draft, worst_findings = read_sets(X, shown, _singles(worst, "worst"), **options)
    assert draft.flat_chosen is not None
    assert worst_draft.flat_chosen is not None
    known = set(findings.defects)
    for k, defect in worst_findings.found():
        if defect not in known:
            findings.in_sets(defect.kind, defect.problem, np.array([k]), [defect.object])
    sizes = np.diff(draft.offsets)
    both = np.repeat(np.arange(len(sizes)), sizes)[draft.flat_chosen & worst_draft.flat_chosen]
    findings.in_sets("best-is-worst", "one object is both the best and the worst", both)
    marks = draft.flat_chosen.astype(np.float64)
    marks[worst_draft.flat_chosen] = -1.0
    return draft._replace(flat_chosen=None, marks=marks), findings


def read_rankings(
    X: pd.DataFrame | ArrayLike, rankings: Any, shown: Any = None, **options: Unpack[SetOptions]
) -> tuple[Draft, Findings]:
    """Read rankings, the best object first; the options are as in :func:`read_sets`."""
    if isinstance(rankings, pd.DataFrame):
        rankings = _rankings_of_places(rankings)
    ranked = flatten(rankings, "rankings")
    ranks = (np.arange(len(ranked.labels)) - offsets_of(ranked.sizes)[:-1][ranked.of_set] + 1).astype(np.float64)
    if shown is None:
        draft, findings = read_sets(X, rankings, None, **options)
        return draft._replace(marks=ranks), findings
    draft, findings = read_sets(X, shown, rankings, **options)
    by = options.get("by", "row")
    rows = _object_rows(ranked, draft.object_ids, by, Findings(draft.set_ids), "rankings")
    keys = ranked.of_set * len(draft.object_ids) + rows
    sizes = np.diff(draft.offsets)
    places = np.repeat(np.arange(len(sizes)), sizes) * len(draft.object_ids) + draft.flat_shown
    rank_of = pd.Series(ranks[rows >= 0], index=keys[rows >= 0])
    found = pd.Series(places).map(rank_of[~rank_of.index.duplicated()])
    return draft._replace(flat_chosen=None, marks=np.asarray(found, dtype=np.float64)), findings


def _rankings_of_places(table: pd.DataFrame) -> list[list[Any]]:
    """Return the objects of each row, whose columns are the first place, the second place and so on."""
    empty = table.isna().to_numpy()
    gaps = np.flatnonzero(np.any(empty[:, :-1] & ~empty[:, 1:], axis=1))
    if len(gaps):
        raise ChoiceGPError(
            f"row {plain(table.index[gaps[0]])!r} of the rankings has an empty place before a filled one: only the "
            "last places may be empty"
        )
    rows = zip(table.to_numpy(dtype=object).tolist(), empty.tolist(), strict=True)
    return [[label for label, missing in zip(labels, gone, strict=True) if not missing] for labels, gone in rows]


def read_ratings(
    X: pd.DataFrame | ArrayLike, ratings: pd.DataFrame | ArrayLike, **options: Unpack[SetOptions]
) -> tuple[Draft, Findings]:
    """Read ratings, one row per person and one column per object; the options are as in :func:`read_sets`."""
    for name in ("respondents", "set_ids", "by", "kinds"):
        if name in options:
            raise ChoiceGPError(f"ratings have no option {name}: their rows are persons and their columns objects")
    people: Any = None
    if isinstance(ratings, pd.DataFrame):
        people = id_array(ratings.index, len(ratings), "the index of ratings", "persons")
        unique_index(people, "every person needs one row of ratings")
        given = options.get("object_ids")
        if given is None and isinstance(X, pd.DataFrame):
            given = X.index.to_numpy()
        if given is None and list(ratings.columns) != list(range(ratings.shape[1])):
            raise ChoiceGPError(
                "the columns of ratings name objects, but X has no ids: pass object_ids=, or ratings without names"
            )
        if given is not None:
            index = unique_index(np.asarray(given), "every object needs an id of its own")
            unknown = [name for name in ratings.columns if name not in index]
            if unknown:
                raise ChoiceGPError(f"there are ratings of {listed(unknown)}, but no such object in X")
            ratings = ratings.reindex(columns=index)
    table = as_table(ratings, "ratings")
    people = np.arange(len(table)) if people is None else people
    n_objects = len(X) if isinstance(X, pd.DataFrame) else len(as_table(X))
    if table.shape[1] != n_objects:
        raise ChoiceGPError(f"ratings have {table.shape[1]} columns but there are {n_objects} objects")
    if np.isinf(table).any():
        raise ChoiceGPError("ratings must be finite numbers, or NaN where an object was not rated")
    rated = ~np.isnan(table)
    shown = [np.flatnonzero(row) for row in rated]
    draft, findings = read_sets(X, shown, None, **{**options, "respondents": people, "set_ids": people})
    return draft._replace(marks=table[rated]), findings


def read_yes_no(
    X: pd.DataFrame | ArrayLike, objects: Any, answers: Any, **options: Unpack[SetOptions]
) -> tuple[Draft, Findings]:
    """Read single objects that were accepted or not; the options are as in :func:`read_sets`."""
    shown = _singles(objects, "objects")
    accepted = yes_or_no(answers)
    if len(accepted) != len(shown):
        raise ChoiceGPError(f"there are {len(shown)} objects but {len(accepted)} answers")
    chosen = [one if yes else [] for one, yes in zip(shown, accepted, strict=True)]
    return read_sets(X, shown, chosen, **options)


def _singles(values: Any, name: str) -> list[list[Any]]:
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise ChoiceGPError(f"{name} must be a sequence of objects, not {kind_of(values)}")
    return [[plain(value)] for value in values]


def _read_objects(
    X: pd.DataFrame | ArrayLike, object_ids: Any, encoding: FeatureEncoding | None, missing: Missing
) -> tuple[NDArray[np.float64], NDArray[Any], FeatureEncoding, list[tuple[int, Defect]]]:
    """Return encoded features, ids, encoding and the defects (with positions) of an object table."""
    if encoding is not None:
        check_encoding(encoding)
    table = X if isinstance(X, pd.DataFrame) else as_table(X)
    if len(table) == 0:
        raise ChoiceGPError("X has no rows: there are no objects")
    if object_ids is None:
        object_ids = table.index if isinstance(table, pd.DataFrame) else np.arange(len(table))
        if isinstance(object_ids, pd.MultiIndex):
            raise ChoiceGPError("the index of X has several levels; objects need one id each: reset the index")
    ids = id_array(object_ids, len(table), "object_ids", "objects")
    places = Places(objects=ids)
    if encoding is None and isinstance(table, pd.DataFrame):
        encoding = FeatureEncoding.learn(table, places=places, missing=missing)
    elif encoding is None:
        if missing == "level" and np.isnan(np.asarray(table)).any():
            raise ChoiceGPError("missing='level' adds features with names: give the objects as a DataFrame")
        encoding = FeatureEncoding.plain(table.shape[1])
    features, defects = encoding.inspect(table, places=places)
    for i in np.flatnonzero(is_missing(ids)):
        defects.append((int(i), Defect("missing-id", f"the object at row {i} of X has no id")))
    return features, ids, encoding, defects


def _weight_array(values: Any, n: int) -> NDArray[np.float64]:
    """Return weights as a float array (n,); whether they are above 0 is checked with the sets."""
    array = number_array("weights", values, "; give one number per set")
    if array.ndim != 1:
        raise ChoiceGPError(f"weights must be a sequence of numbers, one per set, not {kind_of(values)}")
    if len(array) != n:
        raise ChoiceGPError(f"weights has {len(array)} numbers but there are {n} sets")
    return array


def flatten(sets: Any, name: str) -> FlatSets:
    """Lay sets end to end, whatever sequences they come in."""
    if hasattr(sets, "__array__") and not isinstance(sets, pd.Series):
        sets = np.asarray(_unmasked(sets))
        if sets.ndim == 2:
            # A list lets pandas see what objects there are: whole numbers, words or both.
            labels = sets.ravel().tolist() if sets.dtype == object else sets.ravel()
            return _flat(as_index(name, labels), np.full(sets.shape[0], sets.shape[1]))
    one_dimensional = isinstance(sets, np.ndarray) and sets.ndim == 1
    if not one_dimensional and not isinstance(sets, list | tuple | pd.Series):
        raise ChoiceGPError(f"{name} must be a list with one sequence of objects per set, not {kind_of(sets)}")
    parts = [_one_set(part, name, k) for k, part in enumerate(sets)]
    sizes = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    filled = [part for part in parts if len(part)]
    # Arrays of different types would be joined as text or floats, so only those of one type are.
    kinds = {part.dtype.kind if isinstance(part, np.ndarray) else None for part in filled}
    if kinds and kinds <= {"i"}:
        return _flat(as_index(name, np.concatenate(filled)), sizes)
    return _flat(as_index(name, list(chain.from_iterable(filled))), sizes)


def _unmasked(array: Any) -> Any:
    """Put None in the place of masked entries, which NumPy would take for what is behind the mask."""
    if not np.ma.is_masked(array):
        return array
    values = np.ma.getdata(array).astype(object)
    values[np.ma.getmaskarray(array)] = None
    return values


def _one_set(part: Any, name: str, k: int) -> Any:
    part = _unmasked(part)
    if not isinstance(part, _SET_TYPES) and hasattr(part, "__array__"):
        part = np.asarray(part)
    if not isinstance(part, _SET_TYPES) or (isinstance(part, set | frozenset) and name == "shown"):
        hint = " (its order is not fixed; use a list)" if isinstance(part, set | frozenset) else ""
        raise ChoiceGPError(f"{name}[{k}] must be a list of objects, not {kind_of(part)}{hint}")
    if isinstance(part, np.ndarray) and part.ndim != 1:
        raise ChoiceGPError(f"{name}[{k}] must have one dimension, not {part.ndim}")
    return part


def _flat(labels: pd.Index, sizes: NDArray[np.int64]) -> FlatSets:
    return FlatSets(labels, sizes, np.repeat(np.arange(len(sizes)), sizes))


def _object_rows(sets: FlatSets, ids: NDArray[Any], by: str, findings: Findings, name: str) -> NDArray[np.int64]:
    """Rows of the object table, -1 where a label names no object (which is reported)."""
    missing = np.zeros(len(sets.labels), dtype=bool)
    if len(sets.labels) == 0:
        return np.zeros(0, dtype=np.int64)
    if by == "row":
        labels = row_numbers(sets, name, "X", "use by='id' for ids")
        known = (labels >= 0) & (labels < len(ids))
        rows = np.full(len(labels), -1, dtype=np.int64)  # labels may be unsigned, which have no -1
        rows[known] = labels[known]
        problem = f"the object is {name}, but X has only rows 0 to {len(ids) - 1}"
    else:
        index = unique_index(ids, "with by='id' every object needs an id of its own")
        try:
            rows = np.asarray(index.get_indexer(sets.labels), dtype=np.int64)
        except TypeError as error:
            raise ChoiceGPError(f"{name} holds things that cannot be ids (lists or dicts)") from error
        missing = is_missing(sets.labels)
        rows[missing] = -1
        problem = f"the object is {name}, but no object has this id (an example of an id is {plain(ids[0])!r})"
    gone = np.flatnonzero(missing)
    findings.in_sets("missing-id", f"an id among the {name} is missing", sets.of_set[gone])
    unknown = np.flatnonzero((rows < 0) & ~missing)
    findings.in_sets("unknown-object", problem, sets.of_set[unknown], sets.labels[unknown])
    return rows


def row_numbers(sets: FlatSets, name: str, table: str, advice: str) -> NDArray[np.integer]:
    """Return the labels as an array; raise an error when they are not whole numbers, as rows of a table are."""
    if len(sets.labels) == 0:
        return np.zeros(0, dtype=np.int64)
    if sets.labels.dtype.kind in "iu":
        return sets.labels.to_numpy()
    labels = sets.labels.tolist()
    # A missing one comes first: it is what makes the numbers around it floats.
    for i in (*np.flatnonzero(sets.labels.isna()), *range(len(labels))):
        label = labels[i]
        if isinstance(label, bool | np.bool_) or not isinstance(label, int | np.integer):
            held = f"{name}[{sets.of_set[i]}] holds {plain(label)!r} ({kind_of(label)})"
            raise ChoiceGPError(f"{held} instead of a row number of {table}; {advice}")
    raise ChoiceGPError(f"{name} must hold row numbers of {table}, not numbers of type {sets.labels.dtype}")


def _mark_chosen(
    sets: FlatSets,
    rows: NDArray[np.int64],
    kept: FlatSets,
    kept_rows: NDArray[np.int64],
    ids: NDArray[Any],
    findings: Findings,
) -> NDArray[np.bool_]:
    """Mark the chosen among the shown, and report what is chosen twice or without being shown."""
    shown_keys = np.where(rows >= 0, sets.of_set * len(ids) + rows, -1)
    known = np.flatnonzero(kept_rows >= 0)
    keys = kept.of_set[known] * len(ids) + kept_rows[known]
    again = known[pd.Series(keys).duplicated().to_numpy()]
    problem = "the object is listed twice among the chosen"
    findings.in_sets("duplicate-object", problem, kept.of_set[again], ids[kept_rows[again]])
    absent = known[~_is_in(keys, shown_keys)]
    problem = "the object is chosen but was not shown"
    findings.in_sets("chosen-not-shown", problem, kept.of_set[absent], ids[kept_rows[absent]])
    return _is_in(shown_keys, keys)


def _is_in(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    # Hashing: many times faster than NumPy's sorting at millions of keys.
    return pd.Series(keys).isin(others).to_numpy()
