"""How a command speaks to its user: plain text, and one line on stderr when something goes wrong."""

import _thread
import ast
import contextlib
import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import typer

from choicegp.errors import ChoiceGPError, ReadingNote

DEBUG = "CHOICEGP_DEBUG"
_NAMES = (
    "empty|missing|on_error|kind|chosen|set_id|object_id|respondent|available|weight|decimal|at_most|feature|features|"
    "numbers|covariates|inference|respondents"
)
_OPTIONS = {"numbers": "--number", "covariates": "--covariate", "respondents": "--people"}
_TEXT = r"'(?:[^'\\]|\\.)*'"
_ARGUMENT = re.compile(rf"(?<![\w(])(?P<name>{_NAMES})=(?P<value>{_TEXT}|\d+|\[{_TEXT}(?:, {_TEXT})*\])")
LONGEST_LINE = 1000

OK = 0
FIXABLE = 2  # the input, the options or the machine: what the user can do something about
INTERNAL = 70  # EX_SOFTWARE of sysexits.h: a defect of ours
INTERRUPTED = 130  # what a shell reports after Ctrl-C
BROKEN_PIPE = 141  # ... and when the reader of a pipe has gone
TERMINATED = 143  # ... and after SIGTERM, as from `kill`
_SOON = 0.05  # seconds
_UNHEEDED = "choicegp-refit"  # first part of the names of threads for which the end of a command does not wait
_NO_ROOM = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")  # of the system's loader
_end_at_once = os._exit
_STOPPED = "interrupted: no file was left incomplete; the same command begins again"


class Terminated(KeyboardInterrupt):
    """SIGTERM asked the process to end: everything is closed as after Ctrl-C."""


class Ending(NamedTuple):
    """How a command ended: its exit code and what to say about it, if anything."""

    code: int
    message: str = ""


def run(command: Callable[[], object]) -> int:
    """Run a command and return its exit code; whatever goes wrong becomes one line on stderr.

    The code is 0, or 2 for what the user can fix, 70 for a defect of the program, 130 after Ctrl-C, 143 after SIGTERM,
    and 141 when nobody reads the output any more.

    Examples
    --------
    >>> run(lambda: say("3 sets"))
    3 sets
    0
    """
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped, rather than ending the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ended_in_order(), warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            command()
            _flush_output()
        return OK
    except BaseException as error:
        ending = ending_of(error)
        # What was said before the error comes first; a stream that fails now must not fail again at exit.
        _abandon_output_on_failure()
        if ending.message:
            say_traceback_on_request(error)
            say_on_stderr(ending.message)
        return ending.code


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM be an exception: by default the process is gone at once, and drafts of files stay behind.

    Where Python ignores exceptions, as while garbage is collected, an interrupt would be lost: it is sent again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one does not wait
        raise Terminated

    def send_again(ignored: Any) -> None:
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            report(ignored)
            return
        number = signal.SIGINT
        if isinstance(ignored.exc_value, Terminated):
            number = signal.SIGTERM
            signal.signal(number, stop)
        timers.append(threading.Timer(_SOON, _interrupt, (number,)))
        timers[-1].daemon = True
        timers[-1].start()

    timers: list[threading.Timer] = []
    before, report = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = report
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)  # None: not one of Python's


