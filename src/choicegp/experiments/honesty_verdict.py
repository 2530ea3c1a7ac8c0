"""Goals of honesty, and whether the runs that are done reach them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

COVERAGE = (0.90, 0.98)
"""Range of the coverage of 95% intervals: what an approximation may lose, and not so wide that intervals say little."""
COVERAGE_BEYOND, SMALL_PROBLEM = 0.85, 600
"""Least coverage where d t, utilities times shown objects, is larger than this: sampling would take too long there."""
WRONG_SIGNS = 0.025
"""Most wrong signs among sure ones: what one tail of a 95% interval allows. No scale of utilities changes this."""
BELOW_CONSTANT = 0.02
"""By how much a set's log score may be below an answer that looks at nothing: hardly more than the error of a mean."""
CALIBRATION, FEWEST, ERRORS = 0.03, 100, 2
"""Largest gap in a tenth, how many objects a tenth must have, and how many binomial standard errors are allowed."""
JUMP = 0.005
"""Mean change by a certainly dominated object: what the points of a numerical integral may differ by."""
ENUMERABLE = 10
"""Largest sets whose log scores are compared; in larger ones the log losses of objects are."""

YES, NO, UNKNOWN = "yes", "**no**", "not measured"
LEVELS = {"d": "d = {}", "a": "a = {}", "features": "{} features", "objects": "{} objects", "related": "related {}"}


class GoalVerdict(NamedTuple):
    """One figure, its goal, what was measured, and whether that reaches the goal."""

    figure: str
    goal: str
    measured: str
    reached: str


def verdicts(frame: pd.DataFrame) -> list[GoalVerdict]:
    """Judge everything; ``frame`` has one row for each run, with its settings and values."""
    simulated, jumps = (frame[frame["part"] == part] for part in ("simulated", "jump"))
    return [
        *_of_coverage(simulated), *_of_signs(simulated), *_of_scores(frame), *_of_losses(simulated),
        *_of_calibration(simulated), *_of_jumps(jumps),
    ]  # fmt: skip


def _judged(figure: str, goal: str, values: pd.Series, low: float = -np.inf, high: float = np.inf) -> GoalVerdict:
    """Judge the mean of a figure over data sets by its limits."""
    values = values.dropna().astype(float)
    if not len(values):
        return GoalVerdict(figure, goal, "", UNKNOWN)
    mean = float(values.mean())
    return GoalVerdict(figure, goal, mean_with_error(values), YES if low <= mean <= high else NO)


def mean_with_error(values: pd.Series) -> str:
    """Write a mean over data sets, its standard error and how many there are."""
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error} ({len(values)} data set{'s' if len(values) > 1 else ''})"


def is_small(frame: pd.DataFrame) -> pd.Series:
    """Return which runs are small enough for sampling."""
    return frame["d"] * frame["shown_objects"] <= SMALL_PROBLEM


