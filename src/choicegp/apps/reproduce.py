"""The commands that run the experiments of the paper and the test of honesty, continue them, and write results."""

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from choicegp.apps import terminal
from choicegp.apps.options import RunOptions
from choicegp.compute.progress import on_terminal, progress_bar
from choicegp.errors import ChoiceGPError
from choicegp.experiments import registry
from choicegp.experiments.experiment import ExperimentOptions

if TYPE_CHECKING:
    from choicegp.experiments.experiment import RunSettings
    from choicegp.experiments.run_log import RunLog, RunRecord

FOLDER = "experiments-out"
ALL_CORES = -1


class RunRequest(NamedTuple):
    """What was asked for: an experiment, a folder for its results, and where its runs are made."""

    name: str
    options: ExperimentOptions = ExperimentOptions()
    out: str = FOLDER
    data: str | None = None  # the folder of published tables
    jobs: int = ALL_CORES  # processes on this machine
    dask: str | None = None  # address of a scheduler

    @classmethod
    def of(cls, name: str, runs: RunOptions) -> "RunRequest":
        """Return the request that the options of a command make."""
        return cls(name, ExperimentOptions(runs.quick, runs.seed, runs.repetitions), runs.output, runs.data, runs.jobs)

    @property
    def folder(self) -> Path:
        """Where the results go; quick results have a folder of their own, so as not to be taken for others."""
        return Path(self.out, "quick") if self.options.quick else Path(self.out)

    @property
    def command(self) -> list[str]:
        """The command line that asks for this."""
        quick, seed, repetitions, *_ = self.options
        given = {
            "--seed": (seed, 0), "--repetitions": (repetitions, None), "--out": (self.out, FOLDER),
            "--data": (self.data, None), "--jobs": (self.jobs, ALL_CORES), "--dask": (self.dask, None),
        }  # fmt: skip
        words = [word for name, (value, default) in given.items() if value != default for word in (name, str(value))]
        command = [self.name] if self.name in registry.CHECKS else ["reproduce", self.name]
        return ["choicegp", *command, *(["--quick"] if quick else []), *words]


def list_experiments() -> None:
    """List the experiments."""
    width = max(map(len, registry.EXPERIMENTS))
    for name in registry.EXPERIMENTS:
        terminal.say(f"{name:{width}}  {registry.title(name)}")


def reproduce(request: RunRequest) -> None:
    """Make the runs of an experiment that are not done yet, and write its table, figures and page.

    A run that fails is recorded, and the others continue; at the end that is an error.
    """
    _check(request)
    from choicegp.experiments.parallel_runs import asked_runs
    from choicegp.experiments.run_log import RunLog
    from choicegp.files import made_folder

    folder = made_folder(request.folder)
    with RunLog(folder / f"{request.name}.jsonl") as log:
        experiment = registry.load(request.name)
        asked = asked_runs(experiment.runs(request.options))
        stopped: BaseException | None = None
        try:
            _make_runs(request, asked, log)
        except (KeyboardInterrupt, ChoiceGPError) as error:
            stopped = error
        records = [record for settings in asked if (record := log.record(settings)) is not None]
        if records:
            _write(request, experiment, len(asked), records)
    _end(stopped, records, len(asked), log.path)


def _check(request: RunRequest) -> None:
    """Refuse what cannot be done, before anything is made."""
    if not request.name:
        raise ChoiceGPError(f"the command needs the name of an experiment: {', '.join(registry.EXPERIMENTS)}")
    registry.module_name(request.name)
    if request.data is not None and not Path(request.data).is_dir():
        raise ChoiceGPError(f"--data: there is no folder {request.data}")
    if request.jobs < 1 and request.jobs != ALL_CORES:
        raise ChoiceGPError(f"--jobs is a number from 1, or {ALL_CORES} for all cores; got {request.jobs}")


def _make_runs(request: RunRequest, asked: "list[RunSettings]", log: "RunLog") -> None:
    from choicegp.experiments.parallel_runs import outstanding, recorded_runs

    todo = outstanding(asked, log)
    data = None if request.data is None else str(Path(request.data).absolute())
    records = recorded_runs(registry.module_name(request.name), todo, data, request.jobs, request.dask)
    with _progress(len(asked), len(asked) - len(todo)) as tell, contextlib.closing(records):
        for record in records:
            log.add(record)
            tell(record)


def _write(request: RunRequest, experiment: ModuleType, n_asked: int, records: "list[RunRecord]") -> None:
    from choicegp.apps.experiment_pages import write_pages

    page, *others = write_pages(request.folder, request.name, experiment, n_asked, records, request.command)
    n_done = sum(record["status"] == "done" for record in records)
    terminal.say(f"{n_done} of {n_asked} runs are done. Read {page}; beside it are:")
    for file in others:
        terminal.say(f"  {file}")


def _end(stopped: BaseException | None, records: "list[RunRecord]", n_asked: int, log: Path) -> None:
    """Raise what a command that is not all done ends with."""
    n_failed = sum(record["status"] != "done" for record in records)
    kept = f"{len(records) - n_failed} of {n_asked} runs are done and kept in {log}"
    if isinstance(stopped, KeyboardInterrupt):
        raise type(stopped)(f"interrupted: {kept}; the same command continues from there") from stopped
    if stopped is not None:
        raise ChoiceGPError(f"{stopped}; {kept}, the same command continues from there" if records else str(stopped))
    if n_failed:
        raise ChoiceGPError(f"{n_failed} of {n_asked} runs failed, see the page; the same command tries them again")


@contextlib.contextmanager
def _progress(n_asked: int, n_before: int) -> "Iterator[Callable[[RunRecord], None]]":
    """Yield a function that receives every record: a bar on a terminal, elsewhere a line for each run."""
    from choicegp.apps.experiment_pages import error_in_words, settings_in_words

    n_failed, n_ended = 0, n_before

    def line(record: "RunRecord") -> str:
        error = error_in_words(record)
        ending = f"failed with {error}" if error else "done"
        return f"{n_ended} of {n_asked}: {settings_in_words(record)}: {ending} ({record['seconds']:.1f} s)"

    watched = on_terminal()
    with progress_bar(watched, n_asked, n_before) as bar:

        def tell(record: "RunRecord") -> None:
            nonlocal n_ended, n_failed
            n_ended, n_failed = n_ended + 1, n_failed + (record["status"] != "done")
            if not watched:
                terminal.say_on_stderr(line(record))
            elif record["status"] != "done":
                bar.line(terminal.plain_text(line(record)))
            bar.show(f"{n_ended} of {n_asked} runs" + (f", {n_failed} failed" if n_failed else ""), n_ended)

        yield tell


_MEASURES = "choicegp.experiments.honesty_measures"
_DIGITS = 12  # of the digest of the sources


def check_honesty(request: RunRequest) -> None:
    """Make the runs that are not done yet with the present sources, and write the page, its table and its figure."""
    if importlib.util.find_spec("sklearn") is None:
        raise ChoiceGPError("the logistic model needs scikit-learn: pip install scikit-learn")
    tables = request.data is not None or bool(os.environ.get("CHOICEGP_DATA"))
    reproduce(request._replace(options=request.options._replace(tables=tables, code=_present_code())))


def _present_code() -> str:
    """Return a digest of the sources that runs depend on, so that figures of an earlier state are not reused."""
    from choicegp.compute.sources import digest_of_sources

    measures = importlib.import_module(_MEASURES)
    return (digest_of_sources([measures.__name__]) or "unknown")[:_DIGITS]
