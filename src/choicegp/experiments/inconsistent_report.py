"""Tables, verdicts and figures of the experiment on inconsistent preferences."""

from typing import TYPE_CHECKING

import numpy as np

from choicegp.experiments.experiment import ExperimentReport, Outcome, RunValues
from choicegp.experiments.pairs import PREFERENCES
from choicegp.experiments.results import (
    MeanDifference,
    difference,
    is_better,
    is_equal,
    is_not_worse,
    markdown_table,
    mean_and_error,
    together,
)
from choicegp.plotting.style import COLOURS, LINES, MARKERS, legend_below, new_figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEDIUM = 0.5  # the level of sparsity at which the number of utilities is varied
N_TRUE = {1: 1, 2: 3}  # utilities, by the number of classes
RIVALS = tuple(PREFERENCES)
MODELS = ("ChoiceGP", *RIVALS)


class Results:
    """Values of the runs that are done, by classes, sparsity, model and number of utilities, and then by seed."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.values: dict[tuple[int, float, str, int | None], dict[int, RunValues]] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome.settings["seed"]):
            s = outcome.settings
            key = (s["n_classes"], s["sparsity"], s["model"], s.get("n_utilities"))
            self.values.setdefault(key, {})[s["seed"]] = outcome.values
        self.classes = sorted({n_classes for n_classes, *_ in self.values})

    def levels(self, n_classes: int) -> list[float]:
        """Return the levels of sparsity at which something was run."""
        return sorted({sparsity for classes, sparsity, *_ in self.values if classes == n_classes})

    def numbers(self, n_classes: int) -> list[int]:
        """Return the numbers of utilities that ChoiceGP had at the medium level."""
        return sorted(d for *key, d in self.values if key == [n_classes, MEDIUM, "ChoiceGP"] and d is not None)

    def at(
        self, score: str, n_classes: int, sparsity: float, model: str, n_utilities: int | None = None
    ) -> dict[int, float]:
        """Return a score by seed; of ChoiceGP with the true number of utilities unless another is given."""
        if model == "ChoiceGP" and n_utilities is None:
            n_utilities = N_TRUE[n_classes]
        found = self.values.get((n_classes, sparsity, model, n_utilities), {})
        return {seed: values[score] for seed, values in found.items() if score in values}

    def over_levels(self, score: str, n_classes: int, model: str) -> dict[int, float]:
        """Return the mean over levels, by seed, of the repetitions that have them all."""
        parts = [self.at(score, n_classes, sparsity, model) for sparsity in self.levels(n_classes)]
        seeds = set.intersection(*(set(part) for part in parts))
        return {seed: float(np.mean([part[seed] for part in parts])) for seed in sorted(seeds)}

    def gap(self, score: str, n_classes: int, rival: str, sparsity: float | None = None) -> MeanDifference:
        """Return ChoiceGP minus a rival, at one level or over all of them."""

        def scores(model: str) -> dict[int, float]:
            if sparsity is None:
                return self.over_levels(score, n_classes, model)
            return self.at(score, n_classes, sparsity, model)

        return difference(scores("ChoiceGP"), scores(rival))

    def step(self, n_classes: int, before: int, after: int) -> MeanDifference:
        """Return what going from one number of utilities to another adds to the accuracy at the medium level."""
        first, second = (self.at("accuracy", n_classes, MEDIUM, "ChoiceGP", d) for d in (after, before))
        return difference(first, second)


def report_of(results: Results) -> ExperimentReport:
    """Tabulate, judge and draw results."""
    if not results.values:
        return ExperimentReport("No run is done yet.\n", {})
    parts = [
        "### The paper's claims",
        "\n".join(line for n_classes in results.classes for line in _claims(results, n_classes)),
        "### Accuracy on held-out pairs, each model on answers of its own kind",
        "Mean ± standard error over repetitions. Both kept: the share of pairs from which both objects are kept, which "
        'is also the accuracy of always answering "both".',
        _score_table(results, "accuracy", results.classes),
    ]
    if 2 in results.classes:
        asked = "One object of each of these held-out pairs is better in all utilities: does the model find it better?"
        parts += ["### Common accuracy, L = 2", asked, _score_table(results, "common_accuracy", [2])]
    parts += ["### ChoiceGP minus another model, in the same repetitions", _gap_table(results)]
    parts += [f"### ChoiceGP with other numbers of utilities, sparsity {MEDIUM}", _utilities_table(results)]
    parts += ["### Fits", _fits_table(results)]
    figures = {"inconsistent-accuracy": _accuracy_figure(results), "inconsistent-utilities": _utilities_figure(results)}
    return ExperimentReport("\n\n".join(parts) + "\n", figures)


def _claims(results: Results, n_classes: int) -> list[str]:
    lines, rivals = [], RIVALS
    if n_classes == 1:
        equal, rivals = results.gap("accuracy", 1, "PGP"), RIVALS[1:]
        lines.append(f"- L = 1: ChoiceGP equals PGP: **{is_equal(equal)}** ({equal}).")
    for score, name in (("accuracy", ""), ("common_accuracy", " by the common accuracy")):
        if score == "accuracy" or n_classes == 2:
            gaps = {rival: results.gap(score, n_classes, rival) for rival in rivals}
            told = ", ".join(f"{rival} {gap}" for rival, gap in gaps.items())
            verdict = together([is_better(gap) for gap in gaps.values()])
            lines.append(f"- L = {n_classes}: ChoiceGP beats {', '.join(rivals)}{name}: **{verdict}** ({told}).")
    return lines + _claims_on_number(results, n_classes)


def _claims_on_number(results: Results, n_classes: int) -> list[str]:
    """Judge whether the accuracy rises to the true number of utilities, and whether it falls after."""
    true, lines = N_TRUE[n_classes], []
    tried = results.numbers(n_classes)
    claims = (
        (f"accuracy rises up to d = {true}", is_better, [(d - 1, d) for d in range(2, true + 1)]),
        (f"accuracy does not fall after d = {true}", is_not_worse, [(true, d) for d in tried if d > true]),
    )
    for claim, judge, steps in claims:
        found = {step: results.step(n_classes, *step) for step in steps}
        if found:
            told = ", ".join(f"{before} to {after}: {gap}" for (before, after), gap in found.items())
            verdict = together([judge(gap) for gap in found.values()])
            ours = " (the paper shows L = 2 alone)" if n_classes == 1 else ""
            lines.append(f"- L = {n_classes}{ours}: {claim}: **{verdict}** ({told}).")
    return lines


def _score_table(results: Results, score: str, classes: list[int]) -> str:
    """Tabulate a score of all models, and what the pairs are like that it is made of."""
    pairs, head = ("n_comparable", "pairs scored") if score == "common_accuracy" else ("both_share", "both kept")
    rows = []
    for n_classes in classes:
        for sparsity in results.levels(n_classes):
            found = [results.at(score, n_classes, sparsity, model) for model in MODELS]
            known = results.at(pairs, n_classes, sparsity, "ChoiceGP")
            told = f"{np.mean(list(known.values())):.{1 if pairs == 'n_comparable' else 3}f}" if known else None
            rows.append((n_classes, sparsity, *map(mean_and_error, found), told, max(map(len, found))))
    return markdown_table(("L", "sparsity", *MODELS, head, "repetitions"), rows)


def _gap_table(results: Results) -> str:
    rows = []
    for n_classes in results.classes:
        for score in ("accuracy", "common_accuracy")[:n_classes]:
            for sparsity in (*results.levels(n_classes), None):
                gaps = [results.gap(score, n_classes, rival, sparsity) for rival in RIVALS]
                level = "all levels" if sparsity is None else sparsity
                rows.append((n_classes, score.replace("_", " "), level, *gaps))
    return markdown_table(("L", "score", "sparsity", *(f"minus {rival}" for rival in RIVALS)), rows)


def _utilities_table(results: Results) -> str:
    rows = [
        (
            n_classes,
            f"{d} (true)" if d == N_TRUE[n_classes] else d,
            *(
                mean_and_error(results.at(score, n_classes, MEDIUM, "ChoiceGP", d))
                for score in ("accuracy", "common_accuracy", "log_score")
            ),
        )
        for n_classes in results.classes
        for d in results.numbers(n_classes)
    ]
    return markdown_table(("L", "d", "accuracy", "common accuracy", "log score"), rows)


def _fits_table(results: Results) -> str:
    """Tell how many fits converged, their seconds, and the log scores of answers of each model's own kind."""
    rows = []
    for n_classes in results.classes:
        for model in MODELS:
            values = [
                one
                for (classes, _, name, d), own in results.values.items()
                if (classes, name) == (n_classes, model) and d in (None, N_TRUE[n_classes])
                for one in own.values()
            ]
            if not values:
                continue
            converged = sum(one["status"] == "converged" for one in values)
            seconds, score = (float(np.mean([one[name] for one in values])) for name in ("fit_seconds", "log_score"))
            rows.append((n_classes, model, f"{converged} of {len(values)}", f"{seconds:.2f}", f"{score:.3f}"))
    return markdown_table(("L", "model", "converged", "seconds of a fit", "log score"), rows)


