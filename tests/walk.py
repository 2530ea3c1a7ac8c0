"""Trace a real run of the command line: the modules of choicegp in the order of their first visit.

    python tests/walk.py fit choices.csv -o model.cgp
    python tests/walk.py predict model.cgp sets.csv -o predictions.csv
    python tests/walk.py fit        # simulated choices
    python tests/walk.py predict    # ... and a model of them

A visit is a call of a function while the command runs; what runs while a module is imported does not count. The walk
ends when the file named by -o is complete. Programs that are kept between processes would hide the numerical core:
nothing is kept, unless `--cached` is the first argument.
"""

import contextlib
import inspect
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType

import choicegp

PACKAGE = Path(choicegp.__file__).parent
INSIDE = f"{PACKAGE}{os.sep}"
SMALL = {"n_objects": 20, "n_sets": 15, "random_state": 0}


class Walk:
    """The files of the package that are visited until `output` is complete, in order."""

    def __init__(self, output: Path | None):
        self.output = output
        self.before = self._version()
        self.visited: dict[str, None] = {}

    def _version(self) -> tuple[int, int] | None:
        """Tell one version of the output from the next: it takes its name only when it is complete."""
        try:
            state = os.stat(self.output) if self.output else None
        except FileNotFoundError:
            return None
        return state and (state.st_ino, state.st_mtime_ns)

    def _trace(self, frame: FrameType, event: str, _: object) -> None:
        # It returns nothing: the lines of a function are not looked at, only its call.
        file = frame.f_code.co_filename
        if event != "call" or file in self.visited or not file.startswith(INSIDE):
            return
        # The bodies of modules and classes are no functions.
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED and not _in_import(frame) and self._version() == self.before:
            self.visited[file] = None

    @contextlib.contextmanager
    def traced(self) -> Iterator[None]:
        """Watch the calls of this thread, and of threads that it starts."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # typeshed forgets None

    @property
    def files(self) -> list[Path]:
        """The visited files, relative to the package."""
        return [Path(file).relative_to(PACKAGE) for file in self.visited]

    def __str__(self) -> str:
        folders = [file.parent for file in self.files]
        changes = sum(here != there for here, there in pairwise(folders))
        counts = f"{len(folders)} files, {len(set(folders))} folders, {changes} changes of folder"
        return "\n".join([*(file.as_posix() for file in self.files), counts])


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(INSIDE):
            return True
        frame = frame.f_back
    return False


def output_of(arguments: Sequence[str]) -> Path | None:
    """Return the file that a command is asked to write."""
    for word, following in pairwise([*arguments, ""]):
        if word in ("-o", "--output"):
            return Path(following)
    return None


def with_files(arguments: list[str], folder: Path) -> list[str]:
    """Return a bare `fit` or `predict` with simulated choices to work on; other commands stay as they are."""
    if arguments not in (["fit"], ["predict"]):
        return arguments
    table, model = str(folder / "choices.csv"), str(folder / "model.cgp")
    choicegp.datasets.alice_choices(**SMALL).data.write(table)
    if arguments == ["fit"]:
        return ["fit", table, "-o", model]
    # In a process of its own, lest what it compiles hide the core from the walk.
    subprocess.run(
        [sys.executable, "-m", "choicegp.apps.cli", "fit", table, "-o", model], check=True, stdout=sys.stderr
    )
    return ["predict", model, table, "-o", str(folder / "predictions.csv")]


def main(arguments: list[str]) -> int:
    """Run a command, print its walk on stdout and return its exit code; its own words go to stderr."""
    if arguments[:1] == ["--cached"]:
        arguments = arguments[1:]
    else:
        os.environ["CHOICEGP_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as folder:
        arguments = with_files(arguments, Path(folder))
        walk = Walk(output_of(arguments))
        from choicegp.apps.cli import main as command
        from choicegp.fitting import fit
        from choicegp.inference import intervals

        # What another thread compiles ahead is visited again when it is needed.
        fit.ahead = lambda pieces, n_jobs: contextlib.nullcontext()
        # Short chains visit the same modules as long ones.
        intervals.n_steps = lambda inference: (intervals.BLOCK, intervals.BLOCK // 4)

        try:
            with contextlib.redirect_stdout(sys.stderr), walk.traced():
                command(arguments)
        except SystemExit as ended:
            print(walk)
            return ended.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
