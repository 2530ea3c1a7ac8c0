"""Compiled programs: kept between processes, loaded whole or not at all, and never believed when they are damaged."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.compute import programs
from choicegp.compute.devices import with_settings_of_this_thread
from choicegp.compute.programs import program
from choicegp.kernels import RBF

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
mine = jax.jit(lambda x: x / 3)
before = mine(jnp.ones(2))
from choicegp import ChoiceData, ChoiceGP
X = np.arange(6.0)[:, None]
data = ChoiceData.from_pairs(X, [[i, j] for i in range(6) for j in range(i)])
model = ChoiceGP(n_utilities=1, intervals='none', object_effects=False, n_restarts=1, max_iter=30).fit(data)
after = mine(jnp.ones(2))
assert before.dtype == after.dtype == jnp.zeros(1).dtype == np.float32, "the user's own numbers stay as they were"
assert model.posterior_.mean.dtype == model.utilities(X).mean.dtype == np.float64
print(repr(model.elbo_), model.utilities(X).mean.tobytes().hex())
"""


def run(script: str, folder: Path, cache: str) -> str:
    """Run a script in a process of its own, whose home is an empty folder; return what it prints.

    It must print nothing on standard error: XLA's loader would, about every program that it loads.
    """
    names = ("JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME", "TF_CPP_MIN_LOG_LEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"CHOICEGP_CACHE": cache, "HOME": str(folder), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-W", "error", "-c", script]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


class Pair(NamedTuple):
    """Something that is no plain tuple."""

    root: jax.Array
    total: jax.Array


def rooted(arrays: dict, shift: jax.Array) -> Pair:
    root = jnp.linalg.cholesky(arrays["matrix"] + shift * jnp.eye(2))
    return Pair(root, root.sum())


