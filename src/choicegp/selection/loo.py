"""Leave-one-out: the expected log score of sets that the model has not seen.

`choicegp.selection.cavity` and `choicegp.selection.psis` compute it; both return a `LooResult`.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from choicegp.checks import brief, check_one_of, counted, seed, whole_number
from choicegp.compute.devices import linear_algebra_for, n_threads
from choicegp.compute.progress import Clock
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted, one_utility_note
from choicegp.model.prior import THRESHOLD, Objects, threshold_like
from choicegp.prediction.utilities import joint_samples

if TYPE_CHECKING:
    from choicegp.selection.people_loo import PeopleDiagnostics


class CavityDiagnostics(NamedTuple):
    """How far each set's score can be trusted, arrays of length m in the order of the sets.

    Attributes
    ----------
    gap : array (m,)
        Log score with the set among the data minus log score without it: the errors of the cavity grow with it.
    leverage : array (m,)
        Largest share of a direction's posterior precision that the set itself has brought, between 0 and 1.
    clipped : array (m,)
        Share of the set's curvature that was negative and had to be left out of its site.
    refitted : bool array (m,)
        Sets whose score comes from a fit without them.

    Examples
    --------
    >>> import numpy as np
    >>> from choicegp import CavityDiagnostics
    >>> found = CavityDiagnostics(np.array([0.1, 2.0]), np.array([0.2, 0.9]), np.zeros(2), np.array([False, True]))
    >>> found.n_refits
    1
    """

    gap: np.ndarray
    leverage: np.ndarray
    clipped: np.ndarray
    refitted: np.ndarray

    def __repr__(self) -> str:
        return brief(self)

    @property
    def n_refits(self) -> int:
        """Number of fits made without one of the sets."""
        return int(self.refitted.sum())


class PsisDiagnostics(NamedTuple):
    """How far each set's score can be trusted, arrays of length m in the order of the sets.

    Attributes
    ----------
    gap : array (m,)
        Log score with the set among the data minus log score without it.
    pareto_k : array (m,)
        Shape of the largest importance weights; above about 0.7 they are too few to be smoothed.

    Examples
    --------
    >>> import numpy as np
    >>> from choicegp import PsisDiagnostics
    >>> found = PsisDiagnostics(gap=np.array([0.1, 2.0]), pareto_k=np.array([0.3, 0.9]))
    >>> int(np.sum(found.pareto_k > 0.7))  # sets on which it cannot be trusted
    1
    """

    gap: np.ndarray
    pareto_k: np.ndarray

    def __repr__(self) -> str:
        return brief(self)


class LooResult(NamedTuple):
    """Leave-one-out cross-validation over sets, with the hyperparameters held fixed.

    Scores are log p(C | A) with the paper's likelihood, floor and lapses included, which is not divided by its
    sum over all subsets.

    Attributes
    ----------
    elpd : float
        Expected log predictive density, the sum of ``pointwise``.
    se : float
        Standard error of that sum.
    n_effective : float
        Effective number of parameters: the log score of the sets as part of the data, minus ``elpd``.
    pointwise : array (m,)
        Log score of each set given all others, times its weight; 0 for a set of one object.
    diagnostics : CavityDiagnostics, PsisDiagnostics or PeopleDiagnostics
    doubtful : int array
        Numbers of the sets whose score cannot be trusted.
    method : str
        "cavity", "psis" or, of many people, "refit".
    warning : str
        How many sets the result cannot be trusted on, in words; empty when there is none.
    notes : tuple of str
        What else a careful reader may want to know.
    left_out : {"set", "respondent"}
        What each score is without.

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceGP
    >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    >>> found = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data).loo()
    >>> found.method, found.pointwise.shape
    ('cavity', (3,))
    """

    elpd: float
    se: float
    n_effective: float
    pointwise: np.ndarray
    diagnostics: "CavityDiagnostics | PsisDiagnostics | PeopleDiagnostics"
    doubtful: np.ndarray
    method: str
    warning: str = ""
    notes: tuple[str, ...] = ()
    left_out: str = "set"

    def __repr__(self) -> str:
        doubtful = f", {len(self.doubtful)} doubtful" if len(self.doubtful) else ""
        sets = f"{counted(len(self.pointwise), 'set')}{doubtful}"
        return f"LooResult(elpd {self.elpd:.1f}, se {self.se:.1f}, {sets}, by {self.method})"

    def __str__(self) -> str:
        lines = [f"elpd {self.elpd:.1f} (se {self.se:.1f}), {self.n_effective:.1f} effective parameters, {self.method}"]
        lines += [f"warning: {self.warning}"] if self.warning else []
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


WHY_THEY_DIFFER = (
    "ArviZ weights draws that have seen the set as if they had not, which few draws survive on a sharp posterior; "
    "choicegp takes the set's own part out of the posterior, and fits again where that is not enough. The two differ "
    "most on the sets that matter most, and there the score of choicegp is to be trusted."
)

_METHODS: dict[type, str] = {CavityDiagnostics: "cavity", PsisDiagnostics: "psis"}


def standard_error(pointwise: np.ndarray) -> float:
    """Return the standard error of a sum over sets, as ArviZ compares models: m times the variance of its terms."""
    return float(np.sqrt(len(pointwise) * np.var(pointwise)))


def loo_result(
    pointwise: np.ndarray,
    diagnostics: "CavityDiagnostics | PsisDiagnostics | PeopleDiagnostics",
    doubtful: np.ndarray,
    why: str,
    notes: tuple[str, ...],
) -> LooResult:
    """Sum up the scores of the sets; ``why`` says what is wrong with the doubtful ones."""
    warning = ""
    if len(doubtful):
        which = "one set" if len(doubtful) == 1 else f"{len(doubtful)} sets"
        warning = f"leave-one-out cannot be trusted on {which} of {len(pointwise)}: {why}"
    return LooResult(
        elpd=float(pointwise.sum()),
        se=standard_error(pointwise),
        n_effective=float(diagnostics.gap.sum()),
        pointwise=pointwise,
        diagnostics=diagnostics,
        doubtful=doubtful,
        method=_METHODS.get(type(diagnostics), "refit"),
        warning=warning,
        notes=notes,
    )


def leave_one_out(
    fitted: Fitted,
    method: str = "cavity",
    *,
    by: str = "set",
    max_refits: int | None = None,
    random_state: int | None = 0,
    n_jobs: int | None = None,
    clock: Clock | None = None,
) -> LooResult:
    """Score every training set by a model that has not seen it; the caller sets precision and device.

    Parameters
    ----------
    fitted : Fitted
    method : {"cavity", "psis"}
    max_refits : int, optional
        Maximum number of sets that "cavity" leaves out by a fit.
    by : {"set", "respondent"}
        What is left out, of many people: one set, or all sets of a person.
    random_state : int or None
    n_jobs : int, optional
        Threads that refit in parallel.
    clock : Clock, optional
        When its time is up, no further set is left out by a fit.
    """
    # They return what is defined above.
    from choicegp.selection.cavity import MOST_REFITS, cavity_loo
    from choicegp.selection.psis import psis_loo

    if method not in ("cavity", "psis"):
        raise ChoiceGPError(f"method must be 'cavity' or 'psis'; got {method!r}")
    number = seed(random_state)
    posterior, data = fitted.posterior, fitted.data
    if fitted.study is not None:
        from choicegp.selection.people_loo import people_scores

        check_one_of("by", by, ("set", "respondent"))
        if method != "cavity" or max_refits is not None:
            raise ChoiceGPError("a model of many people has no other method, and no max_refits: leave them out")
        pointwise, gaps = people_scores(fitted, by, clock or Clock(None))
        found = loo_result(pointwise, gaps, np.zeros(0, int), "", ())._replace(left_out=by)
        if by == "set":
            return found
        # The sets of one person are not independent: her sum is one observation.
        numbers = fitted.study.numbers(np.asarray(data.respondents, dtype=object))
        return found._replace(se=standard_error(np.bincount(numbers, pointwise)))
    if by != "set":
        raise ChoiceGPError(f"by={by!r} needs a model of many people: this one knows one person")
    if posterior.is_sparse:
        raise ChoiceGPError("leave-one-out needs inference='dense': judge a sparse fit by sets that were held out")
    lapse = None if posterior.lapse is None else float(posterior.lapse)
    cost = "the lapse rate" if lapse else "the floor of 1e-10, about 23 nats for each pair of chosen objects,"
    notes = one_utility_note(data, posterior.n_utilities, f": {cost} sets the score of these")
    if method == "psis":
        if max_refits is not None:
            raise ChoiceGPError("max_refits belongs to method='cavity': importance weights need no refits")
        _, scores = sampled_choices(fitted, None, number)
        if posterior.draws is not None:
            notes = (*notes, f"the weights are of {scores.shape[1]} draws, which are all that the model has")
        return psis_loo(scores, np.ones(len(data)) if data.weights is None else np.asarray(data.weights), notes)
    if not posterior.has_sites:
        raise ChoiceGPError("a posterior of draws has no sites to take out: use method='psis'")
    most = MOST_REFITS if max_refits is None else whole_number("max_refits", max_refits, 0)
    problem = fitted.training_problem()
    n = len(problem.valid)
    with linear_algebra_for(n):
        return cavity_loo(
            posterior, problem, len(data), seed=number, max_refits=most, n_jobs=n_threads(n_jobs, n), notes=notes,
            clock=clock or Clock(None),
        )  # fmt: skip


def sampled_choices(fitted: Fitted, n_samples: int | None, random_state: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Sample the utilities of the shown objects (S, n, d), and score every set under each sample (m, S).

    Objects are in the order of their rows in the data's table.  By default there are 2000 samples; where a model has
    draws, as many of these as there are, each once.  The caller sets precision and device.
    """
    from choicegp.selection.psis import N_SAMPLES, choice_log_likelihood

    data, posterior = fitted.data, fitted.posterior
    if n_samples is None:
        # Copies of draws would distort the tail of importance weights.
        n_draws = N_SAMPLES if posterior.draws is None else int(np.prod(posterior.draws.dual.shape[:2]))
        n_samples = min(N_SAMPLES, n_draws)
    shown = np.unique(data.flat_shown)
    objects = fitted.objects(data)
    problem = fitted.problem_by_row()
    with linear_algebra_for(len(shown)):
        own = Objects(objects.X[shown], objects.codes[shown])
        codes = np.asarray(problem.objects.codes)
        # The problem has an order of its own; its codes are row numbers, but for the threshold, which comes last here.
        order = np.where(codes == THRESHOLD, len(shown), np.searchsorted(shown, codes))
        if fitted.errors.has_threshold:
            own = jax.tree.map(lambda *parts: np.concatenate(parts), own, threshold_like(own))
        utilities = joint_samples(posterior, own, n_samples, random_state)
        scores = choice_log_likelihood(utilities[:, order], problem, len(data), posterior.lapse)
    return utilities[:, : len(shown)], scores
