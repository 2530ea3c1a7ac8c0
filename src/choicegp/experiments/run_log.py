"""The runs of an experiment and their log: one line for every run that came to an end, whatever happens afterwards.

A run log is a file of JSON lines that only grows.  A run's key is its settings; of several lines with the same key the
last one counts, so that a run which failed can be tried again.  Among a run's values, numbers that JSON does not know
are written as the texts "NaN", "Infinity" and "-Infinity" and read as numbers again: no value may be one of these as a
text.
"""

import contextlib
import importlib
import json
import math
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from choicegp import __version__
from choicegp.errors import ChoiceGPError, ExtrapolationWarning
from choicegp.experiments.experiment import Outcome, RunSettings

RunRecord = dict[str, Any]
"""What became of a run, plain JSON: ``settings``; ``status``, "done" or "failed"; ``values``, or ``error`` with its
``type``, ``message`` and the last lines of its ``traceback``; ``warnings``, as texts; ``seconds``; ``started``;
``version`` of choicegp, ``software`` beside it and the ``machine``."""
FIELDS = ("settings", "status", "warnings", "seconds", "started", "version", "software", "machine")
"""What every record has."""

_TRACEBACK_LINES = 20


def recorded_run(module: str, settings: RunSettings, data: str | None) -> RunRecord:
    """Make one run and record what came of it; an exception in the run is recorded, not raised.

    ``module`` is the full name of the experiment's module, ``data`` the folder of published tables, None for the one
    that CHOICEGP_DATA names.
    """
    started, start = _now(), time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        # A protocol says where it extrapolates.
        warnings.simplefilter("ignore", ExtrapolationWarning)
        try:
            experiment = importlib.import_module(module)
            start = time.perf_counter()  # the first run of a process would pay for the imports
            found: RunRecord = {"status": "done", "values": plain(experiment.run(settings, data))}
        except Exception as error:
            found = {"status": "failed", "error": _described(error)}
    found["warnings"] = list(dict.fromkeys(str(warning.message) for warning in caught))
    return _record(settings, found, round(time.perf_counter() - start, 3), started, machine())


def failed_record(settings: RunSettings, error: BaseException) -> RunRecord:
    """Record a run that no worker could make or bring to its end."""
    found = {"status": "failed", "error": _described(error), "warnings": []}
    return _record(settings, found, 0.0, _now(), "unknown")


def _record(settings: RunSettings, found: RunRecord, seconds: float, started: str, machine: str) -> RunRecord:
    about = {"version": __version__, "software": software(), "machine": machine}
    return {"settings": settings, **found, "seconds": seconds, "started": started, **about}


def outcome(record: RunRecord) -> Outcome:
    """Return what an experiment's report needs of the record of a run that was done."""
    return Outcome(record["settings"], record["values"], record["seconds"], record["version"])


def plain(value: Any) -> Any:
    """Turn arrays and the numbers of NumPy and JAX into lists and numbers, and refuse what JSON does not know.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"accuracy": np.float64(0.5), "curve": np.arange(3)})
    {'accuracy': 0.5, 'curve': [0, 1, 2]}
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TypeError(f"a run's values have texts as keys, not {wrong[0]!r}")
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"a run's values are numbers, texts, lists and dicts of these, not {type(value).__name__}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _described(error: BaseException) -> dict[str, Any]:
    lines = "".join(traceback.format_exception(error)).rstrip().split("\n")
    return {"type": type(error).__name__, "message": str(error), "traceback": lines[-_TRACEBACK_LINES:]}


def software() -> str:
    """Name the versions that numbers may depend on."""
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "numpy", "scipy"))
    return f"Python {platform.python_version()}, {packages}"


def machine() -> str:
    """Describe this machine: its processor, cores and, where JAX was used, the device that it computes on."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    if "jax" in sys.modules:
        import jax

        try:
            device = jax.devices()[0]
            parts.append("JAX on " + (device.platform if device.platform == "cpu" else device.device_kind))
        except RuntimeError:  # what JAX_PLATFORMS names is not there: the run will have said so
            parts.append("no device for JAX")
    return ", ".join(parts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # other systems than Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, [*names[:1], platform.processor(), platform.machine()]), "unknown processor")


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
