"""One run and its record: nothing that happens in a run is lost, and everything is plain."""

import json
import os
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import choicegp
from choicegp.experiments.run_log import FIELDS, failed_record, machine, outcome, plain, recorded_run


@pytest.fixture
def running(monkeypatch):
    """Return a function that recorded_runs an experiment whose run is given."""

    def attempted(run, settings=None, data=None):
        monkeypatch.setitem(sys.modules, "given_experiment", SimpleNamespace(run=run))
        return recorded_run("given_experiment", settings or {"seed": 0}, data)

    return attempted


def test_a_run_that_is_done(running):
    record = running(lambda settings, data: {"seen": [settings, data]}, {"seed": 3, "model": "PGP"}, "tables")
    assert record["status"] == "done"
    assert record["settings"] == {"seed": 3, "model": "PGP"}
    assert record["values"] == {"seen": [{"seed": 3, "model": "PGP"}, "tables"]}
    assert record["version"] == choicegp.__version__
    assert record["seconds"] >= 0
    assert record["warnings"] == []
    assert "numpy" in record["software"]
    assert set(FIELDS) <= record.keys()
    assert outcome(record) == (record["settings"], record["values"], record["seconds"], choicegp.__version__)


def test_a_run_that_fails(running):
    def run(settings, data):
        raise ValueError("no luck")

    record = running(run)
    assert record["status"] == "failed"
    assert "values" not in record
    assert (record["error"]["type"], record["error"]["message"]) == ("ValueError", "no luck")
    assert record["error"]["traceback"][-1] == "ValueError: no luck"
    assert any("in run" in line for line in record["error"]["traceback"])
    assert set(FIELDS) <= record.keys()


def test_a_traceback_is_not_kept_whole(running):
    def run(settings, data):
        raise ValueError("\n".join(map(str, range(50))))

    assert running(run)["error"]["traceback"] == [str(n) for n in range(30, 50)]


def test_a_module_that_is_missing_is_a_failure():
    assert recorded_run("choicegp.experiments.nowhere", {"seed": 0}, None)["error"]["type"] == "ModuleNotFoundError"


def test_warnings_are_kept_each_once(running):
    def run(settings, data):
        for _ in range(2):
            warnings.warn("stopped at its limit", UserWarning, stacklevel=1)
        return {}

    assert running(run)["warnings"] == ["stopped at its limit"]


def test_a_protocol_may_extrapolate_without_a_warning(running):
    def run(settings, data):
        warnings.warn("2 of 6 objects lie outside", choicegp.ExtrapolationWarning, stacklevel=1)
        return {}

    assert running(run)["warnings"] == []


def test_an_interrupt_is_no_outcome(running):
    def run(settings, data):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running(run)


def test_numbers_of_numpy_become_plain():
    values = {
        "a": np.float64(0.1), "b": np.int32(3), "c": np.bool_(True), "d": np.arange(4.0).reshape(2, 2),
        "e": (1, np.str_("x")), "f": {"g": None},
    }  # fmt: skip
    made = plain(values)
    assert made == {"a": 0.1, "b": 3, "c": True, "d": [[0.0, 1.0], [2.0, 3.0]], "e": [1, "x"], "f": {"g": None}}
    assert json.loads(json.dumps(made)) == made
    assert [type(made[name]) for name in "abc"] == [float, int, bool]


def test_numbers_of_jax_become_plain():
    import jax.numpy as jnp

    assert plain([jnp.array(2.0), jnp.arange(2)]) == [2.0, [0, 1]]


@pytest.mark.parametrize(("value", "name"), [({1, 2}, "set"), (object(), "object"), (b"x", "bytes")])
def test_what_is_not_plain_is_refused(running, value, name):
    record = running(lambda settings, data: {"deep": [{"er": value}]})
    assert record["error"]["type"] == "TypeError"
    assert record["error"]["message"].endswith(f"not {name}")


def test_keys_that_are_no_texts_are_refused():
    with pytest.raises(TypeError, match="texts as keys, not 3"):
        plain({"by d": {3: 0.5}})


def test_what_no_worker_could_make_is_recorded():
    record = failed_record({"seed": 1}, RuntimeError("all workers died"))
    assert record["status"] == "failed"
    assert record["error"]["message"] == "all workers died"
    assert set(FIELDS) <= record.keys()


def test_the_machine_in_words(monkeypatch):
    import jax

    assert f"{os.cpu_count()} cores, JAX on " in machine()

    def nothing():
        raise RuntimeError("no backend")

    monkeypatch.setattr(jax, "devices", nothing)
    assert machine().endswith("no device for JAX")
