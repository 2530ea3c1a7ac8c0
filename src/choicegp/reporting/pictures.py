"""Pictures inside a page: SVG whose greys are the page's own, so that they can be read on light and on dark paper."""

import re
from typing import Any

from choicegp.plotting.files import svg_text
from choicegp.reporting.html import Markup, element, text

_HEAD = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
_ABOUT = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_SIZE = re.compile(r'(<svg\b[^>]*?) width="([\d.]+)pt" height="([\d.]+)pt"', re.DOTALL)
_ID = re.compile(r'\b(id="|xlink:href="#|href="#|url\(#)')
_GREY = re.compile(r"#([0-9a-f]{2})\1\1\b", re.IGNORECASE)
_DARK_PAPER, _DARK_INK = 24, 233  # what white and black become on dark paper


def figure(drawn: Any, number: int, alternative: str, caption: str) -> Markup:
    """Return a Matplotlib figure as part of a page.

    Parameters
    ----------
    drawn : Figure
    number : int
        Of the figure in the page: its ids begin with it.
    alternative : str
        What can be seen, for those who do not see it.
    caption : str
        How to read the picture, in a sentence.
    """
    svg = _inline(svg_text(drawn, transparent=True), f"f{number}-", alternative)
    return element(
        "figure", element("div", svg, class_="picture", tabindex="0", role="group", aria_label=f"Figure {number}"),
        element("figcaption", caption),
    )  # fmt: skip


def _inline(svg: str, prefix: str, alternative: str) -> Markup:
    """Make an SVG file a part of a page: without a head, with ids of its own, a name and the page's greys."""
    svg = _ABOUT.sub("", _HEAD.sub("", svg))
    svg = _ID.sub(lambda found: found[1] + prefix, svg)
    svg = _GREY.sub(lambda found: f"var(--grey-{found[1].lower()})", svg)
    named = f'role="img" aria-label="{text(alternative)}"'
    return Markup(_SIZE.sub(lambda found: f'{found[1]} {named} style="--wide: {found[2]}pt"', svg, count=1))


def greys(page: str) -> str:
    """Return the rules that give every grey of the pictures on a page its value on light and on dark paper.

    Examples
    --------
    >>> greys("")
    ':root{--grey-00:#000000}@media screen and (prefers-color-scheme:dark){:root{--grey-00:#e9e9e9}}'
    """
    # Matplotlib does not say that text is black: the page's own rules do.
    used = sorted({"00", *re.findall(r"var\(--grey-([0-9a-f]{2})\)", page)})
    light = ";".join(f"--grey-{value}:#{value * 3}" for value in used)
    dark = ";".join(f"--grey-{value}:#{_on_dark(int(value, 16)) * 3}" for value in used)
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _on_dark(value: int) -> str:
    return f"{round(_DARK_INK + (_DARK_PAPER - _DARK_INK) * value / 255):02x}"
