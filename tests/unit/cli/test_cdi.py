"""`cdi generate` and `cdi list`: the specifications of a node by hand."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import jsonschema
import pytest

SCHEMAS = Path(__file__).parents[1] / "cdi" / "schemas"
QUIET = {"LOG_LEVEL": "error"}


def checked(text: str) -> dict:
    """A specification that fits the schema of the version it states."""
    document = json.loads(text)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{document['cdiVersion']}.json").read_text())).validate(document)
    return document


@pytest.fixture
def generate(run_command):
    return lambda *argv, profile="a100-mig-mixed": run_command("cdi", "generate", f"--simulate={profile}", *argv, environment=QUIET)


@pytest.fixture
def list_names(run_command):
    return lambda *directories: run_command("cdi", "list", *(f"--cdi-directory={directory}" for directory in directories))


@pytest.mark.parametrize("profile", ["t4", "a100-mig-mixed", "gb10"])
def test_the_specification_of_the_gpus_goes_to_standard_output(generate, run_command, profile):
    """Every GPU and MIG device that `plan` knows has its name in it."""
    finished = generate("--mig-strategy=mixed", profile=profile)
    assert finished.status == 0
    document = checked(finished.out)
    assert document["kind"] == "k8s.device-plugin.nvidia.com/gpu"
    planned = json.loads(run_command("plan", "-ojson", f"--simulate={profile}", "--mig-strategy=mixed", environment=QUIET).out)
    names = {device["name"] for device in document["devices"]}
    assert names >= {device["id"] for resource in planned["resources"] for device in resource["devices"]}


@pytest.mark.parametrize(("flags", "prefix"), [((), ""), (("--driver-root=/run/nvidia/driver",), "/run/nvidia/driver")])
def test_host_paths_are_those_of_a_real_node(generate, flags, prefix):
    """Simulated is the hardware: the driver root on the host is where the options say, not where the simulation keeps its files."""
    document = checked(generate(*flags, profile="t4").out)
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in document["containerEdits"]["mounts"]}
    assert mounts["/usr/bin/nvidia-smi"] == f"{prefix}/usr/bin/nvidia-smi"
    [node] = document["devices"][0]["containerEdits"]["deviceNodes"]
    assert node.get("hostPath", node["path"]) == f"{prefix}/dev/nvidia0"


def test_the_driver_files_can_be_others_than_those_of_the_simulated_node(generate, tmp_path):
    """A driver root of one's own beside simulated GPUs, to see what a specification would hold."""
    libraries = tmp_path / "root/usr/lib64"
    libraries.mkdir(parents=True)
    (libraries / "libcuda.so.580.95.05").touch()
    document = checked(generate(f"--driver-root-ctr-path={tmp_path}/root", profile="t4").out)
    paths = {mount["containerPath"] for mount in document["containerEdits"]["mounts"]}
    assert "/usr/lib64/libcuda.so.580.95.05" in paths
    assert "/usr/bin/nvidia-smi" not in paths


def test_what_could_not_be_found_is_said_beside_it(generate):
    """A simulated node has no hook program: warnings on standard error leave standard output a clean document."""
    finished = generate(profile="t4")
    assert finished.err.startswith("node: warning: ")
    checked(finished.out)