def levels(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the runs of each number of utilities, each set size, and so on, with a name."""
    for column, text in LEVELS.items():
        for value, own in frame.groupby(column):
            yield text.format(f"{value:g}"), own


def _of_coverage(simulated: pd.DataFrame) -> list[GoalVerdict]:
    low, high = COVERAGE
    goal, what = f"{low:.2f} to {high:.2f}", f"d t ≤ {SMALL_PROBLEM}"
    noisy, free = (simulated[simulated["answers"] == kind] for kind in ("noisy", "noise-free"))
    small = noisy[is_small(noisy)]
    found = [_judged(f"coverage of 95% intervals, noisy answers, {what}", goal, small["coverage"], low, high)]
    by_level = sorted(((own["coverage"].mean(), name, own) for name, own in levels(small)), key=lambda one: one[:2])
    for which, (_, name, own) in zip(("lowest", "highest"), (by_level[:1] + by_level[-1:]), strict=False):
        found.append(_judged(f"the same, {which} of all kinds: {name}", goal, own["coverage"], low, high))
    beyond, least = noisy[~is_small(noisy)]["coverage"], f"at least {COVERAGE_BEYOND:.2f}"
    found.append(_judged(f"coverage, noisy answers, d t > {SMALL_PROBLEM}", least, beyond, COVERAGE_BEYOND))
    name = f"coverage, noise-free answers, scale of the truth fitted, {what}"
    found.append(_judged(name, f"at least {low:.2f}", free[is_small(free)]["coverage"], low))
    return found


def _of_signs(simulated: pd.DataFrame) -> Iterator[GoalVerdict]:
    for kind in ("noisy", "noise-free"):
        own = simulated[simulated["answers"] == kind]
        n, wrong = (own[name].sum() for name in ("sure_signs", "wrong_signs"))
        text = f"{wrong / n:.3f} ({wrong:.0f} of {n:.0f})" if n else ""
        reached = UNKNOWN if not n else YES if wrong <= WRONG_SIGNS * n else NO
        yield GoalVerdict(f"wrong signs among sure ones, {kind} answers", f"at most {WRONG_SIGNS}", text, reached)


def _of_scores(frame: pd.DataFrame) -> Iterator[GoalVerdict]:
    goal = f"at least -{BELOW_CONSTANT}"
    gain = (frame["new_score"] - frame["new_constant_score"]).astype(float)
    figure = "log score a set of new objects minus the constant answer's"
    simulated = frame["part"] == "simulated"
    for (c, kind), own in frame[simulated].groupby(["features", "answers"]):
        yield _judged(f"{figure}: {c:g} features, {kind} answers", goal, gain[own.index], -BELOW_CONSTANT)
    for table, own in frame[frame["part"] == "table"].groupby("table"):
        yield _judged(f"{figure}: table {table}", goal, gain[own.index], -BELOW_CONSTANT)


def _of_losses(simulated: pd.DataFrame) -> Iterator[GoalVerdict]:
    large = simulated[simulated["a"] > ENUMERABLE]
    excess = large["new_loss"] - large["new_constant_loss"]
    for kind in ("noisy", "noise-free"):
        figure = f"log loss an object minus the constant answer's: new objects, a > {ENUMERABLE}, {kind} answers"
        own = excess[large["answers"] == kind]
        yield _judged(figure, f"at most {BELOW_CONSTANT}", own, high=BELOW_CONSTANT)


class Tenth(NamedTuple):
    """A tenth of predicted probabilities."""

    objects: float  # how many
    predicted: float  # mean probability
    observed: float  # share that was chosen

    @property
    def gap(self) -> float:
        """By how much more is chosen than predicted."""
        return self.observed - self.predicted

    @property
    def excess(self) -> float:
        """By how much the gap is larger than allowed; negative where it is not."""
        error = np.sqrt(self.predicted * (1 - self.predicted) / self.objects)
        return float(abs(self.gap) - CALIBRATION - ERRORS * error)


def tenths_of(runs: pd.DataFrame) -> list[Tenth]:
    """Add up the tenths of some runs, and leave out tenths that have too few objects."""
    names = ("tenth_count", "tenth_predicted", "tenth_chosen")
    sums = (np.sum(np.array(runs[name].to_list()), axis=0) for name in names)
    return [Tenth(n, p / n, chosen / n) for n, p, chosen in zip(*sums, strict=True) if n >= FEWEST]


def _of_calibration(simulated: pd.DataFrame) -> Iterator[GoalVerdict]:
    goal = f"within {CALIBRATION} and {ERRORS} standard errors"
    for kind in ("noisy", "noise-free"):
        figure = f"calibration in tenths with {FEWEST} objects or more, {kind} answers"
        groups = simulated[simulated["answers"] == kind].groupby(["a", "d"])
        judged = [(a, d, tenth) for (a, d), own in groups for tenth in tenths_of(own)]
        if not judged:
            yield GoalVerdict(figure, goal, "", UNKNOWN)
            continue
        outside = sum(tenth.excess > 0 for _, _, tenth in judged)
        a, d, worst = max(judged, key=lambda one: one[2].excess)
        text = (
            f"{outside} of {len(judged)} tenths outside; worst: {worst.predicted:.3f} predicted, {worst.observed:.3f} "
            f"observed (a = {a:g}, d = {d:g})"
        )
        yield GoalVerdict(figure, goal, text, NO if outside else YES)


def _of_jumps(jumps: pd.DataFrame) -> Iterator[GoalVerdict]:
    for d, own in jumps.groupby("d"):
        figure = f"mean change by a dominated eleventh object, d = {d:g}"
        yield _judged(figure, f"below {JUMP}", own["mean_change"], high=JUMP)
