"""The folder in which compiled programs are kept: where it is, whose, and how full it may be."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from choicegp.compute import programs
from choicegp.compute.programs import cache_folder, program


def doubled(x: jax.Array) -> jax.Array:
    return 2 * x


def is_compiled() -> bool:
    """Run the program as a new process would; say whether it was compiled, not loaded."""
    fresh = program(doubled)
    traced, lowered = fresh._traced, []

    class Noted:
        def lower(self, *args):
            lowered.append(args)
            return traced.lower(*args)

    fresh._traced = Noted()
    assert fresh(np.ones(2)).tolist() == [2.0, 2.0]
    return bool(lowered)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep one program in a new folder."""
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "kept"))
    assert is_compiled()
    assert not is_compiled()
    programs._warn_once.cache_clear()
    return tmp_path / "kept"


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_folder_and_files_are_the_owners_alone(tmp_path, monkeypatch, mask):
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "new" / "kept"))
    before = os.umask(mask)
    try:
        assert is_compiled()
    finally:
        os.umask(before)
    [file] = (tmp_path / "new" / "kept").iterdir()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not is_compiled()


@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(kept, bits):
    kept.chmod(bits)
    with pytest.warns(UserWarning, match="can write to it, .* set CHOICEGP_CACHE to a folder of your own") as warned:
        assert is_compiled()
    assert len(warned) == 1
    assert is_compiled(), "and warns no more: warnings are errors here"
    [file] = kept.iterdir()
    kept.chmod(0o700)
    assert not is_compiled()
    assert list(kept.iterdir()) == [file]


@pytest.mark.parametrize("bits", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_compiled_again_and_replaced(kept, bits):
    [file] = kept.iterdir()
    file.chmod(bits)
    assert is_compiled()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not is_compiled()


def test_what_another_user_owns_is_not_used(kept, monkeypatch):
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.warns(UserWarning, match="other users own this folder"):
        assert cache_folder() is None
    [file] = kept.iterdir()
    assert programs.load(file, (np.ones(2),), jax.devices()[0]) is None
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert programs.load(file, (np.ones(2),), jax.devices()[0]) is not None


def with_files(kept, **ages):
    """Make files of ten bytes, by the days since they were used; return what is left after a program was kept."""
    for name, days in ages.items():
        file = kept / name.replace("_", ".")
        file.write_bytes(bytes(10))
        used = time.time() - days * 24 * 3600
        os.utime(file, (used, used))
    programs._tidy.cache_clear()
    own = {file.name for file in kept.glob("doubled-*")}
    for file in kept.glob("doubled-*"):
        file.unlink()
    assert is_compiled()
    return {file.name for file in kept.iterdir()} - own


def test_programs_not_used_for_long_are_removed_and_files_of_others_left_alone(kept):
    left = with_files(kept, a_program=29, b_program=31, _c_program_0f_part=31, photo_jpg=400)
    assert left == {"a.program", "photo.jpg"}


def test_beyond_so_many_bytes_the_ones_not_used_for_longest_are_removed(kept, monkeypatch):
    [own] = kept.iterdir()
    monkeypatch.setattr(programs, "MOST_BYTES", own.stat().st_size + 25)
    left = with_files(kept, a_program=4, b_program=1, c_program=2, d_program=3)
    assert left == {"b.program", "c.program"}


def test_nothing_is_removed_a_second_time_in_a_process(kept, monkeypatch):
    monkeypatch.setattr(programs, "MOST_BYTES", 0)
    for n in range(3, 6):
        program(doubled)(np.ones(n))
    assert len(list(kept.iterdir())) == 4


def test_several_who_keep_one_program_at_once_leave_a_whole_one(kept):
    [file] = kept.iterdir()
    compiled = jax.jit(doubled).lower(np.ones(2)).compile()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: programs.keep(file, compiled), range(12)))
    loaded = programs.load(file, (np.ones(2),), jax.devices()[0])
    assert loaded(np.ones(2)).tolist() == [2.0, 2.0]
    assert list(kept.iterdir()) == [file], "no draft is left"


def test_where_programs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "a" / "b"))
    assert cache_folder() == tmp_path / "a" / "b"
    for nowhere in ("off", "OFF", "~nobody-of-this-name/programs"):
        monkeypatch.setenv("CHOICEGP_CACHE", nowhere)
        assert cache_folder() is None
    monkeypatch.delenv("CHOICEGP_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "choicegp" / "programs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "choicegp" / "programs"
    with monkeypatch.context() as nobody:
        nobody.setattr(os.path, "expanduser", lambda path: path)  # what Python does where nobody's home is known
        assert cache_folder() is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHOICEGP_CACHE", str(tmp_path / "file"))
    assert cache_folder() is None, "a place that cannot be written to is passed over"
