"""Allocate: what a container gets for its devices, under each device-list strategy.

An answer depends on the request and the table alone. Kubelet asks again for the same devices (an init container and its app
container, a restart without checkpoint) and replays stored answers after a reboot; no call says for which pod it is
(kubernetes/kubernetes#82625).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from device_plugin.allocation.model import Allocation, DeviceNode, Mount
from device_plugin.allocation.refusal import check_request
from device_plugin.config.values import DeviceIdStrategy, DeviceListStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.allocation.model import Injection
    from device_plugin.allocation.table import AllocationTable, Entry, Hardware

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
EXTRA_ENVS = {"gdrcopy": "NVIDIA_GDRCOPY", "gds": "NVIDIA_GDS", "mofed": "NVIDIA_MOFED"}
MOUNTS_DIRECTORY = "/var/run/nvidia-container-devices"

NO_DEVICES = "void"
"""Tells NVIDIA's container runtime: no devices, whatever the image's own environment says."""

_OUR_NAMESPACE = uuid.UUID(
    "8c3f1c5e-52a7-4f0e-9d0b-0a4c55d7e6b1"
)  # drawn once; keeps our names apart from any other version-5 UUID


def allocate(table: AllocationTable, ids: Sequence[str]) -> Allocation:
    """The answer for one container that was given the devices `ids`.

    Devices are named to the runtime once each, in the order of the request, or by index under the index strategy. A request for
    nothing gets an environment that says so, never an empty one that an image or a runtime could read as "all".

    Raises AllocationRefused, see `refusal`.
    """
    entries = check_request(table, ids)
    if not entries:
        return Allocation(envs={VISIBLE_DEVICES: NO_DEVICES})
    injection = table.injection
    hardware = _unique_hardware(entries, injection)
    names = _cdi_names(table, hardware)
    return Allocation(
        envs=_envs(hardware, injection),
        mounts=_mounts(hardware, injection),
        devices=_device_nodes(table, hardware),
        annotations=_annotations(table, ids, names) if DeviceListStrategy.CDI_ANNOTATIONS in injection.strategies else {},
        cdi_devices=names if DeviceListStrategy.CDI_CRI in injection.strategies else (),
    )


def _unique_hardware(entries: Sequence[Entry], injection: Injection) -> list[Hardware]:
    """What stands behind the devices, each once: two replicas of one GPU are one GPU."""
    unique = {entry.hardware.number: entry.hardware for entry in entries}
    return [unique[number] for number in (sorted(unique) if injection.id_strategy is DeviceIdStrategy.INDEX else unique)]


def _envs(hardware: Sequence[Hardware], injection: Injection) -> dict[str, str]:
    envs: dict[str, str] = {}
    if DeviceListStrategy.ENVVAR in injection.strategies:
        envs[VISIBLE_DEVICES] = ",".join(item.runtime_id for item in hardware)
        if injection.imex_channels:
            envs[IMEX_CHANNELS] = ",".join(map(str, injection.imex_channels))
    if DeviceListStrategy.VOLUME_MOUNTS in injection.strategies:
        envs[VISIBLE_DEVICES] = MOUNTS_DIRECTORY
    return envs | {name: "enabled" for extra, name in EXTRA_ENVS.items() if extra in injection.extras}


def _mounts(hardware: Sequence[Hardware], injection: Injection) -> tuple[Mount, ...]:
    """Mounts that stand for devices: the runtime reads their names. An unprivileged pod cannot forge them, as it can an env."""
    if DeviceListStrategy.VOLUME_MOUNTS not in injection.strategies:
        return ()
    names = [item.runtime_id for item in hardware] + [f"imex/{channel}" for channel in injection.imex_channels]
    return tuple(Mount(container_path=f"{MOUNTS_DIRECTORY}/{name}", host_path="/dev/null") for name in names)


def _device_nodes(table: AllocationTable, hardware: Sequence[Hardware]) -> tuple[DeviceNode, ...]:
    """Control nodes, then those of the devices, then IMEX channels; MIG devices of one GPU share its node, which stands once."""
    injection = table.injection
    if not injection.pass_device_specs or injection.is_cdi_only:  # a CDI specification has the nodes
        return ()
    nodes = (*table.control_nodes, *(node for item in hardware for node in item.nodes), *table.imex_nodes)
    return tuple({node.container_path: node for node in nodes}.values())


def _cdi_names(table: AllocationTable, hardware: Sequence[Hardware]) -> tuple[str, ...]:
    """Names that a specification defines; any other would keep the container from being created."""
    names = tuple(item.cdi_name for item in hardware if item.cdi_name is not None)
    return names + table.common_cdi_names if names else ()


def _annotations(table: AllocationTable, ids: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """One annotation with all names, under a key of its own for this resource and these devices.

    Kubelet merges the answers of several resources into one container, so keys must differ. The last part of the key has 57
    characters of the 63 that the CDI specification allows.
    """
    if not names:
        return {}
    key = uuid.uuid5(_OUR_NAMESPACE, "\n".join([table.resource.name, *sorted(set(ids))]))
    return {f"{table.injection.cdi_annotation_prefix}nvidia-device-plugin_{key}": ",".join(names)}
