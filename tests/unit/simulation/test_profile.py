"""Node profiles: the shipped ones, and mistakes in one's own."""

from __future__ import annotations

import json

import pytest

from device_plugin.errors import ConfigError
from device_plugin.hardware.model import Inventory
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.hardware.sysfs import complete
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.profile import machine_from_profile
from device_plugin.simulation.profile_file import load_profile, parse_profile, profile_path, shipped_profiles

# name -> GPUs, MIG devices, NUMA nodes, NVLinks from GPU 0 to 3, on NVSwitches
SHIPPED = {
    "a100-mig-mixed": (8, 15, {0, 1}, 0, True),
    "dgx-a100": (8, 0, {0, 1}, 0, True),
    "dgx-h100": (8, 0, {0, 1}, 0, True),
    "dgx1-v100": (8, 0, {0, 1}, 2, False),
    "gb10": (1, 0, {None}, 0, False),
    "h100-mig-single": (8, 56, {0, 1}, 0, True),
    "hgx-b200": (8, 0, {0, 1}, 0, True),
    "l4x4": (4, 0, {0, 1}, 0, False),
    "rtx-mixed": (4, 0, {0}, 0, False),
    "t4": (4, 0, {0}, 0, False),
    "v100x16": (16, 0, {0, 1}, 0, True),
}


def test_the_shipped_profiles_are_these():
    """Each shipped profile has its row below."""
    assert shipped_profiles() == tuple(sorted(SHIPPED))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_discovered_without_a_fault(name, tmp_path):
    """The plugin's own discovery finds on each shipped node what its profile promises."""
    gpus, mig_devices, numa_nodes, nvlinks, on_switches = SHIPPED[name]
    with SimulatedNode(name, root=tmp_path) as node:
        driver = NvmlDriver()
        count = driver.open().gpu_count
        read = [driver.read_gpu(index) for index in range(count)]
        inventory = complete(Inventory(gpus=tuple(read), links=driver.read_links(read)), node.host)
        driver.close()
        assert node.name == name
        assert node.host.driver_version() == node.live.machine.driver_version
        assert len(node.host.nvidia_gpus()) == gpus
    assert len(inventory.gpus) == gpus
    assert sum(len(gpu.mig_devices) for gpu in inventory.gpus) == mig_devices
    assert {gpu.numa_node for gpu in inventory.gpus} == numa_nodes
    assert [fault for gpu in inventory.gpus for fault in gpu.faults] == []
    assert all(device.fault is None and device.device_nodes for gpu in inventory.gpus for device in gpu.mig_devices)
    by_pair = {(link.source, link.target): link for link in inventory.links}
    if gpus > 3:
        assert (by_pair[0, 3].nvlinks, by_pair[0, 3].via_switch) == (nvlinks, on_switches)


def test_gb10_tells_no_memory():
    """The profile for NVIDIA/k8s-device-plugin#1482 has no memory size."""
    assert [gpu.memory_bytes for gpu in machine_from_profile(load_profile("gb10")).gpus] == [None]


def test_rtx_mixed_has_two_models():
    """One node with two kinds of GPU."""
    assert len({gpu.name for gpu in machine_from_profile(load_profile("rtx-mixed")).gpus}) == 2


def test_the_same_profile_gives_the_same_identities():
    """UUIDs are made from names, not by chance, and differ between GPUs and between nodes."""
    first, second = (machine_from_profile(load_profile("v100x16")) for _ in range(2))
    assert first == second
    everyone = [gpu.uuid for name in SHIPPED for gpu in machine_from_profile(load_profile(name)).gpus]
    assert len(everyone) == len(set(everyone))


def test_what_a_gpu_leaves_open_is_filled_in():
    """UUID, minor number and address have defaults; defaults for all GPUs are overridden by a GPU's own keys."""
    text = """
        name: mine
        driverVersion: 580.1.2
        gpuDefaults: { name: A, memoryMib: 1024, numa: 1 }
        gpus: [{}, { numa: 0, memoryMib: null, minor: 7, pci: "0001:af:00.0" }, { minor: null }]
    """
    first, second, third = machine_from_profile(parse_profile(text, "mine.yaml")).gpus
    assert (first.minor, first.memory_bytes, first.numa, first.pci_bus_id) == (0, 2**30, 1, "00000000:10:00.0")
    assert (second.minor, second.memory_bytes, second.numa, second.pci_bus_id) == (7, None, 0, "00000001:AF:00.0")
    assert third.minor is None


def test_an_empty_node():
    """A node without GPUs is one: a driver that counts none."""
    assert machine_from_profile(parse_profile("name: cpu-only\ndriverVersion: 580.1.2", "x")).gpus == ()


def test_a_path_and_a_name(tmp_path):
    """A shipped name means the shipped file, anything else a path."""
    copy = tmp_path / "dgx-a100.yaml"
    copy.write_text(profile_path("dgx-a100").read_text())
    assert load_profile(copy) == load_profile("dgx-a100")


