"""Whether a fitted model's approximation can be trusted, in numbers and in words."""

from choicegp.checks import seed, whole_number
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Diagnosis, Fitted
from choicegp.inference.importance import importance

_GOOD, _USABLE = 0.5, 0.7  # Pareto k
_FEWEST = 100  # draws: a tail cannot be judged on fewer


def diagnose(fitted: Fitted, n_draws: int, random_state: int | None) -> Diagnosis:
    """Weight draws of the posterior and say what the weights mean."""
    whole_number("n_draws", n_draws, _FEWEST)
    if fitted.posterior.is_sparse:
        raise ChoiceGPError("diagnose needs inference='dense': a sparse posterior has no draws at all objects")
    if fitted.posterior.draws is not None:
        raise ChoiceGPError(
            "this posterior consists of draws, which have no weights: diagnose a model with inference='dense'"
        )
    found = importance(fitted.posterior, fitted.training_problem(), n_draws=int(n_draws), seed=seed(random_state))
    k = found.pareto_k
    # A heavy tail of weights that hardly differ otherwise does no harm: few draws are in it.
    trusted = k < _USABLE or found.effective > 0.5 * n_draws
    measured = f"Pareto k = {k:.2f}, {found.effective:.0f} of {n_draws} draws effective"
    if k < _GOOD:
        text = f"the Gaussian approximation covers the posterior well ({measured})"
    elif trusted:
        text = f"the Gaussian approximation is usable ({measured})"
    else:
        text = (
            f"the Gaussian approximation misses parts of the posterior ({measured}): "
            "compare predictions that matter with inference='mcmc'"
        )
    text += f"; weighting moves the probability of an observed choice by {found.moved:.3f} on average"
    return Diagnosis(trusted, text, k, found.effective, int(n_draws), found.moved)
