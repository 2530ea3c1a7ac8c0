"""Where a participant stands, which follows from her events."""

from collections.abc import Sequence
from typing import NamedTuple

from choicegp.elicitation.events import Event, ObjectId, Question, answers, last_response, open_questions


class Standing(NamedTuple):
    """Where a participant stands.

    Attributes
    ----------
    question : Question or None
        The one that waits for an answer.
    n_done : int
        Number of answers and of "can't say" that were not taken back.
    last : str or None
        Key of the question whose answer can be taken back.
    ticked : tuple
        What was chosen from the open question before that was taken back.
    asked : frozenset of frozenset
        Every set that was shown.
    shown, chosen : tuple of tuple
        The answers that count.
    sets : dict
        What each question showed, by its key.
    version : int
        Number of the last event that changed the answers.
    """

    question: Question | None
    n_done: int
    last: str | None
    ticked: tuple[ObjectId, ...]
    asked: frozenset[frozenset[ObjectId]]
    shown: tuple[tuple[ObjectId, ...], ...]
    chosen: tuple[tuple[ObjectId, ...], ...]
    sets: dict[str, tuple[ObjectId, ...]]
    version: int

    @property
    def begun(self) -> bool:
        """Whether a question was asked."""
        return bool(self.sets)


def standing(events: Sequence[Event]) -> Standing:
    """Find out where a participant stands.

    Parameters
    ----------
    events : sequence of Event
        Hers, in the order of their ids.

    Examples
    --------
    >>> standing([]).n_done
    0
    """
    asked = [event for event in events if event.kind == "asked"]
    closed = {event.question for event in events if event.kind in ("answered", "skipped")}
    undone = {event.question for event in events if event.kind == "undone"}
    question = next(iter(open_questions(events)), None)
    again = next((event.again for event in asked if question is not None and event.question == question.key), None)
    before = next((event.chosen for event in events if event.kind == "answered" and event.question == again), None)
    last, given = last_response(events), answers(events)
    return Standing(
        question,
        len(closed - undone),
        None if last is None else last.question,
        before or () if again is not None else (),
        frozenset(frozenset(event.shown or ()) for event in asked),
        tuple(answer.question.ids for answer in given),
        tuple(answer.chosen for answer in given),
        {event.question: event.shown or () for event in asked if event.question is not None},
        max((event.id for event in events if event.kind in ("answered", "undone")), default=0),
    )
