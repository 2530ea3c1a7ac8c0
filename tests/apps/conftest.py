"""What the tests of the command line share."""

from collections.abc import Callable

import pytest

from choicegp.apps.cli import main

TABLE = "choice_id,alt_id,choice,price\n1,pen,1,3\n1,ink,0,5\n2,pen,1,3\n2,cap,1,4\n"


@pytest.fixture
def run(capsys) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command line in this process: (exit code, stdout, stderr)."""

    def run_arguments(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run_arguments


@pytest.fixture
def table(tmp_path, monkeypatch) -> str:
    """Return the name of a small good table in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choices.csv").write_text(TABLE)
    return "choices.csv"
