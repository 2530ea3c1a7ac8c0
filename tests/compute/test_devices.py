"""Work that would be killed for lack of memory is refused, and a forked process does not wait for ever."""

import multiprocessing
import resource
import threading
import warnings

import jax
import pytest

from choicegp import ChoiceData, ChoiceGP
from choicegp.compute import devices
from choicegp.compute.devices import ahead, computing
from choicegp.errors import ChoiceGPError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a folder for the files in which a system with 1 GiB of free memory and no other limit describes itself."""
    monkeypatch.setattr(devices, "_PROC", tmp_path)
    monkeypatch.setattr(devices, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resource, "getrlimit", lambda name: (resource.RLIM_INFINITY,) * 2)
    (tmp_path / "meminfo").write_text("MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n")
    return tmp_path


def group(folder, limit, used, names=("memory.max", "memory.current"), files=0):
    folder.mkdir(parents=True)
    for name, text in zip((*names, "memory.stat"), (limit, used, f"inactive_file {files}\nanon 1\n"), strict=True):
        (folder / name).write_text(str(text))


def test_free_memory_of_the_machine(machine):
    assert devices.free_memory() == 2**30


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("cgroup", ("memory.max", "memory.current")),
        ("cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)
def test_a_container_counts_without_the_files_it_has_read(machine, place, names):
    group(machine / place, 512 * 2**20, 400 * 2**20, names, files=100 * 2**20)
    assert devices.free_memory() == 212 * 2**20


def test_swap_counts(machine):
    (machine / "meminfo").write_text("MemAvailable: 1024 kB\nSwapCached: 7 kB\nSwapTotal: 4096 kB\nSwapFree: 2048 kB\n")
    assert devices.free_memory() == 3 * 2**20


def test_what_gives_way_counts_with_the_groups_below(machine):
    folder = machine / "cgroup/memory"
    group(folder, 500, 400, ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    (folder / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 30\nslab_reclaimable 20\n")
    assert devices.free_memory() == 150


def test_a_group_below_the_root_counts(machine):
    (machine / "self").mkdir()
    (machine / "self" / "cgroup").write_text("9:cpu:/\n4:memory:/a/b\n0::/\n")
    group(machine / "cgroup/memory/a/b", 100, 30, ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    assert devices.free_memory() == 70


def test_a_group_without_a_limit_does_not(machine):
    group(machine / "cgroup", "max", 5)
    assert devices.free_memory() == 2**30


def test_a_system_that_says_nothing_refuses_nothing(machine):
    (machine / "meminfo").unlink()
    assert devices.free_memory() is None
    devices.check_memory(1e30, "this", "buy more")


def test_a_fit_that_would_be_killed_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda: 10 * 2**20)
    n = 1000
    data = ChoiceData.from_pairs([[float(i)] for i in range(n)], [[i, i + 1] for i in range(n - 1)])
    with pytest.raises(ChoiceGPError, match=r"at 1024 objects with inference='dense' needs at least 592 MiB of memory"):
        ChoiceGP(2, inference="dense").fit(data)


def test_too_little_address_space_is_named(machine, monkeypatch):
    (machine / "self").mkdir()
    (machine / "self" / "status").write_text("VmSize: 524288 kB\nVmData: 1024 kB\n")
    monkeypatch.setattr(resource, "getrlimit", lambda name: (2**30, 2**30))
    with pytest.raises(ChoiceGPError, match=r"leaves 512 MiB, and JAX reserves 1.0 GiB .*ulimit -v"):
        devices.check_room_to_start.__wrapped__()


def _in_a_fork(queue):
    try:
        with computing():
            queue.put("it computes")
    except ChoiceGPError as error:
        queue.put(str(error))


def test_a_fork_is_refused_instead_of_waiting():
    with computing():
        pass
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of JAX and Python, who say that this may hang
        process = context.Process(target=_in_a_fork, args=(queue,))
        process.start()
    assert "forked from one in which JAX had started" in queue.get(timeout=30)
    process.join(30)
    assert process.exitcode == 0


def test_work_ahead_is_done_in_order_with_the_settings_of_the_thread_that_asks():
    done, last = [], threading.Event()

    def piece(number):
        return lambda: done.append((number, jax.config.jax_enable_x64, threading.current_thread()))

    with jax.enable_x64(False), ahead([*map(piece, range(3)), last.set], 2):
        assert last.wait(10.0)
    assert [one[:2] for one in done] == [(0, False), (1, False), (2, False)]
    assert threading.current_thread() not in {one[2] for one in done}
    with ahead([piece(3)], 1):
        pass
    assert len(done) == 3, "one thread does nothing ahead"


def test_work_ahead_is_over_when_nobody_wants_it_any_more():
    begun, asked, done = threading.Event(), threading.Event(), []

    def piece():
        begun.set()
        assert asked.wait(10.0)
        done.append("the first")

    def interrupted():
        with ahead([piece, lambda: done.append("the second")], 2):
            assert begun.wait(10.0)
            raise KeyboardInterrupt

    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not done, "an interrupt waits for nothing"
    asked.set()
    for thread in set(threading.enumerate()) - set(before):
        thread.join(10.0)
    assert done == ["the first"]


def test_work_ahead_fails_in_silence(capfd):
    def fails():
        raise ValueError("it cannot be done")

    def pieces():
        yield fails
        raise AssertionError("nothing comes after")

    with ahead(pieces(), 2):
        pass
    assert capfd.readouterr() == ("", "")


def test_an_accelerator_is_left_only_where_nobody_asked_for_a_device(monkeypatch):
    cpu = jax.local_devices(backend="cpu")[0]
    assert jax.config.jax_default_device is None
    with devices.on_the_cpu():
        assert jax.config.jax_default_device is None, "there is nothing to leave"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with devices.on_the_cpu():
        assert jax.config.jax_default_device == cpu
        assert devices.with_settings_of_this_thread(lambda: jax.config.jax_default_device)() == cpu
    assert jax.config.jax_default_device is None
    monkeypatch.setattr(jax, "local_devices", lambda **_: pytest.fail("a device was asked for"))
    with jax.default_device(cpu), devices.on_the_cpu():
        assert jax.config.jax_default_device == cpu

    def nothing(**_):
        raise RuntimeError("JAX_PLATFORMS names no CPU")

    monkeypatch.setattr(jax, "local_devices", nothing)
    with devices.on_the_cpu():
        assert jax.config.jax_default_device is None


def test_work_in_threads_can_be_stopped():
    stopped = threading.Event()

    def work(number):
        if number == 0:
            raise KeyboardInterrupt
        assert stopped.wait(10.0)

    with pytest.raises(KeyboardInterrupt):
        devices.in_threads(work, range(2), 2, stopped.set)
    assert stopped.is_set()
