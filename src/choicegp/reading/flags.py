"""Columns that hold answers: flags in words and ticks, ranks, ratings, and best and worst."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, plain
from choicegp.errors import ChoiceGPError, ReadingNote
from choicegp.reading.defects import Question, factorized, is_missing

Report = Callable[[str, str | Sequence[str], NDArray[np.int64]], None]

_PLAIN: dict[Any, bool] = {0: False, 1: True, "0": False, "1": True, "true": True, "false": False}
_YES_NO = {
    **dict.fromkeys(("yes", "y", "ja", "oui", "sí", "si", "sì", "sim", "chosen", "selected", "kept", "keep"), True),
    **dict.fromkeys(("no", "n", "nein", "nee", "nej", "nei", "non", "não", "not chosen", "not selected"), False),
    **dict.fromkeys(("unselected", "rejected", "reject"), False),
}
_TICKS = {"x", "1", "1.0", "✓", "✔", "✅", "☑", "☒", "yes", "y", "true"}
# Signs for yes and for no; a crossed box is a tick beside an empty one, and a no beside a ticked one.
_SIGNS = (({"✓", "✔", "✅", "☑"}, {"✗", "✘", "✖", "❌", "☐", "☒"}), ({"☒"}, {"☐"}))
_BEST_WORST = {"best": 1.0, "b": 1.0, "1": 1.0, "worst": -1.0, "w": -1.0, "-1": -1.0, "0": 0.0}

NOTHING = frozenset(
    ["none", "none of these", "none of the above", "none of them", "neither", "nothing", "no choice", "opt-out"]
)
"""What an alternative is called that stands for keeping nothing."""
MARKED = ("best-worst", "ranking", "rating")


def read_flags(
    column: pd.Series, what: str, in_set: NDArray[np.bool_], shown: NDArray[np.bool_], report: Report
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], ReadingNote | None]:
    """Read flags: their values, which are unclear (reported where an object is shown), and a note on their form."""
    missing = is_missing(column)
    codes, distinct = factorized(column)
    filled = [value for value in distinct if not isinstance(value, str) or value.strip()]
    known, blanks_count, form = _meaning(filled, bool(missing.any()))
    values = np.array([bool(known.get(_word(value))) for value in distinct] + [False])[codes]
    unclear = np.array([_word(value) not in known for value in distinct] + [True])[codes] | missing
    if blanks_count:
        unclear &= ~missing
    places = np.flatnonzero(in_set & unclear & (shown | ~missing))
    said = ["it is missing" if missing[i] else f"{plain(column.iloc[i])!r}" for i in places]
    report("wrong-flag", [f"the {what} has a flag that is not 0/1: {value}" for value in said], places)
    return values, unclear, ReadingNote(f"column {column.name!r} was read as {form}") if form else None


def _meaning(values: list[Any], has_blanks: bool) -> tuple[dict[Any, bool], bool, str]:
    """Return what the values of a column of flags mean, whether a blank means no, and what to say about it."""
    words = {_word(value) for value in values}
    if has_blanks and len(words) == 1 and str(next(iter(words))).casefold() in _TICKS:
        (mark,) = words
        shown = f"{mark:g}" if isinstance(mark, float) else repr(plain(values[0]))
        return {mark: True}, True, f"{shown} for yes and blank for no"
    if len(words & _YES_NO.keys()) > len(words & _PLAIN.keys()):
        return dict(_YES_NO), False, f"flags in words ({'/'.join(sorted(words & _YES_NO.keys(), reverse=True))})"
    for yes, no in _SIGNS:
        if words & yes and words & no and words <= yes | no:
            marks = (", ".join(map(repr, sorted(words & part))) for part in (yes, no))
            return {word: word in yes for word in words}, False, "{} for yes and {} for no".format(*marks)
    if len(words) == 1 and words <= _TICKS - {"1", "1.0", "true"}:
        return dict.fromkeys(words, True), False, f"{plain(values[0])!r} for yes"
    return _PLAIN, False, ""


def _word(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def read_marks(column: pd.Series, question: Question, shown: NDArray[np.bool_], report: Report) -> NDArray[np.float64]:
    """Read ranks, ratings, or 1 for the best and -1 for the worst; NaN (for best and worst 0) where there is none."""
    missing = is_missing(column)
    if question == "best-worst":
        codes, distinct = factorized(column)
        known = [_BEST_WORST.get(str(_word(plain(value))).removesuffix(".0"), np.nan) for value in distinct]
        marks = np.array([*known, 0.0])[codes]
        marks[missing] = 0.0
        wrong, form = np.isnan(marks), "'best', 'worst' or blank, or 1, -1 and 0"
    else:
        marks = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        wrong, form = ~np.isfinite(marks) & ~missing, "a number"
        if question == "ranking":
            with np.errstate(invalid="ignore"):
                wrong |= ~missing & ((marks < 1) | (marks != np.floor(marks)))
            form = "a rank, 1 for the best"
    places = np.flatnonzero(wrong & shown)
    report("wrong-mark", [f"the answer must be {form}, not {plain(column.iloc[i])!r}" for i in places], places)
    return marks


def yes_or_no(answers: Any) -> NDArray[np.bool_]:
    """Return answers in flags or words as an array, or raise an error that names the first that is neither."""
    if isinstance(answers, str | bytes | dict) or not hasattr(answers, "__iter__"):
        raise ChoiceGPError(f"answers must be a sequence of yes and no, not {kind_of(answers)}")
    known = {True: True, False: False} | _PLAIN | _YES_NO
    words = [_word(plain(value)) for value in answers]
    for i, word in enumerate(words):
        if not isinstance(word, str | int | float) or word not in known:
            raise ChoiceGPError(f"answers[{i}] must be yes or no, true or false, 1 or 0; it is {word!r}")
    return np.array([known[word] for word in words], dtype=bool)
