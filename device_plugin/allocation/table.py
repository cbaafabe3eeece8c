"""The AllocationTable: all that GetPreferredAllocation and Allocate need to know of one resource, worked out once per change.

Both calls stand in the way of every pod that kubelet admits (Allocate has no deadline and stops kubelet's main loop), so
they look up, and never ask the driver: one lost GPU must not fail the pods on the others (NVIDIA/k8s-device-plugin#2038).
"""

from __future__ import annotations

import posixpath
from collections import Counter
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from device_plugin.allocation.cdi_names import CdiClass, extra_name, gpu_name, imex_channel_name
from device_plugin.allocation.links import Scores, score_pairs
from device_plugin.allocation.model import DeviceNode
from device_plugin.config.values import DeviceIdStrategy
from device_plugin.health.cause import CauseKind
from device_plugin.records import record
from device_plugin.sharing.offer import PreferencePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.allocation.model import Injection
    from device_plugin.hardware.model import Link
    from device_plugin.serving.served import ServedDevice, ServedResource
    from device_plugin.sharing.offer import Device

WSL_NODE = "/dev/dxg"  # the only node that a GPU has under WSL; NVIDIA's control nodes do not exist there
IMEX_NODE_PREFIX = "/dev/nvidia-caps-imex-channels/channel"


@record
class Hardware:
    """One GPU or MIG device as a container gets it, whichever of its replicas was asked for.

    `number` counts in device order. `cdi_name` is None where no CDI specification defines the device.
    """

    number: int
    runtime_id: str
    nodes: tuple[DeviceNode, ...]
    cdi_name: str | None


@record
class Entry:
    """One device of the resource, and what stands behind it."""

    id: str
    served: ServedDevice
    hardware: Hardware


@dataclass(frozen=True, slots=True, eq=False)
class AllocationTable:
    """One resource, ready to be asked.

    `entries` are in device order (GPU index, MIG index, replica); `positions` leads from an ID to its place there. By
    position, `gpu_of` and `hardware_of` number the physical GPU and the GPU or MIG device, and `healthy` says whether
    kubelet may hand the device out; `healthy_on_gpu` and `healthy_on_hardware` count those by number. `scores` is the
    matrix of pair scores of an aligned resource, by position; empty for other policies. The rest goes with every answer:
    nodes before and after those of the devices, CDI names after theirs.
    """

    resource: ServedResource
    injection: Injection
    entries: tuple[Entry, ...]
    positions: dict[str, int]
    gpu_of: tuple[int, ...]
    hardware_of: tuple[int, ...]
    healthy: tuple[bool, ...]
    healthy_on_gpu: Counter[int]
    healthy_on_hardware: Counter[int]
    scores: Scores
    control_nodes: tuple[DeviceNode, ...]
    imex_nodes: tuple[DeviceNode, ...]
    common_cdi_names: tuple[str, ...]


def build_table(resource: ServedResource, links: tuple[Link, ...], injection: Injection) -> AllocationTable:
    """The table of one resource as it is served now."""
    served_devices = sorted(resource.devices, key=lambda served: _device_order(served.device))
    undefined = {served.device.hardware_id for served in served_devices if _cannot_be_injected(served)} | injection.cdi_undefined
    gpus: dict[str, int] = {}
    hardware: dict[str, Hardware] = {}
    for served in served_devices:
        gpus.setdefault(served.device.gpu_uuid, len(gpus))
        if served.device.hardware_id not in hardware:
            is_defined = CdiClass.GPU in injection.cdi_classes and served.device.hardware_id not in undefined
            hardware[served.device.hardware_id] = _describe_hardware(len(hardware), served.device, injection, is_defined=is_defined)
    entries = tuple(Entry(served.device.id, served, hardware[served.device.hardware_id]) for served in served_devices)
    gpu_of = tuple(gpus[served.device.gpu_uuid] for served in served_devices)
    hardware_of = tuple(entry.hardware.number for entry in entries)
    healthy = tuple(served.is_healthy and served.present for served in served_devices)
    aligned = resource.policy is PreferencePolicy.ALIGNED
    is_wsl = any(node.container_path == WSL_NODE for item in hardware.values() for node in item.nodes)
    return AllocationTable(
        resource=resource,
        injection=injection,
        entries=entries,
        positions={entry.id: position for position, entry in enumerate(entries)},
        gpu_of=gpu_of,
        hardware_of=hardware_of,
        healthy=healthy,
        healthy_on_gpu=Counter(compress(gpu_of, healthy)),
        healthy_on_hardware=Counter(compress(hardware_of, healthy)),
        scores=score_pairs([served.device.index for served in served_devices], links) if aligned else (),
        control_nodes=() if is_wsl else _nodes(injection.control_nodes, injection),
        imex_nodes=_nodes((f"{IMEX_NODE_PREFIX}{channel}" for channel in injection.imex_channels), injection),
        common_cdi_names=_common_cdi_names(injection),
    )


def _device_order(device: Device) -> tuple[tuple[int, ...], int, str]:
    """Index as numbers (10 comes after 2), then the replica."""
    index = tuple(int(part) for part in device.index.split(":") if part.isdecimal())
    return index, -1 if device.replica is None else device.replica, device.id


def _cannot_be_injected(served: ServedDevice) -> bool:
    return any(cause.kind is CauseKind.INJECTION for cause in served.causes)


def _describe_hardware(number: int, device: Device, injection: Injection, *, is_defined: bool) -> Hardware:
    runtime_id = device.index if injection.id_strategy is DeviceIdStrategy.INDEX else device.hardware_id
    return Hardware(
        number=number,
        runtime_id=runtime_id,
        nodes=_nodes(device.device_nodes, injection),
        cdi_name=gpu_name(injection.cdi_kind_prefix, runtime_id) if is_defined else None,
    )


def _nodes(paths: Iterable[str], injection: Injection) -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(path, posixpath.join(injection.dev_root, path.lstrip("/"))) for path in paths)


def _common_cdi_names(injection: Injection) -> tuple[str, ...]:
    """The names that go with every device, of those classes that a specification defines."""
    prefix, defined = injection.cdi_kind_prefix, injection.cdi_classes
    channels = injection.imex_channels if CdiClass.IMEX_CHANNEL in defined else ()
    extras = [extra for extra in (CdiClass.GDRCOPY, CdiClass.GDS, CdiClass.MOFED) if extra in injection.extras and extra in defined]
    return (*(imex_channel_name(prefix, channel) for channel in channels), *(extra_name(prefix, extra) for extra in extras))
