"""Mini-batches from a folder are those from memory: each set once in a pass, files read few times, few held at once."""

import threading

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceFolder
from choicegp.inference.sparse import feed as minibatches
from choicegp.inference.sparse.feed import Feed, InFolder, InMemory, all_of, shares

N_FILES, N_IN_FILE = 20, 30


def ragged(first_set, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, N_IN_FILE)
    k = np.repeat(np.arange(first_set, first_set + N_IN_FILE), sizes)
    frame = pd.DataFrame({"choice_id": k, "x": rng.normal(size=len(k)), "y": rng.normal(size=len(k))})
    frame["choice"] = (rng.random(len(k)) < 0.3) | ~frame["choice_id"].duplicated()
    return frame.assign(weight=1.0 + k % 3)


OPTIONS = {"object_id": None, "weight": "weight"}
CENTRE, SCALE = np.array([0.5, -0.5]), np.array([2.0, 1.0])


@pytest.fixture(scope="module")
def tables():
    return [ragged(N_IN_FILE * number, number) for number in range(N_FILES)]


@pytest.fixture(scope="module")
def folder(tables, tmp_path_factory):
    path = tmp_path_factory.mktemp("choices")
    for number, frame in enumerate(tables):
        frame.to_parquet(path / f"{number:02}.parquet", index=False)
    return ChoiceFolder(path, **OPTIONS)


@pytest.fixture
def source(folder):
    return InFolder(folder, CENTRE, SCALE)


@pytest.fixture(scope="module")
def in_memory(tables):
    return InMemory(ChoiceData.from_long(pd.concat(tables), **OPTIONS), CENTRE, SCALE)


@pytest.fixture
def reads(monkeypatch):
    """Count how often files are read."""
    files = []
    read = ChoiceFolder.read
    monkeypatch.setattr(ChoiceFolder, "read", lambda self, file: files.append(file) or read(self, file))
    return files


def test_the_sets_read_are_those_in_memory(source, in_memory):
    sets = np.random.default_rng(0).integers(0, len(source.sizes), 200)
    np.testing.assert_array_equal(source.sizes, in_memory.sizes)
    for ours, theirs in zip(source.read(sets, 6), in_memory.read(sets, 6), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_order_has_each_set_once_and_few_files_at_a_time(source):
    sets = np.flatnonzero(source.sizes > 2)
    order = source.order(sets, np.random.default_rng(3))
    np.testing.assert_array_equal(np.sort(order), sets)
    files = order // N_IN_FILE
    for start in range(0, len(order), 50):
        assert len(np.unique(files[start : start + 50])) <= 2 * minibatches._WINDOW
    assert len(np.unique(files[:50])) == minibatches._WINDOW, "files are mixed"


def test_the_order_depends_on_the_seed_alone(source):
    sets = np.arange(len(source.sizes))
    orders = [source.order(sets, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert np.any(orders[0] != orders[2])


def test_sets_of_other_sizes_come_from_the_same_files(source):
    small, large = (np.flatnonzero(chosen) for chosen in (source.sizes < 4, source.sizes >= 4))
    orders = [source.order(sets, np.random.default_rng(5)) // N_IN_FILE for sets in (small, large)]
    first = [set(order[: len(order) // 8]) for order in orders]
    assert first[0] == first[1]


def test_a_pass_reads_each_file_about_once_and_holds_few(source, reads):
    parts = shares(source.sizes, np.arange(len(source.sizes)), 60)
    assert len(parts) > 1
    for block in range(5):  # ten steps of 60 sets are a pass
        Feed(source, parts, 0, np.float64).steps(range(2 * block, 2 * block + 2))
        assert len(source._open) <= minibatches._KEPT
    assert set(reads) == set(range(N_FILES))
    assert len(reads) < 2 * N_FILES


def test_one_pass_has_each_set_once(source):
    sets = np.flatnonzero(source.sizes > 3)
    part = shares(np.where(source.sizes > 3, 5, 2), sets, 10)[0]
    n_steps = len(sets) // part.n_taken
    (read,) = Feed(source, [part], 0, np.float64).steps(range(n_steps))
    values = read.X[..., 0][read.present]
    assert len(np.unique(values)) == len(values)


def test_all_of_the_sets_are_those_in_memory(source, in_memory):
    sets = np.arange(0, len(source.sizes), 7)
    chunks = [list(all_of(own, sets, lambda size: 16, np.float64)) for own in (source, in_memory)]
    for ours, theirs in zip(*chunks, strict=True):
        np.testing.assert_array_equal(ours.X, theirs.X)
        np.testing.assert_array_equal(ours.weight, theirs.weight)


def test_threads_share_it(source, in_memory):
    rng = np.random.default_rng(0)
    wanted = [rng.integers(0, len(source.sizes), 60) for _ in range(4)]
    found = {}

    def work(number):
        found[number] = source.read(wanted[number], 6).X

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        np.testing.assert_array_equal(found[number], in_memory.read(wanted[number], 6).X)
    assert len(source._open) <= minibatches._KEPT
