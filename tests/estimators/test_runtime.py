"""How computations run: the user's own JAX is left alone, programs are kept between processes, progress is shown."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp import ChoiceGPError
from choicegp.estimators import runtime
from choicegp.estimators.runtime import SMALL, computing, linear_algebra_for, progress_report

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
mine = jax.jit(lambda x: x / 3)
before = mine(jnp.ones(2))
from choicegp import ChoiceData, ChoiceGP
X = np.arange(6.0)[:, None]
data = ChoiceData.from_pairs(X, [[i, j] for i in range(6) for j in range(i)])
model = ChoiceGP(n_utilities=1, n_restarts=1, max_iter=30).fit(data)
after = mine(jnp.ones(2))
assert before.dtype == after.dtype == jnp.zeros(1).dtype == np.float32, "the user's own numbers stay as they were"
assert model.posterior_.mean.dtype == model.utilities(X).mean.dtype == np.float64
print(repr(model.elbo_), model.utilities(X).mean.tobytes().hex())
"""


def run(script: str, folder: Path, cache: str) -> str:
    """Run a script in a process of its own, whose home is an empty folder; return what it prints."""
    names = ("JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"CHOICEGP_CACHE": cache, "HOME": str(folder), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-W", "error", "-c", script]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# Settings of JAX


@pytest.mark.parametrize("wide", [False, True])
def test_precision_is_put_back(wide):
    with jax.enable_x64(wide):
        before = jnp.zeros(1).dtype
        with computing():
            assert jnp.zeros(1).dtype == np.float64
        assert jnp.zeros(1).dtype == before
        with pytest.raises(ZeroDivisionError), computing():
            raise ZeroDivisionError
        assert jnp.zeros(1).dtype == before


def test_a_fit_is_the_same_in_a_program_of_single_precision(quick, data, model):
    with jax.enable_x64(False):
        single = quick().fit(data)
        assert single.posterior_.gain.dtype == np.float64
        assert all(
            np.array_equal(a, b) for a, b in zip(single.predict_proba(data), model.predict_proba(data), strict=True)
        )
        assert jnp.ones(2).dtype == np.float32
    assert single.elbo_ == model.elbo_


STRICT = {
    "dtypes": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "nans": lambda: jax.debug_nans(True),
    "infinities": lambda: jax.debug_infs(True),
    "transfers": lambda: jax.transfer_guard("disallow"),
}


@pytest.mark.parametrize("name", STRICT)
def test_a_fit_is_the_same_in_a_strict_program(name, quick, data, model):
    with STRICT[name]():
        strict = quick().fit(data)
        strict.recommend(data)
    assert strict.elbo_ == model.elbo_


def test_models_can_be_used_in_threads(model, data):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(model.log_prob(data)))
    thread.start()
    thread.join()
    assert np.array_equal(answers[0], model.log_prob(data))


# Devices


@pytest.mark.parametrize("device", ["tpu", "GPU", None, 0, ["cpu"]])
def test_unknown_devices_are_refused(device):
    with pytest.raises(ChoiceGPError, match="device must be 'auto', 'cpu' or 'gpu'"), computing(device):
        pass


def test_the_cpu_is_always_there():
    with computing("cpu"):
        assert jnp.zeros(1).device.platform == "cpu"


def test_a_missing_gpu_is_named(quick, data):
    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this machine has one")
    with pytest.raises(ChoiceGPError, match="no gpu device was found: use device='auto' or device='cpu'"):
        quick(device="gpu").fit(data)


# Programs kept between processes


def test_a_second_process_uses_the_kept_programs_and_agrees(tmp_path):
    cache = tmp_path / "programs"
    first = run(SCRIPT, tmp_path, str(cache))
    # Small programs are kept or not, as long as they happen to take.
    kept = sorted(path.name for path in cache.rglob("jit__run_block*-cache"))
    assert len(kept) == 1, "the heart of a fit is compiled once"
    assert run(SCRIPT, tmp_path, str(cache)) == first
    assert sorted(path.name for path in cache.rglob("jit__run_block*-cache")) == kept
    assert {path.name for path in tmp_path.iterdir()} == {"programs"}, "nothing was written anywhere else"


WHERE = """
import jax
from choicegp.estimators.runtime import computing
with computing():
    pass
print(jax.config.jax_compilation_cache_dir)
"""


def test_no_programs_are_kept_when_that_is_wanted(tmp_path):
    assert run(WHERE, tmp_path, "off").strip() == "None"
    assert not any(tmp_path.iterdir())


@pytest.fixture
def no_cache_yet():
    """Take back where JAX keeps programs, and put it back after the test."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("no_cache_yet")
def test_where_programs_are_kept(tmp_path, monkeypatch):
    def place() -> str | None:
        jax.config.update("jax_compilation_cache_dir", None)
        with computing():
            return jax.config.jax_compilation_cache_dir

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "a" / "b"))
    assert place() == str(tmp_path / "a" / "b")
    monkeypatch.setenv("CHOICEGP_CACHE", "off")
    assert place() is None
    monkeypatch.delenv("CHOICEGP_CACHE")
    assert place() == str(tmp_path / "xdg" / "choicegp" / "compiled")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert place() == str(tmp_path / "home" / ".cache" / "choicegp" / "compiled")
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "file"))
    assert place() is None, "a place that cannot be written to is passed over"


@pytest.mark.usefixtures("no_cache_yet")
def test_the_users_own_place_for_programs_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "ours"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    with computing():
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    assert not (tmp_path / "ours").exists()


# Threads of the linear algebra


def blas_threads() -> set[int]:
    from threadpoolctl import threadpool_info

    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_small_matrices_take_one_thread():
    before = blas_threads()
    with linear_algebra_for(SMALL):
        assert blas_threads() <= {1}
    assert blas_threads() == before
    with linear_algebra_for(SMALL + 1):
        assert blas_threads() == before


# Progress


def test_progress_is_shown_on_standard_error_or_not_at_all(quick, data, capsys):
    quick(progress=False).fit(data)
    quick(progress="auto").fit(data)
    assert capsys.readouterr() == ("", "")
    quick(progress=True).fit(data)
    out, err = capsys.readouterr()
    assert out == ""
    assert "start 1 of 1" in err
    assert "step 30" in err
    assert "ELBO -" in err
    quick(progress=True, max_iter=60).fit(data)
    assert "fit" in capsys.readouterr().err


def test_progress_is_automatic_on_a_terminal(monkeypatch):
    class Terminal:
        encoding = "utf-8"
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    terminal = Terminal()
    monkeypatch.setattr(runtime.sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_report("auto", 10) as report:
        assert report is not None
        report("fit", 3, -12.345)
    assert "-12.3" in terminal.text
    with progress_report(False, 10) as report:
        assert report is None


def test_progress_needs_no_standard_error(monkeypatch):
    monkeypatch.setattr(runtime.sys, "stderr", None)
    with progress_report("auto", 10) as report:
        assert report is None
