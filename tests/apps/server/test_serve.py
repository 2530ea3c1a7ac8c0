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

from choicegp.apps.server.results import prepared_of
from choicegp.apps.server.serve import open_study
from choicegp.elicitation.queue import Queue
from choicegp.elicitation.store import Store
from choicegp.errors import StoreError, Unavailable


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


@pytest.mark.parametrize("missing", ["fastapi", "jinja2", "uvicorn"])
def test_a_missing_extra_is_named(missing, table, tmp_path, monkeypatch):
    from choicegp.apps.server import serve

    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=re.escape("pip install 'choicegp[page]'")):
        serve.serve(serve.ServeRequest(table, db=str(tmp_path / "s.sqlite"), port=0))
    assert not (tmp_path / "s.sqlite").exists()


class TestRefusals:
    def test_addresses(self, run, table):
        assert "also say by which address, with --url" in run("serve", table, "--host", "0.0.0.0")[1]
        for url in (
            "study.example.org",
            "ftp://x.example",
            "https://x.example/a",
            "https://x.example/?a=1",
            "https://x:y",
        ):
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

    def test_why_a_study_cannot_be_created_is_said(self, tmp_path, objects):
        with pytest.raises(StoreError, match="there is no folder"):
            open_study(tmp_path / "no" / "s.sqlite", objects)

    def test_a_server_that_does_not_answer_is_tried_once(self, monkeypatch, objects):
        tried = []

        def unavailable(*given):
            tried.append(given)
            raise Unavailable("nobody answers")

        monkeypatch.setattr(Store, "open", unavailable)
        with pytest.raises(Unavailable, match="nobody answers"):
            open_study("postgresql://nobody@127.0.0.1/x", objects)
        assert len(tried) == 1

    def test_a_study_of_another_program_is_refused(self, tmp_path, objects):
        Store.open(tmp_path / "s.sqlite", objects).close()
        with pytest.raises(StoreError, match="not made for the page"):
            open_study(tmp_path / "s.sqlite", objects)


def test_a_terminated_server_closes_what_it_opened(table, tmp_path, monkeypatch, capsys):
    import uvicorn

    from choicegp.apps.server import crew, serve

    done = []

    class Closing:
        def __init__(self, place, n):
            done.append(n)

        def close(self):
            done.append("closed")

    monkeypatch.setattr(crew, "Crew", Closing)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: signal.raise_signal(signal.SIGTERM))
    serve.serve(serve.ServeRequest(table, db=str(tmp_path / "s.sqlite"), port=0))
    assert "All answers are saved" in capsys.readouterr().out
    monkeypatch.setattr(Closing, "join", lambda self: signal.raise_signal(signal.SIGTERM), raising=False)
    serve.work(str(tmp_path / "s.sqlite"), 2)
    assert done == [1, "closed", 2, "closed"]
    assert "2 workers for the study in" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def running(*arguments):
    """Run a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "choicegp.apps.cli", *map(str, arguments)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def started(table, folder, port, db=None):
    """Start a server without workers of its own."""
    (folder / "study.toml").write_text('design = "random"\nsets = 5')
    where = ("--db", db or folder / "s.sqlite", "--port", port, "--study", folder / "study.toml")
    return running("serve", table, *where, "--workers", 0)


def lines_until(process, word):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError(process.stderr.read())


def ended(process, by=signal.SIGINT):
    process.send_signal(by)
    rest, problems = process.communicate(timeout=180)
    assert (process.returncode, problems) == (0, "")
    return rest


def killed(process):
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()


class Browser(httpx.Client):
    """A participant's browser, which may come to another server with the same session."""

    def __init__(self, port):
        super().__init__(timeout=60, follow_redirects=True)
        self.port = port

    def post(self, path, **data):
        base = f"http://127.0.0.1:{self.port}"
        return super().post(base + path, data=data, headers={"Origin": base})

    def see(self, path):
        return self.get(f"http://127.0.0.1:{self.port}{path}").text

    def key(self, path):
        return re.search(r'name="key" value="([^"]*)"', self.see(path))[1]


def test_a_killed_server_loses_nothing(table, tmp_path):
    port = free_port()
    process = started(table, tmp_path, port)
    printed = lines_until(process, "Stop with")
    join = re.search(r"Participants: http://[^/]+(\S+)", printed)[1]
    assert "put it behind a web server with TLS" in printed
    assert "start some with choicegp work" in printed
    assert re.search(r"Owner: +http://127.0.0.1:\d+/owner/enter/", printed)
    assert (tmp_path / "s.sqlite").stat().st_mode & 0o777 == 0o600
    with Browser(port) as anna:
        own = anna.post(join, language="en").url.path
        key = anna.key(own)
        anna.post(f"{own}/answer", key=key, chosen="1")
        killed(process)
        process = started(table, tmp_path, port)
        assert "the link that was printed when the study began" in lines_until(process, "Stop with")
        assert "Question 2 of 5" in anna.see(own)
        # What was on its way when the server died is sent again, and counts once.
        anna.post(f"{own}/answer", key=key, chosen="1")
        assert "Question 2 of 5" in anna.see(own)
    assert "All answers are saved" in ended(process)
    with Store.open(tmp_path / "s.sqlite") as store:
        assert len(store.answers()) == 1


def test_two_servers_and_two_workers_over_one_database(table, tmp_path, postgres_url):
    """People go from one server to the other, a server and a worker are killed, and the others do their work."""
    ports = [free_port(), free_port()]
    servers = [started(table, tmp_path, port, postgres_url) for port in ports]
    links = {re.search(r"/join/(\S+)", lines_until(one, "Stop with"))[1] for one in servers}
    assert len(links) == 1
    join = f"/join/{links.pop()}"
    workers = [running("work", "--db", postgres_url) for _ in range(2)]
    for one in workers:
        lines_until(one, "Stop with")
    with Store.open(postgres_url) as store, Browser(ports[0]) as anna:
        queue = Queue(store)
        form = "a-form-that-is-sent-to-both-servers"
        first = anna.post(join, language="en", form=form).url.path
        anna.port = ports[1]
        own = anna.post(join, language="en", form=form).url.path
        assert (own, len(store.participants())) == (first, 1)
        for n in range(3):
            anna.port = ports[n % 2]
            anna.post(f"{own}/answer", key=anna.key(own), chosen="1")
        soon(lambda: queue.result("next", 1))
        assert anna.key(own)
        killed(workers.pop(0))
        killed(servers.pop(0))
        anna.port = ports[1]
        anna.post(f"{own}/answer", key=anna.key(own), chosen="1")
        soon(lambda: (found := queue.result("next", 1)) is not None and found.version == queue.version())
        designed = prepared_of(queue.result("next", 1).content)
        assert designed.n_answers == 4
        assert len(store.answers()) == 4
    for process in servers:
        ended(process)
    for process in workers:
        ended(process, signal.SIGTERM)  # a shell that starts in the background lets its children ignore Ctrl-C


def soon(found):
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)
