"""The log of an experiment: one line for every run that came to an end, kept whatever happens to the process.

A run log is a file of JSON lines that only grows.  A run's key is its settings; of several lines with the same key the
last one counts, so that a run which failed can be tried again.  Among a run's values, numbers that JSON does not know
are written as the texts "NaN", "Infinity" and "-Infinity" and read as numbers again: no value may be one of these as a
text.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from choicegp.errors import ChoiceGPError
from choicegp.experiments.experiment import RunSettings
from choicegp.experiments.run_record import FIELDS, RunRecord

_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def run_key(settings: RunSettings) -> str:
    """Return the text that distinguishes runs.

    Examples
    --------
    >>> run_key({"seed": 0, "model": "PGP"}) == run_key({"model": "PGP", "seed": 0})
    True
    """
    return json.dumps(settings, sort_keys=True, allow_nan=False)


class RunLog:
    """The runs of one experiment in a file of JSON lines, which belongs to one process at a time.

    The file is created if necessary; its folder must exist. ``records`` holds the last record of every run, by its key.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.records: dict[str, RunRecord] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> "RunLog":
        try:
            self._file = self.path.open("a+b")
            self._lock(self._file)
            self._read(self._file)
        except BaseException as error:
            self._close()
            if isinstance(error, OSError):
                raise ChoiceGPError(f"{self.path}: {error.strerror or error}") from error
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def record(self, settings: RunSettings) -> RunRecord | None:
        """Return what became of a run, None if it was never made."""
        return self.records.get(run_key(settings))

    def add(self, record: RunRecord) -> None:
        """Write a record, and return when it is on the disk."""
        assert self._file is not None, "a run log is written within `with`"
        line = dict(record)
        if "values" in line:
            line["values"] = _mapped(line["values"], _spelled)
        # Escaped: a message may hold a file name that is no proper text.
        text = json.dumps(line, allow_nan=False) + "\n"
        try:
            self._file.write(text.encode("ascii"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ChoiceGPError(f"{self.path}: {error.strerror or error}") from error
        self.records[run_key(record["settings"])] = record

    def _close(self) -> None:
        if self._file is not None:
            # What could not be written (a full disk) has been reported.
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def _lock(self, file: BinaryIO) -> None:
        """Take the file for this process; the system gives it back when the process ends, however that happens."""
        try:
            import fcntl
        except ImportError:  # Windows: two processes on one log are not noticed
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ChoiceGPError(
                f"{self.path} is in use by another process: wait until it ends, or write to another folder (--out)"
            ) from None

    def _read(self, file: BinaryIO) -> None:
        """Read all records; a last line that was cut off is removed."""
        file.seek(0)
        good, is_cut = 0, False
        for number, line in enumerate(file, 1):
            is_cut = not line.endswith(b"\n")
            if is_cut:  # its process was killed while it wrote
                break
            good += len(line)
            try:
                record = json.loads(line)
                _ = [record[field] for field in FIELDS]
                if "values" in record:
                    record["values"] = _mapped(record["values"], _read_number)
                self.records[run_key(record["settings"])] = record
            except (ValueError, TypeError, KeyError):
                raise ChoiceGPError(
                    f"{self.path}, line {number} is not the record of a run: remove that line, or write to another "
                    "folder (--out)"
                ) from None
        if is_cut:
            file.truncate(good)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value)


def _spelled(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _read_number(value: Any) -> Any:
    return _SPELLED.get(value, value) if isinstance(value, str) else value
