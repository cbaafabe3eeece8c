"""Faults that can be played on a node, and the files that follow its hardware."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from dataclasses import fields

import pytest

from device_plugin.errors import ConfigError, DriverError, GpuLost, NoPermission
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.profile import GpuEntry
from device_plugin.simulation.profile_file import parse_profile


@pytest.fixture
def node(tmp_path):
    with SimulatedNode("a100-mig-mixed", root=tmp_path) as made:
        yield made


@pytest.fixture
def driver(node):
    made = NvmlDriver()
    made.open()
    yield made
    node.clear()
    made.close()


def test_a_lost_gpu_comes_back(node, driver):
    """What is lost can be restored, and is the same GPU."""
    node.lose(1)
    with pytest.raises(GpuLost):
        driver.read_gpu(1)
    node.restore(1)
    assert driver.read_gpu(1).uuid == node.gpus[1].uuid


def test_an_answer_can_be_limited_to_a_gpu_and_to_times(node, driver):
    """Other GPUs are not hit, and after so many calls all is well."""
    node.answer("nvmlDeviceGetUUID", "NO_PERMISSION", gpu=node.gpus[4].uuid, times=2)
    assert driver.read_gpu(5).index == 5
    for _ in range(2):
        with pytest.raises(NoPermission):
            driver.read_gpu(4)
    assert driver.read_gpu(4).index == 4


def test_an_answer_by_name_takes_any_version_of_the_function(node, driver):
    """Version suffixes are NVML's business."""
    node.answer("nvmlDeviceGetHandleByIndex_v2", 999)
    with pytest.raises(DriverError, match="nvmlDeviceGetHandleByIndex"):
        driver.read_gpu(0)