def _interrupt(number: signal.Signals) -> None:
    """Send the main thread a signal, even while it waits; Windows has no signals for threads."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        _thread.interrupt_main(number)


def leave(code: int) -> NoReturn:
    """End the process with this exit code, at once although a thread may still fit or compile."""
    unheeded = [one for one in threading.enumerate() if one.name.startswith(_UNHEEDED)]
    for one in unheeded:
        one.join(_SOON)  # it may just end
    if any(one.is_alive() for one in unheeded):
        # What such a thread works at is lost without harm, and nothing else could end it before it is done.
        _abandon_output_on_failure()
        _end_at_once(code)
    sys.exit(code)


def waited_for(work: Callable[[], Any]) -> Any:
    """Return what work returns, done in another thread: Ctrl-C ends the waiting, even while a program is compiled."""
    from concurrent.futures import ThreadPoolExecutor

    workers = ThreadPoolExecutor(1, thread_name_prefix=_UNHEEDED)
    try:
        return workers.submit(work).result()
    finally:
        workers.shutdown(wait=False)


def ending_of(error: BaseException) -> Ending:
    """Return how a command ends that raised this error.

    Examples
    --------
    >>> ending_of(ChoiceGPError("there is no file choices.csv"))
    Ending(code=2, message='error: there is no file choices.csv')
    """
    if isinstance(error, typer.Exit):
        return Ending(error.exit_code)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        # A command that keeps what is done says itself how to continue.
        return Ending(TERMINATED if isinstance(error, Terminated) else INTERRUPTED, str(error) or _STOPPED)
    if isinstance(error, BrokenPipeError):
        return Ending(BROKEN_PIPE)
    if hasattr(error, "format_message"):
        return Ending(FIXABLE, f"error: {_usage_problem(error)}")
    if isinstance(error, ImportError | OSError) and any(words in str(error) for words in _NO_ROOM):
        return Ending(FIXABLE, "error: there is not enough memory to load the libraries; raise its limit (ulimit -v)")
    if isinstance(error, ChoiceGPError | ImportError):
        return Ending(FIXABLE, f"error: {in_shell(str(error))}")
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # JAX has no type of its own for it
        return Ending(FIXABLE, "error: there is not enough memory for this; use fewer or smaller sets")
    if isinstance(error, OSError):
        name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return Ending(FIXABLE, f"error: {name}{error.strerror or error}")
    if not isinstance(error, Exception):
        raise error
    text = " ".join(str(error).split())
    problem = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Ending(INTERNAL, f"internal error: {problem}; please report it; run with {DEBUG}=1 for the traceback")


def say(text: object) -> None:
    """Print plain text on stdout; control characters in names and data are shown, not obeyed."""
    print(plain_text(str(text)))


def say_on_stderr(text: str) -> None:
    """Print plain text on stderr, if anyone is there to read it."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(plain_text(text), file=sys.stderr, flush=True)


def say_traceback_on_request(error: BaseException) -> None:
    """Print where an error came from if CHOICEGP_DEBUG is set."""
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        say_on_stderr("".join(traceback.format_exception(error)).rstrip())


def plain_text(text: str) -> str:
    r"""Escape what a terminal would obey, and shorten lines that nobody would read to their end.

    Examples
    --------
    >>> plain_text("\x1b[2J cleared")
    '\\x1b[2J cleared'
    """
    if not text.isprintable():
        text = "".join(
            letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
            for letter in text
        )
    if len(text) <= LONGEST_LINE:
        return text
    return "\n".join(map(_shortened, text.split("\n")))


def _shortened(line: str) -> str:
    # The end of a message says what to do, so it is the middle that goes.
    half = (LONGEST_LINE - 5) // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}"


def _usage_problem(error: Any) -> str:
    """Say in one line what is wrong with the options.

    Click's errors are known by their ``format_message``: which package they come from depends on Typer's
    version.
    """
    problem = " ".join(error.format_message().split()).rstrip(".")
    problem = problem.replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    return problem if context is None else f"{problem} (see {context.command_path} --help)"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning without the place in the code, which means nothing to who typed a command."""
    # The hint is for who has the data in Python; a command shows them itself.
    text = in_shell(str(message).removesuffix("; see data.skipped"))
    kind = "note" if isinstance(message, ReadingNote) else "warning"
    say_on_stderr(f"{kind}: " + " ".join(text.split()))


def in_shell(message: str) -> str:
    """Write the arguments that a message offers as options of the shell.

    Examples
    --------
    >>> in_shell("pass empty='none', or set_id=['respondent', 'task']")
    'pass --empty none, or --set-id respondent,task'
    """
    return _ARGUMENT.sub(
        _as_option, message.replace("chosen=None", "--no-choices").replace("object_id=None", "--no-object-id")
    )


def _as_option(found: re.Match[str]) -> str:
    option = _OPTIONS.get(found["name"], "--" + found["name"].replace("_", "-"))
    value: Any = ast.literal_eval(found["value"])
    if isinstance(value, list):
        value = ",".join(f'"{one}"' if "," in one else one for one in value)
    return f"{option} {shlex.quote(str(value))}"


def _flush_output() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _abandon_output_on_failure() -> None:
    """Flush stdout; when that fails, send the rest nowhere, or Python would complain of it at exit."""
    try:
        _flush_output()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
