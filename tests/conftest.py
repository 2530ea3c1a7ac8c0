"""What all tests share: JAX's settings, quick compilation, the data folder, and no silent skips where none may be."""

import gc
import importlib
import itertools
import os
import sys
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path

import pytest

# JAX and Matplotlib read these when they are first imported. A value given from outside wins.
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests run side by side: threads of linear algebra that wait for each other would take most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Nor does it help then that XLA splits every program into parts and compiles them in parallel, which costs more in all.
_FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
# Up to jaxlib 0.11 the fusion emitters treble the compiling of small programs; 0.12 ends a process that names them.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 12):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))
# Compiled programs are shared by all workers, and kept for the next run of the same code.
os.environ.setdefault("CHOICEGP_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "programs"))

# JAX makes a great many small objects that live long: looking through them as often as usual took a tenth of a file of
# fits (3.2 of 30.5 s), and now half of that.
gc.set_threshold(200_000, 20, 100)

TESTS = Path(__file__).parent
MOST_MAPS = 20_000
_FROZEN_EVERY = 8  # modules: to collect before costs a fiftieth of all tests if it is done after each
_NUMBER_OF_MODULE = itertools.count(1)
_NUMBER = itertools.count()  # of databases

# Shapes in signatures are checked whenever a test calls a function or JAX traces it. NumPy comes with jaxtyping, and
# reads the settings above; what is checked must not have been imported yet.
sys.path.append(str(TESTS / "typecheck"))
importlib.import_module("jaxtyping").install_import_hook("choicegp.model", "shape_checks.checked")

# Here programs are many and the data small: they are compiled with few optimisations, elsewhere as a user's are.
QUICKLY_COMPILED = (
    "compute/", "datasets/", "elicitation/", "estimators/", "experiments/", "fitting/", "hostile/", "inference/",
    "model/", "plotting/", "prediction/", "reporting/", "selection/", "storage/", "apps/server/",
    "apps/test_cli.py", "apps/test_folders.py", "apps/test_models.py", "apps/test_selection_plot.py",
    "apps/test_showing.py", "test_readme.py",
)  # fmt: skip
LONG_RUNNING = ("selection/test_cavity.py",)  # but these run longer than they compile: 24 instead of 27 s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    path = item.path.relative_to(TESTS).as_posix()
    if not path.startswith(QUICKLY_COMPILED) or path.startswith(LONG_RUNNING):
        return (yield)
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session", autouse=True)
def no_sudden_end() -> Generator[None]:
    """Let no command line that a test runs here end this process, as it may while a thread of another test fits."""
    from choicegp.apps import terminal

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "_end_at_once", sys.exit)
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of public data tables that CHOICEGP_DATA names."""
    named = os.environ.get("CHOICEGP_DATA")
    if not named:
        pytest.skip("needs the data tables: set CHOICEGP_DATA to their folder")
    folder = Path(named)
    assert folder.is_dir(), f"CHOICEGP_DATA names {named!r}, which is not a folder"
    return folder


@pytest.fixture(scope="module", autouse=True)
def room_for_programs() -> Generator[None]:
    """Forget the compiled programs of a process that has many: they are loaded again where they are needed.

    Linux lets a process map 65,530 parts of memory, of which each program takes about ten: beyond, it crashes.
    What modules leave behind lives long, and Python's collector does not look through it again until then.
    """
    yield
    maps, started = Path("/proc/self/maps"), sys.modules.get("choicegp.compute.programs")
    if started is None or not maps.exists() or maps.read_bytes().count(b"\n") < MOST_MAPS:
        if next(_NUMBER_OF_MODULE) % _FROZEN_EVERY == 0:
            gc.collect()  # what is frozen is never looked at again, be it garbage
            gc.freeze()
        return
    gc.unfreeze()
    for module in [own for name, own in sys.modules.items() if name.startswith("choicegp.")]:
        for value in vars(module).values():
            if isinstance(value, started.Program):
                value._executables.clear()
    sys.modules["jax"].clear_caches()
    gc.collect()


@pytest.fixture(scope="module")
def short_chains() -> Generator[None]:
    """Let default fits make their intervals from a few draws: the same code runs, and nothing has converged."""
    from choicegp.inference import intervals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "n_steps", lambda inference: (intervals.BLOCK, intervals.BLOCK // 4))
        yield


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Path:
    """Register the experiment "toy", and return the folder of notes by which it is watched and told what to do."""
    from choicegp.experiments import registry

    notes = tmp_path / "notes"
    notes.mkdir()
    # Workers are other processes: they find the module by their path, and the folder in the settings of a run.
    monkeypatch.syspath_prepend(TESTS / "toys")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS / "toys"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TOY_NOTES", str(notes))
    monkeypatch.setitem(registry.EXPERIMENTS, "toy", "toy_experiment")
    return notes


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure under CHOICEGP_REQUIRE_ALL=1; an expected failure is not a skip."""
    if os.environ.get("CHOICEGP_REQUIRE_ALL") == "1" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        # The name is part of the text because pytest-xdist drops collection errors that read the same.
        report.longrepr = f"CHOICEGP_REQUIRE_ALL=1 allows no skip: {report.nodeid}: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _forbid_skip(report)
    return report


@pytest.fixture(scope="session")
def postgres_server() -> Generator[str]:
    """Run a PostgreSQL server and yield its URL."""
    from .elicitation.servers import binaries, postgres

    if binaries() is None:
        pytest.skip("needs PostgreSQL's initdb and postgres: install the package postgresql")
    with postgres() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server) -> str:
    """Return the URL of an empty database."""
    from .elicitation.servers import new_database

    return new_database(postgres_server, f"study{next(_NUMBER)}")
