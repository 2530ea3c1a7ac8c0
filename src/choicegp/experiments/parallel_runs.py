"""Runs of an experiment in parallel: on the cores of this machine, or on a Dask cluster.

Either way `recorded_run` of `run_log` does the work, and records come as runs end, in any order.
Only the process that asked for them keeps them, so that a worker may end at any time.
"""

import contextlib
import json
import re
import warnings
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from choicegp.errors import ChoiceGPError
from choicegp.experiments.experiment import RunSettings
from choicegp.experiments.run_log import RunLog, RunRecord, failed_record, recorded_run, run_key

if TYPE_CHECKING:
    from distributed import Client

CONNECTION_SECONDS = 10
_MOST_GROWTH = 3_000_000_000  # bytes by which a process may grow
_ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^/\s]+:\d+")


def asked_runs(runs: Sequence[RunSettings]) -> list[RunSettings]:
    """Return an experiment's settings as a run log keeps them, each once: lists for tuples."""
    return [
        json.loads(json.dumps(settings)) for settings in {run_key(settings): settings for settings in runs}.values()
    ]


def outstanding(asked: Sequence[RunSettings], log: RunLog) -> list[RunSettings]:
    """Return the runs that are not done: those never made, and those that failed."""
    records = [(settings, log.record(settings)) for settings in asked]
    return [settings for settings, record in records if record is None or record["status"] != "done"]


def recorded_runs(
    module: str, todo: Sequence[RunSettings], data: str | None = None, jobs: int = -1, dask: str | None = None
) -> Generator[RunRecord, None, None]:
    """Make runs and yield their records as they come; closing the iterator ends the runs that are under way.

    Workers import the experiment's ``module``; ``data`` is the folder of published tables, by default the one that a
    worker's CHOICEGP_DATA names. The runs are made by ``jobs`` processes on this machine (-1: one on each core; 1: in
    this process), or by the workers of the Dask scheduler at the address ``dask``.
    """
    if not todo:
        return
    runs = _on_this_machine(module, todo, data, jobs) if dask is None else _on_dask(module, todo, data, dask)
    with contextlib.closing(runs) as records:
        yield from records


def _on_this_machine(
    module: str, todo: Sequence[RunSettings], data: str | None, jobs: int
) -> Generator[RunRecord, None, None]:
    from joblib import Parallel, delayed, effective_n_jobs

    # Each process gets its share of the cores for linear algebra: joblib sees to that.
    n_jobs = min(effective_n_jobs(jobs), len(todo))
    parallel = Parallel(n_jobs, backend="loky", return_as="generator_unordered", batch_size=1)
    try:
        with warnings.catch_warnings():
            # A process that grew too large is replaced between two runs: nothing is lost.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
            # What ends the runs early is said once, by whoever ends them.
            warnings.filterwarnings("ignore", r"\d+ tasks? which", UserWarning)
            yield from parallel(delayed(_run_in_worker)(module, settings, data) for settings in todo)
    except Exception as error:  # not of a run: those are recorded
        raise ChoiceGPError(
            f"a worker process ended suddenly ({type(error).__name__}), perhaps for lack of memory: use fewer --jobs"
        ) from error


def _run_in_worker(module: str, settings: RunSettings, data: str | None) -> RunRecord:
    """Make a run in a process that keeps its compiled programs.

    They let it grow, which loky takes for a leak: beyond 0.3 GB it would replace the process, every minute or so, and
    the next one would begin with its imports.
    """
    with contextlib.suppress(ImportError):
        from joblib.externals.loky import process_executor

        process_executor._MAX_MEMORY_LEAK_SIZE = _MOST_GROWTH
    return recorded_run(module, settings, data)


def _on_dask(
    module: str, todo: Sequence[RunSettings], data: str | None, address: str
) -> Generator[RunRecord, None, None]:
    """Hand all runs to a cluster at once.

    Dask's own futures, not joblib's backend for Dask: that one waits for ever when a task has ended its workers several
    times (joblib 1.6), where Dask's futures report it.
    """
    with contextlib.closing(_connected(address)) as client:
        from distributed import as_completed

        futures = {client.submit(recorded_run, module, settings, data, pure=False): settings for settings in todo}
        try:
            for future in as_completed(futures, loop=client.loop):
                record = _result(future, futures.pop(future), address)
                # Or the cluster would keep the result, and make the run again if it lost its worker.
                future.release()
                yield record
        finally:
            client.cancel(list(futures))


def _result(future: Any, settings: RunSettings, address: str) -> RunRecord:
    if future.status == "error":
        # The cluster's doing: the run ended its worker several times, or the worker could not begin it.
        return failed_record(settings, future.exception())
    try:
        return future.result()
    except Exception as error:  # cancelled: not by us, who would not ask any more
        raise ChoiceGPError(f"the connection to the Dask scheduler at {address} was lost") from error


def _connected(address: str) -> "Client":
    if not _ADDRESS.fullmatch(address):
        raise ChoiceGPError(f"--dask: {address!r} is not the address of a scheduler: write tcp://HOST:PORT")
    try:
        from distributed import Client
    except ImportError:
        raise ChoiceGPError("--dask needs Dask: pip install 'choicegp[dask]'") from None
    try:
        client = Client(address, timeout=CONNECTION_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ChoiceGPError(f"no Dask scheduler answers at {address} within {CONNECTION_SECONDS} seconds") from error
    try:
        client.wait_for_workers(1, timeout=CONNECTION_SECONDS)
    except TimeoutError:
        client.close()
        raise ChoiceGPError(f"the Dask scheduler at {address} has no workers: start at least one") from None
    return client
