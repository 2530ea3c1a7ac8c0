"""How computations run: the user's own JAX is left alone, progress is shown."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp import ChoiceGPError
from choicegp.compute import progress as runtime
from choicegp.compute.devices import SMALL, computing, linear_algebra_for
from choicegp.compute.progress import progress_report

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


def test_a_value_that_is_not_known_is_not_shown_as_a_number(capsys):
    with progress_report(True, 10) as report:
        report("matching moments", 5, float("nan"))
    shown = capsys.readouterr().err
    assert "matching moments" in shown
    assert "nan" not in shown
