"""Finding everything that is wrong with choice data, and leaving it out on request.

Constructors put what they read into a :class:`Draft` and report into :class:`Findings` what only they can
see; :func:`settle` finds the rest, then raises or leaves the defective sets out.
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import check_one_of, plain
from choicegp.errors import ChoiceDataError, Defect
from choicegp.reading.columns import is_missing
from choicegp.reading.encoding import FeatureEncoding

OnError = Literal["raise", "skip"]

MAX_SET_SIZE = 10_000

# After one of these it cannot be told whether anything was chosen: saying so too would mislead.
_CHOICE_UNCLEAR = ("chosen-not-shown", "unknown-object", "wrong-flag", "missing-id", "empty-set")


class Draft(NamedTuple):
    """Choice data as read, before they are checked.

    Attributes
    ----------
    X : float array (t, k)
        Encoded features; rows of spoiled objects may hold NaN.
    object_ids : array (t,)
    encoding : FeatureEncoding
    flat_shown : int array (n,)
        Rows of ``X``, set after set; -1 for an object that cannot be told (a finding says why).
    offsets : int array (m + 1,)
    flat_chosen : bool array (n,) or None
    set_ids : array (m,)
    respondents : array (m,) or None
    weights : float array (m,) or None
    rows : int array (n,) or None
        Where each entry was read.
    """

    X: NDArray[np.float64]
    object_ids: NDArray[Any]
    encoding: FeatureEncoding
    flat_shown: NDArray[np.int64]
    offsets: NDArray[np.int64]
    flat_chosen: NDArray[np.bool_] | None
    set_ids: NDArray[Any]
    respondents: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None
    rows: NDArray[np.int64] | None = None


class Findings:
    """The defects found so far, and the sets and objects they spoil.

    Parameters
    ----------
    set_ids : array (m,)
    n_objects : int
    source : str, optional
        Where the data came from and how its rows are counted.
    set_rows : int array (m,), optional
        The row where each set begins.
    """

    def __init__(
        self,
        set_ids: NDArray[Any],
        n_objects: int,
        source: str | None = None,
        set_rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.set_ids = set_ids
        self.source = source
        self.set_rows = set_rows
        self.spoiled_sets = np.zeros(len(set_ids), dtype=bool)
        self.spoiled_objects = np.zeros(n_objects, dtype=bool)
        self._of_kind: dict[str, NDArray[np.bool_]] = {}
        self._found: list[tuple[int, int, Defect]] = []

    def in_sets(
        self,
        kind: str,
        problem: str | Sequence[str],
        sets: NDArray[np.int64],
        objects: Any = None,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Report one defect per entry of ``sets``, in the object and at the row of the same position."""
        if len(sets) == 0:
            return
        self.spoiled_sets[sets] = True
        self._of_kind.setdefault(kind, np.zeros(len(self.set_ids), dtype=bool))[sets] = True
        if rows is None and self.set_rows is not None:
            rows = self.set_rows[sets]
        for i, k in enumerate(sets):
            defect = Defect(
                kind,
                problem if isinstance(problem, str) else problem[i],
                None if rows is None else int(rows[i]),
                plain(self.set_ids[k]),
                None if objects is None else plain(objects[i]),
            )
            self._found.append((-1 if defect.row is None else defect.row, int(k), defect))

    def of_object(self, position: int, defect: Defect) -> None:
        """Report a defect of an object itself; the sets that show it are left out with it."""
        self.spoiled_objects[position] = True
        self._found.append((-1 if defect.row is None else defect.row, -1, defect))

    def of_nothing(self, defect: Defect) -> None:
        """Report a defect that belongs to no known set or object."""
        self._found.append((-1 if defect.row is None else defect.row, -1, defect))

    def sets_with(self, *kinds: str) -> NDArray[np.bool_]:
        """Mark the sets that have a defect of one of these kinds."""
        marks = [self._of_kind[kind] for kind in kinds if kind in self._of_kind]
        return np.logical_or.reduce(marks) if marks else np.zeros(len(self.set_ids), dtype=bool)

    @property
    def defects(self) -> tuple[Defect, ...]:
        """Everything found, in the order of the rows (or of the sets)."""
        return tuple(defect for *_, defect in sorted(self._found, key=lambda found: found[:2]))


def check_on_error(on_error: str) -> None:
    """Refuse an unknown ``on_error``."""
    check_one_of("on_error", on_error, get_args(OnError))


