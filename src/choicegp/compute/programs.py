"""Compiled programs, kept between processes.

For a small problem a fit takes less time than its own compiling, and even less than JAX's tracing, which JAX's
compilation cache does not save.  A `Program` is therefore compiled ahead of time for the shapes at hand, and the
executable is kept in a folder: a later process loads it and neither traces nor compiles.

JAX's form of an executable is a pickle, which runs whatever its author wanted.  So programs are only loaded from a
folder and from files that belong to the current user and that nobody else may write.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import re
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from choicegp.compute.sources import digest_of_sources
from choicegp.errors import FileWarning
from choicegp.files import replaced_when_complete

# On CPU XLA's newer fusion emitters take twice as long to compile a fit, which then runs no faster (measured with
# jaxlib 0.9.2: 5.4 against 2.9 s); nor does it after the costlier optimisations (2.8 against 2.1 s).
# On an NVIDIA GPU most of the time goes into trying out variants of every matrix product, for products that take no
# part of a fit's time worth it (H200, jaxlib 0.11: 70 against 7 s for a sparse fit of five utilities).
_LEVEL = "xla_backend_optimization_level"
_OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {"xla_cpu_use_fusion_emitters": False, _LEVEL: 1},
    "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}
# Without optimisations a posterior and its score compile in 0.3 instead of 1.3 s and take twice as long: 0.08 s more
# with 160 sets of three and three utilities, whose points are a million numbers.
_FEW_NUMBERS = 3_000_000
_SETTINGS = ("jax_enable_x64", "jax_default_device", "jax_default_matmul_precision")
_KNOWN = ("choicegp.", "builtins")
SUFFIX = ".program"
LONGEST_UNUSED = 30 * 24 * 3600.0  # seconds
MOST_BYTES = 2 * 2**30
_FAULTS = (OSError, ValueError, TypeError, AttributeError, LookupError, AssertionError, EOFError, RuntimeError,
           ImportError, pickle.PickleError)  # fmt: skip


def program(function: Callable, *, static: str | None = None, seldom: bool = False) -> "Program":
    """Compile as `jax.jit` does.  Make one at module level: a second wrapper compiles again.

    Parameters
    ----------
    function : callable
        Of arrays in pytrees; its last argument may be static.
    static : str, optional
        Name of the last argument, when it is hashable and part of the program.
    seldom : bool
        Whether it runs a few times for each combination of shapes. Where its arguments are small, it is then compiled
        soon rather than well.
    """
    return functools.wraps(function)(Program(function, static, seldom=seldom))  # type: ignore[return-value]


class Program:
    """A function with one executable for every combination of shapes that it was called with."""

    def __init__(self, function: Callable, static: str | None, *, seldom: bool = False) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._function, self._static, self._seldom = function, static is not None, seldom
        self._traced = jax.jit(function, static_argnames=static)
        self._executables: dict[Any, Callable] = {}
        self._locks: dict[Any, threading.Lock] = {}

    def __call__(self, *args: Any) -> Any:
        """Run, on arguments given by position."""
        leaves = jax.tree.leaves(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._function(*args)  # part of another program
        if any(isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 for leaf in leaves):
            return self._traced(*args)  # spread over several devices: JAX divides the work as the arguments lie
        key, dynamic, static = self._described(args)
        return self._executable(key, dynamic, static)(*dynamic)

    def prepare(self, *args: Any) -> None:
        """Have the executable for arguments like these ready, and do not run it."""
        self._executable(*self._described(args))

    def _executable(self, key: Any, dynamic: tuple, static: tuple) -> Callable:
        executable = self._executables.get(key)
        if executable is None:
            # One lock for each: other shapes can be compiled at the same time.
            with self._locks.setdefault(key, threading.Lock()):
                executable = self._executables.get(key)
                if executable is None:
                    executable = self._executables[key] = self._found(key, dynamic, static)
        return executable

    def _described(self, args: tuple) -> tuple[Any, tuple, tuple]:
        """Return the key of the executable for such arguments, and those that vary and those that do not."""
        dynamic, static = (args[:-1], args[-1:]) if self._static else (args, ())
        leaves, tree = jax.tree.flatten(dynamic)
        leaves = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf, float) for leaf in leaves]
        settings = tuple(str(getattr(jax.config, name)) for name in _SETTINGS)
        key = (tree, static, settings, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))
        return key, jax.tree.unflatten(tree, leaves), static

    def _found(self, key: Any, dynamic: tuple, static: tuple) -> Callable:
        """Load the executable, or compile it and keep it where it may be kept."""
        path = self._path(key, static)
        executable = None if path is None else load(path, dynamic, present_device())
        if executable is None:
            soon = self._seldom and sum(leaf.size for leaf in jax.tree.leaves(dynamic)) <= _FEW_NUMBERS
            executable = _compiled(self._traced.lower(*dynamic, *static), soon=soon)
            if path is not None:
                keep(path, executable)
        return executable

    def _path(self, key: Any, static: tuple) -> Path | None:
        """Return the file in which the executable is kept, if it may be."""
        folder = cache_folder()
        types = _node_types(key[0])
        # The code of a class from elsewhere, a user's own kernel, is not known here and may change.
        if folder is None or any(not known.__module__.startswith(_KNOWN) for known in types):
            return None
        # A kernel among the arguments is called by modules that do not import its own.
        used = types | _node_types(jax.tree.structure(static)) | set(map(type, jax.tree.leaves(static)))
        modules = {known.__module__ for known in used if known.__module__.startswith("choicegp.")}
        sources = digest_of_sources({self._function.__module__} | modules)
        if sources is None:
            return None
        kind = present_device().device_kind
        text = f"{self.name} {key} {sorted(map(repr, types))} {sources} {kind} {_environment()}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return folder / f"{self.name.split('.')[-1].strip('_')}-{digest}{SUFFIX}"


def _compiled(lowered: Any, *, soon: bool = False) -> Any:
    """Compile quickly, but for the options that this version of XLA does not know."""
    options = dict(_OPTIONS.get(present_device().platform, {}))
    if soon and _LEVEL in options:
        options[_LEVEL] = 0
    if jax.config.read("jax_disable_most_optimizations"):
        options.pop(_LEVEL, None)  # even fewer are asked for
    while options:
        try:
            return lowered.compile(options)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            known = {name: value for name, value in options.items() if name not in str(error)}
            options = known if len(known) < len(options) else {}
    return lowered.compile()


def present_device() -> Any:
    """Return the device on which programs run now."""
    chosen: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None:
        return jax.local_devices()[0]  # of this machine, where several work together
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen


def _node_types(tree: Any) -> set[type]:
    """Return the classes of all nodes of a tree."""
    data = tree.node_data()
    own = set() if data is None else {data[0]}
    return own.union(*(_node_types(child) for child in tree.children()))


def _environment() -> str:
    """Everything outside a program's own arguments on which its executable depends."""
    # A flag that JAX reads when it compiles, and which no context can change.
    client = present_device().client
    constant = _constant_environment(client.platform, client.platform_version)
    return f"{constant} {jax.config.read('jax_disable_most_optimizations')}"


