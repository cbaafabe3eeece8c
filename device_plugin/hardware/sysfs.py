"""What files tell about the hardware: NUMA nodes, PCI devices, device nodes, MIG capabilities. All under given roots.

In production the roots are those of the plugin's container; a test or the simulation gives a made tree.
"""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.hardware.model import Gpu, Inventory, MigDevice, Platform, sysfs_address
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
WSL_NODE = "/dev/dxg"  # under WSL all GPUs are behind this one node
_EXTRA_NODES: Mapping[str, tuple[str, ...]] = {
    "gdrcopy": ("gdrdrv",),
    "gds": ("nvidia-fs*",),
    "mofed": ("infiniband/uverbs*", "infiniband/rdma_cm"),
}
_IMEX_DIRECTORY = "dev/nvidia-caps-imex-channels"

_NVIDIA = 0x10DE
_DISPLAY_CLASS = 0x03  # VGA compatible and 3D controllers; not the GPUs' audio, USB and bridges

_NUMA_NODE = r"-?[0-9]{1,9}"  # the kernel has an int there; no list takes a number that passes 63 bits
_CAPABILITY = r"^(?P<path>gpu\d+/gi\d+(?:/ci\d+)?/access|config|monitor)\s+(?P<minor>\d+)\s*$"
_KERNEL_MODULE = r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)"


@record
class Host:
    """The file systems of a node as this process sees them.

    `root` holds /sys and /proc; `dev_root` holds /dev where the driver's device nodes are (the same root if None).
    `plain_nodes` accepts plain files where device nodes are expected: a simulated tree holds those, since making device nodes
    needs privileges, and real-looking nodes would give access to real GPUs (NVIDIA/k8s-test-infra#591).
    """

    root: Path = Path("/")
    dev_root: Path | None = None
    plain_nodes: bool = False

    def numa_node(self, pci_bus_id: str) -> tuple[int | None, str | None]:
        """The NUMA node of a PCI device, and what is wrong if something is. Neither: the kernel knows none."""
        path = self.root / "sys/bus/pci/devices" / sysfs_address(pci_bus_id) / "numa_node"
        text = _read(path)
        if text is None:
            return None, None
        if not re.fullmatch(_NUMA_NODE, text.strip()):
            return None, f"its NUMA node is unknown: expected a number in {path}, found {text.strip()[:40]!r}"
        node = int(text)
        return (node if node >= 0 else None), None

    def nvidia_gpus(self) -> tuple[str, ...]:
        """The PCI addresses of the NVIDIA GPUs that NVIDIA's driver has or may yet get, sorted.

        Cheap: a change here is a reason to ask the driver. A GPU that another driver has (vfio-pci, nouveau) is none of ours.
        """
        return tuple(sorted(self._nvidia_gpus()))

    def mig_capabilities(self) -> dict[str, int]:
        """The driver's MIG capabilities: `gpu0/gi3/ci0/access` -> n of /dev/nvidia-caps/nvidia-cap<n>. Odd lines are skipped."""
        text = _read(self.root / "proc/driver/nvidia-caps/mig-minors") or ""
        matches = (re.match(_CAPABILITY, line.strip()) for line in text.splitlines())
        return {match["path"]: int(match["minor"]) for match in matches if match}

    def control_nodes(self) -> tuple[str, ...]:
        """Those of the driver's control nodes that exist, in the order containers get them."""
        return self._control_nodes(self._dev_root)

    def own_control_nodes(self) -> tuple[str, ...]:
        """Those in this process's own /dev, where NVIDIA's runtime puts them, whatever the driver root holds."""
        return self._control_nodes(self.root)

    def imex_channels(self) -> tuple[int, ...]:
        """The numbers of the IMEX channels whose device node exists."""
        directories = {root / _IMEX_DIRECTORY for root in (self._dev_root, self.root)}
        numbers = {
            int(path.name.removeprefix("channel"))
            for directory in directories
            for path in _glob(directory, "channel*")
            if path.name.removeprefix("channel").isdecimal() and self._is_node(path)
        }
        return tuple(sorted(numbers))

    def extra_nodes(self) -> dict[str, tuple[str, ...]]:
        """The nodes of GDRCopy, GPUDirect Storage and MOFED that exist, by feature."""
        return {
            feature: tuple(
                f"/{path.relative_to(self._dev_root)}" for pattern in patterns for path in _glob(self._dev_root / "dev", pattern)
            )
            for feature, patterns in _EXTRA_NODES.items()
        }

    def boot_id(self) -> str | None:
        """The kernel's name for this boot of the node."""
        text = _read(self.root / "proc/sys/kernel/random/boot_id")
        return text.strip() or None if text else None

    def driver_version(self) -> str | None:
        """The version of the loaded kernel driver; None if none is loaded."""
        match = re.search(_KERNEL_MODULE, _read(self.root / "proc/driver/nvidia/version") or "")
        return match[1] if match else None

    @property
    def _dev_root(self) -> Path:
        return self.dev_root or self.root

    def _nvidia_gpus(self) -> Iterator[str]:
        for device in _glob(self.root / "sys/bus/pci/devices", "*"):
            vendor, kind = _hexadecimal(device / "vendor"), _hexadecimal(device / "class")
            if vendor == _NVIDIA and kind is not None and kind >> 16 == _DISPLAY_CLASS and _is_nvidias(device / "driver"):
                yield device.name

    def _control_nodes(self, root: Path) -> tuple[str, ...]:
        return tuple(node for node in CONTROL_NODES if (root / node.lstrip("/")).exists())

    def _is_node(self, path: Path) -> bool:
        try:
            return self.plain_nodes or stat.S_ISCHR(path.stat().st_mode)
        except OSError:
            return False