def test_a_profile_that_is_not_there(tmp_path):
    """The message says so in plain words, and names the shipped ones."""
    (tmp_path / "file").touch()
    for missing in ("dgx-z9", tmp_path / "file/a.yaml"):
        with pytest.raises(ConfigError) as refused:
            load_profile(missing)
        assert str(refused.value) == (
            f"{missing}: error: there is no such node profile; give a YAML file or one of: {', '.join(sorted(SHIPPED))}"
        )


def test_a_profile_that_cannot_be_read(tmp_path):
    """The message says why, whatever stands there."""
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    name = "a" * 300
    for path, words in (
        (tmp_path, f"{tmp_path}: error: cannot be read: Is a directory; give a YAML file or one of: a100-mig-mixed, "),
        (name, f"{name}: error: cannot be read: File name too long; give a YAML file or one of: a100-mig-mixed, "),
        (tmp_path / "latin.yaml", f"{tmp_path}/latin.yaml:1:7: error: byte 0xe9 is not UTF-8"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_profile(path)
        assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("name: x\ngpus:\n  - name: A\n    nam: B\n", "p.yaml:4:10", "gpus[0].nam: Extra inputs"),
        ("name: x\ndriverVersion: 580.1\n", "p.yaml:2:16", "in quotes if it has one dot"),
        ("name: x\ngpus:\n  - name: A\n    numa: [1]\n", "p.yaml:4:11", "numa"),
        ("name: x\ngpus:\n  - name: A\n    pci: '17:00.0'\n", "p.yaml:4:10", "expected a PCI address such as 0000:07:00.0"),
        ("name: x\ngpus:\n  - { name: A, computeCapability: 8.0 }\n", "p.yaml:3:35", 'quoted compute capability such as "8.0"'),
        ("name: x\ngpus:\n  - { name: A, mig: [1g.5gb] }\n", "p.yaml:3:5", "needs migEnabled: true"),
        ("name: x\ngpus:\n  - { name: A, migEnabled: true }\n", "p.yaml:3:5", "needs migCapable: true"),
        (
            "name: x\ngpus:\n  - { name: A, migCapable: true, migEnabled: true, mig: [big] }\n",
            "p.yaml:3:58",
            "'big' is not a MIG profile",
        ),
        ("name: x\ngpus:\n  - { name: A, unsupported: [memory] }\n", "p.yaml:3:29", "list of NVML functions"),
        ("name: x\ngpus:\n  - { name: A, uuid: GPU-1 }\n", "p.yaml:3:22", "uuid"),
        ("name: x\ngpus: [{ name: A }]\nlinks:\n  nvlink: X 1\n", "p.yaml:1:1", "links.nvlink must have 1 rows of 1 entries"),
        (
            "name: x\ngpus: [{ name: A }, { name: A }]\nlinks:\n  nvlink: |\n    X 2\n    2 X\n  pcie: |\n    X PIZ\n    PIZ X\n",
            "p.yaml:7:9",
            "links.pcie: GPU 0 to GPU 1: expected one of PIX, PXB, PHB, NODE, SYS, or . for what NUMA says, not 'PIZ'",
        ),
        (
            'name: x\ngpus: [{ name: A }, { name: A }]\nlinks: { pcie: "X PIX\\nSYS X" }\n',
            "p.yaml:3:16",
            "links.pcie: GPU 0 to GPU 1 is PIX, but GPU 1 to GPU 0 is SYS",
        ),
        (
            'name: x\ngpus: [{ name: A }, { name: A }]\nlinks: { nvlink: "X 2\\nNV X" }\n',
            "p.yaml:3:18",
            "links.nvlink: GPU 1 to GPU 0: expected a number such as 2 or NV2, or . for none, not 'NV'",
        ),
        ("name: x\nname: y\n", "p.yaml:2:1", "'name' stands here twice"),
        ("name: x\ngpus: [\n", "p.yaml:3:1", "not YAML"),
        ("gpus: []\n", "p.yaml:1:1", "name: Field required"),
        ("- a\n", "p.yaml:1:1", "dictionary"),
        ("", "p.yaml:1:1", "name: Field required"),
        ("name: x\ndescription: \0\n", "p.yaml:2:14", "the character U+0000 is not allowed in YAML"),
        (
            "name: x\ndeviceNodes: [/dev/gdrdrv, /dev/../../x]\n",
            "p.yaml:2:28",
            "deviceNodes[1]: expected a path such as /dev/gdrdrv",
        ),
        ("name: x\ndeviceNodes: [dev/x]\n", "p.yaml:2:15", "expected a path such as /dev/gdrdrv"),
        ("name: x\nimexChannels: [0, -1]\n", "p.yaml:2:19", "greater than or equal to 0"),
        ("name: &a [*a]\n", "p.yaml:1:7", "valid string"),
        ("name: x\ngpus: &a [*a]\n", "p.yaml:2:7", "valid dictionary"),
        ("name: x\nfaults: [{ atSeconds: 1, do: explode }]\n", "p.yaml:2:10", "explode"),
        ("name: x\nfaults: [{ atSeconds: -1, do: release }]\n", "p.yaml:2:23", "greater than or equal to 0"),
        (
            "name: x\nfaults: [{ atSeconds: .inf, do: release }]\n",
            "p.yaml:2:23",
            "faults[0].atSeconds: Input should be a finite number",
        ),
        (
            "name: x\nfaults: [{ atSeconds: 1, do: slow, seconds: .inf }]\n",
            "p.yaml:2:45",
            "faults[0].seconds: Input should be a finite number",
        ),
        ("name: x\nfaults: [{ atSeconds: 1, do: slow, seconds: .nan }]\n", "p.yaml:2:45", "a finite number"),
        ("name: x\nfaults: [{ atSeconds: 1, do: slow, seconds: 86401 }]\n", "p.yaml:2:45", "less than or equal to 86400"),
        ("name: x\nfaults: [{ atSeconds: 1, do: xid, xid: 79 }]\n", "p.yaml:2:10", "faults[0].gpu: Field required"),
        (
            "name: x\nfaults:\n  - { atSeconds: 1, do: xid, gpu: 0, xid: 79, nonsense: 3 }\n",
            "p.yaml:3:57",
            "faults[0].nonsense: Extra inputs are not permitted",
        ),
        (
            "name: x\nfaults: [{ atSeconds: 1, do: xid, gpu: 0, xid: -1 }]\n",
            "p.yaml:2:48",
            "faults[0].xid: Input should be greater",
        ),
        ("name: x\nfaults: [{ atSeconds: 1, do: lose, gpu: null }]\n", "p.yaml:2:41", "faults[0].gpu: expected a number or a name"),
        ("name: x\nfaults: [{ atSeconds: 1, do: repartition, gpu: 0, mig: [big] }]\n", "p.yaml:2:57", "not a MIG profile"),
        (
            "name: x\nfaults: [{ atSeconds: 1, do: load-driver, version: ../../x }]\n",
            "p.yaml:2:52",
            "faults[0].version: expected a version",
        ),
        ("name: x\ndescription: 2020-13-45\n", "p.yaml", "not YAML: month must be in 1..12"),
        ("name: x\nlinks: { pcie: 'X' }\ngpus: [{ name: A, minor: -1 }]\n", "p.yaml:3:26", "greater than or equal to 0"),
    ],
)
def test_a_mistake_is_reported_where_it_stands(text, place, message):
    """File, line, column and what was expected, for every kind of mistake."""
    with pytest.raises(ConfigError) as caught:
        parse_profile(text, "p.yaml")
    assert [str(problem.origin) for problem in caught.value.problems] == [place]
    assert message in str(caught.value)


