"""Rows of the database as records, and the few statements by which they are read and written."""

import hashlib
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from choicegp.elicitation.events import (
    OTHERS,
    STEPS,
    Answer,
    DamagedRow,
    Event,
    ObjectId,
    Participant,
    Progress,
    Question,
    answers,
)
from choicegp.elicitation.schema import EVENTS, PARTICIPANTS, STUDY
from choicegp.errors import NotPossible


def now() -> str:
    """Return the time (UTC) as text: SQLite knows no time zones, and texts of this form sort as times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def time_of(text: Any) -> datetime:
    """Return a time that a row holds as `now` wrote it.

    Examples
    --------
    >>> time_of("2026-01-01T00:00:00+00:00").year
    2026
    """
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise DamagedRow from error


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """Return what the database keeps of a token.

    Whoever reads a copy of the database cannot answer in another's name. A token has 256 random bits: neither salt nor
    a slow hash would make it harder to find.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def add(connection: sa.Connection, kind: str, participant: int | None = None, **rest: Any) -> Event:
    """Append an event."""
    values = {"at": now(), "kind": kind, "participant": participant, "step": STEPS.get(kind), **rest}
    for name in ("shown", "chosen"):
        if values.get(name) is not None:
            values[name] = list(values[name])
    row = connection.execute(EVENTS.insert().returning(EVENTS), values).mappings().one()
    return _event(row)


def _event(row: Mapping[Any, Any]) -> Event:
    values = {name: row[name] for name in Event._fields}
    values["at"] = time_of(values["at"])
    for name in ("shown", "chosen"):
        values[name] = None if values[name] is None else _ids_of(values[name])
    event = Event(**values)
    is_whole = event.kind in OTHERS or (
        event.kind in STEPS and isinstance(event.question, str) and isinstance(event.participant, int)
    )
    # Without its choice or its place in the course of the question, an answer would not count, and nobody would know.
    is_whole = is_whole and row["step"] == STEPS.get(event.kind)
    is_whole = is_whole and (event.kind != "answered" or event.chosen is not None)
    if not is_whole or (event.kind == "asked" and not event.shown):
        raise DamagedRow
    return event


def _ids_of(found: Any) -> tuple[ObjectId, ...]:
    """Return the ids of objects that a cell holds."""
    if not isinstance(found, list) or not all(isinstance(one, ObjectId) for one in found):
        raise DamagedRow
    return tuple(found)


def events(
    connection: sa.Connection, participant: int | None = None, after: int = 0, of_questions: bool = False
) -> list[Event]:
    """Return the events of one participant or of all, in their order; ``of_questions``: of questions alone."""
    query = sa.select(EVENTS).where(EVENTS.c.id > after).order_by(EVENTS.c.id)
    if of_questions:
        # Either says so: where they differ, the row is damaged.
        query = query.where(sa.or_(EVENTS.c.step.is_not(None), EVENTS.c.kind.in_(STEPS)))
    if participant is not None:
        query = query.where(EVENTS.c.participant == participant)
    found = [_event(row) for row in connection.execute(query).mappings()]
    asked = {event.question for event in found if event.kind == "asked"}
    if not after and any(event.question is not None and event.question not in asked for event in found):
        raise DamagedRow
    return found


def answered(connection: sa.Connection, participant: int | None = None) -> tuple[list[Answer], dict[int, Participant]]:
    """Return the answers that count, of one participant or of all, and all participants by number."""
    given = answers(events(connection, participant, of_questions=True))
    people = {one.id: one for one in participants(connection)}
    if any(answer.question.participant not in people for answer in given):
        raise DamagedRow
    return given, people


def event_of(connection: sa.Connection, question: str, step: int) -> Event | None:
    """Return the event of one step in the course of a question."""
    query = sa.select(EVENTS).where(EVENTS.c.question == question, EVENTS.c.step == step)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _event(row)


def asked_again(connection: sa.Connection, question: str) -> Question | None:
    """Return the question that was asked in place of one whose answer was undone."""
    row = connection.execute(sa.select(EVENTS).where(EVENTS.c.again == question)).mappings().one_or_none()
    return None if row is None else Question.of(_event(row), repeated=True)


