"""`demo`: to its end, in colour where that is wanted, with nothing left behind."""

from __future__ import annotations

import re
import signal
import tempfile
from pathlib import Path

import pytest

from device_plugin.simulation import demo


def test_the_demo_runs_to_its_end_in_plain_text_and_leaves_nothing(start_process):
    """Standard output is a pipe here, so there are no escape codes. Its temporary files are in a directory of this test."""
    with tempfile.TemporaryDirectory(prefix="d-") as own:
        process = start_process("demo", environment={"TMPDIR": own})
        out, err = process.communicate(timeout=50)
        assert (process.returncode, err) == (0, "")
        assert list(Path(own).iterdir()) == []
    assert "\x1b" not in out
    assert "nvidia.com/gpu           capacity   8   allocatable   8" in out
    assert "pod train: 2 x nvidia.com/gpu -> GPU " in out
    assert "env NVIDIA_VISIBLE_DEVICES = GPU-" in out
    assert "pod notebook: 1 x nvidia.com/mig-3g.20gb -> MIG-" in out
    [seconds] = re.findall(r"^Done in ([0-9.]+) s\. ", out.splitlines()[-1])
    assert float(seconds) < 15, "longer than anybody watches"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_half_way_leaves_nothing_and_says_nothing(start_process, number):
    """SIGTERM crashed it in gRPC's clean-up, a terminal that was closed left its directories."""
    with tempfile.TemporaryDirectory(prefix="d-") as own:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
        process = start_process("demo", environment={"TMPDIR": own})
        signal.signal(signal.SIGINT, before)
        while "3. " not in process.stdout.readline():
            pass
        process.send_signal(number)
        _, err = process.communicate(timeout=50)
        assert (process.returncode, err) == (128 + number, "")
        assert list(Path(own).iterdir()) == []


def test_sockets_that_cannot_be_made_are_a_failure_with_a_reason(start_process, tmp_path):
    """A temporary directory whose path is too long for a socket."""
    directory = tmp_path / ("x" * 90)
    directory.mkdir()
    process = start_process("demo", environment={"TMPDIR": str(directory)})
    _, err = process.communicate(timeout=50)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("The demo failed: ")
    assert "Traceback" not in err
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "terminal", "environment", "colour"),
    [
        ((), True, {"TERM": "xterm"}, True),
        ((), True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ((), True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        ((), True, {"TERM": "dumb"}, False),
        ((), False, {"TERM": "xterm"}, False),
        (("--color=always",), False, {"NO_COLOR": "1"}, True),
        (("--color=never",), True, {"TERM": "xterm"}, False),
    ],
)
def test_colour_where_there_is_a_terminal_or_where_it_is_asked_for(run_command, monkeypatch, argv, terminal, environment, colour):
    told = []

    async def play(write, *, program: str, colour: bool) -> None:
        told.append(colour)
        write("a line")

    monkeypatch.setattr("device_plugin.cli.demo.play", play)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    finished = run_command("demo", *argv, environment=environment)
    assert (finished.status, finished.out, told) == (0, "a line\n", [colour])


@pytest.mark.parametrize(
    ("started", "interpreter", "expected"),
    [
        ("/opt/gpu-device-plugin/bin/gpu-device-plugin", "/opt/gpu-device-plugin/bin/python", "gpu-device-plugin"),
        ("{here}/device_plugin/__main__.py", "{here}/.venv/bin/python", ".venv/bin/python -m device_plugin"),
        ("{here}/device_plugin/__main__.py", "/usr/bin/python3", "/usr/bin/python3 -m device_plugin"),
    ],
)
def test_what_to_type_next_can_be_typed(run_command, monkeypatch, tmp_path, started, interpreter, expected):
    """Nothing in a checkout puts `gpu-device-plugin` on PATH."""

    async def play(write, *, program: str, colour: bool) -> None:
        write(program)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("device_plugin.cli.demo.play", play)
    monkeypatch.setattr("sys.argv", [started.format(here=tmp_path)])
    monkeypatch.setattr("sys.executable", interpreter.format(here=tmp_path))
    assert run_command("demo").out == f"{expected}\n"


def test_a_step_that_fails_is_status_1_and_one_line(run_command, monkeypatch):
    async def play(_write, *, program: str, colour: bool) -> None:
        raise demo.DemoFailed(f"a step in colour={colour}")

    monkeypatch.setattr("device_plugin.cli.demo.play", play)
    finished = run_command("demo", "--color=never")
    assert (finished.status, finished.out, finished.err) == (1, "", "The demo failed: a step in colour=False\n")
