import os

import pytest

from choicegp.errors import ChoiceGPError
from choicegp.files import check_place, replaced_when_complete


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    # As on a read-only file system: permissions alone do not stop root.
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
    with pytest.raises(ChoiceGPError, match=r"cannot write .*model.cgp: the folder .* does not allow it"):
        check_place(tmp_path / "model.cgp")


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for place in (tmp_path / "pipe", tmp_path / "link", os.devnull):
        with pytest.raises(ChoiceGPError, match="is a device, a pipe or a socket; name a file"):
            check_place(place)
    assert not os.path.isfile(os.devnull)


def test_links_stay_and_what_they_lead_to_is_written(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "link").symlink_to("models/second")
    (tmp_path / "models" / "second").symlink_to("third")
    for content in (b"new", b"again"):
        with replaced_when_complete(tmp_path / "link") as handle:
            handle.write(content)
        assert (tmp_path / "models" / "third").read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path / "models")) == ["second", "third"]
    (tmp_path / "short").symlink_to("x" * 240)
    with pytest.raises(ChoiceGPError, match=r"cannot write .*short: the name has more than 235 bytes"):
        check_place(tmp_path / "short")
    (tmp_path / ("y" * 240)).symlink_to("models/third")
    check_place(tmp_path / ("y" * 240))
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ChoiceGPError, match=r"cannot write .*circle: Too many levels of symbolic links"):
        check_place(tmp_path / "circle")


def test_a_name_that_is_no_text_can_be_written(tmp_path):
    with replaced_when_complete(tmp_path / os.fsdecode(b"caf\xe9")) as handle:
        handle.write(b"x")
    assert os.listdir(os.fsencode(tmp_path)) == [b"caf\xe9"]
