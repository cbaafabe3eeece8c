"""`plan`: what a node would offer, as a table and as data, with every problem, and a status that says whether all is right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.profile_file import PROFILES

CONFIGS = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))
SHIPPED = sorted(path.stem for path in PROFILES.glob("*.yaml"))
QUIET = {"LOG_LEVEL": "error"}


@pytest.fixture
def plan(run_command):
    return lambda *argv: run_command("plan", *argv, environment=QUIET)


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return f"--config-file={path}"

    return write


@pytest.mark.parametrize("profile", ["a100-mig-mixed", "dgx-h100"])
@pytest.mark.parametrize("shipped", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_has_a_plan(plan, profile, shipped):
    """Its exit status agrees with its problems, and every device offered is found at its GPU."""
    finished = plan("-ojson", f"--simulate={profile}", f"--config-file={shipped}")
    data = json.loads(finished.out)
    assert finished.err == ""
    assert finished.status == (1 if any(problem["severity"] == "error" for problem in data["problems"]) else 0)
    offered = sum(len(resource["devices"]) for resource in data["resources"])
    assert offered == sum(use["count"] for gpu in data["gpus"] for use in gpu["uses"])


@pytest.mark.parametrize("profile", SHIPPED)
def test_every_shipped_node_has_a_plan_that_says_it_is_simulated(plan, profile):
    """The table names every GPU and every resource."""
    argv = (f"--simulate={profile}", "--mig-strategy=mixed")
    data = json.loads(plan("-ojson", *argv).out)
    assert data["simulated"] is True
    assert [gpu["index"] for gpu in data["gpus"]] == list(range(len(data["gpus"])))
    finished = plan(*argv)
    assert finished.status == 0
    assert finished.out.startswith(f"This simulated node: {len(data['gpus'])} GPU")
    assert all(f"\n{resource['name']} " in finished.out for resource in data["resources"])
    assert all(f"  {gpu['uuid']}  " in finished.out for gpu in data["gpus"])
    assert "\x1b" not in finished.out


@pytest.mark.parametrize("profile", ["a100-mig-mixed", "rtx-mixed"])
def test_the_same_node_and_config_give_the_same_bytes_and_the_same_data_in_both_forms(plan, config, profile):
    argv = (f"--simulate={profile}", config("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"))
    as_json, as_yaml = plan("-ojson", *argv), plan("-oyaml", *argv)
    assert (plan("-ojson", *argv), plan("-oyaml", *argv)) == (as_json, as_yaml)
    assert json.loads(as_json.out) == yaml.safe_load(as_yaml.out)
    assert list(json.loads(as_json.out)) == ["simulated", "driverVersion", "resources", "gpus", "problems"]


def test_a_mixed_node_as_a_table(plan, config):
    finished = plan(
        "--simulate=t4",
        config(
            "sharing: {timeSlicing: {resources: [\n"
            "{name: nvidia.com/gpu, devices: [0], replicas: 10, rename: nvidia.com/gpu.shared},\n"
            "{name: nvidia.com/gpu, devices: [1, 9], replicas: 2}]}}\n"
        ),
    )
    lines = [" ".join(line.split()) for line in finished.out.splitlines()]
    assert lines[0] == "This simulated node: 4 GPUs, driver 580.95.05"
    assert lines[2:5] == [
        "RESOURCE DEVICES PREFERS LIST BYTES",
        "nvidia.com/gpu 4 distributed 242 of 4,194,304",
        "nvidia.com/gpu.shared 10 distributed 620 of 4,194,304",
    ]
    assert [line.split(" GPU-")[0] for line in lines[6:11]] == [
        "GPU PRODUCT UUID OFFERED AS",
        *(f"{i} NVIDIA T4" for i in range(4)),
    ]
    assert [line.partition(" GPU-")[2].partition(" ")[2] for line in lines[7:11]] == [
        "10 x nvidia.com/gpu.shared (shared)",
        "2 x nvidia.com/gpu (shared)",
        "1 x nvidia.com/gpu (whole)",
        "1 x nvidia.com/gpu (whole)",
    ]
    [difference] = [line for line in lines[11:] if "NVIDIA's plugin" in line]
    assert difference.endswith(
        "config.yaml:2:33: info: here these take effect: sharing.timeSlicing.resources[0].devices, "
        "sharing.timeSlicing.resources[0].rename, sharing.timeSlicing.resources[1].devices; this node offers nvidia.com/gpu: 4, "
        "nvidia.com/gpu.shared: 10. NVIDIA's plugin ignores them and would offer nvidia.com/gpu: 40"
    )
    assert any(re.search(r"config.yaml:3:\d+: warning: .*\b9\b", line) for line in lines[11:])
    assert finished.status == 0


@pytest.mark.parametrize("output", ["table", "json"])
def test_something_that_would_not_be_served_is_status_1_and_on_standard_output(plan, config, output):
    """A list over kubelet's limit, with the count that would fit."""
    finished = plan(
        "--simulate=t4", "-o", output, config("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 50000}]}}")
    )
    assert finished.status == 1
    assert "error" in finished.out
    assert "4,194,304" in finished.out or "4194304" in finished.out