@functools.cache
def _constant_environment(platform_name: str, platform_version: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        processor = platform.processor()
    versions = []
    for name in ("jax", "jaxlib", "equinox", "blackjax"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    parts = (*versions, platform_name, platform_version, processor)
    return " ".join((*parts, platform.python_version(), os.environ.get("XLA_FLAGS", "")))


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
        with replaced_when_complete(path, lasting=False) as draft:  # what is torn is not loaded: see its digest
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
    """Have JAX bind its LAPACK calls, which it does when it lowers the first one for a CPU."""
    with contextlib.suppress(RuntimeError), jax.default_device(jax.local_devices(backend="cpu")[0]):
        jax.jit(jnp.linalg.cholesky).lower(np.eye(1))


# Not from the start of a line: a progress bar may have left one unfinished.
_OF_THE_LOADER = re.compile(
    rb"[IWE]\d{4} [\d:.]+ +\d+ ("
    rb"cpu_aot_loader\.cc:\d+\] [^\n]*Machine type used for XLA:CPU compilation doesn't match"
    rb"|pjrt_executable\.cc:\d+\] Assume version compatibility)[^\n]*\n?"
)
_STANDARD_ERROR = 2
_turn = threading.Lock()  # the descriptor is the whole process's


@contextlib.contextmanager
def without_loader_messages() -> Iterator[None]:
    """Gather what is written to standard error, and pass on all but the lines of XLA's loader at the end.

    The loader writes about every executable, straight to file descriptor 2.  On a processor with AVX-512 it compares
    the options of the code generator (``+prefer-no-gather``) with the features of the processor, and reports every
    program as made for another machine; programs are only kept for this very processor.  No log level hides that: it is
    an error's, and read when JAX is imported, which a user may do first.

    Loading takes milliseconds.  What a child process started meanwhile by another thread writes to standard error, and
    what a crash of this process writes, goes to the temporary file and is lost.
    """
    with _turn, contextlib.ExitStack() as stack:
        try:
            gathered = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            original = os.dup(_STANDARD_ERROR)
        except OSError:  # there is no standard error, or no place for a file
            yield
            return
        stack.callback(os.close, original)
        os.dup2(gathered.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(original, _STANDARD_ERROR)
            gathered.seek(0)
            _write(_OF_THE_LOADER.sub(b"", gathered.read()))


def _write(content: bytes) -> None:
    with contextlib.suppress(OSError):  # as for anything else that is written there, nobody may be listening
        while content:
            content = content[os.write(_STANDARD_ERROR, content) :]
