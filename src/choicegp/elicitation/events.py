"""What happened in a study: immutable records, and the state that follows from them.

The log of events is the truth. An answer is never changed: an undo is a further event.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

ObjectId = str | int

#: What happens to one question, and in which order: it is asked, then closed, and an answer may be undone.
STEPS = {"asked": 0, "answered": 1, "skipped": 1, "withdrawn": 1, "undone": 2}
#: What happens to a participant, and to the whole study.
OTHERS = ("joined", "finished", "resumed", "deleted", "opened", "paused", "closed")


class DamagedRow(Exception):
    """A row of a database, or an order of rows, that no program of ours has written."""


class Event(NamedTuple):
    """One thing that happened.

    Attributes
    ----------
    id : int
        Events are numbered in the order in which they were recorded.
    at : datetime
        When it was recorded (UTC).
    kind : str
        "asked", "answered" (an empty ``chosen`` means "none of these"), "skipped" ("can't say"), "withdrawn" (a
        question that was open when the answer before it was undone) or "undone"; "joined", "finished", "resumed" or
        "deleted" for a participant; "opened", "paused" or "closed" for the study.
    participant : int or None
        Who; None for the whole study.
    question : str or None
        Key of the question that the event is about.
    shown : tuple or None
        What was shown, in this order; of "asked".
    chosen : tuple or None
        What was chosen; of "answered".
    again : str or None
        Key of the question that is asked again after an undo; of "asked".
    design, reason, model : str or None
        Why the set was shown: the name of the design, its reason in words and the version of the model; of "asked".
    value : float or None
        The design's value of the set; of "asked".
    """

    id: int
    at: datetime
    kind: str
    participant: int | None = None
    question: str | None = None
    shown: tuple[ObjectId, ...] | None = None
    chosen: tuple[ObjectId, ...] | None = None
    again: str | None = None
    design: str | None = None
    value: float | None = None
    model: str | None = None
    reason: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the event as plain values, without those that are not set."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return given | {"at": self.at.isoformat()}


class Question(NamedTuple):
    """A set that is or was shown to a participant.  Records of one question, by its key, are equal.

    Attributes
    ----------
    key : str
        The idempotency key: an answer that is sent twice with the same key counts once.
    participant : int
    ids : tuple
        Ids of objects, in the order in which they are shown.
    number : int
        The number of the event, which is the id of the set in exported tables.
    at : datetime
    design, model, reason : str or None
    value : float or None
    repeated : bool
        Whether the question was open already.
    shown : tuple of int or None
        The same objects as row numbers of the table that a `ChoiceSession` was given; a `Store` leaves them out.
    """

    key: str
    participant: int
    ids: tuple[ObjectId, ...]
    number: int
    at: datetime
    design: str | None = None
    value: float | None = None
    model: str | None = None
    reason: str | None = None
    repeated: bool = False
    shown: tuple[int, ...] | None = None

    @property
    def id(self) -> str:
        """The key."""
        return self.key

    @property
    def why(self) -> str | None:
        """The reason."""
        return self.reason

    @classmethod
    def of(cls, event: Event, repeated: bool = False) -> "Question":
        """Return the question that an event "asked" records."""
        assert event.question is not None
        assert event.participant is not None
        assert event.shown is not None
        why = (event.design, event.value, event.model, event.reason)
        return cls(event.question, event.participant, event.shown, event.id, event.at, *why, repeated)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Question) and self.key == other.key

    def __ne__(self, other: object) -> bool:  # a tuple has its own
        return not self == other

    def __hash__(self) -> int:
        return hash(self.key)


class Recorded(NamedTuple):
    """The event that holds an answer.

    Attributes
    ----------
    event : Event
    repeated : bool
        Whether it had been recorded already, and was sent again.
    """

    event: Event
    repeated: bool


class Answer(NamedTuple):
    """An answer that counts: it was not undone.

    Attributes
    ----------
    question : Question
    chosen : tuple
        Ids of objects; empty for "none of these".
    at : datetime
    """

    question: Question
    chosen: tuple[ObjectId, ...]
    at: datetime


class Participant(NamedTuple):
    """A person who answers.

    Attributes
    ----------
    id : int
    name : str or None
    state : {"active", "finished", "deleted"}
    joined : datetime
    panel : dict
        Identifiers of a panel, such as the ones in the link by which she came.
    """

    id: int
    name: str | None
    state: str
    joined: datetime
    panel: dict[str, Any]

    @property
    def label(self) -> str:
        """The name, or a made one where there is none: what tables call the person."""
        return self.name if self.name is not None else f"participant-{self.id}"


class Progress(NamedTuple):
    """How far a participant is: the number of questions asked, of answers and skips that count, and of answers alone.

    ``last`` is the time of the last event.
    """

    n_asked: int
    n_done: int
    n_answers: int
    last: datetime


class _Course(NamedTuple):
    asked: Event
    closed: Event | None
    undone: bool


def _courses(events: Iterable[Event]) -> dict[str, _Course]:
    """Return how far each question has come, by key."""
    courses: dict[str, _Course] = {}
    for event in events:
        if event.question is None:
            continue
        if event.kind == "asked":
            courses[event.question] = _Course(event, None, False)
        elif event.kind == "undone":
            courses[event.question] = courses[event.question]._replace(undone=True)
        else:
            courses[event.question] = courses[event.question]._replace(closed=event)
    return courses


def answers(events: Iterable[Event]) -> list[Answer]:
    """Return the answers that count, in the order in which they were given.

    Parameters
    ----------
    events : iterable of Event
        In the order of their ids.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> asked = Event(1, at, "asked", 1, "k", shown=("pen", "ink"))
    >>> answered = Event(2, at, "answered", 1, "k", chosen=("pen",))
    >>> [answer.chosen for answer in answers([asked, answered])]
    [('pen',)]
    >>> answers([asked, answered, Event(3, at, "undone", 1, "k")])
    []
    """
    given = [
        Answer(Question.of(one.asked), one.closed.chosen, one.closed.at)
        for one in sorted(_courses(events).values(), key=_closing)
        if one.closed is not None and one.closed.chosen is not None and not one.undone
    ]
    return given


def _closing(course: _Course) -> int:
    return course.asked.id if course.closed is None else course.closed.id


def open_questions(events: Iterable[Event]) -> list[Question]:
    """Return the questions that wait for an answer; there is at most one for each participant.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> asked = Event(1, datetime(2026, 1, 1, tzinfo=UTC), "asked", 1, "k", shown=("pen", "ink"))
    >>> [question.key for question in open_questions([asked])]
    ['k']
    """
    return [Question.of(one.asked) for one in _courses(events).values() if one.closed is None]


def answered_sets(events: Iterable[Event]) -> set[frozenset[ObjectId]]:
    """Return the sets that were answered or skipped, and not undone: they are not asked again."""
    return {frozenset(one.asked.shown or ()) for one in _responses(events)}


def _responses(events: Iterable[Event]) -> list[_Course]:
    """Return the questions with an answer or a skip that was not undone."""
    courses = _courses(events).values()
    return [one for one in courses if one.closed is not None and one.closed.kind != "withdrawn" and not one.undone]


def last_response(events: Iterable[Event]) -> Event | None:
    """Return the last answer or skip that was not undone: what an undo takes back."""
    closed = (one.closed for one in _responses(events) if one.closed is not None)
    return max(closed, key=lambda event: event.id, default=None)