def test_hanging_calls_go_on_after_release(node, driver):
    """A released call succeeds; answers that were set stay."""
    node.hang("nvmlDeviceGetMemoryInfo", gpu=0)
    found = []
    thread = threading.Thread(target=lambda: found.append(driver.read_gpu(0)), daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    node.release()
    thread.join(5)
    assert found[0].memory_bytes == 40960 * 2**20


def test_closing_the_node_ends_hanging_calls(tmp_path):
    """No thread is left hanging in a node that is gone."""
    with SimulatedNode("t4", root=tmp_path) as made:
        driver = NvmlDriver()
        driver.open()
        made.hang("*")
        thread = threading.Thread(target=driver.probe, args=(made.gpus[0].uuid,), daemon=True)
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
    thread.join(5)
    assert not thread.is_alive()


def test_slow_calls(node, driver):
    """Every call takes its time, the wait for events does not."""
    source = driver.watch([node.gpus[0].uuid])
    node.slow(0.1)
    took = []
    for _ in range(5):
        began = time.monotonic()
        source.wait(0)
        took.append(time.monotonic() - began)
    assert min(took) < 0.1
    began = time.monotonic()
    assert driver.probe(node.gpus[0].uuid).lost is None
    assert time.monotonic() - began > 0.2, "it is several calls"
    node.slow(0)


def test_a_repartition_keeps_what_fits(node, driver):
    """A 2g.10gb goes, two 1g.5gb come, the 3g.20gb stays the same device at the same place."""
    before = {instance.profile: instance for instance in node.gpus[1].mig}
    node.repartition(1, ["3g.20gb", *["1g.5gb"] * 4])
    after = node.gpus[1].mig
    assert before["3g.20gb"] in after
    assert len({(instance.gpu_instance, instance.compute_instance) for instance in after}) == 5
    assert len({instance.uuid for instance in after}) == 5
    node.repartition(1, ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"])
    assert before["2g.10gb"].uuid in {instance.uuid for instance in node.gpus[1].mig}


def test_switching_mig_mode(node, driver):
    """On without instances, off without any."""
    node.set_mig_mode(0, enabled=False)
    node.set_mig_mode(7, enabled=True)
    assert [(gpu.mig_enabled, gpu.mig_devices) for gpu in map(driver.read_gpu, (0, 7))] == [(False, ()), (True, ())]


def test_setting_properties_in_the_words_of_the_profile(node, driver):
    """Numbers and words both do; what a GPU does not have is refused with what it has."""
    node.set(0, recovery_action="reboot", ecc_uncorrectable=2, unsupported=["nvmlDeviceGetMinorNumber"])
    assert driver.probe(node.gpus[0].uuid).recovery_action == 2
    assert driver.read_gpu(0).minor is None
    with pytest.raises(ValueError, match=r"has no colour; it has .*ecc_uncorrectable"):
        node.set(0, colour="red")
    with pytest.raises(ValueError, match="expected one of none, reset"):
        node.set(0, recovery_action="pray")
    with pytest.raises(ValueError, match="cannot take nan seconds; expected 0 to 86400"):
        node.slow(float("nan"))


WRONG_VALUES = [
    ("name", 3, "expected text"),
    ("pciBusId", 3, "expected a PCI address such as 0000:07:00.0"),
    ("pciBusId", "0000:07:00.0\n", "expected a PCI address such as 0000:07:00.0"),
    ("minor", "x", "expected a whole number, 0 or more"),
    ("minor", True, "expected a whole number, 0 or more"),
    ("memoryBytes", "x", "expected a whole number, 0 or more"),
    ("memoryBytes", -1, "expected a whole number, 0 or more"),
    ("computeCapability", 8, 'expected a quoted compute capability such as "8.0"'),
    ("computeCapability", [8], 'expected a quoted compute capability such as "8.0"'),
    ("computeMode", True, "expected one of default, exclusive-thread, prohibited, exclusive-process, or NVML's number"),
    ("addressingMode", -1, "expected one of none, hmm, ats, or NVML's number"),
    ("numa", [1], "expected a NUMA node's number, or null where the kernel knows none"),
    ("migCapable", None, "expected true or false"),
    ("switchLinks", "x", "expected a whole number, 0 or more"),
    ("events", 1, "expected true or false"),
    ("eccUncorrectable", "many", "expected a whole number, 0 or more"),
    ("eccUncorrectable", float("inf"), "expected a whole number, 0 or more"),
    ("remapPending", "no", "expected true or false"),
    ("remapFailed", 0, "expected true or false"),
    ("recoveryAction", "pray", "expected one of none, reset, reboot, drain-p2p, drain-and-reset, or NVML's number"),
    ("fabricState", 1.5, "expected one of not-started, in-progress, completed, or NVML's number"),
    ("fabricStatus", None, "expected a whole number, 0 or more"),
    ("lost", "x", "expected true or false"),
    ("unsupported", 3, "expected a list of NVML functions such as nvmlDeviceGetMemoryInfo"),
    ("unsupported", "nvmlDeviceGetName", "expected a list of NVML functions such as nvmlDeviceGetMemoryInfo"),
]
NO_PROPERTY = (
    "not a property that changes; expected one of addressingMode, computeCapability, computeMode, eccUncorrectable, events, "
    "fabricState, fabricStatus, lost, memoryBytes, migCapable, minor, name, numa, pciBusId, recoveryAction, remapFailed, "
    "remapPending, switchLinks, unsupported"
)
FOREIGN = ("gpu", "self", "uuid", "mig", "migEnabled")


def snake(key):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


@pytest.mark.parametrize(("key", "value", "expected"), WRONG_VALUES)
def test_a_wrong_value_is_refused_by_hand_and_where_it_stands_in_a_script(node, key, value, expected):
    """A fault with a wrong value would break the simulated library, or the player, much later."""
    before = node.gpus
    with pytest.raises(ValueError, match=re.escape(f"{snake(key)} cannot be {value!r}: {expected}")):
        node.set(0, **{"lost": True, snake(key): value})
    assert node.gpus == before
    number = ".inf" if value == float("inf") else json.dumps(value)
    with pytest.raises(ConfigError) as refused:
        parse_profile(f"name: x\nfaults:\n- {{ atSeconds: 0, do: set, gpu: 0, values: {{ {key}: {number} }} }}\n", "p.yaml")
    assert str(refused.value) == f"p.yaml:3:{48 + len(key)}: error: faults[0].values.{key}: {expected}"


@pytest.mark.parametrize("key", FOREIGN)
def test_what_does_not_change_is_refused_by_hand_and_where_it_stands_in_a_script(node, key):
    """Identity and layout are not changed this way, and the words of the call are no properties."""
    with pytest.raises(ValueError, match=f"a simulated GPU has no {snake(key)}; it has addressing_mode, "):
        node.set(0, **{snake(key): 1})
    with pytest.raises(ConfigError) as refused:
        parse_profile(f"name: x\nfaults:\n- {{ atSeconds: 0, do: set, gpu: 0, values: {{ {key}: 1 }} }}\n", "p.yaml")
    assert str(refused.value) == f"p.yaml:3:{48 + len(key)}: error: faults[0].values.{key}: {NO_PROPERTY}"


def test_every_property_of_a_gpu_can_be_changed_but_its_identity_and_layout(node):
    """What a GPU has can be set to what it has."""
    gpu = node.gpus[0]
    values = {name: getattr(gpu, name) for name in (each.name for each in fields(gpu)) if name not in map(snake, FOREIGN)}
    assert set(values) == {snake(key) for key, _, _ in WRONG_VALUES}
    node.set(0, **values)
    assert node.gpus[0] == gpu
    optional = [name for name, kind in type(gpu).__annotations__.items() if "None" in kind]
    node.set(0, **dict.fromkeys(optional), unsupported={"nvmlDeviceGetName_v2"})
    assert {getattr(node.gpus[0], name) for name in optional} == {None}
    assert node.gpus[0].unsupported == {"nvmlDeviceGetName"}


def test_adding_gpus(node):
    """A new GPU has an identity, a minor number and an address of its own."""
    first = node.add_gpu()
    second = node.add_gpu(GpuEntry(name="NVIDIA T4", memory_mib=16384))
    assert [gpu.uuid for gpu in node.gpus[8:]] == [first, second]
    assert node.gpus[9].name == "NVIDIA T4"
    for name in ("uuid", "minor", "pci_bus_id"):
        assert len({getattr(gpu, name) for gpu in node.gpus}) == 10


def test_an_added_gpu_has_none_of_the_faults_of_its_kind(node):
    """A card that is plugged in is a new one."""
    node.set(7, ecc_uncorrectable=1, recovery_action="reset", remap_failed=True)
    node.lose(7)
    node.add_gpu()
    added = node.gpus[8]
    assert (added.ecc_uncorrectable, added.recovery_action, added.remap_failed, added.lost) == (0, 0, False, False)


def test_a_gpu_that_is_not_there_is_named(node):
    """A mistake in a test or script is told."""
    with pytest.raises(ValueError, match="has no GPU 8; it has 8"):
        node.lose(8)
    with pytest.raises(ValueError, match="not an NVML function"):
        node.answer("DeviceGetName", 3)
    with pytest.raises(ValueError, match="not an NVML return code"):
        node.answer("nvmlDeviceGetName", "BROKEN")


def test_a_reboot(node):
    """Conditions are clean, layouts gone, the boot id is another, the identities stay."""
    before, boot_id = node.gpus, node.host.boot_id()
    node.set(0, recovery_action="reset", ecc_uncorrectable=5)
    node.lose(1)
    node.reboot()
    assert node.host.boot_id() not in (boot_id, None)
    assert [gpu.uuid for gpu in node.gpus] == [gpu.uuid for gpu in before]
    assert not any(gpu.lost or gpu.mig or gpu.ecc_uncorrectable or gpu.recovery_action for gpu in node.gpus)


def test_files_follow_the_hardware(node):
    """Device nodes, PCI devices and capabilities come and go with what they stand for; foreign files stay."""
    (node.root / "dev/foreign").touch()
    capability = next((node.root / "dev/nvidia-caps").iterdir())
    assert len(node.host.nvidia_gpus()) == 8
    node.remove_gpu(3)
    assert len(node.host.nvidia_gpus()) == 7
    assert not (node.root / "dev/nvidia3").exists()
    for gpu in range(3):
        node.set_mig_mode(gpu, enabled=False)
    assert not capability.exists()
    assert (node.root / "dev/foreign").exists()
    node.unload_driver()
    assert node.host.driver_version() is None
    assert node.host.control_nodes() == ()
    node.load_driver("590.48.01")
    assert node.host.driver_version() == "590.48.01"
    assert (node.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").resolve().name == "libcuda.so.590.48.01"


def test_device_nodes_are_plain_files(node):
    """The simulation makes no device nodes of its own accord."""
    assert all(stat.S_ISREG(path.stat().st_mode) for path in (node.root / "dev").rglob("*") if not path.is_dir())


@pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")
def test_device_nodes_on_request_are_harmless(tmp_path):
    """Asked for, nodes are made with the major of /dev/null, never NVIDIA's (NVIDIA/k8s-test-infra#591)."""
    try:
        node = SimulatedNode("t4", root=tmp_path, make_device_nodes=True)
    except PermissionError:
        pytest.skip("this container may not make device nodes")
    majors = {os.major(path.stat().st_rdev) for path in (tmp_path / "dev").rglob("*") if not path.is_dir()}
    node.close()
    assert majors == {1}


def test_a_simulation_says_that_it_is_one(tmp_path, capsys):
    """Installing logs a warning with the node's name: simulated hardware must be unmistakable."""
    with SimulatedNode("gb10", root=tmp_path):
        pass
    written = capsys.readouterr()
    assert "simulation.started" in written.out + written.err
    assert "gb10" in written.out + written.err