def open_question(connection: sa.Connection, participant: int) -> Question | None:
    """Return the question that waits for an answer of this participant."""
    closed = EVENTS.alias()
    query = (
        sa.select(EVENTS)
        .outerjoin(closed, sa.and_(closed.c.question == EVENTS.c.question, closed.c.step == 1))
        .where(EVENTS.c.participant == participant, EVENTS.c.step == 0, closed.c.id.is_(None))
    )
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Question.of(_event(row), repeated=True)


def progress(connection: sa.Connection) -> dict[int, Progress]:
    """Return how far each participant is, counted by the database."""
    undone = EVENTS.alias()
    stays = undone.c.id.is_(None)

    def number(*conditions: Any) -> Any:
        return sa.func.count(sa.case((sa.and_(*conditions), 1)))

    kind = EVENTS.c.kind
    counts = (
        number(kind == "asked"),
        number(kind.in_(("answered", "skipped")), stays),
        number(kind == "answered", stays),
    )
    query = (
        sa.select(EVENTS.c.participant, *counts, sa.func.max(EVENTS.c.at))
        .outerjoin(undone, sa.and_(undone.c.question == EVENTS.c.question, undone.c.step == STEPS["undone"]))
        .where(EVENTS.c.participant.is_not(None), kind != "deleted")
        .group_by(EVENTS.c.participant)
    )
    rows = connection.execute(query)
    return {who: Progress(asked, done, given, time_of(last)) for who, asked, done, given, last in rows}


def study_state(connection: sa.Connection) -> str:
    """Return whether the study is open, paused or closed."""
    return str(connection.execute(sa.select(STUDY.c.state)).scalar_one())


def owner_hash(connection: sa.Connection) -> str:
    """Return what is kept of the owner's token."""
    return str(connection.execute(sa.select(STUDY.c.owner_hash)).scalar_one())


def _participant(row: Mapping[Any, Any]) -> Participant:
    panel = row["panel"] or {}
    if not isinstance(panel, dict):
        raise DamagedRow
    return Participant(row["id"], row["name"], row["state"], time_of(row["joined"]), panel)


def participants(connection: sa.Connection, **having: Any) -> list[Participant]:
    """Return the participants who were not deleted and whose columns have these values."""
    query = sa.select(PARTICIPANTS).where(PARTICIPANTS.c.state != "deleted").order_by(PARTICIPANTS.c.id)
    for name, value in having.items():
        query = query.where(PARTICIPANTS.c[name] == value)
    return [_participant(row) for row in connection.execute(query).mappings()]


def is_deleted(connection: sa.Connection, participant: int) -> bool:
    """Whether somebody had this number, and was deleted."""
    query = sa.select(PARTICIPANTS.c.id).where(PARTICIPANTS.c.id == participant, PARTICIPANTS.c.state == "deleted")
    return connection.execute(query).first() is not None


def n_participants(connection: sa.Connection) -> int:
    """Return how many participants there are who were not deleted."""
    query = sa.select(sa.func.count()).select_from(PARTICIPANTS).where(PARTICIPANTS.c.state != "deleted")
    return int(connection.execute(query).scalar_one())


def locked(connection: sa.Connection, participant: int) -> Participant:
    """Return a participant, about whom no other transaction writes until this one ends."""
    query = sa.select(PARTICIPANTS).where(PARTICIPANTS.c.id == participant).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None or row["state"] == "deleted":
        raise NotPossible(f"there is no participant {participant}: the id is wrong, or the person was deleted")
    return _participant(row)


def change(connection: sa.Connection, participant: int, **values: Any) -> None:
    """Change columns of a participant."""
    connection.execute(PARTICIPANTS.update().where(PARTICIPANTS.c.id == participant), values)


def remove_events(connection: sa.Connection, participant: int) -> None:
    """Remove all events of a participant: the one way in which events ever go."""
    connection.execute(EVENTS.delete().where(EVENTS.c.participant == participant))
