"""Answers to other questions than "which would you keep?", as sets of the kinds that a model knows.

A ranking is a best object, then the best of the rest, and so on; best and worst are two sets; ratings are pairs; yes
and no are sets of one object. Ticks under a limit are used as far as the limit does not touch them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from choicegp.checks import counted
from choicegp.errors import ChoiceGPError, ReadingNote
from choicegp.reading.defects import CHOICE_UNCLEAR, Draft, Findings, Rules, offsets_of

MAX_PAIRS = 1_000_000


class _Sets(NamedTuple):
    """The sets that one answer becomes, end to end: where their objects are in the draft, and what was chosen."""

    entries: NDArray[np.int64]
    sizes: list[int]
    chosen: NDArray[np.bool_]
    kinds: list[str]
    names: list[str]


def check_answers(draft: Draft, findings: Findings, rules: Rules) -> None:
    """Report answers that cannot be right for the question."""
    if rules.at_most is not None and draft.flat_chosen is not None:
        n_chosen = _per_set(draft, draft.flat_chosen)
        many = np.flatnonzero(n_chosen > rules.at_most)
        problems = [f"{n_chosen[k]} objects are chosen where at most {rules.at_most} were allowed" for k in many]
        findings.in_sets("too-many-chosen", problems, many)
    if draft.marks is None:
        return
    sound = ~findings.sets_with("wrong-mark", "best-is-worst", "duplicate-object", *CHOICE_UNCLEAR)
    if rules.question == "best-worst":
        for name, mark in (("best", 1.0), ("worst", -1.0)):
            n = _per_set(draft, draft.marks == mark)
            wrong = np.flatnonzero((n != 1) & sound)
            findings.in_sets(f"not-one-{name}", [f"{n[k]} objects are the {name} instead of one" for k in wrong], wrong)
    elif rules.question == "ranking":
        for k in np.flatnonzero(sound):
            kind, problem = _ranking_problem(draft.marks[draft.offsets[k] : draft.offsets[k + 1]])
            if problem:
                findings.in_sets(kind, problem, np.array([k]))


def _per_set(draft: Draft, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    sizes = np.diff(draft.offsets)
    return np.bincount(np.repeat(np.arange(len(sizes)), sizes)[flags], minlength=len(sizes))


def _ranking_problem(ranks: NDArray[np.float64]) -> tuple[str, str]:
    given = np.sort(ranks[~np.isnan(ranks)])
    if len(given) == 0:
        return "no-rank", "no object of the set has a rank"
    tied = given[:-1][np.diff(given) == 0]
    if len(tied):
        return "tied-rank", f"the rank {tied[0]:g} is given twice: equal ranks do not say which object is better"
    if not np.array_equal(given, np.arange(1, len(given) + 1)):
        return "rank-gap", f"the ranks are {', '.join(f'{rank:g}' for rank in given[:5])} instead of 1, 2, 3 and so on"
    return "", ""


def expanded(draft: Draft, findings: Findings, rules: Rules) -> Draft:
    """Return the sets that the answers to a question become."""
    if rules.at_most is not None:
        return _limited(draft, findings, rules.at_most)
    if rules.question == "yes-no":
        return singles(draft)
    if draft.marks is None:  # questions without answers
        return draft
    sets = {"best-worst": _best_and_worst, "ranking": _choices_of_the_best, "rating": _pairs}[rules.question]
    made = _rebuilt(draft, [sets(*each) for each in _answers(draft)])
    if rules.question == "rating":
        n_rated = _per_set(draft, ~np.isnan(draft.marks))
        n_ties = int((n_rated * (n_rated - 1) // 2).sum()) - len(made.set_ids)
        ties = f"; {counted(n_ties, 'tie')} between equal ratings left out" if n_ties else ""
        findings.remarks.append(ReadingNote(f"ratings became {counted(len(made.set_ids), 'pair')}{ties}"))
    return made


def _answers(draft: Draft) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    assert draft.marks is not None
    for start, stop in zip(draft.offsets[:-1], draft.offsets[1:], strict=True):
        yield np.arange(start, stop), draft.marks[start:stop]


def _best_and_worst(entries: NDArray[np.int64], marks: NDArray[np.float64]) -> _Sets:
    rest = marks != 1.0
    if rest.sum() == 1:  # of two objects the other is the worst: that says nothing more
        return _Sets(entries, [len(entries)], ~rest, ["best"], ["best"])
    chosen = np.concatenate([~rest, marks[rest] == -1.0])
    sizes = [len(entries), int(rest.sum())]
    return _Sets(np.concatenate([entries, entries[rest]]), sizes, chosen, ["best", "worst"], ["best", "worst"])


def _choices_of_the_best(entries: NDArray[np.int64], marks: NDArray[np.float64]) -> _Sets:
    order = np.argsort(marks, kind="stable")  # objects without a rank (NaN) come last
    steps = range(min(int((~np.isnan(marks)).sum()), len(entries) - 1)) if len(entries) > 1 else range(1)
    chosen = np.concatenate([np.arange(len(order) - i) == 0 for i in steps])
    sizes = [len(order) - i for i in steps]
    names = [str(i + 1) for i in steps]
    return _Sets(np.concatenate([entries[order[i:]] for i in steps]), sizes, chosen, ["best"] * len(steps), names)


def _pairs(entries: NDArray[np.int64], marks: NDArray[np.float64]) -> _Sets:
    rated = np.flatnonzero(~np.isnan(marks))
    if len(rated) * (len(rated) - 1) // 2 > MAX_PAIRS:
        raise ChoiceGPError(
            f"{len(rated)} ratings of one respondent make more than {MAX_PAIRS:,} pairs; use a part of them"
        )
    first, second = (rated[side] for side in np.triu_indices(len(rated), 1))
    above = marks[first] - marks[second]
    pairs = np.column_stack([np.where(above > 0, first, second), np.where(above > 0, second, first)])[above != 0]
    n = len(pairs)
    return _Sets(
        entries[pairs.ravel()], [2] * n, np.tile([True, False], n), ["best"] * n, [str(i + 1) for i in range(n)]
    )


def _rebuilt(draft: Draft, answers: list[_Sets]) -> Draft:
    sizes = np.array([size for sets in answers for size in sets.sizes], dtype=np.int64)
    if len(sizes) == 0:
        raise ChoiceGPError("no two ratings of one set differ: they do not say which object is better")
    entries = np.concatenate([sets.entries for sets in answers])
    parents = np.repeat(np.arange(len(answers)), [len(sets.sizes) for sets in answers])
    names = [name for sets in answers for name in sets.names]
    ids = [f"{draft.set_ids[k]}:{name}" for k, name in zip(parents, names, strict=True)]

    def taken(part: Any, places: NDArray[np.int64]) -> Any:
        return None if part is None else part[places]

    return draft._replace(
        flat_shown=draft.flat_shown[entries],
        offsets=offsets_of(sizes),
        flat_chosen=np.concatenate([sets.chosen for sets in answers]),
        set_ids=np.array(ids, dtype=object),
        respondents=taken(draft.respondents, parents),
        weights=taken(draft.weights, parents),
        kinds=np.array([kind for sets in answers for kind in sets.kinds], dtype=object),
        rows=taken(draft.rows, entries),
        marks=None,
    )


def singles(draft: Draft) -> Draft:
    """Make a set of its own of every object that is shown."""
    sizes = np.diff(draft.offsets)
    parents = np.repeat(np.arange(len(sizes)), sizes)
    if (sizes == 1).all():
        return draft
    place = np.arange(len(parents)) - draft.offsets[:-1][parents]
    ids = [f"{draft.set_ids[k]}:{i + 1}" for k, i in zip(parents, place, strict=True)]
    return draft._replace(
        offsets=np.arange(len(parents) + 1),
        set_ids=np.array(ids, dtype=object),
        respondents=None if draft.respondents is None else draft.respondents[parents],
        weights=None if draft.weights is None else draft.weights[parents],
    )


def _limited(draft: Draft, findings: Findings, at_most: int) -> Draft:
    """Leave out what was not ticked in sets with as many ticks as were allowed."""
    if draft.flat_chosen is None:
        return draft
    sizes = np.diff(draft.offsets)
    full = (_per_set(draft, draft.flat_chosen) == at_most) & (sizes > at_most)
    of_set = np.repeat(np.arange(len(sizes)), sizes)
    used = ~full[of_set] | draft.flat_chosen
    if full.any():
        findings.remarks.append(
            ReadingNote(
                f"{full.sum()} of {len(full)} sets have the {at_most} ticks that were allowed: what was not ticked "
                "there may be good enough too, so these sets are used only through the ticked objects"
            )
        )
    return draft._replace(
        flat_shown=draft.flat_shown[used],
        flat_chosen=draft.flat_chosen[used],
        rows=None if draft.rows is None else draft.rows[used],
        offsets=offsets_of(np.bincount(of_set[used], minlength=len(sizes))),
    )
