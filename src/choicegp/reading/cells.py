"""Cells of a table, as people write them: numbers, flags in words and ticks, ranks, ratings, and best and worst.

Numbers may have decimal commas, separated thousands, a currency or a unit.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import counted, kind_of, listed, plain
from choicegp.errors import ChoiceGPError, ReadingNote, ReadingWarning
from choicegp.reading.defects import Question, factorized, is_missing

MANY_LEVELS = 20
MISSING_WORDS = frozenset(
    ["NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "NaT", "-nan", "-NaN"]
)
_UNIQUE = 0.8  # share of the rows with words of their own from which on a column is nearly unique
_FEW_ROWS = 10
_MOST_REMARKS = 20

_SPACES = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2212": "-", "’": "'"})
_NUMBER = r"[.,]?\d(?:[\d.,' ]*\d)?(?:[eE][+-]?\d+)?"
_WITH_UNIT = re.compile(rf"([+-]?)\s*([^\d.,+-]*?)\s*([+-]?{_NUMBER})\s*(?:[.,][-–])?\s*(\D*)")
_CURRENCY = r"[€$£¥₹₽₩₺₪฿]|EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|AUD|CAD|NZD|BRL|MXN|KRW|ZAR|kr|Fr"
_MEASURED = re.compile(
    rf"[+-]?(?:(?:{_CURRENCY})\.?\s*{_NUMBER}(?:[.,][-–])?|{_NUMBER}\s*(?:{_CURRENCY}|%|°?[a-zA-Zµ°²³/\"]{{1,12}}))"
)
_SAME = {"€": "eur", "$": "usd", "us$": "usd", "£": "gbp", "euro": "eur", "euros": "eur", "¥": "jpy", "₹": "inr"}
_GROUPED = {  # by decimal sign
    ".": re.compile(r"[1-9]\d{0,2}(?:([,' ])\d{3})(?:\1\d{3})*(?:\.\d+)?"),
    ",": re.compile(r"[1-9]\d{0,2}(?:([.' ])\d{3})(?:\1\d{3})*(?:,\d+)?"),
}
_PLAIN = {sign: re.compile(rf"(?:\d+[{sign}]?\d*|[{sign}]\d+)(?:[eE][+-]?\d+)?") for sign in ".,"}
Report = Callable[[str, str | Sequence[str], NDArray[np.int64]], None]

_FLAGS: dict[Any, bool] = {0: False, 1: True, "0": False, "1": True, "true": True, "false": False}
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


class NumberForm(NamedTuple):
    """Which columns hold numbers in words, and the decimal sign, if it is known."""

    columns: Sequence[str] = ()
    decimal: str | None = None


def check_decimal(decimal: Any) -> None:
    """Refuse what is no decimal sign."""
    if decimal not in (None, ".", ","):
        raise ChoiceGPError(f"decimal must be '.' or ',', not {decimal!r}")


def read_numbers(column: pd.Series, decimal: str | None) -> pd.Series:
    """Return the numbers of a column, each without its currency or unit; what is no number stays as it is."""
    check_decimal(decimal)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    codes, distinct = factorized(column.mask(is_missing(column) | column.isin(MISSING_WORDS).to_numpy(dtype=bool)))
    if len(distinct) == 0:
        raise ChoiceGPError(f"column {column.name!r} is empty")
    parts = {value: _parts(value) for value in distinct if isinstance(value, str)}
    numbers = {value: number for value, (number, _) in parts.items() if number}
    if not numbers:
        raise ChoiceGPError(f"column {column.name!r} holds no numbers, such as {distinct[0]!r}")
    units = {unit for _, unit in parts.values() if unit}
    scaled = units & _SCALES
    if scaled and any(number and not unit for number, unit in parts.values()):
        raise ChoiceGPError(
            f"column {column.name!r} holds numbers with {listed(sorted(scaled))} and without: write them in one form"
        )
    if len(units) > 1:
        raise ChoiceGPError(
            f"column {column.name!r} holds numbers of several units ({listed(sorted(units))}): write them in one unit"
        )
    sign = decimal_sign(numbers.values(), decimal, column.name)
    values = [_value(numbers[value], sign) if value in numbers else value for value in distinct]
    made = [original if value is None else value for value, original in zip(values, distinct, strict=True)]
    made_column = pd.Series([*made, np.nan], dtype=object).iloc[codes].infer_objects()
    return pd.Series(made_column.to_numpy(), index=column.index, name=column.name)


_SCALES = frozenset({"k", "m", "mio", "bn", "%"})


def _parts(text: str) -> tuple[str, str]:
    """Return the number and the unit of a cell; no number where it holds none, or several."""
    found = _WITH_UNIT.fullmatch(text.translate(_SPACES).strip())
    if found is None:
        return "", ""
    unit = (found[2] + found[4]).strip(" .").casefold()
    if set(unit) & set("()<>~≈"):
        return "", ""  # an accountant's minus, or no exact number
    return found[1] + found[3], _SAME.get(unit, unit)


def decimal_sign(numbers: Iterable[str], given: str | None, name: Any) -> str:
    """Return the decimal sign of numbers, or raise an error that says why it is not clear."""
    every = list(numbers)
    signs = possible_signs(every) if given is None else {given}
    if not signs:
        raise ChoiceGPError(
            f"column {name!r} holds numbers with points and commas in different roles, such as {listed(every[:3])}; "
            "write them in one form"
        )
    if len(signs) == 2:
        unclear = next((text for text in every if _value(text, ".") != _value(text, ",")), None)
        if unclear is not None:
            raise ChoiceGPError(
                f"column {name!r} holds numbers such as {unclear!r}, in which the sign before the last three digits "
                "may separate thousands or decimals. Pass the decimal sign of the column: decimal='.' or decimal=','"
            )
    return "." if "." in signs else ","


def possible_signs(numbers: Iterable[str]) -> set[str]:
    """Return the decimal signs with which all of these are numbers."""
    every = list(numbers)
    return {sign for sign in ".," if all(_value(text, sign) is not None for text in every)}


def _value(text: str, decimal: str) -> float | None:
    """Return the value of a number with this decimal sign; None where it is none."""
    digits = text.strip().lstrip("+-")
    if _GROUPED[decimal].fullmatch(digits):
        digits = re.sub(r"[,' ]" if decimal == "." else r"[.' ]", "", digits)
    elif not digits or not _PLAIN[decimal].fullmatch(digits):
        return None
    return float(digits.replace(",", ".")) * (-1.0 if text.strip().startswith("-") else 1.0)


def numbers_in_text(frame: pd.DataFrame, names: Sequence[str], decimal: str | None) -> tuple[pd.DataFrame, str]:
    """Turn the columns of text that hold numbers into numbers, all with one decimal sign, which is returned too."""
    check_decimal(decimal)
    made = frame.copy()
    cells: dict[str, list[str]] = {}
    for name in names:
        column = frame[name].mask(frame[name].isin(MISSING_WORDS))
        distinct = [text.translate(_SPACES).strip() for text in column.dropna().unique()]
        if distinct and {text.casefold() for text in distinct} <= {"true", "false"}:
            made[name] = frame[name].map(lambda text: text.strip().casefold() == "true", na_action="ignore")
        elif distinct and possible_signs(distinct):
            made[name], cells[name] = column, distinct
    signs = {name: possible_signs(distinct) for name, distinct in cells.items()}
    clear = set().union(*(found for found in signs.values() if len(found) == 1))
    if decimal is None and len(clear) == 2:
        one, other = (next(name for name, found in signs.items() if found == {sign}) for sign in ".,")
        raise ChoiceGPError(
            f"the numbers of column {one!r} have decimal points, the numbers of column {other!r} decimal commas; "
            "write them in one form"
        )
    known = decimal or next(iter(clear), None)
    for name, distinct in cells.items():
        if known is not None and known not in signs[name]:
            continue  # words to this decimal sign: they are reported with the features
        sign = decimal_sign(distinct, known, name)
        known = known or (sign if any("," in text or "." in text for text in distinct) else None)
        values = made[name].map(lambda text, sign=sign: _value(text.translate(_SPACES), sign), na_action="ignore")
        numbers = pd.to_numeric(values)
        whole = numbers.notna().all() and (numbers % 1 == 0).all() and (numbers.abs() < 2**53).all()
        made[name] = numbers.astype(np.int64) if whole else numbers
    return made, known or ""


def remarks_on_words(features: pd.DataFrame, names: Iterable[str]) -> list[Warning]:
    """Warn of columns of words that hold numbers with a unit, or that have very many different words."""
    found: list[Warning] = []
    rest = [str(name) for name in features.columns]
    for name in names:
        column = features[name]
        if isinstance(column.dtype, pd.CategoricalDtype):  # someone has said that these are categories
            continue
        words = [value for value in factorized(column)[1] if isinstance(value, str)]
        measured = [word for word in words if _MEASURED.fullmatch(word.translate(_SPACES).strip())]
        others = [other for other in rest if other != name] if len(rest) <= 7 else []
        if 2 * len(measured) > len(words) and len(measured) > 1:
            found.append(
                ReadingWarning(
                    f"column {name!r} is read as words, though most are numbers with a currency or a unit, such as "
                    f"{measured[0]!r}; to read them as numbers, pass numbers={[name]!r}"
                )
            )
        elif len(words) > MANY_LEVELS or (len(words) >= _FEW_ROWS and len(words) > _UNIQUE * len(column)):
            leave = f"; to leave it out, pass features={others!r}" if others else ""
            found.append(
                ReadingWarning(
                    f"column {name!r} has {len(words)} different words in {len(column)} rows, and each becomes a "
                    f"feature{leave or '; to leave it out, name the columns of features'}"
                )
            )
    if len(found) > _MOST_REMARKS:
        one = len(found) == _MOST_REMARKS + 1
        more = (
            f"{counted(len(found) - _MOST_REMARKS, 'more column')} of words {'holds' if one else 'hold'} units or very "
            "many different words; to leave them out, name the columns of features"
        )
        found[_MOST_REMARKS:] = [ReadingWarning(more)]
    return found


def is_float(value: Any) -> bool:
    """Say whether Python reads a value as a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def reads_as_number(value: Any) -> bool:
    """Say whether its writer would call a value a number."""
    if not isinstance(value, str):
        return True
    text = value.strip().replace(" ", "").replace("\u00a0", "")
    if not any(letter.isdigit() for letter in text):
        return False
    # Decimal commas and thousands separators: numbers to their writer, words to Python.
    readings = (text, text.replace(",", "."), text.replace(",", ""), text.replace(".", "").replace(",", "."))
    return any(map(is_float, readings))


