"""The Inventory: a frozen snapshot of the node's hardware. What the driver would not tell is `None`."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum, StrEnum

from device_plugin.records import record


class ComputeMode(IntEnum):
    """NVML's compute modes (`nvmlComputeMode_t`). Only the exclusive ones keep a second process out."""

    DEFAULT = 0
    EXCLUSIVE_THREAD = 1
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class CommonAncestor(IntEnum):
    """The nearest PCIe ancestor of two GPUs (`nvmlGpuTopologyLevel_t`), nearest first."""

    INTERNAL = 0
    SINGLE = 10
    MULTIPLE = 20
    HOSTBRIDGE = 30
    NODE = 40
    SYSTEM = 50


class Platform(StrEnum):
    """What kind of driver stack the node has (compatibility with the peer's `deviceDiscoveryStrategy`)."""

    NVML = "nvml"
    WSL = "wsl"
    TEGRA = "tegra"
    UNKNOWN = "unknown"


@record
class MigAttributes:
    """NVML's attributes of a MIG device (`nvmlDeviceAttributes_t`). Two devices of equal attributes have one shape."""

    multiprocessor_count: int
    shared_copy_engine_count: int
    shared_decoder_count: int
    shared_encoder_count: int
    shared_jpeg_count: int
    shared_ofa_count: int
    gpu_instance_slice_count: int
    compute_instance_slice_count: int
    memory_size_mib: int


@record
class MigDevice:
    """One MIG device: a compute instance in a GPU instance.

    `index` is NVML's MIG index on the parent. `profile` is the profile's name with its suffix, as the driver names it
    (`1g.5gb`, `1c.3g.20gb`, `1g.10gb+me`); None if neither the driver nor the attributes tell. `device_nodes` are paths under the
    device root as a container sees them: the parent's node, then the GPU instance's and the compute instance's capability
    node. `fault` says why the driver would not describe it; such a device is withheld, its siblings are not. `uuid` is empty where
    the driver gave none.
    """

    uuid: str
    index: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    profile: str | None = None
    attributes: MigAttributes | None = None
    device_nodes: tuple[str, ...] = ()
    fault: str | None = None


@record
class Gpu:
    """One physical GPU.

    `index` is NVML's index, `pci_bus_id` NVML's text (`00000000:17:00.0`, upper or lower case as given). `memory_bytes` is None
    where the driver does not count it (GB10). `mig_enabled` is NVML's current mode; `mig_capable` False covers "not
    supported". `device_nodes` are paths as a container sees them (`/dev/nvidia0`), empty where the minor number is unknown.
    `faults` are sentences about what could not be read and matters; they do not stop the GPU from being offered. `coherent` says
    whether GPU and CPU share one coherent address space (NVML's addressing mode is ATS).
    """

    index: int
    uuid: str
    name: str
    minor: int | None = None
    pci_bus_id: str | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    compute_mode: ComputeMode | None = None
    numa_node: int | None = None
    mig_capable: bool = False
    mig_enabled: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    device_nodes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    coherent: bool | None = None


@record
class UnreadableGpu:
    """A GPU that the driver counts but would not describe at all. `reason` is the driver's text."""

    index: int
    reason: str
    uuid: str | None = None


@record
class Link:
    """What joins GPU `source` to GPU `target` (NVML indexes), seen from `source`.

    `nvlinks` counts active NVLinks from source straight to target; `via_switch` says that both hang on NVSwitches.
    """

    source: int
    target: int
    ancestor: CommonAncestor | None = None
    nvlinks: int = 0
    via_switch: bool = False


@record
class Inventory:
    """The whole node. `gpus` are in index order, `skipped` the indexes of devices that are not for computing.

    `links` has an entry for both directions of a pair, sorted.
    `control_nodes` are those of /dev/nvidiactl, -uvm, -uvm-tools, -modeset that exist, under the driver root if that has a `dev`;
    `own_control_nodes` those in this process's own /dev. `imex_channels` are the channel numbers whose node exists; `extra_nodes`
    maps `gdrcopy`, `gds` and `mofed` to the nodes found for them.
    """

    gpus: tuple[Gpu, ...] = ()
    unreadable: tuple[UnreadableGpu, ...] = ()
    skipped: tuple[int, ...] = ()
    links: tuple[Link, ...] = ()
    driver_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    platform: Platform = Platform.NVML
    control_nodes: tuple[str, ...] = ()
    own_control_nodes: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    extra_nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    simulated: bool = False

    def gpu(self, uuid: str) -> Gpu | None:
        """The GPU of that UUID, if the node has it."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


def sysfs_address(pci_bus_id: str) -> str:
    """NVML's `00000000:17:00.0` as sysfs names it: `0000:17:00.0`. The kernel writes four digits of domain, more where needed."""
    domain, colon, rest = pci_bus_id.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}{colon}{rest}"
    except ValueError:
        return pci_bus_id.lower()
