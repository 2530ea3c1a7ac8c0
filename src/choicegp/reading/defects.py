"""Finding everything that is wrong with choice data, and leaving it out on request.

Readers put what they read into a :class:`Draft` and report into :class:`Findings` what only they can see;
:func:`settle` finds the rest, then raises an error or leaves the defective sets out.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import check_one_of, counted, plain, whole_number
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect, ReadingWarning

if TYPE_CHECKING:
    from choicegp.reading.encoding import FeatureEncoding

OnError = Literal["raise", "skip"]
Empty = Literal["error", "none", "skip"]
Missing = Literal["error", "skip", "level"]
Kind = Literal["keep", "best", "worst"]
Question = Literal["keep", "best", "worst", "best-worst", "ranking", "rating", "yes-no"]

MAX_SET_SIZE = 10_000
MANY_OBJECTS = 20

_SET_ID = "if a set id needs several columns, name them all: set_id=['respondent', 'task']"
ADVICE = {
    "nothing-chosen": "where keeping nothing is an answer, pass empty='none'; to leave such sets out, empty='skip'",
    "duplicate-object": _SET_ID,
    "differing-respondent": f"one set id serves several respondents; {_SET_ID}",
    "missing-feature": "to leave such sets out, pass missing='skip'; where a missing value says something, pass "
    "missing='level'",
    "not-a-number": "for numbers with a currency, a unit or a decimal comma, pass numbers=['COLUMN']",
    "none-and-object": "to leave such sets out, pass on_error='skip'",
    "unknown-alternative": "to leave such sets out, pass on_error='skip'",
    "not-one-worst": "where one column marks the best and another one the worst, pass chosen=['BEST', 'WORST']",
    "totals-row": "delete it, or pass on_error='skip'",
    "wrong-flag": "flags are 0/1, true/false, yes/no, ✓/✗, or one mark (x, 1, ✓) and blanks; if they are in another "
    "column, pass chosen='COLUMN'; for ranks, ratings, or best and worst, pass kind='ranking', kind='rating' or "
    "kind='best-worst'; to leave sets without an answer out, on_error='skip'",
    "several-marked": "where several objects may be kept, pass kind='keep'; to leave such sets out, on_error='skip'",
    "too-many-chosen": "if more were allowed, pass a larger at_most; to leave such sets out, on_error='skip'",
    "tied-rank": "if these are ratings, of which the largest is the best, pass kind='rating'; to leave such sets out, "
    "on_error='skip'",
}

# After one of these it is not clear whether anything was chosen: reporting that too would mislead.
CHOICE_UNCLEAR = (
    "none-and-object", "chosen-not-shown", "unknown-object", "wrong-flag", "missing-id", "empty-set",
    "unknown-alternative",
)  # fmt: skip


class Draft(NamedTuple):
    """Choice data as read, before they are checked; the fields are as in ``ChoiceData``, and ``rows``.

    Objects that are spoiled may have NaN in ``X``; an object that is not known is -1 in ``flat_shown`` (a finding
    says why). ``rows`` (n,) holds the row from which each entry of ``flat_shown`` was read. ``marks`` (n,) holds ranks,
    ratings, or 1 for the best and -1 for the worst, where the question asks for these.
    """

    X: NDArray[np.float64]
    object_ids: NDArray[Any]
    encoding: "FeatureEncoding"
    flat_shown: NDArray[np.int64]
    offsets: NDArray[np.int64]
    flat_chosen: NDArray[np.bool_] | None
    set_ids: NDArray[Any]
    respondents: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None
    kinds: NDArray[Any] | None = None
    rows: NDArray[np.int64] | None = None
    marks: NDArray[np.float64] | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """The fields of ``ChoiceData``."""
        return {name: value for name, value in self._asdict().items() if name not in ("rows", "marks")}


class Rules(NamedTuple):
    """What was asked of the sets, and what to do about defects, empty answers and missing features.

    The fields are as in ``ChoiceData.from_long``.
    """

    on_error: OnError = "raise"
    empty: Empty = "error"
    missing: Missing = "error"
    question: Question = "keep"
    at_most: int | None = None

    def checked(self) -> "Rules":
        """Return the rules, after checking that each is known."""
        for name, options in (("on_error", OnError), ("empty", Empty), ("missing", Missing)):
            check_one_of(name, getattr(self, name), get_args(options))
        check_one_of("kind", self.question, get_args(Question))
        if self.at_most is not None:
            whole_number("at_most", self.at_most, 1)
            if self.at_most == 1:
                raise ChoiceGPError("at_most=1 asks for one object, not for all that are good enough: use kind='best'")
            if self.question != "keep":
                raise ChoiceGPError(f"at_most limits how many objects are kept; it does not go with {self.question!r}")
        return self if self.question != "yes-no" or self.empty == "skip" else self._replace(empty="none")

    @property
    def tolerated(self) -> set[str]:
        """Kinds of defects that are left out without an error."""
        rules = (("nothing-chosen", self.empty), ("missing-feature", self.missing))
        return {kind for kind, rule in rules if rule == "skip"}


_DEFAULT = Rules()


class Places(NamedTuple):
    """How a defect names the entries of a column: by their object, by their row of a file, or by position."""

    rows: NDArray[Any] | None = None
    objects: NDArray[Any] | None = None

    def found(self, kind: str, problem: str, position: int | np.integer) -> tuple[int, Defect]:
        """Return a defect of the entry at this position, after the position."""
        if self.objects is not None:
            return int(position), Defect(kind, problem, object=plain(self.objects[position]))
        return int(position), Defect(kind, problem, int(position if self.rows is None else self.rows[position]))


class Findings:
    """The defects found so far, the sets and objects they spoil, and what else is worth a remark.

    Parameters
    ----------
    set_ids : array (m,)
    source : str, optional
        Where the data came from and how its rows are counted.
    set_rows : int array (m,), optional
        The row where each set begins.
    """

    def __init__(
        self, set_ids: NDArray[Any], source: str | None = None, set_rows: NDArray[np.int64] | None = None
    ) -> None:
        self.set_ids, self.source, self.set_rows = set_ids, source, set_rows
        self.spoiled_sets = np.zeros(len(set_ids), dtype=bool)
        self.spoiled_objects: list[int] = []
        self.remarks: list[Warning] = []
        self.advice = dict(ADVICE)
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
            row = None if rows is None else int(rows[i])
            named = None if objects is None else plain(objects[i])
            text = problem if isinstance(problem, str) else problem[i]
            self.add(Defect(kind, text, row, plain(self.set_ids[k]), named), int(k))

    def add(self, defect: Defect, of_set: int = -1) -> None:
        """Report a defect; by default it belongs to no known set."""
        self._found.append((-1 if defect.row is None else defect.row, of_set, defect))

    def of_object(self, position: int, defect: Defect) -> None:
        """Report a defect of an object itself; the sets that show it are left out with it."""
        self.spoiled_objects.append(position)
        self.add(defect)

    def sets_with(self, *kinds: str) -> NDArray[np.bool_]:
        """Mark the sets that have a defect of one of these kinds."""
        marks = [self._of_kind[kind] for kind in kinds if kind in self._of_kind]
        return np.logical_or.reduce(marks) if marks else np.zeros(len(self.set_ids), dtype=bool)

    def found(self) -> list[tuple[int, Defect]]:
        """Return everything found, each with the position of its set (or -1), in the order of the rows or sets."""
        return [(k, defect) for _, k, defect in sorted(self._found, key=lambda found: found[:2])]

    @property
    def defects(self) -> tuple[Defect, ...]:
        """Everything found, in the order of the rows (or of the sets)."""
        return tuple(defect for _, defect in self.found())


def settle(draft: Draft, findings: Findings, rules: Rules = _DEFAULT) -> dict[str, Any]:
    """Check a draft, remark on what is unusual, and return the fields of ``ChoiceData``; see :func:`settled`."""
    parts = settled(draft, findings, rules)
    for remark in findings.remarks:
        # The warning points at the caller of the constructor that calls this.
        warnings.warn(remark, stacklevel=3)
    return parts


def settled(draft: Draft, findings: Findings, rules: Rules = _DEFAULT) -> dict[str, Any]:
    """Check a draft; raise with all its defects, or return the fields of ``ChoiceData`` without what is defective.

    What is left out, and what is unusual, is added to the remarks of the findings.
    """
    rules = rules.checked()
    if rules.question in ("best", "worst") and draft.kinds is None:
        draft = draft._replace(kinds=np.full(len(draft.set_ids), rules.question, dtype=object))
    elif draft.kinds is not None and (draft.kinds == "keep").all():
        draft = draft._replace(kinds=None)
    gone = np.zeros(len(draft.object_ids), dtype=bool)
    gone[findings.spoiled_objects] = True
    nothing = _check_sets(draft, findings, gone)
    if rules.empty != "none":
        findings.in_sets("nothing-chosen", "nothing is chosen from the set", nothing)
    _check_attributes(draft, findings)
    asks_more = rules.at_most is not None or rules.question not in get_args(Kind)
    if asks_more:
        from choicegp.reading import questions

        questions.check_answers(draft, findings, rules)
    defects = findings.defects
    fatal = [defect for defect in defects if defect.kind not in rules.tolerated]
    if fatal and rules.on_error == "raise":
        raise ChoiceDataError(fatal, findings.source, findings.advice)
    if defects:
        draft = _without_spoiled(draft, findings, gone)
    return {**(questions.expanded(draft, findings, rules) if asks_more else draft).parts, "skipped": defects}


def _check_sets(draft: Draft, findings: Findings, gone: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Report what is wrong with sets; return those from which nothing was chosen."""
    sizes = np.diff(draft.offsets)
    findings.in_sets("empty-set", "the set shows no object", np.flatnonzero(sizes == 0))
    large = np.flatnonzero(sizes > MAX_SET_SIZE)
    problems = [f"the set shows {sizes[k]} objects, more than the limit of {MAX_SET_SIZE}; split it" for k in large]
    findings.in_sets("too-large-set", problems, large)
    of_set = np.repeat(np.arange(len(sizes)), sizes)
    _check_duplicates(draft, findings, of_set)
    findings.spoiled_sets[of_set[np.append(gone, False)[draft.flat_shown]]] = True
    if draft.flat_chosen is None:
        return np.zeros(0, np.int64)
    n_chosen = np.bincount(of_set[draft.flat_chosen], minlength=len(sizes))
    if draft.kinds is not None:
        several = np.flatnonzero((n_chosen > 1) & np.isin(draft.kinds, ["best", "worst"]))
        problems = [f"{n_chosen[k]} objects are marked where one is the {draft.kinds[k]}" for k in several]
        findings.in_sets("several-marked", problems, several)
    return np.flatnonzero((n_chosen == 0) & ~findings.sets_with(*CHOICE_UNCLEAR))


