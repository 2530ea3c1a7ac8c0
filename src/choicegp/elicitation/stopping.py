"""When to stop asking: the last answers changed little."""

from typing import NamedTuple

_LITTLE = 0.02  # change of the probability of being chosen, on average


class Hint(NamedTuple):
    """Whether enough was asked.

    Attributes
    ----------
    done : bool
        Whether more answers would change little.
    reason : str
        Why, in a sentence.

    Examples
    --------
    >>> from choicegp import Hint
    >>> Hint(done=False, reason="it takes about 8 answers more").done
    False
    """

    done: bool
    reason: str


def hint_after(change: float | None, n_recent: int) -> Hint:
    """Judge by what the last answers changed in the predictions; None where there were too few to say."""
    if change is None:
        return Hint(False, f"it takes about {n_recent} answers more to say whether further ones would change much")
    said = f"the last {n_recent} answers changed predicted probabilities by {100 * change:.1f} percentage points"
    done = change < _LITTLE
    return Hint(done, f"{said} on average: more answers would {'change little' if done else 'still change much'}")
