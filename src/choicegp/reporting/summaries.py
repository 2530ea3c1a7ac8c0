"""What a model found, in plain words."""

from typing import TYPE_CHECKING

import numpy as np

from choicegp.checks import counted, in_digits
from choicegp.errors import ChoiceGPError
from choicegp.evaluation import metrics
from choicegp.evaluation.effects import Effects, model_effects

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData
    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.selection.n_utilities import SelectionResult

_MOST_FEATURES = 5
_MOST_TO_COMPARE = 200  # features: the effect of each takes a tenth of a second
_NEGLIGIBLE = 0.1  # share of the largest effect below which a feature is not worth a word


def fit_in_words(model: "ChoiceGP", n_sets: int) -> str:
    """Say how the fit to this number of sets went, and what made its intervals."""
    result = model.fit_result_
    first = (
        f"Fitted {counted(model.n_utilities_, 'utility', many='utilities')} to {counted(n_sets, 'set')} "
        f"in {result.seconds:.1f} s and {result.n_iter} steps: {result.status} ({result.message}). "
        f"ELBO {model.elbo_:.1f}."
    )
    return "\n".join([first, f"Intervals: {model.intervals_}.", *(f"Note: {note}." for note in result.notes)])


def selection_in_words(found: "SelectionResult") -> str:
    """Show how each number of utilities scored, and say which was chosen and why."""
    names = {"elpd_diff": "below best", "dse": "its se", "p": "parameters", "cv_se": "cv se"}
    # Without columns that say nothing: where there was no need to, nothing was cross-validated.
    first = ["elpd", "se", "elpd_diff", "dse", "p"]
    rest = [name for name in found.table if name not in (*first, "rank", "weight", "warning")]
    table = found.table[first + rest].dropna(axis="columns", how="all").rename(columns=names).rename_axis("utilities")
    shown = table.reset_index().to_string(index=False, float_format=lambda value: f"{value:.1f}", na_rep="")
    warnings = [f"Warning: {d}: {result.warning}." for d, result in found.results.items() if result.warning]
    return "\n".join([shown, *warnings, f"Chosen: {found.reason}"])


def quality_in_words(model: "ChoiceGP", data: "ChoiceData", what: str) -> str:
    """Say how well the model predicts choices it has not seen, beside chance and a naive rule."""
    predicted = model.predict(data)
    sizes = np.diff(data.offsets).astype(float)
    chance = float(np.mean(1.0 / (np.exp2(sizes) - 1.0)))
    naive = metrics.everything_chosen(data)
    return (
        f"{what}: {metrics.exact_accuracy(data, predicted):.0%} of {len(data)} sets predicted exactly "
        f"(a random answer: {chance:.0%}; keeping everything: {metrics.exact_accuracy(data, naive):.0%}); "
        f"{metrics.object_accuracy(data, predicted):.0%} of the objects correctly kept or rejected "
        f"(keeping everything: {metrics.object_accuracy(data, naive):.0%})."
    )


def checks_in_words(model: "ChoiceGP", data: "ChoiceData", seed: int) -> str:
    """Say whether choices look like choices that the model would make, and which people do not attend."""
    from choicegp.evaluation.attention import inattentive

    if not hasattr(model, "attention"):
        raise ChoiceGPError(f"a {type(model).__name__} has no checks of answers, as a ChoiceGP has")
    parts = []
    if data.respondents is not None:
        parts.append(inattentive(model.attention(data)))
    if model.fitted_.study is None and not model.errors_.has_threshold:
        parts.append(str(model.check(data, random_state=seed)))
    return "\n".join(parts) or "This model can only be checked with --respondent."


def drivers_in_words(model: "ChoiceGP", effects: Effects | None = None, *, sizes: bool = False) -> str:
    """Say which features drive each utility, and in which direction; with ``sizes``, how much in brackets.

    A size is the standard deviation of the feature's effect, in units of the error of a comparison.
    """
    if model.fitted_.study is not None and model.fitted_.study.prior.alone:
        return "Each respondent has utilities of her own: predict sets that name their respondent."
    n_features = len(model.encoding_.feature_names)
    if effects is None and n_features > _MOST_TO_COMPARE:
        return f"The model has {n_features:,} features, too many to say here what each of them does."
    effects = model_effects(model) if effects is None else effects
    lines = []
    for i in range(model.n_utilities_):
        relevance = effects.relevance.mean[i]
        order = [j for j in np.argsort(-relevance) if relevance[j] >= _NEGLIGIBLE * relevance.max()][:_MOST_FEATURES]
        clear = [int(j) for j in order if effects.direction[i, j] != "unclear"]
        parts = [_driver(effects, i, j) + (f" ({relevance[j]:.1f})" if sizes else "") for j in clear]
        lines.append(
            f"Utility {i + 1} " + ("; ".join(parts) if parts else "shows no clear effect of any feature") + "."
        )
    return "\n".join(lines)


def _driver(effects: Effects, utility: int, feature: int) -> str:
    name = effects.names[feature]
    best = effects.best[utility, feature]
    shown = in_digits(best, 3) if isinstance(best, float) else str(best)
    return {
        "rises": f"rises with {name}",
        "falls": f"falls with {name}",
        "non-monotone": f"is highest where {name} is about {shown}",
        "categorical": f"is highest for {name} = {shown}",
    }[str(effects.direction[utility, feature])]
