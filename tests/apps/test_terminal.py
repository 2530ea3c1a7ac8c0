"""What is said when something goes wrong, and with which exit code."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import typer

from choicegp.apps import terminal
from choicegp.errors import ChoiceDataError, ChoiceGPError, Defect
from choicegp.files import replaced_when_complete


def raising(error):
    def command():
        print("before")
        raise error

    return command


class Unprintable(Exception):
    def __str__(self):
        return "two\nlines"


STOPPED = "interrupted: no file was left incomplete; the same command begins again\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ChoiceGPError("there is no file x.csv"), 2, "error: there is no file x.csv\n"),
        (ChoiceDataError([Defect("k", "bad", 3)]), 2, "error: row 3: bad\n"),
        (PermissionError(13, "Permission denied", "x.csv"), 2, "error: x.csv: Permission denied\n"),
        (OSError("strange"), 2, "error: strange\n"),
        (ImportError("pymoo is missing: pip install it"), 2, "error: pymoo is missing: pip install it\n"),
        (KeyboardInterrupt(), 130, STOPPED),
        (KeyboardInterrupt("interrupted: 2 of 4 runs are done"), 130, "interrupted: 2 of 4 runs are done\n"),
        (terminal.Terminated(), 143, STOPPED),
        (typer.Abort(), 130, STOPPED),
        (typer.Exit(5), 5, ""),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
        (typer.BadParameter("must be a colour"), 2, "error: Invalid value: must be a colour\n"),
    ],
)
def test_endings(error, code, said, capsys):
    assert terminal.run(raising(error)) == code
    assert capsys.readouterr() == ("before\n", said)


def test_sigterm_removes_drafts_and_leaves_no_handler(tmp_path, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def command():
        with replaced_when_complete(tmp_path / "model.cgp") as draft:
            draft.write(b"half")
            signal.raise_signal(signal.SIGTERM)

    assert terminal.run(command) == 143
    assert capsys.readouterr() == ("", STOPPED)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def heeds_interrupts():
    """Let Ctrl-C be heard: a shell that starts the tests in the background makes them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_python_ignores_comes_again(number, code, capsys, heeds_interrupts):
    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def command() -> None:
        Collected()
        time.sleep(5.0)

    begun, report = time.monotonic(), sys.unraisablehook
    assert terminal.run(command) == code
    assert time.monotonic() - begun < 4.0
    assert sys.unraisablehook is report
    assert capsys.readouterr().err == STOPPED


def test_an_interrupt_that_came_too_late_ends_with_the_command(monkeypatch, heeds_interrupts):
    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(terminal, "_SOON", 0.2)
    assert terminal.run(Collected) == 0
    time.sleep(0.4)  # an interrupt would be raised here
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer) and not one.daemon]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_comes_again_where_threads_have_no_signals(number, code, capsys, monkeypatch, heeds_interrupts):
    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def command() -> None:
        Collected()
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            time.sleep(0.01)

    monkeypatch.delattr(signal, "pthread_kill")
    assert terminal.run(command) == code
    assert capsys.readouterr().err == STOPPED


@pytest.mark.parametrize("code", [0, 2, 130])
def test_a_command_that_has_ended_waits_for_no_fit(code):
    works = "import threading, time; threading.Thread(target=time.sleep, args=(30,), name='choicegp-refit').start()\n"
    command = f"{works}print('said'); from choicegp.apps import terminal; terminal.leave({code})"
    begun = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "said\n", "")
    assert time.monotonic() - begun < 20.0


def test_lack_of_memory_is_said(capsys):
    assert terminal.run(raising(MemoryError())) == 2
    assert capsys.readouterr().err.startswith("error: there is not enough memory")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no address space")
def test_a_process_of_512_mib_says_so(tmp_path):
    """The libraries themselves have no room: what the system's loader says means nothing to who typed a command."""
    (tmp_path / "choices.csv").write_text("choice_id,alt_id,choice,price\n1,pen,1,3\n1,ink,0,5\n")
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
    command = limited + "from choicegp.apps.cli import main; main(['fit', 'choices.csv', '-o', 'model.cgp'])"
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, env=one_thread, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert re.search("^error: .*(memory|address space)", ended.stderr.splitlines()[-1])
    assert {file.name for file in tmp_path.iterdir()} == {"choices.csv"}


@pytest.mark.parametrize("error", [KeyError("x"), Unprintable(), RecursionError("deep"), AssertionError()])
def test_defects_of_ours_ask_to_be_reported(error, capsys):
    assert terminal.run(raising(error)) == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"internal error: {type(error).__name__}(: \S.*\S)?; please", line)
    assert line.endswith("; please report it; run with CHOICEGP_DEBUG=1 for the traceback")


@pytest.mark.parametrize(("value", "traced"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_traceback_is_there_on_request(value, traced, capsys, monkeypatch):
    monkeypatch.setenv("CHOICEGP_DEBUG", value)
    terminal.run(raising(ZeroDivisionError("oops")))
    err = capsys.readouterr().err
    assert ("Traceback (most recent call last)" in err) == traced
    assert err.splitlines()[-1].startswith("internal error: ZeroDivisionError: oops")


def test_other_ways_to_end_are_left_alone():
    with pytest.raises(GeneratorExit):
        terminal.run(raising(GeneratorExit()))
    with pytest.raises(SystemExit):
        terminal.run(raising(SystemExit(3)))


def test_warnings_are_one_plain_line(capsys):
    shown_before = warnings.showwarning

    def command():
        for _ in range(2):
            warnings.warn("two sets\nwere left out", UserWarning, stacklevel=1)

    assert terminal.run(command) == 0
    assert capsys.readouterr().err == "warning: two sets were left out\n" * 2
    assert warnings.showwarning is shown_before


def test_stderr_may_be_closed(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr", None)
    assert terminal.run(raising(ChoiceGPError("nobody reads this"))) == 2
    assert capsys.readouterr().out == "before\n"


def test_stdout_may_be_closed(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", None)
    assert terminal.run(lambda: terminal.say("nobody reads this")) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("2 sets\nof 3", "2 sets\nof 3"),
        ("größe 筆", "größe 筆"),
        ("a\tb\rc\x07", r"a\tb\rc\x07"),
        ("\x9b31m\u202e", r"\x9b31m\u202e"),
        ("caf\udce9.csv", r"caf\udce9.csv"),
    ],
)
def test_text_for_a_terminal(text, plain):
    assert terminal.plain_text(text) == plain


def test_long_lines_lose_their_middle():
    start, long, end = terminal.plain_text(f"first\n{'a' * 5000} end\nlast").split("\n")
    assert (start, end) == ("first", "last")
    assert len(long) <= terminal.LONGEST_LINE
    assert long.startswith("aaaa")
    assert " ... " in long
    assert long.endswith(" end")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("pass empty='none'; or on_error='skip'", "pass --empty none; or --on-error skip"),
        ("pass numbers=['price', 'list price']", "pass --number 'price,list price'"),
        ("pass features=['width, cm', 'price']", "pass --features '\"width, cm\",price'"),
        ("did you mean chosen='Was it?'", "did you mean --chosen 'Was it?'"),
        ("at_most=1 asks", "--at-most 1 asks"),
        ("pass chosen=None if there are no choices", "pass --no-choices if there are no choices"),
        ("pass object_id=None if the objects have no ids", "pass --no-object-id if the objects have no ids"),
        ("for instance to_long(chosen='kept')", "for instance to_long(chosen='kept')"),
        ("by='id' for ids", "by='id' for ids"),
    ],
)
def test_arguments_are_shown_as_options(message, shown):
    assert terminal.in_shell(message) == shown
