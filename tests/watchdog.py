"""Fit tiny data by every inference, in fresh processes with several numbers of cores, threads and OpenBLAS kernels.

Where there is an accelerator, it is one setting more.  Every process has a time limit: one that hangs is ended and
named.  The answers, probabilities of sets that were not seen, must agree with those of the first setting: within 0.001
where steps are deterministic, within 0.1 where chains are sampled, whose paths part after the smallest rounding error,
and within 0.02 for sparse inference on an accelerator, which computes in float32 there; all else is float64 everywhere.
The paths of L-BFGS part, too, and end elsewhere in the flat directions of ``paper-converged`` (by 0.001 after 100
steps, and by 0.01 where they had converged, whatever the tolerance): with another kernel of OpenBLAS it is 0.02.

Run by hand: ``python tests/watchdog.py``.  The exit code is 0 when nothing hangs, fails or differs.
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SCRIPT = """
import json, sys, warnings
import numpy as np
from choicegp import (
    BatchPreferenceGP, ChoiceData, ChoiceGP, GeneralPreferenceGP, PairGP, ParetoEmbedding, PreferenceGP,
    select_n_utilities,
)

warnings.simplefilter("error")
rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
U = np.column_stack([X[:, 0], X[:, 1] - X[:, 0] ** 2])
shown = [rows for _ in range(8) for rows in rng.permutation(12).reshape(4, 3)]
people = ["abcd"[k % 4] for k in range(32)]
whole = ChoiceData.from_utilities(X, U, shown)
several = ChoiceData.from_sets(X, shown, whole.chosen, respondents=people)
single = ChoiceData.from_utilities(X, U[:, :1], shown)
pairs = ChoiceData.from_utilities(X, U[:, :1], [rows[:2] for rows in shown])
quick = {"n_restarts": 2, "progress": False}
plain = quick | {"object_effects": False, "intervals": "none"}
made = {
    "dense": lambda: (ChoiceGP(2, inference="dense", **plain), whole),
    "effects": lambda: (ChoiceGP(2, object_effects=True, intervals="none", **quick), whole),
    "auto": lambda: (ChoiceGP(2, **quick), whole),
    "mcmc": lambda: (ChoiceGP(2, inference="mcmc", max_iter=256, object_effects=False, **quick), whole),
    "sparse": lambda: (ChoiceGP(2, inference="sparse", n_inducing=8, batch_size=8, max_iter=100, **quick), whole),
    "paper": lambda: (ChoiceGP(2, inference="paper", max_iter=100, **quick), whole),
    "paper-converged": lambda: (ChoiceGP(2, inference="paper-converged", max_iter=100, **quick), whole),
    "hierarchical": lambda: (ChoiceGP(2, respondents="hierarchical", **plain), several),
    "selection": lambda: (ChoiceGP("auto", **plain), whole),
    "best": lambda: (BatchPreferenceGP(**quick), single),
    "preference": lambda: (PreferenceGP(progress=False), pairs),
    "general-preference": lambda: (GeneralPreferenceGP(progress=False), pairs),
    "pair": lambda: (PairGP(progress=False), pairs),
    "embedding": lambda: (ParetoEmbedding(2, max_epochs=20, progress=False), whole),
}
if sys.argv[1] == "names":
    print(json.dumps(list(made)))
else:
    model, data = made[sys.argv[1]]()
    model.fit(data.take(range(24)))
    test = data.take(range(24, 32))
    if sys.argv[1] != "embedding":
        answers = np.concatenate(model.predict_proba(test)).tolist()
    else:
        answers = [row in kept for rows, kept in zip(test.shown, model.predict(test)) for row in rows]
    print(json.dumps(answers))
"""
SAMPLED = ("auto", "mcmc")
KERNELS = ("Haswell", "Zen", "Nehalem", "SkylakeX")
SECONDS = 120


def has_avx512() -> bool:
    """Whether the processor can run OpenBLAS's kernels of this name."""
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@functools.cache
def has_accelerator() -> bool:
    """Whether JAX finds an accelerator; this process itself must not hold one."""
    if not shutil.which("nvidia-smi"):
        return False
    look = [sys.executable, "-c", "import jax; jax.devices('cuda')"]
    environment = os.environ | {"JAX_PLATFORMS": "cuda,cpu"}
    return subprocess.run(look, env=environment, capture_output=True, check=False).returncode == 0


