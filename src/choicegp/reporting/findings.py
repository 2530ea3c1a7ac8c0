"""Sections of a report on what was found: what drives the choices, the objects, the short list, and the market."""

from typing import Any

import numpy as np
import pandas as pd

from choicegp.checks import counted, in_digits
from choicegp.data.choices import ChoiceData
from choicegp.data.pareto import undominated
from choicegp.errors import ChoiceGPError
from choicegp.plotting.drivers_plot import plot_drivers
from choicegp.plotting.market_plots import plot_segments, plot_shares, plot_what_if
from choicegp.plotting.model_plots import MOST_OBJECTS, plot_effects, plot_objects
from choicegp.reporting.asked import Asked, sentence
from choicegp.reporting.html import Markup, bullets, details, element, joined, table
from choicegp.reporting.summaries import drivers_in_words

_MOST_ROWS = 200  # of the table of objects
_FIRST_ROWS = 15
_MOST_FEATURES = 5  # columns of that table
_N_SHORT = 10
_N_TOGETHER = 6  # objects of the short list that are offered together
_MOST_PANELS = 6  # assortments that are drawn


def drivers_section(asked: Asked) -> Markup:
    """Say and draw what the utilities depend on."""
    model, effects = asked.model, asked.effects
    if effects is None:
        why = f"A {type(model).__name__} does not say what drives the choices: fit a ChoiceGP for that."
        return element("p", why, class_="note")
    words = drivers_in_words(model, effects, sizes=True)
    first = asked.picture(
        plot_drivers(model, effects=effects), f"What each utility depends on. {' '.join(words.split())}",
        "Long bars matter most. A grey bar is a feature whose direction the answers do not settle.",
    )  # fmt: skip
    features = f"{len(effects.names)} features"
    second = asked.picture(
        plot_effects(model, effects=effects), f"The effect of {features} on each utility.",
        "What each feature does to each utility, averaged over the other features; bands hold 95%.",
    )  # fmt: skip
    how = "In brackets: how much a feature matters, in units of the error that people make in a comparison."
    return joined([bullets(words.splitlines()), element("p", how, class_="fine"), first, second])


def objects_section(asked: Asked) -> Markup:
    """Draw the objects by their utilities and list them."""
    model, data, names = asked.model, asked.data, asked.names()
    if len(names) > MOST_OBJECTS:
        return element("p", f"There are {len(names)} objects, too many to draw or list here: use choicegp predict.")
    found = model.utilities(data)
    n_utilities = found.mean.shape[1]
    picture = None
    if hasattr(model, "n_utilities_"):
        caption = "Objects further to the right and higher up are better. The marked ones no other beats in everything."
        if n_utilities == 1:
            caption = "The best objects, from the top down."
        drawn = plot_objects(model, data=data, names=names)
        picture = asked.picture(drawn, f"{counted(len(names), 'object')} by their utilities.", caption)
    front = undominated(found.mean)
    order = np.lexsort((-found.mean.sum(axis=1), ~front))
    frame = _object_table(asked, found, front, names).iloc[order]
    kept = int(front.sum())
    verb = "is" if kept == 1 else "are"
    text = f"{counted(kept, 'object')} of {len(names)} {verb} undominated: no other is better in every utility."
    if n_utilities == 1:
        text = "With one utility there is one order of all objects."
    caption = "The undominated objects, then those with high utilities."
    caption += "" if found.lower is None else " In brackets: 95% intervals."
    which = "first" if asked.effects is None else "most relevant"
    caption += f" Of the features, the {_MOST_FEATURES} {which} ones." if len(asked.features) > _MOST_FEATURES else ""
    first = table(frame.iloc[:_FIRST_ROWS], caption)
    rest = frame.iloc[_FIRST_ROWS:_MOST_ROWS]
    more = None
    if len(rest):
        left_out = f", of {len(frame)}" if len(frame) > _MOST_ROWS else ""
        more = details(
            f"Further objects ({len(rest)}{left_out})", table(rest, "Further objects, in the same order as above.")
        )
    return joined([element("p", text), picture, first, more])