def tidy_numbers(column: pd.Series) -> pd.Series:
    """Turn a column of numbers and words for 'missing' into numbers."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    distinct = pd.Index(column.dropna().unique())
    words = distinct[[isinstance(value, str) and value.strip() in MISSING_WORDS for value in distinct]]
    if len(words) == 0:
        return column
    rest = pd.to_numeric(pd.Series(distinct.difference(words, sort=False)), errors="coerce")
    if len(rest) == 0 or rest.isna().any():
        return column
    return pd.to_numeric(column.mask(column.isin(words)))


def tidy_id(column: pd.Series) -> pd.Series:
    """Ids that are whole numbers, written plainly, become numbers; all others stay text."""
    distinct = column.dropna().unique()
    if not all(
        value.isascii() and value.isdigit() and str(int(value)) == value and len(value) < 18 for value in distinct
    ):
        return column
    if column.isna().any():
        whole = [int(value) if isinstance(value, str) else None for value in column]
        return pd.Series(whole, dtype=object, index=column.index)
    return column.astype(np.int64)


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
    if len(words & _YES_NO.keys()) > len(words & _FLAGS.keys()):
        return dict(_YES_NO), False, f"flags in words ({'/'.join(sorted(words & _YES_NO.keys(), reverse=True))})"
    for yes, no in _SIGNS:
        if words & yes and words & no and words <= yes | no:
            marks = (", ".join(map(repr, sorted(words & part))) for part in (yes, no))
            return {word: word in yes for word in words}, False, "{} for yes and {} for no".format(*marks)
    if len(words) == 1 and words <= _TICKS - {"1", "1.0", "true"}:
        return dict.fromkeys(words, True), False, f"{plain(values[0])!r} for yes"
    return _FLAGS, False, ""


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
    known = {True: True, False: False} | _FLAGS | _YES_NO
    words = [_word(plain(value)) for value in answers]
    for i, word in enumerate(words):
        if not isinstance(word, str | int | float) or word not in known:
            raise ChoiceGPError(f"answers[{i}] must be yes or no, true or false, 1 or 0; it is {word!r}")
    return np.array([known[word] for word in words], dtype=bool)
