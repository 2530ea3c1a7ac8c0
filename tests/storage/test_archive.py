"""Archives of arrays: what is written can be read again, however tightly it could be packed."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.storage import archive
from choicegp.storage.archive import kind_of, read_archive, write_archive

ABOUT = {"format": "choicegp-test", "version": 1}


def test_columns_of_zeros_and_ones_are_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_LARGE", 2**16)
    levels = np.eye(300)[np.arange(400) % 300]
    path = tmp_path / "model.cgp"
    write_archive(path, {"X": levels}, ABOUT)
    found = read_archive(path, lambda arrays, about: arrays["X"], versions={"choicegp-test": 1})
    np.testing.assert_array_equal(found, levels)
    with zipfile.ZipFile(path) as made:
        assert made.getinfo("X.npy").compress_type == zipfile.ZIP_STORED
    write_archive(path, {"X": np.random.default_rng(0).normal(size=9000)}, ABOUT)
    with zipfile.ZipFile(path) as made:
        assert made.getinfo("X.npy").compress_type == zipfile.ZIP_DEFLATED
    with path.open("wb") as handle:
        np.savez_compressed(handle, X=levels, about=np.array("{}"))
    with pytest.raises(ChoiceGPError, match="unpack to"):
        read_archive(path, lambda arrays, about: None, versions={"choicegp-test": 1})


def test_a_page_that_would_fill_the_memory_is_not_unpacked_to_see_what_a_file_is(tmp_path):
    path = tmp_path / "model.cgp"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made, made.open("about.npy", "w") as page:
        header = {"descr": "<U75000000", "fortran_order": False, "shape": ()}
        np.lib.format.write_array_header_1_0(page, header)
        for _ in range(300):
            page.write(bytes(10**6))
    tracemalloc.start()
    try:
        assert kind_of(path) == ""
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
