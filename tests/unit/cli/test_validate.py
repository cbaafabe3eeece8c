"""`validate`: every problem of every file, each at its place, in the form that editors and CI read."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

CONFIGS = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))
PLACED = re.compile(r"^.+:[1-9]\d*:[1-9]\d*: (error|warning|info): \S")


@pytest.fixture
def file(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_the_shipped_configs_are_ok(run_command, config):
    finished = run_command("validate", str(config))
    *notices, last = finished.out.splitlines()
    assert (finished.status, finished.err, last) == (0, "", f"{config}: ok")
    assert all(PLACED.match(line) and ": error: " not in line for line in notices)


def test_all_problems_of_all_files_in_one_go(run_command, file):
    """With a file that is wrong nothing but problems is printed, each at its place, in the order of files and lines."""
    first = file("a.yaml", "version: v1\nflags:\n  migStratgy: mixed\n  failOnInitError: yes\n")
    good, second = file("b.yaml", "version: v1\n"), file("c.yaml", "version: v2\n")
    finished = run_command("validate", first, good, second, str(Path(good).parent / "none.yaml"))
    assert finished.status == 1
    assert finished.err == ""
    places = [re.match(r"(.+?:\d+:\d+): error: ", line)[1] for line in finished.out.splitlines()]
    assert places == [f"{first}:3:3", f"{first}:4:20", f"{second}:1:10", f"{good.replace('b.yaml', 'none.yaml')}:1:1"]
    assert "did you mean 'migStrategy'?" in finished.out


def test_several_good_files_are_ok_each(run_command, file):
    good, better = file("a.yaml", ""), file("b.yaml", "version: v1\n")
    finished = run_command("validate", good, better)
    assert (finished.status, finished.out, finished.err) == (0, f"{good}: ok\n{better}: ok\n", "")


def test_a_file_that_means_more_here_than_for_nvidias_plugin_is_ok_and_says_so(run_command, file):
    text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, rename: nvidia.com/half}]}}\n"
    path = file("c.yaml", text)
    finished = run_command("validate", path)
    assert finished.status == 0
    notice, last = finished.out.splitlines()
    assert re.match(rf"{re.escape(path)}:1:\d+: info: here these take effect, while NVIDIA's plugin ignores them: ", notice)
    assert last == f"{path}: ok"


WHOLE_FILES = {
    "missing": (None, "there is no such file"),
    "directory": ("directory", "cannot be read: it is a directory"),
    "fifo": ("fifo", "cannot be read: it is no regular file"),
    "loop": ("loop", "cannot be read: its links lead round in circles"),
    "latin": (b"version: v1\n# \xe9\n", "byte 0xe9 is not UTF-8"),
    "control": (b"version: v1\n\x00", "the character U+0000 is not allowed in YAML"),
    "list": (b"- version: v1\n", "expected "),
    "huge": (b"#" * (1024 * 1024 + 1), "cannot be read: it is larger than 1048576 bytes"),
    "unclosed": (b"flags: {migStrategy: none\n", ""),
}


@pytest.mark.parametrize("kind", WHOLE_FILES)
def test_what_is_wrong_with_a_whole_file_has_a_place_too(run_command, tmp_path, kind):
    content, message = WHOLE_FILES[kind]
    path = tmp_path / f"{kind}.yaml"
    match content:
        case bytes():
            path.write_bytes(content)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
    finished = run_command("validate", str(path))
    assert (finished.status, finished.err) == (1, "")
    [line] = finished.out.splitlines()
    assert PLACED.match(line)
    assert line.startswith(f"{path}:")
    assert f": error: {message}" in line


def test_a_file_that_may_not_be_read_has_a_place_too(run_command, file, monkeypatch):
    """Root may read everything, so the kernel's answer is put in its place."""
    path = file("secret.yaml", "version: v1\n")

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("device_plugin.config.source.os.open", refuse)
    finished = run_command("validate", path)
    assert (finished.status, finished.out) == (1, f"{path}:1:1: error: cannot be read: permission denied\n")


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict", "latin-1:strict", "ascii:surrogateescape"])
def test_what_the_output_cannot_show_does_not_end_the_command(start_process, tmp_path, encoding):
    """A name that is not UTF-8, or a character that the terminal does not have, was a traceback in the place of the problem."""
    (tmp_path / "\udcff.yaml").write_text('"€": 1\n', encoding="utf-8")
    process = start_process("validate", "\udcff.yaml", environment={"PYTHONIOENCODING": encoding})
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "")
    assert out.partition(":")[2].startswith("1:1: error: unknown key ")


def test_an_empty_name_is_no_file(run_command):
    finished = run_command("validate", "")
    assert (finished.status, finished.out) == (1, ":1:1: error: there is no such file\n")


@pytest.mark.parametrize(
    ("text", "status", "out"),
    [
        (b"version: v1\n", 0, "<stdin>: ok\n"),
        (b"", 0, "<stdin>: ok\n"),
        (b"version: v1\nflag: {}\n", 1, "<stdin>:2:1: error: unknown key 'flag'; did you mean 'flags'?\n"),
        (b"\xff", 1, "<stdin>:1:1: error: byte 0xff is not UTF-8\n"),
    ],
)
def test_standard_input_is_a_file_called_dash(run_command, monkeypatch, text, status, out):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    finished = run_command("validate", "-")
    assert (finished.status, finished.out, finished.err) == (status, out, "")


def test_a_problem_that_stands_nowhere_in_the_file_stands_at_its_start(run_command, file):
    """What is wrong with a default, or between values of which none was stated, has no line of its own."""
    path = file("c.yaml", "imex: {required: true}\n")
    finished = run_command("validate", path)
    assert finished.out
    assert all(PLACED.match(line) for line in finished.out.splitlines() if not line.endswith(": ok"))


def test_flags_and_variables_play_no_part(run_command, file):
    path = file("c.yaml", "version: v1\n")
    finished = run_command("validate", path, environment={"MIG_STRATEGY": "nonsense", "CONFIG_POLL_INTERVAL": "x"})
    assert (finished.status, finished.out) == (0, f"{path}: ok\n")
