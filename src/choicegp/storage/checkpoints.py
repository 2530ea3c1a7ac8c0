"""Checkpoints: what a fit or a search knows so far, in a file from which a later process continues.

A file is an archive of arrays and a JSON page.  The page holds the format, its version, a fingerprint of the data and
the options to which the checkpoint belongs, and under each name what is known (`choicegp.storage.records`).
"""

import contextlib
import hashlib
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from choicegp import __version__
from choicegp.compute.programs import present_device
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError, FileWarning
from choicegp.files import check_place
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import Fitted
from choicegp.inference.driver import Keeper
from choicegp.storage.archive import kind_of, read_archive, write_archive
from choicegp.storage.records import Packed, packed, unpacked

FORMAT = "choicegp-checkpoint"
_VERSION = 4  # another one wherever a record changes its name or its fields: older files are refused
_EVERY = 10.0  # seconds between two writings, at least
_WORTH_A_FILE = 30.0  # seconds of work, where nobody has asked for a checkpoint
_NO_MATTER = ("progress", "n_jobs", "max_seconds", "kernel", "drawn_seed")


class BesideOutput(os.PathLike[str]):
    """The place of a checkpoint that nobody asked for, beside the file that a fit is for.

    Fits of less than half a minute write nothing there; a file of another kind stays, and a checkpoint of another fit
    is replaced.

    Examples
    --------
    >>> os.fspath(BesideOutput("model.cgp"))
    'model.cgp.checkpoint'
    """

    def __init__(self, output: str) -> None:
        self._path = f"{output}.checkpoint"

    def __fspath__(self) -> str:
        return self._path


