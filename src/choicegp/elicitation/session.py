"""A conversation: which set to show next, what was answered, and what is known so far."""

import copy
import math
import os
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from choicegp import __version__
from choicegp.checks import check_one_of, flag_option, kind_of, number_option, seed, whole_number
from choicegp.elicitation.catalogue import CataloguePlaces, checked_objects
from choicegp.elicitation.events import Event, ObjectId, Participant, Question, Recorded, answered_sets, answers
from choicegp.elicitation.stopping import Hint, hint_after
from choicegp.elicitation.store import Store, Who
from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from choicegp.data.choices import ChoiceData
    from choicegp.elicitation.refitting import Answered, Current
    from choicegp.estimators.choice_gp import ChoiceGP

FEWEST = 4
"""Answers before the first model; until then sets fill the space of features."""
_SECONDS = 0.5  # for the search of a set


class ChoiceSession:
    """Ask a person which objects she would keep, learn from the answers, and ask again.

    Every answer is recorded in a `Store` before anything else happens. The model is refitted in the background, from
    the last model, and the last one asks meanwhile: nobody waits for a fit.

    Parameters
    ----------
    objects : DataFrame, array (t, c) or None
        The catalogue, one row per object, with ids in the index; the ids of an array's objects are its row numbers.
        None for the catalogue of an existing study.
    store : Store, path, URL or None
        Where answers are kept: a study, an SQLite file or a URL of PostgreSQL, from which a session resumes. None keeps
        them in memory.
    db : path, URL or None
        Another name for ``store``.
    participant : str, int or Participant
        Who answers. A new name is added to the study.
    set_size : int
        How many objects a set has, 2 to 6.
    design : str
        How sets are chosen once there is a model; see `next_set`.
    model : ChoiceGP, optional
        Its options are used for all fits. By default two utilities, and for speed no intervals and object effects.
    threshold : bool or "auto"
        Of the default model: whether it knows of a threshold before "none of these" is first answered. A ``model`` has
        its own.
    pooled : bool
        Whether one model learns from the answers of all participants; by default each has one of her own.
    max_seconds : float
        Time limit of a refit. The first model, and the first with a threshold, may take ten times as long.
    random_state : int or None
        Seed. The sets also depend on which fits were done in time; `refresh` waits for them.

    Attributes
    ----------
    store : Store
    participant : Participant

    Examples
    --------
    >>> from choicegp import datasets
    >>> session = ChoiceSession(datasets.laptops(), set_size=3)
    >>> question = session.ask()
    >>> len(question.shown)
    3
    >>> session.answer(question, question.shown[:1]).repeated
    False
    >>> session.data
    ChoiceData(1 set, 120 objects, 9 features, choices)
    >>> session.close()
    """

    def __init__(
        self, objects: "pd.DataFrame | NDArray | None" = None, store: Store | str | os.PathLike[str] | None = None, *,
        db: str | os.PathLike[str] | None = None, participant: Who = "me", set_size: int = 4,
        design: str = "information", model: "ChoiceGP | None" = None, threshold: bool | str = True,
        pooled: bool = False, max_seconds: float = 2.0, random_state: int | None = 0,
    ) -> None:  # fmt: skip
        from choicegp.elicitation.design import HOW
        from choicegp.elicitation.refitting import Refitter, probe_of
        from choicegp.estimators.choice_gp import ChoiceGP

        check_one_of("design", design, HOW)
        if db is not None:
            if store is not None:
                raise ChoiceGPError("store and db name the same thing: pass one of them")
            store = db
        if model is None:
            model = ChoiceGP(intervals="none", object_effects=False, threshold=threshold, random_state=random_state)
        if not isinstance(model, ChoiceGP):
            raise ChoiceGPError(f"model must be a ChoiceGP, not {kind_of(model)}")
        self._size, self._design = whole_number("set_size", set_size, 2), design
        self._pooled, self._seed = flag_option("pooled", pooled), seed(random_state)
        limit = number_option("max_seconds", max_seconds, 0.0, math.inf)
        self._opened, self._owns_fits = not isinstance(store, Store), True
        table = checked_objects(objects) if self._opened and objects is not None else None
        self.store = store if isinstance(store, Store) else Store.open(":memory:" if store is None else store, table)
        self._places = CataloguePlaces.of(self.store.objects if table is None else table)
        self.participant = self._known(participant)
        self._refitter = Refitter(model, limit, probe_of(self.store.objects, self._size, self._seed), self._rehearse)

    def _rehearse(self, model: "ChoiceGP") -> None:
        """Choose a set, which nobody sees: its programs are compiled before somebody waits for one."""
        from choicegp.elicitation.design import next_set
        from choicegp.elicitation.request import LARGEST

        objects = self.store.objects
        size = min(self._size, len(objects), LARGEST)
        next_set(model, objects, size, how=self._design, seconds=math.inf, random_state=0)

    def _known(self, who: Who) -> Participant:
        return self.store.found_or_joined(who) if isinstance(who, str) else self.store.participant(who)

    def of(self, participant: Who) -> Self:
        """Return the same session with another participant, who may be asked at the same time.

        Parameters
        ----------
        participant : str, int or Participant
            A name that is not known yet joins the study.

        Returns
        -------
        ChoiceSession
        """
        other = copy.copy(self)
        other._opened, other._owns_fits, other.participant = False, False, self._known(participant)
        return other

    def ask(self, k: int | None = None) -> Question:
        """Return the next set to show; while a question is open, that one.

        Parameters
        ----------
        k : int, optional
            How many objects to show; by default ``set_size``.

        Returns
        -------
        Question

        Examples
        --------
        >>> from choicegp import datasets
        >>> session = ChoiceSession(datasets.laptops())
        >>> session.ask(2).design
        'space-filling'
        """
        from choicegp.elicitation.design import next_set

        size = self._size if k is None else whole_number("k", k, 2)
        if (waiting := self.store.open_question(self.participant)) is not None:
            return self._places.put_in(waiting)
        own = self.store.events(self.participant)
        self._request()
        current = self._current
        n_asked = sum(event.kind == "asked" for event in own)
        proposed = next_set(
            None if current is None else current.roomy,
            self.store.objects,
            size,
            how=self._design,
            avoid=answered_sets(own),
            seconds=_SECONDS,
            random_state=_seed_of(self._seed, self.participant.id, n_asked),
        )
        version = None if current is None else f"{__version__}/{current.last}"
        who, (shown, value, how, reason) = self.participant, proposed
        return self._places.put_in(self.store.ask(who, shown, design=how, value=value, model=version, reason=reason))

    def answer(self, question: Question | str, chosen: Iterable[ObjectId]) -> Recorded:
        """Record what was chosen of a question.

        Parameters
        ----------
        question : Question or str
            The question, or its key.
        chosen : iterable of row numbers or object ids
            Of a question, some of ``question.shown``, or else of ``question.ids``: numbers that may be either are row
            numbers. Of a key, ids. Nothing means "none of these".

        Returns
        -------
        Recorded
        """
        if isinstance(question, Question):
            key, named = question.key, self._places.chosen_of(question.ids, chosen)
        else:
            key, named = question, self._places.named(chosen)
        found = self.store.answer(key, named)
        self._request()
        return found

    def tell(
        self, shown: Question | Iterable[ObjectId], chosen: Iterable[ObjectId], *, key: str | None = None
    ) -> Recorded:
        """Record what was chosen of a question, or of a set that was shown elsewhere.

        Set and answer are recorded together or not at all. The same answer to a question sent again counts once; so
        does one to a set with a ``key`` of your own.

        Parameters
        ----------
        shown : Question or iterable of object ids
            Row numbers will do where ids are texts.
        chosen : iterable of object ids
            As in ``shown``, and of a question as in `answer`. Empty for "none of these".
        key : str, optional
            Of your own, for a set that was shown elsewhere.

        Returns
        -------
        Recorded
        """
        if isinstance(shown, Question):
            if key is not None:
                raise ChoiceGPError("a question has a key of its own: leave key out")
            return self.answer(shown, chosen)
        found = self.store.tell(self.participant, self._places.named(shown), self._places.named(chosen), key=key)
        self._request()
        return found

    def none(self, question: Question | str | None = None) -> Recorded:
        """Answer a question, by default the open one, with "none of these".

        Returns
        -------
        Recorded
        """
        return self.answer(self._open() if question is None else question, ())

    def skip(self, question: Question | str | None = None) -> Recorded:
        """Answer a question, by default the open one, with "can't say", from which nothing is learned.

        Returns
        -------
        Recorded
        """
        skipped = self._open() if question is None else question
        return self.store.skip(skipped.key if isinstance(skipped, Question) else skipped)

    def undo(self) -> Question:
        """Take the last answer or skip back.

        Returns
        -------
        Question
            The one that was answered, which is open again.
        """
        question = self.store.undo(self.participant)
        self._request()
        return self._places.put_in(question)

    def _open(self) -> Question:
        if (question := self.store.open_question(self.participant)) is None:
            raise ChoiceGPError("no question is open: call ask() first")
        return question

    @property
    def data(self) -> "ChoiceData":
        """The answers that count."""
        return self.store.data(self._whose)

    @property
    def n_answers(self) -> int:
        """Number of answers that count."""
        return len(self.store.answers(self._whose))

    @property
    def model(self) -> "ChoiceGP | None":
        """The last model, or None before the first; see `refresh`."""
        return None if (current := self._current) is None else current.model

    def refresh(self, wait: bool = True) -> Self:
        """Bring the model up to date.

        Parameters
        ----------
        wait : bool
            Whether to return only when the model has learned all answers, and to raise the error of a fit that failed.

        Returns
        -------
        ChoiceSession
            Itself.
        """
        self._request()
        if wait:
            self._refitter.wait()
        return self

    def recommend(self, n: int = 10) -> "pd.DataFrame":
        """Return the objects of the catalogue that are most probably undominated, after all answers so far.

        Parameters
        ----------
        n : int
            Number of objects.

        Returns
        -------
        DataFrame
            As `ChoiceGP.recommend` returns it.
        """
        model = self.refresh().model
        if model is None:
            raise ChoiceGPError(f"a recommendation needs at least {FEWEST} answers")
        return model.recommend(self.store.objects, n)

    @property
    def hint(self) -> Hint:
        """Whether more answers would change little, judged by what the last ones changed in the predictions."""
        from choicegp.elicitation.refitting import RECENT

        return hint_after(None if (current := self._current) is None else current.change, RECENT)

    @property
    def done(self) -> bool:
        """Whether more answers would change little; `hint` says why."""
        return self.hint.done

    def close(self, wait: bool = True) -> None:
        """End the fits, unless another session began them (see `of`), and close the store if this one opened it.

        Parameters
        ----------
        wait : bool
            Whether to wait for the fit that runs, and to raise its error. Every answer is recorded in either case.
        """
        try:
            if self._owns_fits and wait:
                self._refitter.finish()
            elif self._owns_fits:
                self._refitter.abandon()
            elif wait:
                self._refitter.wait()
        finally:
            if self._opened:
                self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None or not issubclass(kind, KeyboardInterrupt))

    def __repr__(self) -> str:
        return f"ChoiceSession({self.store.where!r}, participant={self.participant.label!r})"

    @property
    def _whose(self) -> Participant | None:
        return None if self._pooled else self.participant

    @property
    def _current(self) -> "Current | None":
        return self._refitter.current(None if self._pooled else self.participant.id)

    def _request(self) -> None:
        """Ask for a new model if there are answers that the last one does not know."""
        answered = self._answered()
        current = self._current
        if answered is not None and (current is None or current.last != answered):
            whose = self._whose
            self._refitter.request(None if whose is None else whose.id, lambda: self._read(whose))

    def _answered(self) -> int | None:
        """Return the number of the last answer or undo, None where there are too few answers for a model."""
        events = self.store.events(self._whose)
        return None if len(answers(events)) < FEWEST else _last(events)

    def _read(self, whose: Participant | None) -> "Answered | None":
        from choicegp.elicitation.refitting import Answered

        last = self._answered()
        return None if last is None else Answered(self.store.data(whose), last)


def _last(events: list[Event]) -> int:
    return max(event.id for event in events if event.kind in ("answered", "undone"))


def _seed_of(*numbers: int) -> int:
    import numpy as np

    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
