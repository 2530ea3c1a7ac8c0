"""What a computation looks at while it runs: the clock, and the bar that shows how far it is."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from copy import copy
from time import monotonic
from typing import Any

from choicegp.errors import ChoiceGPError

_A_DAY = 86400.0
Report = Callable[[str, int, float], None]


class Clock:
    """Knows when the time is up: everything that one call does has one limit."""

    def __init__(self, max_seconds: float | None) -> None:
        self.limit = max_seconds
        self.start = self._set = monotonic()
        self.kept = 0.0
        self.took: dict[str, float] = {}
        """Seconds that parts of the work took when they were last done; of a clock and its parts together."""
        self._is_ended = [False]  # in a list, which copies of a clock have in common

    def part(self) -> "Clock":
        """Return a clock that counts the seconds of a part of the work, and whose time is up with this one's."""
        clock = copy(self)
        clock.start = monotonic()
        return clock

    def keeping(self, seconds: float) -> "Clock":
        """Return a clock whose time is up earlier, so that some seconds are left for what follows."""
        clock = copy(self)
        clock.kept += seconds
        return clock

    def of_another_thread(self) -> "Clock":
        """Return a clock for work in another thread, which `end` ends; its time is up with this one's."""
        clock = copy(self)
        clock.took, clock._is_ended = dict(self.took), [False]
        return clock

    def end(self) -> None:
        """Interrupt what looks at this clock or at its parts."""
        self._is_ended[0] = True

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return monotonic() - self.start

    @property
    def is_up(self) -> bool:
        """Whether the limit has passed."""
        return self.is_up_in(0.0)

    def is_up_in(self, seconds: float) -> bool:
        """Whether the limit will have passed after some seconds; a clock that was ended interrupts who looks at it."""
        if self._is_ended[0]:
            raise KeyboardInterrupt
        return self.limit is not None and monotonic() - self._set + self.kept + seconds >= self.limit

    @property
    def had_passed(self) -> str:
        """Say why something was not done."""
        return f"the time limit of {self.limit:g} s had passed"


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_watched(progress: bool | str) -> bool:
    """Whether progress is to be shown: True, False, or "auto", on a terminal only."""
    if progress not in (True, False, "auto"):
        raise ChoiceGPError(f"progress must be True, False or 'auto'; got {progress!r}")
    return progress is True or (progress == "auto" and on_terminal())


class ProgressBar:
    """A line on standard error: what is done, a bar, the time that has passed and the time that is left."""

    def __init__(self, bar: Any, total: int, done: int) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("starting", total=total, completed=done)

    def show(self, text: str, done: int) -> None:
        """Say in words what is done, and how much of the total that is."""
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done)

    def line(self, text: str) -> None:
        """Print a line above the bar, which stays."""
        if self._bar is not None:
            self._bar.print(text, markup=False, highlight=False)


@contextlib.contextmanager
def progress_bar(progress: bool | str, total: int, done: int = 0) -> Iterator[ProgressBar]:
    """Yield a bar for work of ``total`` parts, some of which may be done before; it is silent when nobody looks.

    ``progress`` is True, False, or "auto": on a terminal only.
    """
    if not is_watched(progress):
        yield ProgressBar(None, total, done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    # On a terminal the bar goes when it is done; in a log its last state is all there is to see.  One part may take
    # minutes, so the pace is measured over the whole time.
    with Progress(*columns, console=Console(stderr=True), transient=on_terminal(), speed_estimate_period=_A_DAY) as bar:
        yield ProgressBar(bar, total, done)


@contextlib.contextmanager
def progress_report(
    progress: bool | str, total: int, unit: str = "step", value_name: str = "ELBO"
) -> Iterator[Report | None]:
    """Yield a function that shows the phase, the unit of work and a value of a fit; None when nobody looks."""
    if not is_watched(progress):
        yield None
        return
    with progress_bar(progress, total) as bar:

        def report(phase: str, step: int, value: float) -> None:
            shown = f", {value_name} {value:.5g}" if math.isfinite(value) else ""
            bar.show(f"{phase}: {unit} {step} of at most {total}{shown}", step)

        yield report
