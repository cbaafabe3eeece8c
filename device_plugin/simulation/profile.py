"""The model of a node profile, which describes a node and what goes wrong with it, and the hardware that it stands for.

See docs/simulation.md.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from device_plugin.config.values import camel_case
from device_plugin.simulation.instances import WantedInstance, place_instances
from device_plugin.simulation.machine import Machine, SimulatedGpu, generated_uuid
from device_plugin.simulation.values import (
    ADDRESSING_MODES,
    AS_TUPLE,
    COMPUTE_MODES,
    FABRIC_STATES,
    IS_VERSION,
    RECOVERY_ACTIONS,
    DevicePath,
    Functions,
    MigProfile,
    PciAddress,
    Version,
    compute_capability_of,
    numa_node,
)

_PCIE_LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}  # as `nvidia-smi topo -m` writes NVML's levels
_NVLINKS = r"(?:NV)?([0-9]{1,2})"  # a number, or one as `nvidia-smi topo -m` writes it
_NOTHING = "."  # in a matrix: no NVLink, or the ancestor that follows from the NUMA nodes


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=camel_case, populate_by_name=True, extra="forbid", strict=True, frozen=True)


class MigEntry(_Part):
    """One MIG device. A bare profile stands for an entry with only that."""

    profile: MigProfile
    uuid: str | None = None
    gpu_instance: int | None = Field(default=None, ge=0)
    compute_instance: int | None = Field(default=None, ge=0)
    memory_mib: int | None = Field(default=None, ge=1)
    unsupported: Functions = ()

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"profile": value} if isinstance(value, str) else value

    @property
    def wanted(self) -> WantedInstance:
        return WantedInstance(
            profile=self.profile,
            uuid=self.uuid,
            gpu_instance=self.gpu_instance,
            compute_instance=self.compute_instance,
            memory_mib=self.memory_mib,
            unsupported=frozenset(self.unsupported),
        )


class GpuEntry(_Part):
    """One GPU. What is null or left out is "not supported" by the driver, where there is no other default."""

    name: str
    uuid: str | None = Field(default=None, pattern=r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    pci: PciAddress | None = None
    minor: int | None = Field(default=None, ge=0)
    memory_mib: int | None = Field(default=None, ge=1)
    compute_capability: Annotated[tuple[int, int] | None, BeforeValidator(compute_capability_of)] = None
    compute_mode: Literal["default", "exclusive-thread", "prohibited", "exclusive-process"] | None = "default"
    addressing_mode: Literal["none", "hmm", "ats"] | None = None
    numa: Annotated[Any, BeforeValidator(numa_node)] = None
    mig_capable: bool = False
    mig_enabled: bool = False
    mig: Annotated[tuple[MigEntry, ...], AS_TUPLE] = ()
    nvswitch_links: int = Field(default=0, ge=0, le=36)
    events: bool = True
    ecc_uncorrectable: int | None = Field(default=None, ge=0)
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: Literal["none", "reset", "reboot", "drain-p2p", "drain-and-reset"] | None = None
    fabric_state: Literal["not-started", "in-progress", "completed"] | None = None
    fabric_status: int = Field(default=0, ge=0)
    lost: bool = False
    unsupported: Functions = ()

    @model_validator(mode="after")
    def _mig_needs_its_mode(self) -> Self:
        if self.mig and not self.mig_enabled:
            raise ValueError("a GPU with MIG devices needs migEnabled: true")
        if self.mig_enabled and not self.mig_capable:
            raise ValueError("migEnabled: true needs migCapable: true")
        return self


def _pcie_matrix(value: str | None) -> str | None:
    """Levels, each the same both ways or stated once."""
    found = dict(_cells(value))
    for (source, target), cell in found.items():
        if cell != _NOTHING and cell not in _PCIE_LEVELS:
            known = ", ".join(_PCIE_LEVELS)
            raise ValueError(
                f"GPU {source} to GPU {target}: expected one of {known}, or {_NOTHING} for what NUMA says, not {cell!r}"
            )
        back = found.get((target, source), cell)
        if cell != back and _NOTHING not in (cell, back):
            raise ValueError(f"GPU {source} to GPU {target} is {cell}, but GPU {target} to GPU {source} is {back}")
    return value


def _nvlink_matrix(value: str | None) -> str | None:
    """Numbers of links. A PCIe level stands where `nvidia-smi topo -m` has no NVLinks to show."""
    for (source, target), cell in _cells(value):
        if cell != _NOTHING and cell not in _PCIE_LEVELS and not re.fullmatch(_NVLINKS, cell):
            expected = f"a number such as 2 or NV2, or {_NOTHING} for none"
            raise ValueError(f"GPU {source} to GPU {target}: expected {expected}, not {cell!r}")
    return value


class Links(_Part):
    """How the GPUs are joined: text matrices, one row for each GPU, the diagonal ignored."""

    pcie: Annotated[str | None, AfterValidator(_pcie_matrix)] = None
    nvlink: Annotated[str | None, AfterValidator(_nvlink_matrix)] = None


class NodeProfile(_Part):
    """A whole node. Its `faults` are still data here: `parse_profile` makes them the steps of a script, if there are any."""

    name: str = Field(min_length=1)
    description: str = ""
    driver_version: Version = None
    cuda_version: Annotated[str, IS_VERSION] = "12.4"
    gpu_defaults: dict[str, Any] = Field(default_factory=dict)
    gpus: Annotated[tuple[GpuEntry, ...], AS_TUPLE] = ()
    links: Links = Links()
    missing_symbols: Annotated[tuple[str, ...], AS_TUPLE] = ()
    imex_channels: Annotated[tuple[Annotated[int, Field(ge=0)], ...], AS_TUPLE] = ()
    device_nodes: Annotated[tuple[DevicePath, ...], AS_TUPLE] = ()
    faults: Annotated[tuple[Any, ...], AS_TUPLE] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_defaults(cls, value: Any) -> Any:
        """Each GPU is `gpuDefaults` with its own keys on top."""
        if not isinstance(value, dict):
            return value
        defaults, gpus = value.get("gpuDefaults") or {}, value.get("gpus")
        if not isinstance(defaults, dict) or not isinstance(gpus, list):
            return value
        return {**value, "gpus": [{**defaults, **gpu} if isinstance(gpu, dict) else gpu for gpu in gpus]}

    @model_validator(mode="after")
    def _matrices_fit(self) -> Self:
        for name, text in (("pcie", self.links.pcie), ("nvlink", self.links.nvlink)):
            rows = _rows(text)
            if text is not None and (len(rows) != len(self.gpus) or any(len(row) != len(self.gpus) for row in rows)):
                raise ValueError(f"links.{name} must have {len(self.gpus)} rows of {len(self.gpus)} entries, one for each GPU")
        return self


def machine_from_profile(profile: NodeProfile) -> Machine:
    """The hardware that a profile describes. The same profile gives the same UUIDs in every process."""
    gpus = tuple(gpu_from_entry(profile.name, index, entry) for index, entry in enumerate(profile.gpus))
    uuids = [gpu.uuid for gpu in gpus]
    ancestors, nvlinks = {}, {}
    for (source, target), cell in _cells(profile.links.pcie):
        if cell != _NOTHING:
            ancestors[frozenset((uuids[source], uuids[target]))] = _PCIE_LEVELS[cell]
    for (source, target), cell in _cells(profile.links.nvlink):
        count = re.fullmatch(_NVLINKS, cell)
        if count and int(count[1]):
            nvlinks[uuids[source], uuids[target]] = int(count[1])
    major, minor = profile.cuda_version.split(".")[:2]
    return Machine(
        name=profile.name,
        driver_version=profile.driver_version,
        cuda_version=int(major) * 1000 + int(minor) * 10,
        gpus=gpus,
        ancestors=MappingProxyType(ancestors),
        nvlinks=MappingProxyType(nvlinks),
        missing_symbols=frozenset(profile.missing_symbols),
        imex_channels=profile.imex_channels,
        device_nodes=profile.device_nodes,
    )


def gpu_from_entry(node: str, index: int, entry: GpuEntry) -> SimulatedGpu:
    """The GPU at that place of a node, with what the entry leaves open filled in: UUID, minor number, PCI address."""
    gpu_uuid = entry.uuid or generated_uuid("GPU", node, index)
    memory_bytes = entry.memory_mib * 2**20 if entry.memory_mib is not None else None
    return SimulatedGpu(
        uuid=gpu_uuid,
        name=entry.name,
        pci_bus_id=entry.pci or f"00000000:{0x10 + index:02X}:00.0",
        minor=entry.minor if "minor" in entry.model_fields_set else index,
        memory_bytes=memory_bytes,
        compute_capability=entry.compute_capability,
        compute_mode=COMPUTE_MODES[entry.compute_mode] if entry.compute_mode else None,
        addressing_mode=ADDRESSING_MODES[entry.addressing_mode] if entry.addressing_mode else None,
        numa=entry.numa,
        mig_capable=entry.mig_capable,
        mig_enabled=entry.mig_enabled,
        mig=place_instances(gpu_uuid, memory_bytes, [each.wanted for each in entry.mig], ()),
        switch_links=entry.nvswitch_links,
        events=entry.events,
        ecc_uncorrectable=entry.ecc_uncorrectable,
        remap_pending=entry.remap_pending,
        remap_failed=entry.remap_failed,
        recovery_action=RECOVERY_ACTIONS[entry.recovery_action] if entry.recovery_action else None,
        fabric_state=FABRIC_STATES[entry.fabric_state] if entry.fabric_state else None,
        fabric_status=entry.fabric_status,
        lost=entry.lost,
        unsupported=frozenset(entry.unsupported),
    )


def _cells(text: str | None) -> Iterator[tuple[tuple[int, int], str]]:
    """What stands at each row and column but the diagonal, in upper case."""
    for row, cells in enumerate(_rows(text)):
        for column, cell in enumerate(cells):
            if row != column:
                yield (row, column), cell.upper()


def _rows(text: str | None) -> list[list[str]]:
    return [line.split() for line in (text or "").splitlines() if line.strip()]