def _object_table(asked: Asked, found: Any, front: np.ndarray, names: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame({"object": names})
    if found.mean.shape[1] > 1:
        frame["undominated"] = ["yes" if one else "no" for one in front]
    for i in range(found.mean.shape[1]):
        digits = 1 if np.abs(found.mean[:, i]).max() < 100 else 0
        written = [f"{value:.{digits}f}" for value in found.mean[:, i]]
        if found.lower is not None:
            ends = zip(found.lower[:, i].round(digits), found.upper[:, i].round(digits), strict=True)
            pairs = [f"{low + 0.0:.{digits}f} to {high + 0.0:.{digits}f}" for low, high in ends]
            written = [f"{one} ({both})" for one, both in zip(written, pairs, strict=True)]
        frame[f"utility {i + 1}"] = written
    features = asked.data.encoding.decode(asked.data.X)
    for name in asked.features[:_MOST_FEATURES]:
        label = name if name not in frame else f"{name} (feature)"
        values = features[name].to_numpy()
        is_number = pd.api.types.is_numeric_dtype(features[name].dtype)
        frame[label] = [in_digits(value) for value in values] if is_number else [str(value) for value in values]
    return frame


def shortlist(asked: Asked) -> pd.DataFrame:
    """Return the objects that are most probably undominated: their rows, names and probabilities."""
    model, data = asked.model, asked.data
    if not hasattr(model, "recommend"):
        raise ChoiceGPError(f"a {type(model).__name__} has no short list, as a ChoiceGP has")
    best = model.recommend(data, min(_N_SHORT, len(data.X)), random_state=asked.random_state)
    names, rows = asked.names(), pd.Index(data.object_ids)
    # An id may stand for several objects, whose features differ: the first one with the id gives the name.
    places = [int(np.flatnonzero(rows == one)[0]) for one in best.index]
    return pd.DataFrame(
        {"row": places, "object": [names[row] for row in places], "probability": best["probability"].to_numpy()}
    )


def shortlist_section(asked: Asked) -> Markup:
    """List the objects that are most probably undominated."""
    best = shortlist(asked)
    caption = f"The objects most probably undominated among all {len(asked.data.X)}."
    how = "The probability is about the utilities alone: it leaves out errors that people make in their answers."
    shown = best[["object", "probability"]]
    return joined([table(shown, caption, percent=["probability"]), element("p", how, class_="fine")])


def shares_section(asked: Asked) -> Markup:
    """Estimate shares of assortments, and what changes make of them."""
    model = asked.model
    if not hasattr(model, "shares"):
        raise ChoiceGPError(f"a {type(model).__name__} has no shares, as a ChoiceGP has")
    parts: list[Any] = []
    assortments = asked.assortments
    if assortments is None:
        assortments = {"short list": _offered(asked)}
        n = len(assortments["short list"])
        files, changes = element("code", "--assortments FILE"), element("code", "--change OBJECT:FEATURE=VALUE")
        how = joined(["Pass other assortments with ", files, ", and changes with ", changes, "."])
        parts.append(
            element("p", f"What would happen if the first {n} objects of the short list were offered together?")
        )
        parts.append(element("p", how, class_="fine"))
    found = _renamed(asked, model.shares(assortments, random_state=asked.random_state))
    drawn = found[found["set"].isin(pd.unique(found["set"])[:_MOST_PANELS])]
    meaning = (
        "An object is kept if it would not be rejected; several may be kept. Who keeps several takes one of them, each "
        "with the same probability."
    )
    caption = f"{_whose(asked)} would keep an object, and take it, with 95% intervals. {meaning}"
    parts.append(asked.picture(plot_shares(drawn), "Shares of each assortment, as in the table.", caption))
    parts.append(details("The shares as a table", table(_with_intervals(found), "Shares of every assortment.")))
    if asked.changes:
        parts.append(_changed(asked, assortments))
    return joined(parts)


def _whose(asked: Asked) -> str:
    if asked.model.fitted_.study is not None:
        return "The share of the respondents who"
    people = asked.data.respondents
    pooled = people is not None and len(pd.unique(people)) > 1
    who = "someone who answers like all respondents together" if pooled else "the one person whom the model knows"
    return f"The probability that {who}"


def _offered(asked: Asked) -> pd.DataFrame:
    """Return the best objects of the short list as an assortment."""
    data = asked.data
    rows = shortlist(asked)["row"].to_numpy()[:_N_TOGETHER]
    table = data.encoding.decode(data.X[rows]).set_axis(data.object_ids[rows])
    return table[~table.index.duplicated()]


def _changed(asked: Asked, assortments: Any) -> Markup:
    first = assortments.take([0]) if isinstance(assortments, ChoiceData) else next(iter(assortments.values()))
    found = asked.model.what_if(first, asked.changes, random_state=asked.random_state)
    found = _renamed(asked, found)
    lines = [f"{name}: {_change_in_words(change)}." for name, change in (asked.changes or {}).items()]
    caption = "What the changes make of the first assortment; intervals are of the differences."
    drawn = asked.picture(plot_what_if(found), "Shares before and after the changes, as in the table.", caption)
    columns = {
        "object": "object", "kept_before": "keep before", "kept_after": "keep after",
        "taken_before": "take before", "taken_after": "take after",
    }  # fmt: skip
    shown = found[list(columns)].rename(columns=columns)
    shares = table(shown, "Shares before and after the changes.", percent=list(columns.values()))
    return joined([element("h3", "What if"), bullets(lines), drawn, shares])


def _change_in_words(change: Any) -> str:
    if change is None:
        return "withdrawn"
    written = {name: in_digits(value) if isinstance(value, float) else str(value) for name, value in change.items()}
    return ", ".join(f"{name} becomes {value}" for name, value in written.items())


def _renamed(asked: Asked, found: pd.DataFrame) -> pd.DataFrame:
    names = asked.names_by_id()
    return found.assign(object=[names.get(one, one) for one in found["object"]]) if names else found


def _with_intervals(found: pd.DataFrame) -> pd.DataFrame:
    frame = pd.DataFrame({"object": found["object"].astype(str), "assortment": found["set"].astype(str)})
    for name in ("kept", "taken"):
        numbers = zip(found[name], found[f"{name}_lower"], found[f"{name}_upper"], strict=True)
        frame[name] = [f"{mean:.0%} ({low:.0%} to {high:.0%})" for mean, low, high in numbers]
    return frame


def segments_section(asked: Asked) -> Markup | None:
    """Say which people choose in the same way, where there are respondents."""
    study = getattr(asked.model.fitted_, "study", None)
    if study is None:
        data = asked.data
        if data.respondents is None or len(pd.unique(data.respondents)) < 2:
            return None
        return element("p", "The model pools all respondents; fit it with --people hierarchical to see segments.")
    k = asked.n_segments or (3 if len(study.ids) >= 12 else 2)
    found = asked.model.segments(k, random_state=asked.random_state)
    caption = "Points to the right: this segment keeps objects with more of the feature more often than others do."
    drawn = asked.picture(plot_segments(found), sentence(" ".join(str(found).split())), caption)
    return joined([bullets(str(found).splitlines()), drawn])
