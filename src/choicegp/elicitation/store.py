"""A study in a database: its objects, its participants, and the log of what was asked and answered."""

import json
import math
import os
import secrets
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from choicegp.checks import check_one_of, listed, plain
from choicegp.elicitation.arguments import json_dict, object_ids, participant_column, participant_name, question_key
from choicegp.elicitation.catalogue import as_frame, as_plain, checked_objects, differences
from choicegp.elicitation.events import Answer, Event, ObjectId, Participant, Question, Recorded, answers, last_response
from choicegp.errors import ChoiceGPError, NotPossible, StoreError
from choicegp.files import replaced_when_complete

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData
    from choicegp.elicitation.database import Database
    from choicegp.elicitation.events import Progress

Who = Participant | int | str


class Store:
    """One study in a database: an SQLite file, or PostgreSQL by its URL; made by :meth:`open`.

    Every method that writes is one transaction. Events are only appended; an undo is a further event. Each question has
    a key: an answer that is sent again with the same key counts once, and so do questions, skips and undos. ``who`` is
    a participant, as a record, by id (a number) or by name (a text). A store may be used by several threads.

    Attributes
    ----------
    where : str
        The file, or the URL without its password.
    objects : DataFrame
        The catalogue, one row per object, with the ids in its index.
    settings : dict
        What was passed when the study was created.
    owner_token : str or None
        The token of the study's owner, known only where the study was created: the database holds its hash.

    Examples
    --------
    >>> import pandas as pd
    >>> pens = pd.DataFrame({"price": [3, 5, 4]}, index=["pen", "ink", "cap"])
    >>> store = Store.open(":memory:", pens)
    >>> anna, token = store.join("Anna")
    >>> question = store.ask(anna, ["pen", "ink", "cap"], design="random")
    >>> store.answer(question.key, ["pen", "cap"]).repeated
    False
    >>> store.answer(question.key, ["pen", "cap"]).repeated
    True
    >>> store.data()
    ChoiceData(1 set, 3 objects, 1 feature, choices)
    """

    owner_token: str | None = None

    def __init__(self, database: "Database", objects: "pd.DataFrame", settings: dict[str, Any]) -> None:
        from choicegp.elicitation import log, transactions

        self._database, self._log, self._work = database, log, transactions
        self.where = database.where
        self.objects = objects
        self.settings = settings
        self._known = frozenset(plain(label) for label in objects.index)

    @classmethod
    def open(
        cls,
        place: str | os.PathLike[str],
        objects: "pd.DataFrame | None" = None,
        settings: dict[str, Any] | None = None,
        *,
        timeout: float = 5.0,
    ) -> Self:
        """Open a study, or create it where there is none.

        Parameters
        ----------
        place : str or path
            An SQLite file, a URL such as ``postgresql://user@host/database``, or ":memory:".
        objects : DataFrame, optional
            The catalogue, one row per object; the index holds their ids, texts or whole numbers. It is needed to create
            a study; for an existing one it is compared with the study's own, and an error says what differs.
        settings : dict, optional
            Anything that JSON can hold, kept with a study when it is created.
        timeout : float
            How many seconds to wait for another program that writes.

        Returns
        -------
        Store

        Examples
        --------
        >>> import pandas as pd
        >>> Store.open(":memory:", pd.DataFrame({"price": [3, 5]})).objects.index.tolist()
        [0, 1]
        """
        given = None if objects is None else as_plain(checked_objects(objects))
        database = _opened(place, timeout, create=given is not None)
        try:
            database.migrate()
            store, token = cls._of(database, given, settings)
        except BaseException:
            database.close()
            raise
        store.owner_token = token if store.is_owner(token) else None
        return store

    @classmethod
    def _of(cls, database: "Database", given: dict[str, Any] | None, settings: dict[str, Any] | None) -> Any:
        """Return the study of a database, created if necessary, and what is its owner's token if it was."""
        from choicegp.elicitation import transactions

        row, token = database.read(transactions.study), secrets.token_urlsafe(32)
        if row is None:
            if given is None:
                raise StoreError(f"there is no study in {database.where} yet: pass the objects to create one")
            row = database.write(transactions.create, given, json_dict(settings or {}), token)
        if given is not None and (found := differences(row.catalogue, given)):
            raise StoreError(f"{database.where} holds a study of other objects: {'; '.join(found)}")
        if settings is not None and settings != row.settings:
            names = sorted({*settings, *row.settings})
            other = [name for name in names if settings.get(name) != row.settings.get(name)]
            raise StoreError(f"{database.where} holds a study with other settings; these differ: {listed(other)}")
        return cls(database, as_frame(row.catalogue), row.settings), token

    def close(self) -> None:
        """Close the connections; what was recorded stays."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.where!r}, {len(self.objects)} objects)"

    @property
    def state(self) -> str:
        """Whether the study is "open", "paused" (nothing new is asked) or "closed" (no answer is taken either)."""
        return self._database.read(self._log.study_state)

    def set_state(self, state: str) -> None:
        """Set the ``state`` of the study to "open", "paused" or "closed"; the log says when."""
        check_one_of("state", state, ("open", "paused", "closed"))
        self._database.write(self._work.set_state, state)

    def is_owner(self, token: str) -> bool:
        """Return whether ``token`` is the token of the study's owner."""
        return secrets.compare_digest(self._database.read(self._log.owner_hash), self._log.hash_of(token))

    def new_owner_token(self) -> str:
        """Return a new token for the owner; the one before is no longer valid."""
        token = secrets.token_urlsafe(32)
        self._database.write(self._work.set_owner, token)
        return token

    def join(
        self, name: str | None = None, panel: dict[str, Any] | None = None, *, token: str | None = None,
        most: int | None = None,
    ) -> tuple[Participant, str]:  # fmt: skip
        """Add a participant.

        Parameters
        ----------
        name : str, optional
            No two participants have the same name.
        panel : dict, optional
            Identifiers of a panel.
        token : str, optional
            A secret that nobody can guess; by default a new one. The same token sent again joins once.
        most : int, optional
            Maximum number of participants; `StudyFull` refuses one more.

        Returns
        -------
        participant : Participant
        token : str
            Proves who answers. Only its hash is stored: it cannot be read from a copy of the database.
        """
        proof = secrets.token_urlsafe(32) if token is None else token
        given = json_dict(panel or {}, "panel")
        return self._database.write(self._work.join, participant_name(name), given, proof, most), proof

    def found_or_joined(self, name: str) -> Participant:
        """Return the participant of this ``name``, who is added if there is none."""
        return self._find(participant_name(name) or "") or self.join(name)[0]

    def participant(self, who: Who) -> Participant:
        """Return a participant by id or name, in the present state."""
        if (found := self._find(who)) is None:
            raise NotPossible(f"there is no participant {who!r} in {self.where}; add one with join")
        return found

    def _find(self, who: Who) -> Participant | None:
        key = who.id if isinstance(who, Participant) else plain(who)
        having = {participant_column(key): key}
        found = self._database.read(lambda connection: self._log.participants(connection, **having))
        return found[0] if found else None

    def by_token(self, token: str) -> Participant | None:
        """Return the participant to whom ``token`` belongs, or None."""
        proof = self._log.hash_of(token)
        found = self._database.read(lambda connection: self._log.participants(connection, token_hash=proof))
        return found[0] if found else None

    def new_token(self, who: Who) -> str:
        """Return a new token for a participant; the one before is no longer valid."""
        number, token = self.participant(who).id, secrets.token_urlsafe(32)
        proof = self._log.hash_of(token)
        self._database.write(lambda connection: self._log.change(connection, number, token_hash=proof))
        return token

    def participants(self) -> list[Participant]:
        """Return all participants who were not deleted."""
        return self._database.read(self._log.participants)

    def finish(self, who: Who) -> None:
        """Note that a participant has finished: she is asked nothing more unless she resumes or undoes an answer."""
        self._database.write(self._work.finish, self.participant(who).id)

    def resume(self, who: Who) -> Participant:
        """Let a participant who has finished continue, and return her; what was open is open again."""
        return self._database.write(self._work.resume, self.participant(who).id)

    def delete_participant(self, who: Who) -> None:
        """Remove a participant with her name, token and answers; the log keeps only that somebody was deleted.

        SQLite overwrites what is removed. PostgreSQL does so when it cleans its tables (VACUUM). Copies of the database
        are not reached.
        """
        self._database.write(self._work.erase, self.participant(who).id)
        self._database.empty_journal()

    def ask(
        self, who: Who, shown: Iterable[ObjectId], *, design: str | None = None, value: float | None = None,
        model: str | None = None, reason: str | None = None, key: str | None = None,
    ) -> Question:  # fmt: skip
        """Record that a set is shown; while a question is open, return that one instead.

        Parameters
        ----------
        who : Participant, int or str
        shown : iterable of object ids
            In the order in which they are shown.
        design, model, reason : str, optional
            Why the set is shown: name of the design, version of the model, and a sentence.
        value : float, optional
            The design's value of the set.
        key : str, optional
            The idempotency key; by default a new one.

        Returns
        -------
        Question
            ``repeated`` says whether it was asked before.
        """
        objects = self._checked(shown)
        worth = None if value is None or math.isnan(value) else float(value)
        why = {"design": design, "value": worth, "model": model, "reason": reason}
        own = secrets.token_urlsafe(16) if key is None else question_key(key)
        return self._database.write(self._work.ask, self.participant(who).id, own, objects, why)

    def _checked(self, shown: Iterable[ObjectId]) -> tuple[ObjectId, ...]:
        objects = object_ids(shown, "shown")
        if not objects:
            raise ChoiceGPError("shown is empty: a question needs at least one object")
        if unknown := [one for one in objects if one not in self._known]:
            raise ChoiceGPError(f"shown holds objects that are not in the catalogue: {listed(unknown)}")
        return objects

    def tell(
        self, who: Who, shown: Iterable[ObjectId], chosen: Iterable[ObjectId], *, key: str | None = None
    ) -> Recorded:
        """Record a set that was shown elsewhere and what was chosen of it, both or neither.

        Where that set is the open question, this is answered. With a ``key``, the same sent again counts once. The
        record that is returned says whether it was ``repeated``.
        """
        own = secrets.token_urlsafe(16) if key is None else question_key(key)
        given = self._checked(shown), object_ids(chosen, "chosen")
        return self._database.write(self._work.tell, self.participant(who).id, own, *given, key is not None)

    def answer(self, key: str, chosen: Iterable[ObjectId]) -> Recorded:
        """Record what was chosen, and return the record; an empty ``chosen`` means "none of these".

        Parameters
        ----------
        key : str
            Key of the question. The same answer sent again counts once, and `AlreadyAnswered` refuses a different one.
        chosen : iterable of object ids
            Part of what was shown.
        """
        return self._database.write(self._work.respond, question_key(key), "answered", object_ids(chosen, "chosen"))

    def skip(self, key: str) -> Recorded:
        """Record "can't say" for the question of this ``key``, and return the record; nothing is learned from it."""
        return self._database.write(self._work.respond, question_key(key), "skipped", None)

    def undo(self, who: Who, key: str | None = None) -> Question:
        """Take the last answer or skip back, and ask its question again, with a new key.

        A question that is open meanwhile is withdrawn. All of it stays in the log.

        Parameters
        ----------
        who : Participant, int or str
        key : str, optional
            Key of the question whose answer is undone: sent again it counts once. By default the last one.

        Returns
        -------
        Question
        """
        number = self.participant(who).id
        if key is None:
            last = last_response(self.events(number))
            if last is None or last.question is None:
                raise NotPossible("there is no answer to undo")
            key = last.question
        return self._database.write(self._work.undo, number, question_key(key))

    def open_question(self, who: Who) -> Question | None:
        """Return the question that waits for an answer, or None."""
        return self._database.read(self._log.open_question, self.participant(who).id)

    def events(self, who: Who | None = None, after: int = 0, *, of_questions: bool = False) -> list[Event]:
        """Return events above the id ``after``, of one participant or of all; ``of_questions``: only of questions."""
        number = None if who is None else self.participant(who).id
        return self._database.read(self._log.events, number, after, of_questions)

    def answers(self, who: Who | None = None) -> list[Answer]:
        """Return the answers that count, of one participant or of all."""
        return answers(self.events(who, of_questions=True))

    def progress(self) -> "dict[int, Progress]":
        """Return how far each participant is, by number, without reading all events."""
        return self._database.read(self._log.progress)

    def data(self, who: Who | None = None) -> "ChoiceData":
        """Return the answers as choice data with respondents.

        "None of these" is a set of which nothing was chosen; a missing feature is a value of its own.
        """
        from choicegp.elicitation.tables import choices

        number = None if who is None else self.participant(who).id
        given, people = self._database.read(self._log.answered, number)
        if not given:
            raise ChoiceGPError(f"there are no answers in {self.where} yet")
        return choices(self.objects, given, people)

    def export_events(self, path: str | os.PathLike[str]) -> None:
        """Write all events to the file ``path``, each as JSON on a line of its own."""
        lines = [json.dumps(event.record(), ensure_ascii=False) + "\n" for event in self.events()]
        with replaced_when_complete(path) as handle:
            handle.write("".join(lines).encode())

    def export_long(self, path: str | os.PathLike[str]) -> None:
        """Write the table that ``choicegp fit --respondent respondent --empty none`` reads to the file ``path``."""
        self.data().write(path)

    def export_participants(self, path: str | os.PathLike[str]) -> None:
        """Write the participants, how many answers each gave and the identifiers of a panel to the file ``path``."""
        from choicegp.elicitation.tables import participants_table
        from choicegp.reading.text import write_table

        given, people = self._database.read(self._log.answered)
        write_table(participants_table(list(people.values()), given), path)


def _opened(place: str | os.PathLike[str], timeout: float, create: bool) -> "Database":
    try:
        import alembic  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        needed = "the log of answers needs SQLAlchemy and Alembic; run pip install 'choicegp[store]'"
        raise ImportError(needed) from error
    from choicegp.elicitation.database import Database

    return Database(place, timeout, create)
