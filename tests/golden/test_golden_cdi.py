"""The CDI specifications that NVIDIA's plugin v0.20.0 wrote for eight A100, reproduced.

The recordings were made with NVIDIA's own mock of NVML. Ours hold each device under its index too, and the nodes of this test have
other numbers; all else is compared as it stands.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from device_plugin.cdi import Roots, build_specs, options_from, write_specs
from device_plugin.config.model import Config
from device_plugin.hardware.model import Gpu, Inventory

RECORDINGS = Path(__file__).parent / "recordings"
VERSION = "550.163.01"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """The root the recordings were made with: two libraries, their links as NVIDIA's mock has them, nodes, the hook program."""
    root = tmp_path / "driver-root"
    libraries = root / "usr/lib64"
    libraries.mkdir(parents=True)
    for name in (f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}"):
        (libraries / name).touch()
    (libraries / "libcuda.so").symlink_to(f"libcuda.so.{VERSION}")
    (libraries / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
    (libraries / "libnvidia-ml.so").symlink_to("libnvidia-ml.so.1")
    (root / "usr/bin").mkdir()
    (root / "usr/bin/nvidia-ctk").touch(mode=0o755)
    (root / "dev").mkdir()
    for path in (*CONTROL_NODES, *(f"/dev/nvidia{index}" for index in range(8))):
        node = root / path.lstrip("/")
        try:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("needs the right to make device nodes")
        node.chmod(0o666)
    return Roots(driver=root, own=tmp_path / "own")


def without_numbers(document: dict) -> dict:
    """The document without what differs by nature: device numbers, and the devices under their indexes."""
    devices = [device for device in document["devices"] if not device["name"].isdigit()]
    for edits in (document["containerEdits"], *(device["containerEdits"] for device in devices)):
        for node in edits["deviceNodes"]:
            node.pop("major", None)
            node.pop("minor", None)
    return document | {"devices": devices}


@pytest.mark.parametrize("scenario", ["a100-cdi-cri", "a100-cdi-annotations"])
def test_the_recorded_specification_is_written(scenario: str, roots: Roots, tmp_path: Path):
    """Same file name, version, devices, nodes, mounts, hooks and environment, in the same order."""
    recorded = json.loads((RECORDINGS / f"{scenario}.json").read_text())
    uuids = [device["ID"] for device in recorded["plugins"]["nvidia.com/gpu"]["list_and_watch"]["devices"]]
    gpus = tuple(
        Gpu(index, uuid, "NVIDIA A100-SXM4-40GB", minor=index, device_nodes=(f"/dev/nvidia{index}",))
        for index, uuid in enumerate(uuids)
    )
    inventory = Inventory(gpus=gpus, driver_version=VERSION, control_nodes=CONTROL_NODES)

    written = write_specs(build_specs(inventory, roots, options_from(Config())).specs, tmp_path / "cdi", still_named=())

    ours = {path.name: without_numbers(json.loads(path.read_text())) for path in written.changed}
    assert ours == {name: without_numbers(document) for name, document in recorded["cdi_specs"].items()}
    assert [list(document) for document in ours.values()] == [["cdiVersion", "kind", "devices", "containerEdits"]]
