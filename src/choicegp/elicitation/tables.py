"""What a study holds as tables: its answers as choice data, and its participants."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from choicegp.elicitation.events import Answer, Participant

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData

_OWN = ("id", "label", "state", "joined", "n_answers")


def choices(objects: "pd.DataFrame", given: Sequence[Answer], people: Mapping[int, Participant]) -> "ChoiceData":
    """Return answers as choice data; respondents are named by their labels."""
    from choicegp.data.choices import ChoiceData

    return ChoiceData.from_sets(
        objects,
        [answer.question.ids for answer in given],
        [answer.chosen for answer in given],
        by="id",
        set_ids=[answer.question.number for answer in given],
        respondents=[people[answer.question.participant].label for answer in given],
        empty="none",
        missing="level",
    )


def participants_table(people: Sequence[Participant], given: Sequence[Answer]) -> "pd.DataFrame":
    """Return one row per participant, with a column for each identifier of a panel.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> anna = Participant(1, "Anna", "active", datetime(2026, 1, 1, tzinfo=UTC), {"PROLIFIC_PID": "p7"})
    >>> participants_table([anna], []).columns.tolist()
    ['id', 'label', 'state', 'joined', 'n_answers', 'PROLIFIC_PID']
    """
    import pandas as pd

    counts = Counter(answer.question.participant for answer in given)
    rows = [(one.id, one.label, one.state, one.joined.isoformat(), counts[one.id]) for one in people]
    table = pd.DataFrame(rows, columns=list(_OWN))
    for name in dict.fromkeys(name for one in people for name in one.panel):
        table[f"panel_{name}" if name in _OWN else name] = [one.panel.get(name) for one in people]
    return table