def test_a_problem_as_data_has_its_place(plan, config):
    argument = config("sharing:\n  timeSlicing:\n    resources:\n      - {name: nvidia.com/gpu, replicas: 2, devices: [9]}\n")
    problems = json.loads(plan("--simulate=t4", "-ojson", argument).out)["problems"]
    unmet = next(problem for problem in problems if problem["kind"] == "unmet")
    assert {key: unmet[key] for key in ("severity", "source", "line", "path")} == {
        "severity": "warning",
        "source": argument.partition("=")[2],
        "line": 4,
        "path": "sharing.timeSlicing.resources[0].devices[0]",
    }
    assert unmet["column"] > 1


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_a_broken_config_has_no_plan_and_every_problem(plan, config, output):
    argument = config("flags:\n  migStratgy: none\n  failOnInitError: yes\n")
    path = argument.partition("=")[2]
    finished = plan("--simulate=t4", "-o", output, argument, "--gds-enabled=maybe")
    assert (finished.status, finished.out) == (1, "")
    assert [line.split(": error: ")[0] for line in finished.err.splitlines()] == [f"{path}:2:3", f"{path}:3:20", "--gds-enabled"]


def test_a_config_that_is_not_there_is_not_waited_for(plan, tmp_path):
    finished = plan("--simulate=t4", f"--config-file={tmp_path}/none.yaml")
    assert (finished.status, finished.out, finished.err) == (1, "", f"{tmp_path}/none.yaml: error: there is no such file\n")


def test_variables_count_as_for_run(run_command):
    finished = run_command("plan", "-ojson", "--simulate=a100-mig-mixed", environment=QUIET | {"MIG_STRATEGY": "mixed"})
    assert any(resource["name"].startswith("nvidia.com/mig-") for resource in json.loads(finished.out)["resources"])


def test_the_arguments_of_a_manifest_can_be_given_as_they_are(plan):
    """What only matters to serving changes nothing: no socket is opened and no directory made."""
    shown = plan("-ojson", "--simulate=t4")
    for argv in (
        ("--kubelet-socket=", "--pod-resources-socket=/nowhere/p.sock", "--cdi-directory=/nowhere/cdi"),
        ("--kubelet-socket=/nowhere/kubelet.sock", "--config-poll-interval=1m", "--file-notifications"),
    ):
        assert plan("-ojson", "--simulate=t4", *argv) == shown
    assert not Path("/nowhere").exists()


@pytest.mark.parametrize(
    ("argv", "environment", "message"),
    [
        (["--config-poll-interval=soon"], {}, "--config-poll-interval: error: "),
        ([], {"CONFIG_POLL_INTERVAL": "0s"}, "CONFIG_POLL_INTERVAL: error: "),
        (["--file-notifications=maybe"], {}, "--file-notifications: error: "),
        (["--cdi-directory="], {}, "--cdi-directory: error: expected a path, not an empty text"),
    ],
)
def test_what_would_keep_run_from_starting_is_said(run_command, argv, environment, message):
    """Also of options that change nothing in a plan: a manifest that cannot start has no plan."""
    finished = run_command("plan", "--simulate=t4", *argv, environment=QUIET | environment)
    assert (finished.status, finished.out) == (1, "")
    assert finished.err.startswith(message)


def test_a_node_without_a_driver_is_one_line_that_says_where_was_looked(plan, tmp_path):
    """No traceback (NVIDIA/k8s-device-plugin#1963 shows what the lack of a clear word leads to)."""
    finished = plan(f"--driver-root-ctr-path={tmp_path}")
    assert (finished.status, finished.out) == (1, "")
    [line] = finished.err.splitlines()
    assert line.startswith("node: error: ")
    assert f"no libnvidia-ml.so.1: looked for {tmp_path}/" in line


def test_a_library_that_is_none_is_one_line(plan, tmp_path):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").write_text("not a library")
    finished = plan(f"--driver-root-ctr-path={tmp_path}")
    assert (finished.status, finished.out) == (1, "")
    [line] = finished.err.splitlines()
    assert line.startswith("node: error: ")
    assert f"{tmp_path}/usr/lib64/libnvidia-ml.so.1" in line


@pytest.mark.parametrize(
    ("code", "words"),
    [("LIB_RM_VERSION_MISMATCH", "version"), ("DRIVER_NOT_LOADED", "load the NVIDIA kernel modules"), ("UNKNOWN", "nvmlInit")],
)
def test_a_driver_that_cannot_be_opened_is_one_line(plan, monkeypatch, code, words):
    """NVIDIA/k8s-device-plugin#221: driver and library of different versions."""
    enter = SimulatedNode.__enter__

    def broken(node):
        node.answer("nvmlInitWithFlags", code)
        return enter(node)

    monkeypatch.setattr(SimulatedNode, "__enter__", broken)
    finished = plan("--simulate=t4")
    assert (finished.status, finished.out) == (1, "")
    [line] = finished.err.splitlines()
    assert line.startswith("node: error: ")
    assert words in line


