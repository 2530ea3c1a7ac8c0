"""Compiled programs, kept between processes.

For a small problem a fit takes less time than its own compiling, and even less than JAX's tracing, which JAX's
compilation cache does not save.  A `Program` is therefore compiled ahead of time for the shapes at hand, and the
executable is kept in a folder: a later process loads it and neither traces nor compiles.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from choicegp.data.whole_file import whole_file

# On CPU XLA's newer fusion emitters take twice as long to compile a fit, which then runs no faster
# (measured with jaxlib 0.9.2: 5.4 against 2.9 s).  The option is known to exist in these versions only.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False} if (0, 8) <= jax.__version_info__[:2] <= (0, 12) else None
_MOST_KEPT = 400  # files; the ones not used for longest go
_SETTINGS = ("jax_enable_x64", "jax_default_device", "jax_default_matmul_precision")
_FAULTS = (OSError, ValueError, TypeError, AttributeError, EOFError, RuntimeError, ImportError, pickle.PickleError)


def program(function: Callable, *, static: str | None = None) -> "Program":
    """Compile as `jax.jit` does.  Make one at module level: a second wrapper compiles again.

    Parameters
    ----------
    function : callable
        Of arrays in pytrees; its last argument may be static.
    static : str, optional
        Name of the last argument, when it is hashable and part of the program.
    """
    return functools.wraps(function)(Program(function, static))  # type: ignore[return-value]


class Program:
    """A function with one executable for every combination of shapes that it was called with."""

    def __init__(self, function: Callable, static: str | None) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._function, self._static = function, static is not None
        self._traced = jax.jit(function, static_argnames=static, compiler_options=_OPTIONS)
        self._executables: dict[Any, Callable] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """Run, on arguments given by position."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return self._function(*args)  # part of another program
        executable, dynamic = self._executable(args)
        return executable(*dynamic)

    def _executable(self, args: tuple) -> tuple[Callable, tuple]:
        """Return the executable for these arguments, and the arguments it takes."""
        dynamic, fixed = (args[:-1], args[-1]) if self._static else (args, None)
        leaves, tree = jax.tree.flatten(dynamic)
        leaves = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf, float) for leaf in leaves]
        settings = tuple(str(getattr(jax.config, name)) for name in _SETTINGS)
        key = (tree, fixed, settings, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))
        dynamic = jax.tree.unflatten(tree, leaves)
        executable = self._executables.get(key)
        if executable is None:
            with self._lock:
                executable = self._executables.get(key)
                if executable is None:
                    static = (fixed,) if self._static else ()
                    executable = self._executables[key] = self._find(key, dynamic, static)
        return executable, dynamic

    def _find(self, key: Any, dynamic: tuple, static: tuple) -> Callable:
        """Load the executable, or compile and keep it."""
        folder = cache_folder()
        if folder is None:
            return self._traced.lower(*dynamic, *static).compile()
        text = f"{self.name} {key} {jax.devices()[0].device_kind} {_environment()}"
        path = folder / f"{self.name.split('.')[-1].strip('_')}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        executable = _load(path, dynamic)
        if executable is None:
            compiled = self._traced.lower(*dynamic, *static).compile()
            _keep(path, compiled)
            return compiled
        return executable


def cache_folder() -> Path | None:
    """Return the folder of kept programs: CHOICEGP_CACHE, or choicegp below the user's cache folder.

    None where nothing is to be kept (CHOICEGP_CACHE=off) or nothing can be written.
    """
    chosen = os.environ.get("CHOICEGP_CACHE")
    if chosen == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(chosen) if chosen else Path(home) / "choicegp" / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _load(path: Path, dynamic: tuple) -> Callable | None:
    from jax.experimental.serialize_executable import deserialize_and_load

    try:
        content = path.read_bytes()
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        executable, outputs = pickle.loads(payload)
        _prepare_lapack()
        loaded = deserialize_and_load(executable, jax.tree.structure((dynamic, {})), jax.tree.structure(outputs))
        os.utime(path)
    except _FAULTS:
        return None  # missing, or of another make: it is compiled again
    return loaded


def _keep(path: Path, compiled: Any) -> None:
    from jax.experimental.serialize_executable import serialize

    try:
        executable, _, out_tree = serialize(compiled)
        outputs = jax.tree.unflatten(out_tree, [0] * out_tree.num_leaves)
        payload = pickle.dumps((executable, outputs))
        with whole_file(path) as draft:
            draft.write(hashlib.sha256(payload).digest() + payload)
        kept = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in kept[:-_MOST_KEPT]:
            file.unlink(missing_ok=True)
    except _FAULTS:
        return  # the program itself is there; the next process compiles it again


@functools.cache
def _prepare_lapack() -> None:
    """Have JAX bind its LAPACK calls, which it does when it lowers the first one."""
    jax.jit(jnp.linalg.cholesky).lower(np.eye(1))


def _environment() -> str:
    """Everything outside a program's own arguments on which its executable depends."""
    # A flag that JAX reads when it compiles, and which no context can change.
    return f"{_constant_environment()} {jax.config.read('jax_disable_most_optimizations')}"


@functools.cache
def _constant_environment() -> str:
    from jax.extend.backend import get_backend

    package = Path(__file__).parents[1]
    source = hashlib.sha256()
    for folder in ("model", "inference", "prediction", "selection", "estimators"):
        for file in sorted((package / folder).glob("*.py")):
            source.update(file.read_bytes())
    try:
        processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        processor = platform.processor()
    backend = get_backend()
    parts = (source.hexdigest(), jax.__version__, backend.platform, backend.platform_version, processor)
    return " ".join((*parts, platform.python_version(), os.environ.get("XLA_FLAGS", "")))


_SETTINGS_OF_THREADS = (
    "enable_x64", "default_device", "numpy_dtype_promotion", "numpy_rank_promotion", "debug_nans", "debug_infs",
)  # fmt: skip


def with_settings_of_this_thread(work: Callable) -> Callable:
    """Carry float64, the device and the like over to another thread: JAX keeps these settings per thread."""
    settings = {name: getattr(jax.config, f"jax_{name}") for name in _SETTINGS_OF_THREADS}

    def wrapped(*args: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for name, value in settings.items():
                stack.enter_context(getattr(jax, name)(value))
            return work(*args)

    return wrapped
