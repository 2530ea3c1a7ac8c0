"""Sections of a report on the data, on the fit, on how far it can be trusted, and on the number of utilities."""

from typing import Any

import numpy as np
import pandas as pd

from choicegp.checks import counted
from choicegp.evaluation import metrics
from choicegp.evaluation.calibration import calibration
from choicegp.plotting.model_plots import plot_elbo
from choicegp.plotting.trust_plots import draw_calibration, left_out_calibration, plot_selection
from choicegp.reporting.asked import Asked, part_or_reason, quietly, ranges, sentence
from choicegp.reporting.html import Markup, bullets, details, element, joined, paragraphs, table
from choicegp.reporting.summaries import quality_in_words
from choicegp.selection.loo import WHY_THEY_DIFFER

_MOST_DEFECTS = 30
_MOST_OBJECTS = 400  # shown: beyond, leaving sets out takes too long for a report
_MOST_REFITS = 12


def data_section(asked: Asked) -> Markup:
    """Say what the model learned from, and what was left out of it."""
    data = asked.data
    parts = [paragraphs(*str(data.describe()).splitlines()), table(ranges(data), "What the objects are described by.")]
    if data.skipped:
        lines = [str(defect) for defect in data.skipped[:_MOST_DEFECTS]]
        more = len(data.skipped) - len(lines)
        lines += [f"and {more} more"] if more else []
        parts.append(details(f"What was left out when the data were read ({len(data.skipped)})", bullets(lines)))
    return joined(parts)


def fit_section(asked: Asked) -> Markup:
    """Say how the fit went, whether its approximation holds, and how good its predictions are."""
    model = asked.model
    result = model.fit_result_
    parts: list[Any] = [element("p", line) for line in str(model).splitlines()]
    if hasattr(model, "intervals_"):
        parts.append(element("p", f"Intervals: {model.intervals_}."))
    if notes := getattr(result, "notes", ()):
        parts += [element("h3", "What happened on the way"), bullets([sentence(note) for note in notes])]
    parts += [element("h3", "Is the approximation good enough?"), part_or_reason(lambda: _diagnosis(asked))]
    parts += [element("h3", "Are the probabilities honest?"), _honesty(asked)]
    if hasattr(model, "loo"):
        parts += [element("h3", "Leave-one-out scores"), part_or_reason(lambda: _left_out_scores(asked))]
    if hasattr(model, "elbo_"):
        caption = "The evidence lower bound should rise and settle; a curve that still rises was stopped too early."
        drawn = asked.picture(plot_elbo(model), "The evidence lower bound over the steps of the fit.", caption)
        parts.append(details("The course of the fit", drawn))
    return joined(parts)


def _diagnosis(asked: Asked) -> Markup:
    if not hasattr(asked.model, "diagnose"):
        kind = type(asked.model).__name__
        return element("p", f"A {kind} has no diagnosis of its own: judge it by sets that were held out.")
    return element("p", sentence(asked.model.diagnose(random_state=asked.random_state).message))


def _honesty(asked: Asked) -> Markup:
    if asked.held_out is not None:
        return joined([part_or_reason(lambda: _scores(asked)), part_or_reason(lambda: _held_out(asked))])
    option = element("code", "--data FILE")
    how = joined(["No sets were held out. Pass some with choices (", option, ") to test the model on new sets."])
    return joined([part_or_reason(lambda: _by_leave_one_out(asked)), element("p", how, class_="fine")])


def _scores(asked: Asked) -> Markup:
    """Compare predictions for held-out sets with the answers, beside two that look at nothing."""
    model, data = asked.model, asked.held_out
    assert data is not None
    frame = metrics.summary(data, model.predict(data)).reset_index(names="prediction")
    names = {
        "prediction": "prediction", "exact_accuracy": "sets exactly right", "object_accuracy": "objects right",
        "tpr": "chosen ones found", "tnr": "rejected ones found",
    }  # fmt: skip
    shown = frame[list(names)].rename(columns=names).astype(dict.fromkeys(list(names.values())[1:], float))
    caption = f"Predictions for {counted(len(data), 'held-out set')}, beside answers that look at nothing."
    words = quality_in_words(model, data, "Held-out sets")
    return joined([element("p", words), table(shown, caption, percent=list(names.values()))])