def settle(draft: Draft, findings: Findings, on_error: OnError) -> tuple[Draft, tuple[Defect, ...]]:
    """Check a draft; raise with all its defects, or return it without the defective sets and objects."""
    _check_sets(draft, findings)
    _check_attributes(draft, findings)
    defects = findings.defects
    if not defects:
        return draft, ()
    if on_error == "raise":
        raise ChoiceDataError(defects, findings.source)
    return _without_spoiled(draft, findings), defects


def _check_sets(draft: Draft, findings: Findings) -> None:
    sizes = np.diff(draft.offsets)
    findings.in_sets("empty-set", "the set shows no object", np.flatnonzero(sizes == 0))
    large = np.flatnonzero(sizes > MAX_SET_SIZE)
    findings.in_sets(
        "too-large-set",
        [f"the set shows {sizes[k]} objects; the limit is {MAX_SET_SIZE}: split it" for k in large],
        large,
    )
    of_set = np.repeat(np.arange(len(sizes)), sizes)
    _check_duplicates(draft, findings, of_set)
    if draft.flat_chosen is not None:
        n_chosen = np.bincount(of_set[draft.flat_chosen], minlength=len(sizes))
        nothing = (n_chosen == 0) & ~findings.sets_with(*_CHOICE_UNCLEAR)
        findings.in_sets("nothing-chosen", "nothing is chosen from the set", np.flatnonzero(nothing))
    shows_spoiled = np.append(findings.spoiled_objects, False)[draft.flat_shown]
    findings.spoiled_sets[of_set[shows_spoiled]] = True


def _check_duplicates(draft: Draft, findings: Findings, of_set: NDArray[np.int64]) -> None:
    # Ids, not rows: one id with two prices in one set is still one object shown twice.
    id_codes = np.append(pd.factorize(draft.object_ids, use_na_sentinel=False)[0], -1)
    known = draft.flat_shown >= 0
    keys = of_set * len(draft.object_ids) + id_codes[draft.flat_shown]
    again = known & pd.Series(keys).where(known, -1).duplicated().to_numpy()
    places = np.flatnonzero(again)
    findings.in_sets(
        "duplicate-object",
        "the object is shown twice in the set",
        of_set[places],
        draft.object_ids[draft.flat_shown[places]],
        None if draft.rows is None else draft.rows[places],
    )


def _check_attributes(draft: Draft, findings: Findings) -> None:
    if draft.weights is not None:
        wrong = np.flatnonzero(~(np.isfinite(draft.weights) & (draft.weights > 0)))
        problems = [f"the weight must be finite and above 0, not {draft.weights[k]}" for k in wrong]
        findings.in_sets("bad-weight", problems, wrong)
    if draft.respondents is not None:
        missing = np.flatnonzero(is_missing(draft.respondents) & ~findings.sets_with("differing-respondent"))
        findings.in_sets("missing-id", "the respondent is missing", missing)


def _without_spoiled(draft: Draft, findings: Findings) -> Draft:
    spoiled, gone = findings.spoiled_sets, findings.spoiled_objects
    defects = findings.defects
    if spoiled.all():
        raise ChoiceDataError(defects, f"{findings.source or 'choice data'}: no set is without defects")
    kept = select_sets(draft, np.flatnonzero(~spoiled))
    parts = f"{spoiled.sum()} of {len(spoiled)} sets"
    if gone.any():
        # Features that are not finite would spoil every computation over the table: their objects go too.
        new_row = np.cumsum(~gone) - 1
        kept = kept._replace(X=kept.X[~gone], object_ids=kept.object_ids[~gone], flat_shown=new_row[kept.flat_shown])
        parts += f" and {gone.sum()} of {len(gone)} objects"
    noun = "defect" if len(defects) == 1 else "defects"
    warnings.warn(f"{parts} were left out ({len(defects)} {noun}); see data.skipped", UserWarning, stacklevel=5)
    return kept


def select_sets(draft: Draft, sets: NDArray[np.int64]) -> Draft:
    """Return the draft with these sets only, in this order; the objects stay."""
    sizes = np.diff(draft.offsets)[sets]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    entries = np.repeat(draft.offsets[:-1][sets] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return draft._replace(
        flat_shown=draft.flat_shown[entries],
        offsets=offsets,
        flat_chosen=None if draft.flat_chosen is None else draft.flat_chosen[entries],
        set_ids=draft.set_ids[sets],
        respondents=None if draft.respondents is None else draft.respondents[sets],
        weights=None if draft.weights is None else draft.weights[sets],
        rows=None if draft.rows is None else draft.rows[entries],
    )
