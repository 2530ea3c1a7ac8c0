"""What the page knows from models: it asks by the queue, never waits, and shows what workers left in the database."""

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Literal, Protocol

from choicegp.apps.server.cards import Cards
from choicegp.apps.server.results import (
    Learned,
    LearnedPeople,
    Proposal,
    Setup,
    learned_of,
    learned_people_of,
    packed,
    prepared_of,
    proposals_of,
    unpacked,
)  # fmt: skip
from choicegp.apps.server.study_file import StudySettings
from choicegp.elicitation.events import ObjectId
from choicegp.elicitation.queue import EVERYONE, Queue, Result
from choicegp.errors import StoreError

LOG = logging.getLogger("choicegp.server")

LEAST_ANSWERS = 3
"""A model of fewer answers would say nothing."""
_RETRIED = 30.0  # seconds after which a failure is forgotten
_RENEWED = {"everyone": 60.0, "people": 300.0}  # seconds for which results of all people are kept despite new answers
#: In how many seconds something is due, compared with the next sets for a person: newcomers first, then those who wait
#: for a result, and what is learned from everyone last, but not never.
_DUE = {"first": -3600.0, "explain": -60.0, "next": 0.0, "everyone": 30.0, "people": 600.0}

Failed = Literal["failed"]


class Thinker(Protocol):
    """What the page needs to know from models; no call waits."""

    def next_set(self, person: int, asked: Collection[frozenset[ObjectId]]) -> Proposal | None:
        """Return a set that was prepared for this person and not shown to her, or None."""

    def learn(self, person: int, version: int) -> None:
        """Learn new answers soon, and prepare the next sets."""

    def explained(self, person: int, version: int) -> Learned | Failed | None:
        """Return what the answers of a person say; None: not yet, and it will be worked out."""

    def everyone(self) -> Learned | Failed | None:
        """Return what all answers say, as if they were one person's; it may be from earlier answers."""

    def people(self) -> LearnedPeople | Failed | None:
        """Return what is known of the people as many; it may be from earlier answers."""


class Thinking:
    """A `Thinker` by the queue in the database.

    Parameters
    ----------
    queue : Queue
    setup : Setup
    clock : callable
        Returns the time in UTC.
    """

    def __init__(self, queue: Queue, setup: Setup, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._queue, self._clock = queue, clock
        self._first: list[list[list[object]]] | None = None
        # Sets of another size, say, are no longer first sets of this study.
        self._version = queue.keep("setup", packed(setup))
        first = queue.result("first")
        if first is None or first.version != self._version or first.content is None:
            queue.want("first", EVERYONE, self._version, _DUE["first"])

    def next_set(self, person: int, asked: Collection[frozenset[ObjectId]]) -> Proposal | None:
        """Return a set that was prepared for this person, or for newcomers such as her."""
        found = self._queue.result("next", person)
        ready = () if found is None or found.content is None else prepared_of(found.content).sets
        return _unseen(ready, asked) or _unseen(self._for_newcomer(person), asked)

    def _for_newcomer(self, person: int) -> tuple[Proposal, ...]:
        if self._first is None:
            found = self._queue.result("first")
            if found is None or found.content is None or found.version != self._version:
                return ()
            self._first = unpacked(found.content)
        return proposals_of(self._first[person % len(self._first)])

    def learn(self, person: int, version: int) -> None:
        """Learn new answers soon."""
        try:
            self._queue.want("next", person, version, _DUE["next"])
        except StoreError as error:
            # The answer is saved, and nobody needs to know: the next one will ask again.
            LOG.warning("%s: answers are learned later", type(error).__name__)

    def explained(self, person: int, version: int) -> Learned | Failed | None:
        """Return what the answers of a person say, or None while it is not known."""
        found = self._queue.result("explain", person)
        if found is not None and found.version == version and not self._failed_before(found):
            return "failed" if found.content is None else learned_of(found.content)
        self._queue.want("explain", person, version, _DUE["explain"])
        return None

    def everyone(self) -> Learned | Failed | None:
        """Return what all answers together say, or None while nothing is known."""
        content = self._of_all("everyone")
        return content if content is None or content == "failed" else learned_of(content)

    def people(self) -> LearnedPeople | Failed | None:
        """Return shares and segments, or None while nothing is known."""
        content = self._of_all("people")
        return content if content is None or content == "failed" else learned_people_of(content)

    def _of_all(self, kind: str) -> bytes | Failed | None:
        found, version = self._queue.result(kind), self._queue.version()
        known = found if found is not None and not self._failed_before(found) else None
        # Somebody answers all the time: waiting for a model of the newest answers would never end.
        if known is None or (known.version != version and self._age(known) > _RENEWED[kind]):
            self._queue.want(kind, EVERYONE, version, _DUE[kind])
        if known is None:
            return None
        return "failed" if known.content is None else known.content

    def _failed_before(self, found: Result) -> bool:
        return found.content is None and self._age(found) > _RETRIED

    def _age(self, found: Result) -> float:
        return (self._clock() - found.at).total_seconds()


def _unseen(sets: Collection[Proposal], asked: Collection[frozenset[ObjectId]]) -> Proposal | None:
    return next((one for one in sets if frozenset(one.shown) not in asked), None)


def setup_for(study: StudySettings, cards: Cards) -> Setup:
    """Return what workers need to know of a study."""
    words = {
        one.code: {
            "axis": one.say("picture_axis"),
            "labels": {feature.column: cards.label(feature.column, one.code) for feature in cards.features},
        }
        for one in study.languages
    }
    columns = tuple(one.column for one in cards.features)
    return Setup(
        columns, study.decimal, study.sets, study.set_size, study.utilities, study.design, study.threshold, words
    )