def _accuracy_figure(results: Results) -> "Figure":
    drawn = [(n_classes, "accuracy") for n_classes in results.classes]
    drawn += [(2, "common_accuracy")] if 2 in results.classes else []
    figure = new_figure(1.0 + 3.4 * len(drawn), 3.9)
    axes = panels(figure, len(drawn))
    for ax, (n_classes, score) in zip(axes, drawn, strict=True):
        for number, model in enumerate(MODELS):
            points = {s: results.at(score, n_classes, s, model) for s in results.levels(n_classes)}
            # Side by side, so that bars do not hide each other.
            _draw_means(ax, {s + 0.012 * (number - 1.5): own for s, own in points.items()}, number, model)
        if n_classes == 2 and score == "accuracy":
            _draw_both(ax, results)
        utilities = f"d = {N_TRUE[n_classes]}"
        what = "which one dominates" if score == "common_accuracy" else "answers of its own kind"
        ax.set_title(f"L = {n_classes} ({utilities}): {what}", fontsize=10)
        ax.set_xticks(results.levels(n_classes))
        ax.set(xlabel="sparsity (share of pairs held out)", ylabel=score.replace("_", " "))
    legend_below(figure, 5)
    return figure


def _draw_both(ax: "Axes", results: Results) -> None:
    shares = {s: results.at("both_share", 2, s, "ChoiceGP") for s in results.levels(2)}
    known = {s: float(np.mean(list(own.values()))) for s, own in shares.items() if own}
    ax.plot(list(known), list(known.values()), ":", marker="x", color="0.4", label='always "both"')


