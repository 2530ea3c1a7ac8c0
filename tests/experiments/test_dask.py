"""The same runs on a Dask cluster, one of whose workers is killed in the middle."""

import os
import signal
import threading
import time

import pytest
from distributed import LocalCluster

from choicegp.errors import ChoiceGPError
from choicegp.experiments import parallel_runs
from choicegp.experiments.parallel_runs import asked_runs, outstanding, recorded_runs
from choicegp.experiments.run_log import RunLog

MODULE = "toy_experiment"
SECONDS = 60


@pytest.fixture
def cluster(toy):
    """Start two workers, each a process of its own."""
    with LocalCluster(n_workers=2, processes=True, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


def begun(notes, seed):
    """Return the processes that began a run."""
    file = notes / f"ran-{seed}"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "the cluster did not do it"
        time.sleep(0.02)


def test_a_killed_worker_loses_and_repeats_no_finished_run(cluster, toy):
    (toy / "wait-2").touch()
    # If the cluster never comes to an end, let the test fail rather than wait.
    watch = threading.Timer(SECONDS, (toy / "wait-2").unlink, [True])
    watch.start()
    asked = asked_runs([{"seed": seed, "notes": str(toy)} for seed in range(6)])
    with RunLog(toy / "toy.jsonl") as log:
        records = recorded_runs(MODULE, asked, dask=cluster.scheduler_address)
        for _ in range(5):
            log.add(next(records))
        [victim] = begun(toy, 2)
        assert victim != os.getpid()
        wait_for(lambda: len(cluster.scheduler.tasks) == 1)  # what is done is forgotten, a moment later
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(begun(toy, 2)) == 2)
        (toy / "wait-2").unlink()
        for record in records:
            log.add(record)
        assert outstanding(asked, log) == []
    watch.cancel()
    assert len((toy / "toy.jsonl").read_text().splitlines()) == 6
    assert [len(begun(toy, seed)) for seed in range(6)] == [1, 1, 2, 1, 1, 1]
    assert len({pid for seed in range(6) for pid in begun(toy, seed)}) > 1


def test_a_cluster_without_workers_is_told(toy, monkeypatch):
    monkeypatch.setattr(parallel_runs, "CONNECTION_SECONDS", 0.5)
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as empty,
        pytest.raises(ChoiceGPError, match="has no workers: start at least one"),
    ):
        list(recorded_runs(MODULE, [{"seed": 0, "notes": str(toy)}], dask=empty.scheduler_address))


def test_where_no_scheduler_is_there_is_one_error(toy, monkeypatch):
    monkeypatch.setattr(parallel_runs, "CONNECTION_SECONDS", 0.5)
    with pytest.raises(ChoiceGPError, match=r"no Dask scheduler answers at 127\.0\.0\.1:9 within 0\.5 seconds"):
        list(recorded_runs(MODULE, [{"seed": 0, "notes": str(toy)}], dask="127.0.0.1:9"))
