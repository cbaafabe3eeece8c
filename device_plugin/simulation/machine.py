"""The simulated hardware: a frozen Machine, and the LiveMachine in which it is replaced while the library looks on."""

from __future__ import annotations

import re
import uuid
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROFILE = r"^(?:(?P<compute>\d+)c\.)?(?P<slices>\d+)g\.(?P<gb>\d+)gb(?P<suffix>(?:[+-][a-z.]+)?)$"
_NAMES = uuid.UUID("6d1f6b0e-5a0c-4b55-9a2e-51b1a7ed9e1d")  # the namespace of every generated UUID


def generated_uuid(prefix: str, *names: object) -> str:
    """The same UUID for the same names, in every process: `GPU-...` or `MIG-...`."""
    return f"{prefix}-{uuid.uuid5(_NAMES, '/'.join(str(name) for name in names))}"


@record
class MigShape:
    """A MIG profile's name, taken apart. Raises `ValueError` for what is not one."""

    compute_slices: int
    slices: int
    gigabytes: int
    suffix: str

    @classmethod
    def parse(cls, profile: str) -> MigShape:
        match = re.match(_PROFILE, profile)
        if match is None:
            raise ValueError(f"{profile!r} is not a MIG profile; expected a form like 1g.5gb, 1g.10gb+me or 1c.3g.20gb")
        slices = int(match["slices"])
        return cls(int(match["compute"] or slices), slices, int(match["gb"]), match["suffix"])

    @property
    def instance_profile(self) -> str:
        """The profile of the GPU instance: the name without the compute part."""
        return f"{self.slices}g.{self.gigabytes}gb{self.suffix}"

    def memory_mib(self, total_bytes: int | None) -> int:
        """What such a device has of a GPU's memory: so many eighths, less what the driver keeps for itself."""
        if total_bytes is None:
            return self.gigabytes * 1024
        total_mib = total_bytes // 2**20
        eighths = min(8, max(1, round(self.gigabytes * 1024 * 8 / total_mib)))
        return total_mib * eighths // 8 - 256


@record
class MigInstance:
    """One MIG device. `index` is NVML's MIG index; `unsupported` names C functions, without version suffix."""

    index: int
    profile: str
    uuid: str
    gpu_instance: int
    compute_instance: int
    memory_mib: int
    unsupported: frozenset[str] = frozenset()


@record
class SimulatedGpu:
    """One GPU and its condition. None = the driver answers "not supported"; see docs/simulation.md for each property."""

    uuid: str
    name: str
    pci_bus_id: str
    minor: int | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    compute_mode: int | None = 0
    addressing_mode: int | None = None
    numa: int | str | None = None
    mig_capable: bool = False
    mig_enabled: bool = False
    mig: tuple[MigInstance, ...] = ()
    switch_links: int = 0
    events: bool = True
    ecc_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None
    fabric_state: int | None = None
    fabric_status: int = 0
    lost: bool = False
    unsupported: frozenset[str] = frozenset()


@record
class Machine:
    """The whole node. GPUs are in NVML's order. Links and ancestors are by UUID, so that GPUs can come and go.

    `ancestors` has NVML's topology level for a pair; one without an entry is joined on its NUMA node, or across the system.
    `nvlinks` counts links from the first to the second. `driver_version` None: no driver is loaded. `boots` counts reboots.
    """

    name: str
    driver_version: str | None
    cuda_version: int
    gpus: tuple[SimulatedGpu, ...]
    ancestors: Mapping[frozenset[str], int] = field(default_factory=lambda: MappingProxyType({}))
    nvlinks: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    missing_symbols: frozenset[str] = frozenset()
    imex_channels: tuple[int, ...] = ()
    device_nodes: tuple[str, ...] = ()
    boots: int = 0

    def gpu(self, gpu_uuid: str) -> SimulatedGpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == gpu_uuid), None)
