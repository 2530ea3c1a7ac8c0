"""Checkpoints of sparse fits: what is known so far, in a file from which a later process continues."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from choicegp.errors import ChoiceGPError
from choicegp.files import check_place
from choicegp.inference.sparse.plan import Course
from choicegp.inference.sparse.stopping import Progress, Scored
from choicegp.storage.archive import leaves_of, numbered, plain, read_archive, write_archive

FORMAT = "choicegp-checkpoint"
_VERSION = 2
_NUMBERS = ("trial", "step", "best_score", "best_trial", "best_step", "cooling", "ridge", "broken")
_ARRAYS = ("scores", "bounds")


class Checkpoint:
    """A file that keeps a course; it belongs to one set of options and data.

    Parameters
    ----------
    path : str or path
    belongs_to : str
        Describes options and data; a file that belongs to others is refused.
    every : float
        Seconds that pass at least between two writings.
    """

    def __init__(self, path: "str | os.PathLike[str]", belongs_to: str, every: float = 10.0) -> None:
        check_place(path)
        self.path, self.every = Path(path), every
        self.digest = hashlib.sha256(belongs_to.encode()).hexdigest()
        self._written = time.monotonic()

    def load(self, first: Course) -> Course | None:
        """Return the kept course, if the file exists."""
        if not self.path.exists():
            return None
        return read_archive(
            self.path, lambda arrays, about: self._made(first, arrays, about), kind=FORMAT, version=_VERSION,
            noun="checkpoint",
        )  # fmt: skip

    def _made(self, first: Course, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Course:
        if about["digest"] != self.digest:
            raise ChoiceGPError("it belongs to a fit of other data or with other options: remove it to start again")
        leaves, tree = jax.tree.flatten(first.state)
        states = {
            name: jax.tree.unflatten(tree, list(numbered(arrays, name, len(leaves)))) for name in ("state", "best")
        }
        numbers: dict[str, Any] = {name: about[name] for name in _NUMBERS} | {"cooling": tuple(about["cooling"])}
        gained = Scored(about["gained_score"], arrays["gained_each"])
        progress = Progress(gained, about["gained_step"], about["level"])
        return Course(**states, **numbers | {name: arrays[name] for name in _ARRAYS}, progress=progress)

    def save(self, course: Course) -> None:
        """Write the course, unless it was written a moment ago."""
        began = time.monotonic()
        if began - self._written < self.every:
            return
        arrays = {name: getattr(course, name) for name in _ARRAYS}
        for name in ("state", "best"):
            arrays |= leaves_of(name, getattr(course, name))
        about = {"format": FORMAT, "version": _VERSION, "digest": self.digest}
        numbers = {
            name: plain(jax.tree.map(lambda x: np.asarray(x).item(), getattr(course, name))) for name in _NUMBERS
        }
        gained, step, level = course.progress
        arrays["gained_each"] = gained.each
        numbers |= plain({"gained_score": float(gained.score), "gained_step": int(step), "level": int(level)})
        write_archive(self.path, arrays, about | numbers, compressed=False)
        self._written = time.monotonic()
        self.every = max(self.every, 10.0 * (self._written - began))

    def remove(self) -> None:
        """Remove the file of a fit that is done."""
        self.path.unlink(missing_ok=True)
