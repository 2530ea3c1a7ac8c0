"""The log of runs: what was written is there again, whatever happened to who wrote it."""

import json
import math
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import choicegp
from choicegp.errors import ChoiceGPError
from choicegp.experiments.run_log import FIELDS, RunLog, failed_record, machine, outcome, plain, recorded_run, run_key


def record(seed, **values):
    made = failed_record({"seed": seed}, ValueError("no luck"))
    if not values:
        return made
    del made["error"]
    return made | {"status": "done", "values": values}


def kept(path):
    with RunLog(path) as log:
        return log.records


@pytest.fixture
def path(tmp_path):
    """Return the place of a log with two runs, of which one failed."""
    with RunLog(tmp_path / "toy.jsonl") as log:
        log.add(record(0, accuracy=0.1 + 0.2))
        log.add(record(1))
    return log.path


def test_what_was_written_is_read(path):
    with RunLog(path) as log:
        assert log.record({"seed": 0})["values"] == {"accuracy": 0.1 + 0.2}
        assert log.record({"seed": 1})["error"]["message"] == "no luck"
        assert log.record({"seed": 2}) is None


def test_the_order_of_settings_does_not_matter():
    assert run_key({"a": 1, "b": 2}) == run_key({"b": 2, "a": 1}) != run_key({"a": 1, "b": 2.5})


def test_settings_have_no_missing_numbers():
    with pytest.raises(ValueError, match="JSON compliant"):
        run_key({"lapse": math.nan})


def test_every_line_is_strict_json_on_the_disk_at_once(path):
    with RunLog(path) as log:
        log.add(record(2, x=math.nan))
        lines = path.read_text().splitlines()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    assert [json.loads(line, parse_constant=refuse)["settings"]["seed"] for line in lines] == [0, 1, 2]


def test_numbers_that_json_does_not_know_come_back(path):
    values = {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": "nan", "e": -0.0, "f": 1e-320}
    with RunLog(path) as log:
        log.add(record(2, **values))
    found = kept(path)[run_key({"seed": 2})]["values"]
    assert math.isnan(found["a"])
    assert found | {"a": 0} == values | {"a": 0}
    assert math.copysign(1, found["e"]) == -1


def test_such_a_word_in_a_message_is_left_alone(path):
    with RunLog(path) as log:
        log.add(failed_record({"seed": 3}, ValueError("NaN")))
    assert kept(path)[run_key({"seed": 3})]["error"]["message"] == "NaN"


def test_a_name_that_is_no_proper_text_can_be_written(path):
    with RunLog(path) as log:
        log.add(failed_record({"seed": 3}, ValueError("caf\udce9.csv")))
    assert kept(path)[run_key({"seed": 3})]["error"]["message"] == "caf\udce9.csv"


def test_the_last_line_of_a_run_counts(path):
    with RunLog(path) as log:
        log.add(record(1, accuracy=0.5))
    assert kept(path)[run_key({"seed": 1})]["status"] == "done"
    assert len(path.read_text().splitlines()) == 3, "a log only grows"


@pytest.mark.parametrize("left", [1, 20, -1])
def test_a_line_that_was_cut_is_removed_and_the_next_is_whole(path, left):
    whole = path.read_bytes()
    line = json.dumps(record(2, x=1)).encode() + b"\n"
    path.write_bytes(whole + line[:left])
    with RunLog(path) as log:
        assert path.read_bytes() == whole
        assert len(log.records) == 2
        log.add(record(3, x=1))
    assert path.read_bytes().startswith(whole)
    assert list(kept(path)) == [run_key({"seed": seed}) for seed in (0, 1, 3)]


@pytest.mark.parametrize("line", ["half a line", "[]", '{"settings": {"seed": 5}}', "5", ""])
def test_a_foreign_line_is_named(path, line):
    with path.open("a") as file:
        file.write(line + "\n")
    before = path.read_bytes()
    with pytest.raises(ChoiceGPError, match=r"toy\.jsonl, line 3 is not the record of a run"), RunLog(path):
        pass
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ChoiceGPError, match="nowhere"), RunLog(tmp_path / "nowhere" / "toy.jsonl"):
        pass


def test_a_full_disk_is_told(monkeypatch, path):
    def full(handle):
        raise OSError(28, "No space left on device")

    with RunLog(path) as log:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ChoiceGPError, match=r"toy\.jsonl: No space left on device"):
            log.add(record(2, x=1))
        assert log.record({"seed": 2}) is None


def test_one_process_at_a_time_and_a_dead_one_is_no_obstacle(path):
    code = (
        "import sys, time; from choicegp.experiments.run_log import RunLog\n"
        "with RunLog(sys.argv[1]): print('open', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(ChoiceGPError, match=r"toy\.jsonl is in use by another process"), RunLog(path):
            pass
    finally:
        other.kill()
        other.communicate()
    assert len(kept(path)) == 2


# One run and its record: nothing that happens in a run is lost, and everything is plain


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
