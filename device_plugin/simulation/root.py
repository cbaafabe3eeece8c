"""The simulated root: the files of a node with this hardware, for everything that does not come from NVML."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

from device_plugin.hardware.model import sysfs_address
from device_plugin.hardware.sysfs import CONTROL_NODES
from device_plugin.records import record
from device_plugin.simulation.machine import generated_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from device_plugin.simulation.machine import Machine, SimulatedGpu

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LIBRARY_NAMES = (
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-encode",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-ptxjitcompiler",
)
_PROGRAMS = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-smi",
)
_INSTANCES, _COMPUTE_INSTANCES = 15, 8  # MIG capabilities that the driver numbers for each GPU, used or not
_FIRST_CAPABILITY = 3  # after config (1) and monitor (2)

# A real device that does no harm: what /dev/null is. Nodes with NVIDIA's majors would grant real GPUs where there are some
# (NVIDIA/k8s-test-infra#591).
_HARMLESS_DEVICE = os.makedev(1, 3)


@record
class _Link:
    target: str


class _Node:
    """A device node, made as a plain file unless device nodes are asked for."""


_File = str | _Link | _Node


class SimulatedRoot:
    """A directory tree that follows a Machine. Files of others in it are left alone."""

    def __init__(self, path: Path, *, make_device_nodes: bool = False) -> None:
        self.path = path
        self._make_device_nodes = make_device_nodes
        self._written: dict[str, _File] = {}
        self._lock = threading.Lock()

    def update(self, machine: Machine) -> None:
        """Write what is new or different, remove what is not there any more."""
        with self._lock:
            wanted = dict(_files(machine))
            for name in self._written.keys() - wanted.keys():
                (self.path / name).unlink(missing_ok=True)
            changed = {self.path / name: content for name, content in wanted.items() if self._written.get(name) != content}
            for directory in {path.parent for path in changed}:
                directory.mkdir(parents=True, exist_ok=True)
            for path, content in changed.items():
                self._write(path, content)
            self._written = wanted

    def _write(self, path: Path, content: _File) -> None:
        if isinstance(content, str):
            path.write_text(content)
            return
        path.unlink(missing_ok=True)
        if isinstance(content, _Link):
            path.symlink_to(content.target)
        elif self._make_device_nodes:
            os.mknod(path, stat.S_IFCHR | 0o666, _HARMLESS_DEVICE)
        else:
            path.touch()


_NODE = _Node()  # one for all, so that an unchanged node compares equal


def _files(machine: Machine) -> Iterator[tuple[str, _File]]:
    yield "proc/sys/kernel/random/boot_id", generated_uuid("boot", machine.name, machine.boots).removeprefix("boot-") + "\n"
    for card, gpu in enumerate(machine.gpus):
        yield from _pci_files(card, gpu)
    if machine.driver_version is None:
        return
    yield from _driver_files(machine.driver_version)
    yield "proc/driver/nvidia-caps/mig-minors", "".join(_capability_lines(machine))
    for node in (*CONTROL_NODES, *machine.device_nodes):
        yield node.lstrip("/"), _NODE
    for channel in machine.imex_channels:
        yield f"dev/nvidia-caps-imex-channels/channel{channel}", _NODE
    for gpu in machine.gpus:
        if gpu.minor is None:
            continue
        yield f"dev/nvidia{gpu.minor}", _NODE
        for instance in gpu.mig:
            for capability in (
                capability_minor(gpu.minor, instance.gpu_instance),
                capability_minor(gpu.minor, instance.gpu_instance, instance.compute_instance),
            ):
                yield f"dev/nvidia-caps/nvidia-cap{capability}", _NODE


def _pci_files(card: int, gpu: SimulatedGpu) -> Iterator[tuple[str, _File]]:
    directory = f"sys/bus/pci/devices/{sysfs_address(gpu.pci_bus_id)}"
    yield f"{directory}/vendor", "0x10de\n"
    yield f"{directory}/class", "0x030200\n"
    yield f"{directory}/device", "0x20b0\n"
    if gpu.numa is not None:
        yield f"{directory}/numa_node", f"{gpu.numa}\n"
    for name in (f"card{card}", f"renderD{128 + card}"):
        yield f"{directory}/drm/{name}/uevent", f"DEVNAME=dri/{name}\n"
        yield f"dev/dri/{name}", _NODE


def _driver_files(version: str) -> Iterator[tuple[str, _File]]:
    yield "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  (simulated)\n"
    for library in _LIBRARY_NAMES:
        yield f"{_LIBRARIES}/{library}.so.{version}", ""
        yield f"{_LIBRARIES}/{library}.so.1", _Link(f"{library}.so.{version}")
    for program in _PROGRAMS:
        yield f"usr/bin/{program}", ""
    yield f"lib/firmware/nvidia/{version}/gsp_ga10x.bin", ""
    yield f"lib/firmware/nvidia/{version}/gsp_tu10x.bin", ""


def capability_minor(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """The driver's minor number of a MIG capability: numbered through for every instance that a GPU could have."""
    each = 1 + _COMPUTE_INSTANCES
    offset = 0 if compute_instance is None else 1 + compute_instance
    return _FIRST_CAPABILITY + (gpu_minor * _INSTANCES + gpu_instance) * each + offset


def _capability_lines(machine: Machine) -> Iterator[str]:
    yield "config 1\nmonitor 2\n"
    for minor in sorted(gpu.minor for gpu in machine.gpus if gpu.minor is not None):
        for instance in range(_INSTANCES):
            first, path = capability_minor(minor, instance), f"gpu{minor}/gi{instance}"
            yield f"{path}/access {first}\n"
            yield from (f"{path}/ci{compute}/access {first + 1 + compute}\n" for compute in range(_COMPUTE_INSTANCES))