def _check_duplicates(draft: Draft, findings: Findings, of_set: NDArray[np.int64]) -> None:
    # Ids, not rows: one id with two prices in one set is still one object shown twice.
    id_codes = np.append(pd.factorize(draft.object_ids, use_na_sentinel=False)[0], -1)
    known = draft.flat_shown >= 0
    keys = of_set * len(draft.object_ids) + id_codes[draft.flat_shown]
    places = np.flatnonzero(known & pd.Series(keys).where(known, -1).duplicated().to_numpy())
    ids, rows = draft.object_ids[draft.flat_shown[places]], None if draft.rows is None else draft.rows[places]
    findings.in_sets("duplicate-object", "the object is shown twice in the set", of_set[places], ids, rows)


def _check_attributes(draft: Draft, findings: Findings) -> None:
    if draft.weights is not None:
        wrong = np.flatnonzero(~(np.isfinite(draft.weights) & (draft.weights > 0)))
        problems = [f"the weight must be finite and above 0, not {draft.weights[k]}" for k in wrong]
        findings.in_sets("bad-weight", problems, wrong)
    if draft.respondents is not None:
        missing = np.flatnonzero(is_missing(draft.respondents) & ~findings.sets_with("differing-respondent"))
        findings.in_sets("missing-id", "the respondent is missing", missing)
    if draft.kinds is not None:
        known = np.isin(draft.kinds, get_args(Kind))
        wrong = draft.kinds[~known]
        problems = [f"the kind must be one of {', '.join(get_args(Kind))}, not {kind!r}" for kind in wrong]
        findings.in_sets("unknown-kind", problems, np.flatnonzero(~known))


