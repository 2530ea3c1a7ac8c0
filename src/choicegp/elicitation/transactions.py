"""What the store does in one transaction each: every function may run twice, and then finds its own work done."""

import secrets
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from choicegp.checks import counted, listed
from choicegp.elicitation import log
from choicegp.elicitation.events import Event, ObjectId, Participant, Question, Recorded, last_response
from choicegp.elicitation.schema import JOBS, PARTICIPANTS, RESULTS, STUDY
from choicegp.errors import AlreadyAnswered, NotPossible, StudyFull

Work = Callable[[sa.Connection], Any]
_WORDS = {"answered": "an answer", "skipped": '"can\'t say"'}


def study(connection: sa.Connection) -> Any:
    """Return the row of the study, or None."""
    return connection.execute(sa.select(STUDY)).one_or_none()


def create(connection: sa.Connection, catalogue: dict[str, Any], settings: dict[str, Any], token: str) -> Any:
    """Create the study, unless another process was first."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text(f"LOCK TABLE {STUDY.name} IN EXCLUSIVE MODE"))
    if (row := study(connection)) is not None:
        return row
    values = {"id": 1, "created": log.now(), "state": "open", "owner_hash": log.hash_of(token)}
    connection.execute(STUDY.insert(), values | {"settings": settings, "catalogue": catalogue})
    log.add(connection, "opened")
    return study(connection)


def set_state(connection: sa.Connection, state: str) -> None:
    """Open, pause or close the study."""
    before = connection.execute(sa.select(STUDY.c.state).with_for_update()).scalar_one()
    if before != state:
        connection.execute(STUDY.update(), {"state": state})
        log.add(connection, "opened" if state == "open" else state)


def set_owner(connection: sa.Connection, token: str) -> None:
    """Change the owner's token."""
    connection.execute(STUDY.update(), {"owner_hash": log.hash_of(token)})


def join(
    connection: sa.Connection, name: str | None, panel: dict[str, Any], token: str, most: int | None = None
) -> Participant:
    """Add a participant, unless the one with this token was added before."""
    proof = log.hash_of(token)
    # One at a time: two who come together must not both find the name or the last place free.
    connection.execute(sa.select(STUDY.c.id).with_for_update())
    if not log.participants(connection, token_hash=proof):
        if most is not None and log.n_participants(connection) >= most:
            raise StudyFull(f"the study has {counted(most, 'participant')} and takes no more")
        if name is not None and log.participants(connection, name=name):
            raise NotPossible(f"there is a participant called {name!r} already; choose another name")
        values = {"token_hash": proof, "name": name, "state": "active", "panel": panel, "joined": log.now()}
        added = connection.execute(PARTICIPANTS.insert().returning(PARTICIPANTS.c.id), values).scalar_one()
        log.add(connection, "joined", added)
    return log.participants(connection, token_hash=proof)[0]


def finish(connection: sa.Connection, participant: int) -> None:
    """Note that a participant has finished."""
    if log.locked(connection, participant).state == "active":
        log.change(connection, participant, state="finished")
        log.add(connection, "finished", participant)


def resume(connection: sa.Connection, participant: int) -> Participant:
    """Note that a participant continues."""
    if log.locked(connection, participant).state == "finished":
        log.change(connection, participant, state="active")
        log.add(connection, "resumed", participant)
    return log.locked(connection, participant)


def ask(
    connection: sa.Connection, participant: int, key: str, shown: tuple[ObjectId, ...], why: dict[str, Any]
) -> Question:
    """Record that a set is shown, or return the question that is open."""
    person = log.locked(connection, participant)
    same = log.event_of(connection, key, 0)
    if same is not None:
        if (same.participant, same.shown) != (participant, shown):
            raise NotPossible(f"the key {key!r} belongs to another question; use a new one")
        return Question.of(same, repeated=True)
    if (waiting := log.open_question(connection, participant)) is not None:
        return waiting
    if (state := log.study_state(connection)) != "open":
        raise NotPossible(f"the study is {state}: nothing new is asked")
    if person.state != "active":
        raise NotPossible(f"{person.label} has {person.state} and is not asked any more")
    return Question.of(log.add(connection, "asked", participant, question=key, shown=shown, **why))


