"""Numbers that are written for people: with decimal commas, separated thousands, a currency or a unit."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import listed
from choicegp.errors import ChoiceGPError, ReadingWarning
from choicegp.reading.defects import factorized, is_missing

MANY_LEVELS = 20
MISSING_WORDS = frozenset(
    ["NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "NaT", "-nan", "-NaN"]
)
_UNIQUE = 0.8  # share of the rows with words of their own from which on a column is nearly unique
_FEW_ROWS = 10

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
                f"column {name!r} holds numbers such as {unclear!r}, whose separator may be a decimal sign or separate "
                "thousands; pass decimal='.' or decimal=','"
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
        others = [other for other in rest if other != name]
        if 2 * len(measured) > len(words) and len(measured) > 1:
            found.append(
                ReadingWarning(
                    f"column {name!r} is read as words, though most are numbers with a currency or a unit, such as "
                    f"{measured[0]!r}; to read them as numbers, pass numbers={[name]!r}"
                )
            )
        elif len(words) > MANY_LEVELS or (len(words) >= _FEW_ROWS and len(words) > _UNIQUE * len(column)):
            leave = f"; to leave it out, pass features={others[:6]!r}" if others and len(others) <= 6 else ""
            found.append(
                ReadingWarning(
                    f"column {name!r} has {len(words)} different words in {len(column)} rows, and each becomes a "
                    f"feature{leave or '; to leave it out, name the columns of features'}"
                )
            )
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
