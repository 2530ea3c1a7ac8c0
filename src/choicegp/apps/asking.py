"""A session in the terminal: sets are shown as tables and answered by numbers; and answers as a table."""

import re
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from choicegp.apps.demo import show_table
from choicegp.apps.options import output_option, split_names
from choicegp.apps.terminal import say, waited_for
from choicegp.errors import ChoiceGPError, ExtrapolationWarning, StoreError

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.elicitation.events import ObjectId, Question
    from choicegp.elicitation.session import ChoiceSession

HOW = "Type the numbers of those that you would keep, such as 1 3; or none, skip, undo or stop."
WORDS = ("none", "skip", "undo", "stop")
N_SHORT = 5
_USUAL = "alt_id"


def ask(
    objects: Annotated[
        str, Argument(metavar="OBJECTS", help="Table with one row for each object.", show_default=False)
    ],
    database: Annotated[
        str,
        Option(
            "--db", metavar="FILE", show_default=False,
            help="File that keeps the answers, or a postgresql:// URL. A session resumes from it.",
        ),
    ],
    participant: Annotated[str, Option("--participant", metavar="NAME", help="Who answers.")] = "me",
    set_size: Annotated[int, Option("--set-size", min=2, max=6, help="Number of objects in a set.")] = 4,
    sets: Annotated[int | None, Option("--sets", min=1, show_default=False, help="Stop after this many sets.")] = None,
    design: Annotated[
        str,
        Option(
            "--design", metavar="NAME", help="How sets are chosen: information, predictive, staged, best or random."
        ),
    ] = "information",
    object_id: Annotated[
        str | None,
        Option(
            "--object-id", metavar="COLUMN", show_default="alt_id, or a first column of different words",
            help="Column that names the objects.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        Option("--features", metavar="NAME,NAME,...", help="Columns to learn from.", show_default="all others"),
    ] = None,
) -> None:  # fmt: skip
    """Ask which objects you would keep, and learn from the answers.

    A set is shown as a table. The answer is the numbers of those that you would not reject; "none" means none of these,
    and "skip" that you cannot say. Every answer is kept in the file at once: stop whenever you like, and continue
    later with the same command.
    """
    table = read_objects(objects, object_id, None if features is None else split_names(features, "--features"))
    from choicegp.elicitation.session import ChoiceSession

    with ChoiceSession(table, database, participant=participant, set_size=set_size, design=design) as session:
        if known := len(session.store.answers(session.participant)):
            say(f"Welcome back, {participant}: {_are(known, 'answer')} in {session.store.where}.\n")
        try:
            try:
                _converse(session, sets)
            finally:
                # Also after an error or Ctrl-C: every answer up to here is safe.
                n_answers = len(session.store.answers(session.participant))
                say(f"\n{_are(n_answers, 'answer', f' of {participant}')} in {session.store.where}.")
            _conclude(session, n_answers)
        except KeyboardInterrupt as stopped:
            raise type(stopped)("interrupted: every answer is kept, and the same command continues") from stopped


def _are(n: int, noun: str, of: str = "") -> str:
    from choicegp.checks import counted

    return f"{counted(n, noun)}{of} {'is' if n == 1 else 'are'}"


def read_objects(path: str, object_id: str | None, features: list[str] | None) -> "pd.DataFrame":
    """Read a catalogue; its index holds the ids of the objects."""
    import pandas as pd

    from choicegp.reading.text import read_file

    read = read_file(path, ids=[object_id or _USUAL])
    for remark in read.remarks:
        warnings.warn(remark, stacklevel=2)
    frame = read.frame
    missing = [name for name in [object_id, *(features or ())] if name is not None and name not in frame]
    if missing:
        there = ", ".join(map(str, frame.columns))
        raise ChoiceGPError(f"{path} has no column {missing[0]!r}; its columns are {there}")
    name = object_id or _name_column(frame)
    if name is None:
        frame = frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name="row"))
    else:
        frame = frame.set_index(name)
        frame.index = pd.Index([str(label) for label in frame.index], name=name)
    return frame if features is None else frame[features]


def _name_column(frame: "pd.DataFrame") -> str | None:
    """Return the column that names the objects: alt_id, or the first where it holds different words."""
    import pandas as pd

    if _USUAL in frame:
        return _USUAL
    first = frame.iloc[:, 0]
    words = not pd.api.types.is_numeric_dtype(first.dtype)
    return str(frame.columns[0]) if words and first.is_unique and first.notna().all() and frame.shape[1] > 1 else None


def _converse(session: "ChoiceSession", sets: int | None) -> None:
    """Ask until the end of the input, "stop" or the given number of sets."""
    n_done, told = 0, False
    say(HOW)
    while sets is None or n_done < sets:
        question = session.ask()
        say("")
        show_table(_as_page(session, question))
        answer = _read(question)
        if answer == "stop":
            return
        if answer == "undo":
            try:
                session.undo()
                n_done = max(n_done - 1, 0)
            except StoreError as error:
                say(f"{error}.")
            continue
        if answer == "skip":
            session.skip()
        else:
            session.answer(question.key, () if isinstance(answer, str) else answer)
        n_done += 1
        if session.done and not told:
            told = True
            say(f"\nYou may stop here: {session.hint.reason}.")


