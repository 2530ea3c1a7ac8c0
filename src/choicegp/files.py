"""Files that are written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from choicegp.checks import file_path
from choicegp.errors import ChoiceGPError

_LONGEST_NAME = 235  # of the 255 bytes that file systems allow, what a draft's ending leaves


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a path where no file can be written, before the work whose result it is for."""
    file = file_path(path)
    try:
        if file.is_dir():
            raise ChoiceGPError(f"{file} is a folder; name a file in it")
        # Whoever may write in /dev would otherwise put a file in place of the device itself.
        if _exists(file) and not file.is_file():
            raise ChoiceGPError(f"{file} is a device, a pipe or a socket; name a file")
        target = _target(file)
        folder = target.parent
        if not folder.is_dir():
            raise ChoiceGPError(f"cannot write {file}: there is no folder {folder}")
        # Also a read-only file system, which root cannot write either.
        if not os.access(folder, os.W_OK):
            raise ChoiceGPError(f"cannot write {file}: the folder {folder} does not allow it; name another one")
        if len(os.fsencode(target.name)) > _LONGEST_NAME:
            raise ChoiceGPError(f"cannot write {file}: the name has more than {_LONGEST_NAME} bytes")
    except OSError as error:
        raise ChoiceGPError(f"cannot write {file}: {error.strerror or error}") from error


def _exists(file: Path) -> bool:
    """Whether anything is there; links in a circle are an error here, and nothing to `Path.exists`."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return True


def _target(file: Path) -> Path:
    """Return where a file is written: a link stays, and what it leads to is replaced."""
    return Path(os.path.realpath(file)) if file.is_symlink() else file


def made_folder(path: str | os.PathLike[str]) -> Path:
    """Return a folder, which is made if it does not exist."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChoiceGPError(f"cannot make the folder {folder}: {error.strerror}") from None
    return folder


@contextlib.contextmanager
def replaced_when_complete(path: str | os.PathLike[str], *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Open a draft beside ``path``, a binary file that takes its name (and place) in one step when all is written.

    What need not outlast a loss of power (``lasting=False``) does not wait for the disk.
    """
    file = file_path(path)
    check_place(file)
    target = _target(file)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            with draft.open("xb") as handle:
                yield handle
                handle.flush()
                if lasting:
                    os.fsync(handle.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ChoiceGPError(f"cannot write {file}: {error.strerror or error}") from error
