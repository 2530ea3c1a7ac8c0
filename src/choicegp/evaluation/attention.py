"""Who answers with care: each person's answers under the model, under random ticks, and under ticking everything.

The three explanations are compared by Bayes' rule.  A careful person slips now and then, so every explanation leaves
a small share of answers to chance.
"""

import numpy as np
import pandas as pd

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError

_EXPLANATIONS = ("attentive", "random", "everything")
_BEFORE = np.log([0.9, 0.05, 0.05])  # how common each is, before any answer is seen
_SLIPS = 0.05  # share of answers that are random, whatever explains the others


def attention(data: ChoiceData, log_probabilities: np.ndarray, can_be_empty: bool) -> pd.DataFrame:
    """Compare three explanations of each person's answers.

    Parameters
    ----------
    data : ChoiceData
        With choices and respondents.
    log_probabilities : array (m,)
        Normalised, of the answer to each set.
    can_be_empty : bool
        Whether nothing may be kept, so that there is one answer more.

    Returns
    -------
    DataFrame
        One row per respondent: ``sets``, the probabilities of being ``attentive``, ``random`` or one who ticks
        ``everything``, and ``score``, by how much the log probability of an answer
        exceeds the log probability of a random one, on average.

    Examples
    --------
    >>> data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]] * 8, [[1]] * 4 + [[0, 1]] * 4, respondents=[*"aaaabbbb"])
    >>> attention(data, np.log([0.9] * 4 + [0.01] * 4), False)["everything"].round(1).to_dict()
    {'a': 0.0, 'b': 1.0}
    """
    if data.flat_chosen is None or data.respondents is None:
        raise ChoiceGPError("attention needs choices and respondents: read the table with the column of respondents")
    sizes = np.diff(data.offsets).astype(float)
    n_kept = np.add.reduceat(data.flat_chosen.astype(float), data.offsets[:-1])
    chance = 1.0 / (np.exp2(sizes) - (0.0 if can_be_empty else 1.0))
    probability = np.stack([np.exp(log_probabilities), chance, (n_kept == sizes).astype(float)], axis=1)
    # One who has no choice shows nothing: every explanation gives such an answer the same probability.
    probability[chance == 1.0] = 1.0
    logs = np.log((1.0 - _SLIPS) * probability + _SLIPS * chance[:, None])
    frame = pd.DataFrame(logs, columns=pd.Index(_EXPLANATIONS)).assign(
        score=log_probabilities - np.log(chance), sets=1.0, respondent=np.asarray(data.respondents)
    )
    people = frame.groupby("respondent", sort=False)
    logs_of_people = people[list(_EXPLANATIONS)].sum() + _BEFORE
    weights = logs_of_people.sub(logs_of_people.max(axis=1), axis=0).map(np.exp)
    found = weights.div(weights.sum(axis=1), axis=0)
    return found.assign(score=people["score"].mean(), sets=people["sets"].sum().astype(int))


def inattentive(table: pd.DataFrame) -> str:
    """Name in words the people whose answers are better explained by random ticks, or by ticking everything."""
    lines = []
    for how, words in (("random", "tick at random"), ("everything", "tick everything")):
        names = [str(name) for name, found in table[how].items() if found > 0.5]
        if names:
            shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            lines.append(f"{len(names)} of {len(table)} people seem to {words}: {shown}.")
    return " ".join(lines) or f"All {len(table)} people seem to answer with care."