def _as_page(session: "ChoiceSession", question: "Question") -> "pd.DataFrame":
    page = session.store.objects.loc[list(question.ids)]
    numbers = [f"{i}  {label}" for i, label in enumerate(page.index, 1)]
    return page.set_axis(numbers).rename_axis(f"   {page.index.name or 'object'}")


def _read(question: "Question") -> "str | list[ObjectId]":
    """Read an answer; what is not one is explained, and read again."""
    while True:
        print("keep: ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            say("")
            return "stop"
        answer = parse(line, question.ids)
        if not isinstance(answer, str) or answer in WORDS:
            return answer
        say(answer)


def parse(line: str, shown: Iterable["ObjectId"]) -> "str | list[ObjectId]":
    """Return the objects that a line names by their numbers, one of the words, or what is wrong with it.

    Examples
    --------
    >>> parse("3, 1", ["pen", "ink", "cap"])
    ['pen', 'cap']
    >>> parse("None", ["pen", "ink", "cap"])
    'none'
    >>> parse("4", ["pen", "ink", "cap"])
    '4 is not a number from 1 to 3. Type the numbers of those that you would keep, such as 1 3; or none, skip, ...'
    """
    known = list(shown)
    parts = re.split(r"[\s,;]+", line.strip().lower())
    if parts in [[word] for word in WORDS]:
        return parts[0]
    if parts == [""]:
        return f"The line is empty. {HOW}"
    numbers = {str(i): one for i, one in enumerate(known, 1)}
    wrong = [part for part in parts if part not in numbers]
    if wrong:
        return f"{wrong[0]} is not a number from 1 to {len(known)}. {HOW}"
    return [one for number, one in numbers.items() if number in parts]


def _conclude(session: "ChoiceSession", n_answers: int) -> None:
    """Say what was learned, and list the best objects."""
    from choicegp.elicitation.session import FEWEST
    from choicegp.reporting.summaries import drivers_in_words

    if n_answers < FEWEST:
        say(f"A model needs at least {FEWEST} answers; the same command continues.")
        return
    say("The model learns from all of them now, which takes some seconds.")

    def learned() -> "tuple[pd.DataFrame, str]":
        best, model = session.recommend(N_SHORT), session.model
        assert model is not None
        return best, drivers_in_words(model)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # the whole catalogue is predicted, as it should be
        best, drivers = waited_for(learned)
    say(f"\nWhat drives the choices (in brackets: how much, in units of uncertainty):\n{drivers}")
    say(f"\nThe short list: of {len(session.store.objects)} objects, those that most probably no other beats:\n")
    page = session.store.objects.loc[best.index].assign(probability=best["probability"].map("{:.2f}".format))
    show_table(page.rename_axis(str(session.store.objects.index.name or "object")))
    say(f"\n{session.hint.reason[0].upper()}{session.hint.reason[1:]}.")


def answers(
    database: Annotated[
        str, Argument(metavar="FILE", help="File or URL that `choicegp ask --db` names.", show_default=False)
    ],
    output: Annotated[str, output_option("File for the table, or for the events.")] = "",
    events: Annotated[
        bool, Option("--events", help="Write all events, each as JSON on a line, instead of the answers.")
    ] = False,
    participants: Annotated[
        bool, Option("--participants", help="Write a table of the participants, by whose ids events name them.")
    ] = False,
    delete: Annotated[
        str | None,
        Option("--delete", metavar="NAME", show_default=False, help="Remove a participant with all answers, for good."),
    ] = None,
) -> None:
    """Export the answers of a study, or remove a participant.

    The long table has one row for each object that was shown, and `choicegp fit` reads it.
    """
    from choicegp.checks import counted
    from choicegp.elicitation.store import Store
    from choicegp.files import check_place

    if sum((bool(output), delete is not None)) != 1 or (events and participants):
        raise ChoiceGPError(
            "the answers need a file: pass -o FILE.csv, with --events or --participants for another table; "
            "or pass --delete NAME alone"
        )
    if output:
        check_place(output)
    with Store.open(database) as store:
        if delete is not None:
            n_answers = len(store.answers(delete))
            store.delete_participant(delete)
            say(f"{delete} and {counted(n_answers, 'answer')} were removed from {store.where}.")
        elif events:
            store.export_events(output)
            say(f"{_are(len(store.events()), 'event')} in {output}.")
        elif participants:
            store.export_participants(output)
            say(f"{_are(len(store.participants()), 'participant')} in {output}.")
        else:
            store.export_long(output)
            say(f"{_are(len(store.answers()), 'answer')} in {output}. Learn from them:")
            say(f"  choicegp fit {output} -o model.cgp --respondent respondent --empty none")