def complete(inventory: Inventory, host: Host) -> Inventory:
    """The Inventory with what only files tell: NUMA nodes, device nodes, control nodes, IMEX channels, extra nodes."""
    if inventory.platform is Platform.WSL:  # one node for all, nothing else
        return replace(inventory, gpus=tuple(replace(gpu, device_nodes=(WSL_NODE,)) for gpu in inventory.gpus))
    capabilities = host.mig_capabilities() if any(gpu.mig_devices for gpu in inventory.gpus) else {}
    return replace(
        inventory,
        gpus=tuple(_complete_gpu(gpu, host, capabilities) for gpu in inventory.gpus),
        control_nodes=host.control_nodes(),
        own_control_nodes=host.own_control_nodes(),
        imex_channels=host.imex_channels(),
        extra_nodes=host.extra_nodes(),
    )


def _complete_gpu(gpu: Gpu, host: Host, capabilities: Mapping[str, int]) -> Gpu:
    numa_node, numa_fault = host.numa_node(gpu.pci_bus_id) if gpu.pci_bus_id else (None, None)
    faults = [*gpu.faults, *([numa_fault] if numa_fault else [])]
    mig_devices = []
    for device in gpu.mig_devices:
        nodes, fault = _mig_nodes(gpu, device, capabilities)
        mig_devices.append(replace(device, device_nodes=nodes))
        faults += [fault] if fault else []
    return replace(
        gpu,
        numa_node=numa_node,
        device_nodes=() if gpu.minor is None else (f"/dev/nvidia{gpu.minor}",),
        mig_devices=tuple(mig_devices),
        faults=tuple(faults),
    )


def _mig_nodes(gpu: Gpu, device: MigDevice, capabilities: Mapping[str, int]) -> tuple[tuple[str, ...], str | None]:
    """The parent's node and the capability nodes of both instances: all three, or none and why. Some alone are of no use."""
    if gpu.minor is None or device.gpu_instance_id is None or device.compute_instance_id is None:
        return (), None  # what is missing has been said where it was asked for
    instance = f"gpu{gpu.minor}/gi{device.gpu_instance_id}"
    paths = (f"{instance}/access", f"{instance}/ci{device.compute_instance_id}/access")
    missing = [path for path in paths if path not in capabilities]
    if missing:
        return (
            (),
            f"the device nodes of MIG device {device.uuid} are unknown: the driver's mig-minors has no {' and no '.join(missing)}",
        )
    return (f"/dev/nvidia{gpu.minor}", *(f"/dev/nvidia-caps/nvidia-cap{capabilities[path]}" for path in paths)), None


def _is_nvidias(driver: Path) -> bool:
    """Whether a PCI device's driver is NVIDIA's; one that has none yet may get it."""
    try:
        return driver.readlink().name.startswith("nvidia")
    except OSError:
        return True


def _glob(directory: Path, pattern: str) -> list[Path]:
    """Matching paths with numbers in numeric order; none where the directory is missing or may not be read."""
    try:
        return sorted(
            directory.glob(pattern),
            key=lambda path: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))],
        )
    except OSError:
        return []


def _hexadecimal(path: Path) -> int | None:
    try:
        return int(_read(path) or "", 16)
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