def _draw_means(ax: "Axes", points: dict[float, dict[int, float]], number: int, label: str) -> None:
    """Draw means over repetitions with standard errors; one repetition has none."""
    found = {place: difference(own, dict.fromkeys(own, 0.0)) for place, own in points.items() if own}
    ax.errorbar(
        list(found), [one.mean for one in found.values()], [one.se if one.n > 1 else 0.0 for one in found.values()],
        color=COLOURS[number], linestyle=LINES[number], marker=MARKERS[number], markersize=5, capsize=3.0, label=label,
    )  # fmt: skip


def _utilities_figure(results: Results) -> "Figure":
    figure = new_figure(1.0 + 3.4 * len(results.classes), 3.4)
    axes = panels(figure, len(results.classes))
    for ax, n_classes in zip(axes, results.classes, strict=True):
        numbers = results.numbers(n_classes)
        points = {float(d): results.at("accuracy", n_classes, MEDIUM, "ChoiceGP", d) for d in numbers}
        _draw_means(ax, points, 0, "ChoiceGP, standard error")
        ax.axvline(N_TRUE[n_classes], color="0.4", linestyle=":", zorder=0, label="true number")
        ax.set_title(f"L = {n_classes}, sparsity {MEDIUM}", fontsize=10)
        ax.set_xticks(numbers)
        ax.set(xlabel="number of utilities, d", ylabel="accuracy")
    legend_below(figure, 2)
    return figure
