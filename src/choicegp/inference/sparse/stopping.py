"""When a sparse fit gains no more: judged on sets that are held out, with the standard error of what was gained.

A gain is the mean difference of the held-out sets' log scores from those at the last gain; the sets are the same, so
its standard error is of a paired difference.  What is smaller than this error is no evidence of a gain, however
often it is seen, and what is larger is one even where it is a small part of the score.  Fits that gain no more for some
time are given smaller steps, with which noise that hides a gain becomes smaller, and end only when these gain nothing
either.
"""

from typing import NamedTuple

import numpy as np

_PASSES = 3  # over the training sets, without a gain, after which the steps become smaller, but in steps
_LEAST, _MOST = 200, 600  # the smallest and the largest number of these steps
_ERRORS = 2.0  # standard errors that a gain exceeds
N_LEVELS = 3  # how often steps become smaller before a fit ends
SMALLER = 10.0**-0.5  # how much smaller each time
COOLED = SMALLER**N_LEVELS
"""How much smaller the last steps are."""


class Scored(NamedTuple):
    """The score of a state, and the log scores of which it is the mean; none where it is a bound."""

    score: float
    each: np.ndarray


class LastGain(NamedTuple):
    """What the last gain reached, at which step it was seen, and how often the steps became smaller since the start."""

    at: Scored
    step: int
    level: int = 0


class Patience(NamedTuple):
    """How long a fit waits for a gain.

    Attributes
    ----------
    n_steps : int
        Steps without a gain after which the steps become smaller; half as many at each level after that.
    part : float
        Part of the score that is a gain too, where the standard error is larger than that or not known.
    n_levels : int
        How often the steps become smaller.
    """

    n_steps: int
    part: float
    n_levels: int = N_LEVELS

    @classmethod
    def for_sets(cls, n_sets: int, batch_size: int, part: float) -> "Patience":
        """Wait for some passes over the sets."""
        return cls(int(np.clip(_PASSES * n_sets // max(1, batch_size), _LEAST, _MOST)), part)

    def after(self, progress: LastGain, scored: Scored, step: int) -> LastGain:
        """Return the progress after a look at the score."""
        gain = scored.score - progress.at.score
        if gain > self._least_gain(scored, progress.at):
            return LastGain(scored, step, progress.level)
        if self._is_over(progress, step) and progress.level < self.n_levels:
            return LastGain(progress.at, step, progress.level + 1)
        return progress

    def _least_gain(self, scored: Scored, before: Scored) -> float:
        part = self.part * abs(scored.score)
        n = len(scored.each)
        if n < 2 or len(before.each) != n:
            return part
        error = float(np.std(scored.each - before.each, ddof=1)) / np.sqrt(n)
        return min(part, _ERRORS * error)

    def _is_over(self, progress: LastGain, step: int) -> bool:
        return step - progress.step >= (self.n_steps if progress.level == 0 else self.n_steps // 2)

    def is_spent(self, progress: LastGain, step: int) -> bool:
        """Whether nothing was gained at the last level either."""
        return progress.level >= self.n_levels and self._is_over(progress, step)