@pytest.mark.parametrize("matrix", ["X NV2 SYS\nnv2 X NV12\nSYS NV12 X", "X 2 .\n2 X 12\n0 12 X"])
def test_nvlinks_may_be_written_as_nvidia_smi_does(matrix):
    """`nvidia-smi topo -m` writes NV2, and the PCIe level where there are none."""
    profile = parse_profile(json.dumps({"name": "x", "gpus": [{"name": "A"}] * 3, "links": {"nvlink": matrix}}), "p.yaml")
    machine = machine_from_profile(profile)
    first, second, third = (gpu.uuid for gpu in machine.gpus)
    assert machine.nvlinks == {(first, second): 2, (second, first): 2, (second, third): 12, (third, second): 12}


def test_a_pcie_matrix_may_state_each_pair_once():
    profile = parse_profile('name: x\ngpus: [{ name: A }, { name: A }]\nlinks: { pcie: "X pix\\n. X" }\n', "p.yaml")
    machine = machine_from_profile(profile)
    assert machine.ancestors == {frozenset(gpu.uuid for gpu in machine.gpus): 10}


@pytest.mark.parametrize("text", ['name: x\n"a\\nb": 1\n', 'name: x\ngpus: []\n"a\\nb": 1\n"a\\nb": 2\n'])
def test_no_key_spoils_the_line_that_names_it(text):
    with pytest.raises(ConfigError) as caught:
        parse_profile(text, "p.yaml")
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["p.yaml"] * len(caught.value.problems)


def test_all_mistakes_are_reported_at_once():
    """Two mistakes are two problems, in file order."""
    with pytest.raises(ConfigError) as caught:
        parse_profile("name: x\ngpus:\n  - name: A\n    minor: a\n  - name: 3\n", "p.yaml")
    assert [problem.origin.line for problem in caught.value.problems] == [4, 5]
