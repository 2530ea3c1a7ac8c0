"""Whether answers, model and approximation go together: people who do not attend, choices that surprise, and draws."""

from typing import TYPE_CHECKING

import numpy as np

from choicegp.checks import seed, whole_number
from choicegp.compute.devices import computing
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.estimators.utility_gp import UtilityGP
from choicegp.model.error_models import RULES

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.evaluation.diagnosis import Diagnosis
    from choicegp.evaluation.predictive_checks import Check


class CheckedAnswers(UtilityGP):
    """What a model says about the answers themselves, and about its own approximation."""

    def attention(self, data: ChoiceData | None = None) -> "pd.DataFrame":
        """Return for each person how probable it is that she answers with care, at random, or ticks everything.

        Parameters
        ----------
        data : ChoiceData, optional
            With choices and respondents; by default the training data.  Where a person's own answers weigh much in the
            fit, sets that were held out are the better judge.

        Returns
        -------
        DataFrame
            One row per respondent with the probabilities ``attentive``, ``random`` and ``everything``, and ``score``:
            the mean log probability of her answers above the one of random answers.

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> pairs = [[0, 1], [1, 2], [0, 2]]
        >>> data = ChoiceData.from_sets([[0.0], [1.0], [2.0]], pairs * 2, [[1], [2], [2]] * 2, respondents=[*"aaabbb"])
        >>> found = ChoiceGP(1, intervals="none", n_restarts=1, max_iter=40).fit(data).attention()
        >>> bool(found["attentive"].min() > 0.9)
        True
        """
        from choicegp.evaluation.attention import attention

        self._check_fitted()
        data = self.fitted_.data if data is None else self._checked(data)
        if data.kinds is not None:
            raise ChoiceGPError("attention knows sets of which objects are kept, not questions of other kinds")
        return attention(data, self.log_prob(data, normalized=True), self.errors_.has_threshold)

    def check(self, data: ChoiceData | None = None, n_draws: int = 400, random_state: int | None = 0) -> "Check":
        """Compare choices with those that the model would make of the same sets: posterior predictive checks.

        Parameters
        ----------
        data : ChoiceData, optional
            With choices, in sets of at most ten objects; by default the training data.  Sets that were held out show
            more: the model has not bent to them.
        n_draws : int
            How often answers to all sets are simulated, each time with other utilities from the posterior.
        random_state : int

        Returns
        -------
        Check
            ``fits``, ``message`` in words, and ``table`` with a p-value for each number that was compared.

        Examples
        --------
        >>> from choicegp import ChoiceGP, datasets
        >>> data = datasets.sincos(n_objects=24, n_sets=34).data
        >>> ChoiceGP(intervals="none", n_restarts=1, max_iter=40).fit(data).check().fits
        True
        """
        from choicegp.evaluation.predictive_checks import FEWEST_DRAWS, compared

        n_draws = whole_number("n_draws", n_draws, FEWEST_DRAWS)
        self._check_fitted()
        self._check_population()
        data = self.fitted_.data if data is None else self._checked(data)
        if data.flat_chosen is None:
            raise ChoiceGPError("check needs data with choices: these have none")
        if self.errors_.has_threshold or data.kinds is not None or self.fitted_.study is not None:
            raise ChoiceGPError(
                "check knows one person, no threshold and sets of which objects are kept: judge this model by sets "
                "that were held out (data.split, metrics.calibration)"
            )
        if self.errors_ not in RULES.values():
            raise ChoiceGPError(f"check cannot draw choices by {self.errors_.name}: it knows {' and '.join(RULES)}")
        first = seed(random_state)
        utilities = self.sample_utilities(data, n_draws, first)
        return compared(data, self._simulated(data, utilities, first), utilities.mean(axis=0))

    def diagnose(self, n_draws: int = 2000, random_state: int | None = 0) -> "Diagnosis":
        """Check by importance sampling whether the Gaussian approximation can be trusted.

        Draws of the posterior are weighted by the exact posterior density; the tail of the weights (its Pareto k)
        shows how well the approximation covers it.

        Parameters
        ----------
        n_draws : int
            At least 100.
        random_state : int or None

        Returns
        -------
        Diagnosis

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
        >>> ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data).diagnose().effective > 1000
        True
        """
        from choicegp.evaluation.diagnosis import diagnose

        self._check_fitted()
        with computing(self.device):
            return diagnose(self.fitted_, n_draws, random_state)

    def _simulated(self, data: ChoiceData, draws: np.ndarray, first: int) -> list[ChoiceData]:
        from choicegp.datasets.noisy import noisy_choices

        rng = np.random.default_rng([first, 12])
        rule = next(name for name, errors in RULES.items() if errors == self.errors_)
        with computing("cpu"):
            found = [noisy_choices(data.X, u, data.shown, int(rng.integers(2**31)), rule=rule) for u in draws]
        rate = self.posterior_.lapse
        return found if rate is None else [_with_slips(one, float(np.asarray(rate)), rng) for one in found]


def _with_slips(data: ChoiceData, rate: float, rng: np.random.Generator) -> ChoiceData:
    """Replace a share of the answers by random ones."""
    from dataclasses import replace

    assert data.flat_chosen is not None
    chosen = data.flat_chosen.copy()
    for k in np.flatnonzero(rng.random(len(data)) < rate):
        start, end = data.offsets[k], data.offsets[k + 1]
        code = int(rng.integers(1, 2 ** int(end - start)))
        chosen[start:end] = (code >> np.arange(end - start)) & 1 == 1
    return replace(data, flat_chosen=chosen)
