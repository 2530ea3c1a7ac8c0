"""The command: what it refuses, what it prints, and a study that continues after its process was killed."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pandas as pd
import pytest

from choicegp.apps.server.serve import open_study
from choicegp.elicitation.store import Store
from choicegp.errors import StoreError


@pytest.fixture
def table(tmp_path) -> str:
    frame = pd.DataFrame({"name": [f"o{i}" for i in range(8)], "price_eur": range(8), "x": [0.5, 1] * 4})
    frame.to_csv(tmp_path / "objects.csv", index=False)
    return str(tmp_path / "objects.csv")


@pytest.fixture
def run(capsys):
    from choicegp.apps.cli import main

    def run_arguments(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return ended.value.code, capsys.readouterr().err

    return run_arguments


class TestRefusals:
    def test_addresses(self, run, table):
        assert "also say by which address, with --url" in run("serve", table, "--host", "0.0.0.0")[1]
        for url in ("study.example.org", "ftp://x.example", "https://x.example/a", "https://x.example/?a=1"):
            assert "--url must be an address" in run("serve", table, "--url", url)[1]

    def test_tables(self, run, table, tmp_path):
        code, err = run("serve", table, "--set-size", "6", "--study", str(tmp_path / "nowhere.toml"))
        assert (code, "cannot read" in err) == (2, True)
        pd.DataFrame({"name": ["a", "b"], "x": [1, 2]}).to_csv(tmp_path / "few.csv", index=False)
        assert "fewer than the 4 of a set" in run("serve", str(tmp_path / "few.csv"))[1]

    def test_a_port_that_is_taken(self, run, table, tmp_path):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            err = run("serve", table, "--port", port, "--db", str(tmp_path / "s.sqlite"))[1]
        assert "choose another one with --port" in err
        assert not (tmp_path / "s.sqlite").exists(), "the owner's link would be lost"


class TestStudy:
    def test_the_invitation_lasts(self, tmp_path, objects):
        with open_study(tmp_path / "s.sqlite", objects) as first, open_study(tmp_path / "s.sqlite", objects) as second:
            assert len(first.settings["invite"]) >= 32
            assert first.settings == second.settings
            assert first.owner_token is not None
            assert second.owner_token is None

    def test_other_objects_are_refused(self, tmp_path, objects):
        open_study(tmp_path / "s.sqlite", objects).close()
        with pytest.raises(StoreError, match="a study of other objects"):
            open_study(tmp_path / "s.sqlite", objects.iloc[1:])

    def test_a_study_of_another_program_is_refused(self, tmp_path, objects):
        Store.open(tmp_path / "s.sqlite", objects).close()
        with pytest.raises(StoreError, match="not made for the page"):
            open_study(tmp_path / "s.sqlite", objects)


def test_a_terminated_server_closes_what_it_opened(table, tmp_path, monkeypatch, capsys):
    import uvicorn

    from choicegp.apps.server import serve, worker

    done = []

    class Closing:
        def __init__(self, setup):
            done.append("worker")

        def close(self):
            done.append("closed")

    monkeypatch.setattr(worker, "Worker", Closing)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: signal.raise_signal(signal.SIGTERM))
    serve.serve(serve.Request(table, db=str(tmp_path / "s.sqlite"), port=0))
    assert done == ["worker", "closed"]
    assert "All answers are saved" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def started(table, folder, port):
    command = [
        sys.executable,
        "-m",
        "choicegp.apps.cli",
        "serve",
        table,
        "--db",
        str(folder / "s.sqlite"),
        "--port",
        port,
    ]
    (folder / "study.toml").write_text('design = "random"\nsets = 5')
    return subprocess.Popen(
        [*command, "--study", str(folder / "study.toml")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def lines_until(process, word):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError(process.stderr.read())


def test_a_killed_server_loses_nothing(table, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    process = started(table, tmp_path, port)
    printed = lines_until(process, "Stop with")
    join = re.search(r"Participants: (\S+)", printed)[1]
    assert "put it behind a web server with TLS" in printed
    assert re.search(r"Owner: +http://127.0.0.1:\d+/owner/enter/", printed)
    origin = {"Origin": f"http://127.0.0.1:{port}"}
    with httpx.Client(headers=origin, timeout=60, follow_redirects=True) as client:
        page = client.post(join, data={"language": "en"})
        key = re.search(r'name="key" value="([^"]*)"', page.text)[1]
        client.post(f"{page.url}/answer", data={"key": key, "chosen": "1"})
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        process = started(table, tmp_path, port)
        assert "the link that was printed when the study began" in lines_until(process, "Stop with")
        assert "Question 2 of 5" in client.get(page.url).text
        # What was on its way when the server died is sent again, and counts once.
        client.post(f"{page.url}/answer", data={"key": key, "chosen": "1"})
        assert "Question 2 of 5" in client.get(page.url).text
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, problems = process.communicate(timeout=30)
    assert "All answers are saved" in rest
    assert (process.returncode, problems) == (0, "")
    assert time.monotonic() - begun < 20
    with Store.open(tmp_path / "s.sqlite") as store:
        assert len(store.answers()) == 1
