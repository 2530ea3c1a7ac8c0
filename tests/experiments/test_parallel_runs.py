"""Runs in parallel: each once, whatever becomes of the others or of the processes that make them."""

import contextlib
import os
import sys
from types import SimpleNamespace

import pytest

from choicegp.errors import ChoiceGPError
from choicegp.experiments import parallel_runs
from choicegp.experiments.parallel_runs import asked_runs, outstanding, recorded_runs
from choicegp.experiments.run_log import RunLog

MODULE = "toy_experiment"


def runs(notes, n=4):
    return asked_runs([{"seed": seed, "notes": str(notes)} for seed in range(n)])


def seeds(records, status="done"):
    return [record["settings"]["seed"] for record in records if record["status"] == status]


def times_run(notes, n=4):
    """Return how often each run was begun."""
    files = [notes / f"ran-{seed}" for seed in range(n)]
    return [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]


def workers(notes):
    return {int(line) for file in notes.glob("ran-*") for line in file.read_text().splitlines()}


def test_what_is_asked_is_plain_and_each_once():
    asked = [{"seed": 0, "sizes": (1, 2)}, {"seed": 1}, {"sizes": (1, 2), "seed": 0}]
    assert asked_runs(asked) == [{"seed": 0, "sizes": [1, 2]}, {"seed": 1}]


def test_one_process_makes_the_runs_in_their_order(toy):
    assert seeds(recorded_runs(MODULE, runs(toy), jobs=1)) == [0, 1, 2, 3]
    assert workers(toy) == {os.getpid()}


def test_nothing_to_do_needs_no_workers():
    assert list(recorded_runs(MODULE, [], dask="tcp://nowhere:1")) == []


def test_data_reach_the_run(toy):
    [record] = recorded_runs(MODULE, runs(toy, 1), "tables", jobs=1)
    assert record["values"]["data"] == "tables"


def test_a_failure_does_not_stop_the_others_and_is_tried_again(toy):
    (toy / "fail-1").touch()
    asked = runs(toy)
    with RunLog(toy / "toy.jsonl") as log:
        for record in recorded_runs(MODULE, asked, jobs=1):
            log.add(record)
        assert seeds(log.records.values()) == [0, 2, 3]
        assert outstanding(asked, log) == [asked[1]]
        (toy / "fail-1").unlink()
        for record in recorded_runs(MODULE, outstanding(asked, log), jobs=1):
            log.add(record)
        assert outstanding(asked, log) == []
    assert times_run(toy) == [1, 2, 1, 1]


def test_closing_ends_the_work(toy):
    with contextlib.closing(recorded_runs(MODULE, runs(toy), jobs=1)) as records:
        next(records)
    assert times_run(toy) == [1, 0, 0, 0]


def test_processes_side_by_side_and_what_is_done_first_comes_first(toy):
    (toy / "wait-0").touch()
    records = recorded_runs(MODULE, runs(toy), jobs=2)
    assert sorted(seeds(next(records) for _ in range(3))) == [1, 2, 3]
    (toy / "wait-0").unlink()
    assert seeds(records) == [0]
    assert times_run(toy) == [1, 1, 1, 1]
    assert os.getpid() not in workers(toy)


def test_a_worker_that_is_killed_is_told_and_what_came_before_is_there(toy):
    for note in ("wait-3", "kill-3"):
        (toy / note).touch()
    records = recorded_runs(MODULE, runs(toy), jobs=2)
    assert sorted(seeds(next(records) for _ in range(3))) == [0, 1, 2]
    (toy / "wait-3").unlink()
    with pytest.raises(ChoiceGPError, match="a worker process ended suddenly"):
        next(records)
    assert times_run(toy) == [1, 1, 1, 1]


class TestDask:
    """With real processes in test_dask.py."""

    def test_without_dask_the_extra_is_named(self, toy, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(ChoiceGPError, match=r"pip install 'choicegp\[dask\]'"):
            list(recorded_runs(MODULE, runs(toy), dask="tcp://127.0.0.1:8786"))

    @pytest.mark.parametrize(
        "address", ["", "localhost", "tcp://localhost", "tcp://localhost:http", "ftp://localhost:1"]
    )
    def test_what_is_no_address_is_refused(self, toy, address):
        with pytest.raises(ChoiceGPError, match="is not the address of a scheduler: write tcp://HOST:PORT"):
            list(recorded_runs(MODULE, runs(toy), dask=address))

    def test_what_the_cluster_could_not_do_is_a_failure(self):
        future = SimpleNamespace(status="error", exception=lambda: RuntimeError("4 workers died"))
        record = parallel_runs._result(future, {"seed": 0}, "tcp://there:1")
        assert (record["status"], record["settings"]) == ("failed", {"seed": 0})
        assert record["error"]["message"] == "4 workers died"

    def test_a_lost_scheduler_is_told(self):
        def result():
            raise RuntimeError("cancelled")

        future = SimpleNamespace(status="cancelled", result=result)
        with pytest.raises(ChoiceGPError, match="connection to the Dask scheduler at tcp://there:1 was lost"):
            parallel_runs._result(future, {"seed": 0}, "tcp://there:1")
