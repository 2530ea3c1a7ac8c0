"""What can go wrong for a user."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ChoiceGPError(ValueError):
    """An error that the user can fix: the message says what is wrong, where, and what to do.

    Examples
    --------
    >>> from choicegp import ChoiceGP, ChoiceGPError
    >>> try:
    ...     ChoiceGP().set_params(utilities=2)
    ... except ChoiceGPError as error:
    ...     print(str(error)[:37])
    ChoiceGP has no parameter 'utilities'
    """


class StoreError(ChoiceGPError):
    """The log of answers cannot be opened, read or written; nothing is half-written.

    Examples
    --------
    >>> from choicegp import Store
    >>> try:
    ...     Store.open("absent.db")
    ... except StoreError as error:
    ...     print(error)
    there is no file absent.db
    """


class Unavailable(StoreError):
    """The database cannot be reached, read or written just now: the same may succeed later.

    Examples
    --------
    >>> from choicegp import Unavailable
    >>> try:
    ...     raise Unavailable("another program writes to study.db")
    ... except Unavailable as error:
    ...     print(f"{error}: the answer is sent again")
    another program writes to study.db: the answer is sent again
    """


class NotPossible(StoreError):
    """The study does not allow what was asked, such as an answer after its end: the message says why.

    Examples
    --------
    >>> from choicegp import NotPossible, Store, datasets
    >>> with Store.open(":memory:", datasets.laptops(6)) as store:
    ...     try:
    ...         store.participant("Anna")
    ...     except NotPossible as error:
    ...         print(error)
    there is no participant 'Anna' in :memory:; add one with join
    """


class StudyFull(NotPossible):
    """The study has as many participants as it may have.

    Examples
    --------
    >>> from choicegp import Store, StudyFull, datasets
    >>> with Store.open(":memory:", datasets.laptops(6)) as store:
    ...     anna, token = store.join("Anna", most=1)
    ...     try:
    ...         store.join("Bert", most=1)
    ...     except StudyFull as error:
    ...         print(error)
    the study has 1 participant and takes no more
    """


class AlreadyAnswered(NotPossible):
    """Another answer to the same question was recorded before; it is kept, and this one is not.

    Examples
    --------
    >>> from choicegp import AlreadyAnswered, Store, datasets
    >>> with Store.open(":memory:", datasets.laptops(6)) as store:
    ...     question = store.ask(store.join("Anna")[0], store.objects.index[:2])
    ...     recorded = store.answer(question.key, question.ids[:1])
    ...     try:
    ...         store.answer(question.key, [])
    ...     except AlreadyAnswered as error:
    ...         print(error)
    an answer ('Alder 15 Plus') was recorded for this question before; undo it first to change it
    """


class ExtrapolationWarning(UserWarning):
    """Predictions are made for objects with features outside the range of the objects shown in training.

    Examples
    --------
    >>> import warnings
    >>> from choicegp import ExtrapolationWarning
    >>> warnings.simplefilter("error", ExtrapolationWarning)  # refuse to predict outside the range
    >>> warnings.simplefilter("default", ExtrapolationWarning)
    """


class ReadingNote(UserWarning):
    """A table was read in the only way that makes sense of it: the note says how.

    Examples
    --------
    >>> import warnings
    >>> from choicegp import ReadingNote
    >>> warnings.simplefilter("ignore", ReadingNote)  # read silently
    """


class ReadingWarning(UserWarning):
    """A table was probably misread, or parts of it were left out: the warning says what to pass.

    Examples
    --------
    >>> import warnings
    >>> from choicegp import ReadingWarning
    >>> warnings.simplefilter("error", ReadingWarning)  # refuse tables that are in doubt
    >>> warnings.simplefilter("default", ReadingWarning)
    """


class TrustWarning(UserWarning):
    """A result cannot be trusted on some sets, or for some people: the warning counts them.

    Examples
    --------
    >>> from choicegp import TrustWarning
    >>> issubclass(TrustWarning, UserWarning)
    True
    """


class FileWarning(UserWarning):
    """A file or folder that only saves time cannot be used: the work continues without it.

    Examples
    --------
    >>> from choicegp import FileWarning
    >>> issubclass(FileWarning, UserWarning)
    True
    """


class Defect(NamedTuple):
    """One thing that is wrong with the data.

    Attributes
    ----------
    kind : str
        A short fixed name such as ``"chosen-not-shown"``.
    problem : str
        What is wrong, in plain words, without the place.
    row : int or None
        Row of the file, counted as a spreadsheet does (the header is row 1), or position in the input.
    set : object
        The set's id, or None when the defect belongs to no set.
    object : object
        The object's id, or None.

    Examples
    --------
    >>> from choicegp import Defect
    >>> Defect("missing-feature", "the price is missing", row=7).kind
    'missing-feature'
    """

    kind: str
    problem: str
    row: int | None = None
    set: object = None
    object: object = None

    def __str__(self) -> str:
        places = (("row", self.row), ("set", self.set), ("object", self.object))
        where = ", ".join(f"{name} {value!r}" for name, value in places if value is not None)
        return f"{where}: {self.problem}" if where else self.problem


class ChoiceDataError(ChoiceGPError):
    """Data that cannot be used as they are; ``defects`` holds everything that was found.

    The message counts the defects of each kind, with what helps, before it lists them.

    Parameters
    ----------
    defects : sequence of Defect
    source : str, optional
        The file the data came from.
    advice : mapping of str to str, optional
        What helps against each kind of defect.

    Examples
    --------
    >>> from choicegp import ChoiceData, ChoiceDataError
    >>> try:
    ...     ChoiceData.from_sets([[0.0], [1.0], [2.0]], [[0, 1]], [[2]])
    ... except ChoiceDataError as error:
    ...     print([defect.kind for defect in error.defects])
    ['chosen-not-shown']
    """

    listed = 20

    def __init__(
        self, defects: Sequence[Defect], source: str | None = None, advice: Mapping[str, str] | None = None
    ) -> None:
        self.defects = tuple(defects)
        self.source = source
        self.advice = dict(advice or {})
        name = f"{source}: " if source else ""
        if len(self.defects) == 1:
            super().__init__(name + "; ".join(filter(None, (str(defects[0]), self.advice.get(defects[0].kind)))))
            return
        counts = Counter(defect.kind for defect in self.defects)
        lines = [self._counted(kind, n) for kind, n in counts.most_common()]
        if len(counts) == 1 and not self.advice.keys() & counts.keys():
            lines = []  # the count of all says it
        n_listed = max(self.listed - len(lines), 1)
        lines += [str(defect) for defect in self.defects[:n_listed]]
        if len(self.defects) > n_listed:
            lines.append(f"... and {len(self.defects) - n_listed} more")
        super().__init__(f"{name}{len(self.defects)} defects\n" + "\n".join("  " + line for line in lines))

    def _counted(self, kind: str, n: int) -> str:
        return f"{n} x {kind}" + (f": {self.advice[kind]}" if kind in self.advice else "")

    def __reduce__(self) -> tuple:
        # Exceptions are rebuilt from `args` (here the message); joblib sends them between processes.
        return (type(self), (self.defects, self.source, self.advice))
