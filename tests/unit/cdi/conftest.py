"""A driver root made of empty files, a node to go with it, and the schema of each CDI version."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from device_plugin.cdi import CdiOptions, Roots
from device_plugin.hardware.model import Gpu, Inventory, MigDevice

VERSION = "550.163.01"
SCHEMAS = Path(__file__).parent / "schemas"


@dataclass
class Tree:
    """A directory that plays the root of a file system."""

    root: Path

    def file(self, path: str, content: str = "", mode: int = 0o644) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    def link(self, path: str, target: str) -> None:
        link = self.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def node(self, path: str, minor: int = 3, mode: int = 0o666, gid: int = 0) -> None:
        """A character device that is /dev/null or its like, whatever it is called."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(target, stat.S_IFCHR | mode, os.makedev(1, minor))
            os.chown(target, 0, gid)
        except PermissionError:
            pytest.skip("needs the right to make device nodes")
        target.chmod(mode)

    def driver(self, version: str = VERSION, directory: str = "/usr/lib64") -> None:
        """The libraries to compute with, and their links as the driver's installer makes them."""
        for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
            self.file(f"{directory}/{stem}.so.{version}")
            self.link(f"{directory}/{stem}.so.1", f"{stem}.so.{version}")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A driver root with the driver's libraries and the hook program, without a /dev of its own."""
    made = Tree(tmp_path / "driver-root")
    made.driver()
    made.file("/usr/bin/nvidia-ctk", mode=0o755)
    return made


@pytest.fixture
def own(tmp_path: Path) -> Tree:
    """The plugin container's own root, for its /dev and /sys."""
    made = Tree(tmp_path / "own")
    (made.root / "dev").mkdir(parents=True)
    return made


@pytest.fixture
def roots(tree: Tree, own: Tree) -> Roots:
    return Roots(driver=tree.root, own=own.root)


@pytest.fixture
def options() -> CdiOptions:
    return CdiOptions()


def make_gpu(index: int, **changes: Any) -> Gpu:
    values = {
        "index": index,
        "uuid": f"GPU-0000000{index}-1234-1234-1234-123456780000",
        "name": "NVIDIA A100-SXM4-40GB",
        "minor": index,
        "pci_bus_id": f"00000000:{0x17 + index:02X}:00.0",
        "device_nodes": (f"/dev/nvidia{index}",),
    }
    return Gpu(**(values | changes))


def make_mig(gpu: int, index: int, **changes: Any) -> MigDevice:
    values = {
        "uuid": f"MIG-0000000{gpu}-1234-1234-1234-12345678000{index}",
        "index": index,
        "gpu_instance_id": 7 + index,
        "compute_instance_id": 0,
        "profile": "1g.5gb",
        "device_nodes": (
            f"/dev/nvidia{gpu}",
            f"/dev/nvidia-caps/nvidia-cap{100 * gpu + 10 * index + 3}",
            f"/dev/nvidia-caps/nvidia-cap{100 * gpu + 10 * index + 4}",
        ),
    }
    return MigDevice(**(values | changes))


@pytest.fixture
def gpu():
    return make_gpu


@pytest.fixture
def mig():
    return make_mig


@pytest.fixture
def inventory() -> Inventory:
    """Two whole GPUs."""
    return Inventory(gpus=(make_gpu(0), make_gpu(1)), driver_version=VERSION, control_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"))


@pytest.fixture
def mig_inventory() -> Inventory:
    """GPU 0 in MIG mode with two MIG devices, GPU 1 whole."""
    split = make_gpu(0, mig_capable=True, mig_enabled=True, mig_devices=(make_mig(0, 0), make_mig(0, 1)))
    return Inventory(gpus=(split, make_gpu(1)), driver_version=VERSION, control_nodes=("/dev/nvidiactl",))


@pytest.fixture
def validate():
    """Checks a document against the schema of the version it states."""

    def check(document: dict[str, Any], version: str | None = None) -> None:
        stated = version or document["cdiVersion"]
        schema = json.loads((SCHEMAS / f"{stated}.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(document | {"cdiVersion": stated})

    return check


@pytest.fixture
def documents(validate):
    """The documents of built specifications by class, each checked against its schema."""

    def by_class(built) -> dict[str, dict[str, Any]]:
        found = {spec.device_class: spec.document() for spec in built.specs}
        for document in found.values():
            validate(document)
        return found

    return by_class
