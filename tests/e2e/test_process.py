"""The real process: signals, exit status, what it says when it cannot start."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"


class Process:
    """`gpu-device-plugin run --simulate` beside the stand-in kubelet of a Rig's directory."""

    def __init__(self, rig, profile, *arguments):
        self.errors = rig.directory / "stderr"
        command = [sys.executable, "-m", "device_plugin", "run", "--simulate", str(profile), "--log-format", "json"]
        command += ["--kubelet-socket", str(rig.sockets / "kubelet.sock"), "--pod-resources-socket", str(rig.pod_resources)]
        command += ["--cdi-directory", str(rig.directory / "cdi"), "--config-file", str(rig.config_file), *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "NVIDIA"))}
        with self.errors.open("wb") as errors:
            self.popen = subprocess.Popen(command, env=environment, stderr=errors)

    def log(self):
        lines = self.errors.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def end(self, number):
        """Send a signal; the exit status and the seconds until it."""
        began = time.monotonic()
        self.popen.send_signal(number)
        return self.popen.wait(10), time.monotonic() - began


@pytest.fixture
def start():
    started = []

    def make(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield make
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.wait()


@pytest.fixture
def profile(tmp_path):
    """A profile file with a script of faults."""

    def make(*faults):
        text = {"name": "pair", "driverVersion": "580.95.05", "cudaVersion": "13.0", "faults": list(faults)}
        text["gpus"] = [{"pci": f"0000:{number}b:00.0", "name": "NVIDIA L4"} for number in (1, 2)]
        path = tmp_path / "pair.yaml"
        path.write_text(yaml.safe_dump(text))
        return path

    return make


async def test_sighup_reloads_and_sigterm_ends_in_good_order(rig, fast, start):
    node = rig(config=fast())
    async with node.kubelet:
        process = start(node, "l4x4", "--config-poll-interval", "1h", "--file-notifications=false")
        await node.kubelet.wait_allocatable(GPU, 4, 20)
        node.write(fast("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"))
        process.popen.send_signal(signal.SIGHUP)
        await node.kubelet.wait_allocatable(GPU, 8)
        status, seconds = process.end(signal.SIGTERM)
        assert status == 0
        assert seconds < 5
        assert not list(node.sockets.glob("gpu-device-plugin-*.sock"))
        await node.wait(lambda: node.kubelet.record.of(Happening.STREAM_ENDED))
        events = [entry["event"] for entry in process.log()]
        assert events[-1] == "plugin.stopped"
        assert "resource.registered" in events


async def test_a_driver_call_that_hangs_does_not_hold_up_the_end(rig, fast, start, profile):
    node = rig(config=fast())
    async with node.kubelet:
        process = start(node, profile({"atSeconds": 1, "do": "hang", "call": "*"}))
        await node.kubelet.wait_allocatable(GPU, 2, 20)
        await node.kubelet.wait_allocatable(GPU, 0, 20)
        status, seconds = process.end(signal.SIGTERM)
        assert status == 0
        assert seconds < 5


async def test_what_is_wrong_with_the_config_is_on_stderr_and_the_status_is_1(rig, start):
    node = rig(config="version: v1\nflgs: {}\nhealth: {recoverAfter: soon}\n")
    node.sockets.mkdir()
    process = start(node, "l4x4")
    assert process.popen.wait(20) == 1
    problems = [entry["origin"] for entry in process.log() if entry["event"] == "problem.found"]
    assert problems == [f"{node.config_file}:2:1", f"{node.config_file}:3:24"]
    assert "Traceback" not in process.errors.read_text()