def _without_spoiled(draft: Draft, findings: Findings, gone: NDArray[np.bool_]) -> Draft:
    spoiled, defects = findings.spoiled_sets, findings.defects
    if spoiled.all():
        raise ChoiceDataError(
            defects, f"{findings.source or 'choice data'}: no set is without defects", findings.advice
        )
    kept = select_sets(draft, np.flatnonzero(~spoiled))
    parts = f"{spoiled.sum()} of {len(spoiled)} sets"
    if gone.any():
        # Features that are not finite would spoil every computation over the table: their objects go too.
        new_row = np.cumsum(~gone) - 1
        kept = kept._replace(X=kept.X[~gone], object_ids=kept.object_ids[~gone], flat_shown=new_row[kept.flat_shown])
        parts += f" and {gone.sum()} of {len(gone)} objects"
    outside = sum(k < 0 and defect.row is not None for k, defect in findings.found())
    if outside:
        parts += f" and {counted(outside, 'row')} outside any set"
    findings.remarks.append(
        ReadingWarning(f"{parts} were left out ({counted(len(defects), 'defect')}); see data.skipped")
    )
    return kept


def select_sets(draft: Draft, sets: NDArray[np.int64]) -> Draft:
    """Return the draft with these sets only, in this order; the objects stay."""
    sizes = np.diff(draft.offsets)[sets]
    offsets = offsets_of(sizes)
    entries = np.repeat(draft.offsets[:-1][sets] - offsets[:-1], sizes) + np.arange(offsets[-1])

    def taken(part: Any, places: NDArray[np.int64]) -> Any:
        return None if part is None else part[places]

    return draft._replace(
        offsets=offsets,
        **{name: taken(getattr(draft, name), entries) for name in ("flat_shown", "flat_chosen", "rows", "marks")},
        **{name: taken(getattr(draft, name), sets) for name in ("set_ids", "respondents", "weights", "kinds")},
    )


def offsets_of(sizes: NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where sets of these sizes begin when they are laid end to end, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def factorized(column: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return codes (-1 for missing) and the distinct values in the order of their appearance."""
    try:
        codes, distinct = pd.factorize(column)
    except (TypeError, ValueError, NotImplementedError) as error:
        name = getattr(column, "name", None)
        where = "a column" if name is None else f"column {name!r}"
        raise ChoiceGPError(f"{where} holds lists, dicts or sets; its cells must be single numbers or words") from error
    return codes.astype(np.int64), np.asarray(distinct, dtype=object)


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Mark missing values of a column: NaN, None and blank text."""
    series = pd.Series(values)
    missing = series.isna().to_numpy(dtype=bool)
    if not pd.api.types.is_numeric_dtype(series.dtype):
        codes, distinct = factorized(series)
        blank = np.array([isinstance(value, str) and not value.strip() for value in distinct] + [False])
        missing = missing | blank[codes]
    return missing
