"""`run` and `kubelet`: as processes beside each other, their ends, and what `run` refuses."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from device_plugin.cli.run import configure_logs
from device_plugin.logs import get_logger

WAIT_SECONDS = 40.0


def events(lines: list[str]) -> list[dict]:
    return [json.loads(line) for line in lines]


def wait_for_event(process, event: str, **fields) -> list[dict]:
    """The process's log up to an event with these fields."""
    seen = []
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        line = process.stderr.readline()
        assert line, f"the process has ended: {seen}"
        seen.append(json.loads(line))
        if seen[-1]["event"] == event and fields.items() <= seen[-1].items():
            return seen
    raise AssertionError(f"no {event} with {fields}: {seen}")


@pytest.fixture
def sockets(tmp_path) -> list[str]:
    """Where `run` finds the stand-in kubelet, from the working directory of both."""
    return [
        "--kubelet-socket=k/kubelet.sock",
        "--pod-resources-socket=k/pod-resources/kubelet.sock",
        f"--cdi-directory={tmp_path}/cdi",
    ]


def test_a_stand_in_kubelet_and_the_plugin_as_two_processes(start_process, sockets, tmp_path):
    """It registers, kubelet gets the list, SIGTERM ends both with status 0, and no socket of the plugin is left."""
    kubelet = start_process("kubelet", "k")
    wait_for_event(kubelet, "kubelet.started", socket=f"{tmp_path}/k/kubelet.sock")
    plugin = start_process("run", "--simulate", "dgx-a100", *sockets)
    started = wait_for_event(plugin, "resource.registered", resource="nvidia.com/gpu")
    seen = wait_for_event(kubelet, "kubelet.observed", happening="list", devices=8, healthy=8)
    assert [entry["happening"] for entry in seen if entry["event"] == "kubelet.observed"] == [
        "started",
        "registered",
        "list",
    ]
    simulated = next(entry for entry in started if entry["event"] == "simulation.started")
    assert (simulated["level"], simulated["node"]) == ("warning", "dgx-a100")
    assert next(entry for entry in started if entry["event"] == "hardware.discovered")["simulated"] is True
    plugin.send_signal(signal.SIGTERM)
    _, rest = plugin.communicate(timeout=20)
    assert plugin.returncode == 0, rest
    assert events(rest.splitlines())[0] | {"timestamp": ""} == {
        "event": "plugin.stopping",
        "signal": "SIGTERM",
        "level": "info",
        "timestamp": "",
    }
    wait_for_event(kubelet, "kubelet.observed", happening="stream-ended")
    kubelet.send_signal(signal.SIGTERM)
    _, rest = kubelet.communicate(timeout=20)
    assert kubelet.returncode == 0, rest
    left = {path.name for path in (tmp_path / "k").iterdir()}
    assert {name for name in left if name.endswith(".sock")} == {"kubelet.sock"}
    assert not list(tmp_path.glob("simulated-node-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_other_signals_end_it_in_good_order_too(start_process, sockets, number, tmp_path):
    """Also while it still waits for kubelet: nobody serves the socket here."""
    (tmp_path / "k").mkdir()
    plugin = start_process("run", "--simulate=t4", *sockets)
    wait_for_event(plugin, "hardware.discovered")
    plugin.send_signal(number)
    plugin.communicate(timeout=20)
    assert plugin.returncode == 0


def test_it_waits_for_its_config_and_names_the_awaited_path(start_process, sockets, tmp_path):
    """NVIDIA/gpu-operator#412: a missing ConfigMap made the pod wait with no message."""
    (tmp_path / "k").mkdir()
    plugin = start_process("run", "--simulate=t4", "--config-file=c/config.yaml", "--config-poll-interval=200ms", *sockets)
    wait_for_event(plugin, "config.awaited", path="c/config.yaml")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/config.yaml").write_text("version: v1\n")
    wait_for_event(plugin, "config.loaded", path="c/config.yaml")


@pytest.fixture
def run(run_command, tmp_path):
    """`run` in this process, with all it writes below the test's directory. For what ends it at once."""
    (tmp_path / "k").mkdir()

    def run(*argv: str, log_format: str = "json"):
        return run_command(
            "run",
            f"--kubelet-socket={tmp_path}/k/kubelet.sock",
            f"--cdi-directory={tmp_path}/cdi",
            *argv,
            environment={"LOG_FORMAT": log_format},
        )

    return run


@pytest.fixture
def broken_config(tmp_path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("flags:\n  migStratgy: none\n  failOnInitError: yes\n")
    return path


def test_a_broken_config_ends_it_with_every_problem_in_the_log(run, broken_config):
    finished = run("--simulate=t4", f"--config-file={broken_config}")
    assert finished.status == 1
    found = [event for event in events(finished.err.splitlines()) if event["event"] == "problem.found"]
    assert [(event["level"], event["origin"]) for event in found] == [
        ("error", f"{broken_config}:2:3"),
        ("error", f"{broken_config}:3:20"),
    ]


def test_a_person_reads_the_place_of_each_problem_first(run, broken_config):
    finished = run("--simulate=t4", f"--config-file={broken_config}", log_format="text")
    assert finished.status == 1
    assert [line.partition(": error: ")[0] for line in finished.err.splitlines()[-2:]] == [
        f"{broken_config}:2:3",
        f"{broken_config}:3:20",
    ]


def test_without_a_driver_it_ends_as_fail_on_init_error_says(run, tmp_path):
    finished = run(f"--driver-root-ctr-path={tmp_path}")
    assert finished.status == 1
    last = events(finished.err.splitlines())[-1]
    assert (last["event"], last["level"]) == ("plugin.failed", "error")
    assert "no libnvidia-ml.so.1" in last["reason"]


def test_on_a_tegra_system_it_says_so_and_idles(start_process, sockets, tmp_path):
    """NVIDIA/k8s-device-plugin#1963: a Jetson whose library was not found kept the pod in a crash loop, whatever was wrong."""
    release = tmp_path / "host/etc/nv_tegra_release"
    release.parent.mkdir(parents=True)
    release.touch()
    (tmp_path / "k").mkdir()
    plugin = start_process("run", f"--driver-root-ctr-path={tmp_path}/host", "--fail-on-init-error", *sockets)
    away = wait_for_event(plugin, "driver.away")[-1]
    assert away["reason"].startswith("platform: Tegra systems (Jetson) are not supported and nothing is offered; found tegra (")
    assert str(release) in away["reason"]
    time.sleep(0.3)
    assert plugin.poll() is None
    plugin.send_signal(signal.SIGTERM)
    plugin.communicate(timeout=20)
    assert plugin.returncode == 0


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """The root of a made machine, in place of this one's."""
    root = tmp_path / "machine"
    root.mkdir()
    monkeypatch.setattr("device_plugin.cli.node.REAL_ROOT", root)
    return root


def test_simulated_gpus_are_refused_beside_real_ones(run, machine, tmp_path):
    """NVIDIA/k8s-test-infra#591: what is simulated must not reach the kubelet of a node that has GPUs."""
    device = machine / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    finished = run("--simulate=t4")
    assert finished.status == 1
    last = events(finished.err.splitlines())[-1]
    assert last["reason"] == (
        f"--simulate is refused: this machine has NVIDIA GPUs at 0000:3b:00.0, and {tmp_path}/k/kubelet.sock may be its kubelet"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node needs root")
def test_simulated_gpus_are_refused_where_the_driver_has_its_nodes(run, machine):
    """A container may see no PCI devices. The node's number is that of /dev/null."""
    (machine / "dev").mkdir()
    os.mknod(machine / "dev/nvidiactl", 0o600 | 0o020000, os.makedev(1, 3))
    finished = run("--simulate=t4")
    assert finished.status == 1
    assert "this machine has the NVIDIA driver's device nodes" in events(finished.err.splitlines())[-1]["reason"]


def test_an_unknown_profile_ends_it_and_names_the_shipped_ones(run):
    finished = run("--simulate=t44")
    assert finished.status == 1
    assert "dgx-a100" in finished.err


@pytest.mark.parametrize("terminal", [True, False])
def test_the_log_is_text_on_a_terminal_and_json_elsewhere(monkeypatch, capsys, terminal, run_command):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    assert configure_logs(argparse.Namespace(environment={})) == ("text" if terminal else "json")
    get_logger().info("something.happened", number=1)
    line = capsys.readouterr().err
    assert line.startswith("{") is not terminal
    assert configure_logs(argparse.Namespace(environment={}, log_format="json")) == "json"
    assert configure_logs(argparse.Namespace(environment={"LOG_FORMAT": "text"})) == "text"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_bug_is_logged_with_its_traceback(capsys, log_format):
    """Plain lines on a terminal, one field of the line elsewhere."""
    configure_logs(argparse.Namespace(environment={}, log_format=log_format))
    try:
        int("x")
    except ValueError as error:
        get_logger().error("task.failed", task="probes", exc_info=error)
    line = capsys.readouterr().err
    trace = json.loads(line)["exception"] if log_format == "json" else line
    assert "Traceback (most recent call last)" in trace
    assert "ValueError: invalid literal" in trace


@pytest.mark.parametrize("place", ["file/x", "long"])
def test_a_stand_in_kubelet_that_cannot_serve_says_why(run_command, tmp_path, place):
    (tmp_path / "file").write_text("")
    directory = tmp_path / (place if place != "long" else "x" * 120)
    finished = run_command("kubelet", str(directory), environment={"LOG_LEVEL": "error"})
    assert (finished.status, finished.out) == (1, "")
    assert finished.err.startswith(f'node: error: cannot serve as kubelet in "{directory}": ')
    assert len(finished.err.splitlines()) == 1


def test_a_stand_in_kubelet_refuses_the_directory_of_another(run_command, tmp_path):
    """At its start a kubelet deletes all sockets of its directory: a real one's must not be among them."""
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        served.listen()
        finished = run_command("kubelet", str(tmp_path))
        assert (finished.status, finished.err) == (1, f'node: error: a kubelet serves "{path}" already; give another directory\n')
        assert path.exists()


def test_a_reader_that_goes_away_is_no_traceback(start_process):
    """`plan | head -1`."""
    process = start_process("plan", "--simulate=t4", "-oyaml", environment={"LOG_LEVEL": "error"})
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr.read() == ""


def test_an_interrupted_command_ends_as_shells_expect(run_command, monkeypatch):
    def interrupted(_file):
        raise KeyboardInterrupt

    monkeypatch.setattr("device_plugin.cli.validate._problems", interrupted)
    assert run_command("validate", "x.yaml").status == 130
