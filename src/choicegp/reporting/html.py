"""A tiny writer of HTML: whatever is not markup already is escaped, so that no name from a table becomes markup."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

_VOID = ("meta",)
_LONGEST = 60  # letters of a cell that are shown whole
_LONGEST_HEADING = 30
_BRIEF = 26  # letters that are not broken into lines


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: str | None) -> Markup:
    """Return an element; children that are no `Markup` are text and are escaped, and None is left out.

    The attribute ``class_`` is written as class, and underscores in the names of others as hyphens.

    Examples
    --------
    >>> element("p", "<b>5 & 6</b>", class_="note")
    '<p class="note">&lt;b&gt;5 &amp; 6&lt;/b&gt;</p>'
    """
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    opening = "".join([tag, *(f' {name}="{text(value)}"' for name, value in named)])
    return Markup(f"<{opening}>" if tag in _VOID else f"<{opening}>{joined(children)}</{tag}>")


def joined(parts: Iterable[Any]) -> Markup:
    """Put pieces of a page one after the other; what is no markup is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None))


def text(value: Any) -> Markup:
    r"""Escape a text; control characters, which no page may hold, are shown as such.

    Examples
    --------
    >>> text("a < b\x00")
    'a &lt; b\\x00'
    """
    plain = str(value)
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in plain)
    return Markup(html.escape(plain))


def paragraphs(*lines: str) -> Markup:
    """Return one paragraph for each line that says something."""
    return joined(element("p", line) for line in lines if line)


def bullets(lines: Sequence[Any]) -> Markup:
    """Return a list, or nothing where there are no lines."""
    return element("ul", *(element("li", line) for line in lines)) if lines else Markup("")


def details(summary: str, *content: Any) -> Markup:
    """Return content that is folded away on a screen."""
    return element("details", element("summary", summary), *content)


def table(frame: pd.DataFrame, caption: str, *, digits: int = 2, percent: Sequence[str] = ()) -> Markup:
    """Return a table with a caption; the first column names the rows, and numbers are rounded.

    Parameters
    ----------
    frame : DataFrame
    caption : str
        What the table shows, in a sentence.
    digits : int
        Of numbers that are not whole.
    percent : sequence of str
        Columns of shares, written in percent.
    """
    numeric = [pd.api.types.is_numeric_dtype(frame[name].dtype) for name in frame.columns]
    kinds = ["number" if is_number and place else None for place, is_number in enumerate(numeric)]
    head = [_heading(str(name), kind) for name, kind in zip(frame.columns, kinds, strict=True)]
    rows = []
    for values in frame.itertuples(index=False, name=None):
        cells = [
            _cell(_written(value, digits, name in percent), place, kind)
            for place, (name, value, kind) in enumerate(zip(frame.columns, values, kinds, strict=True))
        ]
        rows.append(element("tr", *cells))
    whole = element(
        "table", element("caption", caption), element("thead", element("tr", *head)), element("tbody", *rows)
    )
    # A wide table scrolls in its own box, which the keyboard must reach too.
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _heading(name: str, kind: str | None) -> Markup:
    """Name a column; a long name is cut, or broken behind its underscores."""
    shown = Markup(text(_shortened(name, _LONGEST_HEADING)).replace("_", "_<wbr>"))
    return element("th", shown, scope="col", class_=kind, title=name if len(name) > _LONGEST_HEADING else None)


def _shortened(name: str, longest: int = _LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _cell(written: str, place: int, kind: str | None) -> Markup:
    tag, scope = ("th", "row") if place == 0 else ("td", None)
    kind = kind or ("brief" if len(written) <= _BRIEF else None)
    title = written if len(written) > _LONGEST else None
    return element(tag, _shortened(written), scope=scope, class_=kind, title=title)


def _written(value: Any, digits: int, as_percent: bool) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if as_percent:
            return f"{100 * value:.0f}%"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"
    return str(value)
