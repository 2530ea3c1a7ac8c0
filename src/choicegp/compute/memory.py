"""How much memory a fit may take: asked before it starts, because a process that takes too much is killed unheard.

Only Linux says what a process may have; elsewhere nothing is refused.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

from choicegp.errors import ChoiceGPError

_ROOM_TO_START = 2**30  # address space that JAX takes at its first program, whose threads each reserve a part of it
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_LIMIT_AND_USE = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_GIVES_WAY = ("inactive_file", "active_file", "slab_reclaimable")
_LIMITED = (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData"))


def free_memory() -> int | None:
    """Return how many bytes this process can still take; None where the system does not say.

    Examples
    --------
    >>> free = free_memory()
    >>> free is None or free > 0
    True
    """
    return min((*_of_the_machine(), *_of_groups(), *_of_limits().values()), default=None)


def check_memory(needed: float, what: str, advice: str) -> None:
    """Refuse work that needs more bytes than are free."""
    free = free_memory()
    if free is not None and needed > free:
        raise ChoiceGPError(f"{what} needs at least {_size(needed)} of memory, and {_size(free)} are free: {advice}")


@functools.cache  # what is refused is asked again; once started, JAX has what it reserves
def check_room_to_start() -> None:
    """Refuse to start JAX where the limit of address space would end the process in the middle of it."""
    room = _of_limits().get("RLIMIT_AS")
    if room is not None and room < _ROOM_TO_START:
        raise ChoiceGPError(
            f"the limit of address space leaves {_size(room)}, and JAX reserves {_size(_ROOM_TO_START)} when it starts"
            ": raise the limit (ulimit -v), or limit the memory of a container instead"
        )


def _of_the_machine() -> Iterator[int]:
    """Yield what the machine has left; one that can swap is slow then, and kills nothing."""
    swap = sum(_kilobytes(_PROC / "meminfo", "SwapFree"))
    yield from (memory + swap for memory in _kilobytes(_PROC / "meminfo", "MemAvailable"))


def _of_groups() -> Iterator[int]:
    """Yield what each control group of this process, in both versions of their file system, leaves to it."""
    for folder in _groups():
        for limit, used in _LIMIT_AND_USE:
            try:
                # "max" stands for no limit, as does a number beyond any memory.
                left = int((folder / limit).read_text()) - int((folder / used).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            # Files that were read, and what the system keeps of their names, count as used, and give way when memory is
            # needed.  In version 1 "total_" means: together with the groups below, as the use does.
            given_back = (int(stat.get(f"total_{name}", stat.get(name, 0))) for name in _GIVES_WAY)
            yield max(left + sum(given_back), 0)


def _groups() -> Iterator[Path]:
    """Yield the folders of the groups: a container sees its own as the root, other processes find theirs below."""
    yield from (_GROUPS, _GROUPS / "memory")
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return
    for _, controllers, place in (line.split(":", 2) for line in lines):
        if controllers in ("", "memory"):
            yield _GROUPS / controllers / place.strip("/")


def _of_limits() -> dict[str, int]:
    """Return what each limit of this process leaves."""
    try:
        import resource
    except ImportError:  # Windows
        return {}
    left = {}
    for name, used in _LIMITED:
        limit, _ = resource.getrlimit(getattr(resource, name))
        if limit != resource.RLIM_INFINITY:
            for taken in _kilobytes(_PROC / "self" / "status", used):
                left[name] = max(limit - taken, 0)
    return left


def _kilobytes(file: Path, name: str) -> Iterator[int]:
    """Yield the bytes that a line such as ``MemAvailable: 1024 kB`` states."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return
    yield from (1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"
