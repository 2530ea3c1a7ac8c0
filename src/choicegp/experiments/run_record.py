"""One run of an experiment and its record: what a worker does, on this machine or on another one."""

import importlib
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from choicegp import __version__
from choicegp.errors import ExtrapolationWarning
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
