"""What a computation looks at while it runs: the clock, and who wants to see how far it is."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

from choicegp.errors import ChoiceGPError

Report = Callable[[str, int, float], None]


class Clock:
    """Tells when the time is up."""

    def __init__(self, max_seconds: float | None) -> None:
        self.start = time.monotonic()
        self.limit = max_seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def is_up(self) -> bool:
        """Whether the limit has passed."""
        return self.limit is not None and self.seconds >= self.limit


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_watched(progress: bool | str) -> bool:
    """Whether progress is to be shown: True, False, or "auto", on a terminal only."""
    if progress not in (True, False, "auto"):
        raise ChoiceGPError(f"progress must be True, False or 'auto'; got {progress!r}")
    return progress is True or (progress == "auto" and on_terminal())


@contextlib.contextmanager
def progress_report(progress: bool | str, max_iter: int) -> Iterator[Report | None]:
    """Yield a function that shows phase, step, ELBO and remaining time; None when nobody looks.

    ``progress`` is True, False, or "auto": on a terminal only.
    """
    if not is_watched(progress):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("step {task.completed}"),
        TextColumn("ELBO {task.fields[bound]}"), TimeElapsedColumn(), TextColumn("at most"),
        TimeRemainingColumn(),
    )  # fmt: skip
    # On a terminal the bar goes when it is done; in a log its last state is all there is to see.
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal()) as bar:
        task = bar.add_task("compiling", total=max_iter, bound="...")

        def report(phase: str, step: int, bound: float) -> None:
            bar.update(task, description=phase, completed=step, bound=f"{bound:.1f}" if math.isfinite(bound) else "...")

        yield report


@contextlib.contextmanager
def count_report(progress: bool | str, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many more are done, and shows how many are and how long the rest will take.

    ``progress`` is True, False, or "auto": on a terminal only.
    """
    if not is_watched(progress):
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(), TextColumn("{task.completed} of {task.total} {task.description}"), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
