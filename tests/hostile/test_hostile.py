"""Every hostile input ends in one clear line: no traceback, no half-written file, no long wait."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from choicegp.apps.cli import main
from choicegp.errors import ChoiceGPError

from .cases import HARMLESS, HOSTILE, Call, Command
from .doors import DOORS

COMMANDS = [case for case in [*HOSTILE, *DOORS] if isinstance(case, Command)]
CALLS = [case for case in HOSTILE if isinstance(case, Call)]
SECONDS = 10
IN_ITS_OWN_PROCESS = ("latin-1", "fit below a file", "unknown option", "100,000 defects")


def named(case: Command | Call) -> str:
    return case.name


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of everything in a folder; a billion bytes are not compared one by one."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def check_refusal(case: Command, code: int, out: str, err: str) -> None:
    first, *more = err.splitlines()
    assert first.startswith("error: "), err
    assert case.says in first
    assert all(line.startswith("  ") for line in more), "only a list of defects may follow the first line"
    assert len(more) <= 21
    assert max(map(len, [first, *more])) <= 1000
    assert "Traceback" not in err
    assert code == 2
    assert out == ""


@pytest.mark.parametrize("case", COMMANDS, ids=named)
def test_the_command_line_refuses(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case.prepare(tmp_path)
    before = files_in(tmp_path)
    start = time.perf_counter()
    with pytest.raises(SystemExit) as ended:
        main(case.arguments)
    assert time.perf_counter() - start < SECONDS
    check_refusal(case, ended.value.code, *capsys.readouterr())
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("case", [case for case in COMMANDS if case.name in IN_ITS_OWN_PROCESS], ids=named)
def test_a_process_refuses(case, tmp_path):
    case.prepare(tmp_path)
    before = files_in(tmp_path)
    command = [sys.executable, "-m", "choicegp.apps.cli", *case.arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    check_refusal(case, ended.returncode, ended.stdout, ended.stderr)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("case", CALLS, ids=named)
def test_a_call_refuses(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    with pytest.raises(ChoiceGPError) as raised:
        case.call()
    assert time.perf_counter() - start < SECONDS
    first = str(raised.value).splitlines()[0]
    assert case.says in first
    assert len(first) <= 1000
    assert {Path(path).name for path in files_in(tmp_path)} <= {"a"}


@pytest.mark.parametrize("case", HARMLESS, ids=named)
def test_the_command_line_takes(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case.prepare(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(case.arguments)
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    assert case.says in out
    assert err == "" or err.startswith(("warning: ", "note: "))


def test_the_table_is_long_and_its_names_differ():
    names = [case.name for case in COMMANDS]
    assert len(set(names)) == len(names) >= 40
    names = [case.name for case in CALLS]
    assert len(set(names)) == len(names) >= 40
    assert set(IN_ITS_OWN_PROCESS) <= {case.name for case in COMMANDS}
