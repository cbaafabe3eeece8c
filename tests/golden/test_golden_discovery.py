"""The real discovery code over simulated recorded hardware finds what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_plugin.hardware.model import Inventory
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.hardware.sysfs import complete
from device_plugin.simulation.node import SimulatedNode

NODES = Path(__file__).parent / "nodes"


def discover(machine, root):
    with SimulatedNode(machine, root=root) as node:
        driver = NvmlDriver()
        facts = driver.open()
        gpus = tuple(driver.read_gpu(index) for index in range(facts.gpu_count))
        links = driver.read_links(gpus)
        driver.close()
        return complete(Inventory(gpus=gpus, links=links, driver_version=facts.driver_version), node.host)


@pytest.mark.parametrize("name", ["a100", "dgx1v", "h100", "t4"])
def test_gpus_and_links_are_those_recorded(name, golden_machine, tmp_path):
    """Each recorded GPU, ancestor and NVLink is in the Inventory, NVSwitches as such."""
    recorded = json.loads((NODES / f"node-{name}.json").read_text())
    inventory = discover(golden_machine(name), tmp_path)
    assert inventory.driver_version == recorded["driver"]
    assert [
        [gpu.index, gpu.uuid, gpu.name, gpu.minor, gpu.pci_bus_id, gpu.memory_bytes, list(gpu.compute_capability)]
        for gpu in inventory.gpus
    ] == [
        [gpu[key] for key in ("index", "uuid", "name", "minor", "pciBusId", "memoryBytes", "computeCapability")]
        for gpu in recorded["gpus"]
    ]
    address = {gpu["index"]: gpu["pciBusId"] for gpu in recorded["gpus"]}
    for link in inventory.links:
        far = recorded["activeNvLinksByRemotePciBusId"][link.source]
        assert link.ancestor == recorded["commonAncestor"][link.source][link.target]
        assert link.nvlinks == far.get(address[link.target], 0)
        assert link.via_switch == ("FFFFFFFF:FF:FF.0" in far)


@pytest.mark.parametrize("layout", ["a100-mig-mixed", "a100-mig-single", "a100-mig-partial", "a100-mig-single-nonuniform"])
def test_mig_devices_are_those_recorded(layout, golden_machine, tmp_path):
    """Each recorded MIG device has its UUID, instance ids and profile, and both capability nodes."""
    rows = json.loads((NODES / "mig-layouts.json").read_text())[layout]
    inventory = discover(golden_machine("a100", layout), tmp_path)
    found = {
        (device.uuid, gpu.index, device.gpu_instance_id, device.compute_instance_id, device.profile)
        for gpu in inventory.gpus
        for device in gpu.mig_devices
    }
    assert found == {
        (row["uuid"], int(row["gpu"]), int(row["gpuInstanceId"]), int(row["computeInstanceId"]), row["profile"]) for row in rows
    }
    assert all(len(device.device_nodes) == 3 for gpu in inventory.gpus for device in gpu.mig_devices)
    assert not [gpu.faults for gpu in inventory.gpus if gpu.faults]