def settings() -> dict[str, tuple[int, dict[str, str | None]]]:
    """Return numbers of cores and variables of the environment, by name; None: not set."""
    threads = "OPENBLAS_NUM_THREADS"
    found: dict[str, tuple[int, dict[str, str | None]]] = {
        "1 core": (1, {threads: None}),
        "1 core, 1 thread": (1, {threads: "1"}),
        "2 cores": (2, {threads: None}),
        "2 cores, 1 thread": (2, {threads: "1"}),
        "2 cores, 8 threads": (2, {threads: "8"}),
    }
    every = os.cpu_count() or 1
    if every > 4:
        found["4 cores"] = (4, {threads: None})
    if every > 2:
        found["all cores"] = (every, {threads: None})
    kernels = [kernel for kernel in KERNELS if kernel != "SkylakeX" or has_avx512()]
    found |= {name: (2, {threads: None, "OPENBLAS_CORETYPE": name}) for name in kernels}
    found |= {f"{name}, 1 core": (1, {threads: None, "OPENBLAS_CORETYPE": name}) for name in kernels}
    found = {name: (cores, variables | {"JAX_PLATFORMS": "cpu"}) for name, (cores, variables) in found.items()}
    if has_accelerator():
        found["accelerator"] = (2, {threads: None, "JAX_PLATFORMS": "cuda,cpu"})
    return found


def answers(name: str, setting: str, cache: str, seconds: float = SECONDS) -> np.ndarray:
    """Fit by one inference in a new process, and return what it predicts; TimeoutExpired where it hangs."""
    cores, variables = settings()[setting]
    # Programs hold constants that NumPy computed: every kernel has a folder of its own.
    kernel = variables.get("OPENBLAS_CORETYPE")
    folder = cache if cache == "off" or kernel is None else os.path.join(cache, kernel)
    environment = {key: value for key, value in (os.environ | variables | {"CHOICEGP_CACHE": folder}).items() if value}
    allowed = os.sched_getaffinity(0)
    own = sorted(allowed if len(allowed) >= cores else range(os.cpu_count() or 1))[:cores]

    # The child pins itself before anything is imported: a function to be called after a fork would fork JAX's threads.
    pinned = f"import os\nos.sched_setaffinity(0, {own})\n"
    command = [sys.executable, "-c", pinned + SCRIPT, name]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    if ended.returncode:
        raise RuntimeError(ended.stderr.strip()[-2000:])
    return np.array(json.loads(ended.stdout), float)


def tolerance(name: str, setting: str) -> float:
    """Return by how much probabilities may differ."""
    if name in SAMPLED:
        return 0.1
    other_kernel = any(kernel in setting for kernel in KERNELS)
    in_other_numbers = (name == "sparse" and setting == "accelerator") or (name == "paper-converged" and other_kernel)
    return 0.02 if in_other_numbers else 1e-3


def main() -> int:
    """Run everything, and print one line for each inference and setting."""
    names = json.loads(subprocess.run([sys.executable, "-c", SCRIPT, "names"], capture_output=True, check=True).stdout)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferences", nargs="+", choices=names, default=names)
    parser.add_argument("--settings", nargs="+", choices=list(settings()), default=list(settings()))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of a process")
    options = parser.parse_args()
    n_bad = 0
    with tempfile.TemporaryDirectory() as cache:
        for name in options.inferences:
            first = None
            for setting in options.settings:
                begun = time.perf_counter()
                try:
                    found = answers(name, setting, cache, options.seconds)
                    first = found if first is None else first
                    apart = float(np.abs(found - first).max())
                    says, is_bad = f"{apart:.1e}", not apart <= tolerance(name, setting)
                except subprocess.TimeoutExpired:
                    says, is_bad = "HANGS", True
                except RuntimeError as error:
                    says, is_bad = f"FAILS: {error}", True
                n_bad += is_bad
                mark = "  BAD" if is_bad else ""
                print(f"{name:20} {setting:20} {time.perf_counter() - begun:6.1f} s  {says}{mark}", flush=True)
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
