"""From the driver's answers to a running container: a simulated node, discovered through NVML, injected by a real runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_plugin.cdi import CdiOptions, Roots, build_specs, write_specs
from device_plugin.hardware.model import Inventory
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.hardware.sysfs import Host, complete
from device_plugin.simulation.node import SimulatedNode

pytestmark = pytest.mark.requires("podman", "busybox", "unshare")

PROFILE = """
name: runtime-test
driverVersion: 550.163.01
cudaVersion: "12.4"
gpuDefaults: { name: NVIDIA A100-SXM4-40GB, memoryMib: 40960, computeCapability: "8.0", migCapable: true }
gpus:
  - { pci: "0000:07:00.0" }
  - { pci: "0000:0f:00.0", migEnabled: true, mig: [3g.20gb, 3g.20gb] }
"""


@pytest.fixture
def simulated(tmp_path: Path):
    profile = tmp_path / "profile.yaml"
    profile.write_text(PROFILE)
    with SimulatedNode(profile, root=tmp_path / "node", make_device_nodes=True) as node:
        yield node


def discover(node: SimulatedNode) -> Inventory:
    driver = NvmlDriver()
    facts = driver.open()
    try:
        gpus = tuple(driver.read_gpu(index) for index in range(facts.gpu_count))
        return complete(Inventory(gpus=gpus, driver_version=facts.driver_version, simulated=True), Host(node.root))
    finally:
        driver.close()


def test_what_is_discovered_is_what_a_container_sees(simulated: SimulatedNode, cdi: Path, run):
    """Each GPU and MIG device of the node alone in a container: its nodes, and those of no other."""
    inventory = discover(simulated)
    roots = Roots(driver=simulated.root, host_driver=str(simulated.root), host_dev=str(simulated.root), own=simulated.root)
    built = build_specs(inventory, roots, CdiOptions())
    assert write_specs(built.specs, cdi, still_named=()).failures == {}
    whole, split = inventory.gpus
    expected = {whole.uuid: {"/dev/nvidia0", "/dev/dri/card0", "/dev/dri/renderD128"}}
    expected |= {mig.uuid: set(mig.device_nodes) for mig in split.mig_devices}
    assert len(expected) == 3
    for name, nodes in expected.items():
        finished = run("ls -d /dev/nvidia[0-9]* /dev/nvidia-caps/* /dev/dri/* 2>/dev/null || true", f"gpu={name}")
        assert finished.returncode == 0, finished.stderr
        assert set(finished.stdout.split()) == nodes
    library = run("ls /usr/lib/x86_64-linux-gnu", f"gpu={whole.uuid}").stdout.split()
    assert {"libcuda.so.1", "libcuda.so.550.163.01", "libnvidia-ml.so.1"} <= set(library)
