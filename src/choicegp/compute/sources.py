"""The source files that a module runs on: its own, and the files of all modules of the package that it imports.

Import statements are found in the text, wherever they stand, in functions too: parsing the files would take as long as
loading the programs of a whole fit does.  Imports for type checkers alone count as well.
"""

import functools
import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+({_PACKAGE.name}[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n#]*))", re.M
)


def digest_of_sources(modules: Iterable[str]) -> str | None:
    """Return a digest of the sources of some modules, by name, and of all that they import; None if unreadable."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in modules]
    if not all(files):
        return None
    try:
        return _digest(frozenset(Path(file) for file in files if file))
    except (OSError, UnicodeDecodeError):
        return None  # in a zip file, or compiled


@functools.cache
def _digest(files: frozenset[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(set().union(*(reached(file) for file in files))):
        digest.update(_content(file).encode())
    return digest.hexdigest()


@functools.cache
def reached(file: Path) -> frozenset[Path]:
    """Return a file and all files of the package that it imports, directly or not."""
    found, left = {file}, [file]
    while left:
        new = imported(left.pop()) - found
        found |= new
        left += new
    return frozenset(found)


@functools.cache
def imported(file: Path) -> frozenset[Path]:
    """Return the files of the package that a file imports itself."""
    names: list[str] = []
    for module, parts, plain in _IMPORT.findall(_content(file)):
        if module:
            # The version apart, what is imported from the package itself may come from any of its modules.
            own = [part.split()[0] for part in parts.strip("()").split(",") if part.split()]
            names += [] if own == ["__version__"] else [module, *(f"{module}.{name}" for name in own)]
        names += [part.split()[0] for part in plain.split(",") if part.split()]
    return frozenset(path for name in names for path in _files(name))


def _files(name: str) -> list[Path]:
    """Return the files of a module and of the folders above it.

    The package's own file names all modules, and counts only where something is imported from it directly.
    """
    first, *rest = name.split(".")
    if first != _PACKAGE.name:
        return []
    places = [_PACKAGE.joinpath(*rest[: n + 1]) for n in range(len(rest))] or [_PACKAGE]
    candidates = [path for place in places for path in (place.with_suffix(".py"), place / "__init__.py")]
    return [path for path in candidates if path.is_file()]


@functools.cache
def _content(file: Path) -> str:
    return file.read_text(encoding="utf-8")
