"""The state file: whole or not at all, and never a reason not to start."""

import json
import os

import pytest

from device_plugin.supervisor.state_file import FILE_NAME, StateFile, write_atomically


def test_what_was_written_is_read(tmp_path):
    StateFile(tmp_path).write({"health": {"a": 1}})
    assert StateFile(tmp_path).read() == ({"health": {"a": 1}}, None)


def test_no_file_is_no_problem(tmp_path):
    assert StateFile(tmp_path).read() == ({}, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff", b'"x"', b"\x00" * 10])
def test_what_cannot_be_used_is_said(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    sections, problem = StateFile(tmp_path).read()
    assert sections == {}
    assert str(tmp_path / FILE_NAME) in problem


def test_deep_nesting_is_unusable_not_fatal(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"[" * 100_000)
    sections, problem = StateFile(tmp_path).read()
    assert sections == {}
    assert problem


def test_a_directory_in_its_place_is_said(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    sections, problem = StateFile(tmp_path).read()
    assert sections == {}
    assert problem


@pytest.mark.timeout(10)
def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    """Nobody writes to it: the start would hang before its first word, and every restart after it."""
    os.mkfifo(tmp_path / FILE_NAME)
    sections, problem = StateFile(tmp_path).read()
    assert sections == {}
    assert problem == f"{tmp_path / FILE_NAME} is not usable and is ignored: [Errno 22] it is no regular file"


def test_the_same_content_is_not_written_twice(tmp_path):
    state = StateFile(tmp_path)
    state.write({"a": 1, "b": 2})
    inode = (tmp_path / FILE_NAME).stat().st_ino
    state.write({"b": 2, "a": 1})
    assert (tmp_path / FILE_NAME).stat().st_ino == inode


def test_a_failed_write_leaves_the_old_content_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_write_that_failed_is_tried_again(tmp_path, monkeypatch):
    state = StateFile(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError):
            state.write({"a": 1})
    state.write({"a": 1})
    assert json.loads((tmp_path / FILE_NAME).read_bytes()) == {"a": 1}


def test_only_its_owner_can_read_it(tmp_path):
    StateFile(tmp_path).write({})
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
