"""The real process: signals, exit status, what it says when it cannot start."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
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
        command += ["--cdi-directory", str(rig.directory / "cdi"), *arguments]
        if not any(argument.startswith("--config-dir") for argument in arguments):
            command += ["--config-file", str(rig.config_file)]
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


class ConfigMap:
    """A ConfigMap's volume of several configs, as kubelet writes it: a key that goes takes its link with it."""

    def __init__(self, path):
        self.path, self.number = path, 0

    def write(self, **configs):
        self.number += 1
        revision, current = self.path / f"..2026_{self.number}", self.path / "..data"
        revision.mkdir(parents=True)
        for key, text in configs.items():
            (revision / key).write_text(text)
        old = current.resolve() if current.exists() else None
        (self.path / "..data_tmp").symlink_to(revision.name)
        (self.path / "..data_tmp").rename(current)
        for link in [path for path in self.path.iterdir() if not path.name.startswith("..") and path.name not in configs]:
            link.unlink()
        for key in configs:
            if not (self.path / key).is_symlink():
                (self.path / key).symlink_to(f"..data/{key}")
        if old is not None:
            shutil.rmtree(old)


def shared(fast, replicas):
    return fast(f"sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n")


@pytest.mark.parametrize("flags", [("--config-poll-interval=1h",), ("--config-poll-interval=200ms", "--file-notifications=false")])
async def test_the_config_of_this_node_is_followed_among_several(rig, fast, start, flags):
    """The key asked for counts, and an edit under the same key does too, of which NVIDIA's sidecar tells nobody; a switch after an
    edit crashed it (NVIDIA/k8s-device-plugin#364). A key that goes leaves its config in force until it is back."""
    node = rig("l4x4")
    volume = ConfigMap(node.directory / "configs")
    volume.write(a=shared(fast, 2), b=shared(fast, 3))
    async with node.kubelet:
        process = start(node, "l4x4", f"--config-dir={volume.path}", "--config-name=b", "--default-config=a", *flags)
        await node.kubelet.wait_allocatable(GPU, 12, 20)
        volume.write(a=shared(fast, 5), b=shared(fast, 4))
        await node.kubelet.wait_allocatable(GPU, 16)
        volume.write(a=shared(fast, 6))
        await node.wait(lambda: any(entry["event"] == "config.vanished" for entry in process.log()))
        assert len(node.healthy()) == 16
        volume.write(a=shared(fast, 6), b=shared(fast, 2))
        await node.kubelet.wait_allocatable(GPU, 8)
        assert node.registrations() == 1


async def test_without_a_name_the_fallbacks_choose_anew_after_each_edit(rig, fast, start):
    """No name and no default is a choice too, where NVIDIA's plugin waited for a change that never came
    (NVIDIA/k8s-device-plugin#1540): the key `default`, else the only one, else no config, whichever fits by now."""
    node = rig("l4x4")
    volume = ConfigMap(node.directory / "configs")
    volume.write(only=shared(fast, 2))
    fallbacks = "--fallback-strategies=named,single,empty"
    async with node.kubelet:
        process = start(node, "l4x4", f"--config-dir={volume.path}", fallbacks, "--config-poll-interval=200ms")
        await node.kubelet.wait_allocatable(GPU, 8, 20)
        volume.write(only=shared(fast, 2), default=shared(fast, 3))
        await node.kubelet.wait_allocatable(GPU, 12)
        volume.write(one=shared(fast, 4), another=shared(fast, 5))
        await node.kubelet.wait_allocatable(GPU, 4)
        loaded = [entry["path"] for entry in process.log() if entry["event"] == "config.loaded"]
        assert loaded == [str(volume.path / "only"), str(volume.path / "default"), ""]


async def test_a_fault_can_be_played_on_a_staging_node(rig, fast, start, profile):
    """Nobody could trigger a GPU fault to test the chain behind it (NVIDIA/k8s-device-plugin#502): a profile's script does, through
    the same code as a real one, up to kubelet and back."""
    node = rig(config=fast())
    wants_reset = {"do": "set", "gpu": 1, "values": {"recoveryAction": "reset"}}
    was_reset = {"do": "set", "gpu": 1, "values": {"recoveryAction": "none"}}
    faults = {"atSeconds": 1} | wants_reset, {"atSeconds": 1, "do": "xid", "gpu": 1, "xid": 95}, {"atSeconds": 3} | was_reset
    async with node.kubelet:
        process = start(node, profile(*faults))
        await node.kubelet.wait_allocatable(GPU, 2, 20)
        await node.kubelet.wait_allocatable(GPU, 1)
        assert [entry["xid"] for entry in process.log() if entry["event"] == "xid.received"] == [95]
        await node.kubelet.wait_allocatable(GPU, 2)


def test_a_sigterm_that_comes_during_the_imports_ends_the_process():
    """For the first process of a container the kernel has no default: the signal was lost, the plugin came up all the same, and was
    killed when its pod's time to end was over."""
    program = """
        import os, signal
        from device_plugin import cli

        cli.import_module = lambda _: os.kill(os.getpid(), signal.SIGTERM)
        cli.main(["run"])
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=20, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