def test_a_gpu_that_does_not_answer_is_in_the_table_with_the_reason(plan, monkeypatch):
    enter = SimulatedNode.__enter__

    def broken(node):
        node.lose(1)
        return enter(node)

    monkeypatch.setattr(SimulatedNode, "__enter__", broken)
    finished = plan("--simulate=t4")
    assert finished.out.startswith("This simulated node: 4 GPUs, ")
    assert "not offered: " in next(line for line in finished.out.splitlines() if line.startswith("1 "))
    assert len(json.loads(plan("--simulate=t4", "-ojson").out)["resources"][0]["devices"]) == 3


def test_a_mig_device_that_the_driver_does_not_name_is_withheld_with_the_reason(plan, tmp_path):
    """It is an error and stands in its GPU's row, or the node would seem never to have had it; its siblings are offered."""
    profile = tmp_path / "node.yaml"
    profile.write_text(
        "name: mine\ndriverVersion: 580.95.05\ngpus:\n"
        "  - name: NVIDIA A100-SXM4-40GB\n    memoryMib: 40960\n    migCapable: true\n    migEnabled: true\n"
        "    mig: [1g.5gb, {profile: 1g.5gb, unsupported: [nvmlDeviceGetUUID]}, 1g.5gb]\n"
    )
    data = json.loads(plan("-ojson", f"--simulate={profile}", "--mig-strategy=mixed").out)
    (gpu,), (problem,) = data["gpus"], data["problems"]
    assert [device["index"] for device in data["resources"][0]["devices"]] == ["0:0", "0:2"]
    reason = f"it cannot be read: nvmlDeviceGetUUID of MIG device 1 of {gpu['uuid']}: Not Supported"
    assert (problem["severity"], problem["kind"]) == ("error", "mig")
    assert problem["message"] == f"MIG device 0:1 is withheld, the others are not: {reason}"
    assert gpu["withheld"] == [f"MIG device 0:1: {reason}"]


def test_a_driver_call_that_hangs_does_not_hold_the_plan_up(plan, config, monkeypatch):
    enter = SimulatedNode.__enter__

    def hanging(node):
        node.hang("nvmlInitWithFlags")
        return enter(node)

    monkeypatch.setattr(SimulatedNode, "__enter__", hanging)
    finished = plan("--simulate=t4", config("reconcile: {driverCallTimeout: 300ms}"))
    assert (finished.status, finished.out) == (1, "")
    [line] = finished.err.splitlines()
    assert line.startswith("node: error: nvmlInit")
    assert "has not returned" in line


def test_a_node_profile_that_is_not_there_names_the_shipped_ones(plan):
    finished = plan("--simulate=dgx-a1000")
    assert (finished.status, finished.out) == (1, "")
    assert all(name in finished.err for name in SHIPPED)


def test_a_node_profile_with_mistakes_is_refused_at_their_places(plan, tmp_path):
    profile = tmp_path / "node.yaml"
    profile.write_text("name: mine\ngpus:\n  - {name: X, pci: nonsense}\n")
    finished = plan(f"--simulate={profile}")
    assert finished.status == 1
    assert finished.err.startswith(f"{profile}:3:")


def test_an_empty_profile_is_no_real_node(plan):
    """`--simulate=$PROFILE` with a variable that is not set: what was to be simulated came from the hardware."""
    finished = plan("--simulate=")
    assert (finished.status, finished.out, finished.err) == (
        1,
        "",
        "--simulate: error: expected a node profile, not an empty text\n",
    )


def test_a_simulated_node_leaves_nothing_behind(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert plan("--simulate=t4").status == 0
    assert list(tmp_path.iterdir()) == []


def test_where_no_files_can_be_written_there_is_no_simulated_node(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    finished = plan("--simulate=t4")
    assert finished.status == 1
    assert finished.err.startswith("node: error: the files of the simulated node cannot be written: ")


def test_the_simulation_is_in_the_log(run_command):
    finished = run_command("plan", "--simulate=t4")
    started = json.loads(finished.err.splitlines()[0])
    assert (started["event"], started["level"], started["node"]) == ("simulation.started", "warning", "t4")


def test_a_real_node_is_not_called_simulated(plan, monkeypatch, tmp_path):
    """The same driver object, but not through --simulate: a simulated library is put where NVIDIA's would be loaded."""
    with SimulatedNode("l4x4", root=tmp_path) as node:
        monkeypatch.setattr("device_plugin.supervisor.local_driver.LocalDriver", lambda _root: NvmlDriver())
        monkeypatch.setattr("device_plugin.cli.node.REAL_ROOT", node.root)
        finished = plan(f"--driver-root-ctr-path={node.root}")
        assert finished.out.startswith("This node: 4 GPUs, ")
        assert json.loads(plan("-ojson", f"--driver-root-ctr-path={node.root}").out)["simulated"] is False
