"""One self-contained HTML file about a fitted model: no script, no font and no picture is loaded from elsewhere."""

import os
from collections.abc import Callable
from importlib import resources
from itertools import count
from typing import Any

from choicegp import __version__
from choicegp.checks import counted, kind_of
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.effects import Effects, model_effects
from choicegp.files import check_place, replaced_when_complete
from choicegp.reporting.asked import Asked, part_or_reason, quietly, sentence
from choicegp.reporting.findings import (
    drivers_section,
    objects_section,
    segments_section,
    shares_section,
    shortlist,
    shortlist_section,
)
from choicegp.reporting.html import Markup, bullets, element, joined
from choicegp.reporting.pictures import greys
from choicegp.reporting.summaries import drivers_in_words, quality_in_words
from choicegp.reporting.trust import data_section, fit_section, number_section

_SECTIONS: tuple[tuple[str, str, Callable[[Asked], Markup | None]], ...] = (
    ("data", "The data", data_section),
    ("trust", "The fit, and how far to trust it", fit_section),
    ("number", "How many utilities, and why", number_section),
    ("drivers", "What drives the choices", drivers_section),
    ("objects", "Objects by utility", objects_section),
    ("shortlist", "Short list", shortlist_section),
    ("shares", "Shares, and what if", shares_section),
    ("segments", "Segments of people", segments_section),
)
_PAPER = (
    "A. Benavoli, D. Azzimonti and D. Piga: Learning Choice Functions with Gaussian Processes. Proceedings of the 39th "
    "Conference on Uncertainty in Artificial Intelligence (UAI), 2023."
)


def report(
    model: Any,
    path: "str | os.PathLike[str] | None" = None,
    *,
    held_out: ChoiceData | None = None,
    assortments: Any = None,
    changes: dict[Any, Any] | None = None,
    n_segments: int | None = None,
    title: str = "What the choices say",
    command: str | None = None,
    random_state: int | None = 0,
) -> str:
    """Return a report on a fitted model as one HTML page, which needs nothing but itself, and write it to a file.

    The page has the data, how far the fit can be trusted, how many utilities there are and why, what drives the
    choices, the objects, a short list, shares of assortments, and segments where there are respondents.  What a model
    does not have, the page says in a sentence.

    Parameters
    ----------
    model : ChoiceGP or another fitted model
    path : path, optional
        File for the report, written whole or not at all.
    held_out : ChoiceData, optional
        Sets with choices that the model has not seen, to test it on.  By default every set of the training data is
        predicted from the others, where the model allows that.
    assortments : ChoiceData or dict, optional
        As `ChoiceGP.shares` takes them; by default the best objects of the short list.
    changes : dict, optional
        As `ChoiceGP.what_if` takes them, for the first assortment.  An object or a feature that it lacks is an error.
    n_segments : int, optional
        Number of segments of people; by default 3, or 2 of fewer than 12 people.
    title : str
    command : str, optional
        What made the report, which the page repeats at its end.
    random_state : int or None

    Returns
    -------
    str
        The page.  The same model and arguments give the same text.

    Examples
    --------
    >>> from choicegp import ParetoEmbedding, datasets
    >>> data = datasets.sincos(n_objects=24, n_sets=24).data
    >>> page = report(ParetoEmbedding(2, max_epochs=2).fit(data), title="Sines")
    >>> "<h1>Sines</h1>" in page, "http-equiv" in page, "<script" in page
    (True, False, False)
    """
    if not hasattr(model, "fit_result_") or not hasattr(model, "encoding_"):
        raise ChoiceGPError(f"report takes a fitted model; got {kind_of(model)}: call fit(data) first")
    if held_out is not None and not (isinstance(held_out, ChoiceData) and held_out.has_choices):
        raise ChoiceGPError("held_out must be a ChoiceData with choices")
    if path is not None:
        check_place(path)
    said: list[str] = []
    text = quietly(
        lambda: _page(
            Asked(model, held_out, assortments, changes, n_segments, _effects(model), count(1), random_state),
            title, command, said,
        ),
        said,
    )  # fmt: skip
    if path is not None:
        with replaced_when_complete(path) as handle:
            handle.write(text.encode())
    return text


def _effects(model: Any) -> Effects | None:
    """Return the effects of the model's features, where it has utilities of one person or of a population."""
    try:
        return model_effects(model)
    except ChoiceGPError:
        return None


def _page(asked: Asked, title: str, command: str | None, said: list[str]) -> str:
    made = []
    for name, heading, section in _SECTIONS:
        content = quietly(lambda of=name, one=section: _content(asked, of, one), said)  # type: ignore[misc]
        if content:
            made.append((name, heading, content))
    made.append(("made", "How this was made", _made(command, said)))
    contents = [element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in made]
    sections = [
        element("section", element("h2", heading), content, id=name, class_=f"of-{name}")
        for name, heading, content in made
    ]
    body = element(
        "main", element("h1", title), element("div", _in_short(asked), class_="short"),
        element("nav", element("ul", *contents), aria_label="Contents"), *sections, class_="page",
    )  # fmt: skip
    style = resources.files("choicegp.reporting").joinpath("report.css").read_text("utf-8")
    head = element(
        "head", element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title), element("style", Markup(style + greys(body))),
    )  # fmt: skip
    return "<!doctype html>\n" + element("html", head, element("body", body), lang="en") + "\n"


def _content(asked: Asked, name: str, section: Callable[[Asked], Markup | None]) -> Markup | None:
    # What a user has named must be right: with a sentence in its place, the report would look complete.
    if name == "shares" and (asked.assortments is not None or asked.changes):
        return section(asked)
    return part_or_reason(lambda: section(asked))


def _in_short(asked: Asked) -> Markup:
    """Say the most important things in a few lines."""
    lines = []

    def add(line: Callable[[], str]) -> None:
        try:
            lines.extend(line().splitlines())
        except ChoiceGPError:
            return  # its section says why

    add(lambda: str(asked.data.describe()).splitlines()[0])
    add(lambda: _explained(asked.model))
    if asked.effects is not None:
        add(lambda: drivers_in_words(asked.model, asked.effects))
    if asked.held_out is not None:
        held_out = asked.held_out
        add(lambda: quality_in_words(asked.model, held_out, "On sets that the model has not seen"))
    add(lambda: f"Most probably undominated: {'; '.join(shortlist(asked)['object'].tolist()[:3])}.")
    return joined([element("h2", "In short"), bullets(lines)])


def _explained(model: Any) -> str:
    kind, result = type(model).__name__, model.fit_result_
    n = getattr(model, "n_utilities_", None)
    by = f" by {counted(n, 'hidden utility', many='hidden utilities')}" if n else ""
    if result.status == "converged":
        return f"A {kind} explains the answers{by}; its fit converged."
    return f"A {kind} explains the answers{by}; its fit {result.status} ({result.message})."


def _made(command: str | None, said: list[str]) -> Markup:
    warnings = [element("h3", "Warnings while the report was made"), bullets(said)] if said else []
    how = command or "choicegp.report(model) in Python"
    return joined([
        *warnings, element("p", f"Made by choicegp {__version__} with:"), element("pre", element("code", how)),
        element("h3", "How to cite"), element("p", "Please cite the paper whose model this is, and the program:"),
        bullets([_PAPER, f"The choicegp developers: choicegp, version {__version__}."]),
        element("p", sentence("the same model and the same command give the same file"), class_="fine"),
    ])  # fmt: skip