class Checkpoint:
    """A file that keeps what is known, by name; it belongs to one set of options and data.

    Parameters
    ----------
    path : str or path
    belongs_to : str
        Describes options and data; a file that belongs to others is refused.
    """

    def __init__(self, path: "str | os.PathLike[str]", belongs_to: str) -> None:
        check_place(path)
        self.path, self.digest = Path(path), hashlib.sha256(belongs_to.encode()).hexdigest()
        self.was_asked_for = not isinstance(path, BesideOutput)
        self.every = _EVERY if self.was_asked_for else _WORTH_A_FILE
        self._is_foreign = self._has_failed = False
        self._began = self._written = time.monotonic()
        self._lock = threading.RLock()
        self._known = self._found() if self.path.exists() else {}

    def _found(self) -> dict[str, Any]:
        try:
            return read_archive(self.path, self._read, versions={FORMAT: _VERSION}, noun="checkpoint")
        except ChoiceGPError:
            if self.was_asked_for:
                raise
            self._is_foreign = kind_of(self.path) != FORMAT
            return {}

    def _read(self, arrays: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
        if about["version"] != _VERSION:
            raise ChoiceGPError(
                f"written in checkpoint format {about['version']}, this choicegp continues from {_VERSION} only: "
                "remove it to start again"
            )
        if about["digest"] != self.digest:
            raise ChoiceGPError("it belongs to a fit of other data or with other options: remove it to start again")
        own = {name: {place for place in arrays if place.rpartition(":")[0] == name} for name in about["known"]}
        return {
            name: Packed(page, {place: arrays[place] for place in own[name]}) for name, page in about["known"].items()
        }

    def part(self, name: str, kernel: Any = None) -> Keeper:
        """Return what keeps a part of the work in the same file."""
        return _Part(self, name, kernel)

    def recall(self, name: str, kernel: Any = None) -> Any:
        """Return what was kept under a name; None where nothing was."""
        with self._lock:
            known = self._known.get(name)
            if isinstance(known, Packed):
                try:
                    known = self._known[name] = unpacked(known, kernel)
                except Exception as error:  # which one, depends on what is wrong with the file
                    raise ChoiceGPError(f"{self.path}: a checkpoint with missing or wrong parts ({error!r})") from None
            return known

    def keep(self, name: str, known: Any, *, alone: bool = False) -> None:
        """Keep something instead of what had that name; write all that is known, unless that was a moment ago."""
        with self._lock:
            if alone:
                part = _part_of(name)
                self._known = {other: one for other, one in self._known.items() if _part_of(other) != part}
            self._known[name] = known
            if time.monotonic() - self._written >= self.every:
                self.write()

    def forget(self, part: str = "") -> None:
        """Forget all that a part has kept."""
        with self._lock:
            self._known = {name: one for name, one in self._known.items() if not name.startswith(part)}

    def write(self) -> bool:
        """Write all that is known, and say whether that was possible; a fit does not end with its checkpoint."""
        with self._lock:
            if self._is_foreign or self._has_failed:
                return False
            began = time.monotonic()
            try:
                parts = {name: packed(known, name) for name, known in self._known.items()}
                arrays = {place: array for part in parts.values() for place, array in part.arrays.items()}
                about = {"format": FORMAT, "version": _VERSION, "digest": self.digest}
                pages = {"known": {name: part.page for name, part in parts.items()}}
                write_archive(self.path, arrays, about | pages, compressed=False)
            except ChoiceGPError as error:
                self._has_failed = True
                warnings.warn(f"the fit continues without a checkpoint: {error}", FileWarning, stacklevel=2)
                return False
            self._written = time.monotonic()
            self.every = max(self.every, 10.0 * (self._written - began))  # a tenth of the time at most
            return True

    def write_last(self) -> bool:
        """Write what is known when the work is interrupted, where that is worth a file."""
        is_worth_it = self.was_asked_for or time.monotonic() - self._began >= _WORTH_A_FILE
        return is_worth_it and bool(self._known) and self.write()

    def remove(self) -> None:
        """Remove the file of work that is done."""
        if not self._is_foreign:
            self.path.unlink(missing_ok=True)


class _Part:
    """A keeper for one part of the work, with names of its own."""

    def __init__(self, checkpoint: Checkpoint, name: str, kernel: Any) -> None:
        self._checkpoint, self._name, self._kernel = checkpoint, name, kernel

    def part(self, name: str, kernel: Any = None) -> Keeper:
        return _Part(self._checkpoint, f"{self._name}/{name}", kernel)

    def recall(self, name: str) -> Any:
        return self._checkpoint.recall(f"{self._name}/{name}", self._kernel)

    def keep(self, name: str, known: Any, *, alone: bool = False) -> None:
        self._checkpoint.keep(f"{self._name}/{name}", known, alone=alone)

    def forget(self) -> None:
        self._checkpoint.forget(f"{self._name}/")


def _part_of(name: str) -> str:
    return name.rpartition("/")[0]


@contextlib.contextmanager
def checkpointed(path: "str | os.PathLike[str]", belongs_to: str) -> Iterator[Keeper]:
    """Yield what keeps the states of a fit in a file.

    The file goes when the fit is done.  After an interrupt it stays, and the interrupt says how to continue.
    """
    checkpoint = Checkpoint(path, belongs_to)
    try:
        yield checkpoint
    except KeyboardInterrupt as stopped:
        if checkpoint.write_last() and not stopped.args:
            stopped.args = (
                f"interrupted: what is known so far is in {checkpoint.path}; run the same again to continue",
            )
        raise
    checkpoint.remove()


def identity(data: ChoiceData | ChoiceFolder, options: FitOptions, warm: Fitted | None = None) -> str:
    """Return a text to which a checkpoint belongs: it differs where the steps of a fit would differ.

    It describes the options, the data and the fit at which this one starts, if any; the caller sets the device.

    Parameters
    ----------
    data : ChoiceData or ChoiceFolder
    options : FitOptions
    warm : Fitted, optional
    """
    if options.drawn_seed:
        raise ChoiceGPError("with random_state=None no fit continues another: give checkpoint= together with a seed")
    platform = present_device().platform
    leaves, structure = jax.tree.flatten(options.kernel)
    kernel = str(structure), [np.asarray(leaf).tolist() for leaf in leaves]
    wanted = {name: value for name, value in options._asdict().items() if name not in _NO_MATTER}
    start = None if warm is None else (warm.elbo, hashlib.sha256(np.asarray(warm.posterior.mean).tobytes()).hexdigest())
    return repr((__version__, platform, len(jax.devices(platform)), wanted, kernel, start, _fingerprint(data)))


def _fingerprint(data: ChoiceData | ChoiceFolder) -> str:
    """Return a fingerprint of the data; of a folder, of the names, sizes and times of its files."""
    found = hashlib.sha256()
    if isinstance(data, ChoiceFolder):
        about = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in data.files]
        found.update(repr((about, data.encoding.to_json())).encode())
        return found.hexdigest()
    for part in (data.X, data.flat_shown, data.offsets, data.flat_chosen, data.weights):
        found.update(b"" if part is None else np.ascontiguousarray(part).view(np.uint8).data)
    for ids in (data.object_ids, data.respondents, data.kinds):
        found.update(b"" if ids is None else repr(np.asarray(ids, dtype=object).tolist()).encode())
    return found.hexdigest()