def powered(x: jax.Array, n: int) -> jax.Array:
    return x**n


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Keep programs in an empty folder."""
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


ARGUMENTS = ({"matrix": np.array([[3.0, 1.0], [1.0, 2.0]])}, 1.0)
WANTED = np.linalg.cholesky([[4.0, 1.0], [1.0, 3.0]])


def loaded_anew(monkeypatch):
    """Return the program as a later process would have it, and see to it that it is not compiled."""
    later = program(rooted)
    monkeypatch.setattr(later, "_traced", None)
    return later


def test_a_program_computes_what_its_function_does(folder):
    result = program(rooted)(*ARGUMENTS)
    assert isinstance(result, Pair)
    np.testing.assert_allclose(result.root, WANTED)
    np.testing.assert_allclose(result.total, WANTED.sum())
    [file] = folder.iterdir()
    assert file.name.startswith("rooted-")


def test_a_kept_program_is_neither_traced_nor_compiled(folder, monkeypatch):
    first = program(rooted)(*ARGUMENTS)
    again = loaded_anew(monkeypatch)(*ARGUMENTS)
    assert isinstance(again, Pair)
    assert np.array_equal(again.root, first.root)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "foreign"])
def test_a_damaged_program_is_compiled_again(damage, folder):
    program(rooted)(*ARGUMENTS)
    [file] = folder.iterdir()
    whole = file.read_bytes()
    half = len(whole) // 2
    file.write_bytes(
        {
            "truncated": whole[:half],
            "changed": whole[:half] + b"?" + whole[half + 1 :],
            "empty": b"",
            "foreign": b"PK" + bytes(100),
        }[damage]
    )
    np.testing.assert_allclose(program(rooted)(*ARGUMENTS).root, WANTED)
    assert file.read_bytes()[:32] != bytes(32), "and kept again"
    assert len(file.read_bytes()) > half


def test_other_shapes_types_and_static_values_are_other_programs(folder):
    power = program(powered, static="n")
    assert power(np.array([2.0]), 3) == 8.0
    assert power(np.array([2.0]), 2) == 4.0
    assert power(np.array([2.0, 3.0]), 2).tolist() == [4.0, 9.0]
    assert power(np.array([2], dtype=np.int32), 2).dtype == np.int32
    assert len(list(folder.iterdir())) == 4


def test_a_program_can_be_part_of_another():
    power = program(powered, static="n")
    assert float(jax.grad(lambda x: power(x, 3))(2.0)) == 12.0


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"xla_no_such_thing": 1, "xla_backend_optimization_level": 1}, {"xla_backend_optimization_level": 1}),
        ({"xla_no_such_thing": 1}, None),
        ({"xla_backend_optimization_level": "high"}, None),
    ],
)
def test_an_option_that_xla_refuses_is_left_out_alone(options, left, monkeypatch):
    tried = []
    compiled = jax.stages.Lowered.compile

    def noted(lowered, given=None):
        tried.append(given)
        return compiled(lowered, given)

    monkeypatch.setenv("CHOICEGP_CACHE", "off")
    monkeypatch.setattr(programs, "_OPTIONS", {"cpu": options})
    monkeypatch.setattr(jax.stages.Lowered, "compile", noted)
    jax.config.update("jax_disable_most_optimizations", False)  # as it is for users; set back after each test
    np.testing.assert_allclose(program(rooted)(*ARGUMENTS).root, WANTED)
    assert tried == [options, left]


def test_what_runs_seldom_is_compiled_soon_where_it_is_small(monkeypatch):
    tried = []
    compiled = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda own, given=None: tried.append(given) or compiled(own, given)
    )
    monkeypatch.setenv("CHOICEGP_CACHE", "off")
    monkeypatch.setattr(programs, "_OPTIONS", {"cpu": {programs._LEVEL: 1}})
    jax.config.update("jax_disable_most_optimizations", False)
    for most, seldom in ((programs._FEW_NUMBERS, True), (1, True), (programs._FEW_NUMBERS, False)):
        monkeypatch.setattr(programs, "_FEW_NUMBERS", most)
        np.testing.assert_allclose(program(rooted, seldom=seldom)(*ARGUMENTS).root, WANTED)
    assert tried == [{programs._LEVEL: level} for level in (0, 1, 1)]


def test_whoever_asks_jax_for_few_optimisations_gets_them(monkeypatch):
    tried = []
    compiled = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda own, given=None: tried.append(given) or compiled(own, given)
    )
    monkeypatch.setenv("CHOICEGP_CACHE", "off")
    monkeypatch.setattr(programs, "_OPTIONS", {"cpu": {"xla_backend_optimization_level": 1}})
    for few in (False, True):
        jax.config.update("jax_disable_most_optimizations", few)
        np.testing.assert_allclose(program(rooted)(*ARGUMENTS).root, WANTED)
    assert tried == [{"xla_backend_optimization_level": 1}, None]


def test_code_that_is_in_no_file_is_not_kept(folder):
    made: dict = {"__name__": "nowhere"}
    exec("def halved(x):\n    return x / 2", made)
    assert program(made["halved"])(np.ones(2)).tolist() == [0.5, 0.5]
    assert not any(folder.iterdir())


def test_the_key_is_that_of_the_sources(folder, monkeypatch):
    asked = []

    def digest(modules):
        asked.append(set(modules))
        return "of other sources"

    covariance = program(lambda kernel, X: kernel.gram(X, X))
    X = np.array([[0.0], [2.0]])
    covariance(RBF(), X)
    monkeypatch.setattr(programs, "digest_of_sources", digest)
    monkeypatch.setattr(covariance, "_executables", {})
    covariance(RBF(), X)
    assert asked == [{__name__, "choicegp.model.kernels"}], "a kernel's own module counts, imported or not"
    assert len(list(folder.iterdir())) == 2


def test_programs_of_a_users_own_classes_are_not_kept(folder):
    def made(power):
        class Mine(RBF):
            def of_squared_distance(self, r2):
                return jnp.exp(-(r2**power))

        return Mine()

    covariance = program(lambda kernel, X: kernel.gram(X, X))
    X = np.array([[0.0], [2.0]])
    first, second = (float(covariance(made(power), X)[0, 1]) for power in (1.0, 2.0))
    assert first == pytest.approx(np.exp(-4.0))
    assert second == pytest.approx(np.exp(-16.0))
    assert not any(folder.iterdir())
    covariance(RBF(), X)
    assert len(list(folder.iterdir())) == 1


TWO_DEVICES = """
import numpy as np, jax
from choicegp.compute.programs import cache_folder, program
from choicegp.inference.posterior import Factor
double = program(lambda factor: Factor(2 * factor.root, factor.jitter, factor.covariance))
with jax.enable_x64(True), jax.default_device(jax.devices()[1]):
    print(double(Factor(np.ones(2), np.ones(1), np.ones(2))).root.devices(), len(jax.devices()))
"""


def test_programs_are_loaded_onto_the_device_in_use(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    (tmp_path / "doubling.py").write_text(TWO_DEVICES)  # code that is in no file is not kept
    first = run("import doubling", tmp_path, str(tmp_path / "kept"))
    assert first.split()[-1] == "2"
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert run("import doubling", tmp_path, str(tmp_path / "kept")) == first


def test_settings_go_over_to_another_thread():
    with jax.enable_x64(False), jax.numpy_rank_promotion("raise"):
        told = []
        work = with_settings_of_this_thread(
            lambda: told.append((jnp.zeros(1).dtype, jax.config.jax_numpy_rank_promotion))
        )
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert told == [(np.float32, "raise")]


def test_a_second_process_uses_the_kept_programs_and_agrees(tmp_path):
    """The user's own script imports JAX first; another one leaves that to the package."""
    cache = tmp_path / "programs"
    first = run(SCRIPT, tmp_path, str(cache))
    run("from choicegp import ChoiceData\n" + SCRIPT, tmp_path, str(cache))
    kept = {path.name: path.read_bytes() for path in cache.iterdir()}
    assert sum(name.startswith("run_block-") for name in kept) == 1, "the heart of a fit is compiled once"
    assert run(SCRIPT, tmp_path, str(cache)) == first
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == kept
    assert {path.name for path in tmp_path.iterdir()} == {"programs"}, "nothing was written anywhere else"


def test_no_programs_are_kept_when_that_is_wanted(tmp_path):
    run(SCRIPT, tmp_path, "off")
    assert not any(tmp_path.iterdir())
