import os

import pytest

from choicegp.errors import ChoiceGPError
from choicegp.files import check_place


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    # As on a read-only file system: permissions alone do not stop root.
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
    with pytest.raises(ChoiceGPError, match=r"cannot write .*model.cgp: the folder .* does not allow it"):
        check_place(tmp_path / "model.cgp")
