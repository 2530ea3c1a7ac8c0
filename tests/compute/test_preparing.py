"""Programs that are made ready before they are called."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.compute import programs
from choicegp.compute.devices import with_settings_of_this_thread
from choicegp.compute.programs import program


def halved(arrays: dict, shift: jax.Array) -> jax.Array:
    return jnp.sum(arrays["x"] / 2.0) + shift


ARGUMENTS = ({"x": np.array([3.0, 1.0])}, 1.0)
WANTED = 3.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Keep programs in an empty folder."""
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_a_prepared_program_is_there_when_it_is_called(folder, monkeypatch):
    found = program(halved)
    found.prepare({"x": np.zeros(2)}, 0.0)
    monkeypatch.setattr(found, "_traced", None)
    assert found(*ARGUMENTS) == WANTED


def test_a_program_that_another_thread_prepares_is_waited_for(folder, monkeypatch):
    found, begun, may_end, n_compiled = program(halved), threading.Event(), threading.Event(), []
    compiled = programs._compiled

    def slow(*args, **options):
        n_compiled.append(1)
        begun.set()
        assert may_end.wait(10.0)
        return compiled(*args, **options)

    monkeypatch.setattr(programs, "_compiled", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(with_settings_of_this_thread(found.prepare), *ARGUMENTS)
        assert begun.wait(10.0)
        second = pool.submit(with_settings_of_this_thread(found), *ARGUMENTS)
        assert not second.done()
        may_end.set()
        assert second.result() == WANTED
        assert first.result() is None
    assert len(n_compiled) == 1
    assert len(list(folder.iterdir())) == 1
