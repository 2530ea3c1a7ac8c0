"""The folder of kept programs: who may have written there, what is loaded, and what is removed.

JAX's form of an executable is a pickle, which runs whatever its author wanted.  So programs are only loaded from a
folder and from files that belong to the current user and that nobody else may write.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import stat
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from choicegp.compute.quiet_loading import without_loader_messages
from choicegp.errors import FileWarning
from choicegp.files import replaced_when_complete

SUFFIX = ".program"
LONGEST_UNUSED = 30 * 24 * 3600.0  # seconds
MOST_BYTES = 2 * 2**30
_FAULTS = (OSError, ValueError, TypeError, AttributeError, LookupError, AssertionError, EOFError, RuntimeError,
           ImportError, pickle.PickleError)  # fmt: skip


def cache_folder() -> Path | None:
    """Return the folder of kept programs: CHOICEGP_CACHE, or choicegp below the user's cache folder.

    None where nothing is to be kept (CHOICEGP_CACHE=off), nothing can be written, or others can write.
    """
    chosen = os.environ.get("CHOICEGP_CACHE")
    if chosen is not None and chosen.lower() == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(os.path.expanduser(chosen)) if chosen else Path(home) / "choicegp" / "programs"
    if str(folder).startswith("~") or not (chosen or folder.is_absolute()):
        return None  # nobody's home is known
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        private = _is_private(folder.stat())
    except (OSError, ValueError):
        return None
    if not private:
        _warn_once(
            f"Compiled programs are neither loaded from {folder} nor kept there: other users own this folder or can "
            "write to it, and a program that they put there would run as you. Run 'chmod go-w' on it, remove it or set "
            "CHOICEGP_CACHE to a folder of your own or to 'off'."
        )
        return None
    return folder if os.access(folder, os.W_OK) else None


def _is_private(status: os.stat_result) -> bool:
    """Whether the current user alone can have written a file or folder."""
    if not hasattr(os, "geteuid"):
        return True  # Windows has neither owners nor bits of this kind
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, FileWarning, stacklevel=2)


def load(path: Path, dynamic: tuple, device: Any) -> Any:
    """Return the executable for such arguments, or None where there is none that can be used."""
    from jax.experimental.serialize_executable import deserialize_and_load

    try:
        with path.open("rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                return None
            content = file.read()
        digest, payload = content[:32], content[32:]
        if _digest(path, payload) != digest:
            return None
        executable, outputs = pickle.loads(payload)
        _prepare_lapack()
        trees = jax.tree.structure((dynamic, {})), jax.tree.structure(outputs)
        with without_loader_messages():
            # Said explicitly: otherwise it would be loaded onto all devices of the default kind.
            loaded = deserialize_and_load(executable, *trees, backend=device.client, execution_devices=[device])
    except _FAULTS:
        return None  # missing, or of another make: it is compiled again
    with contextlib.suppress(OSError):
        os.utime(path)
    return loaded


def keep(path: Path, compiled: Any) -> None:
    """Write an executable to a file that nobody else can write, where that is possible."""
    from jax.experimental.serialize_executable import serialize

    try:
        executable, _, out_tree = serialize(compiled)
        outputs = jax.tree.unflatten(out_tree, [0] * out_tree.num_leaves)
        payload = pickle.dumps((executable, outputs))
        with replaced_when_complete(path) as draft:
            os.chmod(draft.fileno() if os.chmod in os.supports_fd else draft.name, 0o600)
            draft.write(_digest(path, payload) + payload)
        _tidy(path.parent)
    except _FAULTS:
        return  # the program itself is there; the next process compiles it again


def _digest(path: Path, payload: bytes) -> bytes:
    """Return a fingerprint of a program and its name: a file that was copied over another is not loaded."""
    return hashlib.sha256(path.name.encode() + payload).digest()


@functools.cache  # once in a process: what this one has written is not removed by it
def _tidy(folder: Path) -> None:
    """Remove what was not used for long and, where there is too much, what was not used for longest."""
    kept = []
    for file in (
        *folder.glob(f"*{SUFFIX}"),
        *folder.glob(f".*{SUFFIX}.*.part"),
    ):  # drafts of processes that were killed
        with contextlib.suppress(OSError):
            status = file.stat()
            kept.append((status.st_mtime, status.st_size, file))
    oldest, left = time.time() - LONGEST_UNUSED, MOST_BYTES
    for used, size, file in sorted(kept, reverse=True):
        left -= size
        if used < oldest or left < 0:
            with contextlib.suppress(OSError):
                file.unlink()


@functools.cache
def _prepare_lapack() -> None:
    """Have JAX bind its LAPACK calls, which it does when it lowers the first one."""
    jax.jit(jnp.linalg.cholesky).lower(np.eye(1))