def tell(
    connection: sa.Connection, participant: int, key: str, shown: tuple[ObjectId, ...], chosen: tuple[ObjectId, ...],
    replace: bool,
) -> Recorded:  # fmt: skip
    """Record a set together with its answer; ``replace``: under this key, also where the set is the open question."""
    log.locked(connection, participant)
    waiting = log.open_question(connection, participant)
    if replace and waiting is not None and log.event_of(connection, key, 0) is None and set(waiting.ids) == set(shown):
        # Sent again, the answer is found by its key.
        log.add(connection, "withdrawn", participant, question=waiting.key)
    question = ask(connection, participant, key, shown, {"design": "given"})
    if set(question.ids) != set(shown):
        raise NotPossible(f"another question is open, which shows {', '.join(map(str, question.ids))}")
    return respond(connection, question.key, "answered", chosen)


def respond(connection: sa.Connection, key: str, kind: str, chosen: tuple[ObjectId, ...] | None) -> Recorded:
    """Record an answer or a skip, or return the one that was recorded before if it is the same."""
    asked = log.event_of(connection, key, 0)
    if asked is None or asked.participant is None or asked.shown is None:
        raise NotPossible(f"there is no question with the key {key!r}; ask first")
    log.locked(connection, asked.participant)
    if unknown := [one for one in chosen or () if one not in asked.shown]:
        raise NotPossible(f"chosen holds objects that were not shown: {listed(unknown)}")
    if (before := log.event_of(connection, key, 1)) is not None:
        if before.kind != kind or set(before.chosen or ()) != set(chosen or ()):
            raise AlreadyAnswered(_conflict(before))
        return Recorded(before, True)
    if log.study_state(connection) == "closed":
        raise NotPossible("the study is closed: no answer is taken any more")
    return Recorded(log.add(connection, kind, asked.participant, question=key, chosen=chosen), False)


def _conflict(before: Event) -> str:
    if before.kind == "withdrawn":
        return "the question was withdrawn, because another took its place; answer the one that is open"
    kept = "" if before.chosen is None else f" ({listed(before.chosen) or 'none of these'})"
    return f"{_WORDS[before.kind]}{kept} was recorded for this question before; undo it first to change it"


def undo(connection: sa.Connection, participant: int, key: str) -> Question:
    """Take the answer to a question back, if it is the last, and ask the question again."""
    log.locked(connection, participant)
    if (again := log.asked_again(connection, key)) is not None and again.participant == participant:
        return again
    last = last_response(log.events(connection, participant))
    if last is None or last.question != key:
        raise NotPossible("only the last answer can be undone")
    if log.study_state(connection) == "closed":
        raise NotPossible("the study is closed: no answer is undone any more")
    log.add(connection, "undone", participant, question=key)
    if (waiting := log.open_question(connection, participant)) is not None:
        log.add(connection, "withdrawn", participant, question=waiting.key)
    log.change(connection, participant, state="active")
    asked = log.event_of(connection, key, 0)
    why = {name: getattr(asked, name) for name in ("shown", "design", "value", "model", "reason")}
    new = secrets.token_urlsafe(16)
    return Question.of(log.add(connection, "asked", participant, question=new, again=key, **why))


def erase(connection: sa.Connection, participant: int) -> None:
    """Remove all that is known of a participant, but that there was one."""
    if log.is_deleted(connection, participant):
        return
    log.locked(connection, participant)
    log.remove_events(connection, participant)
    for table in (JOBS, RESULTS):
        # What was learned from everyone together was learned from her, too.
        of_her = sa.or_(table.c.participant == participant, table.c.kind.in_(("everyone", "people")))
        connection.execute(table.delete().where(of_her))
    log.change(connection, participant, state="deleted", token_hash=None, name=None, panel={})
    log.add(connection, "deleted", participant)