def _held_out(asked: Asked) -> Markup:
    assert asked.held_out is not None
    found = calibration(asked.held_out, asked.model.predict_proba(asked.held_out))
    return _calibrated(asked, found, f"Calibration on {counted(len(asked.held_out), 'held-out set')}")


def _by_leave_one_out(asked: Asked) -> Markup:
    data, found = left_out_calibration(asked.model)
    title = f"Calibration on {counted(len(data), 'set')}, each predicted from the others"
    return _calibrated(asked, found, title)


def _calibrated(asked: Asked, found: pd.DataFrame, title: str) -> Markup:
    off = ~found["predicted"].between(found["low"], found["high"])
    mean = float(np.average(np.abs(found["predicted"] - found["observed"]), weights=found["objects"]))
    bins, outside = counted(len(found), "bin"), int(off.sum())
    place, where = ("outside", f"{outside} of {bins}") if outside else ("inside", f"all {bins}")
    verdict = (
        f"Predicted probabilities and observed shares differ by {mean:.3f} on average over "
        f"{counted(int(found['objects'].sum()), 'object')}. The prediction lies {place} the "
        f"95% interval of the observed share in {where}."
    )
    advice = (
        "That is more often than chance explains: treat the probabilities with care."
        if outside > max(1.0, 0.2 * len(found))
        else "Nothing speaks against these probabilities."
    )
    caption = "Of the objects that were given 70%, about 70% should have been chosen: points near the line are honest."
    drawn = asked.picture(draw_calibration(found, title), f"{title}. {verdict}", caption)
    return joined([element("p", f"{verdict} {advice}"), drawn])


def _left_out_scores(asked: Asked) -> Markup:
    """Show our leave-one-out beside ArviZ's, and say why they differ."""
    model = asked.model
    n_objects = len(np.unique(asked.data.flat_shown))
    if n_objects > _MOST_OBJECTS:
        return element("p", f"With {n_objects} shown objects, leaving out every set takes long: call model.loo().")
    if model.fitted_.study is not None:
        return element(
            "p", "Leaving out every set of every person would take long here: call model.loo(), or hold sets out."
        )

    def scores(method: str, **options: Any) -> Any:
        # The table has what it would warn of.
        return quietly(lambda: model.loo(method, random_state=asked.random_state, **options), [])

    results = [("choicegp", scores("cavity", max_refits=_MOST_REFITS)), ("ArviZ's method", scores("psis"))]
    frame = pd.DataFrame(
        [(name, one.elpd, one.se, one.n_effective, len(one.doubtful)) for name, one in results],
        columns=["method", "expected log score", "standard error", "effective parameters", "doubtful sets"],
    )
    caption = "The sum over sets of the log probability of the choice, each set predicted from all others."
    why = element("p", WHY_THEY_DIFFER, class_="fine")
    doubts = [element("p", sentence(one.warning), class_="fine") for _, one in results[:1] if one.warning]
    return joined([table(frame, caption, digits=1), why, *doubts])


def number_section(asked: Asked) -> Markup | None:
    """Say how many utilities there are, and why."""
    model = asked.model
    if not hasattr(model, "n_utilities_"):
        return None
    number = counted(model.n_utilities_, "utility", many="utilities")
    chosen = getattr(model.fitted_, "chosen", None)
    if chosen is None:
        how = "choicegp select" if hasattr(model, "posterior_") else "a search over several models"
        return element(
            "p", f"The model has {number}. The number was given, not chosen: {how} compares numbers of utilities."
        )
    scores = chosen.table.reset_index()
    names = {
        "n_utilities": "utilities", "elpd": "expected log score", "se": "standard error",
        "elpd_diff": "below the best", "dse": "standard error of that", "p": "effective parameters",
    }  # fmt: skip
    shown = scores[[name for name in names if name in scores]].rename(columns=names)
    caption = "The smallest number that is within one standard error of the best is chosen."
    picture = asked.picture(plot_selection(chosen), "The score of each number of utilities.", caption)
    return joined([element("p", sentence(chosen.reason)), picture, table(shown, caption, digits=1)])