def test_a_file_is_replaced_as_a_whole_and_readable_by_all(generate, tmp_path):
    path = tmp_path / "gpu.json"
    path.write_text("old")
    finished = generate("--output", str(path))
    assert (finished.status, finished.out) == (0, f"{path}\n")
    checked(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_gets_every_class_and_keeps_the_names_that_a_container_may_hold(generate, list_names, tmp_path):
    first = generate(f"--output={tmp_path}", "--imex-channel-ids=0", profile="t4")
    assert first.status == 0
    paths = first.out.split()
    assert f"{tmp_path}/k8s.device-plugin.nvidia.com-gpu.json" in paths
    documents = [checked(Path(path).read_text()) for path in paths]
    old = {f"{document['kind']}={device['name']}" for document in documents for device in document["devices"]}
    second = generate(f"--output={tmp_path}", profile="l4x4")
    assert second.status == 0
    listed = {line.split()[0] for line in list_names(tmp_path).out.splitlines()[1:]}
    # An index now means the GPU that has it now; a UUID means what it always meant.
    assert listed >= old


def test_a_channel_that_the_node_lacks_is_said_and_one_that_is_required_ends_it(generate, tmp_path):
    """As `run` would: without the channel, or not at all."""
    without = generate("--imex-channel-ids=0", profile="t4")
    assert without.status == 0
    assert without.err.splitlines()[0].startswith("--imex-channel-ids: warning: imex.channelIDs: this node has no IMEX channel0")
    checked(without.out)
    refused = generate("--imex-channel-ids=0", "--imex-required", f"--output={tmp_path}", profile="t4")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.splitlines()[0].startswith("--imex-required: error: imex.required: this node has no IMEX channel0")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_does_not_become_a_file(generate, tmp_path):
    """The slash at its end says what was meant."""
    finished = generate(f"--output={tmp_path}/cdi/")
    assert (finished.status, finished.out) == (1, "")
    assert finished.err == f"--output: error: there is no directory {tmp_path}/cdi/\n"
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_replaced_by_a_file(generate, tmp_path):
    """As root, `--output /dev/null` put a file in the place of the node's /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    finished = generate(f"--output={pipe}")
    assert finished.status == 1
    assert finished.err == f"--output: error: {pipe} is neither a file nor a directory; - is standard output\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_empty_directory_is_refused(list_names):
    """A variable that is not set: to find nothing in nothing is no answer."""
    finished = list_names("")
    assert (finished.status, finished.err) == (1, "--cdi-directory: error: expected a path, not an empty text\n")


@pytest.mark.parametrize("output", ["none/gpu.json", "file/gpu.json", ""])
def test_a_place_that_cannot_be_written_is_one_line(generate, tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    finished = generate(f"--output={output}")
    assert (finished.status, finished.out) == (1, "")
    assert f"{output or '--output'}: error: " in finished.err.splitlines()[-1]


def test_a_directory_that_cannot_be_written_is_one_line_for_each_file(generate, tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("device_plugin.cdi.write._replace", refuse)
    finished = generate(f"--output={tmp_path}")
    assert (finished.status, finished.out) == (1, "")
    errors = [line for line in finished.err.splitlines() if ": error: " in line]
    path = tmp_path / "k8s.device-plugin.nvidia.com-gpu.json"
    assert errors == [f"node: error: the CDI specification {path} cannot be written: Read-only file system"]


def test_a_node_without_anything_to_specify_is_an_error(generate, tmp_path):
    profile = tmp_path / "empty.yaml"
    profile.write_text("name: empty\ndriverVersion: 580.95.05\ngpus: []\n")
    finished = generate(profile=str(profile))
    assert (finished.status, finished.out) == (1, "")
    assert finished.err.splitlines()[-1] == "node: error: there is nothing to specify on this node"


def test_without_a_driver_nothing_is_written(run_command, tmp_path):
    argv = ("cdi", "generate", f"--driver-root-ctr-path={tmp_path}", f"--output={tmp_path}/gpu.json")
    finished = run_command(*argv, environment=QUIET)
    assert finished.status == 1
    assert finished.err.startswith("node: error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_config_is_said_with_its_places(generate, tmp_path):
    (tmp_path / "c.yaml").write_text("flag: {}\n")
    finished = generate(f"--config-file={tmp_path}/c.yaml")
    assert (finished.status, finished.err) == (1, f"{tmp_path}/c.yaml:1:1: error: unknown key 'flag'; did you mean 'flags'?\n")


def test_the_list_names_each_device_with_its_file(generate, list_names, tmp_path):
    path = tmp_path / "gpu.json"
    generate(f"--output={path}", profile="t4")
    finished = list_names(tmp_path)
    header, *rows = finished.out.splitlines()
    assert (finished.status, finished.err, header.split()) == (0, "", ["DEVICE", "DEFINED", "IN"])
    names = {f"k8s.device-plugin.nvidia.com/gpu={device['name']}" for device in checked(path.read_text())["devices"]}
    assert [row.split() for row in rows] == [[name, str(path)] for name in sorted(names)]


def specification(path, *names):
    devices = [{"name": name, "containerEdits": {}} for name in names]
    path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}))


def test_a_name_defined_twice_is_an_error(list_names, tmp_path):
    """A runtime refuses such a name, and the pod does not start."""
    specification(tmp_path / "a.json", "0")
    specification(tmp_path / "b.json", "0", "1")
    specification(tmp_path / "c.json", "2", "2")
    finished = list_names(tmp_path)
    assert finished.status == 1
    assert finished.err.splitlines() == [
        (
            f"{tmp_path}/a.json: error: nvidia.com/gpu=0 is defined 2 times, in {tmp_path}/a.json and {tmp_path}/b.json, "
            "so a runtime refuses it"
        ),
        f"{tmp_path}/c.json: error: nvidia.com/gpu=2 is defined 2 times, in {tmp_path}/c.json, so a runtime refuses it",
    ]
    assert f"{tmp_path}/a.json, {tmp_path}/b.json" in finished.out


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (2, "nvidia.com/gpu=00 and nvidia.com/gpu=01"),
        (4, "nvidia.com/gpu=00, nvidia.com/gpu=01, nvidia.com/gpu=02 and 1 more"),
        (99, "nvidia.com/gpu=00, nvidia.com/gpu=01, nvidia.com/gpu=02 and 96 more"),
    ],
)
def test_a_copied_file_is_one_line(list_names, tmp_path, count, told):
    """It doubles all the names in it; the table still has a row for each."""
    for path in (tmp_path / "a.json", tmp_path / "b.json"):
        specification(path, *(f"{number:02}" for number in range(count)))
    finished = list_names(tmp_path)
    assert finished.status == 1
    assert len(finished.out.splitlines()) == 1 + count
    assert finished.err == (
        f"{tmp_path}/a.json: error: {count} names are defined 2 times, in {tmp_path}/a.json and {tmp_path}/b.json, "
        f"so a runtime refuses them: {told}\n"
    )


def test_a_later_directory_wins_and_is_no_conflict(generate, list_names, tmp_path):
    first, second = tmp_path / "etc", tmp_path / "run"
    for directory in (first, second):
        directory.mkdir()
        generate(f"--output={directory}/gpu.json", profile="gb10")
    finished = list_names(first, second)
    assert (finished.status, finished.err) == (0, "")
    assert str(first) not in finished.out


def test_a_file_that_no_runtime_could_read_is_an_error(list_names, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    finished = list_names(tmp_path)
    assert (finished.status, finished.out) == (1, "No CDI device is defined.\n")
    assert finished.err.startswith(f"{tmp_path}/broken.json: error: ")


def test_without_any_specification_the_list_says_so(list_names, tmp_path):
    finished = list_names(tmp_path / "none")
    assert (finished.status, finished.out, finished.err) == (0, "No CDI device is defined.\n", "")
